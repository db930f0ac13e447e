package state

import (
	"slices"
	"strings"
	"testing"

	"gbatch/internal/model"
)

// TestCheckFinds breaks one invariant after the other and expects Check to name it: the other tests rely on Check.
func TestCheckFinds(t *testing.T) {
	base := func() *State {
		st := New()
		cfg := &model.Config{Cluster: "c", Params: model.Params{MinJobAgeS: 300},
			Partitions: []*model.Partition{{Name: "p", Nodes: []string{"n1"}}},
			Nodes:      []*model.NodeDef{{Name: "n1", CPUs: 4, MemMiB: 100, Gres: []model.GresDef{{Name: "gpu", Count: 2}}}}}
		alloc := &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1", CPUs: model.UpTo(2), MemMiB: 10,
			Gres: []model.GresAlloc{{Name: "gpu", Index: model.UpTo(1)}}}}}
		after := []model.Dep{{Kind: model.DepAfterAny, Job: 1, Task: model.NoTask}}
		blob := model.Blob{Key: "k", Data: []byte("x")}
		for _, b := range []Body{
			&SetConfig{Config: cfg}, &Join{Node: "n1", BootID: "b"},
			// 1: runs
			&Submit{RequestID: "r", Script: blob, Spec: &model.Spec{Name: "a", Partitions: []string{"p"}}},
			// 2: waits
			&Submit{Spec: &model.Spec{Name: "a", Partitions: []string{"p"}, Tasklist: model.TaskSet{{Lo: 0, Hi: 3, Step: 1}}}},
			// 3: waits for 1
			&Submit{Spec: &model.Spec{Name: "a", Partitions: []string{"p"}, Deps: after}},
			// 4: over
			&Submit{Spec: &model.Spec{Name: "a", Partitions: []string{"p"}}},
			&Starts{Plan: model.Plan{Starts: []model.Start{{Job: 1, Task: model.NoTask, Partition: "p", LimitS: 60,
				Alloc: alloc}}}},
			&Stop{Targets: []model.JobRef{{Job: 4, Task: model.NoTask}}, Event: model.EvCancel},
		} {
			st.Apply(Command{At: epoch, Body: b})
		}
		return st
	}
	node := func(st *State, change func(*model.Node)) {
		n := *st.View().Node("n1")
		change(&n)
		st.nodes.Set("n1", &n)
	}
	job := func(st *State, id model.JobID, change func(*model.Job)) {
		j := *st.View().Job(id)
		change(&j)
		st.jobs.Set(id, &j)
	}
	if err := base().Check(); err != nil {
		t.Fatal(err)
	}
	for want, damage := range map[string]func(*State){
		"lists 0 jobs, 1 hold": func(st *State) { node(st, func(n *model.Node) { n.Jobs = nil }) },
		"holds nothing there":  func(st *State) { node(st, func(n *model.Node) { n.Jobs = []model.JobID{9} }) },
		"books 0-2 CPUs":       func(st *State) { node(st, func(n *model.Node) { n.UsedCPUs = model.UpTo(3) }) },
		"and 11 MiB":           func(st *State) { node(st, func(n *model.Node) { n.UsedMem = 11 }) },
		"held but not booked":  func(st *State) { node(st, func(n *model.Node) { n.UsedGres = nil }) },
		"books gpu 0-1": func(st *State) {
			node(st, func(n *model.Node) { n.UsedGres = []model.GresAlloc{{Name: "gpu", Index: model.UpTo(2)}} })
		},
		"is job 3's alone":            func(st *State) { node(st, func(n *model.Node) { n.Exclusive = 3 }) },
		"stored under another number": func(st *State) { job(st, 3, func(j *model.Job) { j.ID = 7 }) },
		"is pending, and ran":         func(st *State) { job(st, 3, func(j *model.Job) { j.End = &model.End{} }) },
		"has resources without a run": func(st *State) { job(st, 1, func(j *model.Job) { j.Run = nil }) },
		"ran without an allocation":   func(st *State) { job(st, 1, func(j *model.Job) { j.Run = &model.Run{} }) },
		"is over without an end":      func(st *State) { job(st, 4, func(j *model.Job) { j.End = nil }) },
		"in no known state":           func(st *State) { job(st, 4, func(j *model.Job) { j.State = 99 }) },
		"still has dependencies": func(st *State) {
			job(st, 4,
				func(j *model.Job) { j.Deps = make([]model.Dep, 1) })
		},
		"disagree whether it is of an array": func(st *State) { job(st, 3, func(j *model.Job) { j.ArrayID = 3 }) },
		"task ranges that are not ascending": func(st *State) {
			job(st, 2,
				func(j *model.Job) { j.Tasks = model.TaskSet{{Lo: 3, Hi: 1, Step: 1}} })
		},
		"array 2 counts":        func(st *State) { st.countArray(2, func(a *Array) { a.Waiting-- }) },
		"its counters are gone": func(st *State) { st.arrays.Delete(2) },
		"has 2 references":      func(st *State) { st.useBlob("k") },
		"is used and missing":   func(st *State) { st.blobs.Delete("k") },
		"still waits (afterany) for 1": func(st *State) {
			job(st, 3, func(j *model.Job) { j.Deps = []model.Dep{{Kind: model.DepAfterAny, Job: 4, Task: model.NoTask}} })
		},
		"counters differ":                     func(st *State) { st.pending++ },
		"nobody looked who waits":             func(st *State) { st.wake(st.View().Job(1)) },
		"index of time limits differs":        func(st *State) { st.limits.Set(due{epoch.Add(1e6), 3}) },
		"index of waiters differs":            func(st *State) { st.waiters.Delete(waitKey{1, model.NoTask, 3}) },
		"index of names differs":              func(st *State) { st.live.Clear() },
		"index of users' jobs differs":        func(st *State) { st.owned.Clear() },
		"index of queues differs":             func(st *State) { st.queueOf("p").Set(readyKey{1, 1}) },
		"index of moving jobs differs":        func(st *State) { st.moving.Delete(1) },
		"index of tasks differs":              func(st *State) { st.elems.Set(elemKey(2, 0), 2) },
		"index of groups of tasks differs":    func(st *State) { st.groups.Set(groupKey(2, 3), 3) },
		"is not in the outbox":                func(st *State) { st.outSeq.Set(1, 99) },
		"attempt 1 has two accounting events": func(st *State) { st.outbox.Set(st.nextSeq, st.View().Job(1)); st.nextSeq++ },
		"is from the future":                  func(st *State) { st.nextSeq = 2 },
		"1 requests, 2 in their queue":        func(st *State) { st.reqQueue.Set(77, "x") },
		"request r stands in the queue":       func(st *State) { st.requests.Set("r", request{Job: 1, Seq: 9}) },
		"is in no configuration, and empty": func(st *State) {
			st.nodes.Set("n9",
				&model.Node{Def: &model.NodeDef{Name: "n9"}})
		},
	} {
		st := base()
		damage(st)
		if err := st.Check(); err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(want, " for 1")) {
			t.Errorf("%s: Check says %v", want, err)
		}
	}
}

