package state

import (
	"fmt"
	"testing"

	"gbatch/internal/model"
)

// lives_test.go: what happens to a job at the borders of its phases.

// aNode gives a session with one node.
func aNode(t *testing.T, change func(*model.Config)) *session {
	s := newSession(t)
	s.cfg.Nodes = []*model.NodeDef{{Name: "n1", CPUs: 8, ThreadsPerCore: 1, MemMiB: 1000}}
	s.cfg.Partitions = []*model.Partition{{Name: "p", Nodes: []string{"n1"}}}
	if change != nil {
		change(&s.cfg)
	}
	s.apply(&SetConfig{Config: &s.cfg, Instance: 1})
	s.apply(&Join{Node: "n1", BootID: "b"})
	return s
}

// begins gives a job a CPU of each of some nodes, for an hour.
func (s *session) begins(id model.JobID, resv string, nodes ...string) *Starts {
	st := model.Start{Job: id, Task: model.NoTask, Partition: "p", LimitS: 3600, Resv: resv, Alloc: &model.Alloc{}}
	for _, n := range nodes {
		st.Alloc.Nodes = append(st.Alloc.Nodes, model.NodeAlloc{Node: n, CPUs: model.UpTo(1), Tasks: 1})
	}
	return &Starts{Plan: model.Plan{Starts: []model.Start{st}}}
}

func plainRef(id model.JobID) []model.JobRef { return []model.JobRef{{Job: id, Task: model.NoTask}} }

// cpuSeconds gives what an account's users have used, as it counts for limits.
func (s *session) cpuSeconds(account string) (n int64) {
	s.st.View().Usages(func(u *Usage) bool {
		if u.Account == account {
			for _, c := range s.st.View().UsageAt(u, s.now).TRES {
				if c.TRES == "cpu" {
					n += c.Meter.Value / 1000
				}
			}
		}
		return true
	})
	return n
}

// TestEpilogIsNotUsed: while a job's epilog runs, its account's minutes don't run out.
func TestEpilogIsNotUsed(t *testing.T) {
	s := purseCluster(t, func(c *model.Config) { c.Params.Rules.Epilog = []string{"/e"} },
		model.AcctEdit{Op: model.PutAssoc, Assoc: &model.Association{Account: "science", Shares: 1,
			GrpTRESMins: minutes("cpu", 40)}})
	a, b := s.run("physics", "ann", "normal", 0, 4, 0), s.run("bio", "bob", "normal", 4, 4, 0)
	s.now += 60_000
	s.apply(&Reports{Reports: []Report{{Kind: Ending, Job: a, Attempt: 1, At: s.now}}})
	if s.ends(b); s.now != epoch+540_000 { // a minute of both and 8 of this one: 40 CPU minutes
		t.Errorf("the other job is ended after %d s", (s.now-epoch)/1000)
	}
	s.apply(&Reports{Reports: []Report{{Kind: Ended, Job: a, Attempt: 1, At: epoch + 60_000}}})
	s.want("the account's use", s.cpuSeconds("physics"), int64(240))
}

// TestLateEndOfSuspended: the end of a suspended job that is known late takes nothing back that nobody was charged.
func TestLateEndOfSuspended(t *testing.T) {
	s := purseCluster(t, nil)
	before := s.run("physics", "ann", "normal", 8, 4, 0)
	s.now += 600_000
	s.apply(&Reports{Reports: []Report{{Kind: Ended, Job: before, Attempt: 1, At: s.now}}})
	for _, slept := range []model.Time{50_000, -40_000} { // it ends so long after it was suspended
		a := s.run("physics", "ann", "normal", 0, 4, 0)
		s.now += 100_000
		had := s.cpuSeconds("physics") - 400
		s.apply(&Suspend{Targets: plainRef(a)})
		end := s.now + slept
		s.now += 400_000
		killed := model.Exit{Signal: 9}
		s.apply(&Reports{Reports: []Report{{Kind: Ending, Job: a, Attempt: 1, At: end, Exit: killed}}})
		s.apply(&Reports{Reports: []Report{{Kind: Ended, Job: a, Attempt: 1, At: end, Exit: killed}}})
		ran := min(100_000, 100_000+slept) / 1000
		s.want("elapsed", s.job(a).ElapsedS(s.now), int64(ran))
		s.want("charged", s.cpuSeconds("physics")-had, 4*int64(ran))
	}
}

