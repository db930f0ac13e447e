package sched

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Explain plans the queue up to one job, as a pass does. The calendar then tells why the job does not fit
// (explain_cause.go), when it will, and which single change of its request would let it start sooner
// (explain_change.go). Causes other than room come from the job's record.
//
// Here every job ahead gets a reservation, even if the policy gives fewer. So the expected start holds if no other job
// comes in between and all jobs run for their planned time.

// Limits of one explanation.
const (
	maxAhead  = 500 // jobs ahead of the one explained that are planned; with more its start is unknown
	maxTrials = 96  // most changed requests that are tried
	maxShown  = 5   // changes that are shown, one of each kind
	maxNamed  = 4   // nodes and jobs that one sentence names
	maxQOS    = 4   // other QOS that are tried: each is a plan of its own
)

// spot is the job in one of its partitions.
type spot struct {
	l     *lane
	it    item
	ahead int
	queue int
	fits  bool       // it would start now if no job were ahead of it
	floor model.Time // without backfill: no job starts before the jobs ahead of it

	start  model.Time   // expected; 0: unknown
	alloc  *model.Alloc // where; nil: not known
	causes []model.Cause
}

type explainer struct {
	p       *Planner
	pol     Policy
	v       *state.View
	now     model.Time
	j       *model.Job
	sees    *Sight // of who reads it; nil: everything
	out     *model.Explanation
	spots   []spot
	fifo    bool
	cut     bool // more jobs are ahead than were planned
	late    bool // the first moment at which it fits is too late for its deadline
	trials  int
	remains map[string]float64 // the part of the request that a change leaves, by its option; not there: nothing is cut
	limit   int                // number of the cause that is a limit, from 1; 0: no cause is
}

// Explain explains a job at a moment under a policy to somebody who sees everything; nil where there is no such job.
func Explain(v *state.View, now model.Time, pol Policy, id model.JobID) *model.Explanation {
	return ExplainTo(nil, v, now, pol, id)
}

// ExplainTo is Explain for somebody from whom jobs, reservations, nodes or partitions are hidden; sees is nil for
// others.
func ExplainTo(sees *Sight, v *state.View, now model.Time, pol Policy, id model.JobID) *model.Explanation {
	out := explain(sees, v, now, pol, id)
	if out != nil {
		for i := range out.Causes {
			c := &out.Causes[i]
			c.Jobs = slices.DeleteFunc(c.Jobs, func(id model.JobID) bool { return !sees.job(id) })
			c.Nodes = sees.nodesOf(v.Job(id).Spec, c.Nodes)
		}
		if out.State == model.Pending { // else they are the job's own
			out.Nodes = sees.nodesOf(v.Job(id).Spec, out.Nodes)
		}
		for i := range out.Changes {
			out.Changes[i].Nodes = sees.nodesOf(v.Job(id).Spec, out.Changes[i].Nodes)
		}
	}
	return out
}

func explain(sees *Sight, v *state.View, now model.Time, pol Policy, id model.JobID) *model.Explanation {
	j := v.Job(id)
	if j == nil {
		return nil
	}
	if j.Follows() && j.State == model.Pending { // it waits as the first component does
		if j = v.Component(j.Het.ID, 0); j == nil {
			return nil
		}
	}
	x := &explainer{p: NewPlanner(), pol: pol, v: v, now: now, j: j, sees: sees,
		fifo: !pol.Backfill.On || pol.Backfill.Reserve == 0,
		out: &model.Explanation{Job: j.ID, ArrayID: j.ArrayID, Task: j.Task, Tasks: j.Tasks, Name: j.Spec.Name,
			User: j.Spec.User, State: j.State}}
	if j.State != model.Pending {
		if j.Run != nil {
			x.out.Nodes = j.Run.Alloc.NodeNames()
		}
		x.out.Text = x.notWaiting()
		return x.out
	}
	x.holds()
	free := len(x.out.Causes) == 0 // only room and turn keep it waiting
	x.queue(pol)
	for i := range x.spots {
		x.look(&x.spots[i])
	}
	x.ahead()
	for i := range x.spots {
		x.waits(&x.spots[i])
	}
	var room model.Time // under the limit that holds it
	if x.limit > 0 {
		room = x.limited(&x.out.Causes[x.limit-1])
	}
	x.expect(free, room)
	if r := j.Rush; r != nil {
		x.out.Text += " It was lost with a node at " + at(r.At) + " and goes before all other jobs (--requeue=expedite)"
		if kept := claimedNodes(v, j); len(kept) > 0 && r.Until > now {
			x.out.Text += "; what it had of " + names(kept) + " is kept for it until " + at(r.Until)
		}
		x.out.Text += "."
	}
	if j.Accrue == model.NotAging {
		x.out.Text += " It gains no priority by waiting yet: as many jobs do as GrpJobsAccrue or MaxJobsAccrue of its QOS, " +
			"account or user let."
	}
	return x.out
}

