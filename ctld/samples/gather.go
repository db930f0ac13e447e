package samples

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// Beat is what a node said last.
type Beat struct {
	LoadMilli, FreeMemMiB int64
	Readings              []proto.UnitReading
	Uses                  []proto.JobUse
}

// Limits of one minute. Of more jobs, those with the most GPUs and CPUs are kept.
const (
	maxJobs = 32 << 10
	maxAll  = proto.MaxSamples * proto.MaxSampleParts
)

// key names a series.
type key struct {
	of   proto.HistoryOf
	name string
}

// sum gathers the values of a series over a minute.
type sum struct {
	sum   []int64
	count []int64
}

// Gatherer sums up looks. Its methods are called by one goroutine.
type Gatherer struct {
	sums map[key]*sum
}

// set adds the values of one look.
func (g *Gatherer) set(of proto.HistoryOf, name string, values ...int64) {
	if g.sums == nil {
		g.sums = map[key]*sum{}
	}
	k := key{of, name}
	s := g.sums[k]
	if s == nil {
		if len(g.sums) >= maxAll {
			return
		}
		n := len(values)
		both := make([]int64, 2*n)
		s = &sum{both[:n:n], both[n:]}
		g.sums[k] = s
	}
	fields := of.Fields()
	for i, v := range values {
		switch {
		case v < 0:
		case fields[i].Last:
			s.sum[i], s.count[i] = v, 1
		default:
			s.sum[i], s.count[i] = s.sum[i]+v, s.count[i]+1
		}
	}
}

// mean is a mean that is not known yet.
type mean struct{ sum, n int64 }

func (m *mean) add(v int64) {
	if v >= 0 {
		m.sum, m.n = m.sum+v, m.n+1
	}
}

func (m *mean) of() int64 {
	if m.n == 0 {
		return -1
	}
	return (m.sum + m.n/2) / m.n
}

// total is a sum of what is known; -1 if nothing is.
type total struct {
	sum   int64
	known bool
}

func (t *total) add(v int64) {
	if v >= 0 {
		t.sum, t.known = t.sum+v, true
	}
}

func (t *total) of() int64 {
	if !t.known {
		return -1
	}
	return t.sum
}

// load is what jobs hold of something.
type load struct {
	running, pending, cpus, micros, allCPUs, allGPUs int64 // micros: millionths of GPUs
	util                                             mean
}

// jobUse is what a job uses on all of its nodes.
type jobUse struct {
	cpu, mem, gpuMem, power total
	util                    mean
}

