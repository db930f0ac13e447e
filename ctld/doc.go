// Package ctld is the controller: a raft member that takes commands, plans, tells nodes what to run and ships
// accounting records while it leads, and that replicates and forwards while it doesn't.
//
// A job's way through here (DESIGN.md, 14 hops): rpc.go receives, submit.go validates and proposes, machine.go applies,
// cycle.go plans, dispatch.go orders, nodes.go receives what nodes report, outbox.go ships records to gdbd.
// leader.go starts and stops the loops that only the leader runs; they are level-triggered: each looks at the facts
// and does what is missing, so a loop that begins anew on another controller needs no hand-over.
//
// It doesn't own facts (internal/state), decisions (internal/sched), the log (internal/store) or the wire
// (internal/rpc).
package ctld
