package state

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"gbatch/internal/model"
)

// powered gives a configuration rules for power.
func powered(cfg *model.Config, idleAfter bool) *model.Config {
	cfg.Params.Power = model.PowerRules{Suspend: "/off", Resume: "/on", SuspendS: 60, SuspendTimeoutS: 2,
		ResumeTimeoutS: 5, IdleAfter: idleAfter}
	for i, d := range cfg.Nodes {
		d.Cloud = i%2 == 0
	}
	for i, p := range cfg.Partitions {
		p.Power = &model.PartPower{SuspendS: model.NotSet, SuspendTimeoutS: model.NotSet, ResumeTimeoutS: model.NotSet,
			OnIdle: i == 0}
	}
	return cfg
}

// TestPowerStorm: random commands on nodes that go off and on keep all invariants, and replicas stay equal.
func TestPowerStorm(t *testing.T) {
	seeds, steps := 10, 600
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			g := &storm{rng: rand.New(rand.NewPCG(uint64(seed), 26)), now: epoch}
			s.apply(&SetConfig{Config: powered(g.config().Config, seed%2 == 0)})
			waited := 0
			for step := range steps {
				b := g.next(s.st)
				switch c := b.(type) {
				case *SetConfig:
					powered(c.Config, seed%2 == 0)
					if g.chance(20) {
						c.Config.Params.Power = model.PowerRules{}
					}
				case *Submit:
					if c.Spec.Exclusive && c.Spec.More == nil {
						c.Spec.More = &model.Needs{Reboot: true}
					}
				case *Join, *Lost, *Starts:
				default:
					if g.chance(40) {
						b = &Powers{Nodes: []string{g.node(), g.node()}, Op: PowerOp(g.n(9)), Want: model.PowerWant(g.n(6)),
							By: "root"}
						g.now += model.Time(g.n(4000))
					}
				}
				s.now, s.at = g.now, fmt.Sprintf("seed %d, step %d: %T %+v", seed, step, b, b)
				s.apply(b)
				s.st.View().Jobs(func(j *model.Job) bool {
					if s.st.AwaitsPower(j) {
						waited++
					}
					return true
				})
				if t.Failed() {
					return
				}
			}
			s.replicas()
			if waited == 0 {
				t.Error("no job has waited for a node")
			}
		})
	}
}

// powerSession is a cluster with two nodes in the cloud, and a job on both.
type powerSession struct {
	t  *testing.T
	st *State
	at model.Time
	id model.JobID // of the job that start and job mean
}

func (p *powerSession) apply(b Body) Result {
	p.t.Helper()
	r := p.st.Apply(Command{At: p.at, Body: b, rules: rulesNow})
	if err := p.st.Check(); err != nil {
		p.t.Fatalf("%T: %v", b, err)
	}
	return r
}

func (p *powerSession) op(op PowerOp, node string, want Refusal) {
	p.t.Helper()
	if r := p.apply(&Powers{Nodes: []string{node}, Op: op}); r.Each[0] != want {
		p.t.Fatalf("operation %d of %s: %s, wanted %s", op, node, r.Each[0], want)
	}
}

func (p *powerSession) state(node, want string) {
	p.t.Helper()
	if n, _ := p.st.nodes.Get(node); n.BaseState() != want {
		p.t.Errorf("node %s is %s (%s), wanted %s", node, n.BaseState(), n.ShortState(), want)
	}
}

func (p *powerSession) job(want string) *model.Job {
	p.t.Helper()
	j, _ := p.st.jobs.Get(p.id)
	if got := j.State.String(); got != want {
		p.t.Fatalf("the job is %s, wanted %s", got, want)
	}
	return j
}

func newPowerSession(t *testing.T, requeue bool) *powerSession {
	p := &powerSession{t, New(), 100_000, 1}
	cfg := &model.Config{Cluster: "c", Nodes: []*model.NodeDef{{Name: "n1", CPUs: 4, MemMiB: 100, Cloud: true},
		{Name: "n2", CPUs: 4, MemMiB: 100, Cloud: true}},
		Partitions: []*model.Partition{{Name: "p", Nodes: []string{"n1", "n2"}}}}
	cfg.Params.Power = model.PowerRules{Suspend: "/off", Resume: "/on", SuspendTimeoutS: 30, ResumeTimeoutS: 60}
	p.apply(&SetConfig{Config: cfg})
	p.apply(&Submit{Spec: &model.Spec{Name: "a", User: "u", Partitions: []string{"p"}, Requeue: requeue, MinNodes: 2,
		MaxNodes: 2}})
	return p
}

