package sched

import (
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/model"
)

// gainS is how many seconds sooner the job must start for a change to be shown.
const gainS = 60

// try finds when a changed request would start in the job's partitions, or in one of them (only).
func (x *explainer) try(sp *model.Spec, only *lane) (model.WhatIf, bool) {
	x.trials++
	w := model.WhatIf{}
	if x.trials > maxTrials {
		return w, false
	}
	n := *x.j
	n.Spec = sp
	e := &entry{j: &n}
	ask := func(l *lane, floor model.Time) {
		if l.refuse != model.ReasonNone {
			return
		}
		it := x.p.newItem(e, l)
		if x.p.waitsForNodes(l, &it) != "" {
			return
		}
		if t, alloc := x.soonest(l, &it, floor); t != 0 && (w.Start == 0 || t < w.Start) {
			w.Start, w.Nodes, w.Partition, w.Now = t, alloc.NodeNames(), l.part.Name, t == x.now
		}
	}
	if only != nil {
		floor := model.Time(0)
		if x.fifo {
			floor = x.floorOf(only)
		}
		ask(only, floor)
	} else {
		for i := range x.spots {
			ask(x.spots[i].l, x.spots[i].floor)
		}
	}
	return w, w.Start != 0 && (x.out.Start == 0 || w.Start.Add(gainS) <= x.out.Start)
}

// best keeps the better of two changes of one kind: the one with the earlier start, and the first, smaller one if they
// are equal.
func best(have *model.WhatIf, w model.WhatIf, option string) {
	if have.Start == 0 || w.Start < have.Start {
		w.Option = option
		*have = w
	}
}

func (x *explainer) tell(w model.WhatIf) {
	if w.Start != 0 {
		x.out.Changes = append(x.out.Changes, w)
	}
}

// keeps notes which part of the request a change leaves.
func (x *explainer) keeps(option string, part, whole int64) {
	if x.remains == nil {
		x.remains = map[string]float64{}
	}
	x.remains[option] = float64(part) / float64(max(1, whole))
}

// deep reports, as 1, that a change leaves less than half of the request: smaller ones come before it.
func (x *explainer) deep(w *model.WhatIf) int {
	if part, cut := x.remains[w.Option]; cut && part < 0.5 {
		return 1
	}
	return 0
}

