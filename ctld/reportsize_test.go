package ctld

import (
	"fmt"
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
	"gbatch/internal/store"
)

// wideStep gives the report of a step on many nodes, as its node makes it.
func wideStep(nodes, gpus int) *proto.Report {
	use := &model.Usage{}
	r := &proto.Report{Kind: proto.ReportStep, Job: 1, Attempt: 1, Step: &model.Step{ID: 1, Name: "x", Submit: "srun x"}}
	for n := range nodes {
		u := model.NodeUsage{Node: fmt.Sprintf("node%04d", n), Tasks: 8, CPUs: 128, MemMiB: 1 << 20, UserMS: 1 << 30,
			SysMS: 1 << 24, PeakKB: 1 << 28, RSSKB: 1 << 28, VMKB: 1 << 30, Faults: 1000, ReadB: 1 << 40, WriteB: 1 << 40,
			Procs: 100, EveryS: 30, Samples: 100}
		for g := range gpus {
			u.GPUs = append(u.GPUs, model.GPUUsage{Index: int32(g), UUID: "GPU-4c4c4544-0051-3410-8031-b4c04f503533",
				Samples: 100, UtilSum: 9000, UtilMax: 100, MemMaxMiB: 80000, MemMiB: 81559, OwnMaxMiB: 79000,
				EnergyMJ: 1 << 36, UtilCount: 100})
		}
		use.Nodes = append(use.Nodes, u)
		r.Step.Nodes = append(r.Step.Nodes, u.Node)
	}
	r.Step.Exit.Use = use
	return r
}

// TestReportsFitTheLog: however large the reports that arrive together are, each command with some of them goes into
// the log; none is lost, and none changes its place.
func TestReportsFitTheLog(t *testing.T) {
	unwritable := wideStep(1, 1) // its node would have to lie
	unwritable.Step.Exit.Use.Nodes[0].Node = strings.Repeat("x", model.MaxName+1)
	for name, c := range map[string]struct {
		many  int
		wide  *proto.Report
		whole bool
	}{"256 nodes": {200, wideStep(256, 8), true}, "1000 nodes": {60, wideStep(1000, 8), true},
		"6000 nodes": {3, wideStep(6000, 8), false}, "unwritable": {3, unwritable, false}} {
		var list []state.Report
		for n := range c.many {
			r := *c.wide
			r.Job = model.JobID(n + 1)
			list = append(list, reported("n1", &r))
		}
		list = append(list, reported("n2", &proto.Report{Kind: proto.ReportEnded, Job: model.JobID(c.many + 1), Attempt: 1}))
		next := model.JobID(1)
		for _, part := range inCommands(list) {
			data, err := state.Encode(1, &state.Reports{Reports: part, Placed: true})
			if err != nil || len(data) > store.MaxCommandBytes*3/4 {
				t.Fatalf("%s: %d reports are %d bytes, %v", name, len(part), len(data), err)
			}
			for i := range part {
				if part[i].Job != next || part[i].Step != nil && (part[i].Step.Exit.Use != nil) != c.whole {
					t.Errorf("%s: the report in place %d is of job %d, with details: %v", name, next, part[i].Job, part[i].Step)
				}
				next++
			}
		}
		if int(next) != len(list)+1 {
			t.Errorf("%s: %d of %d reports are left", name, next-1, len(list))
		}
	}
	if got := inCommands(nil); got != nil {
		t.Errorf("no reports become %d commands", len(got))
	}
}
