// Package policy is the default order and the default predictions, for a cluster whose
// administrator configures no others. It lets short and small jobs go first as long as no job's
// patience has ended, and so gives about half of EASY's average wait and a third of its bounded
// slowdown on the logs that it was measured on (DESIGN.md, with what was tried and lost).
//
//	p := policy.Default()
//	easy := sched.Backfill{On: true, Reserve: 1}
//	pol := sched.Policy{Backfill: easy, Order: p.Order(), Predict: p.Predict()}
//	// before each pass over a newer view or at a later moment
//	p.Refresh(view, now)
//	plan := planner.Plan(view, now, pol)
//
// Four rules, each of one line:
//
//  1. Order: the highest wait / (planned time * fifth root of the share of the cluster) first,
//     divided by the part of the patience that is left (order.go).
//  2. Planned time: take which part of its limit each of the user's last eight jobs of the same
//     size and limit used, or if there are none, each of the user's last eight jobs; the second
//     largest of these, times the job's limit. If users are not known, it is halfway between the
//     limit and the mean of jobs of that size and limit (history.go). No job is ever ended by it.
//  3. Reservations count running jobs with their limits. A job that overtakes counts with the mean
//     part that these jobs used. A wrong guess delays the job at the head; rule 4 bounds that.
//  4. Patience: a job waits at most 1.4 times as long as order of arrival would have let anybody
//     wait in the last 30 days, and at least a day, before it goes first. That longest wait comes
//     from a second schedule, which is played beside the real one: EASY backfill in order of
//     arrival, with the same jobs (arrival.go). Of the jobs whose patience has ended, the one that
//     has waited longest goes first. Until it has started, a job overtakes by a safe guess only:
//     twice the largest part. Once such a job has run longer than guessed, none overtakes by a
//     guess: this is strict EASY (patience.go).
//
// Owns: scores, users' histories, patience. Does not own: placement, reservations (sched), and the
// factors of an administrator who names PriorityType or weights (multifactor).
//
// Invariants: the same views at the same moments give the same answers; sums are integers, so that
// the order of addition doesn't matter. State is bounded: eight numbers for each of MaxUsers users
// and MaxWorks kinds of their jobs, a small record for each job that waits or runs and another one
// in the schedule in order of arrival, which begins anew when maxLate jobs wait there that have
// ended in reality. Everything can be rebuilt from a View, except for three things: the history of
// jobs whose records are gone (Recall takes it from accounting), the longest wait in order of
// arrival (a new leader begins with what lets the patience of the oldest pending job end now), and
// which running jobs overtook by a safe guess (they count with their limits then).
//
// No starvation: the first of the jobs out of patience starts within twice the longest time limit.
// Jobs that overtake it by a guess are expected to end before its reservation, which is at most one
// limit away; after the first wrong guess nobody delays it, and all running jobs have ended within
// another one.
//
// Sources. Wait over planned time is the expansion factor (Slurm and Maui know it as XFactor),
// damped by size as in UNICEF and WFP (Tang, Lan, Desai, Buettner, CLUSTER 2009) and in smallest
// area first (Carastan-Santos, de Camargo, Trystram, Zrigui, CCGRID 2019). A patience after which a
// job goes to the head: Lelong, Reis, Trystram, Tuning EASY-Backfilling Queues, JSSPP 2017; that it
// is measured by a simpler rule's schedule, as fairness is in: Sabin, Kochhar, Sadayappan, Job
// Fairness in Non-Preemptive Job Scheduling, ICPP 2004. Predictions from a user's last jobs:
// Tsafrir, Etsion, Feitelson, Backfilling Using System-Generated Predictions Rather than User
// Runtime Estimates, TPDS 2007. That loose estimates let short jobs pass: the same paper, and
// Mu'alem, Feitelson, TPDS 2001.
//
// policy.go has the options, arrival.go the schedule in order of arrival, share.go the shares,
// frozen.go a copy for readers. past.go has how long jobs really ran, for clusters of any order:
// the range in which a job is likely to start comes from it.
package policy
