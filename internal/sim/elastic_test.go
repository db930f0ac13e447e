package sim

import (
	"math/rand/v2"
	"testing"

	"gbatch/internal/model"
)

// TestElasticReplay: an elastic job takes what is free, gives back what a higher class asks for, takes it again, and
// does exactly its work.
func TestElasticReplay(t *testing.T) {
	m := equalNodes(Size{Nodes: 4, CPUsPerNode: 8})
	names := m.Config.Partitions[0].Nodes
	one(m.Config, "urgent", names, false)
	m.Config.Partitions[1].PriorityTier = 5
	w := &Workload{Name: "two", Jobs: []Job{
		{ID: 1, Run: 1000, Request: 2000, CPUs: 16, User: "a"},
		{ID: 2, Submit: 100, Run: 100, Request: 200, CPUs: 16, User: "b", Queue: "urgent"},
		{ID: 3, Submit: 100, Run: 50, Request: 60, CPUs: 4, User: "b", Queue: "urgent"}, // a part of a node: never elastic
	}}
	for _, tc := range []struct {
		share float64
		ends  [3]int64
		use   *ElasticUse
	}{
		{0, [3]int64{1000, 200, 250}, nil},
		// 400 of the first job's 2,000 node-seconds are done at 100; then it has two nodes, three from 150 and four from 300.
		{1, [3]int64{563, 300, 150}, &ElasticUse{Jobs: 2, Grown: 2, Shrunk: 1}},
	} {
		s, err := NewScheduler("easy", m)
		if err != nil {
			t.Fatal(err)
		}
		out, err := Replay(t.Context(), Setup{Work: w, Machine: m, Scheduler: s, ElasticShare: tc.share})
		if err != nil {
			t.Fatal(err)
		}
		if [3]int64(out.End) != tc.ends {
			t.Errorf("share %g: ends %v, want %v", tc.share, out.End, tc.ends)
		}
		if last := out.Load[len(out.Load)-1]; last.Busy != 0 {
			t.Errorf("share %g: %d units are busy at the end", tc.share, last.Busy)
		}
		if got := out.Elastic; (got == nil) != (tc.use == nil) ||
			got != nil && (got.Jobs != tc.use.Jobs || got.Grown != tc.use.Grown || got.Shrunk != tc.use.Shrunk) {
			t.Errorf("share %g: %+v, want %+v", tc.share, got, tc.use)
		}
	}
}

// TestElasticSegments: with segments of two nodes in blocks of three, a job grows into whole ones and does its work.
func TestElasticSegments(t *testing.T) {
	m := equalNodes(Size{Nodes: 6, CPUsPerNode: 8})
	names := m.Config.Partitions[0].Nodes
	m.Config.Blocks = &model.Blocks{Sizes: []int32{3, 6},
		List: []*model.Block{{Name: "a", Nodes: names[:3]}, {Name: "b", Nodes: names[3:]}}}
	if !m.hasBlocks() {
		t.Fatal("there are no blocks")
	}
	w := &Workload{Name: "one", Jobs: []Job{{ID: 1, Run: 1000, Request: 2000, CPUs: 24, User: "a"}}}
	for _, tc := range []struct {
		segment int32
		end     int64
	}{
		{0, 500}, // 3,000 node-seconds on six nodes
		{2, 750}, // on two segments, as many as there are in blocks of three
	} {
		s, err := NewScheduler("easy", m)
		if err != nil {
			t.Fatal(err)
		}
		out, err := Replay(t.Context(), Setup{Work: w, Machine: m, Scheduler: s, ElasticShare: 1, Segment: tc.segment})
		if err != nil {
			t.Fatal(err)
		}
		if out.End[0] != tc.end {
			t.Errorf("segments of %d: it ends at %d, want %d", tc.segment, out.End[0], tc.end)
		}
	}
}

// TestElasticShares: whatever the share, all jobs end, the machine is never overfull and is empty at the end, and with
// elastic jobs the last one ends no later than without.
func TestElasticShares(t *testing.T) {
	m := equalNodes(Size{Nodes: 16, CPUsPerNode: 4, GPUsPerNode: 4})
	rng := rand.New(rand.NewPCG(5, 7))
	w := &Workload{Name: "drawn"}
	for i := range 300 {
		n := 1 + rng.Int32N(6)
		run := 60 + rng.Int64N(3000)
		w.Jobs = append(w.Jobs, Job{ID: int64(i + 1), Submit: int64(i) * 120, Run: run, Request: run * (1 + rng.Int64N(4)),
			CPUs: 4 * n, GPUs: 4 * n, User: string(rune('a' + i%7))})
	}
	stiff := int64(0)
	for _, share := range []float64{0, 0.5, 1} {
		s, err := NewScheduler(DefaultScheduler, m)
		if err != nil {
			t.Fatal(err)
		}
		out, err := Replay(t.Context(), Setup{Work: w, Machine: m, Scheduler: s, ElasticShare: share, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		met := out.Measure()
		for _, l := range out.Load {
			if l.Busy < 0 || l.Busy > int64(met.Total) {
				t.Fatalf("share %g: %d of %d units are busy at %d", share, l.Busy, met.Total, l.At)
			}
		}
		if met.Jobs != len(w.Jobs) || out.Load[len(out.Load)-1].Busy != 0 {
			t.Errorf("share %g: %d jobs ran, %d units busy at the end", share, met.Jobs, out.Load[len(out.Load)-1].Busy)
		}
		t.Logf("share %g: average wait %.0f s, makespan %d s, %+v", share, met.AvgWait, met.MakespanS, met.Elastic)
		if share == 0 {
			stiff = met.MakespanS
		} else if met.MakespanS > stiff || met.Elastic.Jobs == 0 || met.Elastic.Grown == 0 {
			t.Errorf("share %g: makespan %d s, without %d; %+v", share, met.MakespanS, stiff, met.Elastic)
		}
	}
}
