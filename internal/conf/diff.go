package conf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/hostlist"
)

// Change is one difference between two configurations.
type Change struct {
	Key    string // "KillWait", "NodeName=n[1-4] RealMemory", "PartitionName=gpu"
	Old    string // "" where it is new
	New    string // "" where it goes away
	Effect Effect // when it takes effect
	Note   string // what it means for jobs and nodes; may be empty
}

// String gives the change as one line.
func (c Change) String() string {
	var b strings.Builder
	switch {
	case c.Old == "":
		fmt.Fprintf(&b, "+ %s %s", c.Key, c.New)
	case c.New == "":
		fmt.Fprintf(&b, "- %s %s", c.Key, c.Old)
	default:
		fmt.Fprintf(&b, "  %s: %s -> %s", c.Key, c.Old, c.New)
	}
	fmt.Fprintf(&b, "  (%s", c.Effect)
	if c.Note != "" {
		b.WriteString("; " + c.Note)
	}
	b.WriteString(")")
	return b.String()
}

// Diff returns what a reconfigure from one configuration to another changes:
// keys alphabetically, then nodes, partitions and the other files. Equal
// changes of several nodes are one change of a host list.
func Diff(from, to *Config) []Change {
	var out []Change
	t := mainSettings()
	names := t.names()
	slices.SortFunc(names, byName)
	for _, name := range names {
		s := t.byName[strings.ToLower(name)]
		if s.show == nil || s.status > Unused {
			continue
		}
		if a, b := s.show(from), s.show(to); a != b {
			out = append(out, Change{Key: s.name, Old: a, New: b, Effect: s.effect})
		}
	}
	out = append(out, diffControllers(from, to)...)
	out = append(out, diffNodes(from, to)...)
	out = append(out, diffPartitions(from, to)...)
	if a, b := showGres(&from.Gres), showGres(&to.Gres); a != b {
		a, b = firstDifference(a, b)
		out = append(out, Change{Key: GresFile, Old: a, New: b, Effect: RestartNoded})
	}
	was := cgroupFields(&from.Cgroup)
	for i, f := range cgroupFields(&to.Cgroup) {
		if was[i].value != f.value {
			out = append(out, Change{Key: CgroupFile + " " + f.key, Old: was[i].value, New: f.value, Effect: NextStart})
		}
	}
	if a, b := showSwitches(&from.Topology), showSwitches(&to.Topology); a != b {
		a, b = firstDifference(a, b)
		out = append(out, Change{Key: TopologyFile, Old: a, New: b})
	}
	return out
}

func cgroupFields(c *Cgroup) []field {
	percent := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
	return []field{
		{"CgroupPlugin", c.Plugin}, {"CgroupMountpoint", c.Mountpoint}, {"ConstrainCores", showBool(c.ConstrainCores)},
		{"ConstrainDevices", showBool(c.ConstrainDevices)}, {"ConstrainRAMSpace", showBool(c.ConstrainRAMSpace)},
		{"ConstrainSwapSpace", showBool(c.ConstrainSwapSpace)}, {"AllowedRAMSpace", percent(c.AllowedRAMSpacePct)},
		{"AllowedSwapSpace", percent(c.AllowedSwapSpacePct)}, {"MaxRAMPercent", percent(c.MaxRAMPercent)},
		{"MaxSwapPercent", percent(c.MaxSwapPercent)}, {"MinRAMSpace", strconv.FormatInt(c.MinRAMSpaceMiB, 10)},
		{"MemorySwappiness", strconv.FormatInt(c.MemorySwappiness, 10)}, {"SignalChildrenProcesses", showBool(c.SignalChildrenProcs)},
		{"IgnoreSystemd", showBool(c.IgnoreSystemd)}, {"IgnoreSystemdOnFailure", showBool(c.IgnoreSystemdOnFailure)},
		{"EnableControllers", showBool(c.EnableControllers)}, {"SystemdTimeout", strconv.FormatInt(c.SystemdTimeoutMS, 10)},
	}
}

func diffControllers(from, to *Config) []Change {
	show := func(c *Config) string {
		var out []string
		for _, ctl := range c.Controllers {
			out = append(out, ctl.Name+"("+ctl.Addr+")")
		}
		return strings.Join(out, ",")
	}
	if a, b := show(from), show(to); a != b {
		return []Change{{Key: "SlurmctldHost", Old: a, New: b, Effect: RestartAll, Note: "controllers join and leave one at a time"}}
	}
	return nil
}