// claimedNodes gives the nodes to which a job has a claim, with all its components.
func claimedNodes(v *state.View, j *model.Job) (kept []string) {
	all := []*model.Job{j}
	if j.Leads() {
		all = v.Components(j.ID)
	}
	for _, o := range all {
		if o.Claim == nil {
			continue
		}
		for _, name := range o.Claim.Alloc.NodeNames() {
			if !slices.Contains(kept, name) {
				kept = append(kept, name)
			}
		}
	}
	return kept
}

// Forecast gives when, where and in which partition a job would start if it were submitted now with a priority. It
// plans the jobs ahead first, with reservations, licenses and limits. Start is 0 if it is not known: too many jobs are
// ahead, a limit holds the job, or jobs without a time limit use what it needs. The allocation is nil if only the
// moment is known.
func Forecast(v *state.View, now model.Time, pol Policy, sp *model.Spec, priority uint32) (model.WhatIf, *model.Alloc) {
	j := &model.Job{ID: state.MaxJobID, Task: model.NoTask, Spec: sp, State: model.Pending, Priority: priority,
		Direct: sp.PrioReq != 0,
		Submit: now, Eligible: max(now, sp.Begin), Begin: sp.Begin, Tasks: sp.Tasklist, Throttle: sp.Throttle}
	return foresee(v, now, pol, j)
}

// Soonest gives when a job of the View would start if no new job came, under a policy whose predictions say how long
// jobs run. 0: that is not known, as with Forecast.
func Soonest(v *state.View, now model.Time, pol Policy, j *model.Job) model.Time {
	w, _ := foresee(v, now, pol, j)
	return w.Start
}

// foresee plans the queue with j, which replaces the job of the same number if there is one, and gives j's start.
func foresee(v *state.View, now model.Time, pol Policy, j *model.Job) (w model.WhatIf, alloc *model.Alloc) {
	x := &explainer{p: NewPlanner(), v: v, now: now, j: j, fifo: !pol.Backfill.On || pol.Backfill.Reserve == 0,
		out: &model.Explanation{}}
	if o, ok := pol.Order.(Supposer); ok {
		pol.Order = supposed{o, j.ID}
	}
	x.queue(pol)
	x.ahead()
	for i := range x.spots {
		if s := &x.spots[i]; s.start != 0 && (w.Start == 0 || s.start < w.Start) {
			w.Start, w.Partition, alloc = s.start, s.l.part.Name, s.alloc
		}
	}
	if w.Start != 0 && w.Start < j.Begin {
		w.Start = j.Begin
	}
	w.Nodes, w.Now = alloc.NodeNames(), w.Start == now
	return w, alloc
}

// notWaiting says what a job that is not pending does.
func (x *explainer) notWaiting() string {
	j := x.j
	switch {
	case j.State.Finished() && j.Run == nil:
		return fmt.Sprintf("It does not wait: it ended %s before it started, at %s%s", j.State, at(j.End.At),
			ended(j.EndText()))
	case j.State.Finished():
		return fmt.Sprintf("It does not wait: it ran from %s to %s and ended %s%s", at(j.Run.Start), at(j.End.At), j.State,
			ended(j.EndText()))
	case j.State == model.Completing:
		return fmt.Sprintf("It does not wait: it has been running since %s on %s and is being ended.", at(j.Run.Start),
			names(j.Run.Alloc.NodeNames()))
	}
	if j.State == model.Suspended && j.Run.Idles() {
		return x.asleep()
	}
	if text := x.rises(j); text != "" {
		return text
	}
	end := "it has no time limit"
	switch t, last := j.Run.Deadline(), x.v.LatestEnd(j); {
	case t != 0 && last == 0:
		end = fmt.Sprintf("its time limit ends at %s, and OverTimeLimit lets it run on", at(t))
	case t != 0 && last > t:
		end = fmt.Sprintf("its time limit ends at %s, and OverTimeLimit ends it at %s", at(t), at(last))
	case t != 0:
		end = "its time limit ends it at " + at(t)
	}
	if j.State == model.Configuring {
		return fmt.Sprintf("It does not wait for resources: it has %s since %s, and is being started there (Prolog "+
			"runs, or its image is made ready, or the order is on its way); %s.", names(j.Run.Alloc.NodeNames()),
			at(j.Run.Start), end)
	}
	return fmt.Sprintf("It does not wait: it has been running since %s on %s; %s.", at(j.Run.Start),
		names(j.Run.Alloc.NodeNames()), end) + elasticSize(j)
}

