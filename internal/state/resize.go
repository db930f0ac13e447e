package state

import (
	"fmt"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// resize.go changes the nodes of running jobs.
//
// A job that gives nodes up has the smaller allocation at once: its limits, its charge and its later steps count that.
// What it held there stays booked (Run.Leaving) until the node reports that nothing of the job is left: so nothing is
// given out that processes may still use. A job that gets nodes holds them at once, and may use them when they have run
// their prologs (Run.Unready). Each size has an accounting record of its own.
//
// An elastic job grows as the plan says (growMore). It is asked for what others need (askBack), and gives it when it
// agrees, or when its grace is over. One with segments (Spec.Stride) gets and gives whole ones: what would divide one
// is not done.
//
// The first node runs the script and always stays. Nodes that come go to the end. So the order of those that stay is
// kept.

// Resize changes the nodes of a running job.
type Resize struct {
	Job     model.JobID
	Attempt uint32
	Keep    []string    // the nodes that stay, the first one among them
	GraceS  int64       // between SIGTERM and SIGKILL on the others, seconds; 0: KillWait
	Give    model.JobID // instead of Keep: the job ends, and gives all nodes to this one
	Agree   bool        // instead of Keep: the job gives the nodes that it was asked for
}

func (x *Resize) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Texts(c, &x.Keep, model.MaxList, model.MaxName)
	wire.Int(c, &x.GraceS)
	wire.Int(c, &x.Give)
	wire.Bool(c, &x.Agree)
}

func (*Resize) kind() Kind { return KindResize }

func (s *State) applyResize(at model.Time, c *Resize) Result {
	r := s.resize(at, c)
	s.wakeAll(at)
	s.plan()
	return Result{Each: []Refusal{r}, Changed: r == OK}
}

func (s *State) resize(at model.Time, c *Resize) Refusal {
	j, ok := s.jobs.Get(c.Job)
	switch {
	case !ok:
		return NoSuchJob
	case j.State.Finished():
		return AlreadyDone
	case j.Attempt != c.Attempt:
		return Outdated
	case j.State != model.Running:
		return NotRunning
	case j.Het != nil:
		return WholeHet
	case c.Give != 0:
		return s.give(j, c.Give, at)
	case j.Run.Sizes >= model.MaxSizes:
		return Full
	}
	if c.Agree {
		if j.Run.Recall == nil {
			return NotFits
		}
		s.giveBack(j, c.GraceS, at)
		return OK
	}
	var stay model.Bits
	for _, name := range c.Keep {
		k := j.Run.Alloc.Place(name)
		if k < 0 {
			return NoSuchNode
		}
		stay = stay.With(k)
	}
	if !stay.Has(0) || !undivided(j, stay) {
		return NotFits
	}
	if gone := model.UpTo(len(j.Run.Alloc.Nodes)).Minus(stay); !gone.Empty() {
		s.shrink(j, gone, c.GraceS, at)
	}
	return OK
}

// undivided reports whether no segment of a job is in a set of its nodes with some of its nodes only.
func undivided(j *model.Job, nodes model.Bits) bool {
	for i := range j.Run.Alloc.Nodes {
		if nodes.Has(i) != nodes.Has(i-i%j.Spec.Stride()) {
			return false
		}
	}
	return true
}

// around gives the nodes that a job loses with one of them: its segment.
func around(j *model.Job, k int) model.Bits {
	n := j.Spec.Stride()
	return model.UpTo(k - k%n + n).Minus(model.UpTo(k - k%n))
}

// shrink takes nodes from a job, by their indices.
func (s *State) shrink(j *model.Job, gone model.Bits, graceS int64, at model.Time) {
	alloc := &model.Alloc{}
	var busy, unready model.Bits
	left := slices.Clone(j.Run.Leaving)
	for i := range j.Run.Alloc.Nodes {
		na := j.Run.Alloc.Nodes[i]
		switch k := len(alloc.Nodes); {
		case !gone.Has(i):
			alloc.Nodes = append(alloc.Nodes, na)
			if j.Run.Busy.Has(i) {
				busy = busy.With(k)
			}
			if j.Run.Unready.Has(i) {
				unready = unready.With(k)
			}
		case j.Run.Busy.Has(i):
			left = append(left, model.Leaving{Part: na, At: at, GraceS: graceS})
			s.endsAt(na.Node)
		default: // the node has nothing of it
			s.releaseAt(j, &na, false, at)
		}
	}
	s.sized(j, alloc, at, func(run *model.Run) {
		run.Busy, run.Unready, run.Leaving = busy, unready, left
		run.Recall = stillAsked(run)
	})
}