// field is one shown property of a node or partition.
type field struct{ key, value string }

func nodeFields(n *NodeDef) []field {
	num := func(v int64) string { return strconv.FormatInt(v, 10) }
	var gres []string
	for _, g := range n.Gres {
		gres = append(gres, g.String())
	}
	return []field{
		{"CPUs", num(n.CPUs)}, {"Boards", num(n.Boards)}, {"Sockets", num(n.Sockets)}, {"CoresPerSocket", num(n.CoresPerSocket)},
		{"ThreadsPerCore", num(n.ThreadsPerCore)}, {"RealMemory", num(n.RealMemoryMiB)}, {"MemSpecLimit", num(n.MemSpecLimitMiB)},
		{"CoreSpecCount", num(n.CoreSpecCount)}, {"CpuSpecList", orNull(hostlist.FormatIndexes(n.CPUSpecList))}, {"TmpDisk", num(n.TmpDiskMiB)},
		{"Gres", orNull(strings.Join(gres, ","))}, {"Features", orNull(strings.Join(n.Features, ","))}, {"Weight", num(n.Weight)},
		{"CpuBind", orNull(n.CPUBind)}, {"State", n.State}, {"Virtual", showBool(n.Virtual)},
	}
}

// hardware are the properties that a running job was placed by.
var hardware = []string{"CPUs", "Boards", "Sockets", "CoresPerSocket", "ThreadsPerCore", "RealMemory", "MemSpecLimit", "CoreSpecCount", "CpuSpecList", "Gres"}

func diffNodes(from, to *Config) []Change {
	old := make(map[string]*NodeDef, len(from.Nodes))
	for i := range from.Nodes {
		old[from.Nodes[i].Name] = &from.Nodes[i]
	}
	type change struct{ key, from, to string }
	var order []change
	nodes := map[change][]string{}
	add := func(c change, node string) {
		if nodes[c] == nil {
			order = append(order, c)
		}
		nodes[c] = append(nodes[c], node)
	}
	kept := make(map[string]bool, len(to.Nodes))
	for i := range to.Nodes {
		n := &to.Nodes[i]
		kept[n.Name] = true
		o := old[n.Name]
		if o == nil {
			add(change{to: nodeSummary(n)}, n.Name)
			continue
		}
		if a, b := nodePlace(o), nodePlace(n); a != b {
			out := change{"address", a, b}
			add(out, n.Name)
		}
		was := nodeFields(o)
		for j, f := range nodeFields(n) {
			if was[j].value != f.value {
				add(change{f.key, was[j].value, f.value}, n.Name)
			}
		}
	}
	for i := range from.Nodes {
		if n := &from.Nodes[i]; !kept[n.Name] {
			add(change{from: nodeSummary(n)}, n.Name)
		}
	}
	var out []Change
	for _, c := range order {
		ch := Change{Key: strings.TrimSpace("NodeName=" + hostlist.Compress(nodes[c]) + " " + c.key), Old: c.from, New: c.to}
		switch {
		case c.key == "" && c.from == "":
			ch.Note = "usable once its gnoded has registered"
		case c.key == "":
			ch.Note = "it takes no new job"
		case slices.Contains(hardware, c.key):
			ch.Effect = NextStart
		}
		out = append(out, ch)
	}
	return out
}

func nodePlace(n *NodeDef) string {
	s := n.Addr
	if n.Hostname != n.Name && n.Hostname != n.Addr {
		s = n.Hostname + "(" + n.Addr + ")"
	}
	return s
}

func nodeSummary(n *NodeDef) string {
	s := fmt.Sprintf("CPUs=%d RealMemory=%d", n.CPUs, n.RealMemoryMiB)
	for i, g := range n.Gres {
		if i == 0 {
			s += " Gres="
		} else {
			s += ","
		}
		s += g.String()
	}
	return s
}

