package ctld

import (
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// gpucost.go computes the cost of each GPU from its last reading, for GpuSelectPolicy. Only the leader has readings,
// and only the leader plans.

// idleFull is the idle time after which an idle GPU costs least, seconds.
const idleFull = 3600

// idleUnits has the moments since which a node's units have been idle. The session's mu guards it.
type idleUnits map[proto.UnitHolder]time.Time

// note updates it from a heartbeat's readings.
func (u idleUnits) note(readings []proto.UnitReading, now time.Time) {
	for i := range readings {
		r := &readings[i]
		key := proto.UnitHolder{Name: r.Name, Index: r.Index}
		switch _, idle := u[key]; {
		case r.UtilPct != 0:
			delete(u, key)
		case !idle && len(u) < proto.MaxUnits:
			u[key] = now
		}
	}
}

// gpuCost gives a function for the costs of a node's GPUs by number; nil if there are no readings.
func (c *Controller) gpuCost(how model.GPUSelect) func(node string) []int32 {
	return func(node string) []int32 {
		s := c.nodes.session(node)
		if s == nil {
			return nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		var out []int32
		for i := range s.beat.Readings {
			r := &s.beat.Readings[i]
			if r.Name != model.GPUName || r.Index < 0 || r.Index >= proto.MaxUnits {
				continue
			}
			for int(r.Index) >= len(out) {
				out = append(out, 0)
			}
			out[r.Index] = unitCost(r, s.idle[proto.UnitHolder{Name: r.Name, Index: r.Index}], how, time.Now())
		}
		return out
	}
}

// unitCost gives the cost of a reading. A value that is not known counts half.
func unitCost(r *proto.UnitReading, idle time.Time, how model.GPUSelect, now time.Time) int32 {
	percent := func(n, of int64) int32 {
		if n < 0 || of <= 0 {
			return 50
		}
		return int32(min(100, n*100/of))
	}
	busy := int32(100)
	if !idle.IsZero() {
		busy -= percent(int64(now.Sub(idle)/time.Second), idleFull)
	}
	return how.Mem*percent(r.MemUsedMiB, r.MemTotalMiB) + how.Util*percent(int64(r.UtilPct), 100) +
		how.Temp*percent(int64(r.TempC), 100) + how.Idle*busy
}

// loadedNow gives a node with those models that its GPUs are still taken to have loaded.
func loadedNow(n *model.Node, v *state.View, now model.Time) *model.Node {
	if len(n.Tags) == 0 {
		return n
	}
	out := *n
	out.Tags = n.Loaded(now, &v.Config().Params.Cache)
	return &out
}
