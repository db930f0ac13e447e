package noded

import (
	"sync"

	"gbatch/internal/proto"
	"gbatch/noded/gpu"
)

// gpureadings.go is what the heartbeat says of each unit: the last reading, and what has gone wrong since gnoded began.

// unitTrouble is what has gone wrong with one device.
type unitTrouble struct {
	xid   int
	fault string // the last fatal one
}

// troubles gathers the faults of readings by UUID. The devices of a node bound it.
type troubles struct {
	mu sync.Mutex
	by map[string]unitTrouble
}

// note takes a round.
func (t *troubles) note(r gpuRound) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range r.Readings {
		g := &r.Readings[i]
		for _, f := range g.Faults {
			x := t.by[g.UUID]
			if f.Kind == gpu.FaultXID {
				x.xid = f.Code
			}
			if f.Fatal {
				x.fault = f.Text
			}
			if t.by == nil {
				t.by = map[string]unitTrouble{}
			}
			t.by[g.UUID] = x
		}
	}
}

func (t *troubles) of(uuid string) unitTrouble {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.by[uuid]
}

// maxFault bounds a fault's text in a heartbeat, bytes.
const maxFault = 120

// unitReadings gives the last round by unit. An instance has its own memory at most: the rest is the whole GPU's.
func (n *Noded) unitReadings() []proto.UnitReading {
	round := n.gpus.last()
	if len(round.Readings) == 0 {
		return nil
	}
	var out []proto.UnitReading
	for i := range n.inv.units {
		u := &n.inv.units[i]
		if u.dev == nil || len(out) == proto.MaxUnits {
			continue
		}
		for k := range round.Readings {
			r := &round.Readings[k]
			if r.UUID != u.UUID && r.UUID != u.Parent && r.UUID != u.dev.UUID {
				continue
			}
			t := n.troubles.of(r.UUID)
			x := proto.UnitReading{Name: u.Name, Index: u.Index, UtilPct: int32(r.UtilPct), MemUtilPct: int32(r.MemUtilPct), MemUsedMiB: r.MemUsedMiB,
				MemTotalMiB: r.MemTotalMiB, TempC: int32(r.TempC), PowerMilliW: r.PowerMilliW, XID: int32(t.xid), Fault: t.fault[:min(len(t.fault), maxFault)],
				Lost: r.Lost, Processes: int32(len(r.Processes))}
			if u.inst != nil {
				x.MemUsedMiB, x.MemTotalMiB = -1, u.MemMiB
			}
			out = append(out, x)
			break
		}
	}
	return out
}
