package seff

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

const (
	// adviseAfterS is how long a job must have run before its numbers say what the next one needs, seconds.
	adviseAfterS = 60
	// wasteful is the percentage below which gseff advises to ask for less.
	wasteful = 50
	// leastMemMiB is a node's memory below which no job is advised to go: a script that starts Python needs that.
	leastMemMiB = 256
	// cacheWorthSaying is the memory from which it is worth a line that most of it was file cache, KiB.
	cacheWorthSaying = 256 << 10
)

// ExitShown is what seff shows: the exit code, or the signal.
func ExitShown(r *model.Record) int32 {
	if r.Exit.Code != 0 {
		return r.Exit.Code
	}
	return r.Exit.Signal
}

// Job is a job that has started.
type Job struct {
	*model.Record
	use     *model.Usage
	elapsed int64 // seconds, with its earlier sizes
}

// Of gives a job as its record tells, now where it runs. use is what was measured of one that runs.
func Of(r *model.Record, use *model.Usage, now model.Time) *Job {
	if r.End != 0 {
		now = r.End
	}
	j := &Job{Record: r, elapsed: r.HeldS(now), use: use}
	if r.Earlier != nil {
		j.elapsed += r.Earlier.Secs
	}
	if r.End == 0 {
		return j
	}
	if j.use = r.Exit.Use; j.use == nil {
		j.use = &model.Usage{Nodes: []model.NodeUsage{{UserMS: r.Exit.UserMS, SysMS: r.Exit.SysMS, PeakKB: r.Exit.MaxRSSKB}}}
	}
	return j
}

func (j *Job) cpus() int64 { return max(1, int64(j.AllocCPUs)) }

// held gives the seconds for which the job held units of a resource, of which it has some number now: what its earlier
// sizes had counts too.
func (j *Job) held(tres string, units int64) int64 {
	if j.Earlier == nil {
		return units * j.elapsed
	}
	sum := units * (j.elapsed - j.Earlier.Secs)
	for _, c := range j.Earlier.Used {
		if c.TRES == tres {
			sum += c.Count / 1000
		}
	}
	return sum
}

// coreS and gpuS are the seconds for which it held cores and GPUs, meanCores and meanGPUs how many it had on average.
func (j *Job) coreS() int64 { return j.held("cpu", j.cpus()) }

func (j *Job) gpuS() int64 { return j.held("gres/"+model.GPUName, j.gpus()) }

func (j *Job) meanCores() int64 { return max(1, mean(j.coreS(), j.elapsed, j.cpus())) }

func (j *Job) meanGPUs() int64 { return mean(j.gpuS(), j.elapsed, j.gpus()) }

// mean divides, rounded; where no time has passed it is what there is.
func mean(sum, seconds, now int64) int64 {
	if seconds <= 0 {
		return now
	}
	return (sum + seconds/2) / seconds
}

func percentOf(part, whole int64) float64 {
	if whole <= 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}

// memory gives what all nodes used at most, KiB, and what the job held there.
func (j *Job) memory() (usedKB, heldKB int64) {
	for i := range j.use.Nodes {
		usedKB += j.use.Nodes[i].PeakKB
	}
	return usedKB, j.AllocMemMiB << 10
}

// WriteCores writes how many cores a job has, in seff's words.
func WriteCores(out io.Writer, cores, nodes int64) {
	if cores <= 1 {
		fmt.Fprintf(out, "Cores: 1\n")
		return
	}
	nodes = max(1, nodes)
	fmt.Fprintf(out, "Nodes: %d\nCores per node: %d\n", nodes, cores/nodes)
}

