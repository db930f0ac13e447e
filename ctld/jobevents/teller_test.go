package jobevents

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// cluster is a state to which a test submits jobs that it cancels.
type cluster struct {
	mu      sync.Mutex
	st      *state.State
	index   uint64
	changed chan struct{}
}

func newCluster(t *testing.T, rules model.JobEvents) *cluster {
	c := &cluster{st: state.New(), changed: make(chan struct{})}
	cfg := &model.Config{Cluster: "c", Nodes: []*model.NodeDef{{Name: "n1", CPUs: 4, MemMiB: 100}},
		Partitions: []*model.Partition{{Name: "main", Nodes: []string{"n1"}, Default: true, MaxTimeS: model.Unlimited}},
		Params:     model.Params{MaxJobs: 1000, KillWaitS: 30, MinJobAgeS: 300, JobEvents: rules}}
	c.do(t, &state.SetConfig{Config: cfg, Instance: 1})
	return c
}

func (c *cluster) View() *state.View {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.st.View()
}

func (c *cluster) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *cluster) do(t *testing.T, body state.Body) {
	t.Helper()
	b, err := state.Encode(model.Time(time.Now().UnixMilli()), body)
	if err != nil {
		t.Fatal(err)
	}
	cmd, err := state.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.index++
	c.st.Entry(c.index)
	c.st.Apply(cmd)
	close(c.changed)
	c.changed = make(chan struct{})
}

// ends submits a job and cancels it.
func (c *cluster) ends(t *testing.T, name string) {
	t.Helper()
	c.do(t, &state.Submit{Spec: &model.Spec{Name: name, User: "ann", UID: 7, Partitions: []string{"main"}, MinNodes: 1,
		Tasks: 1, CPUsPerTask: 1}})
	last := model.JobID(0)
	c.View().Jobs(func(j *model.Job) bool { last = max(last, j.ID); return true })
	c.do(t, &state.Stop{Event: model.EvCancel, Targets: []model.JobRef{{Job: last, Task: model.NoTask}}})
}

// said collects what a program reads.
type said struct {
	mu   sync.Mutex
	list []string
	slow map[string]time.Duration // by the job's name
	most int
	now  int
}

func (s *said) run(ctx context.Context, call *Call) error {
	var e Event
	if err := json.Unmarshal(call.Input, &e); err != nil {
		return err
	}
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	wait := s.slow[e.Name]
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, call.Limit)
	defer cancel()
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
	if ctx.Err() != nil {
		return errors.New("killed")
	}
	s.list = append(s.list, e.Event+" "+e.Name)
	return nil
}

func (s *said) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.list, ", ")
}

// TestTell: events are told, a program that hangs holds up nobody and is killed, no more run at once than may, and the
// next leader goes on where this one was.
func TestTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, model.JobEvents{Program: "/p", LimitS: 60, Parallel: 2})
		s := &said{slow: map[string]time.Duration{"hangs": time.Hour}}
		first := &Teller{Facts: c, Run: s.run, Log: slog.New(slog.DiscardHandler)}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { first.Lead(ctx) })
		synctest.Wait()
		c.ends(t, "a")
		c.ends(t, "hangs")
		c.ends(t, "b")
		time.Sleep(10 * time.Second)
		if got := s.text(); got != "end a, end b" {
			t.Errorf("beside one that hangs: %s", got)
		}
		if n := first.Counts(); n != (Counts{Told: 2, Waiting: 2}) { // b stands behind the one that hangs
			t.Errorf("%+v", n)
		}
		time.Sleep(time.Minute)
		told := first.Told()
		if n := first.Counts(); n != (Counts{Told: 2, Failed: 1}) || told != c.index {
			t.Errorf("%+v, told up to %d of %d", n, told, c.index)
		}
		stop()
		wg.Wait()
		c.ends(t, "between")

		next := &Teller{Facts: c, Run: s.run, Log: slog.New(slog.DiscardHandler)}
		next.Heard(told)
		ctx, stop = context.WithCancel(t.Context())
		wg.Go(func() { next.Lead(ctx) })
		time.Sleep(time.Second)
		c.ends(t, "later")
		time.Sleep(time.Second)
		stop()
		wg.Wait()
		if got := s.text(); got != "end a, end b, end between, end later" || s.most > 2 {
			t.Errorf("%s; %d at once", got, s.most)
		}
	})
}