// TestSharedValues: equal values of jobs are stored once, and changing one job leaves the others alone.
func TestSharedValues(t *testing.T) {
	st := New()
	mk := func() *model.Spec {
		return &model.Spec{Name: "a", User: "ann", Partitions: []string{"p", "q"}, Groups: []uint32{1, 2},
			ReqNodes: []string{"n1"}, ExcNodes: []string{"n2"},
			Limits: []model.RLimit{{Resource: 1, Soft: 2, Hard: 3}}, Gres: []model.GresReq{{Name: "gpu", Count: 1}}}
	}
	for range 2 {
		st.Apply(Command{At: epoch, Body: &Submit{Spec: mk()}})
	}
	a, b := st.View().Job(1).Spec, st.View().Job(2).Spec
	if &a.Partitions[0] != &b.Partitions[0] || &a.Groups[0] != &b.Groups[0] || &a.Limits[0] != &b.Limits[0] ||
		&a.Gres[0] != &b.Gres[0] ||
		&a.ReqNodes[0] != &b.ReqNodes[0] || &a.ExcNodes[0] != &b.ExcNodes[0] {
		t.Error("two equal jobs hold two copies")
	}
	other := mk()
	other.Partitions, other.Gres = []string{"q"}, []model.GresReq{{Name: "gpu", Count: 2}}
	st.Apply(Command{At: epoch, Body: &Edit{Targets: []model.JobRef{{Job: 1, Task: model.NoTask}, {Job: 9,
		Task: model.NoTask}},
		Set: []Field{SetSpec}, Spec: other}})
	if c := st.View().Job(1).Spec; len(c.Partitions) != 1 || c.Gres[0].Count != 2 {
		t.Error("the edit was lost")
	}
	if b.Partitions[0] != "p" || b.Gres[0].Count != 1 || st.View().Job(2).Spec != b {
		t.Error("an edit changed another job")
	}
	array := mk()
	array.Tasklist = model.TaskSet{{Lo: 1, Hi: 4, Step: 1}}
	st.Apply(Command{At: epoch, Body: &Submit{Spec: array}})
	one := func(task int32) model.JobRef {
		return model.JobRef{Job: 3, Task: model.NoTask, Tasks: model.TaskSet{{Lo: task, Hi: task, Step: 1}}}
	}
	named := mk()
	named.Comment = "mine"
	for range 2 {
		st.Apply(Command{At: epoch, Body: &Edit{Targets: []model.JobRef{one(1), one(3)}, Set: []Field{SetComment, SetLimit},
			Spec: named, LimitS: 60}})
	}
	x, y := st.View().TaskRecord(3, 1), st.View().TaskRecord(3, 3)
	if x.ID == y.ID || x.Spec != y.Spec || x.Spec.Comment != "mine" || x.Spec.LimitS != 60 {
		t.Errorf("two tasks that were changed alike have %p and %p", x.Spec, y.Spec)
	}
	if rest := st.View().TaskRecord(3, 2).Spec; rest == x.Spec || rest.Comment != "" {
		t.Error("an edit of tasks changed another one")
	}
}

