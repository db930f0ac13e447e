package sched

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

// because adds a cause that holds in all partitions.
func (x *explainer) because(r model.Reason, format string, a ...any) *model.Cause {
	x.out.Causes = append(x.out.Causes, model.Cause{Reason: r, Text: fmt.Sprintf(format, a...)})
	return &x.out.Causes[len(x.out.Causes)-1]
}

// holds adds the causes other than room and turn: holds, dependencies, the begin time, limits.
func (x *explainer) holds() {
	j := x.j
	id := fmt.Sprint(j.ID)
	switch {
	case j.Hold == model.HeldByAdmin && j.Reason == model.ReasonLaunchFailedRequeued:
		x.because(j.Reason, "could not be started (%s) and is held; an operator can release it with gcontrol release %s",
			j.Why, id)
	case j.Hold == model.HeldByAdmin && j.Reason == model.ReasonMaxRequeue:
		x.because(j.Reason, "held: %s; an operator can release it with gcontrol release %s", j.Why, id)
	case j.Hold == model.HeldByUser && j.Why != "":
		x.because(model.ReasonJobHeldUser, "held: %s; gcontrol release %s lets it go", j.Why, id)
	case j.Hold == model.HeldByAdmin:
		x.because(model.ReasonJobHeldAdmin, "held by an operator, who can release it with gcontrol release %s", id)
	case j.Hold == model.HeldByUser:
		x.because(model.ReasonJobHeldUser, "held by its owner; gcontrol release %s lets it go", id)
	}
	for i := range j.Deps {
		x.dependency(&j.Deps[i])
	}
	if j.Begin > x.now {
		if j.Strikes > 0 && j.Why != "" {
			x.because(model.ReasonBeginTime, "does not begin before %s: %s", at(j.Begin), j.Why)
		} else if late := j.Delays(x.now); len(late) > 0 {
			x.because(model.ReasonDependency, "does not begin before %s: %s after the start of job %d (--dependency)",
				at(j.Begin), walltime.Short(late[0].DelayS), late[0].Job)
		} else if j.Recurs() {
			x.because(model.ReasonBeginTime, "does not begin before %s, the next time of its crontab entry (%s)", at(j.Begin),
				j.Spec.Cron.Times)
		} else {
			x.because(model.ReasonBeginTime, "does not begin before %s (--begin)", at(j.Begin))
		}
	}
	switch j.Reason {
	case model.ReasonNone, model.ReasonPriority, model.ReasonResources, model.ReasonLicenses, model.ReasonReservation,
		model.ReasonReservationDeleted, model.ReasonDependency, model.ReasonDependencyNeverSatisfied, model.ReasonBeginTime,
		model.ReasonJobHeldAdmin, model.ReasonJobHeldUser, model.ReasonLaunchFailedRequeued, model.ReasonReqNodeNotAvail,
		model.ReasonMaxRequeue,
		model.ReasonBadConstraints,
		model.ReasonPartitionDown, model.ReasonPartitionInactive, model.ReasonPartitionTimeLimit,
		model.ReasonPartitionNodeLimit, model.ReasonMaxMemPerLimit,
		model.ReasonAccountNotAllowed, model.ReasonQOSNotAllowed, model.ReasonHeadroom:
	case model.ReasonAccountBalance:
		if t := &x.v.Config().Params.Price; !t.Spends(x.v.Payer(j.Spec.Account)) {
			x.because(j.Reason, "%s", x.owed(j.Spec.Account))
		}
	case model.ReasonJobArrayTaskLimit:
		if a := x.v.Array(j.ArrayID); a != nil && j.Throttle > 0 && a.Active >= j.Throttle {
			x.because(j.Reason, "%d tasks of its array run, and no more than %d may at once (--array=...%%%d); gcontrol "+
				"update JobId=%d ArrayTaskThrottle=N changes that",
				a.Active, j.Throttle, j.Throttle, j.ArrayID)
		}
	default: // a limit of its association or QOS, as the last pass found it; limited says more where it can
		text := "a limit holds it: " + j.Reason.String()
		if j.Why != "" {
			text += ", " + j.Why
		}
		switch token := j.Reason.String(); {
		case strings.HasPrefix(token, "QOS"), strings.HasSuffix(token, "PerAccount"):
			names := j.Spec.QOS
			if part := x.v.Partition(j.Partition()); part != nil && part.QOS != "" && part.QOS != names {
				names += "," + part.QOS // one of these two
			}
			text += fmt.Sprintf(" (QOS %s; gacctmgr show qos %s lists its limits)", strings.ReplaceAll(names, ",", " or "),
				names)
		case strings.HasPrefix(token, "Assoc"):
			text += fmt.Sprintf(" (account %s of user %s; gacctmgr show assoc users=%s lists its limits)", j.Spec.Account,
				j.Spec.User, j.Spec.User)
		}
		x.because(j.Reason, "%s", text)
		x.limit = len(x.out.Causes)
	}
}

