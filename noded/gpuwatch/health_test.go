package gpuwatch

import (
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gbatch/internal/jobenv"
	"gbatch/internal/model"
	"gbatch/noded/gpu"
	"gbatch/noded/hardware"
)

// TestGPUHealth: a node's list of bad GPUs, round by round.
func TestGPUHealth(t *testing.T) {
	me := os.Getpid()
	devices := []gpu.Device{{UUID: "A", Index: 0, Path: "/x/nvidia0"}, {UUID: "B", Index: 1, Path: "/x/nvidia1"},
		{UUID: "C", Index: 2, Path: "/x/nvidia2"}}
	// Numbered otherwise than the driver does, and C is cut into two instances.
	units := []hardware.Unit{{Name: "gpu", Index: 1, Files: []string{"/x/nvidia0"}}, {Name: "gpu", Index: 0, Seen: 2},
		{Name: "gpu", Index: 2, Files: []string{"/x/nvidia2", "/x/cap1"}, UUID: "MIG-1"},
		{Name: "gpu", Index: 3, Files: []string{"/x/nvidia2", "/x/cap2"}, UUID: "MIG-2"},
		{Name: "shard", Index: 0, Files: []string{"/x/nvidia0"}}}
	used := func(mem int64) gpu.Reading {
		return gpu.Reading{UUID: "A", MemTotalMiB: 100, MemUsedMiB: mem, Processes: []gpu.Process{{PID: me, MemMiB: mem}}}
	}
	broken := gpu.Reading{UUID: "C", Lost: true,
		Faults: []gpu.Fault{{Kind: gpu.FaultXID, Code: 13, Text: "user's"},
			{Kind: gpu.FaultXID, Code: 79, Text: "fallen off\nthe bus", Fatal: true}}}
	for name, tc := range map[string]struct {
		policy string
		mine   bool // the process is a job's
		busy   bool // the node has jobs
		rounds [][]gpu.Reading
		want   []string
	}{
		"well":       {rounds: [][]gpu.Reading{{{UUID: "A"}, {UUID: "B"}, {UUID: "D"}}}},
		"another's":  {rounds: [][]gpu.Reading{{used(30)}}, want: []string{"1 in use by process"}},
		"too little": {rounds: [][]gpu.Reading{{used(19)}}},
		"no size":    {rounds: [][]gpu.Reading{{used(-1)}}, want: []string{"1 in use by process"}},
		"a job's":    {mine: true, rounds: [][]gpu.Reading{{used(30)}}},
		"ignored":    {policy: Ignore, rounds: [][]gpu.Reading{{used(30)}}},
		"drained": {policy: drain, rounds: [][]gpu.Reading{{used(30)}},
			want: []string{"1 fault in use by process"}},
		"over again": {rounds: [][]gpu.Reading{{used(30)}, {used(0)}}},
		"nobody named": {
			rounds: [][]gpu.Reading{{{UUID: "B", MemTotalMiB: 100, MemUsedMiB: 20}},
				{{UUID: "B", MemTotalMiB: 100, MemUsedMiB: 20}}},
			want: []string{"0 more than 20 % of its memory is in use, and no job has it"}},
		"for a moment": {rounds: [][]gpu.Reading{{{UUID: "B", MemTotalMiB: 100, MemUsedMiB: 20}}}},
		"nobody named, jobs": {busy: true,
			rounds: [][]gpu.Reading{{{UUID: "B", MemTotalMiB: 100, MemUsedMiB: 20}},
				{{UUID: "B", MemTotalMiB: 100, MemUsedMiB: 20}}}},
		"no UUID": {
			rounds: [][]gpu.Reading{
				{{UUID: "", Index: 1, Lost: true, Faults: []gpu.Fault{{Kind: gpu.FaultLost, Text: "gone", Fatal: true}}}}},
			want: []string{"0 fault gone"}},
		"an instance's own": {
			rounds: [][]gpu.Reading{{{UUID: "C", MemTotalMiB: 100, Processes: []gpu.Process{{PID: me, MemMiB: 50}}},
				{UUID: "MIG-1", Index: 2, MemTotalMiB: 50},
				{UUID: "MIG-2", Index: 2, MemUsedMiB: 50, MemTotalMiB: 50, Processes: []gpu.Process{{PID: me, MemMiB: 50}}}}},
			want: []string{"3 in use by process"}},
		"to be reset": {
			rounds: [][]gpu.Reading{
				{{UUID: "B", Faults: []gpu.Fault{{Kind: gpu.FaultRecovery, Code: 4, Text: "when its work has ended"},
					{Kind: gpu.FaultXID, Code: 13}}}}}, want: []string{"0 spent when its work has ended"}},
		"to be reset now": {
			rounds: [][]gpu.Reading{
				{{UUID: "B", Faults: []gpu.Fault{{Kind: gpu.FaultRecovery, Code: 4},
					{Kind: gpu.FaultXID, Code: 79, Fatal: true}}}}}, want: []string{"0 fault XID 79"}},
		"broken": {rounds: [][]gpu.Reading{{broken}},
			want: []string{"2 fault XID 79: fallen off the bus", "3 fault XID 79: fallen off the bus"}},
		"broken stays": {rounds: [][]gpu.Reading{{broken}, {{UUID: "C"}}},
			want: []string{"2 fault XID 79: fallen off the bus", "3 fault XID 79: fallen off the bus"}},
	} {
		t.Run(name, func(t *testing.T) {
			policy := tc.policy
			if policy == "" {
				policy = Avoid
			}
			h := NewHealth(devices, units, policy, 20, slog.New(slog.DiscardHandler))
			h.Ours, h.Free = func(int) bool { return tc.mine }, func(jobenv.Unit) bool { return !tc.busy }
			if _, _, known := h.Account(); known {
				t.Error("it knows before it has looked")
			}
			for i, r := range tc.rounds {
				h.Round(Round{At: time.UnixMilli(int64(1000 + i)), Readings: r})
			}
			tells, _, known := h.Account()
			slices.SortFunc(tells, func(a, b model.UnitTell) int { return int(a.Index - b.Index) })
			if !known || len(tells) != len(tc.want) {
				t.Fatalf("tells %+v, want %q", tells, tc.want)
			}
			for i, tell := range tells {
				text := string(rune('0'+tell.Index)) + " "
				switch tell.Kind {
				case model.OutFault:
					text += "fault "
				case model.OutSpent:
					text += "spent "
				}
				if text += tell.Text; !strings.HasPrefix(text, tc.want[i]) || tell.Name != "gpu" {
					t.Errorf("tells %q, want %q", text, tc.want[i])
				}
			}
		})
	}
}

