package state

import (
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// ResvOp is what a Reserve command does. The numbers are stored: append only.
type ResvOp uint8

// The operations.
const (
	CreateResv ResvOp = iota + 1
	UpdateResv
	DropResv // looks only at the name
	KeepResv // changes its nodes, and the occurrences after the present one, if that is still the same one
)

// Reserve creates, replaces or removes a reservation.
type Reserve struct {
	Op   ResvOp
	Resv *model.Reservation
}

func (x *Reserve) Wire(c *wire.C) {
	wire.Int(c, &x.Op)
	wire.Ptr(c, &x.Resv)
}

func (*Reserve) kind() Kind { return KindReserve }

// MaxReservations bounds the reservations of a cluster.
const MaxReservations = 4096

// applyReserve applies one change of a reservation.
func (s *State) applyReserve(at model.Time, c *Reserve) Result {
	r := *c.Resv
	old, there := s.resvs.Get(r.Name)
	switch {
	case c.Op == CreateResv && there:
		return Result{Refusal: InUse}
	case c.Op == CreateResv && s.resvs.Len() >= MaxReservations:
		return Result{Refusal: Full}
	case c.Op != CreateResv && !there:
		return Result{Refusal: NoSuchReservation}
	case c.Op == DropResv && s.inReservation(r.Name):
		return Result{Refusal: JobsActive}
	case c.Op == DropResv:
		s.turned(old, nil, at)
		s.dropReservation(old, at)
	case c.Op == KeepResv && (old.Start != r.Start || old.End != r.End):
		return Result{} // the reservation has changed meanwhile
	case c.Op == KeepResv:
		n := *old
		n.Nodes, n.Parts, n.Later = r.Nodes, r.Parts, r.Later
		s.putResv(&n)
	default:
		if s.Overlaps(&r) != nil {
			return Result{Refusal: Overlapping}
		}
		for _, n := range r.Nodes {
			if _, ok := s.defs[n]; !ok {
				return Result{Refusal: NoSuchNode}
			}
		}
		r.Begun, r.IdleAt = r.FloatS == 0 && r.Start <= at, 0
		if old == nil || old.Begun != r.Begun { // a change of one that lasts is none of its times
			s.turned(old, &r, at)
		}
		was := s.resvEnd(r.Name)
		s.putResv(&r)
		s.cutLimits(&r)
		s.moveEnds(r.Name, was)
	}
	s.wakeAll(at)
	s.plan()
	return Result{Changed: true}
}

// Overlaps gives an existing reservation that conflicts with r, or nil. Reservations of parts of nodes, or of licenses,
// don't conflict as long as there is enough for all.
func (f *facts) Overlaps(r *model.Reservation) (other *model.Reservation) {
	return f.overlaps(r, r.MeetsInTime)
}

// OverlapsEver is Overlaps however far ahead: what a new reservation is held to before it is proposed.
func (f *facts) OverlapsEver(r *model.Reservation) (other *model.Reservation) {
	return f.overlaps(r, r.MeetsEver)
}

func (f *facts) overlaps(r *model.Reservation, meets func(*model.Reservation) bool) (other *model.Reservation) {
	const free = model.ResvMaint | model.ResvOverlap
	sum := newDemand(r)
	f.resvs.Scan(func(name string, o *model.Reservation) bool {
		if name != r.Name && r.Flags&free == 0 && o.Flags&free == 0 && meets(o) && !f.hasRoom(sum, o) {
			other = o
		}
		return other == nil
	})
	return other
}

// demand is the sum of what reservations take of nodes and licenses.
type demand struct {
	nodes    map[string]*model.ResvPart // nil: all of the node
	licenses map[string]int64
}

func newDemand(r *model.Reservation) *demand {
	d := &demand{nodes: map[string]*model.ResvPart{}, licenses: map[string]int64{}}
	for i, name := range r.Nodes {
		d.nodes[name] = r.Part(i)
	}
	for _, l := range r.Licenses {
		d.licenses[l.Name] = l.Count
	}
	return d
}

// hasRoom adds what another reservation takes of the same nodes and licenses, and reports whether there is enough for
// all.
func (f *facts) hasRoom(d *demand, o *model.Reservation) bool {
	for i, name := range o.Nodes {
		have, both := d.nodes[name]
		if !both {
			continue
		}
		n, ok := f.nodes.Get(name)
		part := o.Part(i)
		if !ok || have == nil || part == nil {
			return false
		}
		sum := model.ResvPart{CPUs: have.CPUs + part.CPUs, MemMiB: have.MemMiB + part.MemMiB, Gres: slices.Clone(have.Gres)}
		for g := range min(len(sum.Gres), len(part.Gres)) {
			sum.Gres[g] += part.Gres[g]
		}
		if !n.Def.HoldsGres(sum.Gres, nil) {
			return false
		}
		if int(sum.CPUs) > n.Def.JobCPUCount() || sum.MemMiB > n.Def.JobMemMiB() {
			return false
		}
		d.nodes[name] = &sum
	}
	for _, l := range o.Licenses {
		have, both := d.licenses[l.Name]
		if !both {
			continue
		}
		d.licenses[l.Name] = have + l.Count
		if !slices.ContainsFunc(f.cfg.Licenses,
			func(c model.LicenseCount) bool { return c.Name == l.Name && c.Count >= have+l.Count }) {
			return false
		}
	}
	return true
}

// inReservation reports whether a job runs in a reservation.
func (s *State) inReservation(name string) bool {
	return slices.ContainsFunc(s.jobsOf(name), func(j *model.Job) bool { return j.Run != nil && j.Run.Resv == name })
}

// validReservation checks a reservation from a log or a snapshot.
func validReservation(r *model.Reservation, whole bool) error {
	switch {
	case r == nil || r.Name == "":
		return malformed("a reservation without a name")
	case !whole:
		return nil
	case r.Start >= r.End || r.Start < 0 || r.End > maxResvTime:
		return malformed("reservation %s from %d to %d", r.Name, r.Start, r.End)
	case len(r.Nodes) == 0 && len(r.Licenses) == 0 || !slices.IsSorted(r.Nodes) ||
		len(slices.Compact(slices.Clone(r.Nodes))) != len(r.Nodes):
		return malformed("reservation %s without nodes, or with nodes out of order", r.Name)
	case len(r.Parts) != 0 && len(r.Parts) != len(r.Nodes):
		return malformed("reservation %s has parts of %d nodes, and %d nodes", r.Name, len(r.Parts), len(r.Nodes))
	case r.FloatS < 0 || r.PurgeS < 0 || r.DelayS < 0 || len(r.Later) >= model.MaxOccurrences ||
		!slices.IsSorted(r.Later) || len(r.Later) > 0 && r.Later[0] <= r.Start:
		return malformed("reservation %s with times that can't be", r.Name)
	case slices.Contains(r.Users, "") || slices.Contains(r.Accounts, ""):
		return malformed("reservation %s for somebody without a name", r.Name)
	case r.PeriodS() > 0 && int64(r.End-r.Start) > r.PeriodS()*1000:
		return malformed("reservation %s is longer than its period", r.Name)
	}
	return nil
}

// maxResvTime bounds a reservation's end: the year 10000.
const maxResvTime model.Time = 253402300800000

func (s *State) checkReservations() (err error) {
	s.resvs.Scan(func(name string, r *model.Reservation) bool {
		if err = validReservation(r, true); err == nil && r.Name != name {
			err = fmt.Errorf("reservation %s is stored as %s", r.Name, name)
		}
		return err == nil
	})
	return err
}

// Reservation gives a reservation by name, or nil.
func (v *View) Reservation(name string) *model.Reservation {
	r, _ := v.resvs.Get(name)
	return r
}

// Reservations calls f for every reservation in order of name until it returns false.
func (v *View) Reservations(f func(*model.Reservation) bool) {
	v.resvs.Scan(func(_ string, r *model.Reservation) bool { return f(r) })
}

// ResvGen grows whenever a reservation has changed.
func (v *View) ResvGen() uint64 { return v.resvGen }

// Changes of reservations by time and by their jobs: reservations begin, repeat, end, and are deleted when no job uses
// them.

// askedKey is an unfinished job and a reservation that it asked for, or in which it runs without having asked.
type askedKey struct {
	resv string
	id   model.JobID
}

func askedLess(a, b askedKey) bool { return a.resv < b.resv || a.resv == b.resv && a.id < b.id }

// askedOf gives the reservations that an unfinished job asked for, or the one that has attracted it (MAGNETIC).
func askedOf(j *model.Job) string {
	if j == nil || j.State.Finished() {
		return ""
	}
	return j.ReservationText()
}

// moveAsked updates the index of reservations' jobs.
func (s *State) moveAsked(id model.JobID, old, j *model.Job) {
	from, to := askedOf(old), askedOf(j)
	if from == to {
		return
	}
	for name := range strings.SplitSeq(from, ",") {
		if name != "" {
			s.asked.Delete(askedKey{name, id})
		}
	}
	for name := range strings.SplitSeq(to, ",") {
		if name != "" {
			s.asked.Set(askedKey{name, id})
		}
	}
}

// jobsOf gives the unfinished jobs that asked for a reservation or run in it.
func (s *State) jobsOf(name string) (out []*model.Job) {
	s.asked.Ascend(askedKey{resv: name}, func(k askedKey) bool {
		if k.resv != name {
			return false
		}
		if j, ok := s.jobs.Get(k.id); ok {
			out = append(out, j)
		}
		return true
	})
	return out
}

// unused reports whether no unfinished job asked for a reservation or runs in it.
func (s *State) unused(name string) bool {
	none := true
	s.asked.Ascend(askedKey{resv: name}, func(k askedKey) bool {
		none = k.resv != name
		return false
	})
	return none
}

// cutLimits shortens the limits of a reservation's running jobs if the reservation now ends before them.
func (s *State) cutLimits(r *model.Reservation) {
	over := s.cfg.Params.ResvOverS
	if r.Flags&model.ResvFlex != 0 || r.FloatS > 0 || over >= model.Unlimited {
		return
	}
	for _, j := range s.jobsOf(r.Name) {
		if j.Run == nil || j.Run.Resv != r.Name || !j.State.HasResources() || j.Run.Start >= r.End {
			continue
		}
		slept := int64(0)
		if s.now.rules >= rulesBrief {
			slept = j.Run.SleepMS
		}
		most := max((int64(r.End-j.Run.Start)-slept)/1000+over, 1)
		if j.Run.LimitS > most {
			n, run := *j, *j.Run
			run.LimitS, n.Run = most, &run
			s.put(&n)
			s.record(&n)
		}
	}
}

// resvEnd gives the moment at which the clock ends the jobs that run in a reservation; 0: it does not.
func (s *State) resvEnd(name string) model.Time {
	r, ok := s.resvs.Get(name)
	if over := s.cfg.Params.ResvOverS; ok && over < model.Unlimited && r.Flags&model.ResvFlex == 0 && r.FloatS == 0 &&
		s.now.rules >= rulesBrief {
		return r.End.Add(over)
	}
	return 0
}

// moveEnds gives the jobs that run in a reservation its new end; was is what they had. Those that it had before it was
// repeated end as they would.
func (s *State) moveEnds(name string, was model.Time) {
	end := s.resvEnd(name)
	if end == was {
		return
	}
	for _, j := range s.jobsOf(name) {
		if j.Run != nil && j.Run.Resv == name && j.State.HasResources() && j.Run.ResvEnd == was {
			s.change(j, func(run *model.Run) { run.ResvEnd = end })
		}
	}
}

// dropReservation forgets a reservation. With NO_HOLD_JOBS_AFTER its pending jobs go on without it; otherwise they wait
// until they are given another one.
func (s *State) dropReservation(r *model.Reservation, at model.Time) {
	s.resvGen++
	s.resvs.Delete(r.Name)
	s.tellResv(r, true)
	if r.Flags&model.ResvNoHold == 0 {
		return
	}
	for _, j := range s.jobsOf(r.Name) {
		names := j.Spec.ReservationNames()
		if j.State != model.Pending || !slices.Contains(names, r.Name) || len(names) > 1 && s.now.rules < rulesBrief {
			continue
		}
		n, sp := *j, *j.Spec
		sp.Reservation = strings.Join(slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			return name == r.Name
		}), ",")
		n.Spec = &sp
		s.settle(&n, at)
	}
}

