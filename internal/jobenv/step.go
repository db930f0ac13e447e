package jobenv

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// step.go builds the environments of a step's tasks: the variables of the command that requested the step, without
// those that describe another step or task, plus those that describe the job, the step and the task. Names and values
// are srun's, as observed on a running Slurm 22.05.

// stepOwned are the variables, besides those of a job, that only gnoded sets in a step.
var stepOwned = map[string]bool{
	"SLURM_CPU_BIND": true, "SLURM_CPU_BIND_LIST": true, "SLURM_CPU_BIND_TYPE": true, "SLURM_CPU_BIND_VERBOSE": true,
	"SLURM_MEM_BIND": true, "SLURM_MEM_BIND_LIST": true, "SLURM_MEM_BIND_TYPE": true, "SLURM_MEM_BIND_VERBOSE": true,
	"SLURM_MEM_BIND_PREFER": true, "SLURM_MEM_BIND_SORT": true, "SLURM_GPU_BIND": true, "SLURM_TRES_BIND": true,
	"SLURM_DISTRIBUTION": true, "SLURM_DIST_PLANESIZE": true, "SLURM_STEP_RESV_PORTS": true,
	"SLURM_SHARDS_ON_NODE": true, "SLURM_PTY_PORT": true, "SLURM_PTY_WIN_COL": true, "SLURM_PTY_WIN_ROW": true,
}

// jobOnly are the batch script's variables that a step sets anew.
var jobOnly = map[string]bool{
	"SLURM_PROCID": true, "SLURM_LOCALID": true, "SLURM_GTIDS": true, "SLURM_NODEID": true, "SLURM_NTASKS": true,
	"SLURM_NPROCS": true,
	"SLURM_NNODES": true, "SLURM_TASKS_PER_NODE": true, "SLURM_CPUS_ON_NODE": true, "SLURM_GPUS_ON_NODE": true,
	"SLURM_CPUS_PER_TASK": true,
	"SLURM_NODELIST":      true, "ENVIRONMENT": true, "HOSTNAME": true, "SLURM_UMASK": true,
}

// stepSaid are variables that say what the command's options were: they are the command's, and not those that the job
// had for its script.
var stepSaid = map[string]bool{"SLURM_NTASKS_PER_NODE": true, "SLURM_NTASKS_PER_CORE": true,
	"SLURM_NTASKS_PER_SOCKET": true, "SLURM_THREADS_PER_CORE": true, "SLURM_CPU_FREQ_REQ": true,
	jobName: true}

// jobName is of them, and the job's where the command has none.
const jobName = "SLURM_JOB_NAME"

// TaskView has the values of one task's own variables.
type TaskView struct {
	Rank, Local int
	First       int32      // tasks of the command's steps before this one
	GPUs        model.Bits // visible to it
	CPUs        model.Bits // bound to it, by the machine's numbers; empty: not bound
}

