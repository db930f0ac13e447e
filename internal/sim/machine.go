package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/internal/sched/policy"
)

// Size describes a machine of equal nodes. The zero value leaves it to the trace: its own nodes where it names them,
// otherwise a single pool of as many processors as its header says.
type Size struct {
	Nodes       int
	CPUsPerNode int
	GPUsPerNode int
}

// Limits of a machine that is described by numbers.
const (
	maxNodes   = 100_000
	maxPerNode = maxUnits
	maxGPUs    = 1024
)

// Machine is the cluster that a workload runs on.
type Machine struct {
	Config *model.Config
	Text   string // in words
	Pool   bool   // one node with all processors
	gpus   int    // per node, where all nodes have as many
}

// poolPartition is the one partition of a machine that is described by numbers.
const poolPartition = "all"

// NewMachine makes the machine that the options or the trace describe.
func NewMachine(w *Workload, s Size) (*Machine, error) {
	switch {
	case s.Nodes < 0 || s.Nodes > maxNodes:
		return nil, fmt.Errorf("--nodes %d: from 1 to %d", s.Nodes, maxNodes)
	case s.CPUsPerNode < 0 || s.CPUsPerNode > maxPerNode:
		return nil, fmt.Errorf("--cpus-per-node %d: from 1 to %d", s.CPUsPerNode, maxPerNode)
	case s.GPUsPerNode < 0 || s.GPUsPerNode > maxGPUs:
		return nil, fmt.Errorf("--gpus-per-node %d: from 1 to %d", s.GPUsPerNode, maxGPUs)
	case s.Nodes > 0 && s.CPUsPerNode == 0 && s.GPUsPerNode == 0:
		return nil, errors.New("--nodes without a size: add --cpus-per-node or --gpus-per-node")
	case s.Nodes > 0 && s.CPUsPerNode == 1 && s.GPUsPerNode == 0:
		return pool(s.Nodes), nil // the choice of node doesn't matter
	case s.Nodes == 1 && s.GPUsPerNode == 0:
		return pool(s.CPUsPerNode), nil
	case s.Nodes > 0:
		return equalNodes(s), nil
	case s.CPUsPerNode > 0 && s.GPUsPerNode == 0:
		return pool(s.CPUsPerNode), nil
	case s.GPUsPerNode > 0:
		return nil, errors.New("--gpus-per-node without --nodes: say how many nodes there are")
	case len(w.Nodes) > 0:
		return nodeKinds(w.Nodes), nil
	case len(w.Pools) > 0:
		return pools(w.Pools), nil
	case w.MaxProcs > 0:
		return pool(w.MaxProcs), nil
	}
	return nil, fmt.Errorf("%s does not say how large its machine is: give --nodes and --cpus-per-node or "+
		"--gpus-per-node, or --conf", w.Name)
}

func newConfig() *model.Config {
	return &model.Config{Cluster: "sim", Params: model.Params{MinJobAgeS: 1, KillWaitS: 1}}
}

// one puts all nodes into one partition.
func one(c *model.Config, name string, nodes []string, isDefault bool) {
	c.Partitions = append(c.Partitions, &model.Partition{Name: name, Nodes: nodes, Default: isDefault,
		MaxTimeS: model.Unlimited, PriorityTier: 1, PriorityJobFactor: 1, OverSubscribe: "NO"})
}

// pool is one node with all processors: what the published schedules of the Parallel Workloads Archive's logs assume.
func pool(procs int) *Machine {
	c := newConfig()
	c.Nodes = []*model.NodeDef{{Name: "pool", CPUs: int32(procs), Boards: 1, Sockets: 1, CoresPerSocket: int32(procs),
		ThreadsPerCore: 1}}
	one(c, poolPartition, []string{"pool"}, true)
	return &Machine{Config: c, Pool: true, Text: fmt.Sprintf("one pool of %d processors", procs)}
}

func node(name string, cpus, gpus int, typ string, mem int64) *model.NodeDef {
	d := &model.NodeDef{Name: name, CPUs: int32(cpus), Boards: 1, Sockets: 1, CoresPerSocket: int32(cpus),
		ThreadsPerCore: 1, MemMiB: mem}
	if gpus > 0 {
		d.Gres = []model.GresDef{{Name: model.GPUName, Type: strings.ToLower(typ), Count: int32(gpus)}}
	}
	return d
}

// GPUs that are shared are divided into hundredths.
const (
	shardName    = "shard"
	shardsPerGPU = 100
)

