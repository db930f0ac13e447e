package policy

import (
	"math"

	"gbatch/internal/model"
)

// Order gives the order, a sched.Order.
func (p *Policy) Order() *Order { return &Order{p: p} }

// OrderAt gives the order at a later moment, if nothing changes until then.
func (p *Policy) OrderAt(at model.Time) *Order { return &Order{p, at} }

// Predict gives the predictions, a sched.Predict.
func (p *Policy) Predict() *Predict { return &Predict{p} }

// Order is the order of jobs at the moment of the last Refresh, or at most Options.EveryS before it.
type Order struct {
	p  *Policy
	at model.Time // 0: the policy's moment
}

// Predict gives jobs' planned times as of the last Refresh.
type Predict struct{ p *Policy }

// Epoch grows when answers may have changed: with the time.
func (o *Order) Epoch() uint64 { return o.p.epoch }

// A priority has, from the highest bit: eight bits of class, one bit for a job that goes before all others of its
// class, and the score in the rest. Floats that are not negative are in the same order as their bits.
const (
	classShift = 56
	firstBit   = 1 << 55
	scoreShift = 8
)

// Priority is higher for a job that goes first. A job that Refresh has not seen comes last in its class: a frozen order
// is asked about jobs that have come since, and these are not behind all others.
func (o *Order) Priority(j *model.Job, _ *model.Partition) uint64 {
	e := o.p.jobs[j.ID]
	if e == nil {
		return uint64(o.p.classOf(j)) << classShift
	}
	return o.within(e, uint64(e.class)<<classShift)
}

// Suppose is Priority for a job whose QOS has been changed to one of another class.
func (o *Order) Suppose(j *model.Job, _ *model.Partition) uint64 {
	prio := uint64(o.p.classOf(j)) << classShift
	if e := o.p.jobs[j.ID]; e != nil {
		return o.within(e, prio)
	}
	return prio
}

// within adds a job's place in its class.
func (o *Order) within(e *entry, prio uint64) uint64 {
	if e.part.first == e {
		return prio | firstBit
	}
	if e.idle {
		return prio
	}
	at := o.p.at
	if o.at != 0 {
		at = o.at
	}
	waited := float64(max(0, at-e.since))
	score := waited * e.weight / max(leastLeft, 1-waited/float64(max(1, e.part.boundMS)))
	return prio | math.Float64bits(score)>>scoreShift
}

// leastLeft is the part of its patience that counts as left for a job that has hardly any.
const leastLeft = 0.05

// Parts splits a priority of an Order into the class, whether the job goes before all others of its class, and
// otherwise its score.
func Parts(priority uint64) (class uint8, first bool, score float64) {
	return uint8(priority >> classShift), priority&firstBit != 0,
		math.Float64frombits(priority & (firstBit - 1) << scoreShift)
}

// weightOf gives the score that a millisecond of waiting adds at first. Each hundred of Nice halves it.
func weightOf(e *entry, nice int32) float64 {
	w := 1 / (float64(e.plan.long) * math.Pow(float64(e.share), sizePower))
	if nice != 0 {
		w *= math.Exp2(-float64(max(-maxNice, min(maxNice, nice))) / 100)
	}
	return w
}

// sizePower is the power of the share in the score.
const sizePower = 0.2

// maxNice is the most that Nice counts, so that scores stay ordinary numbers.
const maxNice = 10_000

// Epoch grows when answers may have changed: when a queue gets its first job out of patience, when it has none any
// more, and when a guess has been wrong meanwhile.
func (r *Predict) Epoch() uint64 { return r.p.round }

// RuntimeS gives the seconds from start to end that a job is planned with. For a running job that is its limit, or, if
// it overtook a job out of patience by a guess, the guess until it has run longer; without a limit it is twice the time
// of its user's jobs, doubled each time the job outlives it. For a pending job it is the average of its user's jobs. As
// long as a job in one of its partitions is out of patience, it is a safe guess, or its limit if a guess was wrong.
func (r *Predict) RuntimeS(j *model.Job, limitS int64, now model.Time) int64 {
	e := r.p.jobs[j.ID]
	if j.Run != nil {
		age := (int64(now-j.Run.Start) - j.Run.SleepMS) / 1000
		if e != nil && age < e.guessS {
			return min(limitS, e.guessS)
		}
		if limitS < model.Unlimited {
			return limitS
		}
		s := int64(maxPlanS)
		if e != nil {
			s = 2 * e.plan.long
		}
		for s <= age {
			s *= 2
		}
		return s
	}
	if e == nil {
		return limitS
	}
	s := e.plan.likely
	for _, name := range j.Spec.Partitions {
		if q := r.p.parts[name]; q != nil && q.first != nil {
			if q.strict {
				return limitS
			}
			s = e.plan.safe
		}
	}
	return min(limitS, s)
}
