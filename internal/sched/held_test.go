package sched

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// TestReservationsHold: over random clusters with shared GPUs, MIG instances, licenses, exclusive jobs and jobs on
// several nodes, reservations of nodes and parts of nodes come and go, present and future ones. If all jobs run to
// their limits, no running job, and no job that a plan starts, ever holds what is reserved for others at that moment. A
// kept planner gives the plans of a fresh one.
func TestReservationsHold(t *testing.T) {
	seeds := 120
	if testing.Short() {
		seeds = 30
	}
	starts, inside, drawn, shared, alone := 0, 0, 0, 0, 0
	for seed := range seeds {
		w := &world{rng: rand.New(rand.NewPCG(uint64(seed), 47)), byIndex: seed%3 == 0}
		c := w.cluster(t)
		c.cfg.Licenses = []model.LicenseCount{{Name: "foo", Count: 5}}
		for _, d := range c.cfg.Nodes {
			for i := range d.Gres {
				d.Gres[i].MemMiB = 16000
			}
			if w.chance(60) {
				w.divideSome(d)
			}
		}
		c.up()
		kept := NewPlanner()
		pol := Policy{}
		for round := range 14 {
			c.at = fmt.Sprintf("seed %d, round %d", seed, round)
			if w.chance(40) {
				if pol = w.backfill(); w.chance(30) {
					pol = Policy{}
				}
				pol.Backfill.Keep = false
			}
			for range w.n(3) {
				r := w.reservation(c, string(rune('a'+w.n(5))))
				if c.st.View().Reservation(r.Name) == nil && (len(r.Nodes) > 0 || len(r.Licenses) > 0) &&
					holds(c.st.View(), c.now, r) == nil {
					c.apply(&state.Reserve{Op: state.CreateResv, Resv: r})
				}
			}
			for range w.n(10) {
				sp := w.spec(c)
				if w.chance(60) && len(sp.Extra().GPUIndex) == 0 && len(sp.Extra().GPUsPerSocket) == 0 {
					more := sp.More
					w.shareOf(sp)
					if sp.More == nil {
						sp.More = more
					}
				}
				sp.Exclusive = w.chance(15)
				sp.LimitS = int64(pick(w, 60, 300, 1000, 4000))
				if w.chance(30) {
					sp.Reservation = pick(w, "a", "b", "c", "d", "a,b")
				}
				if w.chance(20) {
					m := sp.Extra()
					m.Licenses = []model.LicenseCount{{Name: "foo", Count: int64(1 + w.n(4))}}
					sp.More = &m
				}
				c.apply(&state.Submit{Spec: sp, Priority: uint32(w.n(3))})
			}
			v := c.st.View()
			plan := kept.Plan(v, c.now, pol)
			if fresh := Plan(v, c.now, pol); !reflect.DeepEqual(plan, fresh) {
				t.Fatalf("%s: a kept planner: %s\na fresh one: %s", c.at, planText(plan), planText(fresh))
			}
			for i, res := range c.apply(&state.Starts{Plan: plan}).Each {
				s := &plan.Starts[i]
				if res != state.OK {
					t.Fatalf("%s: %s is refused: %s", c.at, startLine(s), res)
				}
				starts++
				if s.Resv != "" {
					inside++
				}
				if r := v.Reservation(s.Resv); r != nil && v.Job(s.Job).Spec.Reservation == "" {
					drawn++
					if r.Flags&model.ResvMagnetic == 0 || r.Users[0] != "u" || r.Flags&model.ResvFlex == 0 &&
						c.now.Add(v.Job(s.Job).Spec.LimitS) > r.End {
						t.Errorf("%s: %s is not for job %d", c.at, r.Name, s.Job)
					}
				}
				if v.Job(s.Job).Spec.Exclusive {
					alone++
				}
				for _, na := range s.Alloc.Nodes {
					if slices.ContainsFunc(na.Gres, func(g model.GresAlloc) bool { return g.Share != nil }) {
						shared++
					}
				}
			}
			if err := holds(c.st.View(), c.now, nil); err != nil {
				t.Fatalf("%s: after %s: %v", c.at, planText(plan), err)
			}
			c.now = c.now.Add(int64(w.n(500)))
			c.apply(&state.Tick{})
			var ended state.Reports
			c.st.View().Jobs(func(j *model.Job) bool {
				if j.State == model.Completing || j.State.HasResources() && w.chance(25) {
					ended.Reports = append(ended.Reports, state.Report{Kind: state.Ended, Job: j.ID, Attempt: j.Attempt, At: c.now})
				}
				return true
			})
			c.apply(&ended)
		}
	}
	if starts < 10*seeds || inside < seeds || drawn < seeds || shared < seeds || alone < seeds/4 {
		t.Errorf("only %d starts, %d inside reservations (%d drawn), %d of shares, %d exclusive, in %d worlds", starts,
			inside, drawn, shared, alone, seeds)
	}
}