// TestJobsEndWithReservation: a job that was suspended does not outlive its reservation, nor one whose partition lets
// jobs run on beyond their limits.
func TestJobsEndWithReservation(t *testing.T) {
	for _, suspended := range []bool{true, false} {
		s := aNode(t, func(c *model.Config) { c.Partitions[0].OverTimeS = 7200 })
		r := &model.Reservation{Name: "r", Start: s.now, End: s.now + 3600_000, Nodes: []string{"n1"},
			Users: []string{"ann"}}
		s.apply(&Reserve{Op: CreateResv, Resv: r})
		id := s.apply(&Submit{Spec: &model.Spec{Name: "j", User: "ann", Partitions: []string{"p"}, Reservation: "r"}}).Job
		s.apply(s.begins(id, "r", "n1"))
		s.apply(&Reports{Reports: []Report{{Kind: Started, Job: id, Attempt: 1}}})
		if suspended {
			s.now += 60_000
			s.apply(&Suspend{Targets: plainRef(id)})
			s.now += 1800_000
			s.apply(&Suspend{Targets: plainRef(id), Resume: true})
		}
		s.want("its end", s.st.View().LatestEnd(s.job(id)), r.End)
		longer := *r
		longer.End += 600_000
		s.apply(&Reserve{Op: UpdateResv, Resv: &longer})
		s.want("its end, of a longer reservation", s.st.View().LatestEnd(s.job(id)), longer.End)
		over := *s.st.cfg
		over.Params.ResvOverS = 300
		s.apply(&SetConfig{Config: &over})
		s.now = longer.End + 300_000
		s.want("its end with ResvOverRun", s.st.View().LatestEnd(s.job(id)), s.now)
		s.apply(&Tick{})
		s.want("it is", s.job(id).State, model.Completing)
	}
}

// TestLateEndOnFirstNode: how a script has ended whose node was given up is taken when it is known, on several nodes as
// on one, also while the others still end their parts.
func TestLateEndOnFirstNode(t *testing.T) {
	for _, late := range []bool{false, true} {
		s, _ := manyNodes(t, 1)
		id := s.apply(&Submit{Spec: &model.Spec{Name: "k", UID: 7, User: "ann", Account: model.RootAccount,
			Partitions: []string{"p"}}}).Job
		s.apply(s.begins(id, "", "n4", "n5"))
		s.says(id, Ready, "n4")
		s.says(id, Ready, "n5")
		s.apply(&Reports{Reports: []Report{{Kind: Started, Job: id, Attempt: 1}}})
		s.now += 100_000
		end := s.now
		s.now += 300_000
		s.apply(&Lost{Nodes: []string{"n4"}})
		last := &Reports{Placed: true, Reports: []Report{{Kind: Ended, Job: id, Attempt: 1, Node: "n5", At: s.now}}}
		known := &Reports{Placed: true, Reports: []Report{{Kind: Ended, Job: id, Attempt: 1, Node: "n4", At: end}}}
		if late {
			s.apply(last)
			s.now += 10_000
			s.want("before that it is", s.job(id).State, model.NodeFail)
			s.apply(known)
		} else {
			s.now += 10_000
			s.apply(known)
			s.apply(last)
		}
		s.want("it is", s.job(id).State, model.Completed)
		s.want("elapsed", s.job(id).ElapsedS(s.now), int64(100))
		s.want("charged", s.cpuSeconds(model.RootAccount)-2*int64(s.now-epoch)/1000, 200) // without the other job's
	}
}

// TestNobodyWaitsForPowerInVain: a job that waits for a node to come up goes back to the queue if a new configuration
// has no such node, or no programs for it.
func TestNobodyWaitsForPowerInVain(t *testing.T) {
	for _, left := range []bool{true, false} {
		s := aNode(t, func(c *model.Config) {
			c.Params.Power = model.PowerRules{Suspend: "/off", Resume: "/on", SuspendS: -1, SuspendTimeoutS: 5,
				ResumeTimeoutS: 60}
			c.Nodes = append(c.Nodes, &model.NodeDef{Name: "c1", CPUs: 8, ThreadsPerCore: 1, MemMiB: 1000, Cloud: true})
			c.Partitions[0].Nodes = []string{"n1", "c1"}
		})
		id := s.apply(&Submit{Spec: &model.Spec{Name: "j", Partitions: []string{"p"}, Requeue: true}}).Job
		s.apply(s.begins(id, "", "c1"))
		cfg := s.cfg
		if left {
			s.apply(&Powers{Nodes: []string{"c1"}, Op: BeginUp})
			cfg.Nodes = cfg.Nodes[:1]
			cfg.Partitions = []*model.Partition{{Name: "p", Nodes: []string{"n1"}}}
		} else {
			cfg.Params.Power = model.PowerRules{}
		}
		s.want("before that it is", s.job(id).State, model.Configuring)
		s.apply(&SetConfig{Config: &cfg})
		s.want("it is", s.job(id).State, model.Pending)
		s.want("its attempt", s.job(id).Attempt, uint32(2))
	}
}

