package trigger

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gbatch/ctld/program"
	"gbatch/internal/model"
	"gbatch/internal/state"
)

// TestMain is for the processes that become a user's program.
func TestMain(m *testing.M) {
	if status, handled := program.Main(os.Args); handled {
		os.Exit(status)
	}
	os.Exit(m.Run())
}

// apply applies a command.
func apply(t *testing.T, s *state.State, at model.Time, body state.Body) state.Result {
	t.Helper()
	b, err := state.Encode(at, body)
	if err != nil {
		t.Fatal(err)
	}
	c, err := state.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	return s.Apply(c)
}

func cluster(t *testing.T) *state.State {
	s := state.New()
	apply(t, s, 1000, &state.SetConfig{Instance: 1, Config: &model.Config{Cluster: "c",
		Nodes: []*model.NodeDef{{Name: "n1", CPUs: 4, ThreadsPerCore: 1, MemMiB: 100},
			{Name: "n2", CPUs: 4, ThreadsPerCore: 1, MemMiB: 100}},
		Partitions: []*model.Partition{{Name: "p", Nodes: []string{"n1", "n2"}, Default: true, MaxTimeS: model.Unlimited}},
		Params:     model.Params{MaxJobs: 100, KillWaitS: 30, MinJobAgeS: 300}}})
	return s
}

// TestTimely: a limit is near at its offset, once in each run; nodes have been idle for the time that is asked for,
// once for each time that they became so.
func TestTimely(t *testing.T) {
	s := cluster(t)
	apply(t, s, 2000, &state.Join{Node: "n1", BootID: "b"})
	apply(t, s, 5000, &state.Join{Node: "n2", BootID: "b"})
	apply(t, s, 6000, &state.Submit{RequestID: "r", Spec: &model.Spec{Name: "j", UID: 7, User: "u", Account: "a",
		Partitions: []string{"p"}, MinNodes: 1, MaxNodes: 1}})
	set := func(x model.Trigger) {
		x.Program = "/p"
		if r := apply(t, s, 6500, &state.Triggers{Op: state.SetTrigger, Set: &x}); r.Refusal != state.OK {
			t.Fatal(r.Refusal)
		}
	}
	set(model.Trigger{UID: 7, Of: model.TriggerJob, Job: 1, Events: model.OnTime, OffsetS: -20})
	apply(t, s, 7000, &state.Starts{Epoch: 1, Plan: model.Plan{Starts: []model.Start{{Job: 1, Task: model.NoTask,
		Partition: "p", LimitS: 60, Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1", CPUs: model.UpTo(1),
			Tasks: 1}}}}}}})
	apply(t, s, 8000, &state.Reports{Reports: []state.Report{{Kind: state.Started, Job: 1,
		Attempt: s.View().Job(1).Attempt, At: 8000}}})
	want := func(now model.Time, ids ...uint32) {
		t.Helper()
		hits, watch, _ := Timely(s.View(), now)
		var got []uint32
		for _, h := range hits {
			got = append(got, h.ID)
		}
		if !slices.Equal(got, ids) || !watch {
			t.Errorf("at %d: %v, want %v", now, hits, ids)
		}
		apply(t, s, now, &state.Triggers{Op: state.HitTriggers, Hits: hits})
	}
	end := s.View().LatestEnd(s.View().Job(1))
	want(end - 20_001)
	want(end-20_000, 1)
	due, _ := Due(s.View(), end-20_000)
	if len(due) != 1 || What(due[0]) != "1" {
		t.Errorf("due: %+v", due)
	}
	apply(t, s, end-19_000, &state.Triggers{Op: state.RanTriggers, Ran: []state.TriggerRan{{ID: 1, Gen: s.View().Gen()}}})

	set(model.Trigger{Of: model.TriggerNode, Events: model.OnIdle, OffsetS: 60, Perm: true})
	want(64_999)
	want(65_000, 2) // n2; n1 has a job
	due, _ = Due(s.View(), 65_000)
	if len(due) != 1 || What(due[0]) != "n2" {
		t.Errorf("due: %+v", due)
	}
	apply(t, s, 66_000, &state.Triggers{Op: state.RanTriggers, Ran: []state.TriggerRan{{ID: 2, Gen: s.View().Gen()}}})
	want(500_000) // it is idle still
	apply(t, s, 600_000, &state.Join{Node: "n2", BootID: "c"})
	want(659_999)
	want(660_000, 2)
	if _, next := Due(s.View(), 600_000); next != 660_000 {
		t.Errorf("the next is due at %d", next)
	}
}