// changes looks for single changes of the request, the smallest of each kind first.
func (x *explainer) changes() {
	x.tell(x.shorter())
	x.tell(x.elsewhere())
	x.tell(x.otherQOS())
	sp := x.j.Spec
	once := func(option string, change func(*model.Spec)) {
		n := *sp
		change(&n)
		if w, ok := x.try(&n, nil); ok {
			w.Option = option
			x.tell(w)
		}
	}
	if sp.Reservation != "" {
		once("without --reservation", func(n *model.Spec) { n.Reservation = "" })
	}
	if sp.Exclusive {
		once("without --exclusive", func(n *model.Spec) { n.Exclusive = false })
	}
	if sp.Features != "" {
		once("without --constraint="+sp.Features, func(n *model.Spec) { n.Features = "" })
	}
	if len(sp.ReqNodes) > 0 {
		once("without --nodelist", func(n *model.Spec) { n.ReqNodes = nil })
	}
	if len(sp.ExcNodes) > 0 {
		once("without --exclude", func(n *model.Spec) { n.ExcNodes = nil })
	}
	for i := range wishes {
		w, rq, m := &wishes[i], Request{}, sp.Extra()
		if rq.more(&m); w.says(&rq) != "" {
			once(w.without, func(n *model.Spec) { w.drop(&m); n.More = &m })
		}
	}
	for i := range sp.Gres {
		if g := &sp.Gres[i]; g.Type != "" {
			once("any type of "+g.Name+" instead of "+g.Type, func(n *model.Spec) {
				n.Gres = slices.Clone(n.Gres)
				n.Gres[i].Type = ""
			})
		}
		take := func(n *model.Spec, k int64) {
			n.Gres = slices.Clone(n.Gres)
			n.Gres[i].Count = int32(k)
			if n.More != nil && len(n.More.GPUsPerSocket)+len(n.More.GPUIndex) > 0 {
				m := n.Extra()
				m.GPUsPerSocket, m.GPUIndex, n.More = nil, nil, &m
			}
		}
		least := int64(1)
		if sp.Gres[i].Per == model.PerJob { // one on each node, as submission requires
			least = int64(max(1, sp.MinNodes))
		}
		x.tell(x.fewer(int64(sp.Gres[i].Count), least, func(k int64) string { return gresOption(sp, &sp.Gres[i], k) },
			take))
		if alone := func(n *model.Spec) { n.MinNodes, n.MaxNodes = 1, 1 }; least > 1 && sp.Tasks <= 1 && !x.helps(alone) {
			x.tell(x.fewer(int64(sp.Gres[i].Count), 1,
				func(k int64) string { return "--nodes=1 " + gresOption(sp, &sp.Gres[i], k) }, func(n *model.Spec, k int64) {
					take(n, k)
					alone(n)
				}))
		}
	}
	x.tell(x.fewer(int64(sp.MinNodes), 1, func(k int64) string {
		if sp.Tasks > 0 {
			return fmt.Sprintf("--nodes=%d --ntasks=%d", k, max(k, int64(sp.Tasks)*k/int64(sp.MinNodes)))
		}
		return fmt.Sprintf("--nodes=%d", k)
	}, func(n *model.Spec, k int64) {
		n.MinNodes, n.MaxNodes = int32(k), int32(k)
		if sp.Tasks > 0 {
			n.Tasks = int32(max(k, int64(sp.Tasks)*k/int64(sp.MinNodes)))
		}
	}))
	if sp.MinNodes <= 1 {
		x.tell(x.fewer(int64(sp.Tasks), 1, func(k int64) string { return fmt.Sprintf("--ntasks=%d", k) },
			func(n *model.Spec, k int64) { n.Tasks = int32(k) }))
	}
	x.tell(x.fewer(int64(sp.CPUsPerTask), 1, func(k int64) string { return fmt.Sprintf("--cpus-per-task=%d", k) },
		func(n *model.Spec, k int64) { n.CPUsPerTask = int32(k) }))
	x.tell(x.fewer(sp.MemPerNode, 1, func(k int64) string { return fmt.Sprintf("--mem=%d", k) },
		func(n *model.Spec, k int64) { n.MemPerNode = k }))
	x.tell(x.fewer(sp.MemPerCPU, 1, func(k int64) string { return fmt.Sprintf("--mem-per-cpu=%d", k) },
		func(n *model.Spec, k int64) { n.MemPerCPU = k }))
}

// helps reports whether one change of the request lets the job start sooner.
func (x *explainer) helps(change func(*model.Spec)) bool {
	n := *x.j.Spec
	change(&n)
	_, ok := x.try(&n, nil)
	return ok
}

// gresOption writes a count of a resource with the option by which the job asked for it.
func gresOption(sp *model.Spec, g *model.GresReq, k int64) string {
	kind := ""
	if g.Type != "" {
		kind = g.Type + ":"
	}
	switch {
	case g.Per == model.PerJob && g.Name == gpuName:
		return fmt.Sprintf("--gpus=%s%d", kind, k)
	case g.Per == model.PerTask && g.Name == gpuName:
		return fmt.Sprintf("--gpus-per-task=%s%d", kind, k)
	case g.Name == gpuName && strings.Contains(sp.Submit, "--gpus-per-node"):
		return fmt.Sprintf("--gpus-per-node=%s%d", kind, k)
	}
	return fmt.Sprintf("--gres=%s:%s%d", g.Name, kind, k)
}

