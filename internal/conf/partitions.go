package conf

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

// MaxPartitions is how many partitions a configuration may define.
const MaxPartitions = 4096

// PartitionDef is one partition as PartitionName lines define it, with the cluster's own settings for keys that the
// line does not have.
type PartitionDef struct {
	Name                             string
	Nodes                            []string // defined nodes, in the order given, each once
	NodesExpr                        string   // as written
	Default, Hidden                  bool
	State                            string // UP DOWN DRAIN INACTIVE
	MaxTimeS                         int64  // or model.Unlimited
	DefaultTimeS                     int64  // model.NotSet: MaxTimeS counts
	OverTimeLimitS                   int64  // or model.Unlimited
	MinNodes, MaxNodes               int64  // MaxNodes 0: no limit
	MaxCPUsPerNode, MaxCPUsPerSocket int64  // 0: no limit
	Mem                              MemLimits
	JobDefaults                      JobDefaults
	PriorityTier, PriorityJobFactor  int64
	AllowAccounts, DenyAccounts      []string // nil: all, none
	AllowGroups                      []string // nil: all
	AllowQOS, DenyQOS                []string
	AllocNodes                       []string // hosts that may submit; nil: all
	QOS                              string
	OverSubscribe                    OverSubscribe
	PreemptMode                      PreemptMode
	GraceTimeS                       int64
	GpuIdlePolicy                    *model.GPUIdle // nil: the cluster's
	LLN, RootOnly, ReqResv           bool
	DisableRootJobs                  bool
	ExclusiveUser, ExclusiveTopo     bool
	Power                            *model.PartPower // nil: it says nothing about power
	ReservePercent                   int64            // hundredths of a percent
	QueuePolicy                      string           // "": the cluster's
	Topology                         string           // "": the default one
	Alternate                        string
	CPUBind                          string
	SelectTypeParameters             string // "": the cluster's
	TRESBillingWeights               []model.TRESWeight
	File                             string
	Line                             int
}

// partLine is a PartitionName line while it is read.
type partLine struct {
	at    pos // of Nodes, or of the line
	given map[string]bool
}

// OverSubscribe says how many jobs may share a resource.
type OverSubscribe struct {
	Mode string // NO, YES, FORCE or EXCLUSIVE
	Max  int64  // jobs per resource, of YES and FORCE
}

func (o OverSubscribe) String() string {
	switch o.Mode {
	case "YES", "FORCE":
		return o.Mode + ":" + strconv.FormatInt(o.Max, 10)
	}
	return o.Mode
}

func readOverSubscribe(v string) (OverSubscribe, fault) {
	const want = "NO, EXCLUSIVE, YES:4 or FORCE:4"
	mode, count, has := strings.Cut(v, ":")
	mode, f := readWord(mode, []string{"NO", "YES", "FORCE", "EXCLUSIVE"})
	if f.bad() {
		return OverSubscribe{}, fault{f.why, want}
	}
	o := OverSubscribe{Mode: mode}
	if mode == "YES" || mode == "FORCE" {
		o.Max = 4 // Slurm's default
	}
	if has {
		n, f := readInt(count, 1, 32767)
		if f.bad() || o.Max == 0 {
			return OverSubscribe{}, fault{shown(v) + " does not take that count", want}
		}
		o.Max = n
	}
	return o, fault{}
}

// readNames reads a list of names of which ALL means no restriction.
func readNames(v string) []string {
	names := splitList(v)
	if len(names) == 1 && strings.EqualFold(names[0], "ALL") {
		return nil
	}
	return names
}

// pd keeps the rows of the keys in one line each.
type pd = PartitionDef

func partitionKeys() []lineKey[pd] {
	return slices.Concat(partitionLimits(), partitionUse())
}

