package state

import (
	"slices"
	"sort"
	"strconv"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/trail"
	"gbatch/internal/wire"
)

// trail.go tells what happens. What Apply does to nodes, units, reservations and the cluster's size it tells by itself;
// of users' changes the leader brings the entries along, in the same Once as the change. All of it goes through the
// outbox, so it is kept, shipped and counted as records are.
//
// What happens is also kept for the leader's log for a while, with every job's changes of state (Happened). That is not
// one of the facts.
//
// Commands that were written before there was a trail tell nothing: their events would take numbers that records had.

// noJob is the job of events that are of no job.
var noJob = &model.Job{Spec: &model.Spec{}}

// told is what the command under way says of itself.
type told struct {
	at    model.Time
	rules uint8  // that it follows
	trail bool   // it was written when there was a trail
	by    string // who changes nodes; "": gbatch
	sized bool   // the cluster's size may have changed

	preemptor model.JobID // the job for which others are being preempted
}

// Event is one accounting event: a job's record, the end of a step of it, or an entry of the trail.
type Event struct {
	Seq   uint64
	Job   *model.Job   // with Step it only identifies the step's job; with Audit it is of no meaning
	Step  *model.Step  // not nil: its end
	Audit *model.Audit // not nil: this entry
}

// Audits adds entries to the trail. In a Once they are left out if there are parts before them and all were refused.
type Audits struct {
	List []*model.Audit
}

func (x *Audits) Wire(c *wire.C) {
	wire.Ptrs(c, &x.List, model.MaxList)
}

func (*Audits) kind() Kind { return KindAudits }

func (s *State) applyAudits(c *Audits) Result {
	for _, a := range c.List {
		if a == nil {
			continue
		}
		n := *a
		s.tell(&n)
	}
	return Result{Changed: len(c.List) > 0}
}

// hear notes what a command says of itself.
func (s *State) hear(c Command) {
	s.now = told{at: c.At, rules: c.rules, trail: c.rules >= rulesTold}
	if c.rules == 0 && !c.read {
		s.now.rules = rulesNow
	}
}

// tell puts an entry into the outbox, and among what has happened.
func (s *State) tell(a *model.Audit) {
	if !s.now.trail {
		return
	}
	a.At = s.now.at
	s.outbox.Set(s.nextSeq, noJob)
	s.outTrail.Set(s.nextSeq, a)
	s.detail.trail += trailWeight(a)
	s.nextSeq++
	s.boundOutbox()
	s.happened.add(Happening{At: a.At, Audit: a})
}

// down gives the state in which a node takes no jobs, and why: "" if it does.
func down(n *model.Node) (state, why, by string) {
	switch {
	case n.Admin == model.NodeDown:
		return trail.Down, n.Reason, n.ReasonBy
	case n.Link == model.LinkLost:
		return trail.Down, reasonSilent, byGbatch
	case n.Admin == model.NodeDrain:
		return trail.Drain, n.Reason, n.ReasonBy
	}
	return "", "", ""
}

// tellNode tells what has become of a node and its units; old may be nil.
func (s *State) tellNode(old, n *model.Node) {
	if !s.now.trail {
		return
	}
	if old == nil {
		old = &model.Node{Def: n.Def}
		s.now.sized = true
	}
	if old.Def != n.Def {
		s.now.sized = true
	}
	if old.Link != n.Link && n.Link == model.LinkUp {
		s.happened.add(Happening{At: s.now.at, Audit: &model.Audit{At: s.now.at, Event: trail.AgentRegistered,
			What: trail.Node, Name: n.Def.Name, By: byGbatch, Text: "gnoded " + n.Version}})
	}
	if old.Link != n.Link && n.Link == model.LinkLost {
		s.happened.add(Happening{At: s.now.at, Audit: &model.Audit{At: s.now.at, Event: trail.AgentOffline,
			What: trail.Node, Name: n.Def.Name, By: byGbatch, Text: reasonSilent}})
	}
	was, wasWhy, _ := down(old)
	is, why, by := down(n)
	if was != is || is != "" && wasWhy != why {
		a := &model.Audit{Event: trail.NodeUp, What: trail.Node, Name: n.Def.Name, Text: why, State: is, By: s.by(by)}
		if is != "" {
			a.Event, a.TRES = trail.NodeDown, model.AddNodeTRES(nil, n.Def)
			if is == trail.Drain {
				a.Event = trail.NodeDrain
			}
		}
		s.tell(a)
	}
	if len(old.Out) > 0 || len(n.Out) > 0 {
		s.tellUnits(old, n)
	}
}