// turnReservations begins, repeats and ends reservations that are due, and drops unused ones (PURGE_COMP).
func (s *State) turnReservations(at model.Time) (changed bool) {
	var due []*model.Reservation
	s.resvs.Scan(func(_ string, r *model.Reservation) bool {
		if t := s.turnOf(r); t != 0 && t <= at {
			due = append(due, r)
		}
		return true
	})
	for _, r := range due {
		n := *r
		if n.FloatS == 0 {
			for n.End <= at && advance(&n, at) {
			}
			n.Begun = n.Start <= at
		}
		idle := n.PurgeS > 0 && (n.Begun || n.FloatS > 0) && s.unused(n.Name)
		over := n.FloatS == 0 && n.End <= at || idle && n.IdleAt != 0 && n.IdleAt.Add(n.PurgeS) <= at
		switch {
		case !idle:
			n.IdleAt = 0
		case n.IdleAt == 0:
			n.IdleAt = at
		}
		s.turnedDue(r, &n, over, at)
		if over {
			s.dropReservation(r, at)
		} else {
			s.putResv(&n)
		}
	}
	return len(due) > 0
}

// advance moves a repeating reservation to its next occurrence; false if it does not repeat. Without times from the
// controllers' calendar it repeats after its period.
func advance(r *model.Reservation, at model.Time) bool {
	long, period := r.End-r.Start, r.PeriodS()
	switch {
	case period == 0:
		return false
	case len(r.Later) > 0:
		r.Start, r.Later = r.Later[0], r.Later[1:]
	default:
		r.Start = r.Start.Add((int64(at-r.End)/(period*1000) + 1) * period)
	}
	r.End = r.Start + long
	return true
}