// TestGPUHealthWakes: only a change of the list causes a heartbeat.
func TestGPUHealthWakes(t *testing.T) {
	h := NewHealth([]gpu.Device{{UUID: "A"}}, nil, Avoid, 20, slog.New(slog.DiscardHandler))
	h.Ours, h.Free = func(int) bool { return false }, func(jobenv.Unit) bool { return true }
	news := func() bool {
		select {
		case <-h.Changed():
			return true
		default:
			return false
		}
	}
	full := gpu.Reading{UUID: "A", MemTotalMiB: 100, MemUsedMiB: 50,
		Processes: []gpu.Process{{PID: os.Getpid(), MemMiB: 50}}}
	for i, step := range []struct {
		round Round
		news  bool
	}{
		{Round{Err: os.ErrClosed}, false},
		{Round{Readings: []gpu.Reading{{UUID: "A"}}}, true}, // now it is known
		{Round{Readings: []gpu.Reading{{UUID: "A"}}}, false},
		{Round{Readings: []gpu.Reading{full}}, true},
		{Round{Readings: []gpu.Reading{full}}, false},
		{Round{Err: os.ErrClosed}, false}, // unknown: the account stays
		{Round{Readings: []gpu.Reading{{UUID: "A"}}}, true},
	} {
		if h.Round(step.round); news() != step.news {
			t.Errorf("step %d: news %v", i, !step.news)
		}
	}
	// A GPU that was broken at gnoded's start is reported before the first round.
	broken := []gpu.Device{{UUID: "A", Fault: "gone"}, {Index: 1}}
	h = NewHealth(broken, nil, Avoid, 20, slog.New(slog.DiscardHandler))
	h.Begin(broken, time.UnixMilli(7))
	if tells, _, known := h.Account(); !known || len(tells) != 1 ||
		tells[0] != (model.UnitTell{Name: "gpu", Kind: model.OutFault, Text: "gone", Stamp: 7}) {
		t.Errorf("%+v %v", tells, known)
	}
	h = NewHealth(broken[1:], nil, Avoid, 20, slog.New(slog.DiscardHandler))
	h.Begin(broken[1:], time.UnixMilli(7))
	if _, _, known := h.Account(); known {
		t.Error("it knows before it has looked")
	}
	var none *Health
	if _, _, known := none.Account(); known || none.Changed() != nil {
		t.Error("a node without GPUs knows of some")
	}
}

// TestGPUHealthTellsMemory: memory of processes outside of jobs is reported in steps, and again only after a change of
// more than one step.
func TestGPUHealthTellsMemory(t *testing.T) {
	h := NewHealth([]gpu.Device{{UUID: "A"}}, nil, Avoid, 20, slog.New(slog.DiscardHandler))
	ours, free := map[int]bool{7: true}, true
	h.Ours, h.Free = func(pid int) bool { return ours[pid] }, func(jobenv.Unit) bool { return free }
	read := func(mem, theirs, mine int64) gpu.Reading {
		g := gpu.Reading{UUID: "A", MemTotalMiB: 80000, MemUsedMiB: mem}
		if theirs > 0 {
			g.Processes = append(g.Processes, gpu.Process{PID: 1, MemMiB: theirs})
		}
		if mine > 0 {
			g.Processes = append(g.Processes, gpu.Process{PID: 7, MemMiB: mine})
		}
		return g
	}
	for i, step := range []struct {
		g    gpu.Reading
		free bool
		want int64
	}{
		{read(400, 400, 0), true, 0}, // the driver's own part
		{read(5000, 5000, 0), true, 5120},
		{read(4700, 4700, 0), true, 5120},
		{read(5121, 5121, 0), true, 5632},
		{read(4000, 4000, 0), true, 4096},
		{read(30000, 4000, 26000), false, 4096},
		{read(26000, 0, 26000), false, 0},
		{read(9000, 0, 0), true, 0}, // it has just ended
		{read(9000, 0, 0), true, 9216},
		{read(9000, 0, 0), false, 0}, // a job has it
	} {
		free = step.free
		h.Round(Round{Readings: []gpu.Reading{step.g}})
		_, held, _ := h.Account()
		got := int64(0)
		for _, x := range held {
			got += x.MemMiB
		}
		if got != step.want {
			t.Errorf("step %d: tells of %d MiB, not %d", i, got, step.want)
		}
	}
}