// rises says which of a job's nodes are being powered up or rebooted for it; "": none is.
func (x *explainer) rises(j *model.Job) string {
	if !x.v.AwaitsPower(j) {
		return ""
	}
	var list []string
	last := model.Time(0) // when the first one is given up
	for _, name := range j.Run.Alloc.NodeNames() {
		n := x.v.Node(name)
		if n == nil || !n.Awaited() {
			continue
		}
		list = append(list, name)
		t := model.Time(0)
		switch cfg := x.v.Config(); {
		case !n.Rises():
			t = n.Reboot.At.Add(cfg.Params.Rules.RebootS)
		case n.PowerStep() == model.PoweringUp:
			t = n.Power.At.Add(cfg.PowerSpan(name).UpS)
		}
		if t != 0 && (last == 0 || t < last) {
			last = t
		}
	}
	is, how := "are", "powered up"
	if len(list) == 1 {
		is = "is"
	}
	if j.Spec.Extra().Reboot {
		how = "booted"
	}
	text := fmt.Sprintf("It has %s since %s, and %s of them %s being %s for it: its time begins when all are up",
		countOf(len(j.Run.Alloc.Nodes), "node", "nodes"), at(j.Run.Start), names(list), is, how)
	if len(j.Run.Alloc.Nodes) == 1 {
		text = fmt.Sprintf("It has %s since %s, which is being %s for it: its time begins when the node is up",
			list[0], at(j.Run.Start), how)
	}
	if last != 0 {
		text += fmt.Sprintf("; what is not up at %s is given up (ResumeTimeout)", at(last))
	}
	return text + "."
}

// elasticSize says how many nodes a running elastic job has, may have, and is asked for; "" of other jobs.
func elasticSize(j *model.Job) string {
	el := j.Spec.Elastic()
	if el == nil {
		return ""
	}
	text := fmt.Sprintf(" It has %d of %d to %d nodes (--elastic)", len(j.Run.Alloc.Nodes), j.Spec.MinNodes, el.Max)
	if n := j.Spec.Stride(); n > 1 {
		text += fmt.Sprintf(", in segments of %d", n)
	}
	if a := j.Run.Recall; a != nil {
		text += fmt.Sprintf("; it is to give %s back for job %d until %s", names(a.Nodes), a.For, at(a.Due))
	}
	return text + "."
}

// ended adds why a job ended to a sentence.
func ended(why string) string {
	if why == "" {
		return "."
	}
	return ": " + why + "."
}

// at writes a moment as <t:N>, which package jobtext replaces by a time that people read.
func at(t model.Time) string { return fmt.Sprintf("<t:%d>", int64(t)) }

// names lists nodes, the first few of many.
func names(list []string) string {
	if len(list) > maxNamed {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:maxNamed], ","), len(list)-maxNamed)
	}
	return strings.Join(list, ",")
}

// queue brings a planner to the moment and finds the job's places.
func (x *explainer) queue(pol Policy) {
	p := x.p
	pol.MaxStarts, pol.Depth = maxAhead, DefaultDepth
	pol.Backfill = Backfill{On: true, Reserve: -1, ResolutionS: pol.Backfill.ResolutionS,
		BusyNodes: pol.Backfill.BusyNodes}
	p.sync(x.v, x.now, pol)
	p.windows()
	e := p.jobs[x.j.ID]
	if e != nil && e.j.Spec != x.j.Spec { // another request in its stead
		p.drop(e)
		e = nil
	}
	if e == nil { // held, or waiting for something: its place once it is not
		n := *x.j
		p.admit(&n)
		e = p.jobs[x.j.ID]
	}
	p.open()
	for _, s := range e.lanes {
		sp := spot{l: s.l}
		for i := s.l.first; i < len(s.l.items); i++ {
			switch it := &s.l.items[i]; {
			case it.e == nil:
				continue
			case it.e == e:
				sp.it, sp.ahead = *it, sp.queue
			}
			sp.queue++
		}
		x.spots = append(x.spots, sp)
		x.out.Places = append(x.out.Places,
			model.QueuePlace{Partition: s.l.part.Name, Ahead: int32(sp.ahead), Queue: int32(sp.queue)})
	}
}