// divideSome shares a node's GPUs of one type, or all of them: the others stand for MIG instances.
func (w *world) divideSome(d *model.NodeDef) {
	whole := pick(w, "", "a", "b")
	some := &model.NodeDef{}
	for _, g := range d.Gres {
		if whole == "" || g.Type == whole {
			some.Gres = append(some.Gres, g)
		}
	}
	n := len(some.Gres)
	divide(some, "shard", int32(pick(w, 2, 4)), false)
	if w.chance(30) {
		divide(some, "mps", 100, false)
	}
	d.Gres = append(d.Gres, some.Gres[n:]...)
}

// reservation makes a random reservation of nodes, of parts of nodes, or of licenses.
func (w *world) reservation(c *cluster, name string) *model.Reservation {
	r := &model.Reservation{Name: name, Start: c.now.Add(int64(pick(w, 0, 0, w.n(1500)))), Users: []string{"u"},
		Flags: pick(w, 0, 0, 0, model.ResvFlex, model.ResvDaily)}
	if w.chance(30) {
		r.Flags |= model.ResvMagnetic
		r.Users = pick(w, r.Users, r.Users, []string{"v"})
	}
	r.End = r.Start.Add(int64(100 + w.n(3000)))
	if w.chance(15) {
		r.Flags |= model.ResvAnyNodes
		r.Licenses = []model.LicenseCount{{Name: "foo", Count: int64(1 + w.n(5))}}
		return r
	}
	whole := w.chance(20)
	for _, d := range c.cfg.Nodes {
		if w.chance(50) {
			continue
		}
		part := model.ResvPart{CPUs: int32(w.n(int(d.CPUs))), MemMiB: int64(w.n(2) * w.n(int(d.MemMiB))),
			Gres: make([]int32, len(d.Gres))}
		if c.cfg.Params.WholeCores {
			part.CPUs -= part.CPUs % d.ThreadsPerCore
		}
		share := w.chance(40)
		for i, g := range d.Gres {
			if (len(g.Over) > 0) == share && w.chance(70) {
				part.Gres[i] = int32(w.n(int(g.Count) + 1))
			}
		}
		if !whole && !slices.ContainsFunc(part.Gres, func(n int32) bool { return n > 0 }) {
			part.CPUs = max(part.CPUs, d.ThreadsPerCore)
		}
		if r.Nodes = append(r.Nodes, d.Name); !whole {
			r.Parts = append(r.Parts, part)
		}
	}
	return r
}

// holds returns an error if running jobs hold, at any moment from now on, what is reserved for others. add is one more
// reservation to check.
func holds(v *state.View, now model.Time, add *model.Reservation) error {
	var list []*model.Reservation
	v.Reservations(func(r *model.Reservation) bool { list = append(list, r); return true })
	if add != nil {
		if v.Overlaps(add) != nil {
			return fmt.Errorf("it overlaps")
		}
		list = append(list, add)
	}
	moments := []model.Time{now}
	var jobs []*model.Job
	v.Jobs(func(j *model.Job) bool {
		if j.State.HasResources() {
			jobs = append(jobs, j)
		}
		return true
	})
	for _, r := range list {
		for _, o := range r.Occurrences() {
			if o[0] > now {
				moments = append(moments, o[0])
			}
		}
	}
	for _, at := range moments {
		var open []*model.Reservation
		for _, r := range list {
			if slices.ContainsFunc(r.Occurrences(), func(o [2]model.Time) bool { return o[0] <= at && at < o[1] }) {
				open = append(open, r)
			}
		}
		running := slices.DeleteFunc(slices.Clone(jobs),
			func(j *model.Job) bool { return j.Run.Deadline() <= at && at > now })
		sets := [][]*model.Reservation{open} // all of them against jobs in none of them, and each against all other jobs
		for _, r := range open {
			sets = append(sets, []*model.Reservation{r})
		}
		for _, set := range sets {
			names := []string{}
			for _, r := range set {
				names = append(names, r.Name)
			}
			others := slices.DeleteFunc(slices.Clone(running),
				func(j *model.Job) bool { return slices.Contains(names, j.Run.Resv) })
			if err := keptFrom(v, set, others); err != nil {
				return fmt.Errorf("now %d, at %d, reservations %v: %w", now, at, names, err)
			}
		}
	}
	return nil
}

