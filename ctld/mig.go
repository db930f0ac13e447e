package ctld

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// mig.go is gcontrol mig apply: the leader makes sure that no job has or gets the GPUs, and their nodes divide them.

// migWait is how long the leader waits for the nodes; their own limit is a little shorter.
const migWait = proto.MaxMIGS * time.Second

// migGPUs are the GPUs of a node to divide.
type migGPUs struct {
	node   string
	uuids  []string // empty: all GPUs of its driver
	resume func(units int32) []string
}

func (c *Controller) applyMIG(ctx context.Context, who *caller, rq *proto.MIGRequest) (*proto.MIGReply, error) {
	if err := proto.CheckMIGLayout(rq.Layout); err != nil {
		return nil, refuse(proto.CodeBadRequest, "%v", err)
	}
	if len(rq.Nodes) == 0 || len(rq.Nodes) > proto.MaxTargets {
		return nil, refuse(proto.CodeBadRequest, "name 1 to %d nodes, as in node=n1", proto.MaxTargets)
	}
	v := c.machine.View()
	list := make([]migGPUs, len(rq.Nodes))
	for i, name := range rq.Nodes {
		n := v.Node(name)
		if n == nil {
			return nil, refuse(proto.CodeInvalidNode, "node %s is not defined", name)
		}
		if slices.Contains(rq.Nodes[:i], name) {
			return nil, refuse(proto.CodeBadRequest, "node %s is named twice", name)
		}
		s := c.reach(ctx, name)
		if s == nil {
			return nil, refuse(proto.CodeBadRequest, "node %s: its gnoded is not connected; start gnoded there", name)
		}
		var err error
		if list[i], err = migOf(v, n, s.units, rq.Gres); err != nil {
			return nil, err
		}
	}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	reply := &proto.MIGReply{Nodes: make([]proto.MIGNode, len(list))}
	defer c.finish(ctx, reply)
	ctx, cancel := context.WithTimeout(ctx, migWait)
	defer cancel()
	turns := make(chan struct{}, doctorNodes)
	var all sync.WaitGroup
	for i := range list {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			reply.Nodes[i] = c.cutNode(ctx, &list[i], rq.Layout)
		})
	}
	all.Wait()
	return reply, nil
}

// cutNode makes one node divide its GPUs.
func (c *Controller) cutNode(ctx context.Context, g *migGPUs, layout string) proto.MIGNode {
	out := proto.MIGNode{Node: g.node}
	c.log.Info("the MIG layout of GPUs is changed", "node", g.node, "gpus", g.uuids, "layout", layout)
	m, err := c.askNode(ctx, g.node, proto.NodeAsk{MIG: &proto.MIGAsk{UUIDs: g.uuids, Layout: layout}})
	switch {
	case err != nil:
		out.Done.Error = fmt.Sprintf("%v; gnoded's log there says what was done, and gnoded -C shows what there is now", err)
	case m.MIG == nil:
		out.Done.Error = "its gnoded is of an older version and can't do that"
	default:
		out.Done, out.Resume = *m.MIG, g.resume(m.MIG.Units)
	}
	return out
}