// Look looks at the cluster once. beat gives what a node said last, nil for one that is not connected.
func (g *Gatherer) Look(v *state.View, beat func(node string) *Beat) {
	uses := map[model.JobID]*jobUse{}
	v.Nodes(func(n *model.Node) bool {
		if b := beat(n.Def.Name); b != nil {
			g.node(v, n, b, uses)
		}
		return true
	})
	all, parts, accounts, quality := &load{}, map[string]*load{}, map[string]*load{}, map[string]*load{}
	of := func(m map[string]*load, name string) *load {
		l := m[name]
		if l == nil {
			l = &load{}
			m[name] = l
		}
		return l
	}
	v.Nodes(func(n *model.Node) bool {
		all.allCPUs += int64(n.Def.JobCPUCount())
		all.allGPUs += gpusOf(n)
		return true
	})
	for _, p := range v.Config().Partitions {
		l := of(parts, p.Name)
		for _, name := range p.Nodes {
			if n := v.Node(name); n != nil {
				l.allCPUs, l.allGPUs = l.allCPUs+int64(n.Def.JobCPUCount()), l.allGPUs+gpusOf(n)
			}
		}
	}
	kept := 0
	v.Jobs(func(j *model.Job) bool {
		list := [...]*load{all, of(parts, cmp.Or(j.Partition(), first(j.Spec.Partitions))), of(accounts, j.Spec.Account),
			of(quality, j.Spec.QOS)}
		switch {
		case j.State == model.Pending:
			n := int64(1)
			if j.IsArray() {
				n = int64(j.Tasks.Count())
			}
			for _, l := range list {
				l.pending += n
			}
		case j.Run != nil && j.Run.Alloc != nil && j.State.HasResources():
			cpus, micros := heldBy(j)
			u := uses[j.ID]
			if u == nil {
				u = &jobUse{}
			}
			for _, l := range list {
				l.running, l.cpus, l.micros = l.running+1, l.cpus+cpus, l.micros+micros
				if x := u.util.of(); x >= 0 {
					l.util.sum, l.util.n = l.util.sum+u.util.sum, l.util.n+u.util.n
				}
			}
			if kept++; kept <= maxJobs {
				g.set(proto.HistoryJob, strconv.FormatUint(uint64(j.ID), 10), u.cpu.of(), u.mem.of(), u.util.of(),
					u.gpuMem.of(), u.power.of(), int64(j.Spec.UID))
			}
		}
		return true
	})
	g.load(proto.HistoryCluster, "", all)
	for _, x := range []struct {
		of   proto.HistoryOf
		list map[string]*load
	}{{proto.HistoryPartition, parts}, {proto.HistoryAccount, accounts}, {proto.HistoryQOS, quality}} {
		for name, l := range x.list {
			if x.of != proto.HistoryPartition {
				l.allCPUs, l.allGPUs = -1, -1
			}
			if name != "" {
				g.load(x.of, name, l)
			}
		}
	}
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

func (g *Gatherer) load(of proto.HistoryOf, name string, l *load) {
	gpus := (l.micros + model.GPU/2) / model.GPU
	g.set(of, name, l.running, l.pending, l.cpus, gpus, l.util.of(), l.allCPUs, l.allGPUs)
}

// heldBy counts a job's CPUs, and its GPUs in millionths.
func heldBy(j *model.Job) (cpus, micros int64) {
	for i := range j.Run.Alloc.Nodes {
		cpus += int64(j.Run.Alloc.Nodes[i].CPUs.Count())
	}
	return cpus, j.Run.Alloc.GPUMicros()
}

func gpusOf(n *model.Node) (all int64) {
	for _, r := range n.Def.Gres {
		if r.Name == model.GPUName {
			all += int64(r.Count)
		}
	}
	return all
}

// node adds a node's sample, those of its GPUs, and what its jobs use there.
func (g *Gatherer) node(v *state.View, n *model.Node, b *Beat, uses map[model.JobID]*jobUse) {
	name := n.Def.Name
	of := func(id model.JobID) *jobUse {
		u := uses[id]
		if u == nil {
			u = &jobUse{}
			uses[id] = u
		}
		return u
	}
	for i := range b.Uses {
		x := &b.Uses[i]
		if j := v.Job(x.Job); j != nil && j.Attempt == x.Attempt && slices.Contains(n.Jobs, x.Job) {
			of(x.Job).cpu.add(x.CPUCenti)
			of(x.Job).mem.add(x.MemMiB)
		}
	}
	var jobs []holding
	for _, id := range n.Jobs {
		if j := v.Job(id); j != nil && j.Run != nil && j.Run.Alloc != nil {
			for i := range j.Run.Alloc.Nodes {
				if a := &j.Run.Alloc.Nodes[i]; a.Node == name {
					jobs = append(jobs, holding{j, a})
				}
			}
		}
	}
	var util mean
	var power total
	for i := range b.Readings {
		r := &b.Readings[i]
		if r.Lost {
			continue
		}
		label := name + "/" + strconv.Itoa(int(r.Index))
		if r.Name != model.GPUName {
			label = name + "/" + r.Name + ":" + strconv.Itoa(int(r.Index))
		}
		holder, owner, watts := int64(-1), int64(-1), r.PowerMilliW
		if watts >= 0 {
			watts /= 100
		}
		for _, h := range jobs {
			if !h.has(r) {
				continue
			}
			if holder < 0 { // of several that share it, the first
				holder, owner = int64(h.job.ID), int64(h.job.Spec.UID)
			}
			u := of(h.job.ID)
			u.util.add(int64(r.UtilPct))
			u.gpuMem.add(r.MemUsedMiB)
			if r.Name == model.GPUName { // an instance shows the whole GPU's power
				u.power.add(watts)
			}
			util.add(int64(r.UtilPct))
		}
		if r.Name == model.GPUName {
			power.add(watts)
		}
		g.set(proto.HistoryGPU, label, int64(r.UtilPct), r.MemUsedMiB, watts, int64(r.TempC), holder, owner)
	}
	used := int64(-1)
	if b.FreeMemMiB >= 0 && n.Def.MemMiB > 0 {
		used = max(0, n.Def.MemMiB-b.FreeMemMiB)
	}
	busy := b.LoadMilli
	if busy >= 0 {
		busy /= 10
	}
	g.set(proto.HistoryNode, name, int64(n.UsedCPUs.Count()), busy, used, int64(n.HeldGPUs().Count()),
		util.of(), power.of())
}

// holding is what a job has of a node.
type holding struct {
	job *model.Job
	of  *model.NodeAlloc
}

// has reports whether the job has the unit, or a share of it.
func (h *holding) has(r *proto.UnitReading) bool {
	for i := range h.of.Gres {
		g := &h.of.Gres[i]
		if g.Share != nil && r.Name == model.GPUName && g.Share.GPU == r.Index ||
			g.Share == nil && g.Name == r.Name && g.Index.Has(int(r.Index)) {
			return true
		}
	}
	return false
}

// Take gives the means of the looks since the last time, in parts, and begins anew.
func (g *Gatherer) Take(at model.Time) (parts []*proto.Samples) {
	list := make([]proto.Sample, 0, len(g.sums))
	for k, s := range g.sums {
		values := make([]int64, len(s.sum))
		for i := range values {
			values[i] = -1
			if s.count[i] > 0 {
				values[i] = (s.sum[i] + s.count[i]/2) / s.count[i]
			}
		}
		list = append(list, proto.Sample{Of: k.of, Name: k.name, Values: values})
	}
	g.sums = nil
	slices.SortFunc(list, func(a, b proto.Sample) int {
		return cmp.Or(cmp.Compare(a.Of, b.Of), strings.Compare(a.Name, b.Name))
	})
	for part := range slices.Chunk(list, proto.MaxSamples) {
		parts = append(parts, &proto.Samples{At: at, Part: int32(len(parts)), List: part})
	}
	return parts
}
