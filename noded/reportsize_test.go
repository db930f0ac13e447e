package noded

import (
	"fmt"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// TestReportsFitFrames: one message has no more reports than a leader takes, however large they are; each goes once,
// in order, those that were asked for again too.
func TestReportsFitFrames(t *testing.T) {
	use := &model.Usage{}
	for n := range 256 {
		use.Nodes = append(use.Nodes, model.NodeUsage{Node: fmt.Sprintf("node%04d", n), PeakKB: 1 << 40,
			GPUs: make([]model.GPUUsage, 8)})
		for g := range 8 {
			use.Nodes[n].GPUs[g].UUID = "GPU-4c4c4544-0051-3410-8031-b4c04f503533"
		}
	}
	o := newOutbox()
	for seq := range 300 {
		r := &proto.Report{Seq: uint64(seq + 1), Kind: proto.ReportStep, Job: 1, Attempt: 1, Step: &model.Step{ID: 1}}
		if seq%3 > 0 {
			r.Step.Exit.Use = use
		}
		o.put(r)
	}
	o.put(&proto.Report{Seq: 301, Kind: proto.ReportEnded, Job: 2, Attempt: 1})
	sent := map[uint64]int{}
	last := uint64(0)
	for again := range 2 {
		for {
			list := o.after(last, reportsPerFrame)
			if len(list) == 0 {
				break
			}
			body, err := proto.Encode(&proto.Reports{Reports: list})
			if err != nil || len(body) > 2*frameBytes {
				t.Fatalf("%d reports are %d bytes: %v", len(list), len(body), err)
			}
			for _, r := range list {
				sent[r.Seq]++
				last = max(last, r.Seq)
			}
		}
		for seq := uint64(1); seq <= 301; seq++ {
			if sent[seq] != again+1 {
				t.Fatalf("round %d: report %d was sent %d times", again, seq, sent[seq])
			}
		}
		o.repeat(o.reports)
	}
	if big := wideReport(3000); reportBytes(big) < frameBytes || len(newOutboxOf(big).after(0, 1)) != 1 {
		t.Error("one that is larger than a frame is not sent")
	}
}

func wideReport(nodes int) *proto.Report {
	use := &model.Usage{Nodes: make([]model.NodeUsage, nodes)}
	for i := range use.Nodes {
		use.Nodes[i].GPUs = make([]model.GPUUsage, 8)
	}
	return &proto.Report{Seq: 1, Kind: proto.ReportStep, Step: &model.Step{Exit: model.Exit{Use: use}}}
}

func newOutboxOf(r *proto.Report) *outbox {
	o := newOutbox()
	o.put(r)
	return o
}
