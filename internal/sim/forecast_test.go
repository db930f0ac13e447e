package sim

import (
	"bytes"
	"context"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/sched"
	"gbatch/internal/state"
)

// TestForecastOfSuspended runs a queue forward with jobs that are suspended for others, before the dump or after it:
// such a job continues with its remaining time, and one that an operator has suspended never ends.
func TestForecastOfSuspended(t *testing.T) {
	const begin = model.Time(1_000_000_000)
	m := preemptMachine(t, "SUSPEND,GANG", "CANCEL")
	st := state.New()
	now := begin
	apply := func(b state.Body) state.Result { return st.Apply(state.Command{At: now, Body: b}) }
	apply(&state.SetConfig{Config: m.Config, Instance: 1})
	apply(&state.Join{Node: "n1", BootID: "b"})
	submit := func(part string, cpus int32, limitS int64) model.JobID {
		return apply(&state.Submit{Priority: 1,
			Spec: &model.Spec{User: "u", Account: "a", Partitions: []string{part}, Tasks: cpus, MemPerNode: 10, LimitS: limitS,
				Requeue: true}}).Job
	}
	pass := func() {
		plan := sched.Plan(st.View(), now, sched.Policy{})
		apply(&state.Starts{Epoch: 1, Plan: plan})
		for _, s := range plan.Starts {
			apply(&state.Reports{Reports: []state.Report{{Kind: state.Started, Job: s.Job, Attempt: 1, At: now}}})
		}
	}
	low := submit("low", 4, 1000)
	pass()
	now = now.Add(100)
	high := submit("high", 2, 200)
	later := submit("low", 4, 50)
	run := func(what string, starts map[model.JobID]model.Time, idle model.Time) {
		t.Helper()
		copied := dumped(t, st)
		f, err := RunForward(context.Background(), copied, now, configured(m.Config).New())
		if err != nil {
			t.Fatal(err)
		}
		for id, want := range starts {
			if got := f.Starts[forecastKey{id, model.NoTask}]; got.Start != want {
				t.Errorf("%s: job %d is expected at %d (%s), want %d", what, id, got.Start-begin, got.Why, want-begin)
			}
		}
		if f.Idle != idle {
			t.Errorf("%s: idle at %d, want %d", what, f.Idle-begin, idle-begin)
		}
	}
	// 100 of 1000 seconds are done; 200 it is suspended, then the rest
	run("before", map[model.JobID]model.Time{high: begin.Add(100), later: begin.Add(1200)}, begin.Add(1250))
	pass()
	pass()
	if s := st.View().Job(low).State; s != model.Suspended {
		t.Fatalf("job %d is %s", low, s)
	}
	now = now.Add(50)
	run("while it sleeps", map[model.JobID]model.Time{later: begin.Add(1200)}, begin.Add(1250))
	apply(&state.Suspend{Targets: []model.JobRef{{Job: high, Task: model.NoTask}}})
	if s := st.View().Job(high).State; s != model.Suspended {
		t.Fatalf("job %d is %s", high, s)
	}
	run("an operator's", map[model.JobID]model.Time{later: begin.Add(150 + 900)}, 0)
}

// dumped gives a copy of a state.
func dumped(t *testing.T, st *state.State) *state.State {
	t.Helper()
	b := &bytes.Buffer{}
	if err := st.Freeze()(b); err != nil {
		t.Fatal(err)
	}
	n := state.New()
	if err := n.Restore(b); err != nil {
		t.Fatal(err)
	}
	return n
}
