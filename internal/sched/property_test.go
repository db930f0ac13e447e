package sched

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/state"
)

// world makes random clusters and queues.
type world struct {
	rng    *rand.Rand
	shares bool // GPUs are shared

	byIndex bool // many jobs ask for GPUs by number
	hets    bool // heterogeneous jobs come too
	sockets bool // partitions give CPUs by socket
	yields  bool // jobs give way to those of a reservation
}

func (w *world) n(n int) int { return w.rng.IntN(n) }

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

func pick[T any](w *world, list ...T) T { return list[w.n(len(list))] }

// cluster defines nodes and partitions of all sorts, all nodes up.
func (w *world) cluster(t testing.TB) *cluster {
	c := newCluster(t)
	c.lazy = true
	p := &c.cfg.Params
	p.WholeCores, p.MemConsumed = w.chance(30), w.chance(80)
	p.DefMemPerCPU, p.MaxMemPerNode = int64(pick(w, 0, 0, 100)), int64(pick(w, 0, 0, 3000))
	p.MaxMemPerCPU = int64(pick(w, 0, 0, 0, 400))
	var names []string
	for i := range 2 + w.n(8) {
		d := &model.NodeDef{Name: fmt.Sprintf("n%d", i), CPUs: int32(pick(w, 2, 4, 8)), ThreadsPerCore: int32(pick(w, 1, 2)),
			MemMiB: int64(pick(w, 1000, 4000)), Weight: int32(w.n(3)), TmpMiB: int64(w.n(2) * 100)}
		for _, f := range []string{"ib", "ssd"} {
			if w.chance(50) {
				d.Features = append(d.Features, f)
			}
		}
		first := int32(0)
		for _, typ := range []string{"a", "b"} {
			if w.chance(50) {
				n := int32(1 + w.n(4))
				d.Gres = append(d.Gres, model.GresDef{Name: "gpu", Type: typ, First: first, Count: n})
				first += n
			}
		}
		if w.chance(50) { // two sockets, with half of the GPUs near each
			d.Sockets, d.CoresPerSocket = 2, d.CPUs/2/d.ThreadsPerCore
			for k := range d.Gres {
				for u := range d.Gres[k].Count {
					d.Gres[k].Near = append(d.Gres[k].Near, span(int(u%2*d.CPUs/2), int(d.CPUs/2)))
				}
			}
		}
		c.cfg.Nodes = append(c.cfg.Nodes, d)
		names = append(names, d.Name)
	}
	for i, name := range []string{"p", "q", "r"} {
		part := &model.Partition{Name: name, PriorityTier: int32(pick(w, 1, 1, 2)), MaxNodes: int32(pick(w, 0, 0, 2)),
			MinNodes:       int32(pick(w, 0, 0, 0, 2)),
			MaxCPUsPerNode: int32(pick(w, 0, 0, 0, 2)), ExclusiveUser: w.chance(10)}
		switch {
		case w.chance(10):
			part.OverSubscribe = "EXCLUSIVE"
		case w.chance(25):
			part.ShareMax, part.ShareForced = int32(2+w.n(3)), w.chance(60)
		}
		for _, n := range names {
			if i == 0 || w.chance(60) {
				part.Nodes = append(part.Nodes, n)
			}
		}
		c.cfg.Partitions = append(c.cfg.Partitions, part)
	}
	if w.shares {
		w.share(c)
	}
	if w.sockets {
		w.bySocket(c)
	}
	c.up()
	return c
}

// bySocket lets partitions give out whole sockets, or limit the CPUs of each.
func (w *world) bySocket(c *cluster) {
	c.cfg.Params.WholeCores, c.cfg.Params.WholeSockets = true, w.chance(20)
	for _, d := range c.cfg.Nodes {
		if d.Sockets == 0 && d.CPUs > 2 {
			d.Sockets, d.CoresPerSocket = 2, d.CPUs/2/d.ThreadsPerCore
		}
	}
	for _, p := range c.cfg.Partitions {
		p.CPUUnit = pick(w, model.CPUUnitDefault, model.CPUUnitCore, model.CPUUnitSocket)
		p.MaxCPUsPerSocket = int32(pick(w, 0, 1, 2, 2, 3))
	}
}