// dependency says what one dependency waits for.
func (x *explainer) dependency(d *model.Dep) {
	r := model.ReasonDependency
	if d.Failed {
		r = model.ReasonDependencyNeverSatisfied
	}
	owner := x.v.JobOrTask(d.Job)
	hidden := owner != nil && !x.sees.job(owner.ID)
	if d.Failed {
		text := d.NeverText()
		if hidden { // how it ended is its users' alone
			text = fmt.Sprintf("waits for %s:%d, which can't be satisfied any more", d.Kind, d.Job)
		}
		x.because(r, "%s", text).Jobs = []model.JobID{d.Job}
		return
	}
	if d.Kind == model.DepSingleton {
		x.because(r, "waits until no other job of user %s named %s is left (singleton)", x.j.Spec.User, x.j.Spec.Name)
		return
	}
	ref := fmt.Sprint(d.Job)
	rec := x.v.Job(d.Job)
	if d.Task != model.NoTask {
		ref += fmt.Sprintf("_%d", d.Task)
		rec = x.v.TaskRecord(d.Job, d.Task)
	}
	text := fmt.Sprintf("waits for %s:%s", d.Kind, ref)
	a := x.v.Array(d.Job)
	if hidden {
		rec, a = nil, nil
	}
	switch {
	case a != nil && d.Task == model.NoTask:
		text += fmt.Sprintf(": of the array's %d tasks %d have ended, %d run, %d wait", a.Total, a.Done, a.Active, a.Waiting)
		if a.Culprit != "" && d.Kind != model.DepAfterAny && d.Kind != model.DepAfter {
			text += "; " + a.Culprit
		}
	case rec == nil:
		text += ", a job that is not known any more"
	case rec.State == model.Pending:
		text += fmt.Sprintf(": job %s is %s, %s", called(ref, rec), rec.State, rec.Reason)
	case rec.Run != nil && !rec.State.Finished():
		text += fmt.Sprintf(": job %s is %s", called(ref, rec), rec.State)
		if t := x.v.LatestEnd(rec); t != 0 {
			text += ", until " + at(t) + " at the latest"
		}
	default:
		text += fmt.Sprintf(": job %s is %s", called(ref, rec), rec.State)
	}
	if d.DelayS > 0 {
		text += fmt.Sprintf(", and %s more", walltime.Short(d.DelayS))
	}
	x.because(r, "%s", text).Jobs = []model.JobID{d.Job}
}

// because adds a cause that holds in one partition.
func (s *spot) because(r model.Reason, format string, a ...any) *model.Cause {
	s.causes = append(s.causes, model.Cause{Reason: r, Partition: s.l.part.Name, Text: fmt.Sprintf(format, a...)})
	return &s.causes[len(s.causes)-1]
}