func (p *powerSession) start(nodes ...string) {
	p.t.Helper()
	a := &model.Alloc{}
	for _, n := range nodes {
		a.Nodes = append(a.Nodes, model.NodeAlloc{Node: n, CPUs: model.UpTo(1), Tasks: 1})
	}
	r := p.apply(&Starts{Plan: model.Plan{Starts: []model.Start{{Job: p.id, Task: model.NoTask, Partition: "p",
		LimitS: 100, Alloc: a}}}})
	if r.Each[0] != OK {
		p.t.Fatalf("the start: %s", r.Each[0])
	}
}

// TestPowerUp: a job waits for its nodes, and its time begins when the last one has registered.
func TestPowerUp(t *testing.T) {
	p := newPowerSession(t, true)
	p.state("n1", "IDLE+CLOUD+POWERED_DOWN")
	p.op(BeginUp, "n1", NotPending) // nobody wants it
	p.start("n1", "n2")
	p.op(BeginUp, "n1", OK)
	p.op(BeginUp, "n1", NotPending) // not twice
	if r := p.apply(&Powers{Nodes: []string{"n1"}, Op: PowerTold, Want: model.PowerDown}); r.Each[0] != NotPending {
		t.Error("a program of before counts for the step of now")
	}
	p.op(PowerTold, "n1", OK)
	p.op(PowerTold, "n1", NotPending)
	p.state("n1", "MIXED+CLOUD+POWERING_UP")
	p.at += 10_000
	p.apply(&Join{Node: "n1", BootID: "b"})
	p.state("n1", "MIXED+CLOUD")
	if j := p.job("CONFIGURING"); !p.st.AwaitsPower(j) || j.Run.Start != 100_000 {
		t.Errorf("after one of two nodes: %+v", j.Run)
	}
	p.apply(&Reports{Reports: []Report{{Kind: Started, Job: 1, Attempt: 1, At: p.at}}}) // nobody can have started it
	p.job("CONFIGURING")
	p.op(BeginUp, "n2", OK)
	p.at += 10_000
	p.apply(&Join{Node: "n2", BootID: "b"})
	if j := p.job("CONFIGURING"); p.st.AwaitsPower(j) || j.Run.Start != 120_000 {
		t.Errorf("after both nodes: %+v", j.Run)
	}
}

// TestPowerUpFails: the job goes back, the node is down with Slurm's reason until somebody resumes it.
func TestPowerUpFails(t *testing.T) {
	p := newPowerSession(t, true)
	p.start("n1", "n2")
	p.op(BeginUp, "n1", OK)
	p.op(BeginUp, "n2", OK)
	p.apply(&Join{Node: "n1", BootID: "b"})
	p.at += 59_000
	p.op(GiveUpResume, "n2", NotPending)
	p.at += 1000
	p.op(GiveUpResume, "n2", OK)
	if j := p.job("PENDING"); j.Restarts != 1 {
		t.Errorf("it has %d restarts", j.Restarts)
	}
	p.state("n2", "DOWN+CLOUD+POWERED_DOWN")
	if n, _ := p.st.nodes.Get("n2"); n.Reason != "ResumeTimeout reached" || !n.Power.Fail {
		t.Errorf("n2: %q %+v", n.Reason, n.Power)
	}
	p.state("n1", "IDLE+CLOUD")
	p.op(ResumeFailed, "n2", OK)
	p.op(ResumeFailed, "n2", NotPending)
	p.apply(&NodeEdit{Nodes: []string{"n2"}, Admin: model.NodeUp, By: "root"})
	p.state("n2", "IDLE+CLOUD+POWERED_DOWN")
	p.start("n1", "n2")
}

