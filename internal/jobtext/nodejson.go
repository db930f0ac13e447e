package jobtext

import (
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// This file owns a node as scontrol show node --json and sinfo --json have it.

// NodeOf is a node, with its cluster, and for sinfo's own list one of its partitions.
type NodeOf struct {
	*proto.NodeInfo
	Cluster string
	Part    *model.Partition

	PartCPUs int64 // of all nodes of Part
}

// nodeStatesJSON gives the base state and the flags, in capitals.
func nodeStatesJSON(n *proto.NodeInfo) []string {
	return strings.Split(strings.ToUpper(stateComplete(n)), "+")
}

func (n *NodeOf) idleCPUs() int64 { return int64(n.Node.Def.JobCPUCount()) - usedCPUs(n.Node) }

// load gives the load in hundredths; freeMem the free memory in MiB. Neither is known of every node.
func (n *NodeOf) load() (int64, bool, bool) { return max(0, n.LoadMilli/10), n.LoadMilli >= 0, false }

func (n *NodeOf) freeMem() (int64, bool, bool) { return max(0, n.FreeMemMiB), n.FreeMemMiB >= 0, false }

// NodeJSON is a node's object.
func NodeJSON() []slurmjson.Field[NodeOf] {
	num := func(name string, get func(d *model.NodeDef) int64) slurmjson.Field[NodeOf] {
		return slurmjson.Field[NodeOf]{Name: name, Int: func(n *NodeOf) int64 { return get(n.Node.Def) }}
	}
	return append([]slurmjson.Field[NodeOf]{
		{Name: "name", Str: func(n *NodeOf) string { return n.Node.Def.Name }},
		{Name: "hostname", Str: func(n *NodeOf) string { return n.Node.Def.HostName() }},
		{Name: "address", Str: func(n *NodeOf) string { return NodeAddr(n.Node.Def) }},
		{Name: "cluster_name", Str: func(n *NodeOf) string { return n.Cluster }},
		{Name: "architecture", Str: func(n *NodeOf) string { return n.Node.Arch }},
		{Name: "operating_system", Str: func(n *NodeOf) string { return n.Node.OS }},
		{Name: "version", Str: func(n *NodeOf) string { return n.Node.Version }},
		{Name: "state", In: slurmjson.InOld,
			Str: func(n *NodeOf) string { return strings.ToLower(nodeStatesJSON(n.NodeInfo)[0]) }},
		{Name: "state_flags", In: slurmjson.InOld, List: func(n *NodeOf) []string { return nodeStatesJSON(n.NodeInfo)[1:] }},
		{Name: "state", In: slurmjson.InNew, List: func(n *NodeOf) []string { return nodeStatesJSON(n.NodeInfo) }},
		{Name: "reservation", Str: func(n *NodeOf) string { return n.Resv }},
		{Name: "reason", Str: func(n *NodeOf) string { return n.Node.Reason }},
		{Name: "reason_set_by_user", Str: func(n *NodeOf) string { return n.Node.ReasonBy }},
		{Name: "reason_changed_at", Time: func(n *NodeOf) model.Time { return n.Node.ReasonAt }},
		num("cpus", func(d *model.NodeDef) int64 { return int64(d.CPUs) }),
		num("effective_cpus", func(d *model.NodeDef) int64 { return int64(d.JobCPUCount()) }),
		num("boards", func(d *model.NodeDef) int64 { return int64(max(1, d.Boards)) }),
		num("sockets", func(d *model.NodeDef) int64 { return int64(d.Sockets) }),
		num("cores", func(d *model.NodeDef) int64 { return int64(d.CoresPerSocket) }),
		num("threads", func(d *model.NodeDef) int64 { return int64(d.ThreadsPerCore) }),
		{Name: "alloc_cpus", Int: func(n *NodeOf) int64 { return usedCPUs(n.Node) }},
		{Name: "alloc_idle_cpus", Int: (*NodeOf).idleCPUs},
		{Name: "idle_cpus", Int: (*NodeOf).idleCPUs},
		num("real_memory", func(d *model.NodeDef) int64 { return d.MemMiB }),
		{Name: "alloc_memory", Int: func(n *NodeOf) int64 { return n.Node.UsedMem }},
		{Name: "free_memory", In: slurmjson.InOld, Int: func(n *NodeOf) int64 { return max(0, n.FreeMemMiB) }},
		{Name: "free_mem", Num: (*NodeOf).freeMem},
		{Name: "cpu_load", Int: func(n *NodeOf) int64 { return max(0, n.LoadMilli/10) }},
		num("temporary_disk", func(d *model.NodeDef) int64 { return d.TmpMiB }),
		num("weight", func(d *model.NodeDef) int64 { return int64(d.Weight) }),
		{Name: "features", Words: func(n *NodeOf) []string { return n.Node.Def.CanHave() }},
		{Name: "active_features", Words: func(n *NodeOf) []string { return n.Node.Def.Features }},
		{Name: "gres", Str: func(n *NodeOf) string { return gresDefText(n.Node.Def.Gres) }},
		{Name: "gres_used", Str: func(n *NodeOf) string { return gresUsedText(n.Node) }},
		{Name: "partitions", List: func(n *NodeOf) []string { return n.Partitions }},
		{Name: "boot_time", Time: func(n *NodeOf) model.Time { return n.Node.BootAt }},
		{Name: "slurmd_start_time", Time: func(n *NodeOf) model.Time { return n.Node.UpSince }},
		{Name: "last_busy", Time: func(n *NodeOf) model.Time { return n.Node.BusyAt }},
		{Name: "comment", Str: nodeComment},
		{Name: "extra", Str: nodeExtra},
	}, nodeMembers()...)
}

func nodeComment(n *NodeOf) string { return n.Node.Comment }

func nodeExtra(n *NodeOf) string { return n.Node.Extra }

// row gives the node as the one line of its partition.
func (n *NodeOf) row() *NodeRow { return &NodeRow{part: n.Part, nodes: []*proto.NodeInfo{n.NodeInfo}} }

// span is a number that differs between nodes; here of one node.
func span(name string, get func(d *model.NodeDef) int64) slurmjson.Field[NodeOf] {
	v := func(n *NodeOf) int64 { return get(n.Node.Def) }
	return slurmjson.Field[NodeOf]{Name: name,
		Fields: []slurmjson.Field[NodeOf]{{Name: "minimum", Int: v}, {Name: "maximum", Int: v}}}
}

// SinfoJSON is the object of a node in one of its partitions in sinfo's own list.
func SinfoJSON() []slurmjson.Field[NodeOf] {
	type fields = []slurmjson.Field[NodeOf]
	name := func(n *NodeOf) []string { return []string{n.Node.Def.Name} }
	host := func(n *NodeOf) []string { return []string{n.Node.Def.HostName()} }
	count := func(which int) func(n *NodeOf) int64 {
		return func(n *NodeOf) int64 {
			alloc, idle, other := n.row().counts()
			return int64([...]int{alloc, idle, other}[which])
		}
	}
	cpus := func(which int) func(n *NodeOf) int64 {
		return func(n *NodeOf) int64 {
			alloc, idle, other, all := n.row().cpuCounts()
			return [...]int64{alloc, idle, other, all}[which]
		}
	}
	part := slices.DeleteFunc(PartitionJSON(), func(f slurmjson.Field[PartitionOf]) bool { return f.Since != "" })
	ofCPUs := func(d *model.NodeDef) int64 { return int64(d.CPUs) }
	return fields{
		{Name: "port", Type: slurmjson.Integer},
		{Name: "node", Fields: fields{{Name: "state", List: func(n *NodeOf) []string { return nodeStatesJSON(n.NodeInfo) }}}},
		{Name: "nodes", Fields: fields{
			{Name: "allocated", Int: count(0)},
			{Name: "idle", Int: count(1)},
			{Name: "other", Int: count(2)},
			{Name: "total", Int: func(*NodeOf) int64 { return 1 }},
			{Name: "hostnames", List: host},
			{Name: "addresses", List: func(n *NodeOf) []string { return []string{NodeAddr(n.Node.Def)} }},
			{Name: "nodes", List: name},
		}},
		{Name: "cpus", Fields: append(append(fields{
			{Name: "allocated", Int: cpus(0)},
			{Name: "idle", Int: cpus(1)},
			{Name: "other", Int: cpus(2)},
			{Name: "total", Int: cpus(3)},
		}, span("", ofCPUs).Fields...),
			slurmjson.Field[NodeOf]{Name: "load",
				Fields: fields{{Name: "minimum", Num: (*NodeOf).load}, {Name: "maximum", Num: (*NodeOf).load}}},
			slurmjson.Field[NodeOf]{Name: "per_node", Fields: fields{{Name: "max",
				Num: func(n *NodeOf) (int64, bool, bool) { return atMost(n.Part.MaxCPUsPerNode) }}}})},
		span("sockets", func(d *model.NodeDef) int64 { return int64(d.Sockets) }),
		span("cores", func(d *model.NodeDef) int64 { return int64(d.CoresPerSocket) }),
		span("threads", func(d *model.NodeDef) int64 { return int64(d.ThreadsPerCore) }),
		span("disk", func(d *model.NodeDef) int64 { return d.TmpMiB }),
		{Name: "memory", Fields: append(span("", func(d *model.NodeDef) int64 { return d.MemMiB }).Fields,
			slurmjson.Field[NodeOf]{Name: "free",
				Fields: fields{{Name: "minimum", Num: (*NodeOf).freeMem}, {Name: "maximum", Num: (*NodeOf).freeMem}}},
			slurmjson.Field[NodeOf]{Name: "allocated", Int: func(n *NodeOf) int64 { return n.Node.UsedMem }})},
		span("weight", func(d *model.NodeDef) int64 { return int64(d.Weight) }),
		{Name: "features", Fields: fields{
			{Name: "total", Str: func(n *NodeOf) string { return strings.Join(n.Node.Def.CanHave(), ",") }},
			{Name: "active", Str: func(n *NodeOf) string { return strings.Join(n.Node.Def.Features, ",") }},
		}},
		{Name: "gres", Fields: fields{
			{Name: "total", Str: func(n *NodeOf) string { return gresDefText(n.Node.Def.Gres) }},
			{Name: "used", Str: func(n *NodeOf) string { return gresUsedText(n.Node) }},
		}},
		{Name: "cluster", Str: func(n *NodeOf) string { return n.Cluster }},
		{Name: "reason", Fields: fields{
			{Name: "description", Str: func(n *NodeOf) string { return n.Node.Reason }},
			{Name: "user", Str: func(n *NodeOf) string { return n.Node.ReasonBy }},
			{Name: "time", Time: func(n *NodeOf) model.Time { return n.Node.ReasonAt }},
		}},
		{Name: "comment", Str: nodeComment}, {Name: "extra", Str: nodeExtra},
		{Name: "reservation", Str: func(n *NodeOf) string { return n.Resv }},
		{Name: "partition", Put: func(w *slurmjson.Writer, name string, n *NodeOf) {
			slurmjson.Write(w, name, part, &PartitionOf{Partition: n.Part, CPUs: n.PartCPUs, Cluster: n.Cluster})
		}, Inner: func() []string { return slurmjson.Describe(part) }},
	}
}
