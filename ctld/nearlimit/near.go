package nearlimit

import (
	"fmt"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Near is a limit of which much is used.
type Near struct {
	Limit string // GrpTRES=gres/gpu of account physics
	Text  string // 7 of 8 are in use
	Jobs  int64  // that hold something under it
}

// MaxNear bounds a list.
const MaxNear = 1000

// Of lists the limits of which at least as many per cent are used as percent says of a limit; 0: it is not looked at.
// Where limits are not enforced there are none.
func Of(v *state.View, now model.Time, percent func(limit string) int64) []Near {
	n := &near{View: v, now: now, percent: percent, totals: map[string][]model.TRESCount{}}
	if !v.Config().Params.HoldLimits {
		return nil
	}
	v.Associations(func(a *model.Association) bool {
		if len(a.GrpTRES)+len(a.GrpTRESMins) == 0 {
			return true
		}
		whose, tally, used := "account "+a.Account, v.Tally(state.OfAccount, a.Account), v.AccountUsage(a.Account)
		switch {
		case a.OfPool():
			whose += " in partition " + a.Partition
			tally, used = v.Tally(state.OfPool, a.Account, a.Partition), nil
		case a.User != "":
			whose = "user " + a.User + " in " + whose
			if a.Partition != "" {
				whose += " and partition " + a.Partition
			}
			tally = v.Tally(state.OfAssoc, a.Account, a.User, a.Partition)
			used = v.UsageOf(a.Account, a.User, a.Partition)
		}
		pool := ""
		if a.OfPool() {
			pool = a.Partition
		}
		n.held(whose, a.GrpTRES, tally, pool, false)
		n.spent(whose, a.GrpTRESMins, used, tally)
		return len(n.list) < MaxNear
	})
	v.AllQOS(func(q *model.QOS) bool {
		tally := v.Tally(state.OfQOS, q.Name)
		n.held("QOS "+q.Name, q.GrpTRES, tally, "", q.Flags&model.QOSRelative != 0)
		n.spent("QOS "+q.Name, q.GrpTRESMins, v.QOSUsage(q.Name), tally)
		return len(n.list) < MaxNear
	})
	return n.list
}

type near struct {
	*state.View
	now     model.Time
	percent func(limit string) int64
	totals  map[string][]model.TRESCount // of partitions that percentages are of; "": of the cluster
	list    []Near
}

// add adds a limit that is near; unit is what one of the words is.
func (n *near) add(name, tres, whose string, used, most, unit int64, said string, t *state.Tally) {
	limit := name + "=" + tres + " of " + whose
	if pct := n.percent(limit); pct > 0 && most > 0 && model.Scale(used, 100, 1) >= model.Scale(most, pct, 1) {
		x := Near{Limit: limit, Text: fmt.Sprintf("%d of %d %s", used/unit, most/unit, said)}
		if t != nil {
			x.Jobs = t.Jobs
		}
		n.list = append(n.list, x)
	}
}

// held compares what running jobs hold. pool is the partition that percentages are of.
func (n *near) held(whose string, limits []model.TRESLimit, t *state.Tally, pool string, relative bool) {
	if t == nil {
		return
	}
	for _, l := range limits {
		if relative && !l.Percent {
			l.Percent, l.Count = true, l.Count*100 // Count is hundredths
		}
		most := l.Count
		if l.Percent {
			most = l.Of(amount(n.total(pool), l.TRES))
		}
		for _, h := range t.TRES {
			if h.TRES == l.TRES {
				n.add("GrpTRES", l.TRES, whose, h.Count, most, 1, "are in use", t)
			}
		}
	}
}

// spent compares what jobs have used, in minutes.
func (n *near) spent(whose string, limits []model.TRESLimit, u *state.Usage, t *state.Tally) {
	if u == nil || len(limits) == 0 {
		return
	}
	const minute = 60_000 // usage is in thousandths of a unit's second
	now := n.UsageAt(u, n.now)
	for _, l := range limits {
		used := int64(0)
		if l.TRES == "billing" {
			used = now.Bill.Value
		}
		for _, t := range now.TRES {
			if t.TRES == l.TRES {
				used = t.Meter.Value
			}
		}
		if !l.Percent { // minutes have no total
			n.add("GrpTRESMins", l.TRES, whose, used, model.Scale(l.Count, minute, 1), minute,
				"minutes are used", t)
		}
	}
}

// total is what the nodes of a partition have that take jobs, or all nodes.
func (n *near) total(pool string) []model.TRESCount {
	if have, known := n.totals[pool]; known {
		return have
	}
	in := map[string]bool{}
	for _, p := range n.Config().Partitions {
		for _, name := range p.Nodes {
			in[name] = in[name] || p.Name == pool
		}
	}
	var sum []model.TRESCount
	n.Nodes(func(x *model.Node) bool {
		if x.Usable() && (pool == "" || in[x.Def.Name]) {
			sum = model.AddNodeTRES(sum, x.Def)
		}
		return true
	})
	n.totals[pool] = sum
	return sum
}

func amount(have []model.TRESCount, tres string) int64 {
	for i := range have {
		if have[i].TRES == tres {
			return have[i].Count
		}
	}
	return 0
}