func diffPartitions(from, to *Config) []Change {
	var out []Change
	fromIndex, toIndex := from.index(), to.index()
	for i := range to.Partitions {
		p := &to.Partitions[i]
		key := "PartitionName=" + p.Name
		o, had := from.Partition(p.Name)
		if !had {
			out = append(out, Change{Key: key, New: "Nodes=" + orNull(hostlist.Compress(p.Nodes))})
			continue
		}
		was := map[string]string{}
		old := partitionFields(from, o, fromIndex)
		for _, f := range old {
			was[f.key] = f.value
		}
		fields := partitionFields(to, p, toIndex)
		for _, f := range fields {
			if was[f.key] != f.value {
				out = append(out, Change{Key: key + " " + f.key, Old: was[f.key], New: f.value, Effect: partitionEffect(f.key)})
			}
			delete(was, f.key)
		}
		for _, f := range old { // keys that are shown only where they are set
			if _, gone := was[f.key]; gone {
				out = append(out, Change{Key: key + " " + f.key, Old: f.value, Effect: partitionEffect(f.key)})
			}
		}
	}
	for i := range from.Partitions {
		p := &from.Partitions[i]
		if _, kept := to.Partition(p.Name); !kept {
			out = append(out, Change{Key: "PartitionName=" + p.Name, Old: "Nodes=" + orNull(hostlist.Compress(p.Nodes)),
				Note: "its running jobs end there, its pending ones wait"})
		}
	}
	return out
}

// partitionFields are the keys of a partition, without those that follow from
// its nodes.
func partitionFields(c *Config, p *PartitionDef, index map[string]*NodeDef) []field {
	var out []field
	for _, kv := range c.partitionKeyValues(p, index) {
		switch kv.Key {
		case "TotalCPUs", "TotalNodes", "TRES":
		default:
			out = append(out, field{kv.Key, kv.Value})
		}
	}
	return out
}

// partitionEffect says when a changed key of a partition counts: limits and
// permissions are of submissions, the rest decides about starts.
func partitionEffect(key string) Effect {
	switch key {
	case "MaxTime", "DefaultTime", "MinNodes", "MaxNodes", "JobDefaults", "DisableRootJobs", "RootOnly", "Default",
		"DefMemPerCPU", "DefMemPerNode", "MaxMemPerCPU", "MaxMemPerNode",
		"AllowGroups", "AllowAccounts", "DenyAccounts", "AllowQos", "DenyQos", "AllocNodes":
		return NewJobs
	}
	return AtOnce
}

func showGres(g *Gres) string {
	var b strings.Builder
	if g.AutoDetect != "" {
		fmt.Fprintf(&b, "AutoDetect=%s\n", g.AutoDetect)
	}
	for _, r := range g.Records {
		r.File, r.Line = "", 0
		fmt.Fprintf(&b, "%s\n", r.String())
	}
	return b.String()
}

// String gives the record as a line of gres.conf.
func (g *GresRecord) String() string {
	var parts []string
	add := func(key, value string) {
		if value != "" {
			parts = append(parts, key+"="+value)
		}
	}
	ints := func(list []int) string {
		out := make([]string, len(list))
		for i, n := range list {
			out[i] = strconv.Itoa(n)
		}
		return strings.Join(out, ",")
	}
	add("NodeName", g.NodeExpr)
	add("AutoDetect", g.AutoDetect)
	add("Name", g.Name)
	add("Type", g.Type)
	add("File", hostlist.CompressInOrder(g.Files))
	add("MultipleFiles", hostlist.CompressInOrder(g.MultipleFiles))
	if g.Name != "" && g.Count != int64(max(len(g.Files), 1)) {
		add("Count", strconv.FormatInt(g.Count, 10))
	}
	add("Cores", hostlist.FormatIndexes(g.Cores))
	add("Links", ints(append(slices.Clone(g.Links.Counts), g.Links.Peers...)))
	add("Flags", strings.Join(g.Flags, ","))
	return strings.Join(parts, " ")
}

func showSwitches(t *Topology) string {
	var b strings.Builder
	for _, s := range t.Switches {
		fmt.Fprintf(&b, "SwitchName=%s", s.Name)
		if s.Nodes != nil {
			fmt.Fprintf(&b, " Nodes=%s", hostlist.Compress(s.Nodes))
		}
		if s.Children != nil {
			fmt.Fprintf(&b, " Switches=%s", hostlist.Compress(s.Children))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// firstDifference cuts two texts down to their first differing line.
func firstDifference(a, b string) (string, string) {
	la, lb := strings.Split(a, "\n"), strings.Split(b, "\n")
	i := 0
	for i < len(la)-1 && i < len(lb)-1 && la[i] == lb[i] {
		i++
	}
	return la[i], lb[i]
}
