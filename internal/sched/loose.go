package sched

import (
	"slices"

	"gbatch/internal/model"
)

// fitLoose places a whole job on the least loaded node that holds it (LLN). Among the lightest nodes with room it takes
// the one with the most free CPUs, and the first of several.
func (p *Planner) fitLoose(sh *shape, end model.Time) (alloc *model.Alloc, taken bool) {
	pl := sh.pool
	var best *room
	for at := pl.find(0, &sh.wholeB); at < len(pl.nodes); at = pl.find(at+1, &sh.wholeB) {
		n := pl.nodes[at]
		nd := &sh.whole[n.class.at]
		if best != nil && n.weight() > best.weight() {
			break
		}
		if !sh.named(n, true) || !p.has(sh, n, nd) {
			continue
		}
		if sh.rq.tier < n.keep || n.dated() && !p.cursor.lasts(n, nd, p.now, n.until(end)) {
			taken = true
			continue
		}
		r := p.roomUntil(n, n.until(end)).as(&sh.rq)
		if n.dated() && p.social && !sh.meets(r, nd) {
			taken = true
			continue
		}
		if best != nil && r.nfree <= best.nfree {
			continue
		}
		na, m := r.place(&sh.rq, sh.tasks, wholeJob(&sh.rq))
		if m != missNone {
			taken = true
			continue
		}
		best, alloc = r, &model.Alloc{Nodes: []model.NodeAlloc{na}}
	}
	return alloc, taken
}

// waited updates a job's shape after its waits: a job that has waited long enough for few switches takes any nodes, and
// after AvoidUntil it takes nodes again that could not launch it. The wait for switches begins when the job is
// eligible. Until a wait is over, Wake asks for a new plan at its end.
func (p *Planner) waited(it *item) {
	if it.anywhere != nil {
		if until := it.e.j.AvoidUntil; until <= p.now {
			it.sh, it.anywhere = it.anywhere, nil
		} else {
			p.wake = soonerOf(p.wake, until)
		}
	}
	sh := it.sh
	if sh == nil || sh.relaxed == nil {
		return
	}
	most := p.cfg.Params.SwitchWaitS
	if m := it.e.j.Spec.More; m != nil && m.SwitchWaitS != model.NotSet {
		most = min(most, m.SwitchWaitS)
	}
	if over := it.e.j.Eligible.Add(most); over <= p.now {
		it.sh = sh.relaxed
	} else {
		p.wake = soonerOf(p.wake, over)
	}
}

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
