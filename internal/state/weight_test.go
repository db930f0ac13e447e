package state

import (
	"fmt"
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// TestWeights: what events weigh never changes, as decisions of Apply rest on it, and is about what they take.
func TestWeights(t *testing.T) {
	spec := &model.Spec{Name: "train", UID: 1000, GID: 1000, Groups: []uint32{1000, 1001, 1002}, User: "ann",
		Group: "users", Account: "physics", QOS: "normal", Partitions: []string{"gpu", "long"},
		Script: strings.Repeat("5", 64), Env: strings.Repeat("6", 64), Args: []string{"--lr", "0.1"},
		Command: "/home/ann/train.sh", WorkDir: "/home/ann", StdOut: "/home/ann/slurm-%j.out", Host: "login1",
		Gres: []model.GresReq{{Name: "gpu", Type: "h200", Count: 8}}}
	var nodes []model.NodeAlloc
	use := &model.Usage{}
	for i := range 16 {
		name := fmt.Sprintf("node%03d", i)
		nodes = append(nodes, model.NodeAlloc{Node: name, CPUs: model.Bits{1<<64 - 1, 1<<64 - 1}, MemMiB: 1 << 20,
			Gres: []model.GresAlloc{{Name: "gpu", Type: "h200"}}})
		u := model.NodeUsage{Node: name, Tasks: 8, CPUs: 128, MemMiB: 1 << 20, UserMS: 1e9, SysMS: 1e8, PeakKB: 1e9,
			RSSKB: 1e9, VMKB: 1e10, Faults: 1e6, ReadB: 1e12, WriteB: 1e12, Procs: 100, EveryS: 30, Samples: 1000}
		for g := range int32(8) {
			u.GPUs = append(u.GPUs, model.GPUUsage{Index: g, UUID: "GPU-4c4c4544-0051-3410-8031-b4c04f503533", Samples: 1000,
				UtilSum: 90000, UtilMax: 100, MemMaxMiB: 80000, MemMiB: 81559, OwnMaxMiB: 79000, EnergyMJ: 1e10,
				UtilCount: 1000})
		}
		use.Nodes = append(use.Nodes, u)
	}
	small := &model.Job{ID: 1, Task: model.NoTask, Spec: spec, State: model.Completed, Submit: 1e12, Begin: 1e12,
		Attempt: 1, End: &model.End{At: 1e12},
		Run: &model.Run{Partition: "gpu", Alloc: &model.Alloc{Nodes: nodes[:1]}, Start: 1e12, LimitS: 3600}}
	large := *small
	large.Run = &model.Run{Partition: "gpu", Alloc: &model.Alloc{Nodes: nodes}, Start: 1e12, LimitS: 3600}
	large.End = &model.End{At: 1e12, Exit: model.Exit{Use: use}}
	long := *small
	sp := *spec
	sp.Args = []string{strings.Repeat("x", 10_000)}
	long.Spec = &sp
	for _, c := range []struct {
		name string
		e    Event
		want int64
	}{
		{"a small job", Event{Job: small}, 591},
		{"a large job", Event{Job: &large}, 23_383},
		{"long arguments", Event{Job: &long}, 10_582},
		{"a step", Event{Job: small, Step: &model.Step{Name: "train", Submit: "srun train", Nodes: []string{"node000"},
			Exit: model.Exit{Use: use}}}, 22_541},
		{"an entry", Event{Job: noJob, Audit: &model.Audit{Event: "changed", What: "job", Name: "1",
			Text: strings.Repeat("x", 500)}}, 701},
	} {
		kept := snapEvent{Seq: 1, Job: c.e.Job.ID, Step: c.e.Step, Audit: c.e.Audit}
		if c.e.Audit == nil {
			kept.Record = &snapJob{Job: c.e.Job}
		}
		data, err := wire.Marshal(&kept)
		n := c.e.weight()
		if err != nil || n != c.want || n < int64(len(data))/2 || n > int64(len(data))*3 {
			t.Errorf("%s weighs %d, not %d, and takes %d bytes: %v", c.name, n, c.want, len(data), err)
		}
	}
}

// TestKeptByWeight: which acknowledged events are kept depends on what they weigh; packs of before count by their
// bytes.
func TestKeptByWeight(t *testing.T) {
	for rules, light := range map[uint8]bool{rulesBrief: false, rulesWeighed: true} {
		k := newShipped()
		job := &model.Job{ID: 1, Task: model.NoTask, Spec: &model.Spec{Name: strings.Repeat("x", 100)}}
		trim := &Trim{Acked: true, Keep: 1000, KeepBytes: 10 * jobWeight(job), KeepS: 3600}
		for seq := range uint64(40) {
			if err := k.keep(1000, trim, &Event{Seq: seq + 1, Job: job}, rules); err != nil {
				t.Fatal(err)
			}
		}
		k.drop(1000, trim)
		if err := k.check(100); err != nil || k.bytes > trim.KeepBytes || (k.bytes == k.events*jobWeight(job)) != light ||
			k.events == 0 {
			t.Errorf("rules %d: %d events that weigh %d are kept: %v", rules, k.events, k.bytes, err)
		}
	}
}
