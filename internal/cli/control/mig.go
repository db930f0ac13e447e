package control

import (
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/proto"
)

// mig divides drained GPUs into MIG instances: gcontrol mig apply node=NODES [gres=gpu:0-3] layout=NAME|PROFILES. It
// prints the resulting GPUs and instances, and what is left to do. The exit code is 1 if a node failed.
func (c *control) mig(words []string) error {
	const form = "write gcontrol mig apply node=n1 gres=gpu:0-3 layout=balanced"
	if len(words) == 0 || !strings.EqualFold(words[0], "apply") {
		return fmt.Errorf("mig: %s", form)
	}
	rq := &proto.MIGRequest{}
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		switch strings.ToLower(key) {
		case "node", "nodename", "nodes":
			list, err := hostlist.Expand(value)
			if err != nil {
				return err
			}
			rq.Nodes = append(rq.Nodes, list...)
		case "gres":
			rq.Gres = value
		case "layout":
			rq.Layout = strings.ToLower(value)
		default:
			return fmt.Errorf("mig apply: %s is none of node=, gres= and layout=; %s", w, form)
		}
	}
	switch {
	case len(rq.Nodes) == 0:
		return fmt.Errorf("mig apply: no node is named; %s", form)
	case rq.Layout == "":
		return fmt.Errorf("mig apply: layout= is missing: %s, or profiles as in layout=3g.40gb,1g.10gb",
			strings.Join(proto.MIGLayouts(), ", "))
	}
	if err := proto.CheckMIGLayout(rq.Layout); err != nil {
		return err
	}
	cl, err := c.ask()
	if err != nil {
		return err
	}
	var reply proto.MIGReply
	if err := cl.Call(proto.KindMIG, rq, &reply); err != nil {
		return err
	}
	failed := false
	for i := range reply.Nodes {
		n := &reply.Nodes[i]
		failed = failed || n.Done.Error != ""
		c.printMIG(n)
	}
	c.printMIGSteps(reply.Nodes)
	if failed {
		return plain{fmt.Errorf("")}
	}
	return nil
}

// printMIG prints what a node's GPUs are now.
func (c *control) printMIG(n *proto.MIGNode) {
	fmt.Fprintf(c.Stdout, "node %s\n", n.Node)
	for i := range n.Done.GPUs {
		g := &n.Done.GPUs[i]
		now := "whole, MIG mode is off"
		switch {
		case len(g.Profiles) > 0:
			now = strings.Join(g.Profiles, ",")
		case g.MIG:
			now = "MIG mode is on, without instances: no job can use it"
		}
		if !g.Changed {
			now += " (as before)"
		}
		fmt.Fprintf(c.Stdout, "  GPU %d %s, %d GiB, %s: %s\n", g.Index, g.Type, (g.MemMiB+1023)/1024, g.UUID, now)
	}
	if n.Done.Error != "" {
		fmt.Fprintf(c.Stdout, "  FAILED: %s\n", n.Done.Error)
	}
	if n.Done.Gres != "" {
		fmt.Fprintf(c.Stdout, "  Gres=%s\n", n.Done.Gres)
	}
}

// printMIGSteps prints what the operator does next.
func (c *control) printMIGSteps(nodes []proto.MIGNode) {
	var names, resume []string
	moved := false
	for i := range nodes {
		n := &nodes[i]
		if !slices.ContainsFunc(n.Done.GPUs, func(g proto.MIGState) bool { return g.Changed }) {
			continue
		}
		names, resume = append(names, n.Node), append(resume, n.Resume...)
		if len(n.Done.Moved) > 0 {
			fmt.Fprintf(c.Stdout,
				"On node %s numbers change: %s. Drain the node and let its GPU jobs end before the next steps.\n", n.Node,
				strings.Join(n.Done.Moved, ", "))
			moved = true
		}
	}
	if len(names) == 0 {
		return
	}
	goOn := " (its jobs go on)"
	if moved {
		goOn = ""
	}
	fmt.Fprintf(c.Stdout, "Jobs are not given the instances yet. Next:\n"+
		"  in gbatch.conf, put the GPUs of the Gres= above on the NodeName line of %[1]s; where gres.conf lists these "+
		"GPUs, what gnoded -G prints there\n"+
		"  gcontrol reconfigure\n"+
		"  restart gnoded on %[1]s%[2]s\n", hostlist.Compress(names), goOn)
	for _, r := range resume {
		fmt.Fprintf(c.Stdout, "  %s\n", r)
	}
}