// TestSlow: a program that is slower than things happen loses events, which is counted, and memory is bounded.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, model.JobEvents{Program: "/p", LimitS: 600, Parallel: 1, Kinds: []string{model.JobEnd}})
		s := &said{slow: map[string]time.Duration{"x": 10 * time.Second}}
		teller := &Teller{Facts: c, Run: s.run, Log: slog.New(slog.DiscardHandler)}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { teller.Lead(ctx) })
		synctest.Wait()
		for range 900 {
			c.ends(t, "x")
		}
		time.Sleep(25 * time.Second)
		if n := teller.Counts(); n.Told != 2 || n.Waiting != 898 || n.Lost != 0 {
			t.Errorf("%+v", n)
		}
		stop()
		wg.Wait()
	})
}

// TestKinds: what a change of a job's state is.
func TestKinds(t *testing.T) {
	run := func(stop model.StopCause, sleep model.SleepKind, sizes uint32) *model.Run {
		return &model.Run{Stop: stop, Sleep: sleep, Sizes: sizes}
	}
	var got []string
	for _, x := range []struct {
		was, is   model.JobState
		old, now  *model.Run
		preemptor model.JobID
	}{
		{model.Pending, model.Configuring, nil, run(0, 0, 0), 0},
		{model.Configuring, model.Running, run(0, 0, 0), run(0, 0, 0), 0},
		{model.Running, model.Completing, run(0, 0, 0), run(model.StopPreempt, 0, 0), 9},
		{model.Completing, model.Pending, run(model.StopPreempt, 0, 0), nil, 0},
		{model.Running, model.Suspended, run(0, 0, 0), run(0, model.SleepsForRoom, 0), 9},
		{model.Running, model.Suspended, run(0, 0, 0), run(0, model.SleepsByAdmin, 0), 0},
		{model.Suspended, model.Running, run(0, model.SleepsByAdmin, 0), run(0, 0, 0), 0},
		{model.Running, model.Suspended, run(0, 0, 0), run(0, model.SleepsInTurn, 0), 0},
		{model.Suspended, model.Running, run(0, model.SleepsInTurn, 0), run(0, 0, 0), 0},
		{model.Running, model.Running, run(0, 0, 0), run(0, 0, 1), 0},
		{model.Running, model.Completing, run(0, 0, 0), run(model.StopCancel, 0, 0), 0},
		{model.Completing, model.Cancelled, run(model.StopCancel, 0, 0), run(model.StopCancel, 0, 0), 0},
	} {
		got = append(got, kindOf(&state.Happening{Job: &model.Job{State: x.is, Run: x.now},
			Was: &model.Job{State: x.was, Run: x.old}, For: x.preemptor}))
	}
	want := []string{"start", "", "preempt", "requeue", "preempt", "suspend", "resume", "", "", "resize", "", "end"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestHiddenPreemptor: with PrivateData=jobs the program is told that the job's user may not see the one that takes its
// place, unless it is their own.
func TestHiddenPreemptor(t *testing.T) {
	for _, private := range [][]string{nil, {"jobs"}} {
		st := state.New()
		cfg := &model.Config{Cluster: "c", Params: model.Params{PrivateData: private},
			Partitions: []*model.Partition{{Name: "p"}}}
		st.Apply(state.Command{Kind: state.KindConfig, At: 1, Body: &state.SetConfig{Config: cfg, Instance: 1}})
		for _, uid := range []uint32{7, 8} {
			st.Apply(state.Command{Kind: state.KindSubmit, At: 2, Body: &state.Submit{Spec: &model.Spec{UID: uid,
				Partitions: []string{"p"}, MinNodes: 1, MaxNodes: 1}}})
		}
		v := st.View()
		for of, hidden := range map[model.JobID]bool{1: false, 2: private != nil, 99: private != nil} {
			if by := preemptor(v, v.Job(1), of); by.Hidden != hidden {
				t.Errorf("PrivateData=%v, job %d: %+v", private, of, by)
			}
		}
	}
}
