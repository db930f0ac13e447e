package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/cli/getopt"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// gseff tells how well a job used what it held: seff's lines, the GPUs', and what to ask for next time.

const (
	// adviseAfterS is how long a job must have run before its numbers say what the next one needs, seconds.
	adviseAfterS = 60
	// wasteful and idleGPU are the percentages below which gseff advises to ask for less.
	wasteful = 50
	idleGPU  = 10
	// cacheWorthSaying is the memory from which it is worth a line that most of it was file cache, KiB.
	cacheWorthSaying = 256 << 10
)

// seff is one call of gseff.
type seff struct {
	*Env
	now time.Time
}

func gseff(e *Env) int {
	s := &seff{Env: e, now: time.Now()}
	p := getopt.New(getopt.Config{Program: e.Program, EnvPrefix: "SEFF", Operands: "job...",
		Options: append([]getopt.Option{
			{Name: "clusters", Aliases: []string{"cluster"}, Short: 'M', Arg: getopt.Required, Hidden: true, Note: "there is one cluster", Set: ignored},
			{Name: "verbose", Short: 'v', Hidden: true, Note: "there is nothing more to tell", Set: ignored},
			{Name: "debug", Short: 'd', Hidden: true, Note: "there is nothing more to tell", Set: ignored},
		}, getopt.HelpOptions('h')...),
		About: "Tell how well a job used the CPUs, memory and GPUs that it held, and what to ask for next time. Running jobs are measured now."})
	operands, err := p.Parse(e.Args, e.Lookup)
	if err != nil {
		return e.usage(p, err)
	}
	if len(operands) == 0 {
		e.errorf("name a job: %s JOBID", e.Program)
		return 1
	}
	rc := 0
	for i, o := range operands {
		if i > 0 {
			fmt.Fprintln(e.Stdout)
		}
		if err := s.tell(o); err != nil {
			e.errorf("%s", text(err))
			rc = 1
		}
	}
	return rc
}

// tell reports about one job, or the tasks of an array that are named.
func (s *seff) tell(id string) error {
	refs, err := parseJobRefs(id)
	if err != nil || len(refs) == 0 {
		return fmt.Errorf("Bad job specified: %s", id)
	}
	c, err := s.connect()
	if err != nil {
		return err
	}
	var records []*model.Record
	err = c.Stream(proto.KindAcct, &proto.AcctRequest{Jobs: refs}, func(body []byte) error {
		var chunk proto.RecordsChunk
		if err := proto.Decode(body, &chunk); err != nil {
			return err
		}
		records = append(records, chunk.Records...)
		return nil
	})
	c.Close()
	if err != nil {
		return err
	}
	if len(records) == 0 {
		return fmt.Errorf("Job not found: %s", id)
	}
	for i, r := range records {
		if i > 0 {
			fmt.Fprintln(s.Stdout)
		}
		if err := s.report(r); err != nil {
			return err
		}
	}
	return nil
}

