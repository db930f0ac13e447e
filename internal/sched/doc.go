// Package sched decides: Plan turns the facts of one moment into the starts that shall happen. It
// has no effects and reads no clock; the same arguments give the same plan, so that production,
// simulator and tests run the same code.
//
// A job that does not fit blocks its partition (no backfill), or holds a reservation on the
// calendar of free capacity beside which others may overtake it. Without backfill it also keeps its
// nodes from partitions of a lower PriorityTier. A queue at rest gives an empty plan. DESIGN.md has
// the algorithm on one page, with its sources.
//
// Read planner.go for the numbered steps, then walk.go; queue.go for who stands where, shape.go and
// need.go for whether a job fits now, timeline.go and reserve.go for when it will, keep.go for
// promises, sync.go for what is kept between passes, request.go and needs.go for what a job asks
// for, room.go for what a node has left, fit.go for how a job is laid onto nodes (spread.go,
// topology.go, cpus.go, gpuset.go, bysocket.go, byindex.go: which of them, which cores, which
// GPUs), shared.go and sharing.go for cores and GPUs that several jobs have, gpumem.go for GPUs
// whose memory others hold, turn.go and asleep.go for jobs that are suspended, stay.go for
// --time-min and --deadline, licenses.go for what no node has, window.go for advance reservations
// (held.go: their GPUs where these are shared), limits.go for what QOS and associations allow,
// preempt.go, victims.go and claims.go for who has to go for whom, reason.go for why the others
// wait, access.go for who may be in a partition at all, explain.go for all that holds one job
// (explain_cause.go: what, explain_short.go: too little of what, explain_change.go: what would
// help, explain_words.go: how it is said). testdata/*.txt shows it at work; testdata/README.md says
// where which rule is.
//
// Invariants: no node's capacity is given twice, now or on the calendar; who overtakes delays no
// reservation before it; a kept Planner's plan equals a new one's.
//
// It doesn't own: priorities (multifactor, policy: see Order and Predict), validation of requests
// (ctld uses Possible from here), and the checks against the facts when the plan is applied
// (state).
//
// Besides: policy.go (what is configured), configured.go (its defaults), pass.go (the work of a
// plan, counted), pool.go (queues by partition), gres.go and gpucost.go (resources, and which GPUs
// are the least used), avoid.go, instead.go, loose.go and lift.go (choices and limits that a job's
// own wishes change), wants.go (limits that one job breaks by itself), possible.go (what can never
// run), estimate.go (--test-only); explain_cause.go, explain_change.go, explain_shared.go and
// explain_words.go are explain.go's parts.
package sched
