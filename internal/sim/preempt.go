package sim

import (
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Preemption, as the configuration has it (PreemptType=preempt/partition_prio: a trace's jobs have partitions and no
// QOS). A suspended job later continues with its remaining time; a requeued one starts again, and its work is lost; a
// cancelled one is no part of the result. A job with GraceTime runs on until the end of that time. Time slicing is not
// replayed: jobs that share CPUs all run at full speed.

// Preempted counts suspensions, requeues and cancellations of jobs for others.
type Preempted struct {
	Suspended int     `json:"suspended"`  // times that a job was
	Requeued  int     `json:"requeued"`   // times that a job was
	Cancelled int     `json:"cancelled"`  // jobs
	Lost      float64 `json:"lost_hours"` // unit-hours of requeued or cancelled jobs
}

// interruptions is a replay's record of jobs that are ended or suspended for others.
type interruptions struct {
	Preempted
	may    bool                   // the configuration has jobs suspended: they have to be known to run
	asleep map[model.JobID]ending // at is what is left, seconds
	again  map[model.JobID]uint32 // attempts after the first
	killed []ending               // ended for others in the current reports
	report []state.Report         // scratch
}

func newInterruptions(c *model.Config) interruptions {
	return interruptions{may: suspends(c), asleep: map[model.JobID]ending{}, again: map[model.JobID]uint32{}}
}

// suspends reports whether a configuration has jobs suspended for others.
func suspends(c *model.Config) bool {
	is := func(mode string) bool { return strings.EqualFold(mode, "SUSPEND") }
	return is(c.Params.Preempt.Mode) ||
		slices.ContainsFunc(c.Partitions, func(p *model.Partition) bool { return is(p.PreemptMode) })
}

// begin makes the jobs of a plan run if that matters: a job without processes can't be suspended.
func (c *interruptions) begin(plan *model.Plan, at model.Time, apply func(state.Body)) {
	if !c.may || len(plan.Starts) == 0 {
		return
	}
	list := c.report[:0]
	for i := range plan.Starts {
		list = append(list, state.Report{Kind: state.Started, Job: plan.Starts[i].Job, Attempt: c.attempt(plan.Starts[i].Job),
			At: at})
	}
	c.report = list
	apply(&state.Reports{Reports: list})
}

// attempt counts a job's starts.
func (c *interruptions) attempt(id model.JobID) uint32 { return 1 + c.again[id] }

// carryOut updates the jobs' ends after a plan was applied: for jobs that stop and jobs that resume. second is one
// second in the ends' unit of time; use is called for jobs that stop (-1) and resume (1). It reports whether there is
// room now that the plan did not know.
func (c *interruptions) carryOut(ends *endHeap, v *state.View, plan *model.Plan, at, second int64,
	use func(e *ending, sign int64)) bool {
	room := len(plan.Resume) > 0
	for _, id := range plan.Resume {
		if e, ok := c.asleep[id]; ok && v.Job(id).State == model.Running {
			delete(c.asleep, id)
			use(&e, 1)
			e.at, e.slept = e.at+at, e.slept+at-e.since
			ends.push(e)
		}
	}
	for i := range plan.Preempt {
		p := &plan.Preempt[i]
		e, ok := ends.take(p.Job)
		switch {
		case !ok && !p.Sleep: // it sleeps, and holds what else it has until it is ended
			if e, ok = c.asleep[p.Job]; !ok {
				continue
			}
			delete(c.asleep, p.Job)
			use(&e, 1)
			e.at, e.slept, e.killed = at, e.slept+at-e.since, true
			ends.push(e)
		case !ok:
		case p.Sleep && v.Job(p.Job).State == model.Suspended:
			use(&e, -1)
			e.at, e.since = e.at-at, at
			c.asleep[p.Job] = e
			c.Suspended++
			room = true
		case p.Sleep:
			ends.push(e)
		default:
			e.at, e.killed = min(e.at, at+p.GraceS*second), true
			ends.push(e)
		}
	}
	return room
}

// use counts the units of a job that stops (-1) or goes on (1). A suspended job keeps its GPUs.
func (r *replay) use(e *ending, sign int64) {
	if s := r.elastic.of[e.job]; s != nil {
		r.elastic.upTo(s, r.last)
		s.sleep = sign < 0
	}
	if !r.byGPU {
		r.busy += sign * r.holds(e.job)
	}
}

// settle determines, after their reports, the fate of the jobs that were ended for others.
func (r *replay) settle() {
	for _, e := range r.cut.killed {
		r.cut.Lost += float64(r.unitsOf(&r.Work.Jobs[e.job])) * float64(e.at-r.Start[e.job]-e.slept) / 3600
		r.Start[e.job] = NoStart
		if j := r.st.Peek().Job(e.id); j != nil && j.State == model.Pending {
			r.cut.Requeued++
			r.cut.again[e.id]++
			r.queued++
			continue
		}
		r.cut.Cancelled++
		r.ended++
		r.refuse("was ended for others (PreemptMode=CANCEL)")
	}
	r.cut.killed = r.cut.killed[:0]
}
