package sched

import (
	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Plan decides what starts now.
//
//  1. Take stock of the free room on every usable node.
//  2. Merge the partitions' queues, best job first.
//  3. Start from the head while it fits; where a job does not fit, its partition is blocked for what stands behind it.
//     A job that would not fit if everything else on the nodes that are up ended does not block: it waits for nodes,
//     not for room.
//  4. Say why the blocked wait.
func Plan(v *state.View, now model.Time, p Policy) model.Plan {
	if p.MaxStarts <= 0 {
		p.MaxStarts = DefaultMaxStarts
	}
	if p.Depth <= 0 {
		p.Depth = DefaultDepth
	}
	pl := newPlanner(v, p)
	pl.run()
	return pl.plan
}

func newPlanner(v *state.View, p Policy) *planner {
	return &planner{v: v, policy: p, stock: newStock(v), rooms: map[string]*room{}, running: map[model.JobID]int32{},
		last: map[model.JobID]int32{}, reasons: map[model.JobID]reason{}}
}

type planner struct {
	v       *state.View
	policy  Policy
	stock   *stock
	rooms   map[string]*room
	lanes   []*lane
	plan    model.Plan
	running map[model.JobID]int32 // tasks started in this plan, by array
	last    map[model.JobID]int32 // the last task started in this plan, by record; allStarted once none is left
	reasons map[model.JobID]reason
	said    []*model.Job // who has a reason, in order

	forgetful bool // for tests: nothing learnt of one job is used for the next
}

// allStarted in planner.last: the record has nothing more to start, here or through another of its partitions.
const allStarted = 1<<31 - 1

// lane is one partition's queue while it is walked.
type lane struct {
	part   *model.Partition
	rooms  []*room // usable nodes, in the order in which they shall be filled
	empty  []*room // the same with nothing on them; made when first asked for
	all    []*room // and those of nodes that are away as well
	head   int     // rooms before it are full
	shapes []shape
	jobs   []*model.Job
	next   int
	after  *model.Job // the last that was read from the queue
	end    bool       // all were
	block  *model.Job // the job that does not fit
	away   int        // jobs that wait for nodes
}

// shape remembers from where on a node may be free for jobs with the same needs.
type shape struct {
	spec *model.Spec
	from int
	none model.Reason // why it would not fit if everything else had ended; ReasonNone where it would
	seen bool         // none is known
}

// maxShapes bounds the shapes that a lane remembers.
const maxShapes = 16

func (p *planner) run() {
	p.open()
	for len(p.plan.Starts) < p.policy.MaxStarts {
		l := p.best()
		if l == nil {
			break
		}
		j := l.jobs[l.next]
		l.next++
		if p.last[j.ID] != allStarted {
			p.consider(l, j)
		}
		if l.block == nil && l.next == len(l.jobs) {
			p.refill(l)
		}
	}
	for _, l := range p.lanes {
		p.explain(l)
	}
	p.say()
}

// open makes a lane of every partition that has jobs waiting and may start them.
func (p *planner) open() {
	for _, part := range p.v.Config().Partitions {
		if p.v.ReadyLen(part.Name) == 0 {
			continue
		}
		l := &lane{part: part}
		p.refill(l)
		switch part.State {
		case model.PartDown:
			p.refuseAll(l, model.ReasonPartitionDown, "")
			continue
		case model.PartInactive:
			p.refuseAll(l, model.ReasonPartitionInactive, "")
			continue
		}
		for _, name := range part.Nodes {
			r := p.rooms[name]
			if r == nil {
				n := p.v.Node(name)
				if n == nil {
					continue
				}
				r = p.stock.room(n, nil)
				p.rooms[name] = r
			}
			if !r.shut {
				l.rooms = append(l.rooms, r)
			}
		}
		inOrder(l.rooms)
		p.lanes = append(p.lanes, l)
	}
	for _, name := range p.v.ReadyParts() {
		if p.v.Partition(name) == nil {
			l := &lane{part: &model.Partition{Name: name}}
			p.refill(l)
			p.refuseAll(l, model.ReasonPartitionDown, "partition "+name+" is not in the configuration any more")
		}
	}
}

// laneStep is how many jobs of a queue are looked at in one go: a long queue is never walked whole.
const laneStep = 256

// refill reads the next jobs of a lane's queue.
func (p *planner) refill(l *lane) {
	l.jobs, l.next = l.jobs[:0], 0
	if l.end {
		return
	}
	p.v.ReadyAfter(l.part.Name, l.after, func(j *model.Job) bool {
		l.jobs = append(l.jobs, j)
		return len(l.jobs) < laneStep
	})
	if l.end = len(l.jobs) < laneStep; len(l.jobs) > 0 {
		l.after = l.jobs[len(l.jobs)-1]
	}
}

// best gives the lane whose head comes first of all, or nil when every lane is blocked or empty.
func (p *planner) best() *lane {
	var b *lane
	for _, l := range p.lanes {
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
	rq := Resolve(j.Spec, l.part, p.stock.params)
	if r, why := p.mayNotRun(l.part, j, &rq); r != model.ReasonNone {
		p.because(j, r, why) // it does not block others: more room would not help it
		return
	}
	sh := l.shape(j.Spec)
	if p.forgetful {
		*sh = shape{spec: j.Spec}
	}
	if sh.none != model.ReasonNone {
		p.blocked(l, j, &rq, sh)
		return
	}
	if !j.IsArray() {
		if !p.throttled(j) && !p.start(l, sh, j, &rq, model.NoTask) {
			p.blocked(l, j, &rq, sh)
		}
		return
	}
	begun, some := p.last[j.ID]
	full := true
	j.Tasks.Each(func(task int32) bool {
		if some && task <= begun {
			return true // started through another of its partitions
		}
		if len(p.plan.Starts) >= p.policy.MaxStarts || p.throttled(j) {
			full = false
			return false
		}
		if !p.start(l, sh, j, &rq, task) {
			full = false
			p.blocked(l, j, &rq, sh)
			return false
		}
		p.last[j.ID] = task
		return true
	})
	if full {
		p.finished(j)
	}
}

// shape gives what the lane knows of jobs that need the same as this.
func (l *lane) shape(sp *model.Spec) *shape {
	for i := range l.shapes {
		if sameNeeds(l.shapes[i].spec, sp) {
			return &l.shapes[i]
		}
	}
	if len(l.shapes) == maxShapes {
		l.shapes = l.shapes[:0] // rare: many different jobs start in one plan
	}
	l.shapes = append(l.shapes, shape{spec: sp})
	return &l.shapes[len(l.shapes)-1]
}

// throttled reports whether an array already runs as many tasks as it may.
func (p *planner) throttled(j *model.Job) bool {
	if !p.atThrottle(j) {
		return false
	}
	p.because(j, model.ReasonJobArrayTaskLimit, "")
	return true
}

func (p *planner) atThrottle(j *model.Job) bool {
	if j.ArrayID == 0 || j.Throttle <= 0 {
		return false
	}
	a := p.v.Array(j.ArrayID)
	return a != nil && a.Active+p.running[j.ArrayID] >= j.Throttle
}

// start adds a job or a task to the plan, if it fits.
func (p *planner) start(l *lane, sh *shape, j *model.Job, rq *Request, task int32) bool {
	if p.forgetful {
		sh.from = 0
	}
	for l.head < len(l.rooms) && (l.rooms[l.head].nfree == 0 || l.rooms[l.head].shut) {
		l.head++
	}
	alloc, at, _ := lay(l.rooms[l.head:], max(sh.from-l.head, 0), rq, l.part.Name)
	if at += l.head; at > sh.from {
		sh.from = at
	}
	if alloc == nil {
		return false
	}
	for i := range alloc.Nodes {
		na := &alloc.Nodes[i]
		p.rooms[na.Node].book(p.stock, na, rq, l.part.Name)
	}
	if j.ArrayID != 0 {
		p.running[j.ArrayID]++
		p.unblock(func(b *model.Job) bool { return b.ArrayID == j.ArrayID && p.atThrottle(b) })
	}
	p.plan.Starts = append(p.plan.Starts, model.Start{Job: j.ID, Task: task, Partition: l.part.Name,
		LimitS: LimitS(j.Spec, l.part), Alloc: alloc})
	if task == model.NoTask {
		p.finished(j)
	}
	return true
}

// finished notes that all of a record has started.
func (p *planner) finished(j *model.Job) {
	p.last[j.ID] = allStarted
	p.unblock(func(b *model.Job) bool { return b == j })
}

// unblock lets partitions go on that a job blocks which has started through another one, or no longer may.
func (p *planner) unblock(over func(*model.Job) bool) {
	for _, l := range p.lanes {
		if l.block != nil && over(l.block) {
			l.block = nil
			if l.next == len(l.jobs) {
				p.refill(l)
			}
			p.unkeep(l)
		}
	}
}

// unkeep gives the nodes that a lane's blocked job was waiting for back to partitions of lower tiers, whose jobs are
// then looked at again.
func (p *planner) unkeep(free *lane) {
	for _, r := range p.rooms {
		r.keep = 0
	}
	for _, l := range p.lanes {
		if l.block != nil {
			l.keep()
		}
	}
	for _, l := range p.lanes {
		if l.part.PriorityTier >= free.part.PriorityTier {
			continue
		}
		l.shapes, l.head = nil, 0
		if l.block != nil {
			l.block = nil
			l.next-- // a blocked lane has not moved since
		}
	}
}

// keep holds the lane's nodes for the job that blocks it, against partitions of lower tiers.
func (l *lane) keep() {
	for _, r := range l.rooms {
		r.keep = max(r.keep, int(l.part.PriorityTier))
	}
}

// mayNotRun tells what keeps a job from its partition whatever is free: limits that have changed since it was
// submitted, nodes that it names and that are away.
func (p *planner) mayNotRun(part *model.Partition, j *model.Job, rq *Request) (model.Reason, string) {
	if limit := LimitS(j.Spec, part); part.MaxTimeS != model.NotSet && limit > part.MaxTimeS {
		return model.ReasonPartitionTimeLimit, ""
	}
	switch rq.outside(j.Spec, part) {
	case PartitionNodes:
		return model.ReasonPartitionNodeLimit, ""
	case OverMemLimit:
		return model.ReasonMaxMemPerLimit, ""
	}
	for _, name := range j.Spec.ReqNodes {
		if n := p.v.Node(name); n == nil || !n.Usable() {
			return model.ReasonReqNodeNotAvail, "UnavailableNodes:" + name
		}
	}
	return model.ReasonNone, ""
}
