package gpuwatch

import (
	"sync"

	"gbatch/internal/proto"
	"gbatch/noded/gpu"
	"gbatch/noded/hardware"
)

// readings.go makes the heartbeat's data about each unit: the last reading, and the faults since gnoded's start.

// unitTrouble is the faults of one device.
type unitTrouble struct {
	xid   int
	fault string // the last fatal one
}

// Troubles gathers the faults of readings by UUID. The number of the node's devices limits it.
type Troubles struct {
	mu sync.Mutex
	by map[string]unitTrouble // by keyOf
}

// Note adds a round.
func (t *Troubles) Note(r Round) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range r.Readings {
		g := &r.Readings[i]
		for _, f := range g.Faults {
			x := t.by[keyOf(g.UUID, g.Index)]
			if f.Kind == gpu.FaultXID {
				x.xid = f.Code
			}
			if f.Fatal {
				x.fault = f.Text
			}
			if t.by == nil {
				t.by = map[string]unitTrouble{}
			}
			t.by[keyOf(g.UUID, g.Index)] = x
		}
	}
}

func (t *Troubles) of(g *gpu.Reading) unitTrouble {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.by[keyOf(g.UUID, g.Index)]
}

// maxFault bounds a fault's text in a heartbeat, bytes.
const maxFault = 120

// UnitReadings gives a round by unit. An instance has its GPU's temperature, power and faults, since only the whole GPU
// has them.
func UnitReadings(inv *hardware.Inventory, round Round, t *Troubles) []proto.UnitReading {
	if len(round.Readings) == 0 {
		return nil
	}
	var out []proto.UnitReading
	for i := range inv.Units {
		u := &inv.Units[i]
		if u.Dev == nil || len(out) == proto.MaxUnits {
			continue
		}
		r := readingOf(round.Readings, u.Dev.UUID, u.Dev.Index)
		if r == nil {
			continue
		}
		seen := t.of(r)
		x := proto.UnitReading{Name: u.Name, Index: u.Index, UtilPct: int32(r.UtilPct), MemUtilPct: int32(r.MemUtilPct),
			MemUsedMiB:  r.MemUsedMiB,
			MemTotalMiB: r.MemTotalMiB, TempC: int32(r.TempC), PowerMilliW: r.PowerMilliW, XID: int32(seen.xid),
			Fault: seen.fault[:min(len(seen.fault), maxFault)],
			Lost:  r.Lost, Processes: int32(len(r.Processes))}
		if u.Inst != nil {
			x.UtilPct, x.MemUtilPct, x.MemUsedMiB, x.MemTotalMiB, x.Processes = -1, -1, -1, u.MemMiB, 0
			if own := readingOf(round.Readings, u.UUID, -1); own != nil {
				x.UtilPct, x.MemUsedMiB, x.Processes = int32(own.UtilPct), own.MemUsedMiB, int32(len(own.Processes))
				x.MemTotalMiB = max(x.MemTotalMiB, own.MemTotalMiB)
			}
		}
		out = append(out, x)
	}
	return out
}

// readingOf finds a GPU's reading by UUID, or by its place if the driver had no UUID for it.
func readingOf(list []gpu.Reading, uuid string, index int) *gpu.Reading {
	for i := range list {
		if r := &list[i]; uuid != "" && r.UUID == uuid || (uuid == "" || r.UUID == "") && r.Index == index {
			return r
		}
	}
	return nil
}
