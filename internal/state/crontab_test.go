package state

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"gbatch/internal/model"
)

// entry is the submission of a crontab's entry.
func entry(uid uint32, line int32, begin model.Time) Submit {
	return Submit{Spec: &model.Spec{Name: fmt.Sprint("line", line), UID: uid, User: fmt.Sprint("u", uid), Account: "acc",
		Partitions: []string{"p"}, Begin: begin, MinNodes: 1, MaxNodes: 1,
		More: &model.Needs{Mail: &model.MailWish{User: "u", Types: model.MailFail}},
		Cron: &model.Cron{Times: "0 * * * *", First: line, Last: line}},
		Script: model.Blob{Key: fmt.Sprint("s", line), Data: []byte("x")}, Env: model.Blob{Key: "e", Data: []byte("y")}}
}

func cronSession(t *testing.T) *session {
	s := newSession(t)
	s.cfg.Nodes = []*model.NodeDef{{Name: "n1", CPUs: 8, ThreadsPerCore: 1, MemMiB: 1000}}
	s.cfg.Partitions = []*model.Partition{{Name: "p", Nodes: []string{"n1"}}}
	cfg := s.cfg
	s.apply(&SetConfig{Config: &cfg, Instance: 1})
	s.apply(&Join{Node: "n1", BootID: "b", Version: "1"})
	return s
}

// begin starts a job, and has its node report that.
func (s *session) begin(id model.JobID) *model.Job {
	s.t.Helper()
	na := model.NodeAlloc{Node: "n1", CPUs: model.UpTo(8).Minus(s.st.View().Node("n1").UsedCPUs).First(1), Tasks: 1}
	s.apply(&Starts{Epoch: 1, Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p",
		LimitS: 60, Alloc: &model.Alloc{Nodes: []model.NodeAlloc{na}}}}}})
	j := s.st.View().Job(id)
	s.apply(&Reports{Reports: []Report{{Kind: Started, Job: id, Attempt: j.Attempt, At: s.now}}})
	if j = s.st.View().Job(id); j.State != model.Running {
		s.t.Fatalf("job %d is %s", id, j.State)
	}
	return j
}

func (s *session) end(j *model.Job, exit model.Exit) *model.Job {
	s.t.Helper()
	s.apply(&Reports{Reports: []Report{{Kind: Ended, Job: j.ID, Attempt: j.Attempt, At: s.now, Exit: exit}}})
	return s.st.View().Job(j.ID)
}