// TestPowerReturns: with idle_on_node_suspend a node in the cloud that did not come up can be tried again.
func TestPowerReturns(t *testing.T) {
	p := newPowerSession(t, false)
	p.st.cfg.Params.Power.IdleAfter = true
	p.start("n1", "n2")
	p.op(BeginUp, "n2", OK)
	p.at += 60_000
	p.op(GiveUpResume, "n2", OK)
	p.job("NODE_FAIL") // it must not be requeued
	p.op(ResumeFailed, "n2", OK)
	p.state("n2", "IDLE+CLOUD+POWERING_DOWN")
	p.at += 30_000
	p.op(FinishDown, "n2", OK)
	p.state("n2", "IDLE+CLOUD+POWERED_DOWN")
}

// TestPowerDown: a node goes down when it is empty, and registers only when it is up again.
func TestPowerDown(t *testing.T) {
	p := newPowerSession(t, true)
	p.start("n1", "n2")
	for _, n := range []string{"n1", "n2"} {
		p.op(BeginUp, n, OK)
		p.apply(&Join{Node: n, BootID: "b"})
	}
	p.apply(&Powers{Nodes: []string{"n1"}, Op: AskPower, Want: model.PowerDownASAP, By: "root"})
	p.state("n1", "MIXED+CLOUD+DRAIN+POWER_DOWN")
	p.op(BeginDown, "n1", NotPending) // it has a job
	p.apply(&Stop{Targets: []model.JobRef{{Job: 1, Task: model.NoTask}}, Event: model.EvCancel})
	p.apply(&Reports{Reports: []Report{{Kind: Ended, Job: 1, Attempt: 1, At: p.at}}})
	p.job("CANCELLED")
	p.op(BeginDown, "n1", OK)
	p.state("n1", "IDLE+CLOUD+POWERING_DOWN")
	p.apply(&Join{Node: "n1", BootID: "b"}) // it is not off yet
	p.state("n1", "IDLE+CLOUD+POWERING_DOWN")
	p.apply(&Lost{Nodes: []string{"n1"}})
	p.state("n1", "IDLE+CLOUD+POWERING_DOWN")
	p.at += 30_000
	p.op(FinishDown, "n1", OK)
	p.state("n1", "IDLE+CLOUD+POWERED_DOWN")
	p.apply(&Join{Node: "n1", BootID: "c"}) // somebody has switched it on
	p.state("n1", "IDLE+CLOUD")

	p.apply(&Powers{Nodes: []string{"n2"}, Op: AskPower, Want: model.PowerDown, By: "root"})
	p.state("n2", "IDLE+CLOUD+POWER_DOWN")
	p.apply(&Powers{Nodes: []string{"n2"}, Op: AskPower, Want: model.PowerUp, By: "root"})
	p.state("n2", "IDLE+CLOUD")
}

// TestPowerWaitsEnd: a job that waits for its nodes ends at once: no node has heard of it.
func TestPowerWaitsEnd(t *testing.T) {
	p := newPowerSession(t, true)
	p.start("n1", "n2")
	p.op(BeginUp, "n1", OK)
	p.at += 99_000
	p.apply(&Tick{}) // its limit is no limit yet
	p.at += 99_000
	p.apply(&Tick{})
	p.job("CONFIGURING")
	p.apply(&Stop{Targets: []model.JobRef{{Job: 1, Task: model.NoTask}}, Event: model.EvCancel})
	p.job("CANCELLED")
	p.op(BeginUp, "n2", NotPending)
	p.apply(&Powers{Nodes: []string{"n1"}, Op: AskPower, Want: model.PowerDownForce, By: "root"})
	if n, _ := p.st.nodes.Get("n1"); !strings.HasSuffix(n.BaseState(), "+POWER_DOWN+POWERING_UP") {
		t.Errorf("n1 is %s", n.BaseState())
	}
	p.op(BeginDown, "n1", OK)
}

