package state

import (
	"fmt"
	"strings"
	"testing"

	"gbatch/internal/model"
)

// TestLongWordsAreCut: whatever nodes and operators say, and at whatever time, the facts go into a snapshot and come
// back.
func TestLongWordsAreCut(t *testing.T) {
	long := strings.Repeat("é", model.MaxText/2)
	exits := []model.Exit{{Code: 1, Text: long}, {Code: 1, GPUOOM: true, Text: long}}
	for _, begun := range []bool{false, true} {
		for _, programs := range []bool{false, true} {
			for n, exit := range exits {
				for _, r := range reports() {
					if exit.GPUOOM && r.Kind != Ended {
						continue
					}
					r.Text, r.Exit = long, exit
					if r.Step != nil {
						r.Step = &model.Step{ID: 1, Exit: exit}
					}
					s, id := twoNodes(t, begun, programs)
					s.at = fmt.Sprintf("report %d, begun %v, programs %v, exit %d", r.Kind, begun, programs, n)
					s.tell(id, r)
					for _, node := range []string{"n1", "n2"} {
						s.tell(id, Report{Kind: Ended, Node: node, Text: long, Exit: exit})
					}
					s.whole()
				}
			}
		}
	}
	for _, late := range []string{"", long} { // of an attempt that was given up with its node
		s, id := twoNodes(t, true, false)
		s.at = "a late end"
		s.apply(&Lost{Nodes: []string{"n1", "n2"}})
		s.apply(&Reports{Placed: true, Reports: []Report{{Kind: Ended, Job: id, Attempt: 1, Node: "n1",
			Exit: model.Exit{Code: 3, Text: late}}}})
		s.whole()
	}
	for _, c := range []Body{
		&NodeEdit{Nodes: []string{"n1"}, Admin: model.NodeDown, Reason: long, By: "root"},
		&NodeEdit{Nodes: []string{"n2"}, Admin: model.NodeDown, Reason: long, By: "root"},
		&NodeEdit{Nodes: []string{"n1"}, Admin: model.NodeDrain, Gres: "gpu", Units: []int32{0}, Reason: long, By: "root"},
		&NodeHealth{Node: "n1", Problem: long},
		&Join{Node: "n2", BootID: "other", Problem: long},
		&Reboots{Nodes: []string{"n1"}, Op: AskReboot, Reason: long, By: "root"},
		&Units{Node: "n1", Tells: []model.UnitTell{{Name: "gpu", Kind: model.OutFault, Stamp: 1, Text: long}}},
		&Stop{Targets: []model.JobRef{{Job: 1, Task: model.NoTask}}, Event: model.EvCancel, Why: long},
	} {
		s, id := twoNodes(t, true, false)
		s.at = fmt.Sprintf("%T", c)
		s.apply(c)
		s.whole()
		for _, node := range []string{"n1", "n2"} {
			s.tell(id, Report{Kind: Ended, Node: node, Exit: model.Exit{Signal: 9}})
		}
		s.whole()
	}
}

// TestLongWordsOfBefore: a command of before keeps what it said.
func TestLongWordsOfBefore(t *testing.T) {
	for rules, want := range map[uint8]int{rulesLast: 100_000, rulesBrief: maxSaid + len("...")} {
		s, id := twoNodes(t, true, false)
		s.st.Apply(Command{At: s.now, rules: rules, Body: &Reports{Placed: true, Reports: []Report{{Kind: EpilogFailed,
			Job: id, Attempt: 1, Node: "n1", Text: strings.Repeat("x", 100_000)}}}})
		if got := len(s.st.View().Node("n1").Reason); got != len(reasonEpilog+": ")+want {
			t.Errorf("by rules %d the reason has %d bytes", rules, got)
		}
	}
}

// twoNodes makes a session with a job on two nodes with a GPU each.
func twoNodes(t *testing.T, begun, programs bool) (*session, model.JobID) {
	t.Helper()
	s := newSession(t)
	for _, n := range []string{"n1", "n2"} {
		s.cfg.Nodes = append(s.cfg.Nodes, &model.NodeDef{Name: n, CPUs: 4, ThreadsPerCore: 1,
			Gres: []model.GresDef{{Name: "gpu", Count: 1, MemMiB: 100_000}}})
	}
	s.cfg.Partitions = []*model.Partition{{Name: "p", Nodes: []string{"n1", "n2"}}}
	s.cfg.Params.Rules.Prolog, s.cfg.Params.Rules.LaunchDrain = []string{"/prolog"}, 1
	if programs {
		s.cfg.Params.Rules.CtldProlog, s.cfg.Params.Rules.CtldEpilog = []string{"/begin"}, []string{"/end"}
	}
	s.apply(&SetConfig{Config: &s.cfg, Instance: 1})
	for _, n := range s.cfg.Nodes {
		s.apply(&Join{Node: n.Name, BootID: "b"})
	}
	spec := &model.Spec{Name: "j", Partitions: []string{"p"}, MinNodes: 2, Requeue: !begun,
		More: &model.Needs{OOMRequeue: true}}
	id := s.apply(&Submit{Spec: spec}).Job
	alloc := &model.Alloc{}
	for _, n := range s.cfg.Nodes {
		alloc.Nodes = append(alloc.Nodes, model.NodeAlloc{Node: n.Name, CPUs: model.UpTo(1), Tasks: 1,
			Gres: []model.GresAlloc{{Name: "gpu", Index: model.UpTo(1)}}})
	}
	s.apply(&Starts{Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p", LimitS: 60,
		Alloc: alloc}}}})
	if begun {
		if programs {
			s.tell(id, Report{Kind: ProgramPassed})
		}
		for _, r := range []Report{{Kind: Ready, Node: "n1"}, {Kind: Ready, Node: "n2"}, {Kind: Started, Node: "n1"}} {
			s.tell(id, r)
		}
		if j := s.st.View().Job(id); j.State != model.Running {
			t.Fatalf("the job is %s", j.State)
		}
	}
	return s, id
}

// tell applies a report on a job's first attempt; of the first node, if it is not the leader's own.
func (s *session) tell(id model.JobID, r Report) {
	s.t.Helper()
	if r.Job, r.Attempt = id, 1; r.Node == "" && r.Kind != ProgramPassed && r.Kind != ProgramFailed {
		r.Node = "n1"
	}
	s.apply(&Reports{Placed: true, Reports: []Report{r}})
}

// whole puts the facts through a snapshot.
func (s *session) whole() {
	s.t.Helper()
	if err := s.st.Check(); err != nil {
		s.t.Fatalf("%s: %v", s.at, err)
	}
	var b strings.Builder
	if err := s.st.Freeze()(&b); err != nil {
		s.t.Fatalf("%s: %v", s.at, err)
	}
	if err := New().Restore(strings.NewReader(b.String())); err != nil {
		s.t.Fatalf("%s: %v", s.at, err)
	}
}