// Write writes seff's lines.
func (j *Job) Write(out io.Writer) {
	cores := j.cpus()
	WriteCores(out, cores, int64(j.NumNodes))
	user, sys := j.use.CPUms()
	walltimeS := j.coreS()
	if j.Size > 0 {
		fmt.Fprintf(out, "Sizes: %d, with %s cores on average; the above is the last one\n", j.Size+1,
			Cores(1000*walltimeS/max(1, j.elapsed)))
	}
	fmt.Fprintf(out, "CPU Utilized: %s\n", walltime.Elapsed((user+sys)/1000))
	fmt.Fprintf(out, "CPU Efficiency: %.2f%% of %s core-walltime\n", percentOf((user+sys)/1000, walltimeS),
		walltime.Elapsed(walltimeS))
	fmt.Fprintf(out, "Job Wall-clock time: %s\n", walltime.Elapsed(j.elapsed))
	used, held := j.memory()
	fmt.Fprintf(out, "Memory Utilized: %s\n", size(used))
	if held > 0 {
		fmt.Fprintf(out, "Memory Efficiency: %.2f%% of %s\n", percentOf(used, held), j.heldText(held))
	} else {
		fmt.Fprintf(out, "Memory Efficiency: 0.00%% of 0.00 MB (the job had no memory limit)\n")
	}
	if rss := j.processes(); rss > 0 && 2*rss < used && used > cacheWorthSaying {
		fmt.Fprintf(out, "Memory of processes: %s at most in samples; the rest was file cache, which the kernel takes back "+
			"when it is needed\n", size(rss))
	}
	j.writeGPUs(out)
}

// heldText names the memory that a job held as seff does.
func (j *Job) heldText(kib int64) string {
	if j.NumNodes > 1 {
		return fmt.Sprintf("%s (%s/node)", size(kib), size(kib/int64(j.NumNodes)))
	}
	return fmt.Sprintf("%s (%s/node)", size(kib), size(kib))
}

// processes gives the most memory that processes had in samples, without file cache, KiB; 0: no sample.
func (j *Job) processes() int64 {
	sum := int64(0)
	for i := range j.use.Nodes {
		sum += j.use.Nodes[i].RSSKB
	}
	return sum
}

// gpus counts the GPUs that the job held.
func (j *Job) gpus() (held int64) {
	for _, g := range j.AllocGres {
		if g.Name == model.GPUName {
			held += g.Count
		}
	}
	return held
}

// idleGPUs counts those that told their utilization and were never busy.
func (j *Job) idleGPUs() (idle int64) {
	for i := range j.use.Nodes {
		for k := range j.use.Nodes[i].GPUs {
			if x := &j.use.Nodes[i].GPUs[k]; x.Samples > 0 && x.UtilCount > 0 && x.UtilMax == 0 {
				idle++
			}
		}
	}
	return idle
}

// writeGPUs has a line for all of the job's GPUs and, for several, one for each.
func (j *Job) writeGPUs(out io.Writer) {
	held, sum := j.gpus(), GPUs(j.use)
	if held == 0 && sum.Count == 0 {
		return
	}
	fmt.Fprintf(out, "GPUs: %d\n", max(held, sum.Count))
	if sum.Count == 0 {
		fmt.Fprintf(out, "GPU Efficiency: unknown; the GPUs were not read while the job ran\n")
		return
	}
	switch {
	case sum.Told > 0:
		fmt.Fprintf(out, "GPU Efficiency: %d%% mean utilization, %d%% at most\n", sum.UtilAve, sum.UtilMax)
	case sum.MIG:
		fmt.Fprintf(out, "GPU Efficiency: unknown; drivers tell the utilization of whole GPUs, not of MIG instances\n")
	default:
		fmt.Fprintf(out, "GPU Efficiency: unknown; the driver did not tell the GPUs' utilization\n")
	}
	if sum.MemMiB > 0 {
		fmt.Fprintf(out, "GPU Memory Utilized: %s of %s on the fullest GPU (%.2f%%)\n", size(sum.MemMaxMiB<<10),
			size(sum.MemMiB<<10), percentOf(sum.MemMaxMiB, sum.MemMiB))
	}
	if sum.EnergyMJ > 0 {
		fmt.Fprintf(out, "GPU Energy: %s\n", energyText(sum.EnergyMJ))
	}
	if sum.Count < 2 {
		return
	}
	for i := range j.use.Nodes {
		n := &j.use.Nodes[i]
		for k := range n.GPUs {
			g := &n.GPUs[k]
			line := fmt.Sprintf("  GPU %d on %s:", g.Index, n.Node)
			if pct, ok := g.UtilAve(); ok {
				line += fmt.Sprintf(" %d%% mean, %d%% at most,", pct, g.UtilMax)
			}
			fmt.Fprintf(out, "%s memory %s\n", line, size(g.MemMaxMiB<<10))
		}
	}
}

