package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

const begin = model.Time(1_000_000_000_000)

// cluster is a cluster of one node, with a policy over it.
type cluster struct {
	t   *testing.T
	st  *state.State
	cfg *model.Config
	p   *Policy
	now model.Time
}

func newCluster(t *testing.T, cpus int32, p *Policy) *cluster {
	c := &cluster{t: t, st: state.New(), p: p, now: begin}
	c.cfg = &model.Config{Cluster: "c", Params: model.Params{MinJobAgeS: 1e6, KillWaitS: 1},
		Nodes: []*model.NodeDef{{Name: "n", CPUs: cpus, Boards: 1, Sockets: 1, CoresPerSocket: cpus, ThreadsPerCore: 1}},
		Partitions: []*model.Partition{{Name: "p", Nodes: []string{"n"}, Default: true, MaxTimeS: model.Unlimited,
			DefTimeS: model.NotSet, PriorityTier: 1, OverSubscribe: "NO"}}}
	c.apply(&state.SetConfig{Config: c.cfg, Instance: 1})
	c.apply(&state.Join{Node: "n", BootID: "b"})
	return c
}

func (c *cluster) apply(b state.Body) state.Result {
	return c.st.Apply(state.Command{At: c.now, Body: b})
}

func (c *cluster) submit(uid uint32, cpus int32, limitS int64) model.JobID {
	c.t.Helper()
	r := c.apply(&state.Submit{Priority: 1,
		Spec: &model.Spec{Name: "j", UID: uid, User: fmt.Sprint("u", uid), Partitions: []string{"p"},
			LimitS: limitS, Tasks: cpus, CPUsPerTask: 1, MinNodes: 1, MaxNodes: 1}})
	if r.Refusal != state.OK {
		c.t.Fatal(r.Refusal)
	}
	return r.Job
}

