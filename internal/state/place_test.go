package state

import (
	"reflect"
	"testing"

	"gbatch/internal/model"
)

// reported makes a session with a job of the first two of three nodes in a state, and applies one report to it. It
// gives the job, the reporting node and the number of accounting events before and after.
func reported(t *testing.T, to ReportKind, r Report, placed bool) (before, after [3]any) {
	t.Helper()
	s := newSession(t)
	for _, n := range []string{"n1", "n2", "n3"} {
		s.cfg.Nodes = append(s.cfg.Nodes, &model.NodeDef{Name: n, CPUs: 4, ThreadsPerCore: 1})
	}
	s.cfg.Partitions = []*model.Partition{{Name: "p", Nodes: []string{"n1", "n2", "n3"}}}
	s.cfg.Params.Rules.Prolog = []string{"/prolog"}
	s.apply(&SetConfig{Config: &s.cfg, Instance: 1})
	for _, n := range s.cfg.Nodes {
		s.apply(&Join{Node: n.Name, BootID: "b"})
	}
	id := s.apply(&Submit{Spec: &model.Spec{Name: "j", Partitions: []string{"p"}, MinNodes: 2, Requeue: true}}).Job
	s.apply(&Starts{Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p", LimitS: 60,
		Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1", CPUs: model.UpTo(1), Tasks: 1},
			{Node: "n2", CPUs: model.UpTo(1), Tasks: 1}}}}}}})
	if to == Started {
		s.apply(&Reports{Placed: true, Reports: []Report{{Kind: Ready, Job: id, Attempt: 1, Node: "n1"},
			{Kind: Ready, Job: id, Attempt: 1, Node: "n2"}, {Kind: Started, Job: id, Attempt: 1, Node: "n1"}}})
		if j := s.st.View().Job(id); j.State != model.Running || j.Run.Launched == 0 {
			t.Fatalf("the job is %s", j.State)
		}
	}
	look := func() [3]any {
		v := s.st.View()
		events := 0
		v.Outbox(0, func(Event) bool { events++; return true })
		j := *v.Job(id)
		node := r.Node
		if node == "" {
			node = "n1"
		}
		return [3]any{j, *v.Node(node), events}
	}
	before = look()
	r.Job, r.Attempt = id, 1
	s.apply(&Reports{Placed: placed, Reports: []Report{r}})
	return before, look()
}

// reports gives one report of each kind that nodes, and the leader, make.
func reports() []Report {
	return []Report{{Kind: Started}, {Kind: Ended, Exit: model.Exit{Code: 1}}, {Kind: LaunchFailed, Text: "t"},
		{Kind: Ready}, {Kind: PrologFailed, Text: "t"}, {Kind: Ending}, {Kind: EpilogFailed, Text: "t"},
		{Kind: Unkillable, Text: "t"}, {Kind: ProgramPassed}, {Kind: ProgramFailed, Text: "t"},
		{Kind: StepEnded, Step: &model.Step{ID: 1}}}
}

// TestReportsOfOthersChangeNothing: what a node says of a job that isn't its own, and what only another node of the job
// can know, changes nothing.
func TestReportsOfOthersChangeNothing(t *testing.T) {
	first := map[ReportKind]bool{Started: true, Ending: true, StepEnded: true}
	leaders := map[ReportKind]bool{ProgramPassed: true, ProgramFailed: true}
	for _, to := range []ReportKind{0, Started} {
		for _, r := range reports() {
			for _, node := range []string{"n3", "n9", "", "n2", "n1"} {
				r.Node = node
				if node == "n9" {
					r.Node = ""
					if leaders[r.Kind] {
						continue
					}
				}
				before, after := reported(t, to, r, true)
				same := reflect.DeepEqual(before, after)
				own := (node == "n1" || node == "n2" && !first[r.Kind]) && !leaders[r.Kind]
				if !same && !own {
					t.Errorf("report %d of %q, when the job has begun (%v), changes\n%+v\nto\n%+v", r.Kind, node, to == Started,
						before, after)
				}
			}
		}
	}
}

// TestReportsOfOwnCount: the same reports count from the job's own nodes, some before it has begun and some after.
func TestReportsOfOwnCount(t *testing.T) {
	for _, r := range reports() {
		if r.Kind == ProgramPassed || r.Kind == ProgramFailed {
			continue // there is no program in this session; see the transcripts
		}
		r.Node = "n1"
		before, after := reported(t, 0, r, true)
		if reflect.DeepEqual(before, after) {
			before, after = reported(t, Started, r, true)
		}
		if reflect.DeepEqual(before, after) {
			t.Errorf("report %d of the job's first node changes nothing", r.Kind)
		}
	}
}

