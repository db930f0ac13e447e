// Package sched decides: Plan turns the facts of one moment into the starts that shall happen. It has no effects and
// reads no clock; the same arguments give the same plan, so that production, simulator and tests run the same code.
//
// Present policy: priority, then age, per partition. A blocked job blocks what stands behind it in the same partition
// (nothing overtakes it) and keeps its nodes from partitions of a lower PriorityTier; others go on. A queue at rest gives an empty plan.
//
// Read sched.go for the numbered steps, request.go for what a job asks for, room.go for what a node has left, fit.go
// for how a job is laid onto nodes, limits.go for what QOS and associations allow, reason.go for why the others wait. testdata/*.txt shows it at work.
//
// It doesn't own: the order of the queue (kept by state as jobs come and go), validation of requests (ctld uses
// Possible from here), and the checks against the facts when the plan is applied (state).
package sched