// Advice says what to ask for next time, as far as the job's numbers tell. Failed jobs say little.
func (j *Job) Advice() string {
	var tips []string
	used, held := j.memory()
	nodes := int64(max(1, j.NumNodes))
	perNode := func(kib int64) string { return walltime.FormatMem(roundMem((kib/nodes + 1023) >> 10)) }
	user, sys := j.use.CPUms()
	busy := float64(user+sys) / 1000 / float64(max(1, j.elapsed)) // cores
	switch {
	case j.State == model.OutOfMemory:
		tips = append(tips, "the job ran out of memory: ask for more, --mem="+perNode(held*5/4))
	case j.Reason == model.ReasonGPUOutOfMemory:
		tip := "the job ran out of GPU memory: ask for more, --gpu-mem=N"
		had := j.gpuMem()
		if slices.ContainsFunc(j.AllocGres, func(g model.GresCount) bool { return g.Name == model.GPUName }) {
			tip = "the job ran out of the memory of whole GPUs: it needs larger ones (--gpu-mem=N, if the cluster has " +
				"such), more of them, or less on each"
			had = max(had, GPUs(j.use).MemMiB)
		}
		if had > 0 {
			tip = strings.Replace(tip, "N", walltime.FormatMem(model.MoreGPUMem(had)), 1)
		}
		tips = append(tips, tip)
	case j.elapsed < adviseAfterS:
		return "the job ran for less than a minute, too short to tell what it needs."
	case held > 0 && percentOf(used, held) < wasteful && held/nodes > leastMemMiB<<10:
		tips = append(tips, "less memory would do: --mem="+perNode(max(used*6/5, nodes*leastMemMiB<<10)))
	}
	if cores := j.meanCores(); j.elapsed >= adviseAfterS && cores > nodes &&
		percentOf(int64(busy*100), cores*100) < wasteful {
		tips = append(tips, fmt.Sprintf(
			"%s of %d cores were busy on average: ask for fewer (-c, -n), or look why they waited",
			strconv.FormatFloat(busy, 'f', 1, 64), cores))
	}
	// What some of a job's GPUs did, of one node that answered, say, tells nothing of all.
	if g := GPUs(j.use); j.elapsed >= adviseAfterS && g.Told > 0 && g.Told >= j.gpus() {
		idle := j.idleGPUs()
		switch {
		case idle == g.Told:
			tips = append(tips, "no GPU was ever busy: does the program find them?")
		case idle > 0:
			tips = append(tips, fmt.Sprintf("%d of %d GPUs %s never busy: ask for %d", idle, g.Told, was(idle), g.Told-idle))
		case g.UtilAve < model.IdleGPUPct:
			tips = append(tips, fmt.Sprintf("the GPUs were busy for %d%% of the time: look at what feeds them (cores, data), "+
				"or share one (--gres=shard)", g.UtilAve))
		}
	}
	if len(tips) == 0 {
		return ""
	}
	text := strings.Join(tips, "; ")
	if strings.HasSuffix(text, "?") {
		return text
	}
	return text + "."
}

func was(n int64) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

// roundMem rounds an amount in MiB up to a round number.
func roundMem(mib int64) int64 {
	step := int64(10)
	switch {
	case mib >= 10<<10:
		step = 1 << 10
	case mib >= 1<<10:
		step = 256
	case mib >= 200:
		step = 50
	}
	return max(step, (mib+step-1)/step*step)
}

// size writes KiB as seff does: 812.00 KB, 1.25 GB.
func size(kib int64) string {
	value, unit := float64(kib), 0
	for ; value >= 1024 && unit < 4; unit++ {
		value /= 1024
	}
	return strconv.FormatFloat(value, 'f', 2, 64) + " " + "KMGTP"[unit:unit+1] + "B"
}

// energyText writes millijoules for people.
func energyText(mj int64) string {
	if wh := float64(mj) / 3.6e6; wh >= 1 {
		return strconv.FormatFloat(wh, 'f', 2, 64) + " Wh"
	}
	return strconv.FormatFloat(float64(mj)/1000, 'f', 0, 64) + " J"
}

// gpuMem gives the most GPU memory that the job asked for or that was in use on one of its GPUs, MiB.
func (j *Job) gpuMem() int64 {
	var most int64
	if j.Asked != nil {
		most = j.Asked.GPUMemMiB
	}
	if j.use == nil {
		return most
	}
	for i := range j.use.Nodes {
		for k := range j.use.Nodes[i].GPUs {
			most = max(most, j.use.Nodes[i].GPUs[k].MemMaxMiB)
		}
	}
	return most
}
