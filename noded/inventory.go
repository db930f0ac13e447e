package noded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/gpu"
)

// inventory.go makes the node's account of itself: what it is (Hello) and how it feels (Heartbeat).

// inventory is what does not change while gnoded runs.
type inventory struct {
	hw      proto.Hardware
	cpus    []int       // the machine's CPUs, so that threads of a core and cores of a socket are neighbours
	numa    map[int]int // memory node by CPU of the machine
	bootID  string
	bootAt  model.Time
	gpus    gpu.Source   // of the node's GPUs, for readings; nil: it has none that could be read
	devices []gpu.Device // what the driver has listed
	unused  [][]string   // device files of GPUs that no job is given
	units   []foundUnit  // of its resources, as far as they can be told apart
}

// takeInventory looks at the machine. A virtual node takes the configuration's word for what it has.
func takeInventory(m machine, o *Options) (*inventory, error) {
	usable, err := ownCPUs()
	if err != nil {
		return nil, err
	}
	cpus, hw, err := m.cpus(usable)
	if err != nil {
		return nil, fmt.Errorf("look at the machine: %w", err)
	}
	inv := &inventory{hw: hw, cpus: cpus, numa: m.numa()}
	h := &inv.hw
	var errs [4]error
	h.MemMiB, _, errs[0] = m.memory()
	h.TmpMiB, errs[1] = tmpMiB(o.TmpFS)
	h.OS, h.Arch, errs[2] = kernel()
	if inv.bootID, inv.bootAt, errs[3] = m.boot(); o.BootID != "" {
		inv.bootID, inv.bootAt = o.BootID, model.Time(time.Now().UnixMilli())
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("look at the machine: %w", err)
	}
	h.Virtual = o.Virtual
	if o.Login {
		h.CPUs, h.Sockets, h.Cores, h.Threads, h.MemMiB, h.TmpMiB = 0, 0, 0, 0, 0, 0
		return inv, nil
	}
	threads := int(h.Threads)
	def := o.nodeDef()
	virtual := o.Virtual && def != nil
	if virtual {
		h.CPUs, h.Sockets, h.Cores, h.Threads = def.CPUs, def.Sockets, def.CoresPerSocket, def.ThreadsPerCore
		h.MemMiB, h.TmpMiB, h.Gres = def.MemMiB, def.TmpMiB, def.Gres
		cpus = make([]int, def.CPUs)
		for i := range cpus {
			cpus[i] = i
		}
	}
	f := findGres(o, cpus, threads)
	inv.units, inv.unused, inv.devices = f.units, f.unused, f.listed
	if !virtual || f.source != nil || f.asked {
		h.Gres, h.Notes, h.Problem = f.gres, f.notes, f.reason()
	}
	for i := range f.units {
		h.Units = append(h.Units, f.units[i].GresUnit)
		if f.units[i].dev != nil {
			inv.gpus = f.source
		}
	}
	return inv, nil
}

// hello is what this node says when it registers.
func (n *Noded) hello(ctx context.Context) (*proto.Hello, error) {
	reply := make(chan answerFor, 1)
	n.inbox.post(msgKnown{reply})
	h := &proto.Hello{Node: n.opts.Name, Version: n.opts.Version, Hw: n.inv.hw, BootID: n.inv.bootID, BootAt: n.inv.bootAt,
		UpSince: n.upSince, Instance: n.instance.Load(), Now: model.Time(n.now().UnixMilli()), Problem: n.health.look(),
		PeerPort: peerPort(n.peerLn)}
	select {
	case of := <-reply:
		h.Known, h.Leaving = of.known, of.leaving
		return h, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// heartbeat reads how the machine feels. What can't be read is -1: unknown.
func (n *Noded) heartbeat(ctx context.Context) (*proto.Heartbeat, error) {
	hb := &proto.Heartbeat{LoadMilli: -1, FreeMemMiB: -1, Problem: n.health.look(), Now: model.Time(n.now().UnixMilli())}
	if load, err := n.machine.loadMilli(); err == nil {
		hb.LoadMilli = load
	}
	if _, free, err := n.machine.memory(); err == nil {
		hb.FreeMemMiB = free
	}
	hb.Units, hb.Held, hb.UnitsKnown = n.gpuHealth.account()
	hb.Readings = n.unitReadings()
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