// goesOn takes a node that has failed from a running job with --no-kill, which keeps the others. It reports false for a
// job that ends.
func (s *State) goesOn(j *model.Job, node, why string, at model.Time) bool {
	n, ok := s.nodes.Get(node)
	told := ok && n.Link == model.LinkUp && why != whyRebooted && why != whyForgot // to end its part
	// What a suspended job gives up has to be free at once: others may have its CPUs.
	asleep := j.State == model.Suspended && !told && j.Spec.Stride() == 1 && s.now.rules >= rulesBrief
	if !j.Spec.Extra().NoKill || j.State != model.Running && !asleep || j.Het != nil || j.Run.Sizes >= model.MaxSizes {
		return false
	}
	gone := around(j, j.Run.Alloc.Place(node))
	if gone.Has(0) { // its script runs there
		return false
	}
	s.shrink(j, gone, 0, at)
	if n, ok := s.jobs.Get(j.ID); ok && s.now.rules >= rulesWeighed {
		s.change(n, func(run *model.Run) { run.Broke = run.Version })
	}
	if told {
		return true
	}
	if j, ok := s.jobs.Get(j.ID); ok {
		s.left(j, j.Run.LeavingAt(node), at)
	}
	return true
}

// stillAsked gives what a job is still to give back.
func stillAsked(run *model.Run) *model.Recall {
	if run.Recall == nil {
		return nil
	}
	a := *run.Recall
	a.Nodes = slices.DeleteFunc(slices.Clone(a.Nodes), func(n string) bool { return run.Alloc.Place(n) < 0 })
	if len(a.Nodes) == 0 {
		return nil
	}
	return &a
}

// askBack asks an elastic job for nodes. They are its own until it agrees, or the grace is over.
func (s *State) askBack(at model.Time, c *model.Asking) {
	j, ok := s.jobs.Get(c.Job)
	if !ok || j.Attempt != c.Attempt || j.Spare() == 0 || j.Run.Sizes >= model.MaxSizes {
		return
	}
	a := &model.Recall{At: at, For: c.For}
	grace := j.Spec.Elastic().GraceS
	if grace == model.NotSet {
		grace = s.cfg.Params.Elastic.GraceS
	}
	a.Due = at.Add(grace)
	if old := j.Run.Recall; old != nil {
		a.Nodes, a.Due = slices.Clone(old.Nodes), min(a.Due, old.Due)
	}
	stride := j.Spec.Stride()
	for _, name := range c.Nodes {
		k := j.Run.Alloc.Place(name)
		if k < stride || k%stride != 0 || slices.Contains(a.Nodes, name) ||
			len(a.Nodes)+stride > len(j.Run.Alloc.Nodes)-int(j.Spec.MinNodes) {
			continue
		}
		segment := j.Run.Alloc.NodeNames()[k : k+stride]
		if !slices.ContainsFunc(segment, func(n string) bool { return !slices.Contains(c.Nodes, n) }) {
			a.Nodes = append(a.Nodes, segment...)
		}
	}
	if len(a.Nodes) == 0 || j.Run.Recall != nil && len(a.Nodes) == len(j.Run.Recall.Nodes) {
		return
	}
	n := s.change(j, func(run *model.Run) {
		run.Recall = a
		run.Version++ // nodes tell the job of it
	})
	if grace <= 0 {
		s.giveBack(n, 0, at)
	}
}

// giveBack takes from a job the nodes that it was asked for.
func (s *State) giveBack(j *model.Job, graceS int64, at model.Time) {
	var gone model.Bits
	for _, name := range j.Run.Recall.Nodes {
		if k := j.Run.Alloc.Place(name); k > 0 {
			gone = gone.With(k)
		}
	}
	s.shrink(j, gone, graceS, at)
}

// takesAt gives the moment at which nodes are taken from a job that was asked for them, or 0.
func takesAt(j *model.Job) model.Time {
	if j == nil || j.Run == nil || j.Run.Recall == nil || j.State != model.Running {
		return 0
	}
	return max(j.Run.Recall.Due, 1)
}

// takeBack takes nodes from jobs whose grace is over.
func (s *State) takeBack(at model.Time, limit int) (changed bool) {
	for j := range s.dueBy(s.takes, at, limit) {
		if j.Run.Sizes < model.MaxSizes || s.now.rules < rulesLast {
			s.giveBack(j, 0, at)
		} else { // it has had all the sizes that it may have, and keeps its nodes
			s.change(j, func(run *model.Run) {
				run.Recall = nil
				run.Version++ // nodes tell the job of it
			})
		}
		changed = true
	}
	return changed
}

