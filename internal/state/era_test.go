package state

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/model"
)

// TestNewEraFound: the controllers go on from a snapshot, and gdbd knows more. Jobs whose end is on record have ended,
// what ended otherwise keeps its record, and what may have run since gets another attempt.
func TestNewEraFound(t *testing.T) {
	const begun, ended = epoch + 100_000, epoch + 200_000
	run := func(state model.JobState, restarts uint32) FoundRun {
		return FoundRun{Attempt: 1, Restarts: restarts, State: state, Start: begun, End: ended}
	}
	failed := run(model.Failed, 0)
	failed.Reason, failed.Exit = model.ReasonNonZeroExitCode, model.Exit{Code: 3}
	noLaunch := run(model.Failed, 0)
	noLaunch.Reason, noLaunch.Exit = model.ReasonSystemFailure, model.Exit{Code: 1, Text: "launch failed on n1"}
	goesOn := run(model.Running, 0)
	goesOn.End = 0
	second := run(model.Completed, 1)
	second.Attempt = 2
	for _, x := range []struct {
		name     string
		is       model.JobState // by the snapshot
		once     bool           // --no-requeue
		found    []FoundRun
		want     model.JobState
		attempt  uint32
		restarts uint32
		recorded bool // its present attempt has a record to send
	}{
		{"waits, nothing on record", model.Pending, false, nil, model.Pending, 1000, 0, true},
		{"waits, has completed", model.Pending, false, []FoundRun{run(model.Completed, 0)}, model.Completed, 1, 0, false},
		{"waits, has failed", model.Pending, false, []FoundRun{failed}, model.Failed, 1, 0, false},
		{"waits, its launch has failed", model.Pending, false, []FoundRun{noLaunch}, model.Pending, 1000, 1, true},
		{"waits, runs", model.Pending, false, []FoundRun{goesOn}, model.Pending, 1000, 1, true},
		{"waits, runs, not to be requeued", model.Pending, true, []FoundRun{goesOn}, model.NodeFail, 1000, 1, true},
		{"waits, its node has failed", model.Pending, false, []FoundRun{run(model.NodeFail, 0)}, model.Pending, 1000, 1,
			true},
		{"waits, its node has failed, not to be requeued", model.Pending, true, []FoundRun{run(model.NodeFail, 0)},
			model.NodeFail, 1, 0, false},
		{"about to begin", model.Configuring, false, nil, model.Pending, 1000, 1, true},
		{"about to begin, has completed", model.Configuring, false, []FoundRun{run(model.Completed, 0)}, model.Completed, 1,
			0, true},
		{"runs", model.Running, false, nil, model.Running, 1, 0, false},
		{"runs, on record too", model.Running, false, []FoundRun{goesOn}, model.Running, 1, 0, false},
		{"runs, has completed", model.Running, false, []FoundRun{run(model.Completed, 0)}, model.Completed, 1, 0, true},
		{"runs, was requeued", model.Running, false, []FoundRun{run(model.Requeued, 0)}, model.Pending, 1000, 1, true},
		{"runs, was requeued and has completed", model.Running, false, []FoundRun{run(model.Preempted, 0), second},
			model.Completed, 2, 1, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			s, id := eraJob(t, x.is, x.once, begun)
			seq := s.st.View().NextRecord()
			for i := range x.found {
				x.found[i].Job = id
			}
			s.now = epoch + 300_000
			s.apply(&NewEra{Number: 1, NextJob: 500, Restored: true, Found: x.found})
			j := s.job(id)
			if j.State != x.want || j.Attempt != x.attempt || j.Restarts != x.restarts {
				t.Errorf("%v, attempt %d, %d restarts; want %v, %d, %d", j.State, j.Attempt, j.Restarts, x.want, x.attempt,
					x.restarts)
			}
			if x.want.Finished() && x.want != model.NodeFail && j.End.At != ended {
				t.Errorf("ended at %d, want %d", j.End.At, ended)
			}
			recorded := false
			s.st.View().Outbox(seq-1, func(e Event) bool {
				recorded = recorded || e.Job.ID == id && e.Job.Attempt == j.Attempt
				return true
			})
			if recorded != x.recorded {
				t.Errorf("its record is sent: %v", recorded)
			}
			if n := s.st.View().NextJob(); n != 500 {
				t.Errorf("the next job is %d", n)
			}
			if x.is != model.Running || j.State != model.Running {
				return
			}
			// Its node does not know it: the next attempt is none of before the snapshot was restored.
			s.apply(&Join{Node: "n1", BootID: "b"})
			if j := s.job(id); j.State != model.Pending || j.Attempt != attemptsPerEra {
				t.Errorf("after its node has lost it: %v, attempt %d", j.State, j.Attempt)
			}
		})
	}
}