// turnOf gives the next moment at which time changes a reservation; 0: never.
func (s *State) turnOf(r *model.Reservation) model.Time {
	next := r.End
	switch {
	case r.FloatS > 0:
		next = 0
	case !r.Begun:
		next = max(r.Start, 1)
	}
	if r.PurgeS <= 0 || !r.Begun && r.FloatS == 0 {
		return next
	}
	purge, idle := model.Time(0), s.unused(r.Name)
	switch {
	case idle && r.IdleAt == 0, !idle && r.IdleAt != 0:
		purge = 1
	case idle:
		purge = r.IdleAt.Add(r.PurgeS)
	}
	if purge != 0 && (next == 0 || purge < next) {
		next = purge
	}
	return next
}

// nextReservation gives the next moment at which time changes any reservation, or 0.
func (s *State) nextReservation() (next model.Time) {
	s.resvs.Scan(func(_ string, r *model.Reservation) bool {
		if t := s.turnOf(r); t != 0 && (next == 0 || t < next) {
			next = t
		}
		return true
	})
	return next
}

// maxResvTurns bounds the turns that wait; beyond it new ones are dropped.
const maxResvTurns = 4096

// ResvTold says that ResvProlog or ResvEpilog has been told of these turns. The leader proposes it when the program has
// ended: a new leader tells again what no program is known to have ended for.
type ResvTold struct {
	Seqs []uint64
}

