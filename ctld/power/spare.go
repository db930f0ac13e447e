package power

import (
	"cmp"
	"slices"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// keeping says which idle nodes stay up, and which nodes that are off are to come up before a job needs them.
type keeping struct {
	v     *state.View
	now   model.Time
	clock time.Time
	rules *model.PowerRules
	kept  map[string]bool // nodes that stay up
	ask   map[string]bool // nodes that are off and are to come up
}

func newKeeping(v *state.View, now model.Time, clock time.Time) *keeping {
	k := &keeping{v: v, now: now, clock: clock, rules: &v.Config().Params.Power, kept: map[string]bool{},
		ask: map[string]bool{}}
	for _, name := range k.rules.SpareParts {
		if p := v.Partition(name); p != nil {
			k.keepAll(p.Nodes)
		}
	}
	for i := range k.rules.Spare {
		if s := &k.rules.Spare[i]; s.Count == 0 {
			k.keepAll(s.Nodes)
		}
	}
	for i := range k.rules.Spare {
		if s := &k.rules.Spare[i]; s.Count > 0 {
			k.keepIdle(s.Nodes, int(s.Count))
		}
	}
	cfg := v.Config()
	if s := &k.rules.Scale; set(s) {
		all := make([]string, 0, len(cfg.Nodes))
		for _, d := range cfg.Nodes {
			all = append(all, d.Name)
		}
		waiting := 0
		for _, p := range cfg.Partitions {
			waiting += v.ReadyLen(p.Name)
		}
		k.scale(s, all, waiting)
	}
	for _, p := range cfg.Partitions {
		if p.Power != nil && set(&p.Power.Scale) {
			k.scale(&p.Power.Scale, p.Nodes, v.ReadyLen(p.Name))
		}
	}
	return k
}

func set(s *model.PowerScale) bool { return len(s.Keep) > 0 || s.MaxUse > 0 || s.PerJobs > 0 }

func (k *keeping) keepAll(names []string) {
	for _, name := range names {
		k.kept[name] = true
	}
}

// stays reports whether an idle node is not powered down.
func (k *keeping) stays(n *model.Node) bool {
	return k.kept[n.Def.Name] || n.Link == model.LinkUnknown || k.excepted(n)
}

// idleUp reports whether a node is usable, idle, and up or on its way up.
func (k *keeping) idleUp(n *model.Node) bool {
	coming := n.PowerStep() == model.PoweringUp || n.PowerStep() == model.PoweredDown &&
		(n.Power.Want == model.PowerUp || k.ask[n.Def.Name])
	return n.Usable() && len(n.Jobs) == 0 && (n.Power == nil || coming)
}

// keepIdle keeps so many of the nodes that are idle and up, and reports how many there are too few.
func (k *keeping) keepIdle(names []string, count int) int {
	for _, name := range names {
		if n := k.v.Node(name); n != nil && count > 0 && k.idleUp(n) {
			k.kept[name] = true
			count--
		}
	}
	return count
}

// scale keeps the idle nodes that a rule wants of some nodes, and asks for more if there are too few.
func (k *keeping) scale(s *model.PowerScale, names []string, waiting int) {
	lack := k.keepIdle(names, k.wanted(s, names, waiting))
	if lack <= 0 {
		return
	}
	var off []*model.Node
	for _, name := range names {
		if n := k.v.Node(name); n != nil && n.Usable() && n.PowerStep() == model.PoweredDown && !k.ask[name] &&
			!k.v.WantsPower(n) {
			off = append(off, n)
		}
	}
	slices.SortStableFunc(off, func(a, b *model.Node) int { return cmp.Compare(a.Def.Weight, b.Def.Weight) })
	for _, n := range off[:min(lack, len(off))] {
		k.ask[n.Def.Name] = true
	}
}

// wanted gives how many idle nodes a rule wants: the most of what its parts want.
func (k *keeping) wanted(s *model.PowerScale, names []string, waiting int) int {
	most := 0
	for _, e := range s.Keep {
		if holds(&e, k.clock) {
			most = max(most, int(e.Count), (int(e.Percent)*len(names)+99)/100)
		}
	}
	if s.PerJobs > 0 {
		most = max(most, (waiting+int(s.PerJobs)-1)/int(s.PerJobs))
	}
	if s.MaxUse > 0 {
		most = max(most, k.forUse(int64(s.MaxUse), names))
	}
	return min(most, len(names))
}

// forUse gives how many idle nodes it takes, besides those with jobs, so that jobs have at most a percentage of the
// CPUs of all of them.
func (k *keeping) forUse(percent int64, names []string) int {
	used, busy, nodes, each := int64(0), int64(0), 0, int64(0)
	for _, name := range names {
		n := k.v.Node(name)
		if n == nil {
			continue
		}
		each = max(each, int64(n.Def.JobCPUCount()))
		if n.Usable() && len(n.Jobs) > 0 {
			nodes++
			busy += int64(n.Def.JobCPUCount())
			used += min(int64(n.UsedCPUs.Count()), int64(n.Def.JobCPUCount()))
		}
	}
	more := (used*100+percent-1)/percent - busy
	if more <= 0 || each == 0 {
		return 0
	}
	return int((more + each - 1) / each)
}

// holds reports whether an entry of PowerKeepIdle holds at a local time.
func holds(e *model.PowerKeep, at time.Time) bool {
	on := func(day time.Weekday) bool { return e.Days == 0 || e.Days&(1<<day) != 0 }
	minute := int32(at.Hour()*60 + at.Minute())
	switch {
	case e.From == 0 && e.To == 0:
		return on(at.Weekday())
	case e.From < e.To:
		return on(at.Weekday()) && minute >= e.From && minute < e.To
	}
	return on(at.Weekday()) && minute >= e.From || on((at.Weekday()+6)%7) && minute < e.To // it began the day before
}

// missing gives the nodes that are to come up, in order.
func (k *keeping) missing() []string {
	var out []string
	for _, d := range k.v.Config().Nodes {
		if k.ask[d.Name] {
			out = append(out, d.Name)
		}
	}
	return out
}

// reserved reports whether a node is in a reservation now, and in one for maintenance.
func (k *keeping) reserved(node string) (resv, maint bool) {
	k.v.Reservations(func(r *model.Reservation) bool {
		if r.Active(k.now) && slices.Contains(r.Nodes, node) {
			if r.Flags&model.ResvMaint != 0 {
				maint = true
			} else {
				resv = true
			}
		}
		return true
	})
	return resv, maint
}
