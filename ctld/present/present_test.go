package present

import (
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// facts has one allocation that runs, under a limit.
func facts(t *testing.T, limitS int64) *state.State {
	t.Helper()
	st := state.New()
	at := model.Time(1_700_000_000_000)
	apply := func(b state.Body) {
		t.Helper()
		data, err := state.Encode(at, b)
		if err != nil {
			t.Fatal(err)
		}
		cmd, err := state.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		st.Apply(cmd)
	}
	cfg := &model.Config{Cluster: "c", Nodes: []*model.NodeDef{{Name: "n1", CPUs: 4, MemMiB: 1000}},
		Partitions: []*model.Partition{{Name: "p", Nodes: []string{"n1"}}}}
	cfg.Params.InactiveS = limitS
	apply(&state.SetConfig{Config: cfg})
	apply(&state.Join{Node: "n1", BootID: "b"})
	sp := &model.Spec{UID: 7, User: "u", Account: "a", Partitions: []string{"p"}, LimitS: 600,
		More: &model.Needs{Interactive: true, Attended: true}}
	apply(&state.Submit{RequestID: "r", Spec: sp})
	apply(&state.Starts{Epoch: 1, Plan: model.Plan{Starts: []model.Start{{Job: 1, Task: model.NoTask, Partition: "p",
		LimitS: 600, Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1", CPUs: model.UpTo(1), Tasks: 1}}}}}}})
	apply(&state.Reports{Reports: []state.Report{{Kind: state.Started, Job: 1, Attempt: 1, At: at}}})
	if j := st.View().Job(1); j == nil || j.State != model.Running {
		t.Fatalf("%+v", j)
	}
	return st
}

// TestSilent: a command that has not spoken for the limit is silent; a new leader, and a new limit, give it time.
func TestSilent(t *testing.T) {
	st := facts(t, 100)
	v, now := st.View(), time.Unix(1_700_000_000, 0)
	var r Roll
	r.Begin(now)
	after := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	last := -1
	silent := func(s int) (is bool) {
		for last < s {
			last++
			list, wait := r.Silent(v, after(last))
			if wait < time.Second {
				t.Errorf("the next look comes after %v", wait)
			}
			is = len(list) > 0
		}
		return is
	}
	if silent(0) || silent(114) || !silent(115) {
		t.Error("a command that a new leader has not heard has a little longer than any other")
	}
	r.Here(1, after(150))
	if silent(151) || silent(249) || !silent(250) {
		t.Error("it is silent before its time, or not after it")
	}
	r.Here(99, after(250)) // of no job
	v = facts(t, 0).View()
	if silent(1000) || EveryS(0) != restS {
		t.Error("a command is silent without a limit")
	}
	v = facts(t, 100).View()
	if silent(1001) || silent(1001+restS+99) || !silent(1001+restS+100) {
		t.Error("a new limit leaves no time to hear of it")
	}
	r.Here(1, after(1200))
	silent(1201)
	if last = 1399; silent(1400) || silent(1400+114) || !silent(1400+115) {
		t.Error("a leader that was stopped gives commands no time to speak")
	}
	if EveryS(2) != 1 || EveryS(100) != 25 || EveryS(65533) != restS {
		t.Error("commands speak too rarely, or too often")
	}
}