// partitionLimits are the keys for a partition's nodes, limits and access.
func partitionLimits() []lineKey[pd] {
	names := func(name string, at func(*pd) *[]string) lineKey[pd] {
		return lineKey[pd]{name: name, read: func(p *pd, v string) fault { *at(p) = readNames(v); return fault{} }}
	}
	// QOS are known by names in lower case, as Slurm compares them without case.
	qosNames := func(name string, at func(*pd) *[]string) lineKey[pd] {
		return lineKey[pd]{name: name,
			read: func(p *pd, v string) fault { *at(p) = readNames(strings.ToLower(v)); return fault{} }}
	}
	limit := func(name string, at func(*pd) *int64) lineKey[pd] {
		return lineKey[pd]{name: name, read: func(p *pd, v string) (f fault) { *at(p), f = readLimit(v); return f }}
	}
	num := func(name string, at func(*pd) *int64, least, most int64) lineKey[pd] {
		return lineKey[pd]{name: name,
			read: func(p *pd, v string) (f fault) { *at(p), f = readInt(v, least, most); return f }}
	}
	count := func(name string, at func(*pd) *int64) lineKey[pd] {
		return lineKey[pd]{name: name,
			read: func(p *pd, v string) (f fault) { *at(p), f = readCountLimit(v, math.MaxInt32); return f }}
	}
	mem := func(name string, at func(*pd) *int64) lineKey[pd] {
		return lineKey[pd]{name: name, read: func(p *pd, v string) (f fault) { *at(p), f = readMem(v); return f }}
	}
	return []lineKey[pd]{
		{name: "Nodes", read: func(p *pd, v string) fault { p.NodesExpr = v; return fault{} }},
		partitionYes("Default", func(p *pd) *bool { return &p.Default }),
		partitionYes("Hidden", func(p *pd) *bool { return &p.Hidden }),
		{name: "State", read: func(p *pd, v string) (f fault) {
			p.State, f = readWord(v, []string{"UP", "DOWN", "DRAIN", "INACTIVE"})
			return f
		}},
		limit("MaxTime", func(p *pd) *int64 { return &p.MaxTimeS }),
		limit("DefaultTime", func(p *pd) *int64 { return &p.DefaultTimeS }),
		{name: "OverTimeLimit", read: func(p *pd, v string) (f fault) { p.OverTimeLimitS, f = readOverTime(v); return f }},
		num("MinNodes", func(p *pd) *int64 { return &p.MinNodes }, 0, math.MaxInt32),
		count("MaxNodes", func(p *pd) *int64 { return &p.MaxNodes }),
		count("MaxCPUsPerNode", func(p *pd) *int64 { return &p.MaxCPUsPerNode }),
		count("MaxCPUsPerSocket", func(p *pd) *int64 { return &p.MaxCPUsPerSocket }),
		mem("DefMemPerCPU", func(p *pd) *int64 { return &p.Mem.DefPerCPUMiB }),
		mem("DefMemPerNode", func(p *pd) *int64 { return &p.Mem.DefPerNodeMiB }),
		mem("MaxMemPerCPU", func(p *pd) *int64 { return &p.Mem.MaxPerCPUMiB }),
		mem("MaxMemPerNode", func(p *pd) *int64 { return &p.Mem.MaxPerNodeMiB }),
		num("DefCpuPerGPU", func(p *pd) *int64 { return &p.JobDefaults.DefCPUPerGPU }, 0, 65533),
		{name: "DefMemPerGPU",
			read: func(p *pd, v string) (f fault) { p.JobDefaults.DefMemPerGPUMiB, f = readMem(v); return f }},
		{name: "JobDefaults", read: func(p *pd, v string) fault { return readJobDefaults(&p.JobDefaults, v) }},
		num("PriorityTier", func(p *pd) *int64 { return &p.PriorityTier }, 0, 65533),
		num("PriorityJobFactor", func(p *pd) *int64 { return &p.PriorityJobFactor }, 0, 65533),
		{name: "Priority", read: func(p *pd, v string) fault {
			n, f := readInt(v, 0, 65533)
			p.PriorityTier, p.PriorityJobFactor = n, n
			return f
		}},
		names("AllowAccounts", func(p *pd) *[]string { return &p.AllowAccounts }),
		names("DenyAccounts", func(p *pd) *[]string { return &p.DenyAccounts }),
		names("AllowGroups", func(p *pd) *[]string { return &p.AllowGroups }),
		qosNames("AllowQos", func(p *pd) *[]string { return &p.AllowQOS }),
		qosNames("DenyQos", func(p *pd) *[]string { return &p.DenyQOS }),
		{name: "AllocNodes", read: func(p *pd, v string) (f fault) {
			if p.AllocNodes = nil; !strings.EqualFold(v, "ALL") {
				p.AllocNodes, f = readHosts(v)
			}
			return f
		}},
		{name: "QOS", read: func(p *pd, v string) fault { p.QOS = strings.ToLower(v); return fault{} }},
	}
}

