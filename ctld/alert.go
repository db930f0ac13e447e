package ctld

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/state"
)

// alert.go calls AlertProgram when nodes and GPUs fail and when they come back: AlertProgram EVENT SENTENCE, with the
// rest in its environment. The leader compares the facts with those of a moment ago. If several nodes change at once
// for the same reason, it makes one call. A new leader starts from the facts that it finds: it does not report failures
// from the moment between two leaders.

const (
	alertPace    = time.Second
	alertTimeout = 60 * time.Second
	maxAlerts    = 32 // calls in one round; further alerts go only to the log
)

// alert is one call.
type alert struct {
	event, level string
	gres         string // gpu:3; "" for nodes
	reason       string
	nodes        []string
	jobs         int // jobs with resources there
}

// nodeHealth has a node's data that alerts compare.
type nodeHealth struct {
	seen  *model.Node
	event string // node_down, node_drained or ""
	units map[string]model.UnitOut
}

// watchAlerts runs until ctx ends.
func (c *Controller) watchAlerts(ctx context.Context) {
	pace := pacer{gap: alertPace}
	was := map[string]*nodeHealth{}
	before := c.machine.View()
	c.compareNodes(before, before, was) // the present state: it gives no alerts
	for ctx.Err() == nil {
		pace.wait(ctx)
		changed := c.machine.Changed()
		v := c.machine.View()
		list := c.compareNodes(before, v, was)
		before = v
		path := v.Config().Params.AlertProgram
		for i := range list {
			a := &list[i]
			c.log.Info("alert", "event", a.event, "level", a.level, "nodes", hostlist.Compress(a.nodes), "gres", a.gres,
				"reason", a.reason)
			if path != "" && i < maxAlerts && ctx.Err() == nil {
				c.runAlert(ctx, v, path, a)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// compareNodes gives the changes since the last call, and records the present state in was. It looks for a GPU's jobs
// in the old view too, because a fault ends them.
func (c *Controller) compareNodes(before, v *state.View, was map[string]*nodeHealth) []alert {
	var list []alert
	add := func(node string, jobs int, event, level, gres, reason string) {
		k := slices.IndexFunc(list, func(a alert) bool { return a.event == event && a.gres == gres && a.reason == reason })
		if k < 0 {
			k = len(list)
			list = append(list, alert{event: event, level: level, gres: gres, reason: reason})
		}
		list[k].nodes, list[k].jobs = append(list[k].nodes, node), list[k].jobs+jobs
	}
	v.Nodes(func(n *model.Node) bool {
		name := n.Def.Name
		h := was[name]
		if h != nil && h.seen == n {
			return true
		}
		now := &nodeHealth{seen: n}
		switch {
		case n.Admin == model.NodeDown || n.Link == model.LinkLost:
			now.event = "node_down"
		case n.Admin == model.NodeDrain:
			now.event = "node_drained"
		}
		for _, o := range n.Out {
			if o.Kind == model.OutFault || o.Kind == model.OutDrained || o.Kind == model.OutInUse {
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
		for _, unit := range sortedKeys(now.units) {
			o := now.units[unit]
			if old, had := h.units[unit]; had && old.Kind == o.Kind {
				continue
			}
			event, level := "gpu_drained", "warning"
			switch o.Kind {
			case model.OutFault:
				event, level = "gpu_fault", "critical"
			case model.OutInUse:
				event = "gpu_foreign_use"
			case model.OutDrained, model.OutCleared, model.OutSpent:
			}
			add(name, len(jobsOn(name, o.Name, int(o.Index), before, v)), event, level, unit, o.Reason)
		}
		for _, unit := range sortedKeys(h.units) {
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

func sortedKeys(m map[string]model.UnitOut) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// sentence gives the alert as a sentence.
func (a *alert) sentence() string {
	who := "node " + hostlist.Compress(a.nodes)
	if a.gres != "" {
		who = a.gres + " of " + who
	}
	text := who + " is " + map[string]string{"node_down": "down", "node_drained": "drained",
		"node_back": "back in service", "gpu_fault": "out of service",
		"gpu_drained": "drained", "gpu_foreign_use": "in use by processes that no job started",
		"gpu_back": "back in service"}[a.event]
	if a.reason != "" {
		text += ": " + a.reason
	}
	if a.jobs > 0 {
		text += fmt.Sprintf(" (%d jobs had resources there)", a.jobs)
	}
	return text
}

// runAlert calls the program once and waits for it.
func (c *Controller) runAlert(parent context.Context, v *state.View, path string, a *alert) {
	ctx, cancel := context.WithTimeout(parent, alertTimeout)
	defer cancel()
	env := []string{progPath, "SLURM_CLUSTER_NAME=" + v.Config().Cluster, "GBATCH_ALERT=" + a.event,
		"GBATCH_ALERT_LEVEL=" + a.level,
		"GBATCH_ALERT_NODES=" + hostlist.Compress(a.nodes), "GBATCH_ALERT_GRES=" + a.gres,
		"GBATCH_ALERT_REASON=" + oneLine(a.reason),
		fmt.Sprintf("GBATCH_ALERT_JOBS=%d", a.jobs), fmt.Sprintf("GBATCH_ALERT_TIME=%d", c.now().Seconds())}
	cmd, out := program(ctx, env, path, a.event, oneLine(a.sentence()))
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) || parent.Err() != nil {
		return
	}
	if err != nil {
		c.log.Warn("AlertProgram failed; it is not called again for this event", "program", path, "event", a.event,
			"err", err, "output", strings.TrimSpace(out.String()))
	}
}
