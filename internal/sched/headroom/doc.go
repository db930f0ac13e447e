// Package headroom counts what a partition keeps back (ReservePercent=).
//
// The rule: a job starts only if, with it, at least that part of what is in service in the
// partition stays free or with jobs that can be ended at once. GPUs are counted, or CPUs where the
// partition has no GPUs. The rule doesn't bind three kinds of jobs: those that can be ended at once
// (they are the ones to whom the headroom is lent), those of a QOS with the flag Headroom (they are
// the ones for whom it is kept), and those in an advance reservation, which has its own.
//
// A job can be ended at once if preemption may end it without delay: no grace, no time in which it
// is exempt, not suspended instead. What an elastic job has beyond its least number of nodes counts
// as such too, because it is asked back.
//
// headroom.go has the counts, lend.go who lends.
//
// Owns: who lends, and the counts of one moment. It doesn't own: when the bound jobs start (package
// sched), who preempts whom, and the lists that show it (ctld/pools).
//
// Invariants: pure; the same view gives the same counts. All partitions' jobs on the partition's
// nodes count; nodes that take no jobs don't.
package headroom