func (c *cluster) start(id model.JobID) {
	c.t.Helper()
	j := c.st.View().Job(id)
	used := c.st.View().Node("n").UsedCPUs
	var cpus []int
	for i := 0; len(cpus) < int(j.Spec.Tasks); i++ {
		if !used.Has(i) {
			cpus = append(cpus, i)
		}
	}
	var set model.Bits
	for _, i := range cpus {
		set = set.With(i)
	}
	c.apply(&state.Starts{Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p",
		LimitS: j.Spec.LimitS,
		Alloc:  &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n", CPUs: set, Tasks: j.Spec.Tasks}}}}}}})
	if j = c.st.View().Job(id); j.Run == nil {
		c.t.Fatalf("job %d was not started", id)
	}
}

func (c *cluster) end(id model.JobID) {
	c.t.Helper()
	j := c.st.View().Job(id)
	c.apply(&state.Reports{Reports: []state.Report{{Kind: state.Started, Job: id, Attempt: j.Attempt, At: j.Run.Start},
		{Kind: state.Ended, Job: id, Attempt: j.Attempt, At: c.now}}})
	if j = c.st.View().Job(id); j != nil && j.End == nil {
		c.t.Fatalf("job %d has not ended: %v", id, j.State)
	}
}

func (c *cluster) refresh() { c.p.Refresh(c.st.View(), c.now) }

// after lets time pass.
func (c *cluster) after(s int64) {
	c.now = c.now.Add(s)
	c.refresh()
}

// order gives the pending jobs, the first to start first.
func (c *cluster) order() []model.JobID {
	var ids []model.JobID
	prio := map[model.JobID]uint64{}
	c.st.View().Ready("p", func(j *model.Job) bool {
		ids = append(ids, j.ID)
		prio[j.ID] = c.p.Order().Priority(j, c.cfg.Partitions[0])
		return true
	})
	slices.SortFunc(ids, func(a, b model.JobID) int {
		if prio[a] != prio[b] {
			if prio[a] > prio[b] {
				return -1
			}
			return 1
		}
		return int(a) - int(b)
	})
	return ids
}

func (c *cluster) planS(id model.JobID) int64 {
	j := c.st.View().Job(id)
	limit := j.Spec.LimitS
	if j.Run != nil {
		limit = j.Run.LimitS
	}
	return c.p.Predict().RuntimeS(j, limit, c.now)
}

func (c *cluster) wantOrder(why string, want ...model.JobID) {
	c.t.Helper()
	if got := c.order(); !slices.Equal(got, want) {
		c.t.Errorf("%s: order %v, want %v", why, got, want)
	}
}

// TestOrder: short jobs go before long ones, small before large, and waiting time counts in proportion.
func TestOrder(t *testing.T) {
	c := newCluster(t, 64, Default())
	long, large, short := c.submit(1, 8, 7200), c.submit(2, 32, 3600), c.submit(3, 8, 3600)
	c.after(10)
	c.wantOrder("same age", short, large, long) // twice the time halves the score, four times the CPUs divide it by 1.3
	late := c.submit(4, 8, 600)
	c.after(0)
	c.wantOrder("has not waited yet", short, large, long, late)
	c.after(1) // 1 s of 600 is less than 11 s of 3600 and of 1.3 * 3600, and more than 11 s of 7200
	c.wantOrder("after 1 s", short, large, late, long)
	c.after(60)
	c.wantOrder("after a minute", late, short, large, long)
}

// TestPlannedTime: the planned time comes from the mean of the parts of their limits that the last eight jobs used, for
// the order from the second largest part; it is the limit for a new user. Only jobs that ended by themselves, by their
// users or by their limits count.
func TestPlannedTime(t *testing.T) {
	c := newCluster(t, 64, Default())
	first := c.submit(1, 1, 1000)
	c.refresh()
	if got := c.planS(first); got != 1000 {
		t.Errorf("of an unknown user: %d s, want the limit of 1000", got)
	}
	run := func(uid uint32, limitS, ranS int64) {
		id := c.submit(uid, 1, limitS)
		c.refresh()
		c.start(id)
		c.after(ranS)
		if got := c.planS(id); got != limitS {
			t.Errorf("a running job is planned with %d s, want its limit of %d", got, limitS)
		}
		c.end(id)
		c.refresh()
	}
	for _, s := range []int64{900, 100, 100, 200, 100, 300, 100, 100, 100} { // the 900 falls out
		run(1, 1000, s)
	}
	id := c.submit(1, 1, 500)
	c.refresh()
	if got := c.planS(id); got < 68 || got > 70 {
		t.Errorf("after parts of 0.1 to 0.3, 0.1375 on average: %d s of 500, want 69", got)
	}
	if long := c.p.jobs[id].plan.long; long < 100 || long > 101 {
		t.Errorf("ordered by %d s, want the second largest part, a fifth of 500", long)
	}
	other := c.submit(2, 1, 50)
	c.refresh()
	if got := c.planS(other); got != 50 {
		t.Errorf("another user's job is planned with %d s, want 50", got)
	}
	if got := c.planS(first); got != 1000 {
		t.Errorf("a waiting job's planned time has changed to %d s", got)
	}

	twin := Default() // the policy of a new leader with the same facts
	twin.Refresh(c.st.View(), c.now)
	was := c.p
	c.p = twin
	if got := c.planS(id); got < 68 || got > 70 {
		t.Errorf("rebuilt: %d s, want 69", got)
	}
	c.p = was
}

// TestSameAgain: a job is planned by its user's jobs of the same size and limit, where there are any, and otherwise by
// all of the user's.
func TestSameAgain(t *testing.T) {
	c := newCluster(t, 64, Default())
	run := func(cpus int32, limitS, ranS int64) {
		id := c.submit(1, cpus, limitS)
		c.refresh()
		c.start(id)
		c.after(ranS)
		c.end(id)
		c.refresh()
	}
	for range 4 {
		run(32, 1000, 900)
		run(1, 1000, 100)
	}
	for _, x := range []struct {
		cpus         int32
		limitS, want int64
		why          string
	}{
		{32, 1000, 900, "the same as four others"},
		{1, 1000, 100, "the same as four small ones"},
		{2, 1000, 500, "unlike the others"},
		{1, 2000, 1000, "with another limit"},
	} {
		id := c.submit(1, x.cpus, x.limitS)
		c.refresh()
		if got := c.planS(id); got < x.want || got > x.want+2 {
			t.Errorf("%s: planned with %d s, want %d", x.why, got, x.want)
		}
	}
}

// TestUnseen: jobs that start and end between two views count in their user's history.
func TestUnseen(t *testing.T) {
	c := newCluster(t, 64, Default())
	seen := c.submit(1, 32, 1000)
	c.refresh()
	for _, id := range []model.JobID{seen, c.submit(1, 16, 1000)} {
		c.start(id)
		c.now = c.now.Add(100)
		c.end(id)
	}
	c.refresh()
	if r := c.p.users.users[1]; r == nil || r.n != 2 {
		t.Fatalf("the history is %v, want two jobs", r)
	}
	c.refresh()
	if n := c.p.users.users[1].n; n != 2 {
		t.Errorf("%d jobs in the history, want two", n)
	}
}

// TestNoLimit: jobs without a limit are planned by their users' history; a running one gets a new planned time each
// time it outlives the last.
func TestNoLimit(t *testing.T) {
	c := newCluster(t, 64, Default())
	for range 8 {
		c.p.Recall([]Old{{1, 6048, model.Unlimited}}) // a hundredth of a week
	}
	id := c.submit(1, 1, model.Unlimited)
	c.refresh()
	if got := c.planS(id); got < 6048 || got > 6060 {
		t.Errorf("planned with %d s, want 6048", got)
	}
	c.start(id)
	c.refresh()
	if got := c.planS(id); got < 12096 || got > 12120 {
		t.Errorf("running: planned with %d s, want twice 6048", got)
	}
	c.after(13000)
	if got := c.planS(id); got < 24192 || got > 24240 {
		t.Errorf("outlived: planned with %d s, want four times 6048", got)
	}
}

// TestPatience: a job whose patience has ended goes first, whatever its score, and until it starts others overtake by a
// safe guess only, and by none after a wrong one. Patience lasts 1.4 times the longest wait in order of arrival, or a
// day.
func TestPatience(t *testing.T) {
	c := newCluster(t, 10, Default())
	c.p.Recall([]Old{{1, 9000, 36000}})
	busy := c.submit(9, 5, 100_000)
	c.refresh()
	c.start(busy)
	c.refresh()
	wide, second := c.submit(2, 10, 36000), c.submit(2, 10, 36000)
	late := c.submit(1, 1, 36000)
	// In order of arrival, wide waits for busy until its limit: nobody is overdue as long as nobody would have started.
	for range 9 {
		c.after(10_000)
		if over := c.p.Overdue("p"); len(over) > 0 {
			t.Fatalf("overdue after %d s: %v", (c.now-begin)/1000, over)
		}
	}
	round := c.p.Predict().Epoch()
	if got := c.planS(late); got != 9000 {
		t.Errorf("planned with %d s while nobody is out of patience, want 9000", got)
	}
	c.end(busy) // there, wide starts now, and second after it, which is likely to take 7200 s: 80 % of a user's mean
	c.after(0)
	was := c.p.parts["p"].line.longest(0)
	if was != 90_000 {
		t.Fatalf("the longest wait in order of arrival is %d s, want 90,000", was)
	}
	c.now = begin.Add(90_000*14/10 - 1)
	c.refresh()
	was = c.p.parts["p"].line.longest(0)
	if over := c.p.Overdue("p"); len(over) > 0 {
		t.Fatalf("overdue: %v, at a longest wait of %d s", over, was)
	}
	c.now = begin.Add(was * 14 / 10)
	c.refresh()
	if over := c.p.Overdue("p"); !slices.Equal(over, []model.JobID{wide, second, late}) {
		t.Fatalf("overdue: %v, want all", over)
	}
	late = c.submit(1, 1, 36000)
	c.after(0)
	if got := c.order(); got[0] != wide {
		t.Errorf("first is %d, want %d", got[0], wide)
	}
	if got := c.planS(late); got != 18000 {
		t.Errorf("planned with %d s while somebody is out of patience, want twice the longest of the last, 18000", got)
	}
	if c.p.Predict().Epoch() == round {
		t.Error("planned times have changed and the epoch has not")
	}
	wrong := c.submit(1, 5, 36000)
	c.refresh()
	c.start(wrong)
	c.after(17999)
	if got := c.planS(wrong); got != 18000 {
		t.Errorf("a job that has overtaken by a guess of 18000 s is planned with %d s", got)
	}
	round = c.p.Predict().Epoch()
	c.after(1)
	if got, other := c.planS(wrong), c.planS(late); got != 36000 || other != 36000 || c.p.Predict().Epoch() == round {
		t.Errorf("a guess was wrong: its job is planned with %d s and others with %d s, want their limits", got, other)
	}
	c.end(wrong)
	c.after(0)
	if got := c.planS(late); got != 36000 {
		t.Errorf("planned with %d s after the wrong guess has ended, want the limit until the first has started", got)
	}
	c.start(wide)
	round = c.p.Predict().Epoch()
	c.after(0)
	if got := c.order(); got[0] != second {
		t.Errorf("first is %d, want %d", got[0], second)
	}
	if got := c.planS(late); got != 18000 || c.p.Predict().Epoch() == round {
		t.Errorf("planned with %d s: no guess has been wrong since the second is the first, want 18000, in a new epoch", got)
	}
}

// TestNobody: the planned time of jobs without a user comes from other jobs of their size and limit; users' histories
// don't change.
func TestNobody(t *testing.T) {
	c := newCluster(t, 64, Default())
	run := func(cpus int32, limitS, ranS int64) {
		id := c.submit(Nobody, cpus, limitS)
		c.refresh()
		c.start(id)
		c.after(ranS)
		c.end(id)
		c.refresh()
	}
	for i := range int64(40) {
		run(1, 1000, 100+i%2*200)
		run(32, 1000, 900)
	}
	small, wide, long := c.submit(Nobody, 1, 1000), c.submit(Nobody, 32, 1000), c.submit(Nobody, 1, 50_000)
	c.refresh()
	if got := c.planS(small); got < 190 || got > 210 {
		t.Errorf("a small job is planned with %d s, want about 200", got)
	}
	if got := c.planS(wide); got < 890 || got > 910 {
		t.Errorf("a wide job is planned with %d s, want about 900", got)
	}
	if got := c.planS(long); got != 50_000 {
		t.Errorf("a job unlike all others is planned with %d s, want its limit", got)
	}
	if got := c.p.jobs[small].plan.long; got < 590 || got > 610 {
		t.Errorf("ordered by %d s, want halfway to the limit", got)
	}
	if len(c.p.users.users) > 0 {
		t.Error("nobody is remembered as a user")
	}
}

// TestOnlyWaitForRoomDelaysOthers: a job that waits for something other than room delays no other job, however old it
// is.
func TestOnlyWaitForRoomDelaysOthers(t *testing.T) {
	c := newCluster(t, 10, Default())
	stuck := c.submit(1, 10, 3600)
	c.refresh()
	c.apply(&state.Starts{Plan: model.Plan{Reasons: []model.ReasonSet{{Job: stuck, Reason: model.ReasonNodeDown}}}})
	c.after(25 * 3600)
	other := c.submit(2, 1, 60)
	c.after(600)
	if over := c.p.Overdue("p"); !slices.Equal(over, []model.JobID{stuck}) {
		t.Fatalf("overdue: %v", over)
	}
	if got := c.planS(other); got != 60 || c.p.parts["p"].first != nil {
		t.Errorf("first: %v, planned %d s", c.p.parts["p"].first, got)
	}
}

// TestClass: no score lifts a job above its class; nice lowers it within its class.
func TestClass(t *testing.T) {
	p := New(Options{LeastS: 3600, Class: func(j *model.Job) uint8 { return uint8(j.Spec.UID) }})
	c := newCluster(t, 10, p)
	low := c.submit(1, 1, 60)
	c.after(3601)
	high := c.submit(2, 10, 36000)
	c.after(1)
	c.wantOrder("classes", high, low)
	j := *c.st.View().Job(low)
	sp := *j.Spec
	sp.UID = 3
	j.Spec = &sp
	other := *c.st.View().Job(high)
	order := p.Order()
	if is, would := order.Priority(&j, nil), order.Suppose(&j, nil); is != order.Priority(c.st.View().Job(low), nil) ||
		would <= order.Priority(&other, nil) {
		t.Errorf("with another class the job's priority would be %x, it is %x", would, is)
	}
	if other.ID = 999; order.Priority(&other, nil) != 2<<classShift || order.Suppose(&other, nil) != 2<<classShift {
		t.Error("a job that is not known stands last of its class")
	}
}

// TestShare: the largest of a job's shares counts.
func TestShare(t *testing.T) {
	r := &room{nodes: 4, cpus: 256, gpus: 32, mem: 4000}
	for _, x := range []struct {
		name string
		sp   model.Spec
		want int64
	}{
		{"one CPU", model.Spec{Tasks: 1}, shareUnit / 256},
		{"threads", model.Spec{Tasks: 4, CPUsPerTask: 16}, shareUnit / 4},
		{"GPUs per node", model.Spec{MinNodes: 2, Gres: []model.GresReq{{Name: "gpu", Count: 4, Per: model.PerNode}}},
			shareUnit / 4},
		{"GPUs per job", model.Spec{MinNodes: 2, Gres: []model.GresReq{{Name: "gpu", Count: 4, Per: model.PerJob}}},
			shareUnit / 8},
		{"GPUs per task", model.Spec{Tasks: 16, Gres: []model.GresReq{{Name: "gpu", Count: 1, Per: model.PerTask}}},
			shareUnit / 2},
		{"memory", model.Spec{Tasks: 1, MemPerNode: 2000}, shareUnit / 2},
		{"whole nodes", model.Spec{MinNodes: 2, Exclusive: true}, shareUnit / 2},
		{"all memory", model.Spec{MinNodes: 1, MemPerNode: model.WholeMem}, shareUnit / 4},
		{"too much", model.Spec{Tasks: 1000}, shareUnit},
	} {
		if got := r.share(&x.sp); got != x.want {
			t.Errorf("%s: %d of %d, want %d", x.name, got, shareUnit, x.want)
		}
	}
}

// TestForget: the number of remembered users is bounded, and the users whose jobs ended last stay.
func TestForget(t *testing.T) {
	h := newHistory()
	for uid := range uint32(MaxUsers + 10) {
		h.learn(uid, 1, 100, 1)
	}
	if len(h.users) > MaxUsers {
		t.Errorf("%d users are remembered, want at most %d", len(h.users), MaxUsers)
	}
	if h.users[MaxUsers+9] == nil || h.users[MaxUsers-1] == nil || h.users[0] != nil {
		t.Error("not those with the latest ends were kept")
	}
}

// TestRebuilt: a policy that starts from a view and one that has followed all changes have the same counts; forgotten
// jobs leave nothing behind.
func TestRebuilt(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newCluster(t, 32, Default())
		var waits, runs []model.JobID
		for range 200 {
			c.after(rng.Int64N(4000))
			switch {
			case len(waits) > 0 && len(runs) < 16 && rng.IntN(2) == 0:
				i := rng.IntN(len(waits))
				c.start(waits[i])
				runs = append(runs, waits[i])
				waits = slices.Delete(waits, i, i+1)
			case len(runs) > 0 && rng.IntN(3) == 0:
				i := rng.IntN(len(runs))
				c.end(runs[i])
				runs = slices.Delete(runs, i, i+1)
			default:
				waits = append(waits, c.submit(uint32(rng.IntN(4)), int32(1+rng.IntN(2)), 60+rng.Int64N(20000)))
			}
			if rng.IntN(3) > 0 {
				c.refresh()
			}
		}
		c.refresh()
		twin := Default()
		twin.Refresh(c.st.View(), c.now)
		q, r := c.p.parts["p"], twin.parts["p"]
		if len(c.p.jobs) != len(waits)+len(runs) || len(twin.jobs) != len(c.p.jobs) || len(q.line.living) != len(c.p.jobs) ||
			len(r.line.living) != len(c.p.jobs) {
			t.Fatalf("seed %d: %d and %d jobs are counted, %d and %d live; there are %d and %d", seed, len(c.p.jobs),
				len(twin.jobs), len(q.line.living), len(r.line.living), len(waits), len(runs))
		}
		for uid, a := range c.p.users.users {
			if b := twin.users.users[uid]; b == nil || a.parts != b.parts || a.n != b.n {
				t.Fatalf("seed %d: user %d is remembered as %v, rebuilt as %v", seed, uid, a, b)
			}
		}
	}
}
