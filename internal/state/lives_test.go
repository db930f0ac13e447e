package state

import (
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
		s.now = longer.End
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