// TestNewEraTasks: tasks of an array that waited in the snapshot, and of which gdbd has more, are jobs with the numbers
// that gdbd has; the last one that began had its array's number. The other tasks wait as before.
func TestNewEraTasks(t *testing.T) {
	for _, x := range []struct {
		name  string
		tasks string
		found map[model.JobID]int32 // tasks by number, 0 stands for the array's
		want  string
	}{
		{"some", "1-5", map[model.JobID]int32{80: 2, 90: 4}, "80:2 completed 1; 90:4 completed 1; [1-5:2] pending 1"},
		{"all", "1-3", map[model.JobID]int32{80: 1, 90: 2, 0: 3}, "80:1 completed 1; 90:2 completed 1; array:3 completed 1"},
		{"the array's number, and others are left", "1-3", map[model.JobID]int32{80: 1, 0: 3},
			"500:3 completed 1; 80:1 completed 1; [2] pending 1000"},
		{"the last, without the array's number", "1-2", map[model.JobID]int32{80: 1, 90: 2},
			"80:1 completed 1; array:2 completed 1"},
	} {
		t.Run(x.name, func(t *testing.T) {
			s, _ := eraJob(t, model.Pending, false, epoch+100_000)
			list, _, err := model.ParseTaskSet(x.tasks, 100)
			if err != nil {
				t.Fatal(err)
			}
			id := s.apply(&Submit{Spec: &model.Spec{Name: "a", Partitions: []string{"p"}, Tasklist: list}}).Job
			var found []FoundRun
			for job, task := range x.found {
				if job == 0 {
					job = id
				}
				found = append(found, FoundRun{Job: job, Attempt: 1, State: model.Completed, Start: epoch + 100_000,
					End: epoch + 200_000, Array: id, Task: task})
			}
			slices.SortFunc(found, func(a, b FoundRun) int { return cmp.Compare(a.Job, b.Job) })
			s.now = epoch + 300_000
			s.apply(&NewEra{Number: 1, NextJob: 500, Restored: true, Found: found})
			var got []string
			s.st.View().Jobs(func(j *model.Job) bool {
				if j.ArrayID != id {
					return true
				}
				name := fmt.Sprint(j.ID)
				if j.ID == id {
					name = "array"
				}
				if j.IsArray() {
					got = append(got, fmt.Sprintf("[%s] pending %d", j.Tasks, j.Attempt))
				} else {
					got = append(got, fmt.Sprintf("%s:%d %s %d", name, j.Task, strings.ToLower(j.State.String()), j.Attempt))
				}
				return true
			})
			slices.Sort(got)
			if all := strings.Join(got, "; "); all != x.want {
				t.Errorf("%s\nwant %s", all, x.want)
			}
			s.replicas()
		})
	}
}

// TestNewEraHet: a heterogeneous job that waited in the snapshot has ended if all of its components have.
func TestNewEraHet(t *testing.T) {
	for over := range 3 {
		s, _ := eraJob(t, model.Pending, false, epoch+100_000)
		spec := func(name string) *model.Spec {
			return &model.Spec{Name: name, Partitions: []string{"p"}, Requeue: true}
		}
		id := s.apply(&SubmitHet{Parts: []HetPart{{Spec: spec("h")}, {Spec: spec("h1")}}}).Job
		var found []FoundRun
		for i := range over {
			found = append(found, FoundRun{Job: id + model.JobID(i), Attempt: 1, State: model.Completed,
				Start: epoch + 100_000, End: epoch + 200_000})
		}
		s.now = epoch + 300_000
		s.apply(&NewEra{Number: 1, NextJob: 500, Restored: true, Found: found})
		want := model.Pending
		if over == 2 {
			want = model.Completed
		}
		for i := range 2 {
			if j := s.job(id + model.JobID(i)); j.State != want {
				t.Errorf("with %d components ended, %s is %v", over, j.Het.Name(), j.State)
			}
		}
		s.replicas()
	}
}

// eraJob has a job in a state.
func eraJob(t *testing.T, is model.JobState, once bool, begun model.Time) (*session, model.JobID) {
	t.Helper()
	s := newSession(t)
	s.cfg.Nodes = []*model.NodeDef{{Name: "n1", CPUs: 4, ThreadsPerCore: 1}}
	s.cfg.Partitions = []*model.Partition{{Name: "p", Nodes: []string{"n1"}}}
	s.apply(&SetConfig{Config: &s.cfg, Instance: 1})
	s.apply(&Join{Node: "n1", BootID: "b"})
	id := s.apply(&Submit{Spec: &model.Spec{Name: "j", Partitions: []string{"p"}, Requeue: !once}}).Job
	if s.now = begun; is == model.Pending {
		return s, id
	}
	s.apply(&Starts{Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p", LimitS: 60,
		Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1", CPUs: model.UpTo(1), Tasks: 1}}}}}}})
	if is == model.Running {
		s.apply(&Reports{Reports: []Report{{Kind: Started, Job: id, Attempt: 1, At: s.now}}})
	}
	if j := s.job(id); j.State != is {
		t.Fatalf("the job is %v, want %v", j.State, is)
	}
	return s, id
}
