package jobenv

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// env.go builds the environment of a batch script: the submitted variables, without those that describe another job,
// plus those that describe this one. The names, values and conditions are those of Slurm 22.05's batch step, observed
// on a running one (testdata/slurm-22.05.txt), with the variables that later releases added.
//
// One difference is deliberate: gnoded's own variables never leak from the submitting job into this one, so a plain job
// submitted by an array task has no SLURM_ARRAY_TASK_ID.

// maxEnvVars is the most variables in a submitted environment.
const maxEnvVars = 32768

// Node is the part of jobs' environments that is the same for every job of this node.
type Node struct {
	Name       string // of the node
	Cluster    string
	Controller string   // host:port of one, for SLURM_WORKING_CLUSTER
	Conf       string   // the configuration file; "": none was read
	Hidden     []string // variables that only jobs with units of one of this node's resources have
	Units      *Units   // names of units
	remote     *Remote  // nil: it has no remote GPUs
	User       func(uid uint32) Account
	AllocFile  string // of an elastic job: the file that has its present nodes
}

// Account is a user's entry in the password database. Empty fields are unknown.
type Account struct {
	Name  string
	Home  string
	Shell string
}

// The last parts of SLURM_WORKING_CLUSTER, after the cluster and its address: the RPC version of the Slurm release that
// gbatch is compatible with, and the plugin number of select/cons_tres.
const (
	slurmProtocol = 11008
	selectPlugin  = 109
)

// Script gives NAME=value strings for l's batch script. submitted is as in proto.SubmitRequest.Env; entries without
// a name or "=" are dropped.
func (e *Node) Script(l *proto.Launch, submitted []byte) ([]string, error) {
	mine := e.describe(l)
	out := make([]string, 0, bytes.Count(submitted, []byte{0})+len(mine)+8)
	has := givenNames{}
	inStep := bytes.HasPrefix(submitted, []byte(stepID)) || bytes.Contains(submitted, []byte("\x00"+stepID))
	said := saidBinding(l.Spec, inStep)
	for len(submitted) > 0 {
		var entry []byte
		if i := bytes.IndexByte(submitted, 0); i >= 0 {
			entry, submitted = submitted[:i], submitted[i+1:]
		} else {
			entry, submitted = submitted, nil
		}
		eq := bytes.IndexByte(entry, '=')
		if eq <= 0 || e.owns(entry[:eq]) || IsHet(string(entry[:eq])) || said[string(entry[:eq])] ||
			inStep && stepTold[string(entry[:eq])] {
			continue
		}
		if len(out) >= maxEnvVars {
			return nil, fmt.Errorf("the job's environment has more than %d variables", maxEnvVars)
		}
		has.note(entry[:eq])
		out = append(out, string(entry))
	}
	out = append(out, mine...)
	if e.AllocFile != "" {
		out = append(out, "SLURM_JOB_ALLOCATION_FILE="+e.AllocFile)
	}
	return e.fill(out, &has, l), nil
}

// stepTold are variables with which a step tells its tasks how it was started, and which elsewhere are a user's wishes
// for all sruns. A job that a task submits has those of its step from the step.
var stepTold = map[string]bool{"SLURM_DISTRIBUTION": true, "SLURM_DIST_PLANESIZE": true, "SLURM_LABELIO": true,
	"SRUN_DEBUG": true}

const stepID = "SLURM_STEP_ID="