// report writes seff's lines. A job that waits has a few only.
func (s *seff) report(r *model.Record) error {
	out := s.Stdout
	fmt.Fprintf(out, "Job ID: %d\n", r.Job)
	if r.ArrayID != 0 && r.Task != model.NoTask {
		fmt.Fprintf(out, "Array Job ID: %d_%d\n", r.ArrayID, r.Task)
	}
	fmt.Fprintf(out, "Cluster: %s\nUser/Group: %s/%s\n", r.Cluster, r.User, r.Group)
	if r.End == 0 {
		fmt.Fprintf(out, "State: %s\n", r.State)
	} else {
		fmt.Fprintf(out, "State: %s (exit code %d)\n", r.State, exitShown(r))
	}
	if r.Start == 0 {
		fmt.Fprintf(out, "Efficiency not available for jobs that have not started.\n")
		return nil
	}
	j := &seffJob{Record: r, elapsed: since(r.Start, s.now), use: r.Exit.Use}
	if r.End != 0 {
		j.elapsed = max(0, r.End.Seconds()-r.Start.Seconds())
		if j.use == nil {
			j.use = &model.Usage{Nodes: []model.NodeUsage{{UserMS: r.Exit.UserMS, SysMS: r.Exit.SysMS, PeakKB: r.Exit.MaxRSSKB}}}
		}
	} else {
		use, missing, err := s.liveUsage(r.Job)
		if err != nil {
			return fmt.Errorf("job %d runs, and what it uses can't be asked: %s", r.Job, text(err))
		}
		for _, m := range missing {
			s.errorf("%s", m)
		}
		if j.use = use; j.use == nil {
			if len(missing) == 0 {
				fmt.Fprintf(out, "The job is just starting, or has just ended: ask again in a moment.\n")
			}
			return nil
		}
	}
	j.write(out)
	if r.End == 0 {
		fmt.Fprintf(out, "The job is running: this is what it has used until now.\n")
	}
	if tip := j.advice(); tip != "" {
		fmt.Fprintf(out, "Next time: %s\n", tip)
	}
	return nil
}

// exitShown is what seff shows: the exit code, or the signal.
func exitShown(r *model.Record) int32 {
	if r.Exit.Code != 0 {
		return r.Exit.Code
	}
	return r.Exit.Signal
}

// seffJob is a job that has started.
type seffJob struct {
	*model.Record
	use     *model.Usage
	elapsed int64 // seconds
}

func (j *seffJob) cpus() int64 { return max(1, int64(j.AllocCPUs)) }

func percentOf(part, whole int64) float64 {
	if whole <= 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}

// memory gives what all nodes used at most, KiB, and what the job held there.
func (j *seffJob) memory() (usedKB, heldKB int64) {
	for i := range j.use.Nodes {
		usedKB += j.use.Nodes[i].PeakKB
	}
	return usedKB, j.AllocMemMiB << 10
}

func (j *seffJob) write(out io.Writer) {
	cores := j.cpus()
	if j.NumNodes > 1 {
		fmt.Fprintf(out, "Nodes: %d\nCores per node: %d\n", j.NumNodes, cores/int64(j.NumNodes))
	} else {
		fmt.Fprintf(out, "Nodes: 1\nCores per node: %d\n", cores)
	}
	user, sys := j.use.CPUms()
	walltimeS := j.elapsed * cores
	fmt.Fprintf(out, "CPU Utilized: %s\n", walltime.Elapsed((user+sys)/1000))
	fmt.Fprintf(out, "CPU Efficiency: %.2f%% of %s core-walltime\n", percentOf((user+sys)/1000, walltimeS), walltime.Elapsed(walltimeS))
	fmt.Fprintf(out, "Job Wall-clock time: %s\n", walltime.Elapsed(j.elapsed))
	used, held := j.memory()
	fmt.Fprintf(out, "Memory Utilized: %s\n", seffSize(used))
	if held > 0 {
		fmt.Fprintf(out, "Memory Efficiency: %.2f%% of %s\n", percentOf(used, held), j.heldText(held))
	} else {
		fmt.Fprintf(out, "Memory Efficiency: the job had no memory limit\n")
	}
	if rss := j.processes(); rss > 0 && 2*rss < used && used > cacheWorthSaying {
		fmt.Fprintf(out, "Memory of processes: %s at most in samples; the rest was file cache, which the kernel takes back when it is needed\n", seffSize(rss))
	}
	j.writeGPUs(out)
}

// heldText names the memory that a job held as seff does.
func (j *seffJob) heldText(kib int64) string {
	if j.NumNodes > 1 {
		return fmt.Sprintf("%s (%s/node)", seffSize(kib), seffSize(kib/int64(j.NumNodes)))
	}
	return fmt.Sprintf("%s (%s/node)", seffSize(kib), seffSize(kib))
}

// processes gives the most memory that processes had in samples, without file cache, KiB; 0: no sample.
func (j *seffJob) processes() int64 {
	sum := int64(0)
	for i := range j.use.Nodes {
		sum += j.use.Nodes[i].RSSKB
	}
	return sum
}

