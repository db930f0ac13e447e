package seff

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

const (
	// maxGroups bounds the groups; jobs of further names count together.
	maxGroups = 256
	// OtherNames is the name of the group of those.
	OtherNames = "(other names)"
	// enoughJobs is how many jobs must tell a number before a group gives advice by it.
	enoughJobs = 3
)

// Groups sums up ended jobs by name and partition. It keeps no records: its size is bounded.
type Groups struct {
	of   map[[2]string]*Group
	Jobs int64
}

// Group is what the jobs of one name in one partition asked for and used.
type Group struct {
	Name, Partition string

	Jobs, Completed, Failed, Cancelled, Timeout, OutOfMemory int64

	// What the job that was submitted last was given.
	LimitS int64 // seconds; 0: it had no limit
	Nodes  int64
	CPUs   int64
	MemMiB int64 // on each node; 0: there was no limit
	GPUs   int64
	grows  bool // with --elastic, or resized

	Elapsed Spread // seconds, of jobs that completed or reached their limit
	MemKB   Spread // KiB, the most that a node of a job that completed used
	Busy    Spread // thousandths of a core, the mean of a job
	GPUUtil Spread // percent, the mean of a job's GPUs
	GPUMem  Spread // MiB, of a job's fullest GPU
	GPUHas  int64  // MiB, memory of the GPU that last told it

	CoreS, IdleCoreS int64 // seconds that cores were held, and of them those that no process computed
	GPUS             int64 // seconds that GPUs were held
	ReadGPUS         int64 // of them those of jobs whose GPUs told their utilization
	IdleGPUS         int64 // of ReadGPUS those that no kernel ran

	cpuRunS    int64 // how long the jobs of Busy ran, seconds
	gpuRunS    int64
	busyGPUs   int64 // the most GPUs of a job that were ever busy
	lastSubmit model.Time
}

// Add counts an ended job. Jobs that never ran are left out.
func (g *Groups) Add(r *model.Record) {
	if r.Start == 0 || r.End == 0 || r.Step != nil {
		return
	}
	if g.of == nil {
		g.of = map[[2]string]*Group{}
	}
	key := [2]string{r.Name, r.Partition}
	one := g.of[key]
	if one == nil {
		if len(g.of) >= maxGroups {
			key = [2]string{OtherNames, ""}
		}
		if one = g.of[key]; one == nil {
			one = &Group{Name: key[0], Partition: key[1]}
			g.of[key] = one
		}
	}
	g.Jobs++
	one.add(r)
}

// List gives the groups, those first whose GPUs and then whose cores were idle the longest.
func (g *Groups) List() []*Group {
	list := make([]*Group, 0, len(g.of))
	for _, one := range g.of {
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b *Group) int {
		return cmp.Or(cmp.Compare(b.IdleGPUS, a.IdleGPUS), cmp.Compare(b.IdleCoreS, a.IdleCoreS), cmp.Compare(b.Jobs, a.Jobs),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Partition, b.Partition))
	})
	return list
}

func (g *Group) add(r *model.Record) {
	j := Of(r, nil, r.End)
	g.Jobs++
	switch r.State {
	case model.Completed:
		g.Completed++
	case model.Timeout:
		g.Timeout++
	case model.OutOfMemory:
		g.OutOfMemory++
	case model.Cancelled:
		g.Cancelled++
	default:
		g.Failed++
	}
	nodes, gpus := int64(max(1, r.NumNodes)), j.meanGPUs()
	if r.Submit >= g.lastSubmit {
		g.lastSubmit = r.Submit
		g.LimitS, g.Nodes, g.CPUs, g.MemMiB, g.GPUs = r.LimitS, nodes, j.meanCores(), r.AllocMemMiB/nodes, gpus
		if r.LimitS >= model.Unlimited || r.LimitS < 0 {
			g.LimitS = 0
		}
		g.grows = r.Size > 0 || strings.Contains(r.SubmitLine, "--elastic")
	}
	if r.State == model.Completed || r.State == model.Timeout {
		g.Elapsed.Add(j.elapsed)
	}
	if kib := j.fullestNode(); kib > 0 && r.State == model.Completed {
		g.MemKB.Add(kib)
	}
	user, sys := j.use.CPUms()
	held := j.coreS()
	g.CoreS += held
	g.IdleCoreS += max(0, held-(user+sys)/1000)
	if j.elapsed > 0 {
		g.Busy.Add((user + sys) / j.elapsed)
		g.cpuRunS += j.elapsed
	}
	gpuS := j.gpuS()
	if gpus == 0 && gpuS == 0 {
		return
	}
	g.GPUS += gpuS
	sum := GPUs(j.use)
	if sum.MemMiB > 0 {
		g.GPUMem.Add(sum.MemMaxMiB)
		g.GPUHas = sum.MemMiB
	}
	if sum.Told > 0 {
		g.GPUUtil.Add(sum.UtilAve)
		g.gpuRunS += j.elapsed
		g.ReadGPUS += gpuS
		g.IdleGPUS += gpuS * (100 - min(100, sum.UtilAve)) / 100
		g.busyGPUs = max(g.busyGPUs, sum.Told-j.idleGPUs())
	}
}

