package power

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gbatch/ctld/program"
	"gbatch/internal/model"
	"gbatch/internal/state"
)

// TestMain is for the processes that become a program.
func TestMain(m *testing.M) {
	if status, handled := program.Main(os.Args); handled {
		os.Exit(status)
	}
	os.Exit(m.Run())
}

// world is a cluster's facts with the clock in the test's hand.
type world struct {
	t  *testing.T
	mu sync.Mutex
	st *state.State
	at model.Time
}

func newWorld(t *testing.T, nodes int, rules model.PowerRules, edit func(*model.Config)) *world {
	w := &world{t: t, st: state.New(), at: 1_000_000}
	cfg := &model.Config{Cluster: "c"}
	part := &model.Partition{Name: "p"}
	for i := range nodes {
		name := fmt.Sprintf("n%d", i+1)
		cfg.Nodes = append(cfg.Nodes, &model.NodeDef{Name: name, CPUs: 4, MemMiB: 100, Weight: int32(i)})
		part.Nodes = append(part.Nodes, name)
	}
	cfg.Partitions = []*model.Partition{part}
	rules.Suspend, rules.Resume = "/off", "/on"
	cfg.Params.Power, cfg.Params.ReturnToService = rules, 2
	if edit != nil {
		edit(cfg)
	}
	w.apply(&state.SetConfig{Config: cfg})
	for _, d := range cfg.Nodes {
		if !d.Cloud {
			w.apply(&state.Join{Node: d.Name, BootID: "b"})
		}
	}
	return w
}

func (w *world) apply(b state.Body) state.Result {
	w.t.Helper()
	data, err := state.Encode(w.at, b)
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := state.Decode(data)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.st.Apply(c)
	if err := w.st.Check(); err != nil {
		w.t.Fatalf("%T %+v: %v", b, b, err)
	}
	return r
}

func (w *world) view() *state.View {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.st.View()
}

func (w *world) wait(s int64) { w.at = w.at.Add(s) }

func (w *world) due() due { return plan(w.view(), w.at, time.UnixMilli(int64(w.at)).UTC()) }

func (w *world) op(op state.PowerOp, nodes ...string) {
	w.t.Helper()
	for i, r := range w.apply(&state.Powers{Nodes: nodes, Op: op}).Each {
		if r != state.OK {
			w.t.Fatalf("operation %d of %s: %s", op, nodes[i], r)
		}
	}
}

// off brings nodes that are idle down.
func (w *world) off(nodes ...string) {
	w.t.Helper()
	w.op(state.BeginDown, nodes...)
	w.wait(w.view().Config().Params.Power.SuspendTimeoutS)
	w.op(state.FinishDown, nodes...)
}

func (w *world) submit(n int) {
	for range n {
		w.apply(&state.Submit{Spec: &model.Spec{Name: "j", User: "u", Partitions: []string{"p"}, Requeue: true, MinNodes: 1,
			MaxNodes: 1}})
	}
}

func want(t *testing.T, what string, got []string, names ...string) {
	t.Helper()
	if !slices.Equal(got, names) {
		t.Errorf("%s: %v, wanted %v", what, got, names)
	}
}

// TestSuspendTime: idle nodes go down after SuspendTime, but for those that are excepted.
func TestSuspendTime(t *testing.T) {
	rules := model.PowerRules{SuspendS: 60, SuspendTimeoutS: 30, ResumeTimeoutS: 60,
		Spare:       []model.PowerSpare{{Nodes: []string{"n1", "n2", "n3"}, Count: 2}, {Nodes: []string{"n4"}}},
		SpareStates: []string{"DRAIN"}}
	w := newWorld(t, 7, rules, func(c *model.Config) {
		c.Partitions = append(c.Partitions, &model.Partition{Name: "slow", Nodes: []string{"n7"},
			Power: &model.PartPower{SuspendS: 100, SuspendTimeoutS: model.NotSet, ResumeTimeoutS: model.NotSet}})
	})
	w.apply(&state.NodeEdit{Nodes: []string{"n5"}, Admin: model.NodeDrain, Reason: "x", By: "root"})
	w.wait(59)
	want(t, "before SuspendTime", w.due().down)
	w.wait(1)
	want(t, "after SuspendTime", w.due().down, "n3", "n6")
	w.wait(40)
	want(t, "after the partition's", w.due().down, "n3", "n6", "n7")
	w.op(state.BeginDown, "n6")
	d := w.due()
	want(t, "programs", d.runDown, "n6")
	w.wait(30)
	want(t, "not before the program has run", w.due().finish)
	w.op(state.PowerTold, "n6")
	want(t, "finished", w.due().finish, "n6")
}

