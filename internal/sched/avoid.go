package sched

import (
	"slices"

	"gbatch/internal/model"
)

// keepOff keeps a job off the nodes that could not launch it, until AvoidUntil (see waited). Nodes that it asks for by
// name it gets all the same, and where it has been on all nodes of the partition in vain, all count again.
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
