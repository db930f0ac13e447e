// Package noded is gnoded, the daemon of a compute or login host.
//
// # What it owns
//
// The session with the leader; orders, and reports about every attempt that was ordered here until
// the leader has its end in the log; the jobs' scripts, environments and control groups; the socket
// by which commands on this host reach the leader.
//
// # What it does not own
//
// The jobs' processes, from fork to exit status: gshim does (noded/shim), and outlives gnoded.
// Details of control groups (noded/cgroup) and GPUs (noded/gpu). Decisions about what runs and for
// how long, and users' rights: the leader's.
//
// # Invariants
//
//  1. An attempt (job, attempt number) is started at most once, however often it is ordered, here
//     or over restarts.
//  2. An order is on disk before it is carried out, and an attempt's end is on disk before gshim
//     may forget it. An end is reported until the leader acknowledges it. kill -9 at any moment
//     loses nothing and does nothing twice. Where the disk can't be written, no order is taken and
//     ends are told from memory (spool.go).
//  3. A leader with a smaller epoch than an earlier leader's is refused.
//  4. An end is reported only when nothing of the job is left on the machine, or when the node was
//     drained for processes that survive SIGKILL. No phase lasts for ever.
//  5. Without a leader jobs run on, and their ends wait. Where one leads and does not hear this
//     node, its jobs end before they can start elsewhere (package fence).
//  6. Files that a user names (output files) are opened with that user's rights, and can't delay
//     another user's job.
//  7. The kernel gives the user of a connection on the local socket.
//
// # Where to read
//
// noded.go has New and Run, main.go and options.go the program. loop.go is the single goroutine
// that owns the attempts, and its batches. attemptstate.go, stepstate.go and partstate.go are the
// state tables of attempts, steps and steps' parts on other nodes, with what ends each phase;
// attempt.go, stepstop.go and steppart.go carry out the tables' acts.
//
// Then by what happens to an attempt: launch.go (with loginenv.go, and package scripts), prolog.go
// and program.go (Prolog and Epilog, and GresHelper, of package greshelper), freeze.go (suspended),
// resize.go (other nodes; package allocfile), stop.go, shimnews.go (news from gshim), reap.go (the
// end) and exit.go (exit status and usage), oom.go with package gpuoom (lack of memory),
// unkillable.go (processes that survive SIGKILL), recover.go (after a restart), waits.go (what an
// attempt waits for).
//
// Steps: stepserve.go is the socket on which commands ask for them, stepconn.go one connection
// with its messages; steps.go has the steps that the node of the batch script manages, and
// stepplace.go gives those that wait their part of the job. stepmake.go makes orders, stepbeside.go
// those of processes beside the tasks, and steporder.go gives them, stepend.go handles ends.
// steppart.go and stepremote.go are the two sides of a step on several nodes, peers.go is the port
// between them, steprejoin.go handles a command that comes back, steplist.go the leader's
// questions. Package noded/steplayout decides a step's resources, noded/ports its ports. known.go
// holds users against this node's own database.
//
// Memory and conversation: spool.go is the journal on disk and memory.go the meaning of its
// records, report.go the outbox of reports, session.go the session with the leader, nodeask.go
// the leader's questions; package check refuses messages that mean nothing, package shares
// divides descriptors and memory among those who connect. rules.go has the cluster's rules.
// link.go is the connection to gshim and has the pauses between tries, package pool the workers.
// Package relay finds the leader and carries users' requests, userfile.go writes lines for the
// user.
//
// Containers: ownmounts.go, with packages container, box, image and oci; package layers bounds what
// they write.
//
// Package receive is the process that takes in a file of gbcast (stepmake.go starts it as a task),
// package taskaround the one around a task with epilogs.
// Package exporter serves what the GPUs do, and whose they are, to others.
//
// The machine: package hardware finds the hardware, session.go sends it to the leader, main.go
// prints it. Package gpuwatch reads the GPUs and finds faults; gpurecover.go runs it and reacts to
// faults; mig.go divides GPUs. health.go and doctor.go check the node. groups.go has the control
// groups of jobs and stepgroup.go those of steps, and takes logins in; sample.go, samplegpu.go and
// ownuse.go measure the usage of jobs; package procs reads /proc for them.
//
// DESIGN.md has the reasons and the measurements.
package noded