// TestScale: rules keep idle nodes up, and ask for more before a job needs them.
func TestScale(t *testing.T) {
	for _, tc := range []struct {
		name  string
		scale model.PowerScale
		jobs  int // that wait
		busy  int // nodes with a job on all CPUs
		off   []string
		down  []string
		ask   []string
	}{
		{name: "number", scale: model.PowerScale{Keep: []model.PowerKeep{{Count: 2}}}, down: []string{"n3", "n4"}},
		{name: "percent", scale: model.PowerScale{Keep: []model.PowerKeep{{Percent: 60}}}, down: []string{"n4"}},
		{name: "too few", scale: model.PowerScale{Keep: []model.PowerKeep{{Count: 3}}}, off: []string{"n2", "n3"},
			ask: []string{"n2"}},
		{name: "another day", scale: model.PowerScale{Keep: []model.PowerKeep{{Count: 2, Days: 1 << time.Friday}}},
			down: []string{"n1", "n2", "n3", "n4"}},
		{name: "queue", scale: model.PowerScale{PerJobs: 2}, jobs: 3, off: []string{"n2", "n3", "n4"}, ask: []string{"n2"}},
		{name: "use", scale: model.PowerScale{MaxUse: 50}, busy: 1, down: []string{"n3", "n4"}},
		{name: "use, off", scale: model.PowerScale{MaxUse: 50}, busy: 2, off: []string{"n3", "n4"},
			ask: []string{"n3", "n4"}},
	} {
		for _, of := range []string{"cluster", "partition"} {
			t.Run(tc.name+" "+of, func(t *testing.T) {
				rules := model.PowerRules{SuspendS: 60, SuspendTimeoutS: 0, ResumeTimeoutS: 60}
				w := newWorld(t, 4, rules, func(c *model.Config) {
					if of == "cluster" {
						c.Params.Power.Scale = tc.scale
					} else {
						c.Partitions[0].Power = &model.PartPower{SuspendS: model.NotSet, SuspendTimeoutS: model.NotSet,
							ResumeTimeoutS: model.NotSet, Scale: tc.scale}
					}
				})
				if len(tc.off) > 0 {
					w.off(tc.off...)
				}
				w.submit(tc.busy)
				for i := range tc.busy {
					w.apply(&state.Starts{Plan: model.Plan{Starts: []model.Start{{Job: model.JobID(i + 1), Task: model.NoTask,
						Partition: "p", LimitS: 1000, Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: fmt.Sprintf("n%d", i+1),
							CPUs: model.UpTo(4), Tasks: 1}}}}}}})
				}
				w.submit(tc.jobs)
				w.wait(60)
				d := w.due()
				want(t, "down", d.down, tc.down...)
				want(t, "ask", d.ask, tc.ask...)
				if len(d.ask) > 0 { // asked for once
					w.apply(&state.Powers{Nodes: d.ask, Op: state.AskPower, Want: model.PowerUp})
					d = w.due()
					want(t, "ask again", d.ask)
					want(t, "up", d.up, tc.ask...)
				}
			})
		}
	}
}

// TestHolds: times of the week, over midnight too.
func TestHolds(t *testing.T) {
	friday := time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)
	at := func(day, hour, minute int) time.Time {
		return friday.AddDate(0, 0, day).Add(time.Duration(hour*60+minute) * time.Minute)
	}
	work := model.PowerKeep{Days: 1<<time.Monday | 1<<time.Friday, From: 8 * 60, To: 18 * 60}
	night := model.PowerKeep{Days: 1 << time.Friday, From: 22 * 60, To: 6 * 60}
	for _, tc := range []struct {
		e    model.PowerKeep
		at   time.Time
		want bool
	}{
		{model.PowerKeep{}, at(0, 3, 0), true},
		{work, at(0, 8, 0), true}, {work, at(0, 7, 59), false}, {work, at(0, 18, 0), false}, {work, at(1, 9, 0), false},
		{night, at(0, 23, 0), true}, {night, at(1, 5, 59), true}, {night, at(1, 6, 0), false}, {night, at(0, 5, 0), false},
	} {
		if got := holds(&tc.e, tc.at); got != tc.want {
			t.Errorf("%+v at %s: %v", tc.e, tc.at, got)
		}
	}
}