// partitionUse are the keys for how a partition's nodes are given to jobs.
func partitionUse() []lineKey[pd] {
	over := func(name string) lineKey[pd] {
		return lineKey[pd]{name: name,
			read: func(p *pd, v string) (f fault) { p.OverSubscribe, f = readOverSubscribe(v); return f }}
	}
	return append([]lineKey[pd]{
		over("OverSubscribe"), over("Shared"),
		{name: "PreemptMode", read: func(p *pd, v string) (f fault) { p.PreemptMode, f = readPreemptMode(v); return f }},
		{name: "GraceTime", read: func(p *pd, v string) (f fault) {
			if p.GraceTimeS, f = readSeconds(v, 0, math.MaxInt32); f.want == "" {
				f.want = "60"
			}
			return f
		}},
		{name: "GpuIdlePolicy", read: func(p *pd, v string) fault {
			own, f := readGPUIdle(v)
			if !f.bad() {
				p.GpuIdlePolicy = &own
			}
			return f
		}},
		{name: "ReservePercent", read: func(p *pd, v string) (f fault) { p.ReservePercent, f = readReserve(v); return f }},
		{name: "QueuePolicy", read: func(p *pd, v string) (f fault) {
			if p.QueuePolicy, f = readWord(v, model.QueuePolicies()); p.QueuePolicy == model.OrderDefault.String() {
				p.QueuePolicy = ""
			}
			return f
		}},
		partitionYes("LLN", func(p *pd) *bool { return &p.LLN }),
		partitionYes("RootOnly", func(p *pd) *bool { return &p.RootOnly }),
		partitionYes("ReqResv", func(p *pd) *bool { return &p.ReqResv }),
		partitionYes("DisableRootJobs", func(p *pd) *bool { return &p.DisableRootJobs }),
		partitionYes("ExclusiveUser", func(p *pd) *bool { return &p.ExclusiveUser }),
		partitionYes("ExclusiveTopo", func(p *pd) *bool { return &p.ExclusiveTopo }),
		{name: "Alternate", read: func(p *pd, v string) fault { p.Alternate = v; return fault{} }},
		{name: "CpuBind", read: func(p *pd, v string) (f fault) {
			p.CPUBind, f = readCPUBind(v)
			return f
		}},
		{name: "SelectTypeParameters", read: func(p *pd, v string) (f fault) {
			p.SelectTypeParameters, f = readWord(v, []string{"CR_CORE", "CR_CORE_MEMORY", "CR_SOCKET", "CR_SOCKET_MEMORY"})
			return f
		}},
		{name: "TRESBillingWeights",
			read: func(p *pd, v string) (f fault) { p.TRESBillingWeights, f = readTRESWeights(v); return f }},
		{name: "Topology", read: func(p *pd, v string) fault { p.Topology = v; return fault{} }},
	}, partitionPowerKeys()...)
}

func partitionYes(name string, at func(*pd) *bool) lineKey[pd] {
	return lineKey[pd]{name: name, read: func(p *pd, v string) (f fault) { *at(p), f = readBool(v); return f }}
}

func partitionKeyNames() []string { return keyNames(partitionKeys()) }

func newPartition() PartitionDef {
	return PartitionDef{
		State: "UP", MaxTimeS: model.Unlimited, PriorityTier: 1, PriorityJobFactor: 1,
		OverSubscribe: OverSubscribe{Mode: "NO"},
	}
}

// readPartitionLine reads one PartitionName line. Its nodes are resolved when
// all lines have been read.
func (l *loader) readPartitionLine(pairs []pair) {
	head := pairs[0]
	if strings.EqualFold(head.value, "DEFAULT") {
		l.partDefaults = overlay(l.partDefaults, pairs[1:])
		scratch := newPartition()
		readKeys(l, l.partKeys, pairs[1:], &scratch, keyPartition)
		return
	}
	for _, name := range splitList(head.value) {
		if strings.Trim(name, nameLetters) != "" || len(name) > 64 {
			l.probs.errorf(head.at, "use up to 64 letters, digits, - . and _", "%s is not a valid partition name", shown(name))
			continue
		}
		if first, twice := l.partIndex[name]; twice {
			l.probs.errorf(head.at, "remove one of the lines", "partition %s is defined twice, first in line %d of %s", name,
				first.line, first.file)
			continue
		}
		if len(l.cfg.Partitions) >= MaxPartitions {
			l.probs.errorf(head.at, "", "more than %d partitions", MaxPartitions)
			return
		}
		p := newPartition()
		p.Name, p.File, p.Line = name, head.at.file, head.at.line
		line := overlay(l.partDefaults, pairs[1:])
		given := readKeys(l, l.partKeys, line, &p, keyPartition)
		l.remarkPartition(&p, given, line, head)
		l.partIndex[name] = head.at
		l.partLines = append(l.partLines, partLine{at: placeOf(line, "Nodes", head), given: given})
		l.cfg.Partitions = append(l.cfg.Partitions, p)
	}
}

