package seff

import (
	"strconv"
	"strings"
	"testing"

	"gbatch/internal/model"
)

// ended is a job of an hour's limit or more that ran for s seconds, its cores busy for pct percent.
func ended(name string, s, limit int64, cpus int32, pct, peakMiB int64, util int32) *model.Record {
	node := model.NodeUsage{Node: "n1", UserMS: s * int64(cpus) * pct * 10, PeakKB: peakMiB << 10}
	r := &model.Record{Name: name, Partition: "gpu", State: model.Completed, Start: 1000, End: model.Time(1000 + s*1000),
		LimitS: limit, NumNodes: 1, AllocCPUs: cpus, AllocMemMiB: 65536}
	if util >= 0 {
		r.AllocGres = []model.GresCount{{Name: model.GPUName, Count: 2}}
		for i := range int32(2) {
			node.GPUs = append(node.GPUs, model.GPUUsage{Index: i, Samples: 10, UtilCount: 10, UtilSum: int64(util) * 10,
				UtilMax: util, MemMaxMiB: 20000, MemMiB: 81920})
		}
	}
	r.Exit.Use = &model.Usage{Nodes: []model.NodeUsage{node}}
	return r
}

// TestGroups: what ten equal jobs could have asked for, and how long what they held was idle.
func TestGroups(t *testing.T) {
	var g Groups
	for i := range int64(10) {
		g.Add(ended("train", 4000+i*100, 86400, 8, 10, 9000, 40))
	}
	g.Add(&model.Record{Name: "train", Partition: "gpu", State: model.Cancelled, End: 5}) // never ran
	g.Add(ended("tight", 3500, 3600, 1, 99, 60000, -1))
	list := g.List()
	if g.Jobs != 11 || len(list) != 2 || list[0].Name != "train" {
		t.Fatalf("%d jobs, %+v", g.Jobs, list)
	}
	x := list[0]
	if x.CoreS != 8*44500 || x.IdleCoreS != 8*44500*9/10 || x.GPUS != 2*44500 || x.IdleGPUS != 2*44500*6/10 {
		t.Errorf("held %d %d, idle %d %d", x.CoreS, x.GPUS, x.IdleCoreS, x.IdleGPUS)
	}
	want := []string{"--time=02:00:00 (you ask for 1-00:00:00; 9 of 10 end within 01:21:03, ",
		"--mem=11G (you ask for 64G; ",
		"1 of 8 cores would do"}
	tips := x.Advice()
	for i, w := range want {
		if i >= len(tips) || !strings.HasPrefix(tips[i], w) {
			t.Errorf("advice %d of %q, want %q", i, tips, w)
		}
	}
	if len(tips) != len(want) || len(list[1].Advice()) > 0 {
		t.Errorf("%q %q", tips, list[1].Advice())
	}
}

// TestGroupAdvice: limits that were reached, memory that did not do, GPUs that nothing used.
func TestGroupAdvice(t *testing.T) {
	var g Groups
	for i := range int64(4) {
		r := ended("slow", 3600, 3600, 1, 99, 60000, 0)
		if i > 1 {
			r.State = model.Timeout
		}
		if i == 1 {
			r.State = model.OutOfMemory
		}
		g.Add(r)
	}
	got := strings.Join(g.List()[0].Advice(), "\n")
	want := "--time=01:30:00: 2 of 4 jobs reached their limit, the last asked for 01:00:00\n" +
		"--mem=80G: 1 of 4 jobs ran out of memory, the last asked for 64G\n" +
		"no GPU was ever busy: does the program find them?"
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	g = Groups{}
	for i := range int64(20) { // 18 short ones, two long ones
		s := int64(600)
		if i >= 18 {
			s = 20000
		}
		g.Add(ended("mixed", s, 21600, 1, 99, 60000, -1))
	}
	if got := g.List()[0].Advice(); len(got) != 1 || !strings.HasPrefix(got[0], "--time=00:15:00 where it can be told") {
		t.Errorf("%q", got)
	}
}

// TestGroupsBound: neither names nor values make it grow without end.
func TestGroupsBound(t *testing.T) {
	var g Groups
	for i := range 3 * maxGroups {
		g.Add(ended("job"+strconv.Itoa(i), 100, 3600, 1, 10, 10, -1))
	}
	if n := len(g.List()); n != maxGroups+1 || g.Jobs != 3*maxGroups {
		t.Errorf("%d groups of %d jobs", n, g.Jobs)
	}
	var s Spread
	for i := range int64(1 << 18) {
		s.Add(i * 1000)
	}
	if p := s.Within(50); len(s.counts) > 1500 || p < 131071000 || p > 131071000*65/64 || s.Within(100) != s.Max() {
		t.Errorf("%d counts, p50 %d", len(s.counts), p)
	}
	one := Spread{}
	one.Add(1001)
	if one.Within(90) != 1001 {
		t.Errorf("one value: %d", one.Within(90))
	}
}