func (w *world) spec(c *cluster) *model.Spec {
	sp := &model.Spec{UID: uint32(w.n(2)), User: "u", Account: "a",
		Partitions: pick(w, []string{"p"}, []string{"p"}, []string{"q"}, []string{"r"}, []string{"p", "q"},
			[]string{"r", "q", "p"})}
	if w.chance(40) {
		sp.MinNodes = int32(1 + w.n(3))
		if w.chance(70) {
			sp.MaxNodes = sp.MinNodes + int32(w.n(2)*w.n(3))
		}
	}
	if w.chance(50) {
		sp.Tasks = int32(1 + w.n(8))
	}
	if w.chance(20) {
		sp.TasksPerNode = int32(1 + w.n(3))
	}
	sp.CPUsPerTask = int32(pick(w, 0, 1, 1, 2, 3))
	if w.chance(10) {
		sp.MinCPUs = int32(1 + w.n(4))
	}
	switch w.n(6) {
	case 0:
		sp.MemPerNode = int64(50 * (1 + w.n(80)))
	case 1:
		sp.MemPerCPU = int64(50 * (1 + w.n(10)))
	case 2:
		if w.chance(20) {
			sp.MemPerNode = model.WholeMem
		}
	}
	if w.chance(40) {
		sp.Gres = append(sp.Gres, model.GresReq{Name: "gpu", Type: pick(w, "", "", "a", "B"), Count: int32(w.n(4)),
			Per: pick(w, model.PerNode, model.PerJob, model.PerTask)})
		if w.chance(20) {
			sp.Gres = append(sp.Gres, model.GresReq{Name: "gpu", Type: pick(w, "a", "b"), Count: 1,
				Per: pick(w, model.PerNode, model.PerTask)})
		}
	}
	// CPUs by GPU; no draw, so that the worlds stay the same
	if sp.CPUsPerTask == 0 && len(sp.Gres) > 0 && sp.Gres[0].Count > 1 {
		sp.More = &model.Needs{CPUsPerGPU: sp.Gres[0].Count % 3}
	}
	if w.shares && w.chance(70) {
		w.shareOf(sp)
	}
	if w.chance(20) {
		sp.Features = pick(w, "ib", "ssd", "ib&ssd")
	}
	sp.Exclusive, sp.Overcommit = w.chance(7), w.chance(5)
	if w.chance(5) {
		sp.TmpMiB = 50
	}
	if w.chance(20) {
		m := sp.Extra()
		m.Share = true
		sp.More = &m
	}
	if w.chance(8) { // GPUs by socket
		m := sp.Extra()
		g := model.GresReq{Name: "gpu", Type: pick(w, "", "a"), Count: int32(1 + w.n(2))}
		m.Sockets, m.GPUsPerSocket = int32(1+w.n(2)), []model.GresReq{g}
		g.Count *= m.Sockets
		sp.More, sp.Gres = &m, []model.GresReq{g}
	}
	if w.byIndex && w.chance(40) { // GPUs by number
		m := sp.Extra()
		m.GPUsPerSocket, m.GPUIndex = nil, model.Bits(nil).With(w.n(3)).With(w.n(4))
		sp.More, sp.Gres = &m, []model.GresReq{{Name: "gpu", Count: int32(m.GPUIndex.Count())}}
	}
	part := c.st.View().Partition("p")
	if w.chance(7) && sp.Partitions[0] == "p" && len(sp.Partitions) == 1 {
		for range 1 + w.n(2) {
			if n := part.Nodes[w.n(len(part.Nodes))]; !slices.Contains(sp.ReqNodes, n) {
				sp.ReqNodes = append(sp.ReqNodes, n)
			}
		}
	} else if w.chance(10) {
		sp.ExcNodes = []string{part.Nodes[w.n(len(part.Nodes))]}
	}
	if w.chance(15) {
		sp.Tasklist = model.TaskSet{{Lo: 0, Hi: int32(1 + w.n(12)), Step: 1}}
		sp.Throttle = int32(w.n(2) * w.n(5))
	}
	return sp
}