// ahead plans the jobs ahead in each of the job's partitions, and then finds when the job starts there.
func (x *explainer) ahead() {
	p, left := x.p, 0
	for i := range x.spots {
		if x.spots[i].l.refuse == model.ReasonNone {
			left++
		}
	}
	for n := 0; left > 0; {
		l := p.best()
		if l == nil {
			return
		}
		it := l.items[l.next]
		if it.id == x.j.ID {
			s := &x.spots[slices.IndexFunc(x.spots, func(s spot) bool { return s.l == l })]
			if x.fifo {
				s.floor = x.floorOf(l)
			}
			s.start, s.alloc = x.soonest(l, &s.it, s.floor)
			l.next++
			left--
			if s.start == x.now {
				return
			}
			continue
		}
		if n++; n > maxAhead || len(p.plan.Starts) >= maxAhead {
			x.cut = true
			return
		}
		l.next++
		if e := it.e.at(p); e.last != allStarted && e.resv == nil {
			p.consider(l, &it)
		} else if e.last != allStarted && e.resvAt != l {
			p.elsewhere(l, &it)
		}
	}
}

// floorOf gives the latest start of the jobs ahead in a lane.
func (x *explainer) floorOf(l *lane) model.Time {
	last := model.Time(0)
	for i := l.first; i < l.next; i++ {
		if e := l.items[i].e; e != nil && e.pass == x.p.pass && e.resvAt == l {
			for _, b := range e.resv {
				last = max(last, b.at)
			}
		}
	}
	return last
}

// soonest gives the first moment at which a request can start in a lane behind the jobs ahead; 0: never.
func (x *explainer) soonest(l *lane, it *item, floor model.Time) (model.Time, *model.Alloc) {
	p := x.p
	if l.refuse != model.ReasonNone || it.refuse != model.ReasonNone || p.owing(l, it) {
		return 0, nil
	}
	r, _ := p.mayNotRun(it)
	opens := r == model.ReasonReservation && p.opens(it.e.j.Spec) != 0 // the calendar says when
	if r != model.ReasonNone && !opens {
		return 0, nil
	}
	if _, from := x.kept(&spot{l: l, it: *it}); from == forever {
		return 0, nil
	} else if from > x.now {
		floor = max(floor, from)
	}
	if it.e.j.Leads() {
		return x.together(l, it, floor)
	}
	if floor <= x.now && !opens {
		if g := p.lodge(it); g.alloc != nil {
			return x.now, g.alloc
		}
	}
	when, a, _, sh := p.soonestLicensed(it.sh, it.leastS())
	switch {
	case a == nil:
		return 0, nil
	case when <= x.now: // enough is free by count, but the job does not fit: the calendar only counts
		when = max(x.now+1, floor)
	case when < floor:
		when, a = floor, nil // the nodes are not known so far ahead
	}
	if _, ok := p.stayIn(it, sh, when); !ok {
		x.late = x.late || it.e.j.Spec == x.j.Spec
		return 0, nil
	}
	return when, a
}

// together is soonest for a heterogeneous job: the first moment at which all its components fit.
func (x *explainer) together(l *lane, it *item, floor model.Time) (model.Time, *model.Alloc) {
	p := x.p
	all, ok := p.companions(l, it)
	if !ok {
		return 0, nil
	}
	if m := p.mark(); floor <= x.now && p.bookAll(all) {
		a := p.plan.Starts[m.starts].Alloc
		p.undo(m)
		return x.now, a
	}
	made := p.together(all)
	if made == nil {
		return 0, nil
	}
	a := &model.Alloc{}
	for _, n := range made[0].nodes {
		a.Nodes = append(a.Nodes, model.NodeAlloc{Node: n.def.Name})
	}
	for _, b := range made {
		p.lift(b)
	}
	if when := max(made[0].at, x.now+1); when >= floor {
		return when, a
	}
	return floor, nil
}

