// Package noded is gnoded, the daemon of a compute or login host.
//
// # What it owns
//
// Being registered with the leader; taking orders and answering for every attempt that was ever ordered here until the
// leader has its end in the log; the jobs' scripts, environments, control groups; the socket by which commands on this
// host reach the leader.
//
// # What it does not own
//
// The jobs' processes, from fork to exit status: gshim does (noded/shim), and outlives gnoded. Control groups' details
// (noded/cgroup), GPUs' (noded/gpu). Any decision about what runs, for how long, or who may ask for what: the leader's.
//
// # Invariants
//
//  1. An attempt (job, attempt number) is started at most once, however often it is ordered, here or over restarts.
//  2. What was taken on is on disk before it is done, and its end before gshim may forget it; an end is reported until
//     the leader acknowledges it. kill -9 at any moment loses nothing and does nothing twice.
//  3. A leader with a smaller epoch than one that was obeyed is refused.
//  4. An end is reported when nothing of the job is left on the machine, or when the node was drained for what survives
//     SIGKILL; not before, and no phase lasts for ever.
//  5. Without a leader jobs run on, and their ends wait.
//  6. Whatever a user can name (output files) is touched with that user's rights, and cannot hold up another's job.
//  7. Who asks on the local socket is who the kernel says.
//
// # Where to read
//
// noded.go (what runs), loop.go (the one goroutine that owns the attempts, and its batches), attemptstate.go and stepstate.go
// (what can happen to attempts and steps), attempt.go and stepstop.go (how it is done); then by what happens: launch.go, reap.go, stop.go, recover.go. spool.go is the disk, report.go what waits for the
// leader, session.go the conversation with it, pause.go the pauses between tries. link.go is the connection to gshim,
// groups.go the control groups and stepgroup.go those of steps, units.go the device files behind resources and unitnames.go
// how jobs are told of them (internal/jobenv), userfile.go lines for the user. What a step
// gets is decided in noded/steplayout. inventory.go and
// hardware.go are the node's account of itself; package relay finds the leader and carries
// users' requests. DESIGN.md has the reasons
// and the measurements.
package noded