// owned are the variables that describe a job or its place and that only gnoded sets. Those of steps are included: a
// batch script does not belong to the step that may have submitted it.
var owned = map[string]bool{
	"SLURMD_NODENAME": true, "SLURM_ARRAY_JOB_ID": true, "SLURM_ARRAY_TASK_COUNT": true, "SLURM_ARRAY_TASK_ID": true,
	"SLURM_ARRAY_TASK_MAX": true, "SLURM_ARRAY_TASK_MIN": true, "SLURM_ARRAY_TASK_STEP": true, "SLURM_CLUSTER_NAME": true,
	"SLURM_CONF": true, "GBATCH_CONF": true, "SLURM_CPUS_ON_NODE": true, "SLURM_CPUS_PER_TASK": true, "SLURM_GPUS": true,
	"SLURM_CPUS_PER_GPU": true, "SLURM_NTASKS_PER_CORE": true, "SLURM_NTASKS_PER_SOCKET": true,
	"SLURM_THREADS_PER_CORE": true, "SLURM_CPU_FREQ_REQ": true, "SLURM_GPU_FREQ": true, "SLURM_PROFILE": true,
	"SLURM_ACCTG_FREQ": true, "SLURM_NETWORK": true,
	"SLURM_JOB_LICENSES": true, "SLURM_OOM_KILL_STEP": true,
	"SLURM_GPUS_ON_NODE": true, "SLURM_GPUS_PER_NODE": true, "SLURM_GPUS_PER_SOCKET": true, "SLURM_GPUS_PER_TASK": true,
	"SLURM_TRES_PER_TASK": true, "SLURM_GTIDS": true,
	"SLURM_HET_SIZE": true, "SLURM_JOBID": true, "SLURM_JOB_ACCOUNT": true, "SLURM_JOB_CPUS_PER_NODE": true,
	"SLURM_JOB_DEPENDENCY": true, "SLURM_JOB_END_TIME": true, "SLURM_JOB_GID": true, "SLURM_JOB_GPUS": true,
	"SLURM_JOB_ID": true, "SLURM_JOB_NAME": true, "SLURM_JOB_NODELIST": true, "SLURM_JOB_NUM_NODES": true,
	"SLURM_JOB_PARTITION": true, "SLURM_JOB_QOS": true, "SLURM_JOB_RESERVATION": true, "SLURM_JOB_START_TIME": true,
	"SLURM_JOB_UID": true, "SLURM_JOB_USER": true, "SLURM_LAUNCH_NODE_IPADDR": true, "SLURM_LOCALID": true,
	"SLURM_MEM_PER_CPU": true, "SLURM_MEM_PER_GPU": true, "SLURM_MEM_PER_NODE": true, "SLURM_NNODES": true,
	"SLURM_NODEID": true, "SLURM_NODELIST": true, "SLURM_NODE_ALIASES": true, "SLURM_NPROCS": true, "SLURM_NTASKS": true,
	"SLURM_NTASKS_PER_NODE": true, "SLURM_OVERCOMMIT": true, "SLURM_PROCID": true, "SLURM_RESTART_COUNT": true,
	"SLURM_SHARDS_ON_NODE": true,
	"SLURM_SRUN_COMM_HOST": true, "SLURM_SRUN_COMM_PORT": true, "SLURM_STEPID": true, "SLURM_STEP_GPUS": true,
	"SLURM_STEP_ID": true, "SLURM_STEP_LAUNCHER_PORT": true, "SLURM_STEP_NODELIST": true, "SLURM_STEP_NUM_NODES": true,
	"SLURM_STEP_NUM_TASKS": true, "SLURM_STEP_TASKS_PER_NODE": true, "SLURM_SUBMIT_HOST": true,
	"SLURM_TASKS_PER_NODE": true, "SLURM_TASK_PID": true,
	"SLURM_TOPOLOGY_ADDR": true, "SLURM_TOPOLOGY_ADDR_PATTERN": true, "SLURM_UMASK": true, "SLURM_WORKING_CLUSTER": true,
	"ENVIRONMENT": true, "HOSTNAME": true, proto.ComponentVar: true,
}

// Owned gives the variables that only gnoded sets.
func (e *Node) Owned() []string {
	return append(append(slices.Sorted(maps.Keys(owned)), slices.Sorted(maps.Keys(bindNames))...), e.Hidden...)
}

// OfOther reports whether a variable of the command that made an allocation is not for what it runs there: it describes
// another job or a step, or says what this job's options say.
func OfOther(name string, inStep bool, s *model.Spec) bool {
	return strings.HasPrefix(name, "SLURM") && name != "SLURM_CONF" && owned[name] || IsHet(name) ||
		saidBinding(s, inStep)[name] || inStep && (stepTold[name] || stepOwned[name])
}

// owns reports whether only gnoded sets a variable. On a node with GPUs that includes the variables that make them
// visible: a job without GPUs has none of these, as in Slurm since 21.08. On a node without GPUs, they are the user's.
func (e *Node) owns(name []byte) bool {
	return owned[string(name)] || slices.Contains(e.Hidden, string(name))
}