// TestViewFinds covers the look-ups that transcripts do not use.
func TestViewFinds(t *testing.T) {
	st := New()
	if v := st.View(); v.Config() == nil || v.Partition("p") != nil || v.Node("n") != nil || v.NodeDef("n") != nil ||
		v.Job(1) != nil ||
		v.Array(1) != nil || v.Task(1, 0) != nil || v.TaskRecord(1, 0) != nil || v.HasBlob("k") || v.Blob("k").Key != "" ||
		v.Request("r") != 0 ||
		v.ReadyLen("p") != 0 || v.ReadyParts() != nil || v.NextDue() != 0 || v.Instance() != 0 {
		t.Error("an empty state has something")
	}
	st.Apply(Command{At: epoch, Body: &SetConfig{Config: &model.Config{Nodes: []*model.NodeDef{{Name: "n"}},
		Partitions: []*model.Partition{{Name: "p"}}}, Instance: 5}})
	st.Apply(Command{At: epoch, Body: &SetConfig{Config: st.View().Config(), Instance: 6}})
	for range 3 {
		st.Apply(Command{At: epoch, Body: &Submit{RequestID: "r2", Spec: &model.Spec{Partitions: []string{"p"}}}})
		st.Apply(Command{At: epoch, Body: &Submit{Script: model.Blob{Key: "k", Data: []byte("x")},
			Spec: &model.Spec{Partitions: []string{"p"}, Tasklist: model.TaskSet{{Lo: 4, Hi: 6, Step: 2}}}}})
	}
	v := st.View()
	if v.Instance() != 5 || v.NodeDef("n") == nil || v.Partition("p") == nil || v.Request("r2") != 1 || !v.HasBlob("k") ||
		v.Blob("k").Refs != 3 ||
		v.Array(2).Total != 2 || v.Task(2, 4) != nil || v.TaskRecord(2, 4).ID != 2 || v.TaskRecord(2, 5) != nil ||
		v.JobCount() != 4 || v.Pending() != 4 {
		t.Errorf("the view lacks something: %v", dumpOf(v))
	}
	var behind []model.JobID
	v.ReadyAfter("p", v.Job(2), func(j *model.Job) bool { behind = append(behind, j.ID); return len(behind) < 1 })
	if len(behind) != 1 || behind[0] != 3 {
		t.Errorf("behind job 2 stand %v", behind)
	}
}

