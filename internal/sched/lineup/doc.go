// Package lineup orders the jobs of partitions that have a QueuePolicy of their own, beside the
// cluster's order for the others.
//
//   - fifo: in order of submission.
//   - priority: by multifactor priorities if they have weights; otherwise by the Priority of the
//     QOS, then by the job's own.
//   - fairshare: the user with the highest fair-share factor first (Fair Tree).
//   - capacity: the account, or QOS, that would have least of its guarantee in this partition
//     with the job, as in YARN's capacity scheduler; those without a guarantee come last.
//
// Equal jobs go in order of submission. A policy changes the order of its partition and nothing
// else: backfill, limits, reservations and preemption are as everywhere. Priorities of different
// policies can't be compared, so package sched merges the queues of such partitions by age.
//
// lineup.go has the orders, capacity.go the last of them. Next goes on from the order of an earlier
// view: by capacity it counts again only for owners whose jobs or holdings have changed, and
// PartEpoch tells the planner whether any job's place has.
//
// Owns: those orders. It doesn't own the cluster's order (packages multifactor and policy).
//
// Invariants: pure; an Order is of one view, and for one goroutine.
package lineup