// placeOf is the place of a key of the line, or the line itself.
func placeOf(line []pair, key string, head pair) pos {
	for _, q := range line {
		if strings.EqualFold(q.key, key) {
			return q.at
		}
	}
	return head.at
}

// remarkPartition reports remarks about a partition line.
func (l *loader) remarkPartition(p *PartitionDef, given map[string]bool, line []pair, head pair) {
	at := func(key string) pos { return placeOf(line, key, head) }
	if given["Priority"] {
		l.probs.notef(at("Priority"),
			fmt.Sprintf("write PriorityTier=%d PriorityJobFactor=%d", p.PriorityTier, p.PriorityJobFactor),
			"Priority on a PartitionName line is an old name that sets both PriorityTier (which partition goes first) and "+
				"PriorityJobFactor (its share in the priority)")
	}
	if given["Shared"] {
		l.probs.notef(at("Shared"), "write OverSubscribe="+p.OverSubscribe.String(),
			"Shared is the old name of OverSubscribe")
	}
	if p.AllowAccounts != nil && p.DenyAccounts != nil {
		l.probs.warnf(at("DenyAccounts"), "remove it",
			"partition %s: DenyAccounts has no effect beside AllowAccounts", p.Name)
	}
	if p.AllowQOS != nil && p.DenyQOS != nil {
		l.probs.warnf(at("DenyQos"), "remove it", "partition %s: DenyQos has no effect beside AllowQos", p.Name)
	}
	if given["OverSubscribe"] && p.OverSubscribe.Mode == "NO" && !given["PreemptMode"] {
		l.exclusives = append(l.exclusives, namedPart{p.Name, at("OverSubscribe")})
	}
	if given["PreemptMode"] && (p.PreemptMode.Gang || p.PreemptMode.Within) {
		l.probs.warnf(at("PreemptMode"), "write PreemptMode="+p.PreemptMode.Action+" here, and GANG or WITHIN on a line of "+
			"their own for the cluster", "partition %s: GANG and WITHIN have no effect on a PartitionName line", p.Name)
	}
	if p.DefaultTimeS > p.MaxTimeS {
		l.probs.errorf(at("DefaultTime"), "write a DefaultTime up to "+walltime.Short(p.MaxTimeS),
			"partition %s: DefaultTime is longer than MaxTime", p.Name)
	}
	if p.MaxNodes > 0 && p.MinNodes > p.MaxNodes {
		l.probs.errorf(at("MinNodes"), "", "partition %s: MinNodes=%d is above MaxNodes=%d", p.Name, p.MinNodes, p.MaxNodes)
	}
	l.checkMemPair(p.Mem, at("DefMemPerNode"), at("MaxMemPerNode"), "partition "+p.Name+": ")
}

// checkMemPair checks that only one of each pair of memory keys is set.
func (l *loader) checkMemPair(m MemLimits, def, most pos, who string) {
	if m.DefPerCPUMiB > 0 && m.DefPerNodeMiB > 0 {
		l.probs.errorf(def, "keep one of them", "%sDefMemPerCPU and DefMemPerNode exclude each other", who)
	}
	if m.MaxPerCPUMiB > 0 && m.MaxPerNodeMiB > 0 {
		l.probs.errorf(most, "keep one of them", "%sMaxMemPerCPU and MaxMemPerNode exclude each other", who)
	}
}

// setLine is a NodeSet line.
type setLine struct{ feature, nodes string }

var setKeys = []lineKey[setLine]{
	{name: "Feature", read: func(s *setLine, v string) fault { s.feature = v; return fault{} }},
	{name: "Nodes", read: func(s *setLine, v string) fault { s.nodes = v; return fault{} }},
}

