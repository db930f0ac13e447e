package sched_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/sched"
	"gbatch/internal/sched/fairtree"
	"gbatch/internal/sched/multifactor"
	"gbatch/internal/state"
)

var _ sched.Order = (*multifactor.Order)(nil)

// BenchmarkFairTree ranks 10,000 users in 1,000 accounts three deep. "view" reads them, and their usage, from the facts
// as well.
func BenchmarkFairTree(b *testing.B) {
	const users, accounts = 10_000, 1_000
	rng := rand.New(rand.NewPCG(1, 2))
	nodes := []fairtree.Node{{Parent: -1}}
	for i := range accounts {
		nodes = append(nodes, fairtree.Node{Parent: max(0, i/10), Shares: 1 + rng.Int64N(100)})
	}
	for range users {
		nodes = append(nodes, fairtree.Node{Parent: 1 + rng.IntN(accounts), User: true, Shares: 1 + rng.Int64N(100),
			Usage: rng.Int64N(1e12)})
	}
	b.Run("users=10000", func(b *testing.B) {
		var out []fairtree.Level
		for b.Loop() {
			var err error
			if out, err = fairtree.Rank(nodes, out); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("users=10000/view", func(b *testing.B) {
		v := manyUsers(b, users, accounts).View()
		var prev *multifactor.Tree
		for b.Loop() {
			prev = multifactor.NewTree(v, 2e12, prev)
		}
	})
}

// manyUsers makes a cluster with associations.
func manyUsers(b *testing.B, users, accounts int) *state.State {
	st := state.New()
	cfg := &model.Config{Cluster: "c",
		Params: model.Params{Priority: model.Priority{Multifactor: true, HalfLifeS: 7 * 86400, MaxAgeS: 7 * 86400,
			WeightAge: 1000, WeightFairShare: 10000, WeightQOS: 5000, WeightPartition: 100, WeightJobSize: 1000, WeightAssoc: 10,
			WeightTRES: []model.TRESWeight{{TRES: "gres/gpu", Micros: 1e9, Per: 1}}}}}
	for i := range 200 {
		cfg.Nodes = append(cfg.Nodes, &model.NodeDef{Name: fmt.Sprint("n", i), CPUs: 64, MemMiB: 1 << 20,
			Gres: []model.GresDef{{Name: "gpu", Count: 8}}})
	}
	for p := range 10 {
		part := &model.Partition{Name: fmt.Sprint("p", p), PriorityJobFactor: int32(p)}
		for _, n := range cfg.Nodes {
			part.Nodes = append(part.Nodes, n.Name)
		}
		cfg.Partitions = append(cfg.Partitions, part)
	}
	apply := func(body state.Body) {
		if r := st.Apply(state.Command{At: 1e12, Body: body}); r.Refusal != state.OK {
			b.Fatal(r.Refusal)
		}
	}
	apply(&state.SetConfig{Config: cfg})
	c := &state.Accounts{}
	for i := range accounts {
		name, parent := fmt.Sprint("a", i), "root"
		if i >= 10 {
			parent = fmt.Sprint("a", i/10)
		}
		c.Edits = append(c.Edits, model.AcctEdit{Op: model.PutAccount, Account: &model.Account{Name: name, Parent: parent}},
			model.AcctEdit{Op: model.PutAssoc, Assoc: &model.Association{Account: name, Shares: int64(1 + i%7)}})
	}
	for i := range users {
		name, account := fmt.Sprint("u", i), fmt.Sprint("a", i%accounts)
		c.Edits = append(c.Edits, model.AcctEdit{Op: model.PutUser, User: &model.User{Name: name, DefaultAccount: account}},
			model.AcctEdit{Op: model.PutAssoc,
				Assoc: &model.Association{Account: account, User: name, Shares: int64(1 + i%5), Priority: model.LimitOf(int64(i))}})
	}
	apply(c)
	return st
}

// BenchmarkPriority computes the priorities of 100,000 waiting jobs of 10,000 users with every factor, the order's own
// making included.
func BenchmarkPriority(b *testing.B) {
	const jobs, users, accounts = 100_000, 10_000, 1_000
	st := manyUsers(b, users, accounts)
	rng := rand.New(rand.NewPCG(3, 4))
	v := st.View()
	var list []*model.Job
	for i := range jobs {
		u := rng.IntN(users)
		sp := &model.Spec{Name: "j", User: fmt.Sprint("u", u), Account: fmt.Sprint("a", u%accounts),
			QOS:        []string{"low", "normal", "high"}[rng.IntN(3)],
			Partitions: []string{fmt.Sprint("p", rng.IntN(10))}, Tasks: int32(1 + rng.IntN(64)),
			Gres: []model.GresReq{{Name: "gpu", Count: 1 + rng.Int32N(8)}}}
		list = append(list, &model.Job{ID: model.JobID(i + 1), Spec: sp, Submit: 1e12,
			Eligible: 1e12 + model.Time(rng.Int64N(1e9)), State: model.Pending})
	}
	parts := map[string]*model.Partition{}
	for _, p := range v.Config().Partitions {
		parts[p.Name] = p
	}
	b.Run("jobs=100000", func(b *testing.B) {
		var prev *multifactor.Order
		for b.Loop() {
			o := multifactor.New(v, 1e12+5e8, prev)
			for _, j := range list {
				o.Priority(j, parts[j.Spec.Partitions[0]])
			}
			prev = o
		}
	})
}