// TestPowerOfGoneNode: a node that left the configuration of an earlier version while a job waited for it goes with
// that job, whichever way the wait ends. TestNobodyWaitsForPowerInVain is that of this version.
func TestPowerOfGoneNode(t *testing.T) {
	for name, end := range map[string]*Powers{
		"it does not come up": {Nodes: []string{"n1"}, Op: GiveUpResume},
		"powered down":        {Nodes: []string{"n1"}, Op: AskPower, Want: model.PowerDownForce, By: "root"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPowerSession(t, true)
			p.start("n1", "n2")
			if end.Op == GiveUpResume {
				p.op(BeginUp, "n1", OK)
			}
			cfg := *p.st.cfg
			cfg.Nodes, cfg.Partitions = cfg.Nodes[1:], []*model.Partition{{Name: "p", Nodes: []string{"n2"}}}
			p.st.Apply(Command{At: p.at, Body: &SetConfig{Config: &cfg}, rules: rulesLast})
			p.at += 61_000
			if r := p.apply(end); r.Each[0] != OK {
				t.Errorf("refused: %s", r.Each[0])
			}
			p.job("PENDING")
			if n, left := p.st.nodes.Get("n1"); left {
				t.Errorf("it is still there: %+v", n)
			}
		})
	}
}

// TestResumeFailedTooLate: what is left of a node that did not come up is removed unless a job waits for it by then.
func TestResumeFailedTooLate(t *testing.T) {
	p := newPowerSession(t, true)
	cfg := *p.st.cfg
	cfg.Params.Power.IdleAfter = true
	p.apply(&SetConfig{Config: &cfg})
	p.start("n1", "n2")
	p.op(BeginUp, "n1", OK)
	p.at += 61_000
	p.op(GiveUpResume, "n1", OK)
	p.job("PENDING")
	p.apply(&NodeEdit{Nodes: []string{"n1"}, Admin: model.NodeUp})
	p.at += 3_600_000 // the job may start again
	p.apply(&Tick{Limit: 10})
	p.start("n1", "n2")
	p.op(ResumeFailed, "n1", OK)
	p.state("n1", "MIXED+CLOUD+POWERED_DOWN")
	p.op(BeginUp, "n1", OK)
}

// TestGrowsOntoWhatIsUp: a job that runs gets no node that is off: it would have to wait for it.
func TestGrowsOntoWhatIsUp(t *testing.T) {
	p := newPowerSession(t, true)
	id := p.apply(&Submit{Spec: &model.Spec{Name: "b", User: "u", Partitions: []string{"p"}, MinNodes: 1, MaxNodes: 1,
		More: &model.Needs{Elastic: &model.Elastic{Max: 2}}}}).Job
	part := func(node string) model.NodeAlloc { return model.NodeAlloc{Node: node, CPUs: model.UpTo(1), Tasks: 1} }
	p.apply(&Starts{Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p", LimitS: 100,
		Alloc: &model.Alloc{Nodes: []model.NodeAlloc{part("n1")}}}}}})
	p.op(BeginUp, "n1", OK)
	p.apply(&Join{Node: "n1", BootID: "b"})
	p.apply(&Reports{Reports: []Report{{Kind: Started, Job: id, Attempt: 1, At: p.at}}})
	grow := &Starts{Plan: model.Plan{Grow: []model.Growth{{Job: id, Attempt: 1, Parts: []model.NodeAlloc{part("n2")}}}}}
	p.apply(grow)
	if j, _ := p.st.jobs.Get(id); j.State != model.Running || len(j.Run.Alloc.Nodes) != 1 {
		t.Errorf("%s on %v", j.State, j.Run.Alloc.NodeNames())
	}
	p.apply(&Powers{Nodes: []string{"n2"}, Op: AskPower, Want: model.PowerUp, By: "root"})
	p.op(BeginUp, "n2", OK)
	p.apply(&Join{Node: "n2", BootID: "b"})
	p.apply(grow)
	if j, _ := p.st.jobs.Get(id); len(j.Run.Alloc.Nodes) != 2 {
		t.Errorf("it does not grow onto a node that has come up: %v", j.Run.Alloc.NodeNames())
	}
}

// rebootSession has a job with --reboot on both nodes, which are up: n1 in boot a, n2 in boot b.
func rebootSession(t *testing.T) *powerSession {
	p := newPowerSession(t, true)
	p.apply(&Stop{Targets: []model.JobRef{{Job: 1, Task: model.NoTask}}, Event: model.EvCancel})
	p.apply(&Join{Node: "n1", BootID: "a"})
	p.apply(&Join{Node: "n2", BootID: "b"})
	p.id = p.apply(&Submit{Spec: &model.Spec{Name: "r", User: "u", Partitions: []string{"p"}, Requeue: true, MinNodes: 2,
		MaxNodes: 2, Exclusive: true, More: &model.Needs{Reboot: true}}}).Job
	p.start("n1", "n2")
	return p
}