// readSetLines reads the NodeSet lines, when all nodes are known.
func (l *loader) readSetLines() {
	for _, pairs := range l.setLines {
		head := pairs[0]
		var s setLine
		readKeys(l, setKeys, pairs[1:], &s, keyNodeSet)
		_, isNode := l.nodeIndex[head.value]
		switch {
		case head.value == "" || strings.Trim(head.value, nameLetters) != "":
			l.probs.errorf(head.at, "use letters, digits, - . and _", "%s is not a valid name for a set of "+
				"nodes", shown(head.value))
			continue
		case isNode:
			l.probs.errorf(head.at, "choose another name", "NodeSet=%s is also the name of a node", head.value)
			continue
		case slices.ContainsFunc(l.cfg.NodeSets, func(o model.NodeSet) bool { return o.Name == head.value }):
			l.probs.errorf(head.at, "remove one of the lines", "NodeSet=%s is defined twice", head.value)
			continue
		}
		set := model.NodeSet{Name: head.value, Feature: s.feature}
		if s.nodes != "" {
			set.Nodes = l.knownNodes(pair{"Nodes", s.nodes, head.at}, "NodeSet="+head.value)
		}
		if s.feature != "" {
			for _, n := range l.cfg.Nodes {
				if slices.Contains(n.Features, s.feature) && !slices.Contains(set.Nodes, n.Name) {
					set.Nodes = append(set.Nodes, n.Name)
				}
			}
		}
		if len(set.Nodes) == 0 {
			l.probs.warnf(head.at, "write Nodes=… or Feature=…", "NodeSet=%s is empty", head.value)
		}
		l.cfg.NodeSets = append(l.cfg.NodeSets, set)
	}
}

// resolvePartitions finds the nodes of each partition and fills in the cluster's settings.
func (l *loader) resolvePartitions() {
	for i := range l.cfg.Partitions {
		p := &l.cfg.Partitions[i]
		c, line := l.cfg, l.partLines[i]
		p.Nodes = l.partitionNodes(p, line.at)
		if !line.given["OverTimeLimit"] {
			p.OverTimeLimitS = c.OverTimeLimitS
		}
		if !line.given["PreemptMode"] {
			p.PreemptMode = c.Preempt.Mode
		}
		if !line.given["DisableRootJobs"] {
			p.DisableRootJobs = c.DisableRootJobs
		}
		if p.JobDefaults.DefCPUPerGPU == 0 {
			p.JobDefaults.DefCPUPerGPU = c.JobDefaults.DefCPUPerGPU
		}
		if p.JobDefaults.DefMemPerGPUMiB == 0 {
			p.JobDefaults.DefMemPerGPUMiB = c.JobDefaults.DefMemPerGPUMiB
		}
		if p.Mem.DefPerCPUMiB == 0 && p.Mem.DefPerNodeMiB == 0 {
			p.Mem.DefPerCPUMiB, p.Mem.DefPerNodeMiB = c.Mem.DefPerCPUMiB, c.Mem.DefPerNodeMiB
		}
		if p.Mem.MaxPerCPUMiB == 0 && p.Mem.MaxPerNodeMiB == 0 {
			p.Mem.MaxPerCPUMiB, p.Mem.MaxPerNodeMiB = c.Mem.MaxPerCPUMiB, c.Mem.MaxPerNodeMiB
		}
		if p.Alternate != "" {
			if _, ok := l.partIndex[p.Alternate]; !ok {
				l.probs.errorf(pos{p.File, p.Line}, "", "partition %s: Alternate=%s is not a partition", p.Name, p.Alternate)
			}
		}
	}
}

func (l *loader) partitionNodes(p *PartitionDef, at pos) []string {
	if strings.EqualFold(p.NodesExpr, "ALL") {
		return l.knownNodes(pair{"Nodes", "ALL", at}, "")
	}
	names, f := readHosts(p.NodesExpr)
	if f.bad() {
		l.probs.errorf(at, "write Nodes="+f.want, "partition %s: Nodes: %s", p.Name, f.why)
		return nil
	}
	all := make([]string, 0, len(names))
	for _, name := range names {
		if i := slices.IndexFunc(l.cfg.NodeSets, func(s model.NodeSet) bool { return s.Name == name }); i >= 0 {
			all = append(all, l.cfg.NodeSets[i].Nodes...)
		} else if name == "ALL" {
			all = append(all, l.knownNodes(pair{"Nodes", "ALL", at}, "")...)
		} else {
			all = append(all, name)
		}
	}
	all = l.dropUnknown(all, at, "partition "+p.Name)
	seen := make(map[string]bool, len(all))
	return slices.DeleteFunc(all, func(name string) bool {
		twice := seen[name]
		seen[name] = true
		return twice
	})
}

// maxReserve is the largest ReservePercent: with all of it kept back, most jobs could never start.
const maxReserve = 99

// readReserve reads a percentage as hundredths of a percent.
func readReserve(v string) (int64, fault) {
	n, f := readPercent(v, maxReserve)
	return int64(math.Round(n * 100)), f
}

// showReserve is the opposite of readReserve.
func showReserve(n int64) string { return strconv.FormatFloat(float64(n)/100, 'f', -1, 64) }