// keptFrom returns an error if jobs hold what a set of reservations has.
func keptFrom(v *state.View, set []*model.Reservation, others []*model.Job) (err error) {
	lic := map[string]int64{}
	for _, r := range set {
		for _, l := range r.Licenses {
			lic[l.Name] += l.Count
		}
	}
	for _, j := range others {
		for _, l := range j.Run.Licenses {
			if lic[l.Name] > 0 {
				lic[l.Name] += l.Count
			}
		}
	}
	for _, l := range v.Config().Licenses {
		if lic[l.Name] > l.Count {
			return fmt.Errorf("%d licenses %s of %d", lic[l.Name], l.Name, l.Count)
		}
	}
	v.Nodes(func(n *model.Node) bool {
		err = keptOf(v, n, set, others)
		return err == nil
	})
	return err
}

func keptOf(v *state.View, n *model.Node, set []*model.Reservation, others []*model.Job) error {
	want, reserved, whole := model.ResvPart{Gres: make([]int32, len(n.Def.Gres))}, false, false
	for _, r := range set {
		i := slices.Index(r.Nodes, n.Def.Name)
		if i < 0 {
			continue
		}
		reserved = true
		p := r.Part(i)
		if p == nil {
			whole = true
			continue
		}
		want.CPUs, want.MemMiB = want.CPUs+p.CPUs, want.MemMiB+p.MemMiB
		for k := range p.Gres {
			want.Gres[k] += p.Gres[k]
		}
	}
	if !reserved {
		return nil
	}
	var cpus model.Bits
	mem, gres := int64(0), []model.GresAlloc(nil)
	for _, j := range others {
		for i := range j.Run.Alloc.Nodes {
			na := &j.Run.Alloc.Nodes[i]
			if na.Node != n.Def.Name {
				continue
			}
			part := v.Partition(j.Run.Partition)
			if whole || j.Spec.Exclusive || part.Exclusive() {
				return fmt.Errorf("job %d is on %s, alone or where it is all reserved", j.ID, n.Def.Name)
			}
			cpus, mem, gres = cpus.Or(na.CPUs), mem+na.MemMiB, append(gres, na.Gres...)
		}
	}
	if cpus.Count()+int(want.CPUs) > int(n.Def.CPUs) {
		return fmt.Errorf("%d CPUs of %s are held, %d of %d reserved", cpus.Count(), n.Def.Name, want.CPUs, n.Def.CPUs)
	}
	if v.Config().Params.MemConsumed && mem+want.MemMiB > n.Def.MemMiB {
		return fmt.Errorf("%d MiB of %s are held, %d of %d reserved", mem, n.Def.Name, want.MemMiB, n.Def.MemMiB)
	}
	return keptGPUs(n.Def, want.Gres, gres)
}

// keptGPUs counts by itself which GPUs and shares other jobs leave free: a GPU that is partly in use is not whole, and
// is shared by one resource only.
func keptGPUs(d *model.NodeDef, want []int32, held []model.GresAlloc) error {
	taken := map[int]bool{}
	units := map[int]map[string]int{}
	for _, g := range held {
		switch {
		case g.Share != nil:
			u := int(g.Share.GPU)
			if units[u] == nil {
				units[u] = map[string]int{}
			}
			units[u][g.Name] += g.Index.Count()
		case g.Name == "gpu":
			g.Index.Each(func(u int) bool { taken[u] = true; return true })
		}
	}
	idle := map[int]int{} // idle GPUs, by the node's entries
	for i, g := range d.Gres {
		if g.Name != "gpu" {
			continue
		}
		for u := g.First; u < g.First+g.Count; u++ {
			if !taken[int(u)] && units[int(u)] == nil {
				idle[i]++
			}
		}
		if idle[i] -= int(want[i]); idle[i] < 0 {
			return fmt.Errorf("%d of %d GPUs of type %q are reserved of %s: others hold %v and %v", want[i], g.Count, g.Type,
				d.Name, taken, units)
		}
	}
	for i, g := range d.Gres {
		left := want[i]
		if len(g.Over) == 0 || left == 0 {
			continue
		}
		each := g.Over[0].Count
		for _, s := range g.Over {
			if u := int(s.GPU); !taken[u] && units[u] != nil && len(units[u]) == 1 && units[u][g.Name] > 0 {
				left -= each - int32(units[u][g.Name])
			}
		}
		for k, e := range d.Gres {
			if e.Name == "gpu" && e.Type == g.Type {
				for ; left > 0 && idle[k] > 0; left -= each {
					idle[k]--
				}
			}
		}
		if left > 0 {
			return fmt.Errorf("%d %s of type %q are reserved of %s, %d too few are left: others hold %v and %v", want[i], g.Name,
				g.Type, d.Name, left, taken, units)
		}
	}
	return nil
}
