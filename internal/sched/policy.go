package sched

import (
	"gbatch/internal/model"
	"gbatch/internal/sched/demand"
)

// Policy bounds and shapes one planning pass. Its bounds are counts, never durations of the pass: a plan must not
// depend on how fast the machine is. The zero value is first in, first out per partition: no job overtakes.
type Policy struct {
	MaxStarts int // starts in one plan; 0: DefaultMaxStarts
	Depth     int // blocked jobs that get a reason, per partition; 0: DefaultDepth
	PartDepth int // without backfill: jobs tried in one pass, per partition (partition_job_depth); 0: no limit

	Backfill Backfill
	Order    Order   // nil: Job.Priority as stored
	Predict  Predict // nil: a job is planned with its time limit

	// Cost gives the cost of each GPU of a node, by number: how hot or how used it is now (GpuSelectPolicy); nil if
	// that is not known. A nil func: the cost of GPUs does not matter.
	Cost func(node string) []int32

	// Demand is what jobs ask for on a node: a job gets the node on which it leaves least that these can't use. nil: the
	// first node that holds it.
	Demand *demand.Mix

	// FairShare gives a user's fair-share factor under an account in a partition, 0 to 1, for UsageThreshold of QOS.
	// nil: no job is held for it.
	FairShare func(account, user, part string) float64
}

// Backfill says how jobs may overtake a job that does not fit: they must fit on the calendar of free capacity beside
// the reservations of the jobs ahead of them. A count of 0 is no limit.
type Backfill struct {
	On bool
	// Reserve is how many blocked jobs hold a reservation, per partition: 0 FIFO, 1 EASY, <0 all (with Keep:
	// conservative).
	Reserve       int
	ShortestFirst bool // jobs behind the last reservation are tried in order of planned time (EASY-SJBF)

	Keep bool // reservations are promises that only move to earlier moments: the Planner remembers them (see keep.go)

	MaxTest      int   // bf_max_job_test: jobs looked at after the first that does not fit
	MaxPart      int   // bf_max_job_part: the same, per partition
	MaxUser      int   // bf_max_job_user: per user
	MaxUserPart  int   // bf_max_job_user_part: per user and partition
	MaxAssoc     int   // bf_max_job_assoc: per account and user
	MaxStart     int   // bf_max_job_start: started ahead of their turn in one pass
	MaxArrayResv int   // bf_max_job_array_resv: reservations for one array; 0: one
	WindowS      int64 // bf_window: how far reservations look ahead, seconds; 0: any distance
	ResolutionS  int64 // bf_resolution: ends are rounded up to multiples of it, seconds; 0 or 1: exact
	MinAgeS      int64 // bf_min_age_reserve: a job that has waited less gets no reservation, seconds
	MinPriority  uint64
	BusyNodes    bool // bf_busy_nodes: reservations prefer nodes in use
}

// Order gives jobs their places in the queue. Two Orders of one type with equal Epochs give equal answers.
type Order interface {
	// Epoch grows when answers may have changed.
	Epoch() uint64
	// Priority is higher for a job that comes first. Jobs of equal priority go by number, oldest first.
	Priority(j *model.Job, part *model.Partition) uint64
}

// PartOrder is an Order that can change in some partitions only.
type PartOrder interface {
	Order
	// PartEpoch differs when answers for a partition may differ, beside what Epoch says of all.
	PartEpoch(part *model.Partition) uint64
}

// Supposer is an Order that keeps records of jobs, and can also give a priority for a changed or new job.
type Supposer interface {
	Order
	// Suppose is Priority for a job whose record differs from the Order's, or that the Order has no record of.
	Suppose(j *model.Job, part *model.Partition) uint64
}

// supposed is an Order in which one job is replaced by a changed one.
type supposed struct {
	Supposer
	id model.JobID
}

func (s supposed) Priority(j *model.Job, part *model.Partition) uint64 {
	if j.ID == s.id {
		return s.Suppose(j, part)
	}
	return s.Supposer.Priority(j, part)
}

// Predict gives jobs' planned times. It is never used to end a job.
type Predict interface {
	// Epoch grows when answers may have changed.
	Epoch() uint64
	// RuntimeS gives the seconds from start to end that a pending or running job is expected to take in a partition.
	// limitS is its limit there, which bounds the answer. A running job that outlives the answer is asked about again.
	RuntimeS(j *model.Job, limitS int64, now model.Time) int64
}

// Defaults of Policy.
const (
	DefaultMaxStarts = 1024
	DefaultDepth     = 100
)

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