// look finds out, before any job is planned, whether the job would start if it came first, and which causes the
// partition adds.
func (x *explainer) look(s *spot) {
	l, part := s.l, s.l.part
	switch {
	case l.refuse == model.ReasonPartitionDown && l.why != "":
		s.because(l.refuse, "%s", l.why)
		return
	case l.refuse != model.ReasonNone:
		s.because(l.refuse, "partition %s is in state %s and starts no jobs", part.Name, part.State)
		return
	}
	if until := Settling(x.v, part.Name, x.now); until != 0 {
		s.because(model.ReasonResources, "%s, until %s at the latest", completing, at(until))
	}
	sp := x.j.Spec
	switch s.it.refuse {
	case model.ReasonPartitionTimeLimit:
		s.because(s.it.refuse, "asks for %s, partition %s allows %s (MaxTime)", limitText(s.it.limitS), part.Name,
			limitText(part.MaxTimeS))
		return
	case model.ReasonPartitionNodeLimit:
		s.because(s.it.refuse, "asks for %s, partition %s allows %d to %s",
			countOf(int(max(1, sp.MinNodes)), "node", "nodes"), part.Name, max(1, part.MinNodes), most(part.MaxNodes))
		return
	case model.ReasonBadConstraints:
		if k := s.it.sh.rq.Segment; s.it.sh.rq.divided(x.p.stock) == NoBlocks {
			s.because(s.it.refuse, "asks for segments of %s (--segment), and the network of partition %s has no blocks; "+
				"gcontrol update JobId=%d Partition= names one that has", countOf(k, "node", "nodes"), part.Name, x.j.ID)
		} else {
			s.because(s.it.refuse, "asks for segments of %s (--segment), which its number of nodes is no multiple of",
				countOf(k, "node", "nodes"))
		}
		return
	case model.ReasonMaxMemPerLimit:
		s.because(s.it.refuse, "asks for more memory than partition %s allows (MaxMemPerNode, MaxMemPerCPU)", part.Name)
		return
	}
	if text := x.barred(s.it.refuse, part); text != "" {
		s.because(s.it.refuse, "%s", text)
		return
	}
	if r, why := x.p.mayNotRun(&s.it); r == model.ReasonReqNodeNotAvail {
		name, _ := model.UnavailableNode(why)
		s.because(r, "asks for node %s (--nodelist), which is %s", name, x.stateOf(name)).Nodes = []string{name}
		return
	}
	switch r := x.p.outside(&s.it); r {
	case model.ReasonReservationDeleted:
		s.because(r, "asks for reservation %s, which no longer exists; gcontrol update JobId=%d Reservation= lets "+
			"it go on without", sp.Reservation, x.j.ID)
		return
	case model.ReasonReservation:
		x.reservation(s)
		return
	}
	if d := sp.Deadline; d != 0 {
		if _, ok := x.p.stayIn(&s.it, s.it.sh, x.now); !ok {
			s.because(model.ReasonDeadLine,
				"it can no longer end before its deadline, %s (--deadline): it needs at least %s", at(d),
				limitText(sp.LeastS(s.it.limitS)))
			return
		}
	}
	if text, _ := x.kept(s); text != "" {
		s.because(model.ReasonHeadroom, "%s", text)
		return
	}
	s.fits = x.p.lodge(&s.it).alloc != nil
	if !s.fits && x.licenses(s) {
		return
	}
	if why := x.p.closed(&s.it); !s.fits && why != "" {
		s.because(model.ReasonReqNodeNotAvail,
			"%s: it would fit but for %s; with a time limit that ends before, it could start", strings.ToLower(why[:1])+why[1:],
			x.windowsText(s))
		return
	}
	if !s.fits {
		x.room(s)
	}
}

// reservation says why the job can start in none of its reservations now.
func (x *explainer) reservation(s *spot) {
	sp := x.j.Spec
	for _, name := range sp.ReservationNames() {
		r := x.v.Reservation(name)
		switch {
		case r == nil:
		case !r.Admits(sp):
			s.because(model.ReasonReservation, "user %s in account %s may not use reservation %s", sp.User, sp.Account, name)
		default:
			s.because(model.ReasonReservation, "waits for reservation %s, which begins at %s", name, at(r.At(x.now).Start))
		}
	}
}

// licenses says which licenses a job waits for and which jobs have them; false if it waits for none.
func (x *explainer) licenses(s *spot) bool {
	waits, never := x.p.unlicensed(&s.it)
	if !waits {
		return false
	}
	if never {
		s.because(model.ReasonLicenses, "asks for more licenses than the cluster has (%s)", licensesText(&s.it.sh.rq))
		return true
	}
	c := s.because(model.ReasonLicenses, "")
	c.Text = "needs the licenses " + licensesText(&s.it.sh.rq)
	for _, l := range s.it.sh.rq.Licenses {
		k := slices.IndexFunc(x.p.lic.def.Gres, func(g model.GresDef) bool { return g.Name == l.Name })
		if k < 0 {
			continue
		}
		total, free := int(x.p.lic.def.Gres[k].Count), x.p.lic.free.gres[k]
		c.Text += fmt.Sprintf(": %d of %d %s are free", max(0, free), total, l.Name)
		for i := range x.p.lic.rel {
			r := &x.p.lic.rel[i]
			if r.gres[k] > 0 && len(c.Jobs) < maxNamed {
				c.Jobs = append(c.Jobs, r.id)
				if len(c.Jobs) == 1 {
					c.Text += fmt.Sprintf(", %s has %d until %s", x.job(r.id), r.gres[k], at(r.at))
				}
			}
		}
		for i := range x.p.lic.wins {
			if w := &x.p.lic.wins[i]; w.part.gres[k] > 0 && w.name != s.it.sh.rq.Reservation &&
				w.from < x.p.after(x.now, s.it.leastS()) {
				c.Text += fmt.Sprintf(", %s keeps %d from %s to %s", x.reservationText(w.name),
					w.part.gres[k], at(w.from), at(w.to))
				break
			}
		}
	}
	return true
}

