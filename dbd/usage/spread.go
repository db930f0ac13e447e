package usage

import (
	"gbatch/internal/model"
)

// Second is a moment in whole seconds.
type Second = int64

// Hour is the length of the shortest span that rows are of, seconds.
const Hour Second = 3600

func seconds(t model.Time) Second { return int64(t) / 1000 }

// times are those of a record, in seconds.
type times struct {
	eligible, start, end Second // end: when it stopped to hold resources; 0: it has not
	over                 Second // when it ended; 0: it has not
}

// timesOf gives a record's times. The time for which a job was suspended is no part of its run: it counts as if it lay
// at its end.
func timesOf(r *model.Record) times {
	t := times{eligible: seconds(r.Eligible), start: seconds(r.Start)}
	if t.eligible == 0 && r.Start != 0 {
		t.eligible = seconds(r.Submit)
	}
	if r.End == 0 {
		return t
	}
	t.over = max(seconds(r.End), t.start, 1)
	t.end = max(t.over-r.AsleepS(r.End), t.start)
	return t
}

// rate is what a record's job holds.
func rate(r *model.Record) []model.TRESCount {
	var s Sum
	s.add("cpu", int64(r.AllocCPUs))
	s.add("mem", r.AllocMemMiB)
	s.add("node", int64(r.NumNodes))
	if r.Asked != nil {
		s.add("billing", r.Asked.Billed)
	}
	addGres(&s, r.AllocGres)
	if r.Asked != nil {
		addLicenses(&s, r.Asked.Held)
	}
	return s.TRES
}

// want is what a record's job asks for while it waits.
func want(r *model.Record) []model.TRESCount {
	var s Sum
	s.add("cpu", int64(r.ReqCPUs))
	if r.Asked != nil {
		s.add("mem", r.Asked.MemMiB)
		s.add("node", int64(r.Asked.Nodes))
		s.add("billing", r.Asked.Bill)
		addLicenses(&s, r.Asked.Licenses)
	}
	addGres(&s, r.ReqGres)
	return s.TRES
}

func addGres(s *Sum, list []model.GresCount) {
	for _, g := range list {
		s.add(model.GresTRES(g.Name, ""), g.Count)
		if g.Type != "" {
			s.add(model.GresTRES(g.Name, g.Type), g.Count)
		}
	}
}

func addLicenses(s *Sum, list []model.LicenseCount) {
	for _, l := range list {
		s.add(model.LicenseTRES(l.Name), l.Count)
	}
}

// Energy is the name of the resource that is counted in joules, and not times seconds.
const Energy = "energy"

// energy adds the part in [from, to) of the joules that a run took, as if it had taken as much in each second.
func (s *Sum) energy(r *model.Record, start, end, from, to Second) {
	if r.Exit.Use == nil {
		return
	}
	j := r.Exit.Use.EnergyMJ() / 1000
	if start == end { // less than a second
		if from <= start && start < to {
			s.add(Energy, j)
		}
		return
	}
	until := func(at Second) int64 { return model.Scale(j, min(max(at, start), end)-start, end-start) }
	s.add(Energy, until(to)-until(from))
}

// ran reports whether the record is of a job that held resources at some time, and has begun or may yet do so.
func ran(r *model.Record) bool { return r.Start != 0 && r.AllocCPUs > 0 && !r.Unbegun }

// Within gives what a job used in [from, to), seconds. A job that has not ended counts up to now.
func Within(r *model.Record, from, to, now Second) Sum {
	t := timesOf(r)
	var s Sum
	if ran(r) {
		end := t.end
		if t.over == 0 {
			end = max(now-r.AsleepS(model.Time(now)*1000), t.start)
		}
		s.run(rate(r), &t, end, from, to)
		if t.over != 0 {
			s.energy(r, t.start, end, from, to)
		}
	}
	if t.over != 0 && from <= t.over && t.over < to && int(r.State) < States {
		s.Ended[r.State]++
	}
	return s
}

// run adds the part of a run that lies in [from, to).
func (s *Sum) run(rate []model.TRESCount, t *times, end, from, to Second) {
	if n := min(end, to) - max(t.start, from); n > 0 {
		for _, x := range rate {
			s.add(x.TRES, x.Count*n)
		}
	}
	switch {
	case from <= t.start && t.start < to:
		s.Began++
		waited := max(t.start-t.eligible, 0)
		s.WaitS += waited
		s.Waits[bin(waited)]++
	case t.start < from && from < end:
		s.Over++
	}
}

// Waiting gives what a job asked for, times the seconds in [from, to) in which it could have started.
func Waiting(r *model.Record, from, to, now Second) Sum {
	t := timesOf(r)
	var s Sum
	until := t.start
	switch {
	case r.Start != 0:
	case t.over != 0:
		until = t.over
	default:
		until = now
	}
	if n := min(until, to) - max(t.eligible, from); t.eligible != 0 && n > 0 {
		for _, x := range want(r) {
			s.add(x.TRES, x.Count*n)
		}
	}
	return s
}

// Run gives the seconds in which a record that has ended held resources, or ended.
func Run(r *model.Record) (from, to Second) {
	t := timesOf(r)
	if !ran(r) {
		return t.over, t.over
	}
	return t.start, t.over
}

// Wait gives the seconds in which it waited.
func Wait(r *model.Record) (from, to Second) {
	t := timesOf(r)
	switch {
	case t.eligible == 0:
		return 0, 0
	case r.Start != 0:
		return t.eligible, t.start
	}
	return t.eligible, t.over
}
