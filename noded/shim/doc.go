// Package shim is the launcher: gshim, the one process per gnoded that forks, owns and reaps the
// jobs' processes, and the client by which gnoded talks to it.
//
// # What it owns
//
// The processes of jobs from fork to reaping, with their identity, output files, limits, umask and
// working directory; their entry into the cgroups that gnoded made; the journal that keeps results
// until gnoded acknowledges them.
//
// # What it does not own
//
// cgroups (noded/cgroup makes, kills and removes them), spool directories, time limits, the
// decision what to run. It does not know the cluster, a controller or the configuration. Its binary
// links the standard library and x/sys only.
//
// # Invariants
//
//  1. At most once: an order is journaled before the fork, and a known (JobID, Attempt, Step) is
//     never forked again: a repeated order gets the same answer.
//  2. An end is on disk before it is reported, and reported again at every List until it is
//     acknowledged.
//  3. kill -9 and restart of gnoded touch no job. kill -9 of gshim touches no job either: the next
//     gshim finds the processes by (pid, start time) and reports them as Orphaned, and their end as
//     "exit status unknown".
//  4. Whatever a job names (output files, working directory, program) is opened with that job's
//     user, groups and umask, never with gshim's.
//  5. A launch that hangs, say on a dead file server, holds one thread and nothing else.
//  6. Jobs end with the lease if the controllers give the node up (lease.go): no job runs on two
//     nodes. If no controller gives the node up, they run on.
//
// # Where to read
//
// order.go (what is asked and answered), server.go (the process), orders.go (each order), launch.go
// (one launch, step by step), fork.go (what happens between fork and exec), reap.go, journal.go,
// signal.go, orphan.go, abandoned.go, lease.go, upgrade.go; client.go and start.go are gnoded's
// side; wire.go is the encoding, endword.go what is told to a process beside.
// DESIGN.md has the measurements and the rejected alternatives.
//
// Further: codec.go (parts of frames), conn.go (a client's connection), socket.go (where it is),
// rights.go (files that come along), launchers.go (how many launches at once), limits.go (resource
// limits), procfs.go (what /proc says), main.go, log.go.
package shim
