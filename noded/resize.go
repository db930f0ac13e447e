package noded

import (
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// resize.go follows a running job that gives nodes up or gets more.
//
// Each node that stays is told of the job's nodes: later steps are laid out on them, and their tasks see them in their
// environment. The leader repeats the order in every session; its version says which of two is the newer one. A node
// that the job gives up gets the order to end its part, as at the job's end, and reports that end. The job may get the
// node again: an order or a report is about the part of its Since, and a late one of an earlier part means nothing.

// onResize takes the job's present nodes, ends the steps that have tasks on others, and starts steps that wait.
func (l *loop) onResize(r *proto.Resize) error {
	a := l.attempts[proto.Attempt{Job: r.Job, Attempt: r.Attempt}]
	if a == nil || a.rec == nil || a.doomed() || resized(a.rec.Order, r) == a.rec.Order {
		return nil
	}
	if err := l.keep(a, recResized, r, false); err != nil {
		return err
	}
	l.n.peers.learn(a.rec.Order)
	for _, s := range a.steps {
		if s.rec.Manager == "" && slices.ContainsFunc(s.rec.Nodes,
			func(n proto.StepNode) bool { return r.Alloc.Place(n.Node) < 0 }) {
			l.stopStep(s, model.StopShrink, a.rec.UID, false, l.stepLine(s, " DUE TO JOB RESIZE"))
		}
	}
	return l.placeSteps(a)
}

// resized gives a job's order with the job's present nodes: the order itself if that is no older, or if this node is
// none of them.
func resized(o *proto.Launch, r *proto.Resize) *proto.Launch {
	if o == nil || r.Alloc == nil || r.Version <= o.Version {
		return o
	}
	here := r.Alloc.Place(o.Alloc.Nodes[o.Node].Node)
	if here < 0 {
		return o
	}
	n := *o
	n.Alloc, n.Node, n.Version, n.Addrs = r.Alloc, int32(here), r.Version, r.Addrs
	if len(n.Addrs) > maxFactAddrs {
		n.Addrs = nil
	}
	return &n
}

// placedIn gives a step's nodes by their places in the job's present allocation, without those that the job has given
// up.
func placedIn(alloc *model.Alloc, nodes []proto.StepNode) []proto.StepNode {
	at := func(n *proto.StepNode) bool {
		return int(n.Index) < len(alloc.Nodes) && alloc.Nodes[n.Index].Node == n.Node
	}
	if !slices.ContainsFunc(nodes, func(n proto.StepNode) bool { return !at(&n) }) {
		return nodes
	}
	out := make([]proto.StepNode, 0, len(nodes))
	for _, n := range nodes {
		if k := alloc.Place(n.Node); k >= 0 {
			n.Index = int32(k)
			out = append(out, n)
		}
	}
	return out
}

// outdated reports whether an order is about an earlier part of the job on this node than the present one.
func (a *attempt) outdated(since uint32) bool { return since < a.since }

// replaced forgets an attempt whose end is reported, since the leader orders a later part of the job: it has that end.
func (l *loop) replaced(a *attempt) error {
	if err := l.spool.add(recDrop, &a.key, false); err != nil {
		return err
	}
	l.out.remove(func(r *proto.Report) bool { return reportKey(r) == a.key })
	l.drop(a.key)
	return nil
}