// shared gives the machine with GPUs that jobs can share.
func (m *Machine) shared() *Machine {
	c := *m.Config
	c.Nodes = nil
	for _, d := range m.Config.Nodes {
		n := *d
		n.Gres = slices.Clone(d.Gres)
		for _, g := range d.Gres {
			if g.Name != model.GPUName {
				continue
			}
			s := model.GresDef{Name: shardName, Count: g.Count * shardsPerGPU}
			for u := g.First; u < g.First+g.Count; u++ {
				s.Over = append(s.Over, model.Share{GPU: u, Count: shardsPerGPU})
			}
			n.Gres = append(n.Gres, s)
		}
		c.Nodes = append(c.Nodes, &n)
	}
	out := *m
	out.Config = &c
	return &out
}

func equalNodes(s Size) *Machine {
	c := newConfig()
	cpus := max(s.CPUsPerNode, s.GPUsPerNode)
	names := make([]string, s.Nodes)
	for i := range names {
		names[i] = fmt.Sprintf("n%d", i+1)
		c.Nodes = append(c.Nodes, node(names[i], cpus, s.GPUsPerNode, "", 0))
	}
	one(c, poolPartition, names, true)
	text := fmt.Sprintf("%d nodes of %d CPUs", s.Nodes, cpus)
	if s.GPUsPerNode > 0 {
		text = fmt.Sprintf("%d nodes of %d CPUs and %d GPUs", s.Nodes, cpus, s.GPUsPerNode)
	}
	return &Machine{Config: c, Text: text, gpus: s.GPUsPerNode}
}

// pools gives every queue its own partition of its own nodes.
func pools(list []Pool) *Machine {
	c := newConfig()
	text := make([]string, 0, len(list))
	m := &Machine{Config: c, gpus: list[0].GPUs}
	for i, p := range list {
		names := make([]string, p.Nodes)
		for k := range names {
			names[k] = fmt.Sprintf("%s-%d", p.Queue, k+1)
			c.Nodes = append(c.Nodes, node(names[k], p.GPUs, p.GPUs, "", 0))
		}
		one(c, p.Queue, names, i == 0)
		text = append(text, fmt.Sprintf("%s: %d x %d GPUs", p.Queue, p.Nodes, p.GPUs))
		if p.GPUs != m.gpus {
			m.gpus = 0
		}
	}
	m.Text = strings.Join(text, "; ")
	return m
}

// nodeKinds makes a machine of the nodes that a trace lists. Memory counts on it.
func nodeKinds(list []NodeKind) *Machine {
	c := newConfig()
	c.Params.MemConsumed = true
	var names []string
	gpus := 0
	for _, k := range list {
		c.Nodes = append(c.Nodes, node(k.Name, k.CPUs, k.GPUs, k.Type, k.MemMiB))
		names = append(names, k.Name)
		gpus += k.GPUs
	}
	one(c, poolPartition, names, true)
	return &Machine{Config: c, Text: fmt.Sprintf("the trace's %d nodes with %d GPUs", len(names), gpus)}
}

// FromConf gives the machine of a configuration: its nodes, partitions and settings. Nodes that the configuration puts
// out of service stay out.
func FromConf(dir string) (*Machine, *conf.Config, error) {
	c, problems := conf.LoadFile(dir)
	if c == nil {
		for _, p := range problems {
			if p.Severity == conf.Error {
				return nil, nil, fmt.Errorf("the configuration can't be used: %s (gbatch check says more)", p)
			}
		}
		return nil, nil, fmt.Errorf("the configuration %s can't be used", dir)
	}
	m := c.Model()
	m.Params.MinJobAgeS = 1
	m.Params.MaxJobs = 0
	m.Params.Rules = model.NodeRules{} // what nodes do around jobs takes no time here
	if len(m.Partitions) == 0 || len(m.Nodes) == 0 {
		return nil, nil, fmt.Errorf("%s defines no nodes or no partition", c.Path)
	}
	return &Machine{Config: m, Text: fmt.Sprintf("cluster %s of %s, %d nodes", m.Cluster, c.Path, len(m.Nodes))}, c, nil
}

// partitionOf gives the partition that a job of a queue goes to: the one of its name, or the default.
func (m *Machine) partitionOf(queue string) string {
	name := ""
	for _, p := range m.Config.Partitions {
		if p.Name == queue {
			return p.Name
		}
		if p.Default || name == "" {
			name = p.Name
		}
	}
	return name
}

