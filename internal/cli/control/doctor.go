package control

import (
	"errors"
	"fmt"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/proto"
)

// doctor asks the leader and nodes to check themselves and prints their findings: gcontrol doctor [node=NODES]. For
// named nodes it prints all findings, otherwise only problems. The exit code is 1 if there is a problem.
func (c *control) doctor(words []string) error {
	var names []string
	for _, w := range words {
		key, value, keyed := strings.Cut(w, "=")
		switch {
		case !keyed:
			value = key
		case !strings.EqualFold(key, "node") && !strings.EqualFold(key, "nodename") && !strings.EqualFold(key, "nodes"):
			return fmt.Errorf("%s is not a word of doctor: write gcontrol doctor, or gcontrol doctor node=n1", w)
		}
		list, err := hostlist.Expand(value)
		if err != nil {
			return err
		}
		names = append(names, list...)
	}
	cl, err := c.ask()
	if err != nil {
		return err
	}
	var reply proto.DoctorReply
	if err := cl.Call(proto.KindDoctor, &proto.DoctorRequest{Nodes: names}, &reply); err != nil {
		var ping proto.PingReply // without a leader only the controllers can be looked at
		if cl.Call(proto.KindPing, &proto.Empty{}, &ping) == nil && ping.Leader == "" {
			if lerr := c.listControllers(); lerr != nil {
				return errors.Join(err, lerr)
			}
		}
		return err
	}
	bad, sick := 0, 0
	for i := range reply.Nodes {
		n := &reply.Nodes[i]
		if k := c.printFindings(n, len(names) > 0 || n.Node == ""); k > 0 {
			bad += k
			if n.Node != "" {
				sick++
			}
		}
	}
	if bad > 0 {
		things := fmt.Sprintf("%d things are", bad)
		if bad == 1 {
			things = "1 thing is"
		}
		fmt.Fprintf(c.Stdout, "%s wrong, on %d of %d nodes.\n", things, sick, len(reply.Nodes)-1)
		return plain{fmt.Errorf("")}
	}
	looked := "1 node was"
	if n := len(reply.Nodes) - 1; n != 1 {
		looked = fmt.Sprintf("%d nodes were", n)
	}
	fmt.Fprintf(c.Stdout, "%s looked at; nothing is wrong.\n", looked)
	return nil
}

// printFindings prints what was found of a node, and counts what is wrong.
func (c *control) printFindings(n *proto.NodeFindings, all bool) (bad int) {
	head := "cluster"
	if n.Node != "" {
		head = "node " + n.Node
	}
	for _, f := range n.List {
		if f.Grade == proto.GradeBad {
			bad++
		}
		if !all && f.Grade != proto.GradeBad {
			continue
		}
		if head != "" {
			fmt.Fprintf(c.Stdout, "%s\n", head)
			head = ""
		}
		fmt.Fprintf(c.Stdout, "  %-5s %-12s %s\n",
			[...]string{proto.GradeOK: "ok", proto.GradeNote: "note", proto.GradeBad: "WRONG"}[min(f.Grade, proto.GradeBad)],
			f.About, f.Text)
		if f.Fix != "" && f.Grade != proto.GradeOK {
			fmt.Fprintf(c.Stdout, "        %-12s -> %s\n", "", f.Fix)
		}
	}
	return bad
}
