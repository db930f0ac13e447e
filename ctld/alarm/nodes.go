package alarm

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Nodes compares the facts about nodes and GPUs with those of a moment ago.
type Nodes struct {
	before *state.View
	was    map[string]*health
}

// NewNodes begins with the present state: it gives no alerts.
func NewNodes(v *state.View) *Nodes {
	w := &Nodes{before: v, was: map[string]*health{}}
	w.Compare(v)
	return w
}

// health has a node's data that alerts compare.
type health struct {
	seen  *model.Node
	event string // node_down, node_drained or ""
	units map[string]model.UnitOut
}

// Compare gives the changes since the last call. It looks for a GPU's jobs in the old facts too, because a fault ends
// them. Several nodes that change for the same reason are one alert.
func (w *Nodes) Compare(v *state.View) []Alert {
	before, was := w.before, w.was
	w.before = v
	var list []Alert
	add := func(node string, jobs int, event, level, gres, reason string) {
		k := slices.IndexFunc(list, func(a Alert) bool { return a.Event == event && a.Gres == gres && a.Reason == reason })
		if k < 0 {
			k = len(list)
			list = append(list, Alert{Event: event, Level: level, Gres: gres, Reason: reason})
		}
		list[k].Nodes, list[k].Jobs = append(list[k].Nodes, node), list[k].Jobs+jobs
	}
	v.Nodes(func(n *model.Node) bool {
		name := n.Def.Name
		h := was[name]
		if h != nil && h.seen == n {
			return true
		}
		now := &health{seen: n}
		switch {
		case n.Admin == model.NodeDown || n.Link == model.LinkLost:
			now.event = "node_down"
		case n.Admin == model.NodeDrain:
			now.event = "node_drained"
		}
		for _, o := range n.Out {
			if o.Kind == model.OutFault || o.Kind == model.OutLost || o.Kind == model.OutDrained || o.Kind == model.OutInUse {
				if now.units == nil {
					now.units = map[string]model.UnitOut{}
				}
				now.units[fmt.Sprintf("%s:%d", o.Name, o.Index)] = o
			}
		}
		was[name] = now
		if h == nil {
			return true // the node is new, or this leader is
		}
		switch {
		case now.event == h.event:
		case now.event == "":
			add(name, 0, "node_back", "info", "", "")
		default:
			level := "warning"
			if now.event == "node_down" {
				level = "critical"
			}
			add(name, max(len(h.seen.Jobs), len(n.Jobs)), now.event, level, "", cmp.Or(n.Reason, "no reason was given"))
		}
		for _, unit := range slices.Sorted(maps.Keys(now.units)) {
			o := now.units[unit]
			if old, had := h.units[unit]; had && old.Kind == o.Kind {
				continue
			}
			event, level := "gpu_drained", "warning"
			switch o.Kind {
			case model.OutFault:
				event, level = "gpu_fault", "critical"
			case model.OutLost:
				event, level = "gpu_unrecoverable", "critical"
			case model.OutInUse:
				event = "gpu_foreign_use"
			case model.OutDrained, model.OutCleared, model.OutSpent:
			}
			add(name, len(jobsOn(name, o.Name, int(o.Index), before, v)), event, level, unit, o.Reason)
		}
		for _, unit := range slices.Sorted(maps.Keys(h.units)) {
			if _, still := now.units[unit]; !still {
				add(name, 0, "gpu_back", "info", unit, "")
			}
		}
		return true
	})
	return list
}

// jobsOn gives the jobs that have a unit of a node, or a share of it, in any of the views.
func jobsOn(node, resource string, index int, views ...*state.View) map[model.JobID]bool {
	out := map[model.JobID]bool{}
	for _, v := range views {
		n := v.Node(node)
		if n == nil {
			continue
		}
		for _, id := range n.Jobs {
			if j := v.Job(id); j != nil && j.Run != nil && holds(j.Run.Alloc, node, resource, index) {
				out[id] = true
			}
		}
	}
	return out
}

// holds reports whether an allocation has a unit of a node, or a share of it.
func holds(a *model.Alloc, node, resource string, index int) bool {
	if a == nil {
		return false
	}
	for i := range a.Nodes {
		if a.Nodes[i].Node != node {
			continue
		}
		for _, g := range a.Nodes[i].Gres {
			switch {
			case g.Share != nil:
				if resource == model.GPUName && int(g.Share.GPU) == index {
					return true
				}
			case g.Name == resource && g.Index.Has(index):
				return true
			}
		}
	}
	return false
}