// fullestNode gives the most memory that the job used on one of its nodes, KiB.
func (j *Job) fullestNode() int64 {
	most := int64(0)
	for i := range j.use.Nodes {
		most = max(most, j.use.Nodes[i].PeakKB)
	}
	return most
}

// Advice says what to ask for next time, a sentence for each resource. Few jobs say nothing.
func (g *Group) Advice() (tips []string) {
	if g.Name == OtherNames && g.Partition == "" {
		return nil
	}
	for _, tip := range []string{g.adviseTime(), g.adviseMemory(), g.adviseCPUs(), g.adviseGPUs()} {
		if tip != "" {
			tips = append(tips, tip)
		}
	}
	return tips
}

func (g *Group) adviseTime() string {
	within, most := g.Elapsed.Within(90), g.Elapsed.Max()
	now := "you set no limit"
	limit := g.LimitS
	if limit > 0 {
		now = "you ask for " + walltime.Elapsed(limit)
	} else {
		limit = 365 * 24 * 3600
	}
	took := fmt.Sprintf("(%s; 9 of 10 end within %s, ", now, walltime.Elapsed(within))
	switch ask := roundTime(within * 6 / 5); {
	case g.Timeout > 0 && g.Timeout*10 >= g.Jobs && g.LimitS > 0:
		return fmt.Sprintf("--time=%s: %d of %d jobs reached their limit, the last asked for %s",
			walltime.Elapsed(roundTime(max(most, limit)*3/2)), g.Timeout, g.Jobs, walltime.Elapsed(limit))
	case g.Elapsed.Count() < enoughJobs:
		return ""
	case 2*roundTime(most*6/5) <= limit:
		return fmt.Sprintf("--time=%s %sthe longest took %s)", walltime.Elapsed(roundTime(most*6/5)), took,
			walltime.Elapsed(most))
	case 4*ask <= limit:
		return fmt.Sprintf("--time=%s where it can be told before that a job is short %sthe longest took %s)",
			walltime.Elapsed(ask), took, walltime.Elapsed(most))
	}
	return ""
}

func (g *Group) adviseMemory() string {
	most := g.MemKB.Max() >> 10
	switch {
	case g.MemMiB == 0:
		return ""
	case g.OutOfMemory > 0:
		return fmt.Sprintf("--mem=%s: %d of %d jobs ran out of memory, the last asked for %s",
			walltime.FormatMem(roundMem(max(most, g.MemMiB)*5/4)), g.OutOfMemory, g.Jobs, walltime.FormatRounded(g.MemMiB))
	case g.MemKB.Count() < enoughJobs || 2*roundMem(most*6/5) > g.MemMiB:
		return ""
	}
	return fmt.Sprintf("--mem=%s (you ask for %s; no job used more than %s on a node)",
		walltime.FormatMem(roundMem(most*6/5)), walltime.FormatRounded(g.MemMiB), size(g.MemKB.Max()))
}

func (g *Group) adviseCPUs() string {
	most := g.Busy.Within(90)
	ask := max(1, g.Nodes, (most*6/5+999)/1000) // each node has one at least
	switch {
	case g.Busy.Count() < enoughJobs || g.cpuRunS < adviseAfterS || 2*ask > g.CPUs:
		return ""
	case g.grows:
		return fmt.Sprintf("a smaller --elastic would do: 9 of 10 jobs keep %s of %d cores busy on average", Cores(most),
			g.CPUs)
	}
	return fmt.Sprintf("%d of %d cores would do (-c, -n): 9 of 10 jobs keep %s busy on average", ask, g.CPUs, Cores(most))
}

func (g *Group) adviseGPUs() string {
	least := max(g.busyGPUs, g.Nodes) // each node has one at least
	switch util := g.GPUUtil.Within(90); {
	case g.GPUUtil.Count() < enoughJobs || g.gpuRunS < adviseAfterS:
		return ""
	case g.busyGPUs == 0:
		return "no GPU was ever busy: does the program find them?"
	case least < g.GPUs && g.grows:
		return fmt.Sprintf("a smaller --elastic would do: no job had more than %d of its %d GPUs busy", g.busyGPUs, g.GPUs)
	case least < g.GPUs:
		return fmt.Sprintf("--gpus=%d: no job had more than %d of its %d GPUs busy", least, g.busyGPUs, g.GPUs)
	case util < model.IdleGPUPct:
		return fmt.Sprintf("9 of 10 jobs keep their GPUs busy for at most %d%% of the time: look at what "+
			"feeds them, or share one (--gres=shard)", util)
	}
	return ""
}

// Cores writes thousandths of a core for people: 0.9.
func Cores(thousandths int64) string {
	return strconv.FormatFloat(float64(thousandths)/1000, 'f', 1, 64)
}

// roundTime rounds a time up to one that people ask for, seconds.
func roundTime(s int64) int64 {
	step := int64(60)
	switch {
	case s > 24*3600:
		step = 6 * 3600
	case s > 4*3600:
		step = 3600
	case s > 3600:
		step = 1800
	case s > 600:
		step = 300
	}
	return max(step, (s+step-1)/step*step)
}
