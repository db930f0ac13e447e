package state

import (
	"testing"

	"gbatch/internal/model"
)

// A registration that comes late, after a later one of the same boot, knows less than the node does: it changes
// nothing. Else a job that was launched in between would be given up, and start a second time while it runs.
func TestLateRegistration(t *testing.T) {
	s := newSession(t)
	s.cfg.Nodes = []*model.NodeDef{{Name: "n1", CPUs: 4, ThreadsPerCore: 1}, {Name: "n2", CPUs: 4, ThreadsPerCore: 1}}
	s.cfg.Partitions = []*model.Partition{{Name: "p", Nodes: []string{"n1", "n2"}}}
	s.apply(&SetConfig{Config: &s.cfg, Instance: 1})
	s.apply(&Join{Node: "n1", BootID: "b", Uptime: 2000})
	id := s.apply(&Submit{Spec: &model.Spec{Name: "j", Partitions: []string{"p"}, Requeue: true}}).Job
	s.apply(&Starts{Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p", LimitS: 60,
		Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1", CPUs: model.UpTo(1), Tasks: 1}}}}}}})
	s.apply(&Reports{Reports: []Report{{Kind: Started, Job: id, Attempt: 1}}})
	if r := s.apply(&Join{Node: "n1", BootID: "b", Uptime: 1000}); r.Refusal != Outdated || r.Changed {
		t.Errorf("the late registration was taken: %+v", r)
	}
	if j := s.st.View().Job(id); j.State != model.Running || j.Attempt != 1 {
		t.Errorf("the job is %s, attempt %d", j.State, j.Attempt)
	}
	for i, join := range []*Join{
		{Node: "n1", BootID: "b", Uptime: 2000, Known: []Report{{Job: id, Attempt: 1}}}, // again
		{Node: "n1", BootID: "b", Known: []Report{{Job: id, Attempt: 1}}},               // of an older version
		{Node: "n1", BootID: "b", Uptime: 10, Known: []Report{{Job: id, Attempt: 1}}},
		{Node: "n1", BootID: "c", Uptime: 5}, // after a reboot
	} {
		if r := s.apply(join); r.Refusal != OK {
			t.Errorf("registration %d was refused: %s", i, r.Refusal)
		}
	}
	if j := s.st.View().Job(id); j.Attempt != 2 {
		t.Errorf("after the reboot the job is at attempt %d", j.Attempt)
	}
}