// describe gives the variables that describe l and its place here.
func (e *Node) describe(l *proto.Launch) []string {
	here := &l.Alloc.Nodes[l.Node]
	v := make(Vars, 0, 64)
	describeJob(&v, l)
	v.Num("SLURM_CPUS_ON_NODE", int64(here.CPUs.Count()))
	e.Units.countGPUs(&v, "SLURM_JOB_GPUS", here.Gres)
	Shares(&v, l.Spec.UID, here)
	e.ShowUnits(&v, here, here)
	v.Set("SLURM_CLUSTER_NAME", e.Cluster)
	if e.Controller != "" {
		v.Set("SLURM_WORKING_CLUSTER", fmt.Sprintf("%s:%s:%d:%d", e.Cluster, e.Controller, slurmProtocol, selectPlugin))
	}
	v.Set("SLURMD_NODENAME", e.Name)
	addr, pattern := e.Name, "node"
	if l.Switches != "" {
		addr = l.Switches + "." + addr
		kind := "switch."
		if l.Blocks {
			kind = "block."
		}
		pattern = strings.Repeat(kind, strings.Count(l.Switches, ".")+1) + pattern
	}
	v.Set("SLURM_TOPOLOGY_ADDR", addr)
	v.Set("SLURM_TOPOLOGY_ADDR_PATTERN", pattern)
	v.Num("SLURM_NODEID", int64(l.Node))
	v.Set("SLURM_PROCID", "0")
	v.Set("SLURM_LOCALID", "0")
	v.Set("SLURM_GTIDS", "0")
	v.Set("SLURM_UMASK", fmt.Sprintf("%04o", l.Spec.Umask&0o777))
	v.Given("SLURM_CONF", e.Conf)
	v.Given("GBATCH_CONF", e.Conf)
	v.Set("ENVIRONMENT", "BATCH")
	v.Set("HOSTNAME", e.Name)
	return v
}

// Allocation gives the variables that describe an allocation to a command outside of its nodes: galloc's shell, grun.
// cluster is "" if unknown.
func Allocation(l *proto.Launch, cluster string) []string {
	v := make(Vars, 0, 48)
	describeJob(&v, l)
	v.Given("SLURM_SUBMIT_DIR", l.Spec.WorkDir)
	v.Given("SLURM_CLUSTER_NAME", cluster)
	return v
}

// describeJob sets the variables that are the same on all hosts.
func describeJob(v *Vars, l *proto.Launch) {
	describeOne(v, l)
	describeHet(v, l)
}

// describeOne is describeJob for a job of one component, or for one component.
func describeOne(v *Vars, l *proto.Launch) {
	s := l.Spec
	v.Num("SLURM_JOB_ID", int64(l.Job))
	v.Num("SLURM_JOBID", int64(l.Job))
	v.Set("SLURM_JOB_NAME", s.Name)
	v.Set("SLURM_JOB_PARTITION", l.Part)
	v.Given("SLURM_JOB_ACCOUNT", s.Account)
	v.Given("SLURM_JOB_QOS", s.QOS)
	v.Given("SLURM_JOB_RESERVATION", l.Resv)
	v.Given("SLURM_JOB_DEPENDENCY", s.DepText)
	v.Given("SLURM_SUBMIT_HOST", s.Host)
	v.Set("SLURM_JOB_USER", s.User)
	v.Num("SLURM_JOB_UID", int64(s.UID))
	v.Num("SLURM_JOB_GID", int64(s.GID))
	v.Num("SLURM_JOB_START_TIME", l.Start.Seconds())
	if l.LimitS < model.Unlimited {
		v.Num("SLURM_JOB_END_TIME", l.Start.Add(l.LimitS).Seconds())
	}
	if l.Restarts > 0 {
		v.Num("SLURM_RESTART_COUNT", int64(l.Restarts))
	}
	if l.Task != model.NoTask {
		v.Num("SLURM_ARRAY_JOB_ID", int64(l.ArrayID))
		v.Num("SLURM_ARRAY_TASK_ID", int64(l.Task))
		v.Num("SLURM_ARRAY_TASK_COUNT", int64(l.Array.Count))
		v.Num("SLURM_ARRAY_TASK_MIN", int64(l.Array.Min))
		v.Num("SLURM_ARRAY_TASK_MAX", int64(l.Array.Max))
		v.Num("SLURM_ARRAY_TASK_STEP", int64(max(l.Array.Step, 1)))
	}
	nodes := hostlist.CompressInOrder(l.Alloc.NodeNames())
	v.Set("SLURM_JOB_NODELIST", nodes)
	v.Set("SLURM_NODELIST", nodes)
	v.Num("SLURM_JOB_NUM_NODES", int64(len(l.Alloc.Nodes)))
	v.Num("SLURM_NNODES", int64(len(l.Alloc.Nodes)))
	v.Set("SLURM_JOB_CPUS_PER_NODE", PerNode(l.Alloc, func(n *model.NodeAlloc) int { return n.CPUs.Count() }))
	v.Set("SLURM_TASKS_PER_NODE", tasksPerNode(l.Alloc, s))
	describeRequest(v, l)
	describeGPURequest(v, s)
}