// TestTasksInManyRecords: the records of some tasks of an array are found, and divided, as if each task were looked for
// by itself, however the tasks are spread over records.
func TestTasksInManyRecords(t *testing.T) {
	const tasks = 3000
	st := New()
	st.Apply(Command{At: epoch, Body: &Submit{Spec: &model.Spec{Name: "a", User: "ann",
		Tasklist: model.TaskSet{{Lo: 0, Hi: tasks - 1, Step: 1}}}}})
	edit := func(set model.TaskSet) {
		st.Apply(Command{At: epoch, Body: &Edit{Targets: []model.JobRef{{Job: 1, Task: model.NoTask, Tasks: set}},
			Set: []Field{SetPriority}, Priority: uint32(set[0].Lo + 1)}})
	}
	for lo := int32(100); lo < 2500; lo += 4 { // groups of two tasks, of which the next one's lie between
		edit(model.TaskSet{{Lo: lo, Hi: lo + 7, Step: 7}})
		if lo%20 == 0 {
			edit(model.TaskSet{{Lo: lo + 1, Hi: lo + 1, Step: 1}})
		}
	}
	for _, set := range []model.TaskSet{{{Lo: 1, Hi: tasks * 2, Step: 3}}, {{Lo: 107, Hi: 107, Step: 1}},
		{{Lo: 90, Hi: 200, Step: 1}, {Lo: 210, Hi: 2000, Step: 11}}, {{Lo: 0, Hi: tasks - 1, Step: 1}}, {{Lo: 5000, Hi: 5000,
			Step: 1}}} {
		ref := model.JobRef{Job: 1, Task: model.NoTask, Tasks: set}
		var single, shared []model.JobID
		set.Each(func(task int32) bool {
			switch j := st.taskRecord(1, task); {
			case j == nil:
			case !j.IsArray():
				single = append(single, j.ID)
			case !slices.Contains(shared, j.ID):
				shared = append(shared, j.ID)
			}
			return task < tasks
		})
		if got, want := st.expand(&ref, false), append(single, shared...); !slices.Equal(got, want) {
			t.Errorf("%s: records %v, want %v", set, got, want)
		}
		edit(set)
		set.Each(func(task int32) bool {
			if j := st.taskRecord(1, task); j != nil && j.Priority != uint32(set[0].Lo+1) {
				t.Errorf("%s: task %d is not changed", set, task)
			}
			return task < tasks
		})
		if err := st.Check(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOldRules: what older versions wrote means what it meant to them.
func TestOldRules(t *testing.T) {
	for rules, shown := range map[uint8]bool{rulesTold: false, rulesLast: true} {
		s, j := manyNodes(t, 2)
		for _, n := range []string{"n1", "n2"} {
			s.says(j.ID, Ending, n)
			s.says(j.ID, Ended, n)
		}
		s.want("it has ended", s.job(j.ID).State.Finished(), true)
		s.st.Apply(Command{At: s.now.Add(400), Body: &Stop{Targets: []model.JobRef{{Job: j.ID, Task: model.NoTask}},
			Event: model.EvRequeue}, rules: rules})
		s.want("it waits again", s.job(j.ID).State, model.Pending)
		s.want("with the exit code of its run", s.job(j.ID).Back != nil, shown)
	}
}
