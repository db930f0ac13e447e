package sched

import (
	"reflect"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// A planner keeps between passes what it would otherwise compute from the View alone. It follows the View's journal and
// looks only at the records that the journal names. If the journal does not reach back far enough, or the configuration
// has changed, it starts over.

// sync brings the planner to the View, the moment and the policy.
func (p *Planner) sync(v *state.View, now model.Time, pol Policy) {
	changes, next, known := v.Changes(p.cursorAt)
	again := !known || v.Config() != p.cfg || p.otherwise(v, changes) || now < p.now || p.limitsChanged(v) ||
		!samePlanning(&p.policy, &pol)
	last := p.now
	p.v, p.now, p.cursorAt = v, now, next
	order, predict := p.policy.Order, p.policy.Predict
	p.policy = pol
	if p.mix != pol.Demand {
		p.mix = pol.Demand
		p.mixTurn++
		p.tables = nil
	}
	p.pass++
	p.round++
	p.early = again
	if again {
		p.build()
		return
	}
	p.limits()
	p.stock.v, p.stock.cost, p.stock.now = v, pol.Cost, now
	if pol.Backfill.Keep {
		for _, s := range p.plan.Starts {
			j := v.Job(s.Job)
			gone := j == nil || !j.State.HasResources() // the job has started and ended since the last pass
			p.early = p.early || s.Task != model.NoTask || gone && (s.LimitS >= model.Unlimited || last.Add(s.LimitS) > now)
		}
	}
	for _, c := range changes {
		if c.Job != 0 {
			p.follow(c.Job)
		} else if n := p.byName[c.Node]; n != nil {
			p.soil(n)
		}
	}
	if e := epochOf(pol.Order); !sameKind(order, pol.Order) || e != p.orderEpoch {
		p.orderEpoch = e
		p.reorder(true)
	} else {
		p.reorder(false)
	}
	if e := epochOf(pol.Predict); !sameKind(predict, pol.Predict) || e != p.predictEpoch {
		p.predictEpoch, p.moved = e, true
		p.repredict()
		for _, n := range p.nodes {
			if len(n.rel) > 0 {
				n.rel = n.rel[:0]
				n.rec = nil
				p.soil(n)
			}
		}
	}
	for _, n := range p.used { // nodes of the last plan's starts: the View shows which of these happened
		n.steps, n.resvs = n.steps[:0], 0
		if n.booked {
			n.booked = false
			p.soil(n)
		}
	}
	p.used = p.used[:0]
	p.stirAsleep()
	for _, n := range p.soiled {
		p.refresh(n)
	}
	p.soiled = p.soiled[:0]
	p.limits() // nodes have come or gone
	p.pastEnds()
}

type answers interface{ Epoch() uint64 }

func epochOf(x answers) uint64 {
	if x == nil || reflect.ValueOf(x).Kind() == reflect.Pointer && reflect.ValueOf(x).IsNil() {
		return 0
	}
	return x.Epoch()
}

// partEpoch gives the epoch of a partition's own order; 0: it has none.
func (p *Planner) partEpoch(part *model.Partition) uint64 {
	if o, ok := p.policy.Order.(PartOrder); ok {
		return o.PartEpoch(part)
	}
	return 0
}

// sameKind reports whether two orders, or predictions, are of one type: then equal epochs are equal answers.
func sameKind(a, b any) bool { return reflect.TypeOf(a) == reflect.TypeOf(b) }

// samePlanning reports whether two policies round times in the same way.
func samePlanning(a, b *Policy) bool { return a.Backfill.ResolutionS == b.Backfill.ResolutionS }

// otherwise reports whether a node's definition has changed (the node has found the memory of its GPUs, or has other
// hardware) or its rank.
func (p *Planner) otherwise(v *state.View, changes []state.Change) bool {
	for _, c := range changes {
		if n := p.byName[c.Node]; c.Job == 0 && n != nil && (n.def != v.Made(c.Node) || n.rank != rankOf(v.Node(c.Node))) {
			return true
		}
	}
	return false
}

// build derives everything from the View.
func (p *Planner) build() {
	v := p.v
	p.tables, p.costed = nil, nil
	p.mixTurn++
	p.cfg = v.Config()
	p.stock = newStock(v)
	p.stock.cost, p.stock.now = p.policy.Cost, p.now
	p.stock.byUser = p.stock.byUser || p.apart
	p.stock.shared = p.stock.shared || p.mixes
	p.social = p.stock.byPart || p.stock.byUser
	p.nodes, p.byName = nil, make(map[string]*node, len(p.cfg.Nodes))
	p.classes, p.shapes, p.pools = nil, map[string]map[string]*shape{}, nil
	p.lanes, p.laneBy, p.jobs, p.hets = nil, map[string]*lane{}, map[model.JobID]*entry{}, 0
	p.soiled, p.used = nil, nil
	p.windowGen = 0
	p.nextEnd, p.moved = forever, true
	clear(p.kept)
	p.usable++
	classes := map[string]*nodeClass{}
	var spans map[string]model.PowerSpan // made when first needed
	for _, def := range p.cfg.Nodes {
		def = v.Made(def.Name)
		key := classKey(def)
		c := classes[key]
		if c == nil {
			c = &nodeClass{at: len(p.classes), def: def}
			classes[key] = c
			p.classes = append(p.classes, c)
		}
		n := &node{def: def, class: c, rank: rankOf(v.Node(def.Name))}
		if n.rank != rankUp {
			if spans == nil {
				spans = p.cfg.PowerSpans()
			}
			n.boot = model.Time(spans[def.Name].UpS * 1000)
		}
		p.nodes = append(p.nodes, n)
		p.byName[def.Name] = n
	}
	p.tiers = false
	clear(p.claimed)
	clear(p.elastic)
	p.growers, p.growersOld = nil, true
	p.lowest = 1<<31 - 1
	for _, part := range p.cfg.Partitions {
		p.lowest = min(p.lowest, part.PriorityTier)
		p.tiers = p.tiers || part.PriorityTier != p.cfg.Partitions[0].PriorityTier
		p.addLane(part)
	}
	for _, n := range p.nodes {
		p.refresh(n)
	}
	p.buildLicenses()
	p.orderEpoch, p.predictEpoch = epochOf(p.policy.Order), epochOf(p.policy.Predict)
	p.limits()
	seen := map[model.JobID]bool{}
	for _, name := range v.ReadyParts() {
		v.Ready(name, func(j *model.Job) bool {
			if len(j.Spec.Partitions) > 1 {
				if seen[j.ID] {
					return true
				}
				seen[j.ID] = true
			}
			p.admit(j)
			return true
		})
	}
}

// addLane opens a partition's lane over the pool of its nodes.
func (p *Planner) addLane(part *model.Partition) *lane {
	l := &lane{at: len(p.lanes), part: part, epoch: p.partEpoch(part)}
	switch part.State {
	case model.PartDown:
		l.refuse = model.ReasonPartitionDown
	case model.PartInactive:
		l.refuse = model.ReasonPartitionInactive
	}
	nodes := make([]*node, 0, len(part.Nodes))
	for _, name := range part.Nodes {
		if n := p.byName[name]; n != nil {
			nodes = append(nodes, n)
		}
	}
	for _, pl := range p.pools {
		if slices.Equal(pl.given, nodes) {
			l.pool = pl
		}
	}
	if l.pool == nil {
		l.pool = newPool(nodes)
		p.pools = append(p.pools, l.pool)
	}
	l.shapes = p.shapesOf(l)
	p.lanes = append(p.lanes, l)
	p.laneBy[part.Name] = l
	return l
}

// laneOf gives a partition's lane; the lane of a partition that has left the configuration starts no jobs.
func (p *Planner) laneOf(name string) *lane {
	l := p.laneBy[name]
	if l == nil {
		l = p.addLane(&model.Partition{Name: name})
		l.refuse, l.why = model.ReasonPartitionDown, "partition "+name+" is not in the configuration any more"
	}
	return l
}

// soil marks a node: its record must be read again.
func (p *Planner) soil(n *node) {
	if !n.dirty {
		n.dirty = true
		p.soiled = append(p.soiled, n)
	}
}

// touch marks a job with resources on its nodes: its expected end may have changed.
func (p *Planner) touch(j *model.Job) {
	for i := range j.Run.Alloc.Nodes {
		if n := p.byName[j.Run.Alloc.Nodes[i].Node]; n != nil {
			n.touched = append(n.touched, j.ID)
			p.soil(n)
		}
	}
	for i := range j.Run.Leaving {
		if n := p.byName[j.Run.Leaving[i].Part.Node]; n != nil {
			n.touched = append(n.touched, j.ID)
			p.soil(n)
		}
	}
}

// refresh reads a node's record, and its jobs' holds and expected ends.
func (p *Planner) refresh(n *node) {
	rec := p.v.Node(n.def.Name)
	wasUp := n.up()
	old, was := n.rec, n.free
	n.rec, n.dirty, n.usable = rec, false, rec != nil && rec.Usable()
	if n.up() != wasUp {
		p.usable++
	}
	var before, after []model.JobID
	less := false // processes outside of jobs may hold less GPU memory than before
	if old != nil {
		before = old.Jobs
	}
	if rec == nil {
		n.room = *p.stock.empty(n.def)
		n.room.shut = true
	} else {
		n.room = *p.stock.room(rec, nil)
		after = rec.Jobs
		if old != nil && !slices.Equal(old.Out, rec.Out) {
			n.touched = append(n.touched, after...)
			p.usable++
		}
		less = old != nil && !slices.Equal(old.Held, rec.Held) // on some GPU it may be less
	}
	users := len(after)
	if rec != nil {
		users = rec.AwakeJobs()
		p.mixes = p.mixes || len(rec.CPUShares) > 0
	}
	n.free = countsOf(&n.room, users)
	i := 0
	for _, id := range before {
		for i < len(after) && after[i] < id {
			i++
		}
		if gone := i == len(after) || after[i] != id; gone || slices.Contains(n.touched, id) {
			at := n.dropRelease(id)
			p.early = p.early || gone && at > p.now
		}
	}
	i = 0
	for _, id := range after {
		for i < len(before) && before[i] < id {
			i++
		}
		if i == len(before) || before[i] != id || slices.Contains(n.touched, id) {
			p.expect(n, id)
		}
	}
	n.touched = n.touched[:0]
	if len(n.rel) > 0 {
		p.nextEnd = min(p.nextEnd, n.rel[0].at)
	}
	n.update()
	if !wasUp || p.social || less || more(&was, &n.free) {
		n.grew()
	}
}

// more reports whether some count of free capacity has grown.
func more(was, is *counts) bool {
	if is.cpus > was.cpus || is.mem > was.mem || is.users < was.users {
		return true
	}
	for i := range is.share {
		if i >= len(was.share) || is.share[i] < was.share[i] {
			return true
		}
	}
	for i := range is.gres {
		if i >= len(was.gres) || is.gres[i] > was.gres[i] {
			return true
		}
	}
	return false
}

// expect puts the expected end of a running job onto a node's calendar.
func (p *Planner) expect(n *node, id model.JobID) {
	j := p.v.Job(id)
	if j == nil || j.Run == nil {
		return
	}
	p.apart = p.apart || keepsApart(j.Spec)
	if j.Spec.Elastic() != nil && p.elastic[id] != j {
		p.noteElastic(id, j)
	}
	at := p.endOf(j)
	if c := j.Run.Recall; c != nil && slices.Contains(c.Nodes, n.def.Name) {
		at = min(at, p.stillToCome(p.roundUp(c.Due.Add(p.cfg.Params.KillWaitS))))
	}
	if k := j.Run.LeavingAt(n.def.Name); k >= 0 {
		h := n.holdOf(&j.Run.Leaving[k].Part, j.Run.Partition, j.Spec, p.stock.shareAt(j.Run.Partition, j.Run.Share))
		n.insertRelease(release{at: p.leavesAt(&j.Run.Leaving[k]), id: id, hold: h})
		return
	}
	for i := range j.Run.Alloc.Nodes {
		if na := &j.Run.Alloc.Nodes[i]; na.Node == n.def.Name {
			if j.Run.OffCPUs() {
				p.expectAsleep(n, j, na)
				continue
			}
			h := n.holdOf(na, j.Run.Partition, j.Spec, p.stock.shareAt(j.Run.Partition, j.Run.Share))
			h.resv = j.Run.Resv
			n.insertRelease(release{at: at, id: id, hold: h})
		}
	}
}

// overdueS is the step by which the expected end of a job that has outlived it moves on, seconds.
const overdueS = 30

// unlimitedS is the planned time of a job without a time limit, seconds: a year, as in Slurm.
const unlimitedS = 365 * 86400

// endOf gives the moment at which a running job is expected to end, after now.
func (p *Planner) endOf(j *model.Job) model.Time {
	run := j.Run
	end := run.Deadline()
	switch {
	case run.Stop != model.NoStop:
		end = run.StopAt.Add(p.cfg.Params.KillWaitS)
		if run.GraceS > 0 {
			end = run.StopAt.Add(run.GraceS)
		}
	case run.Over != nil: // only epilogs still run
		end = run.Over.At
	case p.policy.Predict != nil:
		end = 0
		if s := p.plannedS(j, run.LimitS); s < model.Unlimited {
			end = run.Start.Add(s) + model.Time(run.SleepMS)
		}
	}
	if e := run.ResvEnd; e != 0 && (end == 0 || e < end) {
		end = e
	}
	if end == 0 {
		end = run.Start.Add(unlimitedS)
	}
	if run.Stop == model.NoStop && p.v.AwaitsPower(j) { // its time begins when its nodes are up
		boot := model.Time(p.bootsS(j) * 1000)
		for i := range run.Alloc.Nodes {
			if n := p.byName[run.Alloc.Nodes[i].Node]; n != nil {
				boot = max(boot, n.boot)
			}
		}
		end += boot
	}
	return p.stillToCome(p.roundUp(end))
}

// leavesAt gives the moment at which nothing of a job is expected to be left on a node that it has given up.
func (p *Planner) leavesAt(l *model.Leaving) model.Time {
	grace := p.cfg.Params.KillWaitS
	if l.GraceS > 0 {
		grace = l.GraceS
	}
	return p.stillToCome(p.roundUp(l.At.Add(grace)))
}

// stillToCome moves an expected end that has passed on.
func (p *Planner) stillToCome(end model.Time) model.Time {
	if end <= p.now {
		step := p.roundUp(overdueS * 1000)
		end += ((p.now-end)/step + 1) * step
	}
	return end
}

// roundUp gives the first moment of the calendar's resolution that is not before t.
func (p *Planner) roundUp(t model.Time) model.Time {
	ms := model.Time(p.policy.Backfill.ResolutionS * 1000)
	if ms <= 1000 || t >= forever-ms {
		return t
	}
	return (t + ms - 1) / ms * ms
}

// after gives the rounded end of a time that begins at t and takes s seconds.
func (p *Planner) after(t model.Time, s int64) model.Time {
	if s >= model.Unlimited {
		s = unlimitedS
	}
	return p.roundUp(t.Add(s))
}

// pastEnds computes new expected ends for jobs that have outlived theirs.
func (p *Planner) pastEnds() {
	if p.now < p.nextEnd {
		return
	}
	p.nextEnd = forever
	late := false
	for _, n := range p.nodes {
		for len(n.rel) > 0 && n.rel[0].at <= p.now {
			id := n.rel[0].id
			n.dropRelease(id)
			p.expect(n, id)
			p.moved = true
			late = late || n.rec != nil && len(n.rec.Asleep) > 0
		}
		if len(n.rel) > 0 {
			p.nextEnd = min(p.nextEnd, n.rel[0].at)
		}
	}
	if late {
		p.expectAllAsleep()
	}
}