func (x *ResvTold) Wire(c *wire.C) {
	wire.Ints(c, &x.Seqs, model.MaxList)
}

func (*ResvTold) kind() Kind { return KindResvTold }

func (s *State) applyResvTold(c *ResvTold) Result {
	left := slices.DeleteFunc(slices.Clone(s.turns), func(t model.ResvTurn) bool { return slices.Contains(c.Seqs, t.Seq) })
	if len(left) == len(s.turns) {
		return Result{}
	}
	s.turns = left
	return Result{Changed: true}
}

// turnedDue queues the turns that time makes of r: it begins if it had not, ends if it is over or moves to another
// occurrence, and that one begins if its time has come.
func (s *State) turnedDue(r, n *model.Reservation, over bool, at model.Time) {
	if r.FloatS > 0 {
		return
	}
	now := *r
	if !r.Begun && r.Start <= at {
		now.Begun = true
		s.turned(nil, &now, at)
	}
	switch moved := n.Start != r.Start; {
	case over, moved:
		s.turned(&now, nil, at)
		if moved && !over {
			s.turned(nil, n, at)
		}
	}
}

// turned queues that a reservation has ended, and that it has begun, for the programs that the site has.
func (s *State) turned(was, is *model.Reservation, at model.Time) {
	tell := func(r *model.Reservation, over bool, program string) {
		if program == "" || r == nil || !r.Begun || len(s.turns) >= maxResvTurns {
			return
		}
		s.turns = append(slices.Clip(s.turns), model.ResvTurn{Seq: s.nextTurn, At: at, Over: over, Resv: r})
		s.nextTurn++
	}
	tell(was, true, s.cfg.Params.ResvEpilog)
	tell(is, false, s.cfg.Params.ResvProlog)
}

// ResvTurns gives the beginnings and ends of reservations of which no program has been told yet, in order.
func (v *View) ResvTurns() []model.ResvTurn { return v.turns }
