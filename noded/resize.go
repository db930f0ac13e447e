package noded

import (
	"context"
	"slices"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/allocfile"
	"gbatch/noded/shim"
)

// resize.go follows a running job that gives nodes up or gets more.
//
// Each node that stays is told of the job's nodes: later steps are laid out on them, and their tasks see them in their
// environment. The leader repeats the order in every session; its version says which of two is the newer one. A node
// that the job gives up gets the order to end its part, as at the job's end, and reports that end. The job may get the
// node again: an order or a report is about the part of its Since, and a late one of an earlier part means nothing.

// onResize takes the job's present nodes, ends tasks or steps that have lost their nodes, and starts steps that wait.
func (l *loop) onResize(r *proto.Resize) error {
	a := l.attempts[proto.Attempt{Job: r.Job, Attempt: r.Attempt}]
	if a == nil || a.rec == nil || a.doomed() || resized(a.rec.Order, r) == a.rec.Order {
		return nil
	}
	had, failed := a.rec.Order.Alloc.NodeNames(), r.Broke > a.rec.Order.Version
	if err := l.keep(a, recResized, r, false); err != nil {
		return err
	}
	l.n.peers.learn(a.rec.Order)
	l.tellSize(a, r, len(r.Asked) > 0 || !slices.Equal(had, r.Alloc.NodeNames()))
	// As in Slurm the tasks on other nodes go on, unless a node has failed. The script of an elastic job begins again.
	stay := !failed && a.rec.Order.Spec.Elastic() == nil
	for _, s := range a.steps {
		gone := func(n proto.StepNode) bool { return r.Alloc.Place(n.Node) < 0 }
		switch {
		case s.rec.Manager != "" || !slices.ContainsFunc(s.rec.Nodes, gone):
		case (s.rec.NoKill || stay) && slices.ContainsFunc(s.rec.Nodes, func(n proto.StepNode) bool { return !gone(n) }):
			l.loseParts(s, r.Alloc)
		default:
			l.stopStep(s, model.StopShrink, a.rec.UID, false, l.stepLine(s, " DUE TO JOB RESIZE"))
		}
	}
	return l.placeSteps(a)
}

// tellSize tells an elastic job of its nodes, on the node of its script: by its files first, then, if there is
// something new for it, by its signal. Nodes that still run their prologs are nothing new.
func (l *loop) tellSize(a *attempt, r *proto.Resize, isNew bool) {
	o := a.rec.Order
	el := o.Spec.Elastic()
	if el == nil {
		return
	}
	key, sig, due := a.key, unix.Signal(el.Signal), isNew && el.Signal > 0
	if o.Node == 0 {
		size := sizeOf(o, r)
		l.then(func() {
			l.n.stops.Do(func(ctx context.Context) {
				if err := l.n.allocs.Write(size); err != nil {
					l.n.log.Warn("an elastic job does not learn of its nodes by its file", "job", key.Job, "err", err)
				}
				if due && el.Batch {
					l.n.sendSignal(ctx, key, sig, shim.Leader)
				}
				l.n.log.Info("an elastic job was told of its nodes", "job", key.Job, "attempt", key.Attempt, "version",
					size.Version, "nodes", len(size.Alloc.Nodes), "asked", len(size.Asked))
			})
		})
	}
	if due && !el.Batch && o.Node == 0 { // it passes it on to the steps' parts on other nodes
		l.signalSteps(a, sig)
	}
}

// sizeOf gives what the files of an elastic job say; r is nil at its start.
func sizeOf(o *proto.Launch, r *proto.Resize) *allocfile.Size {
	z := &allocfile.Size{Key: proto.Attempt{Job: o.Job, Attempt: o.Attempt}, UID: o.Spec.UID, GID: o.Spec.GID,
		Version: o.Version, Least: o.Spec.MinNodes, Most: o.Spec.Elastic().Max, Alloc: o.Alloc}
	if r != nil {
		z.Asked, z.Due = r.Asked, r.Due
	}
	return z
}

// dropSize removes the files of an elastic job that has ended here.
func (l *loop) dropSize(a *attempt) {
	if a.rec == nil || a.rec.Order == nil || a.rec.Order.Node != 0 || a.rec.Order.Spec.Elastic() == nil {
		return
	}
	key := a.key
	l.then(func() {
		l.n.stops.Do(func(context.Context) {
			if err := l.n.allocs.Remove(key); err != nil {
				l.n.log.Warn("the allocation files of an ended job were not removed", "job", key.Job, "err", err)
			}
		})
	})
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
