package hardware

import (
	"errors"
	"fmt"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/wall"
	"gbatch/noded/gpu"
)

// inventory.go makes the description of the node.

// Inventory is the node's hardware, which does not change while gnoded runs.
type Inventory struct {
	Hw      proto.Hardware
	CPUs    []int       // the machine's CPUs, so that threads of a core and cores of a socket are neighbours
	NUMA    map[int]int // memory node by CPU of the machine
	BootID  string
	BootAt  model.Time
	GPUs    gpu.Source   // of the node's GPUs, for readings; nil: there are none to read
	Devices []gpu.Device // the driver's list
	unused  [][]string   // device files of GPUs that no job gets
	Units   []Found      // of its resources, if they are distinguishable
}

// Take reads the machine. A virtual node has the hardware of its configuration.
func Take(m Machine, o *Look) (*Inventory, error) {
	usable, err := ownCPUs()
	if err != nil {
		return nil, err
	}
	cpus, hw, err := m.cpus(usable)
	if err != nil {
		return nil, fmt.Errorf("look at the machine: %w", err)
	}
	inv := &Inventory{Hw: hw, CPUs: cpus, NUMA: m.numa()}
	h := &inv.Hw
	var errs [4]error
	h.MemMiB, _, errs[0] = m.Memory()
	h.TmpMiB, errs[1] = tmpMiB(o.TmpFS)
	h.OS, h.Arch, errs[2] = kernel()
	if inv.BootID, inv.BootAt, errs[3] = m.boot(); o.BootID != "" {
		inv.BootID, inv.BootAt = o.BootID, model.Time(wall.Milli())
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
	inv.Units, inv.unused, inv.Devices = f.units, f.unused, f.listed
	if !virtual || f.source != nil || f.asked {
		h.Gres, h.Notes, h.Problem = f.gres, f.notes, f.reason()
	}
	for i := range f.units {
		h.Units = append(h.Units, f.units[i].GresUnit)
		if f.units[i].Dev != nil {
			inv.GPUs = f.source
		}
	}
	return inv, nil
}
