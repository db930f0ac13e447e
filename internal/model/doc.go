// Package model holds gbatch's nouns: jobs, nodes, partitions, allocations, plans and accounting
// records.
//
// Everything here is a value. No clock, socket, file, lock, log or dice may be imported
// (internal/archtest enforces it), so that the replicated state, the scheduler and the simulator
// can share the nouns. Values that have been published (stored in the state, sent on a wire) are
// never edited: to change one, copy it first.
//
// Read job.go, then jobstate.go (the states, and the events that move a job between them), then
// alloc.go.
//
// Structs with a Wire method are sent and stored: the method lists their fields, a line each (see
// package wire). They are append-only: a new field goes to the end, and an old one is never removed
// or reordered, because raft logs, snapshots and accounting files hold them for ever. bounds.go has
// the limits in those lines.
//
// The other files, by noun. Jobs: spec.go (what was submitted), dep.go, taskset.go, features.go
// (--constraint), mail.go, output.go (names of output files), suspend.go, crontab.go, trigger.go,
// step.go, record.go (accounting), usage.go, endtext.go (how a job ended, in a sentence). Nodes:
// node.go, rules.go (what nodes do around jobs; defaults and bounds of requests), gresunit.go and
// unit.go (their GPUs one by one), share.go (parts of GPUs), bits.go (sets of CPUs and units). The
// cluster: config.go, topology.go, account.go, reservation.go, plan.go, reason.go (why jobs wait),
// tres.go, units.go (time and counts), cert.go (certificates), identity.go (whose a job can be).
package model