// TestOldReportsReplay: a log of before has no node in the reports of a job's first node, and forged ones as they were
// applied.
func TestOldReportsReplay(t *testing.T) {
	for _, r := range []Report{{Kind: Started}, {Kind: PrologFailed, Text: "t", Node: "n3"},
		{Kind: StepEnded, Step: &model.Step{ID: 1}}} {
		before, after := reported(t, 0, r, false)
		if reflect.DeepEqual(before, after) {
			t.Errorf("report %d of %q changes nothing when it is read from an old log", r.Kind, r.Node)
		}
	}
}

// TestStepsOfGivenUpAttempts: an earlier attempt's steps count from the node that had it, and from no other one.
func TestStepsOfGivenUpAttempts(t *testing.T) {
	s := newSession(t)
	s.cfg.Nodes = []*model.NodeDef{{Name: "n1", CPUs: 4, ThreadsPerCore: 1}, {Name: "n2", CPUs: 4, ThreadsPerCore: 1}}
	s.cfg.Partitions = []*model.Partition{{Name: "p", Nodes: []string{"n1", "n2"}}}
	s.apply(&SetConfig{Config: &s.cfg, Instance: 1})
	s.apply(&Join{Node: "n1", BootID: "b"})
	id := s.apply(&Submit{Spec: &model.Spec{Name: "j", Partitions: []string{"p"}, Requeue: true}}).Job
	s.apply(&Starts{Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p", LimitS: 60,
		Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1", CPUs: model.UpTo(1), Tasks: 1}}}}}}})
	s.apply(&Reports{Placed: true, Reports: []Report{{Kind: Started, Job: id, Attempt: 1, Node: "n1"}}})
	s.apply(&Lost{Nodes: []string{"n1"}})
	if j := s.st.View().Job(id); j.Attempt != 2 {
		t.Fatalf("the job is at attempt %d, %s", j.Attempt, j.State)
	}
	for _, c := range []struct {
		node    string
		attempt uint32
		counts  bool
	}{{"n2", 1, false}, {"", 1, false}, {"n1", 2, false}, {"n1", 1, true}} {
		r := s.apply(&Reports{Placed: true, Reports: []Report{{Kind: StepEnded, Job: id, Attempt: c.attempt, Node: c.node,
			Step: &model.Step{ID: 1}}}})
		if r.Changed != c.counts {
			t.Errorf("a step of attempt %d, reported by %q: counts %v", c.attempt, c.node, r.Changed)
		}
	}
}

// TestUsersThatCantBe: the state takes no job of an id that no user has, nor one of root or SlurmUser that came by way
// of a host, whatever the leader thinks. A log of before replays as it was.
func TestUsersThatCantBe(t *testing.T) {
	const system, host, controller = 900, model.FromHost, model.FromController
	for _, c := range []struct {
		uid, gid uint32
		groups   []uint32
		from     model.Origin
		taken    bool
	}{
		{1001, 1001, []uint32{1001, 4}, host, true},
		{1001, 1001, nil, controller, true},
		{0, 0, []uint32{0}, controller, true},
		{system, system, nil, controller, true},
		{0, 0, nil, host, false},
		{0, 1001, nil, host, false},
		{system, system, nil, host, false},
		{1001, 0, nil, host, false},
		{1001, 0, nil, controller, false},
		{1001, 1001, []uint32{0}, host, false},
		{model.NoID, 1001, nil, host, false},
		{model.NoID, 1001, nil, controller, false},
		{1001, model.NoID, nil, host, false},
		{0, 0, []uint32{model.NoID}, controller, false},
		{model.NoID, model.NoID, nil, model.FromBefore, true},
		{0, 0, nil, model.FromBefore, true},
	} {
		s := newSession(t)
		s.cfg.Params.SlurmUID = system
		s.cfg.Partitions = []*model.Partition{{Name: "p"}}
		s.apply(&SetConfig{Config: &s.cfg, Instance: 1})
		r := s.apply(&Submit{Spec: &model.Spec{Name: "j", Partitions: []string{"p"}, UID: c.uid, GID: c.gid, Groups: c.groups,
			From: c.from}})
		if taken := r.Refusal == OK; taken != c.taken || !taken && (r.Refusal != BadUser || r.Changed) {
			t.Errorf("uid %d, gid %d, groups %v, from %d: %+v", c.uid, c.gid, c.groups, c.from, r)
		}
	}
}