// TestRate: no more than so many nodes begin in a minute.
func TestRate(t *testing.T) {
	k := &Keeper{}
	nodes := []string{"n1", "n2", "n3", "n4", "n5"}
	now := time.Now()
	want(t, "the first", k.within(&k.up, nodes, 3, now), "n1", "n2", "n3")
	want(t, "the same minute", k.within(&k.up, nodes[3:], 3, now.Add(59*time.Second)))
	want(t, "the next", k.within(&k.up, nodes[3:], 3, now.Add(minute)), "n4", "n5")
	want(t, "no limit", k.within(&k.up, nodes, 0, now), nodes...)
}

// TestProvider: a provider that fails at random, from a seed: every job ends, no node is given to a job twice, and no
// node is powered up without need.
func TestProvider(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 26))
			chance := func(percent int) bool { return rng.IntN(100) < percent }
			w := newWorld(t, 6, model.PowerRules{SuspendS: 20, SuspendTimeoutS: 5, ResumeTimeoutS: 15, IdleAfter: chance(50)},
				func(c *model.Config) {
					for _, d := range c.Nodes {
						d.Cloud = true
					}
				})
			comes := map[string]model.Time{} // when a node registers
			ends := map[model.JobID]model.Time{}
			const jobs = 40
			submitted, failures := 0, 0
			for step := 0; ; step++ {
				if step > 5000 {
					t.Fatalf("%d of %d jobs have ended", w.ended(), jobs)
				}
				w.wait(1)
				if submitted < jobs && chance(20) {
					w.submit(1)
					submitted++
				}
				d := w.due()
				for _, x := range []struct {
					op    state.PowerOp
					nodes []string
				}{{state.FinishDown, d.finish}, {state.GiveUpResume, d.giveUp}, {state.BeginUp, d.up}, {state.BeginDown, d.down},
					{state.PowerTold, d.runDown}, {state.ResumeFailed, d.runFail}} {
					if len(x.nodes) > 0 {
						w.apply(&state.Powers{Nodes: x.nodes, Op: x.op})
					}
				}
				failures += len(d.giveUp)
				for _, name := range d.runUp {
					if chance(90) { // otherwise the program is called again, as after a failover
						w.op(state.PowerTold, name)
					}
					if comes[name] == 0 && chance(70) {
						comes[name] = w.at.Add(int64(rng.IntN(20)))
					}
				}
				for _, name := range d.down {
					delete(comes, name)
				}
				for name, at := range comes {
					if at <= w.at {
						w.apply(&state.Join{Node: name, BootID: fmt.Sprint(w.at)})
						delete(comes, name)
					}
				}
				w.view().Nodes(func(n *model.Node) bool {
					if n.Admin == model.NodeDown && !n.Def.Cloud || n.Admin == model.NodeDown && chance(10) {
						w.apply(&state.NodeEdit{Nodes: []string{n.Def.Name}, Admin: model.NodeUp, By: "root"})
					}
					return true
				})
				w.run(ends, rng)
				if submitted == jobs && w.ended() == jobs {
					break
				}
			}
			if failures == 0 {
				t.Error("no node has failed to come up")
			}
		})
	}
}

// ended counts the jobs that are completed.
func (w *world) ended() (n int) {
	w.view().Jobs(func(j *model.Job) bool {
		if j.State == model.Completed {
			n++
		}
		return true
	})
	return n
}