// by gives who has changed a node.
func (s *State) by(reason string) string {
	switch {
	case s.now.by != "":
		return s.now.by
	case reason != "":
		return reason
	}
	return byGbatch
}

// tellUnits tells of units that went out of service or came back.
func (s *State) tellUnits(old, n *model.Node) {
	has := func(list []model.UnitOut, o *model.UnitOut) bool {
		return slices.ContainsFunc(list, func(x model.UnitOut) bool {
			return x.Name == o.Name && x.Index == o.Index && x.Kind == o.Kind && x.Reason == o.Reason
		})
	}
	unit := func(event, text, by string, o *model.UnitOut) {
		name := n.Def.Name + " " + o.Name + ":" + strconv.Itoa(int(o.Index))
		s.tell(&model.Audit{Event: event, What: trail.GPU, Name: name, Text: text, By: s.by(by)})
	}
	for i := range n.Out {
		if o := &n.Out[i]; !has(old.Out, o) {
			unit(trail.GPUOut, o.Reason, o.By, o)
		}
	}
	for i := range old.Out {
		o := &old.Out[i]
		if !slices.ContainsFunc(n.Out, func(x model.UnitOut) bool { return x.Name == o.Name && x.Index == o.Index }) {
			unit(trail.GPUBack, "", "", o)
		}
	}
}

// tellNodeGone tells that a node has left the configuration.
func (s *State) tellNodeGone(n *model.Node) {
	s.now.sized = true
	if is, _, _ := down(n); s.now.trail && is != "" {
		s.tell(&model.Audit{Event: trail.NodeUp, What: trail.Node, Name: n.Def.Name, Text: reasonLeft, By: byConfig,
			Gone: true})
	}
}

// tellCapacity tells what the cluster has, if that has changed.
func (s *State) tellCapacity() {
	if !s.now.trail || !s.now.sized {
		return
	}
	var sum []model.TRESCount
	s.nodes.Scan(func(_ string, n *model.Node) bool {
		if s.defs[n.Def.Name] != nil {
			sum = model.AddNodeTRES(sum, n.Def)
		}
		return true
	})
	if len(sum) > model.MaxFew {
		sum = sum[:model.MaxFew]
	}
	if slices.Equal(sum, s.capacity) {
		return
	}
	s.capacity = sum
	s.tell(&model.Audit{Event: trail.ClusterSize, What: trail.Cluster, Name: s.cfg.Cluster, By: byGbatch, TRES: sum,
		Text: tresText(sum)})
}

// tresText writes amounts: cpu=8,mem=100M,node=1.
func tresText(list []model.TRESCount) string {
	var b strings.Builder
	for _, t := range list {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(t.Text())
	}
	return b.String()
}

// putResv replaces a reservation.
func (s *State) putResv(r *model.Reservation) {
	s.resvGen++
	old, _ := s.resvs.Set(r.Name, r)
	if old == nil || old.Start != r.Start || old.End != r.End || old.Flags != r.Flags ||
		!slices.Equal(old.Nodes, r.Nodes) {
		s.tellResv(r, false)
	}
}

