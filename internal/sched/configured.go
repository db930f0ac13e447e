package sched

import "gbatch/internal/model"

// Configured gives the policy that SchedulerType and SchedulerParameters ask for: with sched/backfill every job that the
// pass gets to look at holds a reservation, as in Slurm. Order and Predict are the caller's to set.
//
// Source: Slurm's page on sched_config and slurm.conf's SchedulerParameters.
func Configured(p *model.Params) Policy {
	b := &p.Backfill
	pol := Policy{MaxStarts: int(p.MaxStart), Depth: int(p.QueueDepth)}
	if !b.On {
		return pol
	}
	pol.Backfill = Backfill{On: true, Reserve: -1, MaxTest: int(b.MaxTest), MaxPart: int(b.MaxPart), MaxUser: int(b.MaxUser),
		MaxUserPart: int(b.MaxUserPart), MaxAssoc: int(b.MaxAssoc), MaxStart: int(b.MaxStart), MaxArrayResv: int(b.MaxArrayResv),
		WindowS: b.WindowS, ResolutionS: b.ResolutionS, MinAgeS: b.MinAgeReserveS, MinPriority: uint64(max(0, b.MinPrioReserve)), BusyNodes: b.BusyNodes}
	return pol
}
