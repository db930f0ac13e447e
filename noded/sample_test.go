package noded

import (
	"log/slog"
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/gpu"
)

// TestGPUCredit: a job is credited with the readings of the GPUs that it holds while it holds them, found by UUID if
// the configuration numbers GPUs differently from the driver.
func TestGPUCredit(t *testing.T) {
	s := &sampler{jobs: map[sampleKey]*sampled{}, given: map[givenKey]int64{}, wake: make(chan struct{}, 1), now: time.Now,
		log: slog.New(slog.DiscardHandler)}
	reading := func(index int, uuid string, util int, mem, energy int64) gpu.Reading {
		return gpu.Reading{Index: index, UUID: uuid, UtilPct: util, MemUsedMiB: mem, MemTotalMiB: 1000, EnergyMilliJ: energy}
	}
	s.onReadings([]gpu.Reading{reading(0, "GPU-a", 5, 1, 100), reading(1, "GPU-b", 50, 10, 1000)})
	key := wholeJob(proto.Attempt{Job: 7, Attempt: 1})
	s.begin(key, &model.NodeUsage{Node: "n1", GPUs: []model.GPUUsage{{Index: 0, UUID: "GPU-b"}}}, 1, 4711, 0, 0)
	s.onReadings([]gpu.Reading{reading(0, "GPU-a", 5, 1, 100), reading(1, "GPU-b", 80, 30, 3000)})
	// the driver has begun anew
	s.onReadings([]gpu.Reading{reading(0, "GPU-a", 5, 1, 100), reading(1, "GPU-b", -1, 20, 200)})
	s.onReadings([]gpu.Reading{reading(0, "GPU-a", 5, 1, 100), reading(1, "GPU-b", 61, 25, 700)})
	saved := s.unsaved()
	if len(saved) != 1 || len(s.unsaved()) != 0 {
		t.Fatalf("%d jobs to save", len(saved))
	}
	g := s.end(key).use.GPUs[0]
	want := model.GPUUsage{Index: 0, UUID: "GPU-b", Samples: 3, UtilSum: 141, UtilCount: 2, UtilMax: 80, MemMaxMiB: 30,
		MemMiB: 1000, EnergyMJ: 2500}
	if g != want || saved[0].Use.GPUs[0] != want {
		t.Errorf("got  %+v\nwant %+v", g, want)
	}
	if pct, ok := g.UtilAve(); pct != 71 || !ok {
		t.Errorf("mean %d", pct)
	}
	if s.end(key) != nil {
		t.Error("an attempt ends twice")
	}
	// After a restart it goes on from what was saved.
	s.begin(key, saved[0].Use, 1, 4711, 0, 0)
	s.onReadings([]gpu.Reading{reading(1, "GPU-b", 90, 5, 800)})
	if g := s.end(key).use.GPUs[0]; g.UtilMax != 90 || g.UtilCount != 3 || g.EnergyMJ != 2600 || g.MemMaxMiB != 30 {
		t.Errorf("after a restart %+v", g)
	}
}

// TestOOMStory: the kernel's two lines are found by group and pid; the sentence leaves out what is unknown.
func TestOOMStory(t *testing.T) {
	o := &oomLog{fd: -1}
	for _, line := range []string{
		"4,1,5,-;tail invoked oom-killer: gfp_mask=0xcc0",
		"6,2,6,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0," +
			"oom_memcg=/gbatch/n1-0a/job_12.1,task_memcg=/gbatch/n1-0a/job_12.1,task=python,pid=881,uid=0",
		"3,3,7,-;Memory cgroup out of memory: Killed process 881 (python) total-vm:9kB, anon-rss:3879731kB, file-rss:0kB, " +
			"shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0",
		"6,4,8,-;oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/gbatch/n1-0a/job_12.10,task_memcg=/gbatch/n1-0a/job_12.10," +
			"task=x,pid=9,uid=0",
	} {
		o.take([]byte(line + "\n SUBSYSTEM=x\n"))
	}
	s := oomStory{step: "12.0", node: "n1", limitKB: 4 << 20, peakKB: 4 << 20, kills: o.of("gbatch/n1-0a/job_12.1"),
		option: "--mem", units: 1, memMiB: 4096}
	if got, want := s.sentence(),
		"gbatch: step 12.0 node n1: limit 4G, peak 4G, killed pid 881 (python, rss 3.70G); try --mem=5G"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	s.kills, s.option, s.units = nil, "--mem-per-cpu", 4
	if got, want := s.sentence(), "gbatch: step 12.0 node n1: limit 4G, peak 4G; try --mem-per-cpu=1280M"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	s.kills = []oomKill{{pid: 3, name: "a", global: true}}
	if got, want := s.sentence(),
		"gbatch: step 12.0 node n1: limit 4G, peak 4G, killed pid 3 (a); the node itself had no memory left"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
