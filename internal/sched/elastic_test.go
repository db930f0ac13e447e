package sched

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// stretch makes a job elastic.
func (w *world) stretch(sp *model.Spec) {
	sp.MinNodes = int32(1 + w.n(2))
	sp.MaxNodes, sp.Tasks, sp.ReqNodes = sp.MinNodes, 0, nil
	sp.Gres = slices.DeleteFunc(sp.Gres, func(g model.GresReq) bool { return g.Per == model.PerJob })
	m := sp.Extra()
	m.Elastic = &model.Elastic{Max: sp.MinNodes + int32(1+w.n(4)), GraceS: int64(w.n(3) * 10)}
	sp.More = &m
}

// block puts the nodes into blocks of so many at most. Nodes that follow one another are in different blocks.
func block(c *cluster, size int) {
	b := &model.Blocks{Sizes: []int32{int32(size), int32(2 * size)}}
	n := (len(c.cfg.Nodes) + size - 1) / size
	for i := range n {
		b.List = append(b.List, &model.Block{Name: fmt.Sprintf("b%d", i)})
	}
	for i, d := range c.cfg.Nodes {
		b.List[i%n].Nodes = append(b.List[i%n].Nodes, d.Name)
	}
	c.cfg.Blocks = b
}

// wholeSegments checks that no segment of an elastic job is in several blocks, and that its segments lie to each other
// as it wants.
func (c *cluster) wholeSegments() {
	c.t.Helper()
	v := c.st.View()
	v.Jobs(func(j *model.Job) bool {
		if j.Spec.Elastic() == nil || j.Spec.Extra().Segment == 0 || !j.State.HasResources() {
			return true
		}
		cfg := v.Config()
		t := cfg.Networks()[cfg.NetworkOf(v.Partition(j.Run.Partition))].Blocks
		if t == nil {
			return true
		}
		unit := func(node string, nodes int) int { // the smallest block of so many nodes
			base := slices.IndexFunc(t.List, func(b *model.Block) bool { return slices.Contains(b.Nodes, node) })
			for _, size := range t.Sizes {
				if nodes <= int(size) {
					return base / int(size/t.Sizes[0])
				}
			}
			return 0
		}
		names, size := j.Run.Alloc.NodeNames(), int(j.Spec.Extra().Segment)
		n := len(names)
		if j.Run.Sizes > 0 { // it may have needed a larger block before
			n = int(j.Spec.Elastic().Max)
		}
		of := map[int]int{}
		for segment := range slices.Chunk(names, size) {
			at := unit(segment[0], size)
			of[at]++
			if len(segment) != size || slices.ContainsFunc(segment, func(n string) bool { return unit(n, size) != at }) {
				c.t.Fatalf("%s: job %d has nodes %v with segments of %d: %v is none", c.at, j.ID, names, size, segment)
			}
			if j.Spec.Extra().Segments == model.SegmentsApart && of[at] > 1 {
				c.t.Fatalf("%s: job %d has nodes %v, and each segment is to be in a block of its own", c.at, j.ID, names)
			}
			if j.Spec.Extra().Segments == model.SegmentsTogether && unit(segment[0], n) != unit(names[0], n) {
				c.t.Fatalf("%s: job %d has nodes %v, and is to be in one block", c.at, j.ID, names)
			}
		}
		return true
	})
}