// growMore gives an elastic job what the plan found free for it, as far as that is still so.
func (s *State) growMore(at model.Time, c *model.Growth) {
	j, ok := s.jobs.Get(c.Job)
	if !ok || j.Attempt != c.Attempt || j.State != model.Running || j.Run.Stop != model.NoStop || j.Het != nil ||
		j.Run.Recall != nil || j.Run.Sizes >= model.MaxSizes || j.Spec.Elastic() == nil {
		return
	}
	var parts []model.NodeAlloc
	stride := j.Spec.Stride()
	for at := 0; at+stride <= len(c.Parts); at += stride {
		if len(j.Run.Alloc.Nodes)+len(parts)+stride > int(j.Spec.Elastic().Max) {
			break
		}
		more := c.Parts[at : at+stride]
		if slices.ContainsFunc(more, func(na model.NodeAlloc) bool {
			n, ok := s.nodes.Get(na.Node)
			rises := ok && n.Rises() && s.now.rules >= rulesLast // a job that runs waits for no node to come up
			return !ok || rises || j.Run.Part(na.Node) != nil
		}) {
			continue
		}
		run := *j.Run
		run.Alloc = &model.Alloc{Nodes: append(slices.Clone(parts), more...)}
		if s.fits(&run) == OK {
			parts = append(parts, more...)
		}
	}
	if len(parts) > 0 {
		s.grow(j, parts, at)
	}
}

// grow gives a job more nodes, which are free.
func (s *State) grow(j *model.Job, parts []model.NodeAlloc, at model.Time) {
	n := len(j.Run.Alloc.Nodes)
	alloc := &model.Alloc{Nodes: slices.Clone(j.Run.Alloc.Nodes)}
	for _, na := range parts {
		na.Since = j.Run.Version + 1
		alloc.Nodes = append(alloc.Nodes, na)
	}
	j = s.sized(j, alloc, at, func(run *model.Run) {
		if !s.cfg.Params.Rules.EachNode(alloc) {
			return
		}
		more := model.UpTo(len(alloc.Nodes)).Minus(model.UpTo(n))
		run.Busy, run.Unready = model.UpTo(len(alloc.Nodes)), run.Unready.Or(more)
	})
	for i := n; i < len(alloc.Nodes); i++ {
		s.takeAt(j, &alloc.Nodes[i], at)
	}
}

// sized ends the present size of a job, with its record and its charge, and begins the next one. edit changes what
// belongs to the allocation beside it.
func (s *State) sized(j *model.Job, alloc *model.Alloc, at model.Time, edit func(*model.Run)) *model.Job {
	was := *j
	was.State, was.End = model.Resizing, &model.End{At: at}
	s.charge(&was, at)
	s.record(&was)
	n, run := *j, *j.Run
	run.Spent = j.Run.SpentBy(at)
	run.Alloc = alloc
	run.Version++
	run.Sizes++
	if run.Idles() {
		run.SleepMS, run.SleepAt = run.SleptMS(at), at
	}
	run.Sized, run.SizedSleepMS = at, run.SleepMS
	edit(&run)
	s.price(&run)
	n.Run = &run
	if !run.Idles() {
		s.meter(&n, at, 0, 1, alloc.TRES())
	}
	s.put(&n)
	s.record(&n)
	return &n
}

// late reports whether a running job got a node after it had begun, and has not used it yet: it goes on without it.
func (s *State) late(j *model.Job, k int) bool {
	return k > 0 && j.State == model.Running && j.Run.Unready.Has(k) && j.Run.Alloc.Nodes[k].Since > 0 &&
		j.Run.Sizes < model.MaxSizes
}

// leavingOf gives the index in Leaving of the part that a report is about, or -1.
func leavingOf(j *model.Job, r *Report) int {
	if r.Node == "" {
		return -1
	}
	return slices.IndexFunc(j.Run.Leaving,
		func(l model.Leaving) bool { return l.Part.Node == r.Node && l.Part.Since == r.Since })
}

// leavingSays takes a report on a part that the job has given up.
func (s *State) leavingSays(j *model.Job, k int, r *Report, at model.Time) bool {
	switch r.Kind {
	case Ended, LaunchFailed:
		s.left(j, k, at)
	case PrologFailed:
		s.drain(r.Node, reasonProlog+": "+r.Text, at)
	case EpilogFailed, Unkillable:
		return s.drain(r.Node, nodeFault(r), at)
	default:
		return false
	}
	return true
}

// left frees a part that the job has given up: nothing of it is there any more. A job whose end waited only for that
// ends.
func (s *State) left(j *model.Job, k int, at model.Time) {
	if k < 0 {
		return
	}
	s.releaseAt(j, &j.Run.Leaving[k].Part, true, at)
	j = s.change(j, func(run *model.Run) { run.Leaving = slices.Delete(slices.Clone(run.Leaving), k, k+1) })
	if j.State == model.Completing && len(j.Run.Leaving) == 0 && j.Run.Over != nil && j.Run.Busy.Empty() {
		s.lastGone(j, at, *j.Run.Over)
	}
}