// ShowUnits sets the variables by which runtimes find the units in mine; open has the units that the process's control
// group allows: the job's part of the node, or the step's.
func (e *Node) ShowUnits(v *Vars, mine, open *model.NodeAlloc) {
	e.showRemote(v, mine)
	mine, open = mine.Local(), open.Local()
	for i := range mine.Gres {
		name := mine.Gres[i].Name
		if slices.ContainsFunc(mine.Gres[:i], func(g model.GresAlloc) bool { return g.Name == name }) {
			continue
		}
		e.Units.show(v, name, mine.Units(name), open.Units(name))
	}
	e.showShared(v, mine, open)
}

// givenNames records which of fill's variables were submitted.
type givenNames struct {
	tmpdir, home, user, logname, shell, path, submitDir, prio bool
}

func (g *givenNames) note(name []byte) {
	switch string(name) {
	case "TMPDIR":
		g.tmpdir = true
	case "HOME":
		g.home = true
	case "USER":
		g.user = true
	case "LOGNAME":
		g.logname = true
	case "SHELL":
		g.shell = true
	case "PATH":
		g.path = true
	case "SLURM_SUBMIT_DIR":
		g.submitDir = true
	case "SLURM_PRIO_PROCESS":
		g.prio = true
	}
}

// fill adds variables that a script needs and the submission left out (--export=NONE).
func (e *Node) fill(env []string, has *givenNames, l *proto.Launch) []string {
	v := Vars(env)
	if !has.submitDir {
		v.Set("SLURM_SUBMIT_DIR", l.Spec.WorkDir)
	}
	if !has.prio {
		v.Set("SLURM_PRIO_PROCESS", "0")
	}
	if !has.tmpdir {
		v.Set("TMPDIR", "/tmp")
	}
	if !has.path {
		v.Set("PATH", "/usr/local/bin:/usr/bin:/bin")
	}
	if has.home && has.user && has.logname && has.shell {
		return v
	}
	var who Account
	if e.User != nil {
		who = e.User(l.Spec.UID)
	}
	if who.Name == "" {
		who.Name = l.Spec.User
	}
	for _, d := range [...]struct {
		has         bool
		name, value string
	}{{has.home, "HOME", who.Home}, {has.user, "USER", who.Name}, {has.logname, "LOGNAME", who.Name},
		{has.shell, "SHELL", who.Shell}} {
		if !d.has {
			v.Given(d.name, d.value)
		}
	}
	return v
}

// Vars collects NAME=value strings.
type Vars []string

func (v *Vars) Set(name, value string) {
	if strings.IndexByte(value, 0) >= 0 {
		value = strings.ReplaceAll(value, "\x00", "")
	}
	*v = append(*v, name+"="+value)
}

func (v *Vars) Num(name string, n int64) { *v = append(*v, name+"="+strconv.FormatInt(n, 10)) }

// Given sets a variable unless its value is empty.
func (v *Vars) Given(name, value string) {
	if value != "" {
		v.Set(name, value)
	}
}

// PerNode writes a count for each node as Counts does.
func PerNode(a *model.Alloc, count func(*model.NodeAlloc) int) string {
	counts := make([]int, len(a.Nodes))
	for i := range a.Nodes {
		counts[i] = count(&a.Nodes[i])
	}
	return Counts(counts)
}

// tasksPerNode counts a job's tasks on its nodes: evenly on nodes that it has as a whole, and else as its CPUs were
// chosen, or the units that each task has.
//
// A job that gave no number of tasks may start as many as its CPUs are enough for, as launchers like mpirun do.
func tasksPerNode(a *model.Alloc, s *model.Spec) string {
	perTask := max(int(s.CPUsPerTask), 1)
	if s.Tasks == 0 && s.TasksPerNode == 0 {
		return PerNode(a, func(n *model.NodeAlloc) int { return max(n.CPUs.Count()/perTask, 1) })
	}
	ofTasks := slices.ContainsFunc(s.Gres, func(g model.GresReq) bool { return g.Per == model.PerTask })
	if !s.Exclusive || s.Tasks <= 0 || s.TasksPerNode > 0 || len(a.Nodes) < 2 || ofTasks {
		return PerNode(a, func(n *model.NodeAlloc) int { return max(int(n.Tasks), 1) })
	}
	room, total := make([]int, len(a.Nodes)), 0
	for i := range a.Nodes {
		room[i] = a.Nodes[i].CPUs.Count() / perTask
		total += room[i]
	}
	if total < int(s.Tasks) {
		return PerNode(a, func(n *model.NodeAlloc) int { return max(int(n.Tasks), 1) })
	}
	return Counts(ask.Blocks(room, int(s.Tasks), false))
}

// CommaList writes every member of b: "0,2,5".
func CommaList(b model.Bits) string {
	var out []byte
	b.Each(func(i int) bool {
		if len(out) > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, int64(i), 10)
		return true
	})
	return string(out)
}