// fewer halves a count until the job starts now, and gives the largest count that starts the job at the earliest moment
// that it found. Large counts (manyCounts) are found to a sixteenth only.
func (x *explainer) fewer(count, least int64, option func(int64) string,
	change func(*model.Spec, int64)) (have model.WhatIf) {
	with := func(k int64) (model.WhatIf, bool) {
		n := *x.j.Spec
		change(&n, k)
		return x.try(&n, nil)
	}
	low := int64(0) // the count of have
	defer func() { x.keeps(have.Option, low, count) }()
	for k := count / 2; k >= least && !have.Now; k /= 2 {
		if w, ok := with(k); ok && (have.Start == 0 || w.Start < have.Start) {
			best(&have, w, option(k))
			low = k
		}
	}
	if have.Start == 0 {
		return have
	}
	as := func(k int64) bool {
		w, ok := with(k)
		if !ok || w.Start > have.Start {
			return false
		}
		low, have = k, w
		have.Option = option(k)
		return true
	}
	high, step := count, int64(fewTried)
	if count > manyCounts {
		step = max(1, count/16)
	}
	for high-low > step {
		if mid := (low + high) / 2; !as(mid) {
			high = mid
		}
	}
	if count > manyCounts {
		return have
	}
	for k := high - 1; k > low; k-- { // one by one: of GPUs on several nodes more may fit where fewer don't
		if as(k) {
			break
		}
	}
	return have
}

const (
	fewTried   = 8  // counts that are tried one by one
	manyCounts = 64 // larger counts are found to a sixteenth
)

// shorter finds the longest time limit with which the job starts now, by bisection: what fits for some time fits for
// any shorter one. If no limit lets the job start now, it tries half and a quarter.
func (x *explainer) shorter() (have model.WhatIf) {
	limit := int64(0)
	for i := range x.spots {
		limit = max(limit, x.spots[i].it.limitS)
	}
	with := func(minutes int64) (model.WhatIf, bool) {
		n := *x.j.Spec
		n.LimitS = minutes * 60
		return x.try(&n, nil)
	}
	option := func(minutes int64) string { return "--time=" + limitText(minutes*60) }
	most := min(limit, longestS) / 60
	if most < 2 {
		return have
	}
	if w, ok := with(1); ok && w.Now {
		lo, hi := int64(1), most // lo starts now
		best(&have, w, option(1))
		for hi-lo > 1 {
			mid := (lo + hi) / 2
			if w, ok := with(mid); ok && w.Now {
				lo, have = mid, w
				have.Option = option(mid)
			} else {
				hi = mid
			}
		}
		return have
	}
	for _, part := range []int64{2, 4} {
		if w, ok := with(max(1, most/part)); ok {
			best(&have, w, option(max(1, most/part)))
		}
	}
	return have
}

// longestS bounds the time limits that shorter tries: a month.
const longestS = 31 * 86400

// elsewhere tries the partitions that the job did not ask for and may use.
func (x *explainer) elsewhere() (have model.WhatIf) {
	sp := x.j.Spec
	for _, l := range x.p.lanes {
		part := l.part
		if slices.Contains(sp.Partitions, part.Name) || part.State != model.PartUp || part.Hidden || !x.mayEnter(part, sp) ||
			!x.sees.partition(part.Name) {
			continue
		}
		n := *sp
		n.Partitions = []string{part.Name}
		if w, ok := x.try(&n, l); ok {
			best(&have, w, "--partition="+part.Name)
		}
	}
	return have
}

// otherQOS tries the other QOS that the job may have. Each gives it another place in the queue, other limits and, under
// the default rules (sched/policy), another class.
func (x *explainer) otherQOS() (have model.WhatIf) {
	sp := x.j.Spec
	names, _ := x.v.QOSOf(sp.Account, sp.User, sp.Partitions[0])
	if !x.v.Config().Params.EnforceQOS {
		names = nil
		x.v.AllQOS(func(q *model.QOS) bool { names = append(names, q.Name); return true })
	}
	tries := 0
	for _, name := range names {
		q := x.v.QOS(name)
		if q == nil || name == sp.QOS {
			continue
		}
		n := *sp
		n.QOS = name
		if !slices.ContainsFunc(x.p.lanes,
			func(l *lane) bool { return slices.Contains(sp.Partitions, l.part.Name) && x.mayEnter(l.part, &n) }) {
			continue
		}
		if tries++; tries > maxQOS {
			break
		}
		j := *x.j
		j.Spec = &n
		if w, _ := foresee(x.v, x.now, x.pol, &j); w.Start != 0 && (x.out.Start == 0 || w.Start.Add(gainS) <= x.out.Start) {
			best(&have, w, "--qos="+name)
		}
	}
	return have
}
