package sched

import (
	"slices"

	"gbatch/internal/model"
)

// keepOff excludes the nodes that could not launch a job, until AvoidUntil (see waited). It excludes no node that the
// job asks for by name, and if every node of the partition has failed to launch the job, it excludes none.
func (p *Planner) keepOff(it *item, l *lane) {
	j := it.e.j
	if len(j.Avoid) == 0 {
		return
	}
	avoid := slices.DeleteFunc(slices.Clone(j.Avoid), func(n string) bool { return slices.Contains(j.Spec.ReqNodes, n) })
	other := slices.ContainsFunc(l.pool.nodes, func(n *node) bool {
		return !slices.Contains(avoid, n.def.Name) && !slices.Contains(j.Spec.ExcNodes, n.def.Name)
	})
	if len(avoid) == 0 || !other {
		return
	}
	sp := new(model.Spec)
	*sp = *j.Spec
	sp.ExcNodes = append(slices.Clone(sp.ExcNodes), avoid...)
	it.anywhere, it.sh = it.sh, p.shapeOf(l, sp)
}
