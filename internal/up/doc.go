// Package up runs a whole cluster on one machine: `gbatch up`, `gbatch status`, `gbatch down`.
//
// Every daemon is the real program in a process of its own, with real ports, certificates, logs and
// files below one directory DIR. This package makes the directory (layout.go, generate.go), starts
// what is missing of the cluster (up.go, start.go), watches it until it takes jobs (ready.go),
// reports (status.go) and takes it down (down.go, leftover.go).
//
// It doesn't own what the daemons do, and it isn't needed while they run: commands find the cluster
// by its configuration file, and `gbatch up` may be killed at any moment without harm to a running
// cluster.
//
// # Invariants
//
//   - DIR/gbatch.conf says what the cluster is: who its daemons are and where they listen. It is
//     written once; from then on it belongs to the user, and `up` starts what it names.
//   - DIR/up.json says which processes are ours. A process is ours when pid, start time and boot
//     agree, or when its command line names our configuration file; a reused pid is never taken for
//     ours.
//   - up.json is the first file of a new DIR and says everything that the other files are made
//     from, so an interrupted first `up` is finished by the next one. A DIR that holds files but no
//     readable up.json is left alone.
//   - One `up` or `down` at a time works on a DIR (up.lock). Two DIRs share nothing: ports are
//     drawn free, sockets lie below DIR, and cgroups carry the directory's mark.
//
// book.go is up.json, options.go what may be asked for, ports.go draws ports, process.go tells
// which process is ours, jobs.go ends what a cluster that is taken down still runs, power.go
// switches nodes on and off.
package up
