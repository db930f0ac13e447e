package clitest

import (
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// DemoNodes are the nodes for which sinfo 22.05 was made to print what the tests expect.
func DemoNodes() []*proto.NodeInfo {
	var out []*proto.NodeInfo
	for i, name := range []string{"n1", "n2", "n3", "n4", "g1", "g2", "bad1"} {
		d := &model.NodeDef{Name: name, CPUs: 4, Sockets: 1, CoresPerSocket: 4, ThreadsPerCore: 1,
			MemMiB: 8000 + int64(i)*10, Weight: 1}
		n := &model.Node{Def: d, Link: model.LinkUp, Version: "22.05"}
		use := func(cpus int, gpus int) {
			n.Jobs, n.UsedCPUs, n.UsedMem = []model.JobID{1}, model.UpTo(cpus), int64(cpus)*1000
			if gpus > 0 {
				n.UsedGres = []model.GresAlloc{{Name: model.GPUName, Index: model.UpTo(gpus)}}
			}
		}
		if name[0] == 'g' {
			d.CPUs, d.CoresPerSocket, d.MemMiB, d.Features = 16, 16, 64000, []string{"a100", "nvlink"}
			d.Gres = []model.GresDef{{Name: model.GPUName, Type: "a100", Count: 8}}
		}
		reason := func(text string) {
			n.Reason, n.ReasonBy, n.ReasonAt = text, "root", T0+model.Time(i)*1000
		}
		info := &proto.NodeInfo{Node: n, LoadMilli: 1500 + int64(i)*10, FreeMemMiB: 1000 + int64(i)}
		switch name {
		case "n2":
			use(1, 0)
		case "n3":
			use(4, 0)
		case "n4":
			n.Admin = model.NodeDrain
			reason("bad disk in slot 4 of the chassis")
		case "g1":
			use(8, 3)
			n.Admin = model.NodeDrain
			reason("fan")
		case "bad1":
			n.Link = model.LinkLost
			reason("Not responding")
			info.LoadMilli, info.FreeMemMiB = -1, -1
		}
		out = append(out, info)
	}
	return out
}

// DemoParts are the partitions of DemoNodes.
func DemoParts() []*model.Partition {
	return []*model.Partition{
		{Name: "batch", Default: true, Nodes: []string{"n1", "n2", "n3", "n4"}, MaxTimeS: 86400, MinNodes: 1, PriorityTier: 1,
			PriorityJobFactor: 1, OverSubscribe: "NO"},
		{Name: "gpu", Nodes: []string{"g1", "g2"}, MaxTimeS: model.Unlimited, DefTimeS: 3600, MinNodes: 1, MaxNodes: 2,
			PriorityTier: 1, PriorityJobFactor: 1, OverSubscribe: "NO"},
		{Name: "all", Nodes: []string{"n1", "n2", "n3", "n4", "g1", "g2", "bad1"}, State: model.PartDrain, MaxTimeS: 5400,
			MinNodes: 1, PriorityTier: 1, PriorityJobFactor: 1, OverSubscribe: "EXCLUSIVE"},
		{Name: "empty", State: model.PartDown, MaxTimeS: 5400, MinNodes: 1, PriorityTier: 1, PriorityJobFactor: 1,
			OverSubscribe: "FORCE:4"},
	}
}

const T0 model.Time = 1_700_000_000_000 // 2023-11-14T22:13:20 in UTC

// DemoJobs are the jobs for which squeue 22.05 was made to print what the tests expect.
func DemoJobs() []*model.Job {
	job := func(id model.JobID, state model.JobState, part string, prio uint32) *model.Job {
		return &model.Job{ID: id, Task: model.NoTask, State: state, Priority: prio, Submit: T0, Eligible: T0,
			Attempt: 1, Spec: &model.Spec{
				Name: "train", User: "root", Group: "root", Account: "physics", QOS: "normal", Partitions: strings.Split(part, ","),
				Command: "/home/a/run.sh", WorkDir: "/home/a", StdIn: "/dev/null", StdOut: "/home/a/slurm-%j.out", Host: "login",
				MinNodes: 1, Tasks: 4, MemPerNode: 4096, LimitS: 5400, Requeue: true}}
	}
	run := func(j *model.Job, start, end model.Time, nodes ...string) *model.Job {
		a := &model.Alloc{}
		for _, n := range nodes {
			a.Nodes = append(a.Nodes, model.NodeAlloc{Node: n, CPUs: model.UpTo(4 / len(nodes)), MemMiB: 4096, Tasks: 1})
		}
		j.Run = &model.Run{Partition: j.Spec.Partitions[0], Alloc: a, Start: start, Launched: start,
			LimitS: j.Spec.LimitS, Bill: 4}
		if end != 0 {
			j.End = &model.End{At: end}
		}
		return j
	}
	j10 := job(10, model.Pending, "gpu", 100)
	j10.Reason = model.ReasonResources
	j11 := run(job(11, model.Running, "gpu", 300), DemoNow-65_000, 0, "g1", "g2")
	for i := range j11.Run.Alloc.Nodes {
		j11.Run.Alloc.Nodes[i].Gres = []model.GresAlloc{{Name: model.GPUName, Type: "a100", Index: model.UpTo(1)}}
	}
	j11.Spec.Gres = []model.GresReq{{Name: "gpu", Type: "a100", Count: 1}}
	j12 := job(12, model.Pending, "gpu", 200)
	j12.Reason, j12.ArrayID, j12.Throttle = model.ReasonPriority, 12, 2
	j12.Tasks = model.TaskSet{{Lo: 4, Hi: 9, Step: 1}}
	j13 := job(13, model.Running, "batch", 200)
	j13.Spec.LimitS, j13.ArrayID, j13.Task, j13.Throttle = model.Unlimited, 12, 3, 2
	run(j13, DemoNow-90_061_000, 0, "n1")
	j14 := run(job(14, model.Completing, "batch", 200), DemoNow-10_000, 0, "n2")
	j15 := run(job(15, model.Configuring, "batch", 200), DemoNow-10_000, 0, "n3")
	j16 := job(16, model.Pending, "batch,gpu", 200)
	j16.Reason, j16.Hold, j16.Spec.Nice = model.ReasonJobHeldUser, model.HeldByUser, 5
	j17 := job(17, model.Pending, "batch", 150)
	j17.Reason, j17.Deps = model.ReasonDependency, []model.Dep{{Kind: model.DepAfterOK, Job: 11, Task: model.NoTask}}
	j18 := run(job(18, model.Failed, "batch", 150), T0+100_000, T0+160_000, "n1")
	j18.Reason, j18.End.Exit.Code = model.ReasonNonZeroExitCode, 3
	j19 := job(19, model.Cancelled, "batch", 150)
	j19.End = &model.End{At: T0 + 160_000}
	j20 := run(job(20, model.Completed, "batch", 150), T0+100_000, T0+160_000, "n1")
	return []*model.Job{j10, j11, j12, j13, j14, j15, j16, j17, j18, j19, j20}
}

// DemoRecords are the records for which sacct 22.05 was made to print what the tests expect.
func DemoRecords() []*model.Record {
	record := func(id model.JobID, state model.JobState) *model.Record {
		return &model.Record{Cluster: "demo", Job: id, Attempt: 1, Task: model.NoTask, Name: "train", User: "alice",
			Group: "users", UID: 1001, GID: 100,
			Account: "physics", QOS: "normal", Partition: "gpu", State: state, Submit: T0, Eligible: T0,
			LimitS: 3600, NumNodes: 1,
			ReqCPUs: 2, ReqMemMiB: 4096, ReqGres: []model.GresCount{{Name: "gpu", Count: 1}}, Priority: 4294901,
			WorkDir:    "/home/alice",
			SubmitLine: "sbatch run.sh"}
	}
	run := func(r *model.Record, start, end int64) *model.Record {
		r.Start, r.Nodes, r.NumNodes, r.AllocCPUs, r.AllocMemMiB = T0.Add(start), "n[1-2]", 2, 4, 8192
		r.ReqMemMiB, r.ReqGres = 4096, []model.GresCount{{Name: "gpu", Count: 1}}
		r.AllocGres = []model.GresCount{{Name: "gpu", Count: 2}}
		if end != 0 {
			r.End = T0.Add(end)
			r.Exit.UserMS, r.Exit.SysMS, r.Exit.MaxRSSKB = 12345, 1002, 12345
		}
		return r
	}
	r10 := record(10, model.Pending)
	r10.Reason = model.ReasonResources
	r12 := run(record(12, model.Completed), 100, 3700)
	r13 := run(record(13, model.Failed), 100, 160)
	r13.Exit.Code = 3
	r14 := run(record(14, model.Cancelled), 100, 160)
	r14.Exit.Signal, r14.CancelUID = 15, 1001
	r15 := record(15, model.Cancelled)
	r15.CancelUID, r15.End = 1001, T0.Add(50)
	r16 := run(record(16, model.Timeout), 100, 90160)
	r20 := record(20, model.Pending)
	r20.ArrayID, r20.TaskText = 20, "4-9%2"
	r21 := run(record(21, model.Completed), 200, 260)
	r21.ArrayID, r21.Task = 20, 3
	r22 := record(22, model.Pending)
	r22.NumNodes, r22.ReqGres = 2, nil
	r23 := run(record(23, model.OutOfMemory), 200, 260)
	r23.ArrayID, r23.Task, r23.Exit.Signal = 20, 1, 9
	return []*model.Record{r10, r12, r13, r14, r15, r16, r20, r21, r22, r23}
}

// DemoDiag is what a controller tells of itself.
func DemoDiag() *proto.DiagReply {
	return &proto.DiagReply{Now: DemoNow, Since: DemoNow - 600_000, Threads: 2, AgentQueue: 1, DbdQueue: 3,
		RaftQueue: 4, Submitted: 50, Started: 40,
		Completed: 30, Canceled: 2, Failed: 1, Pending: 10, Running: 7,
		Main: proto.DiagPass{Count: 20, LastUS: 90, MaxUS: 500, SumUS: 2000, DepthLast: 3, DepthSum: 60, QueueLast: 12,
			QueueSum: 200, At: DemoNow},
		Backfill: proto.DiagPass{Count: 10, LastUS: 80, MaxUS: 400, SumUS: 1000, DepthLast: 5, DepthSum: 40, QueueLast: 11,
			QueueSum: 100, At: DemoNow - 1000},
		Backfilled: 4, BackfilledAll: 9, TryDepthSum: 30, TryDepthLast: 2, TableLast: 6, TableSum: 50,
		ByType: []proto.DiagRPC{{Name: "REQUEST_JOB_INFO", ID: 2003, Count: 9, SumUS: 900},
			{Name: "REQUEST_PING", ID: 1008, Count: 2, SumUS: 1000}},
		ByUser:   []proto.DiagRPC{{Name: "alice", ID: 1001, Count: 11, SumUS: 1900}},
		Counters: []model.KV{{Key: "job_records", Value: "17"}}}
}
