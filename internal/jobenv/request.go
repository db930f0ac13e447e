package jobenv

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// request.go has the variables that say what the user asked for: they are the options of the job's own gruns.

// describeRequest sets variables that Slurm sets only if the user gave the option.
func describeRequest(v *Vars, l *proto.Launch) {
	s := l.Spec
	if s.Tasks > 0 || s.TasksPerNode > 0 {
		tasks := int64(s.Tasks)
		if tasks == 0 {
			for i := range l.Alloc.Nodes {
				tasks += int64(l.Alloc.Nodes[i].Tasks)
			}
		}
		v.Num("SLURM_NTASKS", tasks)
		v.Num("SLURM_NPROCS", tasks)
	}
	if s.TasksPerNode > 0 {
		v.Num("SLURM_NTASKS_PER_NODE", int64(s.TasksPerNode))
	}
	if s.CPUsPerTask > 0 {
		v.Num("SLURM_CPUS_PER_TASK", int64(s.CPUsPerTask))
	}
	switch {
	case s.MemPerNode > 0:
		v.Num("SLURM_MEM_PER_NODE", s.MemPerNode)
	case s.MemPerCPU > 0:
		v.Num("SLURM_MEM_PER_CPU", s.MemPerCPU)
	}
	m := s.Extra()
	for _, n := range [...]struct {
		name  string
		value int64
	}{{"SLURM_MEM_PER_GPU", m.MemPerGPU}, {"SLURM_CPUS_PER_GPU", int64(m.CPUsPerGPU)},
		{"SLURM_NTASKS_PER_CORE", int64(m.TasksPerCore)}, {"SLURM_NTASKS_PER_SOCKET", int64(m.SaidPerSocket())},
		{"SLURM_THREADS_PER_CORE", int64(m.ThreadsPerCore)}} {
		if n.value > 0 {
			v.Num(n.name, n.value)
		}
	}
	if s.Append {
		v.Set("SLURM_OPEN_MODE", "a") // for the files of its steps too
	}
	if m.OOMKill {
		v.Set("SLURM_OOM_KILL_STEP", "1")
	}
	v.Given("SLURM_JOB_LICENSES", licensesText(&m))
	if s.Overcommit {
		v.Set("SLURM_OVERCOMMIT", "1")
	}
	describeStated(v, s)
	describeBinding(v, s)
}

// describeStated sets the variables by which options that decide nothing go on to grun.
func describeStated(v *Vars, s *model.Spec) {
	x := s.Stated()
	v.Given("SLURM_CPU_FREQ_REQ", x.CPUFreq)
	v.Given("SLURM_GPU_FREQ", x.GPUFreq)
	v.Given("SLURM_PROFILE", x.Profile)
	v.Given("SLURM_ACCTG_FREQ", x.Sampling)
	if s.Extra().Interactive { // as salloc does, and sbatch does not
		v.Given("SLURM_NETWORK", x.Network)
	}
}

// licensesText writes licenses as --licenses takes them.
func licensesText(m *model.Needs) string {
	words := make([]string, len(m.Licenses))
	for i, l := range m.Licenses {
		words[i] = fmt.Sprintf("%s:%d", l.Name, l.Count)
	}
	if m.AnyLicense {
		return strings.Join(words, "|")
	}
	return strings.Join(words, ",")
}

// bindNames are the variables that pass a job's binding of tasks on to grun.
var bindNames = map[string]bool{"SLURM_GPU_BIND": true, "SLURM_CPU_BIND": true, "SLURM_MEM_BIND": true,
	"SLURM_DISTRIBUTION":   true,
	"SLURM_DIST_PLANESIZE": true, "SLURM_HINT": true, "SLURM_NTASKS_PER_GPU": true, "SLURM_MEM_BIND_VERBOSE": true,
	"SLURM_ARBITRARY_NODELIST": true}