// TestTimelyFitsTheLog: whatever has come at once, each proposal of it fits into the log, and all is proposed in the
// end.
func TestTimelyFitsTheLog(t *testing.T) {
	const nodes, triggers = 1000, 20
	s := state.New()
	cfg := &model.Config{Cluster: "c", Partitions: []*model.Partition{{Name: "p"}}, Params: model.Params{MaxJobs: 100}}
	for n := range nodes {
		cfg.Nodes = append(cfg.Nodes, &model.NodeDef{Name: fmt.Sprintf("%s%d", strings.Repeat("n", 1000), n), CPUs: 4,
			ThreadsPerCore: 1})
	}
	apply(t, s, 1000, &state.SetConfig{Instance: 1, Config: cfg})
	for _, n := range cfg.Nodes {
		apply(t, s, 2000, &state.Join{Node: n.Name, BootID: "b"})
	}
	for n := range triggers {
		apply(t, s, 3000, &state.Triggers{Op: state.SetTrigger, Set: &model.Trigger{Program: fmt.Sprint("/p", n),
			Of: model.TriggerNode, Events: model.OnIdle, OffsetS: 60}})
	}
	seen, rounds := map[uint32]int{}, 0
	for ; rounds < 2*triggers; rounds++ {
		hits, _, _ := Timely(s.View(), 100_000)
		if len(hits) == 0 {
			break
		}
		data, err := state.Encode(100_000, &state.Triggers{Op: state.HitTriggers, Hits: hits})
		if err != nil || len(data) > 4<<20 {
			t.Fatalf("%d hits have %d bytes, %v", len(hits), len(data), err)
		}
		for _, h := range hits {
			seen[h.ID] += len(h.Nodes)
		}
		apply(t, s, 100_000, &state.Triggers{Op: state.HitTriggers, Hits: hits})
	}
	if len(seen) != triggers || seen[1] != nodes || rounds == 1 {
		t.Errorf("in %d rounds: %v", rounds, seen)
	}
}

// TestRun: a program gets its arguments, and nothing of it is left when it has ended or its leader is over.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	job := func(program string) *model.Trigger {
		return &model.Trigger{ID: 3, Of: model.TriggerJob, Job: 12, Program: program,
			Hits: []model.TriggerHit{{Name: "n1", Events: model.OnDown}}}
	}
	k := &Keeper{Env: []string{"PATH=/usr/bin:/bin"}}
	env := func(x *model.Trigger) []string { return k.environ(state.New().View(), x) }
	x := job(script("ok", "echo $# $3 $GBATCH_TRIGGER_EVENT $GBATCH_TRIGGER_NODES $USER; exec sleep 600 &\n") + "  a b")
	said, err := run(t.Context(), x, As{Name: "ann"}, env(x))
	if err != nil || said != "3 12 down n1 ann" {
		t.Errorf("%q, %v", said, err)
	}
	x = job(script("bad", "exit 3\n"))
	if _, err := run(t.Context(), x, As{}, env(x)); err == nil || !strings.Contains(err.Error(), "exited with 3") {
		t.Errorf("%v", err)
	}
	if _, err := run(t.Context(), job("/no/such"), As{}, nil); err == nil {
		t.Error("a program that is not there has run")
	}
	x = job(script("hangs", "trap '' TERM INT; echo >"+dir+"/on; while :; do sleep 600; done\n"))
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	go func() {
		_, err := run(ctx, x, As{}, env(x))
		over <- err
	}()
	for _, err := os.Stat(dir + "/on"); err != nil; _, err = os.Stat(dir + "/on") {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-over; err == nil {
		t.Error("a program that was killed has run well")
	}
}