// TestPlansHoldWhatTheyPromise fills and drains random clusters. cluster.cycle checks determinism, that every start is
// accepted, all invariants of the state, and that a queue at rest stays at rest. This test compares each allocation
// with its job's request, and the starts with the order of the queue.
func TestPlansHoldWhatTheyPromise(t *testing.T) {
	seeds := 40
	if testing.Short() {
		seeds = 10
	}
	starts := 0
	for seed := range seeds {
		w := &world{rng: rand.New(rand.NewPCG(uint64(seed), 3)), byIndex: seed%4 == 3, sockets: seed%5 == 2}
		c := w.cluster(t)
		for round := range 12 {
			c.at = fmt.Sprintf("seed %d, round %d", seed, round)
			for range w.n(12) {
				c.apply(&state.Submit{Spec: w.spec(c), Priority: uint32(w.n(2))})
			}
			before := c.st.View()
			forgetful := NewPlanner()
			forgetful.forgetful = true
			without := forgetful.Plan(before, c.now, Policy{})
			plan := c.cycle(Policy{})
			if !reflect.DeepEqual(without, plan) {
				t.Fatalf("%s: a planner that remembers plans otherwise:\n%+v\n%+v", c.at, plan, without)
			}
			starts += len(plan.Starts)
			for i := range plan.Starts {
				if err := keeps(before, &plan.Starts[i]); err != nil {
					t.Fatalf("%s: %v\n%+v\n%s", c.at, err, before.Job(plan.Starts[i].Job).Spec, startLine(&plan.Starts[i]))
				}
			}
			if err := together(c.st.View()); err != nil {
				t.Fatalf("%s: %v", c.at, err)
			}
			if err := inTurn(before, c.st.View(), &plan); err != nil {
				t.Fatalf("%s: %v", c.at, err)
			}
			var ended state.Reports
			c.st.View().Jobs(func(j *model.Job) bool {
				if j.State.HasResources() && w.chance(50) {
					ended.Reports = append(ended.Reports, state.Report{Kind: state.Ended, Job: j.ID, Attempt: j.Attempt, At: c.now})
				}
				return true
			})
			c.apply(&ended)
		}
	}
	if starts < seeds*10 {
		t.Errorf("only %d starts in %d worlds", starts, seeds)
	}
}

// holdsWhatItAsks compares a start's allocation with the job's request as package ask computes it.
func holdsWhatItAsks(v *state.View, s *model.Start) error {
	sp, part, params := v.Job(s.Job).Spec, v.Partition(s.Partition), &v.Config().Params
	rules := ask.RulesOf(part, params)
	c := ask.Of(sp, &rules)
	least, size := c.Size(), c.SizeOn(len(s.Alloc.Nodes))
	cpus, mem, _ := s.Alloc.Totals()
	tasks := 0
	for i := range s.Alloc.Nodes {
		tasks += int(s.Alloc.Nodes[i].Tasks)
	}
	alone := sp.Exclusive || part.Exclusive()
	exact := !alone && !params.WholeCores && c.MinCPUs == 0 && c.CPUsPerGPU == 0
	switch {
	case len(s.Alloc.Nodes) < least.Nodes || cpus < least.CPUs || tasks < least.Tasks || params.MemConsumed &&
		mem < least.MemMiB:
		return fmt.Errorf("holds %d CPUs, %d tasks and %d MiB; it asks for %+v", cpus, tasks, mem, least)
	case cpus < size.CPUs || tasks != size.Tasks && !alone || exact && cpus != size.CPUs:
		return fmt.Errorf("holds %d CPUs, %d tasks and %d MiB; on as many nodes it asks for %+v", cpus, tasks, mem, size)
	}
	have := s.Alloc.TRES()
	for i := range c.Gres {
		g := &c.Gres[i]
		name := "gres/" + g.Name
		if n := c.UnitsOf(&size, g.Name, ""); !alone && g.Milli == 0 && model.CountTRES(have, name) != n {
			return fmt.Errorf("holds %d %s; it asks for %d", model.CountTRES(have, name), name, n)
		}
	}
	return nil
}

