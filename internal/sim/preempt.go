package sim

import (
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Preemption, as the configuration has it (PreemptType=preempt/partition_prio: a trace's jobs have partitions and no QOS).
// Who is suspended goes on with what it had left; who is requeued begins anew, and what it had done is lost; who is
// cancelled is no part of the result. A job with GraceTime runs on until that is over. Time slicing is not replayed: jobs
// that share CPUs all run at full speed.

// Preempted counts what became of jobs that others ended or suspended.
type Preempted struct {
	Suspended int     `json:"suspended"`  // times that a job was
	Requeued  int     `json:"requeued"`   // times that a job was
	Cancelled int     `json:"cancelled"`  // jobs
	Lost      float64 `json:"lost_hours"` // unit-hours of those who were requeued or cancelled
}

// interruptions is what a replay keeps of jobs that others end or suspend.
type interruptions struct {
	Preempted
	may    bool                   // the configuration has jobs suspended: they have to be known to run
	asleep map[model.JobID]ending // at is what is left, seconds
	again  map[model.JobID]uint32 // attempts after the first
	killed []ending               // ended for others in the reports at hand
	report []state.Report         // scratch
}

// suspends reports whether a configuration has jobs suspended for others.
func suspends(c *model.Config) bool {
	is := func(mode string) bool { return strings.EqualFold(mode, "SUSPEND") }
	return is(c.Params.Preempt.Mode) || slices.ContainsFunc(c.Partitions, func(p *model.Partition) bool { return is(p.PreemptMode) })
}

// begin has the jobs of a plan run: who has no processes yet can't be suspended.
func (r *replay) begin(at int64, plan *model.Plan) {
	if !r.cut.may || len(plan.Starts) == 0 {
		return
	}
	list := r.cut.report[:0]
	for i := range plan.Starts {
		list = append(list, state.Report{Kind: state.Started, Job: plan.Starts[i].Job, Attempt: r.attempt(plan.Starts[i].Job), At: r.time(at)})
	}
	r.cut.report = list
	r.apply(at, &state.Reports{Reports: list})
}

// attempt counts a job's starts.
func (r *replay) attempt(id model.JobID) uint32 { return 1 + r.cut.again[id] }

// interrupt carries out what a plan has that was applied: who stops, who goes on. It reports whether there is room now
// that the plan did not know.
func (r *replay) interrupt(at int64, plan *model.Plan) bool {
	room := len(plan.Resume) > 0
	for _, id := range plan.Resume {
		if e, ok := r.cut.asleep[id]; ok && r.st.Peek().Job(id).State == model.Running {
			delete(r.cut.asleep, id)
			e.at, e.slept = e.at+at, e.slept+at-e.since
			r.ends.push(e)
			r.use(e.job, 1)
		}
	}
	for i := range plan.Preempt {
		p := &plan.Preempt[i]
		e, ok := r.ends.take(p.Job)
		switch {
		case !ok && !p.Sleep: // it sleeps, and holds what else it has until it is ended
			if e, ok = r.cut.asleep[p.Job]; !ok {
				continue
			}
			delete(r.cut.asleep, p.Job)
			r.use(e.job, 1)
			e.at, e.slept, e.killed = at, e.slept+at-e.since, true
			r.ends.push(e)
		case !ok:
		case p.Sleep && r.st.Peek().Job(p.Job).State == model.Suspended:
			e.at, e.since = e.at-at, at
			r.cut.asleep[p.Job] = e
			r.use(e.job, -1)
			r.cut.Suspended++
			room = true
		case p.Sleep:
			r.ends.push(e)
		default:
			e.at, e.killed = min(e.at, at+p.GraceS), true
			r.ends.push(e)
		}
	}
	return room
}

// use counts the units of a job that stops (-1) or goes on (1). GPUs are kept by who is suspended.
func (r *replay) use(job int32, sign int64) {
	if !r.byGPU {
		r.busy += sign * r.unitsOf(&r.Work.Jobs[job])
	}
}

// settle finds out, after their reports, what became of those who were ended for others.
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