// expect sets the job's expected start, orders the causes, and looks for changes that would help.
func (x *explainer) expect(free bool, room model.Time) {
	out := x.out
	order := slices.Clone(x.spots) // the partition in which it starts first comes first
	slices.SortStableFunc(order, func(a, b spot) int { return cmp.Compare(uint64(a.start-1), uint64(b.start-1)) })
	for i := range order {
		if order[i].start != x.now && (order[0].start != x.now || !free) || x.cut {
			out.Causes = append(out.Causes, order[i].causes...)
		}
	}
	switch {
	case x.j.Hold != model.NotHeld:
		out.Text = "Its start is unknown until it is released."
		return
	case len(x.j.Deps) > 0:
		out.Text = "Its start is unknown until the jobs that it waits for have ended."
		return
	case x.cut:
		out.Text = fmt.Sprintf("More than %d jobs come first: its start is not computed that far ahead.", maxAhead)
		return
	case room != 0 && len(out.Causes) > 0 && order[0].start != 0:
		if out.Start = max(room, order[0].start, x.j.Begin); out.Start == order[0].start {
			out.Nodes = order[0].alloc.NodeNames()
		}
		out.Text = "It is expected to start when there is room under its limit and on its nodes, if all jobs run " +
			x.length() + "."
		x.tell(x.otherQOS())
		return
	case !free && x.j.Begin <= x.now:
		out.Text = "Its start is unknown: it depends on more than free nodes."
		if !slices.ContainsFunc(out.Causes,
			func(c model.Cause) bool { return c.Partition == "" && !strings.HasPrefix(c.Reason.String(), "QOS") }) {
			x.tell(x.otherQOS()) // only limits of its QOS keep it waiting
		}
		return
	}
	out.Start, out.Nodes = order[0].start, order[0].alloc.NodeNames()
	if out.Start != 0 && x.j.Begin > out.Start {
		out.Start, out.Nodes = x.j.Begin, nil
	}
	switch {
	case out.Start == x.now:
		out.Text = "It starts with the next scheduling pass."
		return
	case out.Start == 0 && x.late:
		out.Text = "It would start too late for its deadline, " + at(x.j.Spec.Deadline) +
			": it ends in state DEADLINE then, unless something becomes free sooner."
	case out.Start == 0 && slices.ContainsFunc(out.Causes,
		func(c model.Cause) bool { return c.Reason == model.ReasonHeadroom }):
		out.Text = "Its start is unknown: nobody knows when there is room beside what the partition keeps back."
	case out.Start == 0 && slices.ContainsFunc(order,
		func(s spot) bool { return x.open(&s) && x.p.waitsForNodes(s.l, &s.it) == "" }):
		out.Text = "Its start is unknown: jobs without a time limit hold what it needs, or will."
	case out.Start == 0 && !slices.ContainsFunc(order, func(s spot) bool { return x.barred(s.it.refuse, s.l.part) == "" }):
		out.Text = "Its start is unknown: it may not run in any of its partitions at present."
	case out.Start == 0:
		out.Text = "Its start is unknown: no nodes that are up can run it at present."
	case x.fifo:
		out.Text = "It is expected to start after the jobs ahead of it, if all jobs run " + x.length() + "."
	default:
		out.Text = "It is expected to start then, if no new job goes first and all jobs run " + x.length() + "."
	}
	if free {
		x.changes()
	}
	slices.SortStableFunc(out.Changes, func(a, b model.WhatIf) int {
		return cmp.Or(cmp.Compare(x.deep(&a), x.deep(&b)), cmp.Compare(a.Start, b.Start))
	})
	out.Changes = out.Changes[:min(len(out.Changes), maxShown)]
}

// length says how long jobs run in this plan.
func (x *explainer) length() string {
	if x.pol.Predict == nil {
		return "to their limits"
	}
	return "as long as planned"
}

// open reports whether a partition would start the job if there were room.
func (x *explainer) open(s *spot) bool {
	if s.l.refuse != model.ReasonNone || s.it.refuse != model.ReasonNone {
		return false
	}
	r, _ := x.p.mayNotRun(&s.it)
	return r == model.ReasonNone
}