// keeps compares one start with its job's specification, with counts of its own.
func keeps(v *state.View, s *model.Start) error {
	j, part, params := v.Job(s.Job), v.Partition(s.Partition), v.Config().Params
	sp := j.Spec
	if err := holdsWhatItAsks(v, s); err != nil {
		return err
	}
	tasks, gpus := 0, map[string]int{}
	seen := map[string]bool{}
	cpt := max(1, int(sp.CPUsPerTask))
	for i := range s.Alloc.Nodes {
		na := &s.Alloc.Nodes[i]
		def := v.Node(na.Node).Def
		tasks += int(na.Tasks)
		if seen[na.Node] || !slices.Contains(part.Nodes, na.Node) || slices.Contains(sp.ExcNodes, na.Node) {
			return fmt.Errorf("node %s twice, excluded or not of the partition", na.Node)
		}
		seen[na.Node] = true
		for f := range strings.SplitSeq(sp.Features, "&") {
			if f != "" && !slices.Contains(def.Features, f) {
				return fmt.Errorf("node %s has no %s", na.Node, f)
			}
		}
		need := int(na.Tasks) * cpt
		if sp.Overcommit {
			need = 1
		}
		need = max(need, int(sp.MinCPUs))
		if na.CPUs.Count() < need || na.Tasks < 1 || sp.TasksPerNode > 0 && na.Tasks > sp.TasksPerNode ||
			sp.TmpMiB > def.TmpMiB {
			return fmt.Errorf("node %s: %d CPUs for %d tasks", na.Node, na.CPUs.Count(), na.Tasks)
		}
		if params.WholeCores && def.ThreadsPerCore == 2 {
			for c := 0; c < int(def.CPUs); c += 2 {
				if na.CPUs.Has(c) != na.CPUs.Has(c+1) {
					return fmt.Errorf("node %s: half a core", na.Node)
				}
			}
		}
		switch {
		case sp.MemPerNode > 0 && na.MemMiB != sp.MemPerNode, sp.MemPerNode == 0 && sp.MemPerCPU > 0 &&
			na.MemMiB < sp.MemPerCPU*int64(na.Tasks)*int64(cpt) && !sp.Overcommit && params.MaxMemPerCPU == 0,
			params.MaxMemPerNode > 0 && na.MemMiB > params.MaxMemPerNode && !(sp.Exclusive || part.Exclusive()):
			return fmt.Errorf("node %s: %d MiB", na.Node, na.MemMiB)
		}
		if err := bySocket(&na.CPUs, def, na, sp); err != nil {
			return err
		}
		if want := sp.Extra().GPUIndex; !want.Empty() {
			var has model.Bits
			for _, g := range na.Gres {
				has = has.Or(g.Index)
			}
			if !has.Contains(want) || !has.Minus(want).Empty() && !sp.Exclusive && !part.Exclusive() {
				return fmt.Errorf("node %s: GPUs %s instead of %s", na.Node, has, want)
			}
		}
		here := map[string]int{}
		for _, g := range na.Gres {
			if g.Index.Empty() {
				return fmt.Errorf("node %s: nothing of %s", na.Node, g.Name)
			}
			for _, d := range def.Gres {
				mine := model.UpTo(int(d.First + d.Count)).Minus(model.UpTo(int(d.First)))
				if d.Type == g.Type && !mine.Contains(g.Index) {
					return fmt.Errorf("node %s: %s %s is not of type %s", na.Node, g.Name, g.Index, g.Type)
				}
			}
			here[g.Type] += g.Index.Count()
			here[""] += g.Index.Count()
			gpus[g.Type] += g.Index.Count()
			gpus[""] += g.Index.Count()
		}
		want, job := map[string]int{}, false
		for _, g := range sp.Gres {
			n := int(g.Count)
			switch g.Per {
			case model.PerJob:
				job = true
				continue
			case model.PerTask:
				n *= int(na.Tasks)
			}
			want[strings.ToLower(g.Type)] += n
			if g.Type != "" {
				want[""] += n
			}
		}
		for typ, n := range want {
			if here[typ] < n || !job && typ == "" && here[""] != n && !sp.Exclusive && !part.Exclusive() {
				return fmt.Errorf("node %s: %v of %v wanted", na.Node, here, want)
			}
		}
	}
	for _, g := range sp.Gres {
		if g.Per == model.PerJob && gpus[strings.ToLower(g.Type)] < int(g.Count) {
			return fmt.Errorf("%v in all, %d wanted", gpus, g.Count)
		}
	}
	for _, n := range sp.ReqNodes {
		if !seen[n] {
			return fmt.Errorf("without node %s", n)
		}
	}
	n := len(s.Alloc.Nodes)
	least := max(1, int(sp.MinNodes), len(sp.ReqNodes))
	if sp.Tasks > 0 {
		least = max(1, min(int(sp.Tasks), int(sp.MinNodes)), len(sp.ReqNodes))
	}
	switch {
	case n < least, n < int(part.MinNodes), part.MaxNodes > 0 && n > int(part.MaxNodes):
		return fmt.Errorf("%d nodes", n)
	case sp.MaxNodes > 0 && n > max(int(sp.MaxNodes), len(sp.ReqNodes)):
		return fmt.Errorf("%d nodes", n)
	case sp.Tasks > 0 && tasks != max(int(sp.Tasks), n), sp.Tasks == 0 && tasks != n*max(1, int(sp.TasksPerNode)):
		return fmt.Errorf("%d tasks on %d nodes", tasks, n)
	}
	return nil
}