// windowsText names the reservations that close the job's nodes.
func (x *explainer) windowsText(s *spot) string {
	var out []string
	for _, n := range s.l.pool.nodes {
		if !s.it.sh.mayHave(n) {
			continue
		}
		for i := range n.wins {
			w := &n.wins[i]
			text := fmt.Sprintf("%s from %s to %s", x.reservationText(w.name), at(w.from), at(w.to))
			if w.name != s.it.sh.rq.Reservation && w.from < x.p.after(x.now, s.it.leastS()) && !slices.Contains(out, text) &&
				len(out) < maxNamed {
				out = append(out, text)
			}
		}
	}
	return strings.Join(out, ", ")
}

// waits adds the jobs whose turn comes first, once these are planned.
func (x *explainer) waits(s *spot) {
	if !x.open(s) {
		return
	}
	var jobs []model.JobID
	left := 0 // jobs ahead that this pass does not start
	for i, n := s.l.first, 0; i < len(s.l.items) && n < s.ahead; i++ {
		e := s.l.items[i].e
		if e == nil {
			continue
		}
		n++
		if e.pass == x.p.pass && e.last == allStarted {
			continue
		}
		left++
		if len(jobs) < maxNamed {
			jobs = append(jobs, e.j.ID)
		}
	}
	come := fmt.Sprintf("%s first in partition %s, by priority or age: %s", countOf(left, "job comes", "jobs come"),
		s.l.part.Name, x.jobList(jobs, left))
	switch {
	case left > 0 && s.fits:
		come = "it would fit now, but " + come
	case left == 0 && s.fits && x.j.Leads():
		s.because(model.ReasonResources, "its first component would fit now, but not all components together")
		return
	case left == 0 && s.fits && len(x.out.Causes) > 0: // what holds it is said
		return
	case left == 0 && s.fits:
		come = "it would fit now, but jobs that start now, or come first on its nodes through other partitions, need the same"
	case left == 0:
		return
	}
	s.because(model.ReasonPriority, "%s", come).Jobs = jobs
}

// surveyed is what the nodes of a lane have for a job.
type surveyed struct {
	up           []soon  // nodes that can hold it, by the moment at which they can
	busy         []*node // the ones among them that are not free now
	away, broken []string
	held         []string // processes outside of jobs hold memory of their GPUs
	heldBy       map[string]string
	free         int
}

// survey looks at each node of a lane; whole means that one node must take the whole job.
func (x *explainer) survey(s *spot, sh *shape, least []nodeNeed, whole bool) (out surveyed) {
	p := x.p
	out.heldBy = map[string]string{}
	end := func(t model.Time) model.Time { return p.after(t, s.it.leastS()) }
	p.cursor.of(sh)
	for _, n := range s.l.pool.nodes {
		nd := &least[n.class.at]
		switch {
		case nd.never || !sh.named(n, whole):
		case !n.up():
			out.away = append(out.away, n.def.Name)
		case p.has(sh, n, nd) && (len(n.wins) == 0 || p.cursor.lasts(n, nd, x.now, end(x.now))):
			out.free++
			out.up = append(out.up, soon{x.now, n})
		default:
			when := p.namedFrom(sh, n, nd, p.cursor.earliest(n, nd, x.now, forever, end), end)
			if when == forever && sh.byUnit(n) && !sh.hasUnits(p.stock.empty(n.def).withHeld(n.rec.Held), nd) {
				out.held = append(out.held, n.def.Name)
				out.heldBy[n.def.Name] = n.heldText()
				continue
			}
			if when == forever && len(n.rec.Out) > 0 {
				out.broken = append(out.broken, n.def.Name)
				continue
			}
			out.up = append(out.up, soon{when, n})
			out.busy = append(out.busy, n)
		}
	}
	slices.SortStableFunc(out.up, func(a, b soon) int { return cmp.Compare(a.at, b.at) })
	return out
}