// TestCounterpartsOfSplitTasks: a task that was held and released by itself waits for its counterpart, as others do.
func TestCounterpartsOfSplitTasks(t *testing.T) {
	s := aNode(t, nil)
	submit := func(deps ...model.Dep) model.JobID {
		return s.apply(&Submit{Spec: &model.Spec{Name: "a", UID: 7, User: "ann", Partitions: []string{"p"}, Deps: deps,
			Tasklist: model.TaskSet{{Lo: 0, Hi: 2, Step: 1}}}}).Job
	}
	a := submit()
	b := submit(model.Dep{Kind: model.DepAfterCorr, Job: a, Task: model.NoTask})
	one := []model.JobRef{{Job: b, Task: 1}}
	s.apply(&Edit{Targets: one, Set: []Field{SetHold, SetBegun}, Hold: model.HeldByUser})
	s.apply(&Edit{Targets: one, Set: []Field{SetHold, SetBegun}, Hold: model.NotHeld})
	for task := range int32(2) {
		st := s.begins(a, "", "n1")
		st.Plan.Starts[0].Task = task
		s.apply(st)
		j := s.st.taskRecord(a, task)
		s.apply(&Reports{Reports: []Report{{Kind: Started, Job: j.ID, Attempt: 1}}})
		s.apply(&Reports{Reports: []Report{{Kind: Ended, Job: j.ID, Attempt: 1, At: s.now}}})
		s.want("its counterpart waits for nothing", len(s.st.taskRecord(b, task).Deps), 0)
	}
	s.want("the last one waits for", len(s.st.taskRecord(b, 2).Deps), 1)
}

// TestMailOfWhatBegins: mail says that a job begins when it does, once, and nothing of launches that were given back.
func TestMailOfWhatBegins(t *testing.T) {
	s := aNode(t, nil)
	id := s.apply(&Submit{Spec: &model.Spec{Name: "j", Partitions: []string{"p"}, Requeue: true, More: &model.Needs{
		Mail: &model.MailWish{User: "ann", Types: model.MailBegin | model.MailRequeue | model.MailEnd}}}}).Job
	for range 3 {
		s.apply(s.begins(id, "", "n1"))
		s.apply(&Reports{Reports: []Report{{Kind: LaunchFailed, Taken: true, Job: id, Attempt: s.job(id).Attempt}}})
		s.now = s.job(id).Begin
		s.apply(&Tick{})
	}
	s.apply(s.begins(id, "", "n1"))
	s.apply(&Reports{Reports: []Report{{Kind: Started, Job: id, Attempt: 4}}})
	var mails []model.MailTypes
	s.st.View().Mails(func(_ uint64, m *Mail) bool { mails = append(mails, m.What); return true })
	s.want("mails", mails, []model.MailTypes{model.MailBegin})
}

// TestCommandsDontWaitForHeld: an allocation that can't be launched ends rather than going back into the queue held,
// where its command would wait for ever.
func TestCommandsDontWaitForHeld(t *testing.T) {
	for _, kind := range []ReportKind{LaunchFailed, PrologFailed} {
		s := aNode(t, func(c *model.Config) { c.Params.Rules.LaunchRetries, c.Params.Rules.ForceRequeue = 1, true })
		id := s.apply(&Submit{Spec: &model.Spec{Name: "j", Partitions: []string{"p"}, Requeue: true,
			More: &model.Needs{Interactive: true}}}).Job
		s.apply(s.begins(id, "", "n1"))
		s.apply(&Reports{Reports: []Report{{Kind: kind, Job: id, Attempt: 1, Text: "no such directory"}}})
		if s.job(id).State == model.Completing {
			s.apply(&Reports{Reports: []Report{{Kind: Ended, Job: id, Attempt: 1}}})
		}
		s.want("it is", s.job(id).State, model.Failed)
	}
}

// TestNoKillAsleep: a suspended job with --no-kill goes on without a node that is lost.
func TestNoKillAsleep(t *testing.T) {
	s, _ := manyNodes(t, 1)
	id := s.apply(&Submit{Spec: &model.Spec{Name: "k", UID: 7, User: "ann", Account: model.RootAccount,
		Partitions: []string{"p"}, More: &model.Needs{NoKill: true}}}).Job
	s.apply(s.begins(id, "", "n4", "n5"))
	s.says(id, Ready, "n4")
	s.says(id, Ready, "n5")
	s.apply(&Reports{Reports: []Report{{Kind: Started, Job: id, Attempt: 1}}})
	s.now += 10_000
	s.apply(&Suspend{Targets: plainRef(id)})
	s.now += 10_000
	s.apply(&Lost{Nodes: []string{"n5"}})
	s.want("it is", s.job(id).State, model.Suspended)
	s.want("its nodes", s.job(id).Run.Alloc.NodeNames(), []string{"n4"})
	s.now += 10_000
	s.apply(&Suspend{Targets: plainRef(id), Resume: true})
	s.now += 10_000
	s.says(id, Ended, "n4")
	s.want("it is", s.job(id).State, model.Completed)
	s.want("elapsed", s.job(id).ElapsedS(s.now), 20)
	s.want("charged", s.cpuSeconds(model.RootAccount)-2*int64(s.now-epoch)/1000, 30)
}