// tellResv tells what a reservation is from now on, or that it is gone. One that floats has no time of its own.
func (s *State) tellResv(r *model.Reservation, gone bool) {
	if !s.now.trail {
		return
	}
	a := &model.Audit{Event: trail.Reserved, What: trail.Reservation, Name: r.Name, By: byGbatch, Start: r.Start,
		End: r.End, Nodes: hostlist.Compress(r.Nodes), Maint: r.Flags&model.ResvMaint != 0, Gone: gone}
	a.Nodes = a.Nodes[:min(len(a.Nodes), model.MaxText)]
	if gone {
		a.Event = trail.ReservationOver
	}
	if r.FloatS > 0 {
		a.Start, a.End = 0, 0
	}
	for i, name := range r.Nodes {
		n, ok := s.nodes.Get(name)
		part := r.Part(i)
		switch {
		case !ok:
		case part == nil:
			a.TRES = model.AddNodeTRES(a.TRES, n.Def)
		default:
			a.TRES = addPart(a.TRES, n.Def, part)
		}
	}
	if len(a.TRES) > model.MaxFew {
		a.TRES = a.TRES[:model.MaxFew]
	}
	s.tell(a)
}

// Place is where in the log something has happened: the same on every controller. The zero value is before everything.
type Place struct {
	Index uint64 // of the log entry
	N     uint32 // counted from 1 in the entry
}

// EntryEnd is the N of a place after everything that happens in an entry.
const EntryEnd = ^uint32(0)

// Before reports whether p comes before q.
func (p Place) Before(q Place) bool { return p.Index < q.Index || p.Index == q.Index && p.N < q.N }

// Happening is one thing that has happened: a change of a job's state, or an entry of the trail.
type Happening struct {
	Place
	At    model.Time
	Job   *model.Job
	Was   *model.Job   // before; nil: it is new
	Audit *model.Audit // not nil: this
	For   model.JobID  // the job for which this one was preempted; 0: it was not
}

// tellJob notes a change of a job's state, or of its nodes while it runs.
func (s *State) tellJob(old, j *model.Job) {
	if !s.now.trail {
		return
	}
	h := Happening{At: s.now.at, Job: j, Was: old, For: s.now.preemptor}
	if old == nil || old.State != j.State || old.Attempt != j.Attempt || h.Resized() {
		s.happened.add(h)
	}
}

// Resized reports whether a running job has other nodes than before.
func (h *Happening) Resized() bool {
	return h.Job != nil && h.Was != nil && h.Job.Run != nil && h.Was.Run != nil && h.Job.Attempt == h.Was.Attempt &&
		h.Job.Run.Sizes != h.Was.Run.Sizes
}

// Preempted reports whether a job begins to end because another one takes its place.
func (h *Happening) Preempted() bool { return stopsForOther(h.Job) && !stopsForOther(h.Was) }

func stopsForOther(j *model.Job) bool {
	return j != nil && j.Run != nil && (j.Run.Stop == model.StopPreempt || j.Run.Stop == model.StopPreemptCancel)
}

// maxHappened bounds what has happened and is remembered, in entries. It reaches back at least half of it.
const maxHappened = 1 << 14

// happened is append-only for a View: entries are never edited in place.
type happened struct {
	base uint64
	list []Happening
	at   Place // of the last one, or the entry under way
	lost Place // up to here nothing is known
}

// Entry says which log entry the next commands are of. The first one after New or Restore begins what is known.
func (s *State) Entry(index uint64) {
	h := &s.happened
	if h.at == (Place{}) {
		h.lost = Place{index - 1, EntryEnd}
	}
	h.at = Place{Index: index}
}

func (h *happened) add(x Happening) {
	h.at.N++
	x.Place = h.at
	if len(h.list) >= maxHappened {
		keep := h.list[maxHappened/2:]
		h.lost = h.list[maxHappened/2-1].Place
		h.base += maxHappened / 2
		h.list = append(make([]Happening, 0, maxHappened), keep...)
	}
	h.list = append(h.list, x)
}

// Happened gives what has happened since a number, oldest first, the number for the next call, and how much of it is
// not remembered any more.
func (v *View) Happened(since uint64) (list []Happening, next, missed uint64) {
	h := &v.happened
	next = h.base + uint64(len(h.list))
	switch {
	case since > next: // of another state
		return nil, next, 0
	case since < h.base:
		return h.list, next, h.base - since
	}
	return h.list[since-h.base:], next, 0
}

