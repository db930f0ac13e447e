package state

import (
	"fmt"
	"slices"

	"gbatch/internal/model"
)

// ResvOp is what a Reserve command does. The numbers are stored: append only.
type ResvOp uint8

// The operations.
const (
	CreateResv ResvOp = iota + 1
	UpdateResv
	DropResv // looks only at the name
)

// Reserve creates, replaces or removes a reservation.
//
//gbatch:codec
type Reserve struct {
	Op   ResvOp
	Resv *model.Reservation
}

func (*Reserve) kind() Kind { return KindReserve }

// MaxReservations bounds the reservations of a cluster.
const MaxReservations = 4096

// applyReserve folds one change.
func (s *State) applyReserve(at model.Time, c *Reserve) Result {
	r := *c.Resv
	_, there := s.resvs.Get(r.Name)
	switch {
	case c.Op == CreateResv && (there || s.resvs.Len() >= MaxReservations):
		return Result{Refusal: InUse}
	case c.Op != CreateResv && !there:
		return Result{Refusal: NoSuchReservation}
	case c.Op == DropResv && s.inReservation(r.Name):
		return Result{Refusal: JobsActive}
	case c.Op == DropResv:
		s.resvs.Delete(r.Name)
	default:
		if s.Overlaps(&r) != nil {
			return Result{Refusal: Overlapping}
		}
		for _, n := range r.Nodes {
			if _, ok := s.defs[n]; !ok {
				return Result{Refusal: NoSuchNode}
			}
		}
		r.Begun = r.Start <= at
		s.resvs.Set(r.Name, &r)
	}
	s.resvGen++
	s.plan()
	return Result{Changed: true}
}

// Overlaps gives a reservation that another one may not stand beside, or nil.
func (f *facts) Overlaps(r *model.Reservation) (other *model.Reservation) {
	const free = model.ResvMaint | model.ResvOverlap
	f.resvs.Scan(func(name string, o *model.Reservation) bool {
		if name != r.Name && r.Flags&free == 0 && o.Flags&free == 0 && r.Meets(o) {
			other = o
		}
		return other == nil
	})
	return other
}

// inReservation reports whether a job that asked for a reservation has resources.
func (s *State) inReservation(name string) bool {
	found := false
	s.nodes.Scan(func(_ string, n *model.Node) bool {
		for _, id := range n.Jobs {
			j, ok := s.jobs.Get(id)
			found = found || ok && j.Spec.Reservation == name
		}
		return !found
	})
	return found
}

// turnReservations begins, repeats and ends reservations whose time has come.
func (s *State) turnReservations(at model.Time) (changed bool) {
	var due []*model.Reservation
	s.resvs.Scan(func(_ string, r *model.Reservation) bool {
		if r.End <= at || !r.Begun && r.Start <= at {
			due = append(due, r)
		}
		return true
	})
	for _, r := range due {
		n := *r
		if period := r.PeriodS(); period > 0 && n.End <= at {
			skip := (int64(at-n.End)/(period*1000) + 1) * period
			n.Start, n.End = n.Start.Add(skip), n.End.Add(skip)
		}
		n.Begun = n.Start <= at
		if n.End <= at {
			s.resvs.Delete(r.Name)
		} else {
			s.resvs.Set(n.Name, &n)
		}
	}
	if len(due) > 0 {
		s.resvGen++
	}
	return len(due) > 0
}

// nextReservation gives the moment at which a reservation next begins or ends, or 0.
func (s *State) nextReservation() (next model.Time) {
	s.resvs.Scan(func(_ string, r *model.Reservation) bool {
		t := r.End
		if !r.Begun {
			t = r.Start
		}
		t = max(t, 1)
		if next == 0 || t < next {
			next = t
		}
		return true
	})
	return next
}

// validReservation checks what comes from a log or a snapshot.
func validReservation(r *model.Reservation, whole bool) error {
	switch {
	case r == nil || r.Name == "":
		return malformed("a reservation without a name")
	case !whole:
		return nil
	case r.Start >= r.End || r.Start < 0 || r.End > maxResvTime:
		return malformed("reservation %s from %d to %d", r.Name, r.Start, r.End)
	case len(r.Nodes) == 0 || !slices.IsSorted(r.Nodes) || len(slices.Compact(slices.Clone(r.Nodes))) != len(r.Nodes):
		return malformed("reservation %s without nodes, or with nodes out of order", r.Name)
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