// room says what the job needs and which jobs have it.
func (x *explainer) room(s *spot) {
	p, sh, pl := x.p, s.it.sh, s.l.pool
	if sh.drawn { // a reservation that attracts it may have room first
		if _, _, _, in := p.soonestLicensed(sh, s.it.leastS()); in != nil {
			sh = in
		}
	}
	over := sh.single && sh.spread && !sh.onOne(pl) // it needs several nodes, though it asked for no number of them
	least := sh.least
	if sh.single && !over {
		least = sh.whole
	}
	n := x.survey(s, sh, least, sh.single && !over)
	up, busy, away, broken, held, free := n.up, n.busy, n.away, n.broken, n.held, n.free
	want := 1
	switch {
	case over:
		want = 2
	case !sh.single:
		want = sh.rq.MinNodes
	}
	text := "needs " + needText(sh, over)
	r := model.ReasonResources
	c := model.Cause{Partition: s.l.part.Name}
	switch {
	case p.beyond(s.it.sh):
		r, text = model.ReasonReservation, text+fmt.Sprintf(": reservation %s has less than that, even when nothing else "+
			"is in it; gcontrol show reservation lists what it has", s.it.e.j.Spec.Reservation)
	case len(up) == 0 && len(away)+len(broken)+len(held) == 0:
		r, text = model.ReasonBadConstraints, text+
			fmt.Sprintf(": no node of partition %s has that, even when it is empty", s.l.part.Name)
	case len(up) < want:
		r = model.ReasonReqNodeNotAvail
		text += fmt.Sprintf(": of the nodes of partition %s that are up %d could give that, even when empty", s.l.part.Name,
			len(up))
	default:
		last := up[want-1]
		mixes := x.mixesText(sh, busy)
		var lack *scarce
		if mixes == "" && p.waitsForNodes(s.l, &s.it) == "" {
			lack = x.scarcest(sh, nodesOf(up), least, want, last.node, last.at)
		}
		if lack != nil {
			c.Jobs = lack.jobs
		}
		switch {
		case over:
			text += fmt.Sprintf(": %s for a part of it, %d of them now", countOf(len(up), "node has room", "nodes have room"),
				free)
		case lack != nil && free >= want:
			text += fmt.Sprintf(": %s the rest free now", countOf(free, "node has", "nodes have"))
		case free > 0:
			text += fmt.Sprintf(": %s that, %d of them free now", countOf(len(up), "node has", "nodes have"), free)
		default:
			text += fmt.Sprintf(": %s that", countOf(len(up), "node has", "nodes have"))
		}
		if lack != nil {
			text = lack.text + "; " + text
		}
		if over {
			break
		}
		if last.at == forever {
			text += ", busy with jobs that have no time limit"
		} else if last.at > x.now {
			text += ", busy until " + at(last.at)
			if id := last.node.ends(last.at); id != 0 {
				text += fmt.Sprintf(" (%s%s)", x.job(id), x.on(last.node.def.Name))
				if len(c.Jobs) == 0 {
					c.Jobs = []model.JobID{id}
				}
			} else if name := last.node.closedUntil(last.at, sh.rq.Reservation); name != "" {
				text += fmt.Sprintf(" (%s%s)", x.reservationText(name), x.on(last.node.def.Name))
			}
		}
		text += mixes
		for _, u := range up[:min(len(up), maxNamed)] {
			c.Nodes = append(c.Nodes, u.node.def.Name)
		}
	}
	if len(away) > 0 {
		text += fmt.Sprintf("; %s drained or down: %s", countOf(len(away), "is", "are"), x.awayText(away))
	}
	if len(held) > 0 {
		text += "; processes outside of jobs hold too much of the GPUs' memory: " +
			x.nodeList(held, func(name string) string { return n.heldBy[name] })
	}
	if len(broken) > 0 {
		text += fmt.Sprintf("; %s too much out of service: %s", countOf(len(broken), "has", "have"), x.outText(broken))
	}
	if p.waitsForNodes(s.l, &s.it) != "" && r == model.ReasonResources {
		r = s.it.sh.none
		text += "; those that are up can't hold it, even when empty"
	}
	c.Reason, c.Text = r, text
	s.causes = append(s.causes, c)
}

// closedUntil gives a reservation, other than the job's own, that holds the node or a part of it until a moment; "" if
// there is none.
func (n *node) closedUntil(t model.Time, own string) string {
	for i := range n.wins {
		if w := &n.wins[i]; w.to == t && w.name != own {
			return w.name
		}
	}
	return ""
}

// soon is a node, and the moment at which it has room.
type soon struct {
	at   model.Time
	node *node
}

func nodesOf(list []soon) []*node {
	out := make([]*node, len(list))
	for i := range list {
		out[i] = list[i].node
	}
	return out
}

// ends gives a job that is expected to end at a moment, or 0.
func (n *node) ends(t model.Time) model.JobID {
	for i := range n.rel {
		if n.rel[i].at == t && !n.rel[i].asleep {
			return n.rel[i].id
		}
	}
	return 0
}
