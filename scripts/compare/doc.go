// Command compare runs the same commands on real Slurm and on gbatch and compares what they
// print; scripts/compare.sh starts both and calls it.
//
//	compare -real DIR:CONF -ours DIR:CONF [-only WORD | -fuzz N [-seed S] [-of SORT]] TABLES
//
// DIR is where the commands are, CONF the configuration (SLURM_CONF and GBATCH_CONF). TABLES is
// the directory with workload.txt (what both clusters are given), cases.txt (what is compared)
// and differences.txt (what differs on purpose, and why). One line of output is one comparison.
// With -fuzz random command lines take the place of the cases: fuzz-options.txt has what they
// are made of, fuzz-differences.txt what else differs on purpose.
//
//	main.go          the workload, its cases, the report
//	align.go         what two outputs have in common
//	fuzz.go          random lines on both, and what differs by its cause
//	fuzz-lines.go    random lines of srun, sbatch and salloc
//	fuzz-queries.go  random lines that ask
//	fuzz-tasks.go    what random jobs run, and idle clusters between them
package main