// run starts jobs where there is room, launches those whose nodes are up, and ends them.
func (w *world) run(ends map[model.JobID]model.Time, rng *rand.Rand) {
	v := w.view()
	v.Jobs(func(j *model.Job) bool {
		switch {
		case state.IsReady(j):
			w.view().Nodes(func(n *model.Node) bool {
				cpus := model.UpTo(4).Minus(n.UsedCPUs).First(2)
				if !n.Usable() || cpus.Count() < 2 {
					return true
				}
				w.apply(&state.Starts{Plan: model.Plan{Starts: []model.Start{{Job: j.ID, Task: model.NoTask, Partition: "p",
					LimitS: 1000, Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: n.Def.Name, CPUs: cpus, Tasks: 1}}}}}}})
				return false
			})
		case j.State == model.Configuring && !v.AwaitsPower(j):
			if n := v.Node(j.Run.Alloc.Nodes[0].Node); n.Link != model.LinkUp {
				w.t.Fatalf("job %d would be launched on %s, which is %s", j.ID, n.Def.Name, n.BaseState())
			}
			w.apply(&state.Reports{Reports: []state.Report{{Kind: state.Started, Job: j.ID, Attempt: j.Attempt, At: w.at}}})
			ends[j.ID] = w.at.Add(int64(1 + rng.IntN(30)))
		case j.State == model.Running && ends[j.ID] <= w.at:
			w.apply(&state.Reports{Reports: []state.Report{{Kind: state.Ended, Job: j.ID, Attempt: j.Attempt, At: w.at}}})
		}
		return true
	})
}

// TestPrograms: programs get the nodes and the jobs that wait; one that a failover has cut off is called again, and
// once it has ended no more.
func TestPrograms(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	on := write("on", fmt.Sprintf("echo $1 >>%[1]s/calls\ncat $SLURM_RESUME_FILE >%[1]s/jobs\n"+
		"[ -e %[1]s/go ] || sleep 60\necho done >>%[1]s/calls\n", dir))
	off := write("off", "exit 1\n")
	w := newWorld(t, 2, model.PowerRules{SuspendS: -1, SuspendTimeoutS: 0, ResumeTimeoutS: 600}, func(c *model.Config) {
		c.Params.Power.Suspend = off
		c.Params.Power.Resume = on
		for _, d := range c.Nodes {
			d.Cloud = true
		}
	})
	w.submit(1)
	w.apply(&state.Starts{Plan: model.Plan{Starts: []model.Start{{Job: 1, Task: model.NoTask, Partition: "p", LimitS: 1000,
		Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1", CPUs: model.UpTo(1), Tasks: 1},
			{Node: "n2", CPUs: model.UpTo(1), Tasks: 1}}}}}}})
	lead := func(until func() bool) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		k := &Keeper{View: w.view, Now: func() model.Time { return w.at }, Cut: func(string) {},
			Log:     slog.New(slog.NewTextHandler(t.Output(), nil)),
			Propose: func(_ context.Context, b state.Body) (state.Result, error) { return w.apply(b), nil }}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			k.Run(ctx)
		}()
		for deadline := time.Now().Add(time.Minute); !until(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("it did not happen")
			}
		}
		cancel()
		<-ended
	}
	calls := func() string {
		data, _ := os.ReadFile(filepath.Join(dir, "calls")) // not there yet: nothing
		return string(data)
	}
	lead(func() bool { return calls() == "n[1-2]\n" })
	if n := w.view().Node("n1"); n.Power.Told || n.PowerStep() != model.PoweringUp {
		t.Errorf("after the first leader: %+v", n.Power)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	lead(func() bool { return w.view().Node("n1").Power.Told })
	if got := calls(); got != "n[1-2]\nn[1-2]\ndone\n" {
		t.Errorf("calls: %q", got)
	}
	jobs, err := os.ReadFile(filepath.Join(dir, "jobs"))
	if err != nil || !strings.Contains(string(jobs), `"all_nodes_resume": "n[1-2]"`) ||
		!strings.Contains(string(jobs), `"job_id": 1,`) {
		t.Errorf("SLURM_RESUME_FILE: %s %v", jobs, err)
	}
	for _, name := range []string{"n1", "n2"} {
		w.apply(&state.Join{Node: name, BootID: "b"})
	}
	w.apply(&state.Powers{Nodes: []string{"n1"}, Op: state.AskPower, Want: model.PowerDownForce, By: "root"})
	w.apply(&state.Reports{Reports: []state.Report{{Kind: state.Ended, Job: 1, Attempt: 1, At: w.at}}})
	lead(func() bool { return w.view().Node("n1").PowerStep() == model.PoweredDown }) // although its program fails
	if got := calls(); strings.Count(got, "done") != 1 {
		t.Errorf("calls: %q", got)
	}
}