// leaveDue is when a node that is down should have ended a part that the job has given up.
func leaveDue(l *model.Leaving, killWaitS int64) model.Time {
	return l.At.Add(max(killWaitS, l.GraceS) + downGraceS)
}

// give ends a job whose nodes are for another one.
func (s *State) give(j *model.Job, to model.JobID, at model.Time) Refusal {
	t, ok := s.jobs.Get(to)
	switch {
	case !ok:
		return NoSuchJob
	case t.State != model.Running || t.ID == j.ID:
		return NotRunning
	case t.Het != nil:
		return WholeHet
	case t.Run.Partition != j.Run.Partition || t.Spec.QOS != j.Spec.QOS || t.Spec.UID != j.Spec.UID ||
		t.Spec.Stride() > 1:
		return NotFits
	case t.Run.Sizes >= model.MaxSizes:
		return Full
	}
	n := s.change(j, func(run *model.Run) {
		run.GiveTo, run.StopWhy = to, fmt.Sprintf("gave its nodes to job %d", to)
	})
	s.stopRunning(n, at, model.StopGive, j.Spec.UID)
	return OK
}

// handOver gives the nodes of a job that has ended to the job that they are for, as far as that one can have them.
func (s *State) handOver(j *model.Job, at model.Time) {
	if j.Run == nil || j.Run.GiveTo == 0 {
		return
	}
	t, ok := s.jobs.Get(j.Run.GiveTo)
	if !ok || t.State != model.Running || t.Run.Partition != j.Run.Partition || t.Run.Sizes >= model.MaxSizes ||
		t.Spec.Stride() > 1 {
		return
	}
	var parts []model.NodeAlloc
	for _, na := range j.Run.Alloc.Nodes {
		run := *t.Run
		run.Alloc = &model.Alloc{Nodes: []model.NodeAlloc{na}}
		if t.Run.Part(na.Node) == nil && s.fits(&run) == OK {
			parts = append(parts, na)
		}
	}
	if len(parts) > 0 {
		s.grow(t, parts, at)
	}
}

// badSize says what is wrong with the sizes of a job, "" if nothing is.
func badSize(j *model.Job) string {
	run := j.Run
	if run == nil {
		return ""
	}
	nodes := len(run.Alloc.Nodes)
	switch {
	case run.Sizes > run.Version || run.Sizes > model.MaxSizes || (run.Sizes == 0) != (run.Sized == 0):
		return fmt.Sprintf("had %d sizes of at most %d before this one, which began at %d, and its nodes are of version %d",
			run.Sizes, model.MaxSizes, run.Sized, run.Version)
	case run.Sized != 0 && (run.Sized < run.Start || run.SizedSleepMS > run.SleepMS):
		return "has its present size since before it began"
	case run.Busy.Max() >= nodes || run.Unready.Max() >= nodes || !run.Busy.Contains(run.Unready):
		return fmt.Sprintf("has parts on %s, not ready on %s, of %d nodes", run.Busy, run.Unready, nodes)
	case len(run.Leaving) > 0 && !j.State.HasResources():
		return "is over, and has not left all its nodes"
	case run.Recall != nil && len(run.Recall.Nodes) == 0:
		return "is asked for no node"
	case nodes%j.Spec.Stride() != 0:
		return fmt.Sprintf("has %d nodes, and segments of %d", nodes, j.Spec.Stride())
	}
	var asked model.Bits
	if run.Recall != nil {
		for _, name := range run.Recall.Nodes {
			if run.Alloc.Place(name) <= 0 {
				return "is asked for node " + name + ", which it has not, or which runs its script"
			}
			asked = asked.With(run.Alloc.Place(name))
		}
	}
	if !undivided(j, asked) {
		return fmt.Sprintf("is asked for nodes %s, and has segments of %d", asked, j.Spec.Stride())
	}
	for i := range run.Alloc.Nodes {
		na := &run.Alloc.Nodes[i]
		if i > 0 && na.Since > run.Version || i == 0 && na.Since != 0 || run.LeavingAt(na.Node) >= 0 {
			return fmt.Sprintf("got node %s with version %d of %d, or is leaving it", na.Node, na.Since, run.Version)
		}
	}
	for i := range run.Leaving {
		if run.LeavingAt(run.Leaving[i].Part.Node) != i {
			return "leaves node " + run.Leaving[i].Part.Node + " twice"
		}
	}
	return ""
}