// writeGPUs has a line for all of the job's GPUs and, for several, one for each.
func (j *seffJob) writeGPUs(out io.Writer) {
	held := int64(0)
	for _, g := range j.AllocGres {
		if g.Name == "gpu" {
			held += g.Count
		}
	}
	u := &useText{Usage: j.use}
	sum := u.gpus()
	if held == 0 && sum.count == 0 {
		return
	}
	fmt.Fprintf(out, "GPUs: %d\n", max(held, sum.count))
	if sum.count == 0 {
		fmt.Fprintf(out, "GPU Efficiency: unknown; the GPUs were not read while the job ran\n")
		return
	}
	if sum.told > 0 {
		fmt.Fprintf(out, "GPU Efficiency: %d%% mean utilization, %d%% at most\n", sum.utilAve, sum.utilMax)
	}
	if sum.memMiB > 0 {
		fmt.Fprintf(out, "GPU Memory Utilized: %s of %s on the fullest GPU (%.2f%%)\n", seffSize(sum.memMaxMiB<<10), seffSize(sum.memMiB<<10), percentOf(sum.memMaxMiB, sum.memMiB))
	}
	if sum.energyMJ > 0 {
		fmt.Fprintf(out, "GPU Energy: %s\n", energyText(sum.energyMJ))
	}
	if sum.count < 2 {
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
			fmt.Fprintf(out, "%s memory %s\n", line, seffSize(g.MemMaxMiB<<10))
		}
	}
}

// advice says what to ask for next time, as far as the job's numbers tell. Failed jobs say little.
func (j *seffJob) advice() string {
	var tips []string
	used, held := j.memory()
	nodes := int64(max(1, j.NumNodes))
	perNode := func(kib int64) string { return walltime.FormatMem(roundMem((kib/nodes + 1023) >> 10)) }
	user, sys := j.use.CPUms()
	busy := float64(user+sys) / 1000 / float64(max(1, j.elapsed)) // cores
	switch {
	case j.State == model.OutOfMemory:
		tips = append(tips, "the job ran out of memory: ask for more, --mem="+perNode(held*5/4))
	case j.elapsed < adviseAfterS:
		return "the job ran for less than a minute, too short to tell what it needs."
	case held > 0 && percentOf(used, held) < wasteful:
		tips = append(tips, "less memory would do: --mem="+perNode(used*6/5))
	}
	if cores := j.cpus(); j.elapsed >= adviseAfterS && cores > 1 && percentOf(int64(busy*100), cores*100) < wasteful {
		tips = append(tips, fmt.Sprintf("%s of %d cores were busy on average: ask for fewer (-c, -n), or look why they waited", strconv.FormatFloat(busy, 'f', 1, 64), cores))
	}
	u := &useText{Usage: j.use}
	if g := u.gpus(); j.elapsed >= adviseAfterS && g.told > 0 {
		idle := 0
		for i := range j.use.Nodes {
			for k := range j.use.Nodes[i].GPUs {
				if x := &j.use.Nodes[i].GPUs[k]; x.UtilCount > 0 && x.UtilMax == 0 {
					idle++
				}
			}
		}
		switch {
		case int64(idle) == g.told:
			tips = append(tips, "no GPU was ever busy: does the program find them?")
		case idle > 0:
			tips = append(tips, fmt.Sprintf("%d of %d GPUs were never busy: ask for %d", idle, g.told, g.told-int64(idle)))
		case g.utilAve < idleGPU:
			tips = append(tips, fmt.Sprintf("the GPUs were busy for %d%% of the time: look at what feeds them (cores, data), or share one (--gres=shard)", g.utilAve))
		}
	}
	if len(tips) == 0 {
		return ""
	}
	return strings.Join(tips, "; ") + "."
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

// seffSize writes KiB as seff does: 812.00 KB, 1.25 GB.
func seffSize(kib int64) string {
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
