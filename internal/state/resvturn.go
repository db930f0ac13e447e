package state

import (
	"strings"

	"gbatch/internal/model"
)

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
		most := max(int64(r.End-j.Run.Start)/1000+over, 1)
		if j.Run.LimitS > most {
			n, run := *j, *j.Run
			run.LimitS, n.Run = most, &run
			s.put(&n)
			s.record(&n)
		}
	}
}

// dropReservation forgets a reservation. With NO_HOLD_JOBS_AFTER its pending jobs go on without it; otherwise they wait
// until they are given another one.
func (s *State) dropReservation(r *model.Reservation, at model.Time) {
	s.resvs.Delete(r.Name)
	s.tellResv(r, true)
	if r.Flags&model.ResvNoHold == 0 {
		return
	}
	for _, j := range s.jobsOf(r.Name) {
		if j.State != model.Pending || j.Spec.Reservation != r.Name {
			continue
		}
		n, sp := *j, *j.Spec
		sp.Reservation = ""
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
		if over {
			s.dropReservation(r, at)
		} else {
			s.putResv(&n)
		}
	}
	if len(due) > 0 {
		s.resvGen++
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
