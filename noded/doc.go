// Package noded is gnoded, the daemon of a compute or login host.
//
// # What it owns
//
// Being registered with the leader; taking orders and answering for every attempt that was ever
// ordered here until the leader has its end in the log; the jobs' scripts, environments, control
// groups; the socket by which commands on this host reach the leader.
//
// # What it does not own
//
// The jobs' processes, from fork to exit status: gshim does (noded/shim), and outlives gnoded.
// Control groups' details (noded/cgroup), GPUs' (noded/gpu). Any decision about what runs, for how
// long, or who may ask for what: the leader's.
//
// # Invariants
//
//  1. An attempt (job, attempt number) is started at most once, however often it is ordered, here
//     or over restarts.
//  2. What was taken on is on disk before it is done, and its end before gshim may forget it; an
//     end is reported until the leader acknowledges it. kill -9 at any moment loses nothing and
//     does nothing twice.
//  3. A leader with a smaller epoch than one that was obeyed is refused.
//  4. An end is reported when nothing of the job is left on the machine, or when the node was
//     drained for what survives SIGKILL; not before, and no phase lasts for ever.
//  5. Without a leader jobs run on, and their ends wait.
//  6. Whatever a user can name (output files) is touched with that user's rights, and cannot hold
//     up another's job.
//  7. Who asks on the local socket is who the kernel says.
//
// # Where to read
//
// noded.go says what runs, main.go and options.go how it is started. loop.go is the one goroutine
// that owns the attempts, and its batches. attemptstate.go, stepstate.go and partstate.go are the
// tables of what can happen to attempts, steps and their parts on other nodes, and what ends each
// phase; attempt.go, stepstop.go and steppart.go do what the tables say, statetable.go is what they
// share.
//
// Then by what happens to an attempt: launch.go (with loginenv.go, and package scripts), prolog.go
// and program.go (Prolog and Epilog), freeze.go (suspended), stop.go, shimnews.go (what gshim
// says), reap.go (the end) and exit.go (how it ended), oom.go, unkillable.go (what survives
// SIGKILL), recover.go (after a restart), waits.go (what it waits for).
//
// Steps: stepserve.go is the socket on which commands ask for them, steps.go what the node of the
// batch script manages, stepmake.go makes orders and steporder.go gives them, stepend.go and
// stepsample.go their ends and use. steppart.go and stepremote.go are the two sides of a step on
// several nodes, peers.go the port between them, steprejoin.go a command that comes back,
// steplist.go what the leader asks. What a step gets is decided in noded/steplayout.
//
// Memory and conversation: spool.go is the disk and memory.go what its records mean, report.go what
// waits for the leader, session.go the conversation with it, nodeask.go its questions, rules.go its
// configuration, pause.go the pauses between tries. link.go is the connection to gshim, package
// pool the workers. Package relay finds the leader and carries users' requests, userfile.go writes
// lines for the user.
//
// The machine: package hardware finds what it has, hello.go tells the leader, main.go prints it.
// Package gpuwatch reads the GPUs and makes of it what is wrong; gpurecover.go has that done, and
// what follows from a fault; mig.go divides GPUs. health.go and doctor.go look the node over.
// groups.go has the control groups of jobs and stepgroup.go those of steps; sample.go, samplegpu.go
// and ownuse.go say what jobs use; package procs reads /proc for them.
//
// DESIGN.md has the reasons and the measurements.
package noded
