package jobtext

import (
	"strconv"
	"strings"

	"gbatch/internal/format"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// This file owns ginfo's fields of partitions and nodes: sinfo's letters and names with its headings.

func NodeFields() []NodeField {
	return append(append(fieldsOfPartitions(), fieldsOfNodes()...), fieldsOfCounts()...)
}

func NodeLanguage(fields []NodeField) format.Language[NodeRow] {
	l := format.Language[NodeRow]{Noun: "node"}
	for i := range fields {
		l.Fields = append(l.Fields, fields[i].Field)
	}
	return l
}

func iPart(letter byte, name, heading string, get func(p *model.Partition) string) NodeField {
	return NodeField{format.Field[NodeRow]{Letter: letter, Name: name, Heading: heading,
		Get: func(r *NodeRow) string { return get(r.part) }}, ofPartition}
}

// iOld gives a field the name that older versions had for it too.
func iOld(name string, f NodeField) NodeField {
	f.Old = name
	return f
}

// iNode is a field of nodes; a partition without nodes shows none.
func iNode(letter byte, name, heading, none string, get func(n *proto.NodeInfo, r *NodeRow) string) NodeField {
	return NodeField{format.Field[NodeRow]{Letter: letter, Name: name, Heading: heading, Get: func(r *NodeRow) string {
		if n := r.first(); n != nil {
			return get(n, r)
		}
		return none
	}}, ofNode}
}

func iAtLeast(letter byte, name, heading string, get func(d *model.NodeDef) int64) NodeField {
	return NodeField{format.Field[NodeRow]{Letter: letter, Name: name, Heading: heading,
		Append: func(b []byte, r *NodeRow) []byte {
			return r.atLeast(b, func(n *proto.NodeInfo) int64 { return get(n.Node.Def) })
		}}, asRange}
}

func iSum(letter byte, name, heading string, add func(b []byte, r *NodeRow) []byte) NodeField {
	return NodeField{format.Field[NodeRow]{Letter: letter, Name: name, Heading: heading, Append: add}, asSum}
}

func iConst(name, heading, value string) NodeField {
	return NodeField{format.Field[NodeRow]{Name: name, Heading: heading, Get: func(*NodeRow) string { return value }},
		asSum}
}

func fieldsOfPartitions() []NodeField {
	num := func(n int32) string { return strconv.Itoa(int(n)) }
	return []NodeField{
		iPart('P', "Partition", "PARTITION", func(p *model.Partition) string {
			if p.Default {
				return p.Name + "*"
			}
			return p.Name
		}),
		iPart('R', "PartitionName", "PARTITION", func(p *model.Partition) string { return p.Name }),
		iPart('a', "Available", "AVAIL", func(p *model.Partition) string {
			if p.State == model.PartInactive {
				return "inactive"
			}
			return strings.ToLower(p.State.String())
		}),
		iPart('l', "Time", "TIMELIMIT", func(p *model.Partition) string { return partitionTime(p.MaxTimeS, "infinite") }),
		iPart('L', "DefaultTime", "DEFAULTTIME", func(p *model.Partition) string { return partitionTime(p.DefTimeS, "n/a") }),
		iPart('s', "Size", "JOB_SIZE", func(p *model.Partition) string {
			least, most := num(max(1, p.MinNodes)), "infinite"
			if p.MaxNodes > 0 {
				most = num(p.MaxNodes)
			}
			if least == most {
				return least
			}
			return least + "-" + most
		}),
		iOld("share", iPart('h', "OverSubscribe", "OVERSUBSCRIBE", func(p *model.Partition) string {
			if p.OverSubscribe == "" {
				return "NO"
			}
			return p.OverSubscribe
		})),
		iPart('g', "Groups", "GROUPS", func(p *model.Partition) string {
			if len(p.AllowGroups) == 0 {
				return "all"
			}
			return strings.Join(p.AllowGroups, ",")
		}),
		iPart('r', "Root", "ROOT", func(p *model.Partition) string {
			if p.RootOnly {
				return "yes"
			}
			return "no"
		}),
		iPart('p', "PriorityTier", "PRIO_TIER", func(p *model.Partition) string { return num(p.PriorityTier) }),
		iPart(0, "Priority", "PRIO_TIER", func(p *model.Partition) string { return num(p.PriorityTier) }),
		iPart('I', "PriorityJobFactor", "PRIO_JOB_FACTOR",
			func(p *model.Partition) string { return num(p.PriorityJobFactor) }),
		iPart('B', "MaxCPUsPerNode", "MAX_CPUS_PER_NODE", func(p *model.Partition) string {
			if p.MaxCPUsPerNode <= 0 {
				return "UNLIMITED"
			}
			return num(p.MaxCPUsPerNode)
		}),
		iPart('M', "PreemptMode", "PREEMPT_MODE",
			func(p *model.Partition) string { return shownOf(p, "PreemptMode", "OFF") }),
		iPart('S', "AllocNodes", "ALLOCNODES", func(p *model.Partition) string {
			return strings.Replace(shownOf(p, "AllocNodes", "all"), "ALL", "all", 1)
		}),
	}
}

// shownOf gives a setting of a partition as gcontrol shows it.
func shownOf(p *model.Partition, key, instead string) string {
	for _, kv := range p.Show {
		if kv.Key == key {
			return kv.Value
		}
	}
	return instead
}

func partitionTime(s int64, none string) string {
	switch {
	case s >= model.Unlimited:
		return "infinite"
	case s <= 0:
		return none
	}
	return walltime.Short(s)
}

func fieldsOfNodes() []NodeField {
	return []NodeField{
		iNode('t', "StateCompact", "STATE", "n/a", func(n *proto.NodeInfo, _ *NodeRow) string { return shortState(n) }),
		iNode('T', "StateLong", "STATE", "n/a", func(n *proto.NodeInfo, _ *NodeRow) string { return longState(n) }),
		iNode(0, "StateComplete", "STATECOMPLETE", "n/a",
			func(n *proto.NodeInfo, _ *NodeRow) string { return stateComplete(n) }),
		iNode('G', "Gres", "GRES", "(null)",
			func(n *proto.NodeInfo, _ *NodeRow) string { return orNull(gresDefText(n.Node.Def.Gres)) }),
		iNode(0, "GresUsed", "GRES_USED", "(null)",
			func(n *proto.NodeInfo, _ *NodeRow) string { return orNull(gresUsedText(n.Node)) }),
		iNode('f', "Features", "AVAIL_FEATURES", "(null)",
			func(n *proto.NodeInfo, _ *NodeRow) string { return orNull(strings.Join(n.Node.Def.CanHave(), ",")) }),
		iNode('b', "features_act", "ACTIVE_FEATURES", "(null)",
			func(n *proto.NodeInfo, _ *NodeRow) string { return orNull(strings.Join(n.Node.Def.Features, ",")) }),
		iNode('n', "NodeHost", "HOSTNAMES", "",
			func(n *proto.NodeInfo, _ *NodeRow) string { return n.Node.Def.HostName() }),
		iNode('o', "NodeAddr", "NODE_ADDR", "", func(n *proto.NodeInfo, _ *NodeRow) string { return NodeAddr(n.Node.Def) }),
		iNode('E', "Reason", "REASON", "none", func(n *proto.NodeInfo, _ *NodeRow) string {
			if n.Node.Reason == "" {
				return "none"
			}
			return n.Node.Reason
		}),
		iNode('H', "TimeStamp", "TIMESTAMP", "Unknown", func(n *proto.NodeInfo, r *NodeRow) string {
			return string(r.Append(nil, n.Node.ReasonAt, "Unknown"))
		}),
		iNode('u', "User", "USER", "Unknown", func(n *proto.NodeInfo, _ *NodeRow) string { return reasonUser(n.Node) }),
		iNode('U', "UserLong", "USER", "Unknown", func(n *proto.NodeInfo, r *NodeRow) string {
			name := reasonUser(n.Node)
			uid, err := r.UIDOf(name)
			if err != nil {
				return name // of another host
			}
			return name + "(" + strconv.FormatUint(uint64(uid), 10) + ")"
		}),
		iNode('v', "Version", "VERSION", "N/A", func(n *proto.NodeInfo, _ *NodeRow) string { return orNA(n.Node.Version) }),
		iNode(0, "Allocmem", "ALLOCMEM", "0",
			func(n *proto.NodeInfo, _ *NodeRow) string { return strconv.FormatInt(n.Node.UsedMem, 10) }),
	}
}

// NodeAddr gives the address of a node.
func NodeAddr(d *model.NodeDef) string {
	if d.Addr == "" {
		return d.Name
	}
	return d.Addr
}

func reasonUser(n *model.Node) string {
	switch {
	case n.Reason == "":
		return "Unknown"
	case n.ReasonBy == "":
		return "root"
	}
	return n.ReasonBy
}

func loadMilli(n *proto.NodeInfo) int64 {
	if n.LoadMilli < 0 {
		return unknownMost
	}
	return n.LoadMilli
}

func freeMem(n *proto.NodeInfo) int64 {
	if n.FreeMemMiB < 0 {
		return unknownMost
	}
	return n.FreeMemMiB
}

func appendSlashes(b []byte, parts ...int64) []byte {
	for i, p := range parts {
		if i > 0 {
			b = append(b, '/')
		}
		b = strconv.AppendInt(b, p, 10)
	}
	return b
}

func fieldsOfCounts() []NodeField {
	sockets := func(d *model.NodeDef) int64 { return int64(d.Sockets) }
	cores := func(d *model.NodeDef) int64 { return int64(d.CoresPerSocket) }
	threads := func(d *model.NodeDef) int64 { return int64(d.ThreadsPerCore) }
	return []NodeField{
		iAtLeast('c', "CPUs", "CPUS", func(d *model.NodeDef) int64 { return int64(d.CPUs) }),
		iAtLeast('m', "Memory", "MEMORY", func(d *model.NodeDef) int64 { return d.MemMiB }),
		iAtLeast('d', "Disk", "TMP_DISK", func(d *model.NodeDef) int64 { return d.TmpMiB }),
		iAtLeast('w', "Weight", "WEIGHT", func(d *model.NodeDef) int64 { return int64(d.Weight) }),
		iAtLeast('X', "Sockets", "SOCKETS", sockets),
		iAtLeast('Y', "Cores", "CORES", cores),
		iAtLeast('Z', "Threads", "THREADS", threads),
		{format.Field[NodeRow]{Letter: 'z', Name: "SocketCoreThread", Heading: "S:C:T",
			Append: func(b []byte, r *NodeRow) []byte {
				for i, get := range []func(*model.NodeDef) int64{sockets, cores, threads} {
					if i > 0 {
						b = append(b, ':')
					}
					b = r.atLeast(b, func(n *proto.NodeInfo) int64 { return get(n.Node.Def) })
				}
				return b
			}}, asRange},
		{format.Field[NodeRow]{Letter: 'e', Name: "FreeMem", Heading: "FREE_MEM", Append: func(b []byte, r *NodeRow) []byte {
			return r.between(b, freeMem, func(b []byte, v int64) []byte { return strconv.AppendInt(b, v, 10) })
		}}, asRange},
		{format.Field[NodeRow]{Letter: 'O', Name: "CPUsLoad", Heading: "CPU_LOAD", Append: func(b []byte, r *NodeRow) []byte {
			return r.between(b, loadMilli,
				func(b []byte, v int64) []byte { return strconv.AppendFloat(b, float64(v)/1000, 'f', 2, 64) })
		}}, asRange},
		iSum('D', "Nodes", "NODES", func(b []byte,
			r *NodeRow) []byte {
			return strconv.AppendInt(b, int64(len(r.nodes)), 10)
		}),
		iSum('A', "NodeAI", "NODES(A/I)", func(b []byte, r *NodeRow) []byte {
			a, i, _ := r.counts()
			return appendSlashes(b, int64(a), int64(i))
		}),
		iSum('F', "NodeAIOT", "NODES(A/I/O/T)", func(b []byte, r *NodeRow) []byte {
			a, i, o := r.counts()
			return appendSlashes(b, int64(a), int64(i), int64(o), int64(len(r.nodes)))
		}),
		iSum('C', "CPUsState", "CPUS(A/I/O/T)",
			func(b []byte, r *NodeRow) []byte { a, i, o, t := r.cpuCounts(); return appendSlashes(b, a, i, o, t) }),
		iSum('N', "NodeList", "NODELIST", func(b []byte, r *NodeRow) []byte { return append(b, r.list()...) }),
		{format.Field[NodeRow]{Letter: 'V', Name: "Cluster", Heading: "CLUSTER", Get: func(*NodeRow) string { return "N/A" }},
			asSum},
		iNode('i', "Reservation", "RESERVATION", "", func(n *proto.NodeInfo, _ *NodeRow) string { return n.Resv }),
		iNode(0, "Comment", "COMMENT", "(null)",
			func(n *proto.NodeInfo, _ *NodeRow) string { return orNull(n.Node.Comment) }),
		iNode(0, "Extra", "EXTRA", "(null)", func(n *proto.NodeInfo, _ *NodeRow) string { return orNull(n.Node.Extra) }),
		iConst("Port", "PORT", "0"),
	}
}
