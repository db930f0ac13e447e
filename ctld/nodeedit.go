package ctld

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// nodeedit.go carries out operators' changes of nodes and of single units, and handles nodes' reports on their units.

// updateNode drains, resumes and takes down nodes.
func (c *Controller) updateNode(ctx context.Context, who *caller, rq *proto.UpdateNodeRequest) error {
	v := c.machine.View()
	e := &state.NodeEdit{Nodes: rq.Names, Keep: true, By: who.User}
	if len(rq.Names) == 0 || len(rq.Set) == 0 {
		return refuse(proto.CodeBadRequest,
			"nothing to change: name the nodes and what is wanted of them, as in NodeName=n1 State=DRAIN Reason=\"bad fan\"")
	}
	for _, name := range rq.Names {
		if v.Node(name) == nil {
			return refuse(proto.CodeInvalidNode, "%s", name)
		}
	}
	for _, kv := range rq.Set {
		switch strings.ToLower(kv.Key) {
		case "gres":
			if err := unitsOf(e, kv.Value); err != nil {
				return err
			}
		case "reason":
			if len(kv.Value) > proto.MaxFieldBytes {
				return refuse(proto.CodeBadRequest, "Reason is longer than %d bytes", proto.MaxFieldBytes)
			}
			e.Reason = kv.Value
		case "state":
			e.Keep = false
			switch strings.ToUpper(kv.Value) {
			case "DRAIN":
				e.Admin = model.NodeDrain
			case "DOWN":
				e.Admin = model.NodeDown
			case "RESUME", "IDLE", "UNDRAIN":
				e.Admin = model.NodeUp
			case "FAIL", "FAILING":
				return refuse(proto.CodeBadRequest,
					"State=%s is not kept apart here: write DRAIN, and jobs that run go on, or DOWN, and they end", kv.Value)
			default:
				return refuse(proto.CodeBadRequest, "State=%s: write DRAIN, DOWN, RESUME, IDLE or UNDRAIN", kv.Value)
			}
		default:
			return refuse(proto.CodeBadRequest, "%s can't be set by gcontrol update node; it sets State and Reason, "+
				"of the node or, with Gres=gpu:3, of single units", kv.Key)
		}
	}
	if !e.Keep && e.Admin != model.NodeUp && e.Reason == "" {
		return refuse(proto.CodeBadRequest,
			"You must specify a reason when DOWNING a node or draining it; add Reason=\"...\"")
	}
	if e.Gres != "" {
		if err := unitsMay(v, e); err != nil {
			return err
		}
	}
	whole := !e.Keep && e.Gres == ""
	bodies := []state.Body{e}
	if whole && e.Admin == model.NodeUp {
		bodies = append(bodies, c.stillLeaving(e.Nodes)...)
	}
	if _, err := c.changes(ctx, keyOf(ctx), &proto.Empty{}, nil, bodies); err != nil {
		return err
	}
	if whole && e.Admin == model.NodeDown { // jobs that took too long to end have been given up
		now := c.machine.View()
		c.registerAnew(slices.DeleteFunc(slices.Clone(e.Nodes),
			func(name string) bool { return !ending(v, name) || ending(now, name) }))
	}
	return nil
}

// unitsOf reads Gres=gpu:3, gpu:0-2 or gpu:0,5.
func unitsOf(e *state.NodeEdit, text string) error {
	name, list, ok := strings.Cut(text, ":")
	if !ok || name == "" || list == "" {
		return refuse(proto.CodeBadRequest, "Gres=%s: write the units that State and Reason are for, such as Gres=gpu:3 or "+
			"Gres=gpu:0-2,5; how many a node has stands in gbatch.conf", text)
	}
	e.Gres = strings.ToLower(name)
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.ParseUint(from, 10, 16)
		last, err2 := strconv.ParseUint(to, 10, 16)
		if err1 != nil || err2 != nil || last < first || last-first >= model.MaxUnitTells {
			return refuse(proto.CodeBadRequest, "Gres=%s: %s is neither a unit's number nor a range of them, such as 3 or 0-2",
				text, part)
		}
		for i := first; i <= last; i++ {
			e.Units = append(e.Units, int32(i))
		}
	}
	if len(e.Units) > model.MaxUnitTells {
		return refuse(proto.CodeBadRequest, "Gres=%s: more than %d units", text, model.MaxUnitTells)
	}
	return nil
}

// unitsMay refuses changes that units don't allow.
func unitsMay(v *state.View, e *state.NodeEdit) error {
	switch {
	case e.Keep:
		return refuse(proto.CodeBadRequest, "Gres=%s needs a State: State=DRAIN with a Reason, or State=RESUME",
			e.Gres)
	case e.Admin == model.NodeDown:
		return refuse(proto.CodeBadRequest,
			"State=DOWN is for whole nodes; write State=DRAIN or State=RESUME for single units")
	}
	for _, name := range e.Nodes {
		n := v.Node(name)
		has := int32(0)
		for i := range n.Def.Gres {
			if d := &n.Def.Gres[i]; d.Name == e.Gres {
				has = max(has, d.First+d.Count)
			}
		}
		for _, u := range e.Units {
			if u >= has {
				if has == 0 {
					return refuse(proto.CodeBadRequest, "node %s has no %s", name, e.Gres)
				}
				return refuse(proto.CodeBadRequest, "node %s has no %s %d; its units are %d to %d", name, e.Gres, u, 0, has-1)
			}
			for i := range n.Out {
				if o := &n.Out[i]; e.Admin == model.NodeUp && o.Name == e.Gres && o.Index == u && o.Kind == model.OutInUse {
					return refuse(proto.CodeBadRequest, "%s %d of node %s is %s; it comes back by itself once that is over, or "+
						"write GpuForeignUsePolicy=ignore in gbatch.conf", e.Gres, u, name, o.Reason)
				}
			}
		}
	}
	return nil
}

// hearUnits puts a node's report on its units into the log if it says anything new.
func (c *Controller) hearUnits(ctx context.Context, node string, tells []model.UnitTell, held []model.GPUHeld) {
	n := c.machine.View().Node(node)
	if n == nil || max(len(tells), len(held)) > model.MaxUnitTells {
		return // the node has left the configuration, or was never in it
	}
	_, fresh, changed := model.TellUnits(n.Out, tells, 0, "")
	if !changed && slices.Equal(n.Held, held) {
		return
	}
	for _, t := range tells {
		if len(fresh) > 0 && t.Kind == model.OutFault || t.Kind == model.OutSpent {
			c.log.Warn("a node reports a unit unusable", "node", node, "gres", t.Name, "unit", t.Index, "why", t.Text)
		}
	}
	if _, err := c.propose(ctx, &state.Units{Node: node, Tells: tells, Held: held}); err != nil && ctx.Err() == nil {
		c.log.Warn("a node's report on its units was not applied; its next heartbeat repeats it", "node", node,
			"err", err)
	}
}
