package trigger

import (
	"slices"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Timely gives what time alone has brought by a moment. watch is true if there are triggers that only time concerns,
// and daemons if there are some about daemons.
func Timely(v *state.View, now model.Time) (hits []state.TimeHit, watch, daemons bool) {
	var idle []idleNode
	looked, bytes := false, 0
	v.Triggers(func(t *model.Trigger) bool {
		daemons = daemons || t.AboutDaemons()
		if len(t.Hits) > 0 || t.Off != "" {
			return true
		}
		switch {
		case t.Events&model.OnTime != 0 && t.OffsetS < 0:
			watch = true
			j := v.Job(t.Job)
			if end := v.LatestEnd(j); end != 0 && end.Add(t.OffsetS) <= now && t.Looked < j.Run.Start {
				hits = append(hits, state.TimeHit{ID: t.ID, By: now})
			}
		case t.Events&model.OnIdle != 0:
			watch = true
			if !looked {
				idle, looked = idleNodes(v), true
			}
			if names := idleSince(t, idle, now); len(names) > 0 {
				hits = append(hits, state.TimeHit{ID: t.ID, Nodes: names, By: now})
				for _, n := range names {
					bytes += len(n)
				}
			}
		}
		return len(hits) < maxHits && bytes < maxHitBytes
	})
	return hits, watch, daemons
}

// maxHits and maxHitBytes, of names of nodes, bound one proposal; the rest is looked at in the next round.
const (
	maxHits     = 256
	maxHitBytes = 1 << 20
)

type idleNode struct {
	name  string
	since model.Time
}

// idleNodes gives the nodes that could take jobs and have none.
func idleNodes(v *state.View) (out []idleNode) {
	v.Nodes(func(n *model.Node) bool {
		if n.Usable() && n.Link == model.LinkUp && len(n.Jobs) == 0 && n.PowerStep() == model.PowerOn {
			out = append(out, idleNode{n.Def.Name, max(n.BusyAt, n.LinkAt)})
		}
		return true
	})
	return out
}

// idleSince gives those of a trigger's nodes that have been idle for long enough, and had not been when it was looked
// at last.
func idleSince(t *model.Trigger, idle []idleNode, now model.Time) (out []string) {
	var set map[string]bool
	if t.Nodes != "" {
		names, err := hostlist.Expand(t.Nodes)
		if err != nil {
			return nil
		}
		set = make(map[string]bool, len(names))
		for _, n := range names {
			set[n] = true
		}
	}
	for _, n := range idle {
		from := n.since.Add(t.OffsetS)
		if (set == nil || set[n.name]) && from <= now && (t.Looked == 0 || from > t.Looked) && len(out) < model.MaxList {
			out = append(out, n.name)
		}
	}
	return out
}

// Due gives the triggers whose programs are due, those that have waited longest first, and the moment at which the next
// one will be; 0: none waits.
func Due(v *state.View, now model.Time) (due []*model.Trigger, next model.Time) {
	v.Triggers(func(t *model.Trigger) bool {
		switch {
		case len(t.Hits) == 0:
		case t.Due <= now:
			due = append(due, t)
		case next == 0 || t.Due < next:
			next = t.Due
		}
		return true
	})
	slices.SortStableFunc(due, func(a, b *model.Trigger) int {
		switch {
		case a.Due < b.Due:
			return -1
		case a.Due > b.Due:
			return 1
		}
		return 0
	})
	return due, next
}
