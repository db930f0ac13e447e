package noded

import (
	"context"

	"gbatch/internal/proto"
	"gbatch/noded/gpuwatch"
	"gbatch/noded/shim"
)

// hello.go makes the node's messages about itself: Hello (hardware, attempts) and Heartbeat (load, problems).

// hello makes the message with which this node registers.
func (n *Noded) hello(ctx context.Context) (*proto.Hello, error) {
	uptime := shim.Uptime().Milliseconds() // before it is looked up what is known
	reply := make(chan answerFor, 1)
	n.inbox.post(msgKnown{reply})
	h := &proto.Hello{Node: n.opts.Name, Version: n.opts.Version, Hw: n.inv.Hw, BootID: n.inv.BootID, BootAt: n.inv.BootAt,
		UpSince: n.upSince, Instance: n.instance.Load(), Now: n.hostTime(), Problem: n.health.look(),
		PeerPort: peerPort(n.peerLn), LeaseS: n.fence.LeaseS(), Uptime: uptime}
	select {
	case of := <-reply:
		h.Known, h.Leaving = of.known, of.leaving
		return h, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// heartbeat reads the machine's load and readings. A value that can't be read is -1: unknown.
func (n *Noded) heartbeat(ctx context.Context) (*proto.Heartbeat, error) {
	hb := &proto.Heartbeat{LoadMilli: -1, FreeMemMiB: -1, Problem: n.health.look(), Now: n.hostTime()}
	if load, err := n.machine.LoadMilli(); err == nil {
		hb.LoadMilli = load
	}
	if _, free, err := n.machine.Memory(); err == nil {
		hb.FreeMemMiB = free
	}
	hb.Units, hb.Held, hb.UnitsKnown = n.gpuHealth.Account()
	hb.Readings = gpuwatch.UnitReadings(n.inv, n.gpus.Last(), &n.troubles)
	hb.LeaseS, hb.Uses = n.fence.LeaseS(), n.sampler.uses()
	reply := make(chan answerFor, 1)
	n.inbox.post(msgRunning{reply})
	select {
	case of := <-reply:
		hb.Running, hb.Leaving = int32(of.running), of.leaving
		return hb, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