// StepBase gives the common part of the environments of a node's tasks.
func (e *Node) StepBase(l *proto.Launch, id int32, nodes []proto.StepNode, here int, rq *proto.StepRequest,
	het *proto.StepHet) []string {
	v := make(Vars, 0, 96)
	named := false
	for entry := range strings.SplitSeq(string(rq.Env), "\x00") {
		name, _, ok := strings.Cut(entry, "=")
		if !ok || name == "" || stepOwned[name] || ofComponent(name, l.Het) || len(v) >= maxEnvVars {
			continue
		}
		if name != "ENVIRONMENT" && name != "HOSTNAME" && !IsHet(name) && !stepSaid[name] && e.owns([]byte(name)) {
			continue
		}
		v, named = append(v, entry), named || name == jobName
	}
	for _, entry := range e.describe(l) {
		name, _, _ := strings.Cut(entry, "=")
		if stepSaid[name] && (name != jobName || named) {
			continue
		}
		if l.Het != nil && (name == "SLURM_JOB_ID" || name == "SLURM_JOBID") {
			entry = name + "=" + strconv.FormatUint(uint64(l.Het.ID), 10)
		}
		if !jobOnly[name] && !IsHet(name) && (het == nil || !ofAll[name]) && !stepOwned[name] &&
			!slices.Contains(e.Hidden, name) {
			v = append(v, entry)
		}
	}
	part := &nodes[here]
	names := make([]string, len(nodes))
	tasks := 0
	counts := make([]int, len(nodes))
	for i := range nodes {
		names[i] = nodes[i].Node
		counts[i] = len(nodes[i].Ranks)
		tasks += counts[i]
	}
	list, perNode := hostlist.CompressInOrder(names), Counts(counts)
	number := strconv.FormatUint(uint64(uint32(id)), 10)
	v.Set("SLURM_STEP_ID", number)
	v.Set("SLURM_STEPID", number)
	if het != nil {
		stepOfAll(&v, het, here)
	} else {
		v.Set("SLURM_STEP_NODELIST", list)
		v.Num("SLURM_STEP_NUM_NODES", int64(len(names)))
		v.Num("SLURM_STEP_NUM_TASKS", int64(tasks))
		v.Set("SLURM_STEP_TASKS_PER_NODE", perNode)
		v.Set("SLURM_NODELIST", hostlist.CompressInOrder(l.Alloc.NodeNames()))
		v.Num("SLURM_NNODES", int64(len(names)))
		v.Num("SLURM_NTASKS", int64(tasks))
		v.Num("SLURM_NPROCS", int64(tasks))
		v.Set("SLURM_TASKS_PER_NODE", perNode)
		v.Num("SLURM_NODEID", int64(here))
	}
	if l.Het != nil {
		component(&v, l)
	}
	if c := rq.Need.CPUsPerTask; c > 0 {
		v.Num("SLURM_CPUS_PER_TASK", int64(c))
	}
	if rq.Need.Overcommit && !l.Spec.Overcommit { // else it is among the job's
		v.Set("SLURM_OVERCOMMIT", "1")
	}
	v.Num("SLURM_CPUS_ON_NODE", int64(part.CPUs.Count()))
	v.Set("SLURM_GTIDS", ranksText(part.Ranks, het.First()))
	v.Set("SLURM_UMASK", fmt.Sprintf("%04o", rq.Umask&0o777))
	if n := &rq.Need; !rq.Interactive || n.Dist != proto.DistDefault { // the sruns of its shell would take a default over
		v.Set("SLURM_DISTRIBUTION", distText(n, &rq.Bind, tasks <= len(nodes)))
	}
	if rq.Need.Dist == proto.DistPlane {
		v.Num("SLURM_DIST_PLANESIZE", int64(rq.Need.Plane))
	}
	if rq.Whole {
		onlyNodes(&v, l.Alloc, names)
	}
	if rq.KeepEnv {
		keepCounts(&v, rq.Env)
	}
	v.Given("SLURM_LAUNCH_NODE_IPADDR", rq.Addr)
	v.Given("SLURM_SRUN_COMM_HOST", rq.Addr)
	e.Units.countGPUs(&v, "SLURM_STEP_GPUS", part.Gres)
	sharesOf(&v, l.Spec.UID, part.Gres)
	v.Given("SLURM_GPU_BIND", gpuBindText(&rq.Bind))
	if t := rq.Terminal; t != nil {
		v.Num("SLURM_PTY_WIN_COL", int64(t.Cols))
		v.Num("SLURM_PTY_WIN_ROW", int64(t.Rows))
	}
	return v
}

// onlyNodes has the tasks see these nodes as those of their job.
func onlyNodes(v *Vars, all *model.Alloc, names []string) {
	some := &model.Alloc{Nodes: slices.DeleteFunc(slices.Clone(all.Nodes), func(n model.NodeAlloc) bool {
		return !slices.Contains(names, n.Node)
	})}
	list := hostlist.CompressInOrder(names)
	v.replace("SLURM_JOB_NODELIST", list)
	v.replace("SLURM_NODELIST", list)
	v.replace("SLURM_JOB_NUM_NODES", strconv.Itoa(len(names)))
	v.replace("SLURM_JOB_CPUS_PER_NODE", PerNode(some, func(n *model.NodeAlloc) int { return n.CPUs.Count() }))
}

func (v *Vars) replace(name, value string) {
	*v = slices.DeleteFunc(*v, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
	v.Set(name, value)
}

// keepCounts gives the tasks the numbers of nodes and tasks that their command had, as --preserve-env wants it.
func keepCounts(v *Vars, given []byte) {
	for entry := range strings.SplitSeq(string(given), "\x00") {
		switch name, value, _ := strings.Cut(entry, "="); name {
		case "SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE":
			v.replace(name, value)
		}
	}
}

// StepTask gives a task's environment: base and the task's own variables.
func (e *Node) StepTask(base []string, part *proto.StepNode, b *proto.StepBind, t *TaskView) []string {
	v := make(Vars, 0, len(base)+16)
	v = append(v, base...)
	v.Num("SLURM_PROCID", int64(t.First)+int64(t.Rank))
	v.Num("SLURM_LOCALID", int64(t.Local))
	if b.CPU != proto.BindAuto || !t.CPUs.Empty() {
		kind, list := cpuBindNames[min(int(b.CPU), len(cpuBindNames)-1)], strings.Join(b.CPUList, ",")
		if !t.CPUs.Empty() {
			kind, list = "mask_cpu:", MaskText(t.CPUs)
		}
		verbose := "quiet"
		if b.CPUVerbose {
			verbose = "verbose"
		}
		v.Set("SLURM_CPU_BIND", verbose+","+kind+list)
		v.Set("SLURM_CPU_BIND_LIST", list)
		v.Set("SLURM_CPU_BIND_TYPE", kind)
		v.Set("SLURM_CPU_BIND_VERBOSE", verbose)
	}
	if b.Mem != proto.BindAuto {
		kind := memBindNames[b.Mem]
		verbose := "quiet"
		if b.MemVerbose {
			verbose = "verbose"
		}
		list := strings.Join(b.MemList, ",")
		if list != "" {
			kind += ":"
		}
		prefer := ""
		if b.MemPrefer {
			prefer = "prefer,"
			v.Set("SLURM_MEM_BIND_PREFER", "prefer")
		}
		v.Set("SLURM_MEM_BIND", verbose+","+prefer+kind+list)
		v.Set("SLURM_MEM_BIND_LIST", list)
		v.Set("SLURM_MEM_BIND_TYPE", kind)
		v.Set("SLURM_MEM_BIND_VERBOSE", verbose)
	}
	open := &model.NodeAlloc{Gres: part.Gres}
	mine := open
	if !t.GPUs.Empty() {
		mine = &model.NodeAlloc{}
		for _, g := range part.Gres {
			if g.Name == model.GPUName {
				g.Index = g.Index.And(t.GPUs)
			}
			mine.Gres = append(mine.Gres, g)
		}
	}
	e.ShowUnits(&v, mine, open)
	return v
}

// PlacesIn lists the positions of own's members within all.
func PlacesIn(all, own model.Bits) string {
	var out []string
	at := 0
	all.Each(func(g int) bool {
		if own.Has(g) {
			out = append(out, strconv.Itoa(at))
		}
		at++
		return true
	})
	return strings.Join(out, ",")
}

// StepGPUs gives the GPUs of a step's part of a node.
func StepGPUs(part *proto.StepNode) model.Bits {
	var gpus model.Bits
	for i := range part.Gres {
		if part.Gres[i].Name == model.GPUName {
			gpus = gpus.Or(part.Gres[i].Index)
		}
	}
	return gpus
}

func ranksText(ranks []int32, first int32) string {
	var out []byte
	for i, r := range ranks {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, int64(first+r), 10)
	}
	return string(out)
}

