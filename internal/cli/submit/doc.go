// Package submit has the commands that submit jobs.
//
//	gsubmit.go  gsubmit (sbatch): a batch script
//	missing.go  what it warns of: directories and files that this host does not have
//	each.go     gsubmit --each: a job for each line of a file
//	galloc.go   galloc (salloc): an allocation, and a command or shell with it
//
// What can be asked for is package request's; package allocate waits for an allocation and gives it
// back.
package submit