// TestAdviceNeedsAllGPUs: what only some of a job's GPUs did is no advice, and a question ends with its own mark.
func TestAdviceNeedsAllGPUs(t *testing.T) {
	r := ended("two nodes", 4000, 86400, 1, 99, 60000, 40)
	r.Exit.Use.Nodes[0].GPUs[1].UtilMax = 0
	if tip := Of(r, nil, r.End).Advice(); !strings.Contains(tip, "1 of 2 GPUs was never busy") {
		t.Errorf("of all GPUs: %q", tip)
	}
	r.AllocGres[0].Count = 4 // the other node's are not known
	if tip := Of(r, nil, r.End).Advice(); tip != "" {
		t.Errorf("of half of them: %q", tip)
	}
	r = ended("idle", 4000, 86400, 1, 99, 60000, 0)
	if tip := Of(r, nil, r.End).Advice(); !strings.HasSuffix(tip, "find them?") {
		t.Errorf("of idle ones: %q", tip)
	}
}

// TestSizes: what a job held over time counts, not what it had at its end.
func TestSizes(t *testing.T) {
	r := ended("grows", 7200, 86400, 1, 99, 60000, 40) // of the last size: an hour of it
	r.Start, r.End = 3600_000, 7200_000
	r.AllocCPUs, r.NumNodes, r.Size = 2, 1, 1
	r.AllocGres = []model.GresCount{{Name: "gpu", Count: 1}}
	r.Earlier = &model.Earlier{Began: 1, Secs: 3600, Used: []model.TRESCount{{TRES: "cpu", Count: 6 * 3600_000},
		{TRES: "gres/gpu", Count: 3 * 3600_000}}}
	r.Exit.Use.Nodes[0].UserMS, r.Exit.Use.Nodes[0].SysMS = 4*3600_000, 0
	var b strings.Builder
	Of(r, nil, r.End).Write(&b)
	for _, want := range []string{"CPU Efficiency: 50.00% of 08:00:00 core-walltime", "Job Wall-clock time: 02:00:00",
		"Sizes: 2, with 4.0 cores on average; the above is the last one"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in:\n%s", want, b.String())
		}
	}
	var g Groups
	g.Add(r)
	if one := g.List()[0]; one.CoreS != 8*3600 || one.GPUS != 4*3600 || one.CPUs != 4 || one.GPUs != 2 {
		t.Errorf("held %d s of cores, %d s of GPUs; on average %d and %d", one.CoreS, one.GPUS, one.CPUs, one.GPUs)
	}
}

// A job without a limit has none, and each of its nodes has a core and a GPU at least.
func TestGroupNodes(t *testing.T) {
	var g, elastic Groups
	for range 5 {
		r := ended("wide", 3600, model.Unlimited, 0, 1, 100, -1)
		r.NumNodes, r.AllocCPUs = 4, 4
		g.Add(r)
		r.AllocCPUs, r.SubmitLine = 16, "gsubmit --elastic=2-4 x"
		elastic.Add(r)
	}
	one := g.List()[0]
	if one.LimitS != 0 {
		t.Errorf("the limit is %d", one.LimitS)
	}
	for _, tip := range one.Advice() {
		if strings.Contains(tip, "would do") {
			t.Errorf("4 nodes with a core each: %s", tip)
		}
	}
	if tips := strings.Join(elastic.List()[0].Advice(), "\n"); !strings.Contains(tips, "a smaller --elastic") {
		t.Errorf("an elastic job: %s", tips)
	}
}

// TestLeastMemory: no job is advised to ask for less than a script needs that starts Python.
func TestLeastMemory(t *testing.T) {
	r := &model.Record{Job: 1, State: model.Completed, Start: 1000, End: 601_000, NumNodes: 1, AllocCPUs: 1,
		AllocMemMiB: 4096, Exit: model.Exit{UserMS: 600_000, MaxRSSKB: 4 << 10}}
	if tip := Of(r, nil, r.End).Advice(); !strings.Contains(tip, "--mem=300M") {
		t.Error(tip)
	}
	if r.AllocMemMiB = 200; Of(r, nil, r.End).Advice() != "" {
		t.Error(Of(r, nil, r.End).Advice())
	}
}
