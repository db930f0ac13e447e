package sched

import (
	"sort"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Policy bounds one planning pass. Counts, never durations: a plan must not depend on how fast the machine is.
type Policy struct {
	MaxStarts int // starts in one plan; 0: DefaultMaxStarts
	Depth     int // blocked jobs that get a reason, per partition; 0: DefaultDepth
}

// Defaults of Policy.
const (
	DefaultMaxStarts = 1024
	DefaultDepth     = 100
)

// Plan decides what starts now.
//
//  1. Take stock of the free room on every usable node.
//  2. Merge the partitions' queues, best job first.
//  3. Start from the head while it fits; where a job does not fit, its partition is blocked for what stands behind it.
//  4. Say why the blocked wait.
func Plan(v *state.View, now model.Time, p Policy) model.Plan {
	if p.MaxStarts <= 0 {
		p.MaxStarts = DefaultMaxStarts
	}
	if p.Depth <= 0 {
		p.Depth = DefaultDepth
	}
	pl := planner{v: v, now: now, policy: p, rooms: map[string]*room{}, started: map[model.JobID]int32{}}
	pl.run()
	return pl.plan
}

type planner struct {
	v       *state.View
	now     model.Time
	policy  Policy
	rooms   map[string]*room
	plan    model.Plan
	started map[model.JobID]int32 // tasks started in this plan, by array
	done    map[model.JobID]bool  // jobs started through another of their partitions
}

// lane is one partition's queue while it is walked.
type lane struct {
	part  *model.Partition
	rooms []*room // usable nodes, by weight
	jobs  []*model.Job
	next  int
	seen  int
	block *model.Job // the job that does not fit
}

func (p *planner) run() {
	lanes := p.lanes()
	p.done = map[model.JobID]bool{}
	for len(p.plan.Starts) < p.policy.MaxStarts {
		l := best(lanes)
		if l == nil {
			break
		}
		j := l.jobs[l.next]
		l.next++
		if !p.done[j.ID] {
			p.consider(l, j)
		}
		if l.block == nil && l.next == len(l.jobs) {
			p.refill(l)
		}
	}
	for _, l := range lanes {
		p.explain(l)
	}
}

// lanes opens every partition that has jobs waiting and may start them.
func (p *planner) lanes() []*lane {
	var out []*lane
	for _, part := range p.v.Config().Partitions {
		if p.v.ReadyLen(part.Name) == 0 {
			continue
		}
		l := &lane{part: part}
		p.refill(l)
		switch part.State {
		case model.PartDown, model.PartInactive:
			reason := model.ReasonPartitionDown
			if part.State == model.PartInactive {
				reason = model.ReasonPartitionInactive
			}
			for _, j := range l.jobs {
				p.say(j, reason, "")
			}
			continue
		}
		for _, name := range part.Nodes {
			r := p.rooms[name]
			if r == nil {
				n := p.v.Node(name)
				if n == nil {
					continue
				}
				fresh := roomOf(n, n.Usable())
				r = &fresh
				p.rooms[name] = r
			}
			if !r.shut {
				l.rooms = append(l.rooms, r)
			}
		}
		sort.SliceStable(l.rooms, func(i, j int) bool { return l.rooms[i].def.Weight < l.rooms[j].def.Weight })
		out = append(out, l)
	}
	return out
}

// laneStep is how many jobs of a queue are looked at in one go: a long queue is never walked whole.
const laneStep = 256

// refill reads the next jobs of a lane's queue.
func (p *planner) refill(l *lane) {
	skip := l.seen
	l.jobs, l.next = l.jobs[:0], 0
	p.v.Ready(l.part.Name, func(j *model.Job) bool {
		if skip > 0 {
			skip--
			return true
		}
		l.jobs = append(l.jobs, j)
		return len(l.jobs) < laneStep
	})
	l.seen += len(l.jobs)
}

// best gives the lane whose head comes first of all, or nil when every lane is blocked or empty.
func best(lanes []*lane) *lane {
	var b *lane
	for _, l := range lanes {
		if l.block != nil || l.next >= len(l.jobs) {
			continue
		}
		if b == nil || before(l, b) {
			b = l
		}
	}
	return b
}

func before(a, b *lane) bool {
	x, y := a.jobs[a.next], b.jobs[b.next]
	switch {
	case a.part.PriorityTier != b.part.PriorityTier:
		return a.part.PriorityTier > b.part.PriorityTier
	case x.Priority != y.Priority:
		return x.Priority > y.Priority
	}
	return x.ID < y.ID
}

// consider starts a job, or as many tasks of an array as fit, and blocks the lane where it must.
func (p *planner) consider(l *lane, j *model.Job) {
	if r, why := p.mayNotRun(l.part, j); r != model.ReasonNone {
		p.say(j, r, why) // it does not block others: more room would not help it
		return
	}
	rq := Resolve(j.Spec, l.part, &p.v.Config().Params)
	rooms := p.usable(l, j.Spec)
	if !j.IsArray() {
		if !p.throttled(j) && !p.start(l, rooms, j, &rq, model.NoTask) {
			l.block = j
		}
		return
	}
	j.Tasks.Each(func(task int32) bool {
		if len(p.plan.Starts) >= p.policy.MaxStarts || p.throttled(j) {
			return false
		}
		if !p.start(l, rooms, j, &rq, task) {
			l.block = j
			return false
		}
		return true
	})
}

// throttled reports whether an array already runs as many tasks as it may.
func (p *planner) throttled(j *model.Job) bool {
	if j.ArrayID == 0 || j.Throttle == 0 {
		return false
	}
	a := p.v.Array(j.ArrayID)
	if a == nil || a.Active+p.started[j.ArrayID] < j.Throttle {
		return false
	}
	p.say(j, model.ReasonJobArrayTaskLimit, "")
	return true
}

func (p *planner) start(l *lane, rooms []*room, j *model.Job, rq *Request, task int32) bool {
	alloc, _ := lay(rooms, j.Spec, rq, &p.v.Config().Params)
	if alloc == nil {
		return false
	}
	for i := range alloc.Nodes {
		p.rooms[alloc.Nodes[i].Node].book(&alloc.Nodes[i], j.Spec.Exclusive)
	}
	if j.ArrayID != 0 {
		p.started[j.ArrayID]++
	}
	if task == model.NoTask {
		p.done[j.ID] = true
	}
	l.trim()
	p.plan.Starts = append(p.plan.Starts, model.Start{Job: j.ID, Task: task, Partition: l.part.Name,
		LimitS: LimitS(j.Spec, l.part), Alloc: alloc})
	return true
}

// trim drops full nodes from the lane's head, so that a long run of starts does not look at them again and again.
func (l *lane) trim() {
	for len(l.rooms) > 0 && (l.rooms[0].nfree == 0 || l.rooms[0].shut) {
		l.rooms = l.rooms[1:]
	}
}

// usable gives the lane's nodes narrowed to those that the job names or doesn't exclude.
func (p *planner) usable(l *lane, sp *model.Spec) []*room {
	l.trim()
	if len(sp.ReqNodes) == 0 && len(sp.ExcNodes) == 0 {
		return l.rooms
	}
	var out []*room
	for _, r := range l.rooms {
		if contains(sp.ExcNodes, r.def.Name) || len(sp.ReqNodes) > 0 && !contains(sp.ReqNodes, r.def.Name) {
			continue
		}
		out = append(out, r)
	}
	return out
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// mayNotRun tells what keeps a job from its partition whatever is free: limits that have changed since it was
// submitted, nodes that are away.
func (p *planner) mayNotRun(part *model.Partition, j *model.Job) (model.Reason, string) {
	if limit := LimitS(j.Spec, part); part.MaxTimeS != model.NotSet && limit > part.MaxTimeS {
		return model.ReasonPartitionTimeLimit, ""
	}
	if part.MaxNodes > 0 && j.Spec.MinNodes > part.MaxNodes {
		return model.ReasonPartitionNodeLimit, ""
	}
	if len(j.Spec.ReqNodes) > 0 {
		for _, name := range j.Spec.ReqNodes {
			if n := p.v.Node(name); n == nil || !n.Usable() {
				return model.ReasonReqNodeNotAvail, "UnavailableNodes:" + name
			}
		}
	}
	return model.ReasonNone, ""
}

// explain gives the job that blocks a lane the reason Resources (or why no amount of waiting helps), and those behind
// it Priority.
func (p *planner) explain(l *lane) {
	if l.block == nil {
		return
	}
	reason, why := p.blockReason(l, l.block)
	p.say(l.block, reason, why)
	for i := l.next; i < len(l.jobs) && i-l.next < p.policy.Depth; i++ {
		if j := l.jobs[i]; !p.done[j.ID] {
			p.say(j, model.ReasonPriority, "")
		}
	}
}

// blockReason tells apart a job that waits for others to end from one that waits for nodes to come back.
func (p *planner) blockReason(l *lane, j *model.Job) (model.Reason, string) {
	rq := Resolve(j.Spec, l.part, &p.v.Config().Params)
	var up []*room
	for _, name := range l.part.Nodes {
		n := p.v.Node(name)
		if n == nil || !n.Usable() || contains(j.Spec.ExcNodes, name) {
			continue
		}
		r := emptyRoom(n.Def)
		up = append(up, &r)
	}
	if a, _ := lay(up, j.Spec, &rq, &p.v.Config().Params); a == nil {
		return model.ReasonReqNodeNotAvail, "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
	}
	return model.ReasonResources, ""
}

func (p *planner) say(j *model.Job, r model.Reason, why string) {
	if j.Reason != r || j.Why != why {
		p.plan.Reasons = append(p.plan.Reasons, model.ReasonSet{Job: j.ID, Reason: r, Why: why})
	}
}
