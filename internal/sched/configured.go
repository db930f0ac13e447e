package sched

import "gbatch/internal/model"

// DefaultReserve is how many blocked jobs of a partition hold a reservation if bf_max_job_test is not given. It is
// large enough that jobs with different needs don't starve behind one another, and small enough to leave useful gaps
// for backfill.
const DefaultReserve = 8

// Configured gives the policy that SchedulerType and SchedulerParameters ask for: with sched/backfill and
// bf_max_job_test every job that the pass looks at holds a reservation, as in Slurm. The caller sets Order and Predict.
//
// Source: Slurm's page on sched_config and slurm.conf's SchedulerParameters.
func Configured(p *model.Params) Policy {
	b := &p.Backfill
	pol := Policy{MaxStarts: int(p.MaxStart), Depth: int(p.QueueDepth), PartDepth: int(p.PartDepth)}
	if !b.On {
		return pol
	}
	pol.Backfill = Backfill{On: true, Reserve: DefaultReserve, MaxTest: int(b.MaxTest), MaxPart: int(b.MaxPart),
		MaxUser:     int(b.MaxUser),
		MaxUserPart: int(b.MaxUserPart), MaxAssoc: int(b.MaxAssoc), MaxStart: int(b.MaxStart),
		MaxArrayResv: int(b.MaxArrayResv),
		WindowS:      b.WindowS, ResolutionS: b.ResolutionS, MinAgeS: b.MinAgeReserveS,
		MinPriority: uint64(max(0, b.MinPrioReserve)), BusyNodes: b.BusyNodes}
	if b.MaxTest > 0 {
		pol.Backfill.Reserve = -1
	} else {
		pol.Backfill.MaxArrayResv = 1
	}
	return pol
}