// units counts the processors and GPUs of the machine, nodes out of service left out.
func (m *Machine) units() (cpus, gpus int) {
	for _, d := range m.Config.Nodes {
		if d.Admin != model.NodeUp {
			continue
		}
		cpus += int(d.CPUs)
		for _, g := range d.Gres {
			if g.Name == model.GPUName {
				gpus += int(g.Count)
			}
		}
	}
	return cpus, gpus
}

// need is what makes two jobs' specifications equal.
type need struct {
	cpus, gpus, nodes    int32
	milli                int32 // of a shared GPU, if the machine shares them
	elastic              int32 // nodes of an elastic job
	mem, limit           int64
	typ, user, acct, que string
}

// specs makes the jobs' specifications, equal ones once.
type specs struct {
	m    *Machine
	seen map[need]*model.Spec
	uids map[string]uint32

	shares  bool  // jobs that share a GPU in the trace do so here
	segment int32 // Setup.Segment

	never map[*model.Spec]string // why the machine can't run such a job; "" where it can
}

func newSpecs(m *Machine) *specs {
	return &specs{m: m, seen: map[need]*model.Spec{}, uids: map[string]uint32{}, never: map[*model.Spec]string{}}
}

// firstUID is given to the first user of a workload.
const firstUID = 1000

// of gives a job's specification; elastic has the nodes of one that may grow and shrink.
func (s *specs) of(j *Job, elastic int32) *model.Spec {
	k := need{cpus: j.CPUs, gpus: j.GPUs, nodes: j.Nodes, mem: j.MemMiB, limit: j.Request, typ: j.GPUType, user: j.User,
		acct: j.Account, que: j.Queue, elastic: elastic}
	if s.shares {
		k.milli = j.Milli
	}
	if sp, ok := s.seen[k]; ok {
		return sp
	}
	user, uid := j.User, uint32(policy.Nobody)
	if user == "" {
		user = "nobody"
	} else {
		var ok bool
		if uid, ok = s.uids[user]; !ok {
			if uid = firstUID + uint32(len(s.uids)); uid >= policy.Nobody {
				uid++
			}
			s.uids[user] = uid
		}
	}
	sp := &model.Spec{Name: "trace", UID: uid, GID: uid, User: user, Group: user,
		Account:    cmp.Or(j.Account, s.m.Config.HomeAccount()),
		Partitions: []string{s.m.partitionOf(j.Queue)}, Requeue: s.m.Config.Params.JobRequeue,
		LimitS: min(j.Request, model.Unlimited-1), Tasks: max(j.CPUs, 1), CPUsPerTask: 1, MemPerNode: j.MemMiB}
	switch {
	case s.m.Pool:
		sp.Tasks, sp.MinNodes, sp.MaxNodes, sp.MemPerNode = max(j.CPUs, j.GPUs), 1, 1, 0
	case j.GPUs > 0:
		s.gpus(sp, j)
	case j.Nodes > 0:
		sp.MinNodes, sp.MaxNodes = j.Nodes, j.Nodes
	case j.MemMiB > 0: // of one node: a pod
		sp.MinNodes, sp.MaxNodes = 1, 1
	}
	if elastic > 0 {
		s.stretched(sp, j, elastic)
	}
	s.seen[k] = sp
	return sp
}

// gpus asks for GPUs: on as many nodes as the trace says or as they need, evenly where that goes, with a CPU for each
// where the trace has no CPUs.
func (s *specs) gpus(sp *model.Spec, j *Job) {
	nodes := j.Nodes
	if nodes == 0 {
		nodes = 1
		if per := int32(s.m.gpus); per > 0 {
			nodes = (j.GPUs + per - 1) / per
		}
	}
	g := model.GresReq{Name: model.GPUName, Type: strings.ToLower(j.GPUType)}
	sp.MinNodes, sp.MaxNodes = nodes, nodes
	if j.GPUs%nodes == 0 {
		g.Count, g.Per = j.GPUs/nodes, model.PerNode
	} else {
		g.Count, g.Per = j.GPUs, model.PerJob
	}
	if s.shares && j.Milli > 0 && j.GPUs == 1 {
		g = model.GresReq{Name: shardName, Count: model.ShareCount(j.Milli, shardsPerGPU), Milli: j.Milli,
			Per: model.PerNode}
	}
	sp.Gres = []model.GresReq{g}
	switch {
	case j.CPUs == 0:
		sp.Tasks = j.GPUs
		if j.GPUs%nodes == 0 {
			sp.TasksPerNode = j.GPUs / nodes
		}
	case nodes == 1: // threads of one process
		sp.Tasks, sp.CPUsPerTask = 1, j.CPUs
	}
}