// bySocket checks that a job has GPUs and CPUs of as many sockets as it asked for, if the configuration gives GPUs'
// sockets.
func bySocket(cpus *model.Bits, def *model.NodeDef, na *model.NodeAlloc, sp *model.Spec) error {
	m := sp.Extra()
	if len(m.GPUsPerSocket) == 0 || def.Sockets < 2 {
		return nil
	}
	full := 0
	for s := range int(def.Sockets) {
		here, gpus := span(s*int(def.CPUs)/2, int(def.CPUs)/2), int32(0)
		for _, g := range na.Gres {
			for _, d := range def.Gres {
				g.Index.Each(func(u int) bool {
					if at := u - int(d.First); at >= 0 && at < int(d.Count) && d.Near[at].Overlaps(here) {
						gpus++
					}
					return true
				})
			}
		}
		if gpus >= m.GPUsPerSocket[0].Count && (cpus.Overlaps(here) || m.Share) {
			full++
		}
	}
	if full < int(m.Sockets) {
		return fmt.Errorf("node %s: what was asked for of %d sockets is had of %d: %s", na.Node, m.Sockets, full, na.CPUs)
	}
	return nil
}

// together checks the rules between jobs on one node.
func together(v *state.View) (err error) {
	v.Nodes(func(n *model.Node) bool {
		cpus := map[string]int{}
		uids, private := map[uint32]bool{}, false
		for _, id := range n.Jobs {
			j := v.Job(id)
			part := v.Partition(j.Run.Partition)
			uids[j.Spec.UID] = true
			private = private || part.ExclusiveUser
			if (j.Spec.Exclusive || part.Exclusive()) && len(n.Jobs) > 1 {
				err = fmt.Errorf("node %s: job %d is not alone: %v", n.Def.Name, id, n.Jobs)
			}
			for _, na := range j.Run.Alloc.Nodes {
				if na.Node == n.Def.Name && !(j.Spec.Exclusive || part.Exclusive()) {
					cpus[part.Name] += na.CPUs.Count()
				}
			}
		}
		for name, c := range cpus {
			if most := v.Partition(name).MaxCPUsPerNode; most > 0 && c > int(most) {
				err = fmt.Errorf("node %s: %d CPUs of partition %s", n.Def.Name, c, name)
			}
		}
		if bad := socketsHeld(v, n); bad != nil {
			err = bad
		}
		if private && len(uids) > 1 {
			err = fmt.Errorf("node %s: different users' jobs %v", n.Def.Name, n.Jobs)
		}
		return err == nil
	})
	return err
}

