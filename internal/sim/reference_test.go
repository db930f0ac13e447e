package sim

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/sched"
	"gbatch/internal/state"
)

// reference is the simplest planner of a single pool, with a list of free processors over time that it rebuilds at each
// pass. It gives all published schedules; the production planner must give the same.
//
// FIFO and EASY remember nothing between passes. Conservative backfill does: a job gets its reservation when it
// arrives, the earliest that delays no other job, and keeps it; when it falls due, the job starts, even without another
// event. When a job has ended before its limit, every pending job, in order of arrival, gives up its reservation and
// takes the earliest one available, once through the queue. Reservations that are rebuilt from nothing, moved at each
// pass, or also moved after an end at the limit give other schedules.
type reference struct {
	back  sched.Backfill
	score func(sized) float64
	begun model.Time

	held    map[model.JobID]model.Time // reservations that are kept
	running map[model.JobID]model.Time // at the end of the last pass, with their limits' ends
}

// step is the free processors from a moment on.
type step struct {
	at   model.Time
	free int
}

// profile is free processors over time.
type profile []step

func (p *profile) take(from, to model.Time, procs int) {
	for _, at := range []model.Time{from, to} {
		k, found := slices.BinarySearchFunc(*p, at, func(s step, t model.Time) int { return cmp.Compare(s.at, t) })
		if !found {
			*p = slices.Insert(*p, k, step{at, (*p)[k-1].free})
		}
	}
	for i, s := range *p {
		if s.at >= from && s.at < to {
			(*p)[i].free -= procs
		}
	}
}

// earliest gives the first moment from which the job fits for its whole time.
func (p profile) earliest(j *model.Job) model.Time {
	for i := range p {
		from := p[i].at
		fits := true
		for k := i; k < len(p) && p[k].at < from.Add(j.Spec.LimitS); k++ {
			fits = fits && p[k].free >= int(j.Spec.Tasks)
		}
		if fits {
			return from
		}
	}
	panic("a job larger than the machine")
}

// Plan is one pass.
func (r *reference) Plan(v *state.View, now model.Time) (plan model.Plan) {
	if r.begun == 0 {
		r.begun, r.held = now, map[model.JobID]model.Time{}
	}
	part := v.Config().Partitions[0]
	n := v.Node(part.Nodes[0])
	p := profile{{now, int(n.Def.CPUs)}}
	var queue []*model.Job
	running := map[model.JobID]model.Time{}
	v.Jobs(func(j *model.Job) bool {
		switch {
		case j.State == model.Pending:
			queue = append(queue, j)
		case j.State.HasResources():
			running[j.ID] = j.Run.Deadline()
			if j.Run.Deadline() > now {
				p.take(now, j.Run.Deadline(), int(j.Spec.Tasks))
			}
		}
		return true
	})
	early := false
	for id, limit := range r.running {
		early = early || running[id] == 0 && limit > now
	}
	r.running = running
	if r.score != nil {
		score := func(j *model.Job) float64 {
			return r.score(sized{wait: float64(now-j.Submit) / 1000, requested: float64(j.Spec.LimitS),
				procs: float64(j.Spec.Tasks), submit: float64(j.Submit-r.begun) / 1000})
		}
		slices.SortStableFunc(queue, func(a, b *model.Job) int { return cmp.Compare(score(b), score(a)) })
	}
	used := n.UsedCPUs
	start := func(j *model.Job) {
		cpus := model.UpTo(int(n.Def.CPUs)).Minus(used).First(int(j.Spec.Tasks))
		if cpus.Empty() {
			panic("the state's node is fuller than the profile")
		}
		used = used.Or(cpus)
		r.running[j.ID] = now.Add(j.Spec.LimitS)
		delete(r.held, j.ID)
		plan.Starts = append(plan.Starts,
			model.Start{Job: j.ID, Task: model.NoTask, Partition: part.Name, LimitS: j.Spec.LimitS,
				Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: n.Def.Name, CPUs: cpus, Tasks: j.Spec.Tasks}}}})
	}
	if r.back.Reserve < 0 {
		r.conservative(p, queue, now, early, start)
		return plan
	}
	reserved := 0
	for i := 0; i < len(queue); i++ {
		j := queue[i]
		at := p.earliest(j)
		switch {
		case at == now:
			start(j)
		case reserved < r.back.Reserve:
			if reserved++; r.back.ShortestFirst {
				slices.SortStableFunc(queue[i+1:], func(a, b *model.Job) int { return cmp.Compare(a.Spec.LimitS, b.Spec.LimitS) })
			}
		case !r.back.On:
			return plan
		default:
			continue
		}
		p.take(at, at.Add(j.Spec.LimitS), int(j.Spec.Tasks))
	}
	return plan
}

func (r *reference) conservative(p profile, queue []*model.Job, now model.Time, early bool, start func(*model.Job)) {
	for _, j := range queue {
		if at, ok := r.held[j.ID]; ok {
			p.take(max(at, now), max(at, now).Add(j.Spec.LimitS), int(j.Spec.Tasks))
		}
	}
	for _, j := range queue {
		at, ok := r.held[j.ID]
		if !ok || early {
			if ok {
				p.take(max(at, now), max(at, now).Add(j.Spec.LimitS), -int(j.Spec.Tasks))
			}
			at = p.earliest(j)
			p.take(at, at.Add(j.Spec.LimitS), int(j.Spec.Tasks))
			r.held[j.ID] = at
		}
		if at <= now {
			start(j)
		}
	}
}

// Wake gives the first reservation.
func (r *reference) Wake() model.Time {
	next := model.Time(0)
	for _, at := range r.held {
		if next == 0 || at < next {
			next = at
		}
	}
	return next
}
