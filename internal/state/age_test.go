package state

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"gbatch/internal/model"
)

func putQOS(q model.QOS) model.AcctEdit { return model.AcctEdit{Op: model.PutQOS, QOS: &q} }

// accrue sets limits on ageing jobs, and switches limits on or off.
func (s *session) accrue(w words) Result {
	if on := len(w.named) > 0; s.cfg.Params.HoldLimits != on {
		s.cfg.Params.HoldLimits = on
		cfg := s.cfg
		s.apply(&SetConfig{Config: &cfg})
	}
	limit := func(name string) model.Limit {
		if w.has(name) {
			return model.LimitOf(w.num(name, 0))
		}
		return 0
	}
	if w.has("qos") {
		q := model.QOS{Name: w.named["qos"], UsageFactor: model.FactorOne, GrpAccrue: limit("grp"),
			MaxAccruePerUser: limit("pu"), MaxAccruePerAccount: limit("pa")}
		return s.apply(&Accounts{Edits: acctEdits{putQOS(q)}})
	}
	if len(w.named) == 0 {
		return Result{}
	}
	account, of := w.named["account"], w.named["user"]
	edits := acctEdits{acct(account, "root")}
	if of != "" {
		edits = append(edits, user(of))
	}
	e := assoc(account, of)
	e.Assoc.GrpAccrue, e.Assoc.MaxAccrue = limit("grp"), limit("max")
	return s.apply(&Accounts{Edits: append(edits, e)})
}

// accrueLimit is a limit as documented: how many of some jobs may age.
type accrueLimit struct {
	most  int64
	whose func(*model.Job) bool
}

// accrueLimits gives the limits that hold for a job, found without the state's tallies: the QOS's own limits, and the
// associations' limits that the QOS doesn't set.
func accrueLimits(st *State, j *model.Job) (out []accrueLimit) {
	sp := j.Spec
	add := func(l model.Limit, whose func(*model.Spec) bool) {
		if n, set := l.Value(); set {
			out = append(out, accrueLimit{n, func(j *model.Job) bool { return whose(j.Spec) }})
		}
	}
	ofUser := func(o *model.Spec) bool { return o.Account == sp.Account && o.User == sp.User }
	q, _ := st.qos.Get(sp.QOS)
	add(q.GrpAccrue, func(o *model.Spec) bool { return o.QOS == sp.QOS })
	add(q.MaxAccruePerUser, func(o *model.Spec) bool { return o.QOS == sp.QOS && o.User == sp.User })
	add(q.MaxAccruePerAccount, func(o *model.Spec) bool { return o.QOS == sp.QOS && o.Account == sp.Account })
	own, _ := st.assocs.Get(assocKey(sp.Account, sp.User, ""))
	most := model.Limit(0)
	if q.GrpAccrue == 0 {
		add(own.GrpAccrue, ofUser)
	}
	most = own.MaxAccrue
	for up := sp.Account; up != ""; up = st.parentOf(up) {
		a, ok := st.assocs.Get(assocKey(up, "", ""))
		if !ok {
			continue
		}
		if q.GrpAccrue == 0 {
			add(a.GrpAccrue, func(o *model.Spec) bool { return st.below(up)[o.Account] })
		}
		if most == 0 {
			most = a.MaxAccrue
		}
	}
	if q.MaxAccruePerUser == 0 {
		add(most, ofUser)
	}
	return out
}

