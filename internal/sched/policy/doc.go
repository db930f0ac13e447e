// Package policy is the order and the predictions of a cluster whose administrator has named none:
// Default. It lets short and small jobs go first as long as nobody's patience is at its end, and so
// gives about two thirds of EASY's average wait and half of its bounded slowdown on the logs that
// it was measured on (DESIGN.md, with what was tried and lost).
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
//  1. Order: highest wait / (planned time * cube root of the share of the cluster) first
//     (order.go).
//  2. Planned time: the job's limit times the second largest part of their limits that the user's
//     last eight jobs have used; where users are not known, halfway between the limit and the mean
//     of jobs of that size and limit (history.go). Nobody is ever ended by it.
//  3. Reservations count running jobs with their limits, but who overtakes with the mean part that
//     those jobs have used. A wrong guess delays who waits first; rule 4 bounds that.
//  4. Patience: it ends when jobs that came later have begun more work than 8 hours of the whole
//     partition and half of what those that came before have had since, and in any case after a day
//     and twice the time that the work found at arrival takes. Of those whose patience has ended
//     the one that has waited longest goes first, and as long as there is one, nobody overtakes by
//     a guess: EASY in its strict form until it has started (patience.go).
//
// Owns: scores, what is known of users, patience. Does not own: placement, reservations (sched),
// and the factors of an administrator who names PriorityType or weights (multifactor).
//
// Invariants: the same views at the same moments give the same answers; integers wherever sums are
// kept, so that no order of walking shows. State is bounded: eight numbers for each of MaxUsers
// users, one small record for each job that waits or runs. Everything can be rebuilt from a View;
// what is lost then is what users did longer ago than finished jobs are kept, unless Learn is told
// from accounting, and of what has overtaken those that wait all that has ended.
//
// Sources. Wait over planned time is the expansion factor (Slurm and Maui know it as XFactor),
// damped by size as in UNICEF and WFP (Tang, Lan, Desai, Buettner, CLUSTER 2009) and in smallest
// area first (Carastan-Santos, de Camargo, Trystram, Zrigui, CCGRID 2019). A patience after which a
// job goes to the head: Lelong, Reis, Trystram, Tuning EASY-Backfilling Queues, JSSPP 2017; that
// the work others had first counts and not the clock, as in fair queueing: Demers, Keshav, Shenker,
// SIGCOMM 1989. Predictions from a user's last jobs: Tsafrir, Etsion, Feitelson, Backfilling Using
// System-Generated Predictions Rather than User Runtime Estimates, TPDS 2007. That loose estimates
// let short jobs pass: the same, and Mu'alem, Feitelson, TPDS 2001.
//
// policy.go has the options, share.go the dominant shares.
package policy
