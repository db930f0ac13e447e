// Package greshelper is the program of GresHelper beside a job with remote GPUs: what it reads and
// answers, the process that keeps it, and the answers of the jobs that run.
//
// gshim starts the keeper (its own program with another name) as the job's user, in the job's
// control group and directories. The keeper starts the helper, gives it one line of JSON about the
// job, and passes on the one line that the helper answers. It keeps the helper's standard input
// open until it is told to stop, so that gnoded may be killed or upgraded meanwhile. The manual
// page gbatch-hooks(7) describes the protocol.
//
//	protocol.go  the two lines
//	keeper.go    the process
//	store.go     the answers, on disk: steps need them, also after a restart of gnoded
//
// Invariants: an answer is bounded in size and in time; a helper that fails, hangs or writes
// anything else is ended, with the keeper, and is an error in a sentence; what users or their jobs
// do to the helper affects their own job only; an answer is on disk before the job begins.
//
// It doesn't own: which program runs, and what its failure means for the job (noded), and the
// variables of jobs (internal/jobenv).
package greshelper