// HappenedAfter gives what has happened after a place, oldest first, and the place up to which nothing is known: if
// since lies before it, something may be missing.
func (v *View) HappenedAfter(since Place) (list []Happening, lost Place) {
	h := &v.happened
	first := sort.Search(len(h.list), func(i int) bool { return since.Before(h.list[i].Place) })
	return h.list[first:], h.lost
}

// LastEntry is the index of the last log entry in the facts; 0 if none has come since a snapshot.
func (v *View) LastEntry() uint64 { return v.happened.at.Index }

// addPart adds what a reservation takes of a node to a list in order of name.
func addPart(have []model.TRESCount, d *model.NodeDef, p *model.ResvPart) []model.TRESCount {
	have = model.AddTRES(have, "cpu", int64(p.CPUs))
	have = model.AddTRES(have, "mem", p.MemMiB)
	for i, n := range p.Gres {
		if i < len(d.Gres) && n > 0 {
			g := &d.Gres[i]
			have = model.AddTRES(have, model.GresTRES(g.Name, ""), int64(n))
			if g.Type != "" {
				have = model.AddTRES(have, model.GresTRES(g.Name, g.Type), int64(n))
			}
		}
	}
	return have
}

// The journal names the records that Apply has replaced lately. A reader that keeps something derived from a View
// (sched.Planner) then looks only at those records in the next View. The journal is not one of the facts: New and
// Restore begin a new one. It reaches back at least maxChanges/2 changes.

// maxChanges bounds the journal, in entries.
const maxChanges = 1 << 16

// Change names a record that was added, replaced or removed: a job's or a node's.
type Change struct {
	Job  model.JobID // 0: a node
	Node string
}

// Cursor is a place in a State's journal. The zero value is before everything.
type Cursor struct {
	of  *journalID
	seq uint64
}

// journalID distinguishes journals by its address.
type journalID struct{ _ byte }

// journal is append-only for a View: entries are never edited in place.
type journal struct {
	id   *journalID
	base uint64 // changes before list[0]
	list []Change
}

func newJournal() journal { return journal{id: new(journalID)} }

func (j *journal) add(c Change) {
	if len(j.list) >= maxChanges {
		keep := j.list[maxChanges/2:]
		j.base += maxChanges / 2
		j.list = append(make([]Change, 0, maxChanges), keep...)
	}
	j.list = append(j.list, c)
}

// Changes gives what has changed since a cursor, oldest first (a record may be in it several times), and the cursor for
// the next call. It reports false if the changes are not known: on the first call, after Restore, or if the cursor is
// too old. Changes of the configuration are not in the journal: compare Config's pointers.
func (v *View) Changes(since Cursor) ([]Change, Cursor, bool) {
	j := &v.journal
	next := Cursor{j.id, j.base + uint64(len(j.list))}
	if since.of != j.id || since.seq < j.base || since.seq > next.seq {
		return nil, next, false
	}
	return j.list[since.seq-j.base:], next, true
}

// putNode replaces a node's record. One that is up again, or left the configuration, has nothing to resume from.
func (s *State) putNode(name string, n *model.Node) {
	if n.ResumeAt != 0 && (n.Admin == model.NodeUp || s.defs[name] == nil) {
		n.ResumeAt = 0
	}
	old, _ := s.nodes.Set(name, n)
	s.countRising(old, n)
	s.noteResume(name, old, n)
	s.tellNode(old, n)
	s.stirNode(old, n)
	s.journal.add(Change{Node: name})
}

// dropNode forgets a node.
func (s *State) dropNode(name string) {
	if old, ok := s.nodes.Delete(name); ok {
		s.countRising(old, nil)
		s.noteResume(name, old, nil)
		s.tellNodeGone(old)
	}
	s.journal.add(Change{Node: name})
}
