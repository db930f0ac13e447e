// Package sched makes the decisions: Plan takes the facts of one moment and gives the jobs to
// start. It has no effects and reads no clock. The same arguments give the same plan, so
// production, simulator and tests run the same code.
//
// With backfill, a job that does not fit holds a reservation on the calendar of free capacity, and
// others may overtake it if they don't delay that reservation. Without backfill, it blocks its
// partition and keeps its nodes from partitions of a lower PriorityTier. A queue at rest gives an
// empty plan. DESIGN.md has the algorithm on one page, with its sources.
//
// Read planner.go for the numbered steps, then walk.go; queue.go for the order of jobs, shape.go
// and need.go for whether a job fits now, timeline.go and reserve.go for when it will, keep.go for
// promises, sync.go for what is kept between passes, request.go for what a job asks
// for, room.go for what a node has left, fit.go for how a job is placed on nodes (spread.go,
// topology.go, cpus.go, gpuset.go, bysocket.go, byindex.go: which of them, which cores, which
// GPUs), shared.go and sharing.go for cores and GPUs that several jobs share, gpumem.go for GPU
// memory that processes outside of jobs hold, turn.go and asleep.go for suspended jobs, stay.go
// for --time-min and --deadline, licenses.go for licenses, window.go for advance reservations
// (held.go: their GPUs on nodes with shared GPUs), het.go for heterogeneous jobs, limits.go for
// limits of QOS and associations, preempt.go, victims.go and claims.go for preemption, reason.go
// for why the other jobs wait, access.go for which jobs a partition takes at all, explain.go for
// everything that keeps one job waiting (explain_cause.go: the causes, explain_short.go: the
// scarce resource or the limit, explain_change.go: changes that would help, explain_words.go: the
// wording, and what is hidden from its reader), elastic.go and giveback.go for jobs that grow into
// what is left and give it back (segments.go: by whole segments).
// testdata/*.txt shows it at work; testdata/README.md lists the rules and their transcripts.
//
// Invariants: no node's capacity is given twice, now or on the calendar; a job that overtakes
// delays no reservation ahead of it; a kept Planner's plan equals a new one's.
//
// It doesn't own: priorities (packages multifactor and policy, by way of Order and Predict),
// validation of requests (ctld does that, with Possible), and the check of a plan against the facts
// when it is applied (state).
//
// Besides: policy.go (what is configured, and its defaults), pool.go (queues by partition),
// gres.go (the units of a resource), guarantee.go (what QOS and accounts can have whenever they
// need it), gpucost.go (GpuSelectPolicy), instead.go (jobs that suspend others), loose.go (least
// loaded nodes, nodes that suit what jobs ask for, and those that could not launch a job),
// lift.go (partition limits that a QOS lifts), leastuse.go (what a job takes at least, against
// limits), possible.go (jobs that can never run, or not in their reservation; --test-only);
// explain_cause.go, explain_change.go, explain_shared.go and explain_words.go are explain.go's
// parts.
package sched
