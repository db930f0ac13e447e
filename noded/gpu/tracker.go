package gpu

import (
	"fmt"
	"slices"
)

// tracker.go makes readings of the monitor's samples. It, and not the monitor, finds new faults since the last reading,
// so that a replaced monitor causes no repeated or lost fault.

// sample is one GPU in one round of the monitor, without Faults.
type sample struct {
	Reading
	ECC           int64  // uncorrected memory errors since the driver was loaded; -1 unknown
	Remaps        bool   // it replaces rows of memory, and so contains most of those errors
	RemapPending  bool   // a row waits for a reset to be replaced
	RemapFailed   bool   // a row could not be
	RetirePending bool   // pages wait for a reset to be retired
	NeedsReset    bool   // the driver refuses it until then
	Why           string // it is Lost; "": it has fallen off the bus
	Recovery      recovery
	XIDs          []event // since the last round
	Instances     []instanceUse
}

// instanceUse is the use of one MIG instance.
type instanceUse struct {
	UUID      string
	MemMiB    int64 // used; -1 unknown
	AllMiB    int64
	Processes []Process
}

// event is an XID.
type event struct {
	Code     int
	Instance int // GPU instance; -1 the whole GPU
}

// tracker remembers the reported faults.
type tracker struct{ gpus []seen }

// seen is the known data of a GPU.
type seen struct {
	uuid                                string
	index                               int
	memMiB                              int64
	ecc                                 int64
	recovery                            recovery
	pending, failed, retire, lost, told bool
}

// take makes a round's readings.
func (t *tracker) take(gpus []sample) []Reading {
	out := make([]Reading, 0, len(gpus))
	there := map[*seen]bool{}
	t.gpus = slices.Grow(t.gpus, len(gpus)) // find appends, and its earlier results stay valid
	for i := range gpus {
		g := &gpus[i]
		s := t.find(g)
		if there[s] {
			continue
		}
		there[s] = true
		g.UUID = s.uuid
		g.Faults = s.faults(g)
		out = append(out, g.Reading)
	}
	for i := range t.gpus {
		if s := &t.gpus[i]; !there[s] {
			g := sample{Reading: unknown(s.uuid, s.index), ECC: -1, Recovery: recoveryUnknown}
			g.Lost, g.MemTotalMiB = true, s.memMiB
			g.Faults = s.faults(&g)
			out = append(out, g.Reading)
		}
	}
	for i := range gpus {
		for _, in := range gpus[i].Instances {
			r := unknown(in.UUID, gpus[i].Index)
			r.MemUsedMiB, r.MemTotalMiB, r.Processes = in.MemMiB, in.AllMiB, in.Processes
			out = append(out, r)
		}
	}
	return out
}

// unknown is a reading without data.
func unknown(uuid string, index int) Reading {
	return Reading{UUID: uuid, Index: index, UtilPct: -1, MemUtilPct: -1, MemUsedMiB: -1, MemTotalMiB: -1, TempC: -1,
		PowerMilliW: -1, EnergyMilliJ: -1, MemTempC: -1, SMClockMHz: -1, MemClockMHz: -1}
}

// find gives what is known of a GPU: by its UUID, or by its place where either side has none because it was lost before
// it was asked.
func (t *tracker) find(g *sample) *seen {
	at := slices.IndexFunc(t.gpus, func(s seen) bool { return g.UUID != "" && s.uuid == g.UUID })
	if at < 0 {
		at = slices.IndexFunc(t.gpus, func(s seen) bool { return s.index == g.Index && (g.UUID == "" || s.uuid == "") })
	}
	if at >= 0 {
		if s := &t.gpus[at]; s.uuid == "" {
			s.uuid = g.UUID
		}
		return &t.gpus[at]
	}
	t.gpus = append(t.gpus, seen{uuid: g.UUID, index: g.Index, memMiB: g.MemTotalMiB, ecc: -1, recovery: recoveryUnknown})
	return &t.gpus[len(t.gpus)-1]
}

// faults gives the new faults.
func (s *seen) faults(g *sample) []Fault {
	var out []Fault
	add := func(f Fault) {
		if len(out) < maxFaults {
			out = append(out, f)
		}
	}
	edge := func(was *bool, is bool, f Fault) {
		if is && !*was {
			add(f)
		}
		*was = is
	}
	why := g.Why
	if why == "" {
		why = lostText
	}
	edge(&s.lost, g.Lost && !g.NeedsReset, Fault{Kind: FaultLost, Text: why, Fatal: true})
	edge(&s.told, g.NeedsReset, Fault{Kind: FaultLost, Text: resetText, Fatal: true})
	if !g.Lost {
		s.memMiB = max(s.memMiB, g.MemTotalMiB)
		edge(&s.failed, g.RemapFailed,
			Fault{Kind: FaultRemap, Text: "a failing row of memory could not be replaced", Fatal: true})
		edge(&s.pending, g.RemapPending,
			Fault{Kind: FaultRemap, Text: "a failing row of memory is replaced at the GPU's next reset"})
		edge(&s.retire, g.RetirePending,
			Fault{Kind: FaultRetired, Text: "failing pages of memory are retired at the GPU's next reset"})
		if n := s.grown(g.ECC); n > 0 {
			// A GPU that replaces rows contains the error, or says with an XID that it could not.
			add(Fault{Kind: FaultECC, Code: int(n), Text: fmt.Sprintf("%d new uncorrectable memory errors", n),
				Fatal: !g.Remaps})
		}
	}
	if f, ok := g.Recovery.fault(); ok && g.Recovery != s.recovery {
		add(f)
	}
	s.recovery = g.Recovery
	for _, x := range g.XIDs { // last: they name the cause
		add(xidFault(x.Code, x.Instance, g.Recovery))
	}
	return out
}

// grown gives the number of new errors. The count starts again at a reset; errors of the first reading are old.
func (s *seen) grown(now int64) int64 {
	if now < 0 {
		return 0
	}
	before := s.ecc
	s.ecc = now
	switch {
	case before < 0:
		return 0
	case now < before:
		return now
	}
	return now - before
}