// saidBinding gives those of them that a job's own options set, or make untrue. The user's others stay, but not those
// of a step whose task submits the job.
func saidBinding(s *model.Spec, inStep bool) map[string]bool {
	if s.More == nil || s.More.Bind == nil {
		return nil
	}
	if inStep {
		return bindNames
	}
	b := s.More.Bind
	dist := b.Dist != ""
	return map[string]bool{"SLURM_GPU_BIND": b.GPU != "", "SLURM_CPU_BIND": b.CPU != "", "SLURM_MEM_BIND": b.Mem != "",
		"SLURM_MEM_BIND_VERBOSE": b.Mem != "", "SLURM_DISTRIBUTION": dist, "SLURM_DIST_PLANESIZE": dist,
		"SLURM_ARBITRARY_NODELIST": dist, "SLURM_HINT": b.Hint != "" || b.CPU != "",
		"SLURM_NTASKS_PER_GPU": b.TasksPerGPU > 0}
}

func describeBinding(v *Vars, s *model.Spec) {
	if s.More == nil || s.More.Bind == nil {
		return
	}
	b := s.More.Bind
	v.Given("SLURM_GPU_BIND", b.GPU)
	v.Given("SLURM_CPU_BIND", b.CPU)
	v.Given("SLURM_MEM_BIND", b.Mem)
	if b.Mem != "" {
		v.Set("SLURM_MEM_BIND_VERBOSE", verbosity(b.Mem))
	}
	if strings.HasPrefix(b.Dist, "arbitrary") && len(s.ReqNodes) > 0 {
		v.Set("SLURM_ARBITRARY_NODELIST", cmp.Or(b.Hosts, strings.Join(s.ReqNodes, ",")))
	}
	if size, plane := strings.CutPrefix(b.Dist, "plane="); plane {
		size, cores, more := strings.Cut(size, ":")
		if more {
			cores = ":" + cores
		}
		v.Set("SLURM_DISTRIBUTION", "plane"+cores)
		v.Set("SLURM_DIST_PLANESIZE", size)
	} else {
		v.Given("SLURM_DISTRIBUTION", b.Dist)
	}
	v.Given("SLURM_HINT", b.Hint)
	if b.TasksPerGPU > 0 {
		v.Num("SLURM_NTASKS_PER_GPU", int64(b.TasksPerGPU))
	}
}

// verbosity gives the word for whether bindings are reported.
func verbosity(bind string) string {
	for word := range strings.SplitSeq(bind, ",") {
		if w := strings.ToLower(word); w == "v" || w == "verbose" {
			return "verbose"
		}
	}
	return "quiet"
}

// describeGPURequest sets the numbers of requested GPUs.
func describeGPURequest(v *Vars, s *model.Spec) {
	var req [3]string
	for _, g := range s.AskedGres() {
		if g.Name != model.GPUName || int(g.Per) >= len(req) {
			continue
		}
		text := strconv.Itoa(int(g.Count))
		if g.Type != "" {
			text = g.Type + ":" + text
		}
		if req[g.Per] != "" {
			text = req[g.Per] + "," + text
		}
		req[g.Per] = text
	}
	perNode := "SLURM_GPUS_PER_NODE"
	if of := s.Extra().GPUsPerSocket; len(of) > 0 {
		perNode = "SLURM_GPUS_PER_SOCKET"
		var words []string
		for _, g := range of {
			words = append(words, strings.TrimPrefix(g.Type+":"+strconv.Itoa(int(g.Count)), ":"))
		}
		req[model.PerNode] = strings.Join(words, ",")
	}
	v.Given(perNode, req[model.PerNode])
	v.Given("SLURM_GPUS", req[model.PerJob])
	v.Given("SLURM_GPUS_PER_TASK", req[model.PerTask])
	v.Given("SLURM_TRES_PER_TASK", otherPerTask(s))
}

// otherPerTask gives each task's resources other than GPUs, in the form of --tres-per-task, for grun.
func otherPerTask(s *model.Spec) string {
	var words []string
	for _, g := range s.AskedGres() {
		if g.Per == model.PerTask && g.Name != model.GPUName {
			words = append(words, fmt.Sprintf("%s=%d", model.GresTRES(g.Name, g.Type), g.Count))
		}
	}
	return strings.Join(words, ",")
}