// migOf finds the GPUs to divide on a node, and refuses GPUs that a job has or could get.
func migOf(v *state.View, n *model.Node, units []model.GresUnit, gres string) (migGPUs, error) {
	name := n.Def.Name
	g := migGPUs{node: name}
	e := &state.NodeEdit{}
	if gres != "" {
		if err := unitsOf(e, gres); err != nil {
			return g, err
		}
		if !isGPU(e.Gres) {
			return g, refuse(proto.CodeBadRequest, "gres=%s: write the GPUs to divide, such as gres=gpu:0-3", gres)
		}
		for _, k := range e.Units {
			at := slices.IndexFunc(units, func(u model.GresUnit) bool { return u.Name == e.Gres && u.Index == k })
			if at < 0 {
				return g, refuse(proto.CodeBadRequest, "node %s has no %s:%d (gcontrol -d show node %s)", name, e.Gres, k, name)
			}
			id := gpuOf(&units[at])
			if id == "" {
				return g, refuse(proto.CodeBadRequest, "%s:%d of node %s is not known to the driver there, or has no UUID",
					e.Gres, k, name)
			}
			if !slices.Contains(g.uuids, id) {
				g.uuids = append(g.uuids, id)
			}
		}
	}
	meant := map[string][]int{} // all units of those GPUs, by name
	for i := range units {
		if u := &units[i]; isGPU(u.Name) && u.Index >= 0 && (gres == "" || slices.Contains(g.uuids, gpuOf(u))) {
			meant[u.Name] = append(meant[u.Name], int(u.Index))
		}
	}
	if gres == "" && len(meant) == 0 && n.Admin == model.NodeUp {
		return g, refuse(proto.CodeBadRequest, "node %s has no GPU that jobs are given; to divide what its driver has, "+
			"first gcontrol update NodeName=%s State=DRAIN Reason=mig", name, name)
	}
	if err := migFree(v, n, meant); err != nil {
		return g, err
	}
	drained, open := map[string][]int{}, map[string][]int{}
	for kind, list := range meant {
		slices.Sort(list)
		for _, k := range list {
			if unitDrained(n, kind, k) {
				drained[kind] = append(drained[kind], k)
			} else {
				open[kind] = append(open[kind], k)
			}
		}
	}
	if n.Admin == model.NodeUp {
		for _, kind := range []string{model.GPUName, "mig"} {
			if len(open[kind]) > 0 {
				return g, refuse(proto.CodeBadRequest,
					"%s of node %s is not drained; first gcontrol update NodeName=%s Gres=%s State=DRAIN Reason=mig",
					unitsText(kind, open[kind]), name, name, unitsText(kind, open[kind]))
			}
		}
	}
	admin := n.Admin
	g.resume = func(left int32) []string {
		var out []string
		for _, kind := range []string{model.GPUName, "mig"} {
			if stay := slices.DeleteFunc(drained[kind], func(k int) bool { return k >= int(left) }); len(stay) > 0 {
				out = append(out, fmt.Sprintf("gcontrol update NodeName=%s Gres=%s State=RESUME", name, unitsText(kind, stay)))
			}
		}
		if admin != model.NodeUp {
			out = append(out, fmt.Sprintf("gcontrol update NodeName=%s State=RESUME", name))
		}
		return out
	}
	return g, nil
}

func isGPU(name string) bool { return name == model.GPUName || name == "mig" }

// gpuOf gives the UUID of the GPU that a unit is, or is an instance of.
func gpuOf(u *model.GresUnit) string {
	if u.Parent != "" {
		return u.Parent
	}
	return u.UUID
}

func unitsText(name string, list []int) string { return name + ":" + hostlist.FormatIndexes(list) }

// unitDrained reports whether a unit is drained until an operator resumes it.
func unitDrained(n *model.Node, name string, index int) bool {
	return slices.ContainsFunc(n.Out, func(o model.UnitOut) bool {
		return o.Name == name && int(o.Index) == index &&
			(o.Kind == model.OutDrained || o.Kind == model.OutFault || o.Kind == model.OutLost)
	})
}

// migFree refuses GPUs of which a job has a unit or a share.
func migFree(v *state.View, n *model.Node, meant map[string][]int) error {
	for j, na := range allocsOn(v, n) {
		if unit := migHeld(na, meant); unit != "" {
			return refuse(proto.CodeBadRequest, "job %s has %s of node %s; wait for its end, or gcancel %s", jobText(j), unit,
				n.Def.Name, jobText(j))
		}
	}
	return nil
}

// migHeld names one of these units of which an allocation has the whole or shares; "" if there is none.
func migHeld(na *model.NodeAlloc, meant map[string][]int) string {
	for i := range na.Gres {
		a := &na.Gres[i]
		held := ""
		switch {
		case a.Share != nil && slices.Contains(meant[model.GPUName], int(a.Share.GPU)):
			held = fmt.Sprintf("shares of gpu:%d", a.Share.GPU)
		case a.Share == nil && isGPU(a.Name):
			a.Index.Each(func(k int) bool {
				if slices.Contains(meant[a.Name], k) {
					held = fmt.Sprintf("%s:%d", a.Name, k)
				}
				return held == ""
			})
		}
		if held != "" {
			return held
		}
	}
	return ""
}