// Counts writes counts as Slurm does: "2(x2),1".
func Counts(counts []int) string {
	var out []byte
	for i := 0; i < len(counts); {
		same := 1
		for i+same < len(counts) && counts[i+same] == counts[i] {
			same++
		}
		if len(out) > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, int64(counts[i]), 10)
		if same > 1 {
			out = append(strconv.AppendInt(append(out, "(x"...), int64(same), 10), ')')
		}
		i += same
	}
	return string(out)
}

var distNames = [...]string{proto.DistBlock: "block", proto.DistCyclic: "cyclic", proto.DistPlane: "plane",
	proto.DistArbitrary: "arbitrary", proto.DistFCyclic: "fcyclic"}

// distText writes how tasks are distributed. Without a word of the user's they go to nodes one by one if there are no
// more than nodes, which is no other way then.
func distText(n *proto.StepNeed, b *proto.StepBind, each bool) string {
	text := distNames[proto.DistBlock]
	if each {
		text = distNames[proto.DistCyclic]
	}
	if n.Dist != proto.DistDefault && int(n.Dist) < len(distNames) {
		text = distNames[n.Dist]
		if b.Cores != proto.DistDefault && int(b.Cores) < len(distNames) {
			text += ":" + distNames[b.Cores]
			if b.Threads != proto.DistDefault && int(b.Threads) < len(distNames) {
				text += ":" + distNames[b.Threads]
			}
		}
	}
	word := ""
	switch {
	case n.Pack:
		word = "pack"
	case n.NoPack:
		word = "nopack"
	default:
		return text
	}
	if n.Dist == proto.DistDefault { // -m pack says nothing of the rest
		return word
	}
	return text + "," + word
}

var cpuBindNames = [...]string{proto.BindNone: "none", proto.BindRank: "rank", proto.BindThreads: "threads",
	proto.BindCores: "cores", proto.BindSockets: "sockets", proto.BindLdoms: "ldoms", proto.BindMap: "map_cpu:",
	proto.BindMask: "mask_cpu:", proto.BindRankLdom: "rank_ldom"}

var memBindNames = [...]string{proto.BindNone: "none", proto.BindRank: "rank", proto.BindMap: "map_mem",
	proto.BindMask: "mask_mem", proto.BindLocal: "local"}

var gpuBindNames = [...]string{proto.BindNone: "none", proto.BindMap: "map_gpu:", proto.BindMask: "mask_gpu:",
	proto.BindClosest: "closest",
	proto.BindSingle:  "single:", proto.BindPerTask: "per_task:"}

// gpuBindText is the value of SLURM_GPU_BIND.
func gpuBindText(b *proto.StepBind) string {
	if b.GPU == proto.BindAuto || int(b.GPU) >= len(gpuBindNames) {
		return ""
	}
	text := gpuBindNames[b.GPU]
	switch b.GPU {
	case proto.BindSingle, proto.BindPerTask:
		text += strconv.Itoa(int(b.GPUCount))
	case proto.BindMap, proto.BindMask:
		text += strings.Join(b.GPUList, ",")
	}
	if b.GPUVerbose {
		text = "verbose," + text
	}
	return text
}

// MaskText writes a set as a hexadecimal mask.
func MaskText(b model.Bits) string {
	n := new(big.Int)
	b.Each(func(i int) bool { n.SetBit(n, i, 1); return true })
	return "0x" + strings.ToUpper(n.Text(16))
}