// TestCrontab: a crontab's jobs come back with their numbers, whatever becomes of a run, and wait for their next time
// to be set; another crontab replaces them; one that is cancelled does not come back.
func TestCrontab(t *testing.T) {
	s := cronSession(t)
	install := func(r Refusal, text string, jobs ...Submit) {
		t.Helper()
		if res := s.apply(&Crontab{UID: 7, By: 7, Text: []byte(text), Jobs: jobs}); res.Refusal != r {
			t.Fatalf("%q: %s, want %s", text, res.Refusal, r)
		}
	}
	install(OK, "a\nb\n", entry(7, 1, epoch.Add(60)), entry(7, 2, epoch.Add(3600)))
	job := s.st.View().Job
	if j := job(1); j.Reason != model.ReasonBeginTime || j.Begin != epoch.Add(60) || !j.Recurs() {
		t.Fatalf("%+v", j)
	}
	s.now = epoch.Add(61)
	s.apply(&Tick{})
	mails := 0
	for _, exit := range []model.Exit{{}, {Code: 3}, {Signal: 9}} {
		j := s.end(s.begin(1), exit)
		if j.State != model.Pending || !j.Undue || j.Reason != model.ReasonBeginTime || j.Eligible != 0 {
			t.Fatalf("after %+v: %+v", exit, j)
		}
		s.now = s.now.Add(100)
		if s.apply(&Tick{}); s.st.View().Job(1).Eligible != 0 || len(s.st.View().Undue()) != 1 {
			t.Fatal("it may start without a next time")
		}
		next := &Edit{Targets: []model.JobRef{{Job: 1, Task: model.NoTask}}, Set: []Field{SetBegin}, Begin: s.now.Add(10),
			Undue: true}
		s.apply(next)
		next.Begin = s.now.Add(99) // it comes late: the job has a time already
		if s.apply(next).Changed {
			t.Error("a time that was given meanwhile was set anew")
		}
		if j := s.st.View().Job(1); j.Undue || j.Begin != s.now.Add(10) || len(s.st.View().Undue()) != 0 {
			t.Fatalf("%+v", j)
		}
		s.now = s.now.Add(10)
		s.apply(&Tick{})
	}
	s.st.View().Mails(func(_ uint64, m *Mail) bool {
		mails++
		if m.What != model.MailFail || m.Job.ID != 1 || m.Job.State != model.Failed {
			t.Errorf("a mail of %v about %+v", m.What, m.Job)
		}
		return true
	})
	if mails != 2 {
		t.Errorf("%d mails about runs that failed", mails)
	}
	if n := s.st.View().Job(1).Restarts; n != 3 {
		t.Errorf("%d restarts", n)
	}

	// a run that its node did not begin is none: it starts as soon as it can
	s.apply(&Starts{Epoch: 1, Plan: model.Plan{Starts: []model.Start{{Job: 1, Task: model.NoTask, Partition: "p",
		LimitS: 60, Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1", CPUs: model.UpTo(1), Tasks: 1}}}}}}})
	s.apply(&Reports{Reports: []Report{{Kind: LaunchFailed, Job: 1, Attempt: s.st.View().Job(1).Attempt, At: s.now,
		Text: "no room", Taken: true}}})
	if j := s.st.View().Job(1); j.State != model.Pending || j.Undue || j.Begin != s.now.Add(1) {
		t.Fatalf("%+v", j)
	}
	s.now = s.now.Add(2)
	s.apply(&Tick{})

	// a limit that the new jobs break leaves everything as it was; the old ones that wait don't count
	s.cfg.Params.MaxJobs = 3
	cfg := s.cfg
	s.apply(&SetConfig{Config: &cfg})
	install(TooManyJobs, "c\n", entry(7, 1, 0), entry(7, 2, 0))
	if v := s.st.View(); string(v.Crontab(7).Text) != "a\nb\n" || !v.Job(1).Recurs() || v.Job(3) != nil {
		t.Fatal("a refused crontab has changed something")
	}
	s.cfg.Params.MaxJobs = 0
	cfg = s.cfg
	s.apply(&SetConfig{Config: &cfg})

	// which entry is refused is told
	long := entry(7, 2, 0)
	long.Most = 1
	refused := &Crontab{UID: 7, By: 7, Text: []byte("c\n"), Jobs: []Submit{entry(7, 1, 0), long, entry(7, 3, 0)}}
	res := s.st.Apply(Command{At: s.now, Body: refused, rules: rulesBrief})
	if res.Refusal != TooLong || len(res.Each) != 2 || res.Each[1] != TooLong {
		t.Fatalf("%+v", res)
	}

	// another crontab: what waits is cancelled, what runs goes on and does not come back
	running := s.begin(1)
	install(OK, "c\nd\n", entry(7, 1, epoch.Add(9000)), entry(7, 2, epoch.Add(9000)))
	if j := s.st.View().Job(2); j.State != model.Cancelled {
		t.Errorf("job 2 is %s", j.State)
	}
	if j := s.end(running, model.Exit{}); j.State != model.Completed || j.Undue {
		t.Errorf("job 1: %+v", j)
	}
	if v := s.st.View(); len(v.Crontab(7).Off) != 0 || string(v.Crontab(7).Text) != "c\nd\n" {
		t.Errorf("%+v", v.Crontab(7))
	}

	// a cancelled job's lines are off, waiting or not
	s.apply(&Stop{Targets: []model.JobRef{{Job: 4, Task: model.NoTask}}, Event: model.EvCancel, UID: 7})
	s.now = epoch.Add(9001)
	s.apply(&Tick{})
	running = s.begin(3)
	s.apply(&Stop{Targets: []model.JobRef{{Job: 3, Task: model.NoTask}}, Event: model.EvCancel, UID: 7})
	if j := s.end(running, model.Exit{Signal: 15}); j.State != model.Cancelled {
		t.Errorf("job 3: %+v", j)
	}
	if off := s.st.View().Crontab(7).Off; !slices.Equal(off, []model.Lines{{First: 2, Last: 2}, {First: 1, Last: 1}}) {
		t.Errorf("off: %v", off)
	}
	// one that ends already ends as it does, and does not come back
	install(OK, "e\n", entry(7, 1, s.now))
	running = s.begin(5)
	s.apply(&Reports{Reports: []Report{{Kind: Ending, Job: 5, Attempt: running.Attempt, At: s.now}}})
	stop := &Stop{Targets: []model.JobRef{{Job: 5, Task: model.NoTask}}, Event: model.EvCancel, UID: 7}
	if res := s.apply(stop); res.Each[0] != OK {
		t.Errorf("cancelled while it ends: %s", res.Each[0])
	}
	if j := s.end(running, model.Exit{}); j.State != model.Completed || len(s.st.View().Crontab(7).Off) != 1 {
		t.Errorf("job 5: %+v", j)
	}

	// requeued by hand, a run comes back at its next time too
	install(OK, "e\n", entry(7, 1, s.now))
	running = s.begin(6)
	s.apply(&Stop{Targets: []model.JobRef{{Job: 6, Task: model.NoTask}}, Event: model.EvRequeue, UID: 7})
	if j := s.end(running, model.Exit{Signal: 15}); j.State != model.Pending || !j.Undue {
		t.Errorf("job 6: %+v", j)
	}
	s.apply(&Crontab{UID: 7, By: 7, Remove: true})
	if v := s.st.View(); v.Crontab(7) != nil || v.Job(6).State != model.Cancelled || len(v.Undue()) != 0 {
		t.Errorf("%+v, %+v", v.Crontab(7), v.Job(6))
	}
	if s.apply(&Crontab{UID: 7, By: 7, Remove: true}).Changed {
		t.Error("nothing was removed, and something has changed")
	}
	big := make([]byte, MaxCrontabBytes/64)
	for uid := range uint32(64) {
		s.st.Apply(Command{Kind: KindCrontab, At: s.now, Body: &Crontab{UID: 100 + uid, Text: big}})
	}
	if res := s.st.Apply(Command{Kind: KindCrontab, At: s.now, Body: &Crontab{UID: 7, Text: big}}); res.Refusal != Full {
		t.Errorf("more than all crontabs may have: %s", res.Refusal)
	}
}

// TestCrontabStorm: random commands on jobs that come back keep all invariants, and replicas stay equal.
func TestCrontabStorm(t *testing.T) {
	seeds, steps := 8, 700
	if testing.Short() {
		seeds = 2
	}
	var back atomic.Int32
	t.Cleanup(func() { // when all seeds have passed
		if back.Load() < int32(seeds) {
			t.Errorf("%d runs have ended and come back", back.Load())
		}
	})
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			g := &storm{rng: rand.New(rand.NewPCG(uint64(seed), 30)), now: epoch}
			s.apply(g.config())
			for step := range steps {
				b := g.next(s.st)
				switch {
				case g.chance(6):
					c := &Crontab{UID: uint32(g.n(2)), By: uint32(g.n(2)), Remove: g.chance(20)}
					for range g.n(6) {
						if c.Remove {
							break
						}
						sp := g.spec()
						sp.UID, sp.Tasklist, sp.Throttle, sp.Deps = c.UID, nil, 0, nil
						sp.Cron = &model.Cron{Times: "* * * * *", First: int32(1 + g.n(3)), Last: int32(4 + g.n(3))}
						c.Jobs = append(c.Jobs, Submit{Spec: sp, Priority: uint32(g.n(3)), Hold: model.HoldKind(g.n(20) / 18),
							Script: model.Blob{Key: fmt.Sprint("k", g.n(8)), Data: []byte("x")}})
					}
					if !c.Remove {
						c.Text = []byte("* * * * * x\n")
					}
					b = c
				case g.chance(20):
					s.st.View().Jobs(func(j *model.Job) bool {
						if j.Recurs() && j.State.HasResources() && g.chance(50) {
							b = &Reports{Reports: []Report{{Kind: Ended, Job: j.ID, Attempt: j.Attempt, At: g.now}}}
						}
						return true
					})
				case g.chance(20):
					s.st.View().Jobs(func(j *model.Job) bool {
						if st := g.start(); j.Recurs() && IsReady(j) {
							st.Job, st.Task, st.Partition = j.ID, model.NoTask, j.Spec.Partitions[0]
							b = &Starts{Plan: model.Plan{Starts: []model.Start{st}}}
						}
						return true
					})
				case g.chance(20):
					for _, j := range s.st.View().Undue() {
						b = &Edit{Targets: []model.JobRef{{Job: j.ID, Task: model.NoTask}}, Set: []Field{SetBegin},
							Begin: g.now.Add(int64(g.n(30)))}
						back.Add(1)
					}
				}
				s.now, s.at = g.now, fmt.Sprintf("seed %d, step %d: %T %+v", seed, step, b, b)
				s.apply(b)
				if t.Failed() {
					return
				}
			}
		})
	}
}

// TestCronOnlyInCrontabs: nobody's job comes back without a crontab, whatever a controller has let through, and a job
// that is cancelled again and again makes its lines comments once.
func TestCronOnlyInCrontabs(t *testing.T) {
	e := entry(7, 1, 5000)
	if _, err := Encode(1, &e); err == nil {
		t.Error("a job of a crontab is submitted without one")
	}
	if _, err := Encode(1, &SubmitHet{Parts: []HetPart{{Spec: e.Spec}, {Spec: e.Spec}}}); err == nil {
		t.Error("a heterogeneous job of a crontab is submitted")
	}
	s := cronSession(t)
	s.apply(&Crontab{UID: 7, By: 7, Text: []byte("x\n"), Jobs: []Submit{e}})
	j := *s.st.View().Job(1)
	s.st.disable(&j)
	j.LastRun = false
	s.st.disable(&j)
	if c, _ := s.st.crontabs.Get(7); c == nil || len(c.Off) != 1 {
		t.Errorf("%+v: one entry is a comment", c)
	}
}