// TestElasticHolds plans random histories with elastic jobs, in which some jobs are of a higher QOS. cluster.cycle
// checks determinism and all invariants of the state. This test checks sizes, that each node has what one node asks
// for, and that nobody's planned start moves to a later moment because jobs grow.
func TestElasticHolds(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 15
	}
	grown, asked, planned := 0, 0, 0
	for seed := range seeds {
		w := &world{rng: rand.New(rand.NewPCG(uint64(seed), 77))}
		c := w.cluster(t)
		c.cfg.Params.Elastic.PauseS = int64(w.n(2) * 30)
		c.up()
		for i, name := range []string{"low", "high"} {
			c.apply(&state.Accounts{Edits: []model.AcctEdit{{Op: model.PutQOS,
				QOS: &model.QOS{Name: name, Priority: uint32(10 + 90*i), UsageFactor: model.FactorOne}}}})
		}
		classes := seed%2 == 1
		for round := range 14 {
			c.at = fmt.Sprintf("seed %d, round %d", seed, round)
			for range w.n(8) {
				sp := w.spec(c)
				sp.Tasklist, sp.Throttle, sp.LimitS = nil, 0, int64(60+w.n(600))
				if sp.QOS = "low"; classes && w.chance(30) {
					sp.QOS = "high"
				} else if w.chance(50) {
					w.stretch(sp)
				}
				c.apply(&state.Submit{Spec: sp, Priority: uint32(1 + w.n(3))})
			}
			c.bf = Backfill{On: true, Reserve: -1}
			active := c.st.View().Active()
			plan := c.cycle(Policy{Backfill: c.bf})
			still := c.st.View().Active() == active && !slices.ContainsFunc(c.kept.growing(),
				func(g grower) bool { return c.st.View().Job(g.j.ID).Run.Recall != nil })
			grown, asked = grown+len(plan.Grow), asked+len(plan.Ask)
			before := map[model.JobID]model.Time{}
			c.st.View().Jobs(func(j *model.Job) bool {
				if at, _, ok := c.kept.Expected(j.ID); ok && j.State == model.Pending && len(plan.Grow) > 0 {
					before[j.ID] = at
				}
				return true
			})
			next := NewPlanner()
			again := next.Plan(c.st.View(), c.now, Policy{Backfill: c.bf})
			still = still && len(plan.Ask)+len(again.Ask)+len(again.Starts) == 0 // else others have come before them
			for id, at := range before {
				if later, _, ok := next.Expected(id); ok && later > at && still {
					t.Fatalf("%s: job %d was planned for %d and is for %d since others grew:\n%+v", c.at, id, at, later,
						plan.Grow)
				}
				planned++
			}
			c.begin()
			if err := sizes(c.st.View()); err != nil {
				t.Fatalf("%s: %v", c.at, err)
			}
			c.now = c.now.Add(int64(5 + w.n(40)))
			c.apply(&state.Tick{})
			var ended state.Reports
			c.st.View().Jobs(func(j *model.Job) bool {
				if j.State.HasResources() && (j.State == model.Completing || w.chance(25)) {
					ended.Reports = append(ended.Reports,
						state.Report{Kind: state.Ended, Job: j.ID, Attempt: j.Attempt, At: c.now})
				} else if j.Run != nil && j.Run.Recall != nil && w.chance(30) {
					c.apply(&state.Resize{Job: j.ID, Attempt: j.Attempt, Agree: true})
				}
				return true
			})
			c.apply(&ended)
		}
	}
	t.Logf("%d growths, %d questions, %d planned starts compared", grown, asked, planned)
	if grown < seeds/2 || asked < seeds/6 || planned < seeds/6 {
		t.Errorf("%d growths, %d questions, %d planned starts: too few to show anything", grown, asked, planned)
	}
}

// TestSegmentsAreNeverDivided plans random histories with elastic jobs that have segments, beside others that take
// nodes and ask for some. cluster.cycle checks after each plan that all segments are whole, and that a kept planner
// plans as a new one.
func TestSegmentsAreNeverDivided(t *testing.T) {
	seeds := 150
	if testing.Short() {
		seeds = 15
	}
	grown, asked, agreed := 0, 0, 0
	for seed := range seeds {
		w := &world{rng: rand.New(rand.NewPCG(uint64(seed), 78))}
		c := newCluster(t)
		c.lazy = true
		part := &model.Partition{Name: "p"}
		for i := range 12 + w.n(6) {
			d := &model.NodeDef{Name: fmt.Sprintf("n%02d", (i*7)%18), CPUs: 2, ThreadsPerCore: 1, MemMiB: 1000}
			c.cfg.Nodes, part.Nodes = append(c.cfg.Nodes, d), append(part.Nodes, d.Name)
		}
		c.cfg.Partitions = []*model.Partition{part}
		c.cfg.Params.Elastic.PauseS = int64(w.n(2) * 30)
		block(c, 2+w.n(4))
		c.up()
		for i, name := range []string{"low", "high"} {
			c.apply(&state.Accounts{Edits: []model.AcctEdit{{Op: model.PutQOS,
				QOS: &model.QOS{Name: name, Priority: uint32(10 + 90*i), UsageFactor: model.FactorOne}}}})
		}
		for round := range 20 {
			c.at = fmt.Sprintf("seed %d, round %d", seed, round)
			for range w.n(3) {
				sp := &model.Spec{UID: 1, User: "u", Account: "a", Partitions: []string{"p"}, QOS: "low", MinNodes: 1,
					MaxNodes: 1, CPUsPerTask: int32(1 + w.n(2)), LimitS: int64(60 + w.n(600))}
				switch {
				case w.chance(50):
					n := int32(1 + w.n(3))
					sp.MinNodes = n * int32(1+w.n(2))
					sp.MaxNodes, sp.CPUsPerTask, sp.LimitS = sp.MinNodes, 2, sp.LimitS+300
					sp.More = &model.Needs{Segment: n, Segments: model.SegmentWish(w.n(3)),
						Elastic: &model.Elastic{Max: sp.MinNodes + n*int32(1+w.n(4)), GraceS: int64(w.n(3) * 10)}}
				case w.chance(50):
					n := int32(1 + w.n(4))
					sp.QOS, sp.MinNodes, sp.MaxNodes, sp.More = "high", n, n, &model.Needs{Segment: 1}
				}
				c.apply(&state.Submit{Spec: sp, Priority: uint32(1 + w.n(3))})
			}
			plan := c.cycle(Policy{Backfill: Backfill{On: true, Reserve: -1}})
			for i := range plan.Grow {
				grown += c.st.View().Job(plan.Grow[i].Job).Spec.Stride() - 1
			}
			for i := range plan.Ask {
				asked += c.st.View().Job(plan.Ask[i].Job).Spec.Stride() - 1
			}
			c.begin()
			c.now = c.now.Add(int64(5 + w.n(40)))
			c.apply(&state.Tick{})
			var ended state.Reports
			c.st.View().Jobs(func(j *model.Job) bool {
				switch {
				case j.State.HasResources() && (j.State == model.Completing || w.chance(15)):
					ended.Reports = append(ended.Reports,
						state.Report{Kind: state.Ended, Job: j.ID, Attempt: j.Attempt, At: c.now})
				case j.Run != nil && j.Run.Recall != nil && w.chance(60):
					agreed++
					c.apply(&state.Resize{Job: j.ID, Attempt: j.Attempt, Agree: true})
				case j.Run != nil && j.State == model.Running && w.chance(10): // by hand, some nodes of it
					keep := j.Run.Alloc.NodeNames()[:1+w.n(len(j.Run.Alloc.Nodes))]
					c.apply(&state.Resize{Job: j.ID, Attempt: j.Attempt, Keep: keep})
				}
				return true
			})
			c.apply(&ended)
			c.wholeSegments()
		}
	}
	t.Logf("%d nodes came and %d were asked for beside others of a segment; %d jobs agreed", grown, asked, agreed)
	if grown < seeds || asked < seeds/4 || agreed < seeds/20 {
		t.Error("too few to show anything")
	}
}