// socketsHeld checks the CPUs that jobs have of a node's sockets.
func socketsHeld(v *state.View, n *model.Node) error {
	params := &v.Config().Params
	for s := range max(1, int(n.Def.Sockets)) {
		mine := n.Def.JobCPUs().And(socketCPUs(n.Def, s))
		held := map[string]int{}
		for _, id := range n.Jobs {
			j := v.Job(id)
			part := v.Partition(j.Run.Partition)
			if j.Spec.Exclusive || part.Exclusive() {
				continue
			}
			here := j.Run.Alloc.Nodes[j.Run.Alloc.Place(n.Def.Name)].CPUs.And(mine)
			held[part.Name] += here.Count()
			if here.Empty() || !params.SocketsOf(part) {
				continue
			}
			most := mine.Count()
			if part.MaxCPUsPerSocket > 0 {
				most = min(most, int(part.MaxCPUsPerSocket)/int(n.Def.ThreadsPerCore)*int(n.Def.ThreadsPerCore))
			}
			if j.Run.Share <= 1 && here.Count() != most {
				return fmt.Errorf("node %s: job %d has %s of socket %d", n.Def.Name, id, here, s)
			}
			for _, other := range n.Jobs {
				o := v.Job(other)
				at := o.Run.Alloc.Nodes[o.Run.Alloc.Place(n.Def.Name)].CPUs
				if o.Run.Partition == part.Name && other != id && o.Run.Share <= 1 && at.Overlaps(mine) {
					return fmt.Errorf("node %s: jobs %d and %d have CPUs of socket %d", n.Def.Name, id, other, s)
				}
			}
		}
		for name, cpus := range held {
			if most := v.Partition(name).MaxCPUsPerSocket; most > 0 && cpus > int(most) {
				return fmt.Errorf("node %s: partition %s has %d CPUs of socket %d", n.Def.Name, name, cpus, s)
			}
		}
	}
	return nil
}