// TestHetComesBackWhole: a component that must not be requeued by itself comes back with the others.
func TestHetComesBackWhole(t *testing.T) {
	s, _ := manyNodes(t, 1)
	id := s.apply(&SubmitHet{Parts: []HetPart{{Spec: &model.Spec{Name: "h", Partitions: []string{"p"}, Requeue: true}},
		{Spec: &model.Spec{Name: "h", Partitions: []string{"p"}}}}}).Job
	both := s.begins(id, "", "n4")
	both.Plan.Starts = append(both.Plan.Starts, s.begins(id+1, "", "n5").Plan.Starts...)
	s.apply(both)
	s.apply(&Reports{Reports: []Report{{Kind: Started, Job: id + 1, Attempt: 1}, {Kind: Started, Job: id, Attempt: 1}}})
	s.apply(&Starts{Plan: model.Plan{Preempt: []model.Preemption{{Job: id, For: 99}}}})
	s.apply(&Reports{Reports: []Report{{Kind: Ended, Job: id + 1, Attempt: 1}}})
	s.apply(&Reports{Reports: []Report{{Kind: Ended, Job: id, Attempt: 1}}})
	all, ok := s.st.Together(s.job(id))
	s.want("they start together", fmt.Sprint(len(all), ok), "2 true")
}

// TestAdminSuspendsInTurn: accounting knows of a suspension of a job that waited for its turn.
func TestAdminSuspendsInTurn(t *testing.T) {
	old := &model.Job{ID: 1, Run: &model.Run{Sleep: model.SleepsInTurn}}
	for sleep, want := range map[model.SleepKind]int{model.SleepsByAdmin: 1, model.Awake: 0} {
		s := aNode(t, nil)
		s.st.now.rules = rulesNow
		before := s.st.outbox.Len()
		s.st.noteSleep(old, &model.Job{ID: 1, Attempt: 1, Run: &model.Run{Sleep: sleep}})
		s.want("records", s.st.outbox.Len()-before, want)
	}
}

// TestReservationLeavesLists: with NO_HOLD_JOBS_AFTER, a job that names several reservations goes on with the others.
func TestReservationLeavesLists(t *testing.T) {
	s := aNode(t, nil)
	for i, name := range []string{"r1", "r2"} {
		from := s.now + model.Time(i)*7200_000
		s.apply(&Reserve{Op: CreateResv, Resv: &model.Reservation{Name: name, Start: from, End: from + 3600_000,
			Nodes: []string{"n1"}, Users: []string{"ann"}, Flags: model.ResvNoHold}})
	}
	id := s.apply(&Submit{Spec: &model.Spec{Name: "j", User: "ann", Partitions: []string{"p"},
		Reservation: "r1,r2"}}).Job
	s.apply(&Reserve{Op: DropResv, Resv: &model.Reservation{Name: "r1"}})
	s.want("its reservations", s.job(id).Spec.Reservation, "r2")
}

// TestRequeueDelay: a job that was put back waits, and can be given another time while it ends; by older rules it
// doesn't.
func TestRequeueDelay(t *testing.T) {
	for rules, wait := range map[uint8]int64{rulesWeighed: 0, rulesOwed: 120} {
		s := aNode(t, func(c *model.Config) { c.Params.RequeueDelayS = 120 })
		id := s.apply(&Submit{Spec: &model.Spec{Name: "j", Partitions: []string{"p"}, Requeue: true}}).Job
		s.apply(s.begins(id, "", "n1"))
		s.apply(&Reports{Reports: []Report{{Kind: Started, Job: id, Attempt: 1}}})
		at := s.now
		stop := &Stop{Targets: plainRef(id), Event: model.EvRequeue, UID: 7}
		if wait == 0 {
			s.st.Apply(Command{At: at, rules: rules, Body: stop})
			s.want("its time", s.job(id).Begin, model.Time(0))
			continue
		}
		s.apply(stop)
		s.want("its time", s.job(id).Begin, at.Add(wait))
		later := &Edit{Targets: plainRef(id), Set: []Field{SetBegin}, Begin: at.Add(500)}
		s.want("another time", s.apply(later).Refusal, OK)
		s.apply(&Reports{Reports: []Report{{Kind: Ended, Job: id, Attempt: 1}}})
		s.want("it waits", s.job(id).Reason, model.ReasonBeginTime)
		s.want("until then", s.job(id).Begin, at.Add(500))
	}
}