// TestRebootForJob: both nodes are to reboot, the job waits for the last one, and its time begins then.
func TestRebootForJob(t *testing.T) {
	p := rebootSession(t)
	p.state("n1", "ALLOCATED+CLOUD+REBOOT_ISSUED")
	p.at += 10_000
	p.apply(&Join{Node: "n1", BootID: "a"}) // its daemon only, before the machine goes down
	p.state("n1", "ALLOCATED+CLOUD+REBOOT_ISSUED")
	p.apply(&Lost{Nodes: []string{"n1"}})
	p.apply(&Join{Node: "n1", BootID: "a2"})
	p.state("n1", "ALLOCATED+CLOUD")
	if j := p.job("CONFIGURING"); !p.st.AwaitsPower(j) {
		t.Error("the job does not wait for the second node")
	}
	p.at += 10_000
	p.apply(&Join{Node: "n2", BootID: "b2"})
	if j := p.job("CONFIGURING"); p.st.AwaitsPower(j) || j.Run.Start != p.at {
		t.Errorf("after both nodes: %+v", j.Run)
	}
	p.apply(&Reports{Reports: []Report{{Kind: Started, Job: p.id, Attempt: 1, At: p.at}}})
	p.job("RUNNING")
}

// TestRebootForJobFails: the job goes back to the queue, the node is down with the reason, and the other one comes back
// as after any reboot.
func TestRebootForJobFails(t *testing.T) {
	p := rebootSession(t)
	p.apply(&Reboots{Nodes: []string{"n2"}, Op: GiveUpReboot, Reason: "reboot timed out"})
	if j := p.job("PENDING"); j.Restarts != 1 {
		t.Errorf("it has %d restarts", j.Restarts)
	}
	p.state("n2", "DOWN+CLOUD")
	p.state("n1", "IDLE+CLOUD+REBOOT_ISSUED")
	p.apply(&Join{Node: "n1", BootID: "a2"})
	p.state("n1", "IDLE+CLOUD")
}

// TestRebootForJobEnds: a job that ends before its nodes are back ends at once, and leaves them to their reboots.
func TestRebootForJobEnds(t *testing.T) {
	p := rebootSession(t)
	p.apply(&Stop{Targets: []model.JobRef{{Job: p.id, Task: model.NoTask}}, Event: model.EvCancel})
	p.job("CANCELLED")
	for _, n := range []string{"n1", "n2"} {
		p.state(n, "IDLE+CLOUD+REBOOT_ISSUED")
		p.apply(&Join{Node: n, BootID: n + " again"})
		p.state(n, "IDLE+CLOUD")
	}
}

// TestRebootForJobAlone: nodes with jobs on them, suspended ones too, are not rebooted for another.
func TestRebootForJobAlone(t *testing.T) {
	p := rebootSession(t)
	p.apply(&Stop{Targets: []model.JobRef{{Job: p.id, Task: model.NoTask}}, Event: model.EvCancel})
	p.apply(&Join{Node: "n1", BootID: "a2"})
	p.apply(&Join{Node: "n2", BootID: "b2"})
	spec := &model.Spec{Name: "s", User: "u", Partitions: []string{"p"}, MinNodes: 1, MaxNodes: 1}
	p.id = p.apply(&Submit{Spec: spec}).Job
	p.start("n1")
	p.apply(&Reports{Reports: []Report{{Kind: Started, Job: p.id, Attempt: 1, At: p.at}}})
	p.apply(&Starts{Plan: model.Plan{Preempt: []model.Preemption{{Job: p.id, Sleep: true}}}})
	p.job("SUSPENDED")
	own := *spec
	own.Exclusive, own.More = true, &model.Needs{Reboot: true}
	id := p.apply(&Submit{Spec: &own}).Job
	r := p.apply(&Starts{Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p", LimitS: 100,
		Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1", CPUs: model.UpTo(4), Tasks: 1}}}}}}})
	if r.Each[0] != NotFits {
		t.Errorf("the node of a suspended job is rebooted: %s", r.Each[0])
	}
}