// inTurn checks that no job started behind a job of the same partition that waits for room.
func inTurn(before, after *state.View, plan *model.Plan) error {
	for _, part := range before.Config().Partitions {
		started := map[model.JobID]bool{}
		for _, s := range plan.Starts {
			if s.Partition == part.Name {
				started[s.Job] = true
			}
		}
		var waiting *model.Job
		var err error
		before.Ready(part.Name, func(j *model.Job) bool {
			if started[j.ID] && waiting != nil {
				err = fmt.Errorf("job %d starts in %s before %d", j.ID, part.Name, waiting.ID)
			}
			now := after.Job(j.ID)
			if now.State != model.Pending || now.Reason != model.ReasonResources && now.Reason != model.ReasonPriority {
				return err == nil
			}
			if why, _ := Possible(before, j.Spec, part); why == CanRun {
				waiting = j
			}
			return err == nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// TestPossibleMeansPossible: a job that Possible accepts starts on an empty cluster, and a job that it refuses doesn't.
func TestPossibleMeansPossible(t *testing.T) {
	can := map[Impossible]int{}
	for seed := range 60 {
		w := &world{rng: rand.New(rand.NewPCG(uint64(seed), 17))}
		c := w.cluster(t)
		for k := range 12 {
			sp := w.spec(c)
			sp.Partitions, sp.Tasklist = sp.Partitions[:1], nil
			v := c.st.View()
			why, alloc := Possible(v, sp, v.Partition(sp.Partitions[0]))
			can[why]++
			c.at = fmt.Sprintf("seed %d, job %d: %s %+v", seed, k, why, sp)
			at, estimate := Estimate(v, c.now, sp, v.Partition(sp.Partitions[0]))
			c.apply(&state.Submit{Spec: sp, Priority: 1})
			plan := c.cycle(Policy{})
			switch {
			case (why == CanRun) != (len(plan.Starts) == 1):
				t.Fatalf("%s: starts %+v", c.at, plan)
			case why == CanRun && (!reflect.DeepEqual(alloc, plan.Starts[0].Alloc) || !reflect.DeepEqual(alloc, estimate) ||
				at != c.now):
				t.Fatalf("%s: possible on %s, estimated on %s, starts %s", c.at, allocLine(alloc), allocLine(estimate),
					startLine(&plan.Starts[0]))
			}
			c.clear()
		}
	}
	for why := CanRun; why <= OverMemLimit; why++ {
		if can[why] == 0 && why != NodesNotInPartition {
			t.Errorf("no random job was refused as %s", why)
		}
	}
}

// TestEstimateComesTrue: if no other job is pending and every job runs to its limit, a job starts at the moment that
// Estimate gave.
func TestEstimateComesTrue(t *testing.T) {
	for seed := range 30 {
		w := &world{rng: rand.New(rand.NewPCG(uint64(seed), 29))}
		c := w.cluster(t)
		for range 30 {
			sp := w.spec(c)
			sp.Tasklist, sp.LimitS = nil, int64(10+w.n(100))
			c.apply(&state.Submit{Spec: sp, Priority: 1})
		}
		c.cycle(Policy{})
		var stop state.Stop // the others leave the queue
		stop.Event = model.EvCancel
		c.st.View().Jobs(func(j *model.Job) bool {
			if j.State == model.Pending {
				stop.Targets = append(stop.Targets, model.JobRef{Job: j.ID, Task: model.NoTask})
			}
			return true
		})
		c.apply(&stop)
		sp := w.spec(c)
		sp.Tasklist, sp.Partitions = nil, sp.Partitions[:1]
		v := c.st.View()
		at, alloc := Estimate(v, c.now, sp, v.Partition(sp.Partitions[0]))
		if alloc == nil {
			continue
		}
		id := c.apply(&state.Submit{Spec: sp, Priority: 1}).Job
		for {
			c.at = fmt.Sprintf("seed %d at +%d, wanted +%d: %+v", seed, (c.now-epoch)/1000, (at-epoch)/1000, sp)
			c.cycle(Policy{})
			if c.st.View().Job(id).State != model.Pending {
				break
			}
			next := model.Time(0)
			var ended state.Reports
			c.st.View().Jobs(func(j *model.Job) bool {
				if j.State.HasResources() && (next == 0 || j.Run.Deadline() < next) {
					next = j.Run.Deadline()
				}
				return true
			})
			if next == 0 || c.now > at {
				t.Fatalf("%s: still pending", c.at)
			}
			c.now = next
			c.st.View().Jobs(func(j *model.Job) bool {
				if j.State.HasResources() && j.Run.Deadline() == next {
					ended.Reports = append(ended.Reports, state.Report{Kind: state.Ended, Job: j.ID, Attempt: j.Attempt, At: c.now})
				}
				return true
			})
			c.apply(&ended)
		}
		if c.now != at {
			t.Errorf("%s: started at +%d", c.at, (c.now-epoch)/1000)
		}
	}
}