// TestLongestWaitingAge: the jobs that begin to age with a command are those for which a walk over all waiting jobs, in
// the order in which they became eligible, finds room.
func TestLongestWaitingAge(t *testing.T) {
	began := 0
	for seed := range uint64(8) {
		g := &storm{rng: rand.New(rand.NewPCG(seed, 11))}
		limit := func() model.Limit { return []model.Limit{0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6}[g.n(11)] } // 1 allows no job
		var edits acctEdits
		for _, a := range []string{"science", "physics", "bio"} {
			for _, u := range []string{"", "ann", "bob"} {
				e := assoc(a, u)
				e.Assoc.GrpAccrue, e.Assoc.MaxAccrue = limit(), limit()
				edits = append(edits, e)
			}
		}
		for _, q := range []string{"normal", "high"} {
			edits = append(edits, putQOS(model.QOS{Name: q, UsageFactor: model.FactorOne, GrpAccrue: limit(),
				MaxAccruePerUser: limit(), MaxAccruePerAccount: limit()}))
		}
		s := purseCluster(t, nil, edits...)
		for step := range 250 {
			s.now += model.Time(g.n(2000))
			before := map[model.JobID]bool{}
			s.st.jobs.Scan(func(id model.JobID, j *model.Job) bool { before[id] = AgingOf(j) > 0; return true })
			s.at = fmt.Sprintf("seed %d, step %d", seed, step)
			id := model.JobID(1 + g.n(int(s.st.nextID)))
			t1 := []model.JobRef{{Job: id, Task: model.NoTask}}
			switch g.n(8) {
			case 0:
				s.apply(&Stop{Targets: t1, Event: model.EvCancel})
			case 1:
				s.apply(&Edit{Targets: t1, Set: []Field{SetHold}, Hold: model.HoldKind(g.n(2))})
			case 2:
				s.apply(&Stop{Targets: []model.JobRef{t1[0], {Job: id + 1, Task: model.NoTask}, {Job: id + 3, Task: model.NoTask}},
					Event: model.EvCancel})
			case 3:
				if j := s.st.View().Job(id); j != nil && IsReady(j) {
					na := model.NodeAlloc{Node: "n1", CPUs: model.UpTo(16).Minus(s.st.View().Node("n1").UsedCPUs).First(1)}
					s.apply(&Starts{Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p", LimitS: 60,
						Alloc: &model.Alloc{Nodes: []model.NodeAlloc{na}}}}}})
				}
			case 4:
				s.now += 3_600_000
				s.apply(&Tick{})
				s.apply(&Edit{Targets: t1, Set: []Field{SetBegin}, Begin: s.now.Add(60)})
			default:
				s.apply(&Submit{Spec: &model.Spec{Name: "j", Account: []string{"science", "physics", "bio"}[g.n(3)],
					User: []string{"ann", "bob"}[g.n(2)],
					QOS:  []string{"normal", "high"}[g.n(2)], Partitions: []string{"p"}}})
			}
			if t.Failed() {
				return
			}
			var wait, aging, fresh []*model.Job
			s.st.jobs.Scan(func(id model.JobID, j *model.Job) bool {
				switch {
				case !IsReady(j):
				case ageless(j), !before[id]:
					wait = append(wait, j)
					if !ageless(j) {
						fresh = append(fresh, j)
					}
				default:
					aging = append(aging, j)
				}
				return true
			})
			slices.SortFunc(wait, func(a, b *model.Job) int {
				return int(a.Eligible-b.Eligible)*1_000_000 + int(a.ID) - int(b.ID)
			})
			for _, j := range wait {
				room := !slices.ContainsFunc(accrueLimits(s.st, j), func(l accrueLimit) bool {
					n := int64(0)
					for _, o := range aging {
						if l.whose(o) {
							n++
						}
					}
					return n >= l.most
				})
				if room {
					aging = append(aging, j)
				}
				if room == ageless(j) {
					t.Fatalf("%s: job %d: room to age %v, but ages since %s", s.at, j.ID, room, clock(j.AccrueTime()))
				}
				if room && j.AccrueTime() != s.now {
					t.Fatalf("%s: job %d ages since %s, now is %s", s.at, j.ID, clock(j.AccrueTime()), clock(s.now))
				}
			}
			began += len(fresh)
		}
		s.replicas()
	}
	if began < 200 {
		t.Errorf("only %d jobs ever aged", began)
	}
}

// BenchmarkAge: the cost of one end and one submission, by the number of jobs that wait to age.
func BenchmarkAge(b *testing.B) {
	for _, waiting := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			st := New()
			st.Apply(Command{At: epoch, Body: &SetConfig{Config: &model.Config{Params: model.Params{HoldLimits: true},
				Partitions: []*model.Partition{{Name: "p"}}}}})
			q := model.QOS{Name: "normal", UsageFactor: model.FactorOne, GrpAccrue: model.LimitOf(100),
				MaxAccruePerUser: model.LimitOf(2)}
			st.Apply(Command{At: epoch, Body: &Accounts{Edits: acctEdits{putQOS(q)}}})
			submit := func(at model.Time, n int) {
				st.Apply(Command{At: at, Body: &Submit{Spec: &model.Spec{Account: "root", User: fmt.Sprint("u", n%1000),
					QOS: "normal", Partitions: []string{"p"}}}})
			}
			for n := range waiting {
				submit(epoch, n)
			}
			var aging []model.JobID
			for i := 0; b.Loop(); i++ {
				if len(aging) == 0 {
					b.StopTimer()
					st.jobs.Scan(func(id model.JobID, j *model.Job) bool {
						if AgingOf(j) > 0 {
							aging = append(aging, id)
						}
						return true
					})
					b.StartTimer()
				}
				id := aging[0]
				aging = aging[1:]
				now := epoch + model.Time(i)
				st.Apply(Command{At: now, Body: &Stop{Targets: []model.JobRef{{Job: id, Task: model.NoTask}},
					Event: model.EvCancel}})
				submit(now, i)
			}
		})
	}
}