// sizes checks that elastic jobs have as many nodes as they may, each with what they ask for of one.
func sizes(v *state.View) (err error) {
	v.Jobs(func(j *model.Job) bool {
		el := j.Spec.Elastic()
		if el == nil || !j.State.HasResources() {
			return true
		}
		n := len(j.Run.Alloc.Nodes)
		part := v.Partition(j.Run.Partition)
		if n < int(j.Spec.MinNodes) || n > int(el.Max) || part.MaxNodes > 0 && n > int(part.MaxNodes) {
			err = fmt.Errorf("job %d has %d nodes; it may have %d-%d", j.ID, n, j.Spec.MinNodes, el.Max)
		}
		for i := range j.Run.Alloc.Nodes {
			if na := &j.Run.Alloc.Nodes[i]; na.Tasks < max(1, j.Spec.TasksPerNode) || na.CPUs.Empty() {
				err = fmt.Errorf("job %d has %d tasks and CPUs %s on %s", j.ID, na.Tasks, na.CPUs, na.Node)
			}
		}
		return err == nil
	})
	return err
}

// stretched gives 1,000 nodes full of 1,000 running jobs, elastic or not, and 10,000 that wait.
func stretched(b *testing.B, elastic bool) *cluster {
	b.Helper()
	c := hall(b, 1000)
	for range 1000 {
		sp := &model.Spec{Partitions: []string{"p"}, CPUsPerTask: 64, LimitS: 3600, MinNodes: 1, MaxNodes: 1}
		if elastic {
			sp.More = &model.Needs{Elastic: &model.Elastic{Max: 8}}
		}
		c.put(&state.Submit{Spec: sp, Priority: 100})
	}
	plan := Plan(c.st.View(), c.now, Policy{})
	for i := range plan.Starts {
		plan.Starts[i].Alloc.Nodes = plan.Starts[i].Alloc.Nodes[:1]
	}
	c.put(&state.Starts{Plan: plan})
	c.begin()
	c.queue(10_000)
	return c
}

// BenchmarkPlanElastic compares plans with 1,000 elastic jobs on 1,000 nodes with plans for as many other jobs: by a
// new planner, and by a kept one.
func BenchmarkPlanElastic(b *testing.B) {
	for _, kind := range []string{"fresh", "kept"} {
		for _, elastic := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/elastic=%t", kind, elastic), func(b *testing.B) {
				v, now := stretched(b, elastic).st.View(), epoch
				p := NewPlanner()
				pol := Policy{Backfill: Backfill{On: true, Reserve: 8, MaxTest: 1000}}
				for b.Loop() {
					if kind == "fresh" {
						p = NewPlanner()
					}
					now++
					if plan := p.Plan(v, now, pol); len(plan.Starts)+len(plan.Grow) > 0 {
						b.Fatal("there is no room")
					}
				}
			})
		}
	}
}
