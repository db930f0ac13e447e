package cli

import (
	"fmt"
	"strconv"
	"strings"

	"gbatch/internal/cli/format"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/version"
)

// infoScope says what a column is about, which decides how nodes are put together.
type infoScope uint8

const (
	ofAll  infoScope = iota // of the row's nodes together: never separates them
	ofNode                  // of each node: unequal ones make rows of their own
	ofSize                  // a size of each node: separates only with --exact
	ofPart                  // of the partition
)

type infoField struct {
	format.Field[infoRow]
	scope infoScope
}

// infoFields are ginfo's columns: letter for -o, name for -O.
func infoFields() []infoField {
	type row = infoRow
	type info = *proto.NodeInfo
	f := func(letter byte, name, heading string, scope infoScope, get func(*row) string) infoField {
		return infoField{format.Field[row]{Letter: letter, Name: name, Heading: heading, Get: get, Left: true}, scope}
	}
	node := func(none string, of func(info) string) func(*row) string {
		return func(r *row) string { return r.one(none, of) }
	}
	def := func(of func(*model.NodeDef) int64) func(*row) string {
		return func(r *row) string { return r.size(of) }
	}
	word := func(s string) func(*row) string { return func(*row) string { return s } }
	load := func(r *row) string {
		return r.span(func(i info) int64 { return i.LoadMilli }, func(v int64) string { return fmt.Sprintf("%.2f", float64(v)/1000) })
	}
	free := func(r *row) string {
		return r.span(func(i info) int64 { return i.FreeMemMiB }, func(v int64) string { return strconv.FormatInt(v, 10) })
	}
	shape := func(r *row) string {
		parts := []func(*model.NodeDef) int64{func(d *model.NodeDef) int64 { return int64(d.Sockets) },
			func(d *model.NodeDef) int64 { return int64(d.CoresPerSocket) }, func(d *model.NodeDef) int64 { return int64(d.ThreadsPerCore) }}
		var out []string
		for _, p := range parts {
			out = append(out, r.size(p))
		}
		return strings.Join(out, ":")
	}
	sizeText := func(r *row) string {
		return r.partText(func(p *model.Partition) string {
			least, most := max(1, p.MinNodes), "infinite"
			if p.MaxNodes > 0 {
				most = strconv.Itoa(int(p.MaxNodes))
			}
			if strconv.Itoa(int(least)) == most {
				return most
			}
			return fmt.Sprintf("%d-%s", least, most)
		})
	}
	avail := func(r *row) string {
		return r.partText(func(p *model.Partition) string {
			switch p.State {
			case model.PartUp:
				return "up"
			case model.PartInactive:
				return "inact"
			}
			return strings.ToLower(p.State.String())
		})
	}
	reasonUser := func(uid bool) func(info) string {
		return func(i info) string {
			by := i.Node.ReasonBy
			if by == "" {
				return "Unknown"
			}
			if uid {
				if n, err := uidOf(by); err == nil {
					return fmt.Sprintf("%s(%d)", by, n)
				}
			}
			return by
		}
	}
	memory := func(d *model.NodeDef) int64 { return d.MemMiB }
	name := func(i info) string { return i.Node.Def.Name }
	addr := func(i info) string {
		if a := i.Node.Def.Addr; a != "" {
			return a
		}
		return i.Node.Def.Name
	}
	return []infoField{
		f('a', "Available", "AVAIL", ofPart, avail),
		f('A', "NodeAI", "NODES(A/I)", ofAll, func(r *row) string { return r.nodeStates(false) }),
		f('b', "features_act", "ACTIVE_FEATURES", ofNode, node("", func(i info) string { return orNull(strings.Join(i.Node.Def.Features, ",")) })),
		f('B', "MaxCPUsPerNode", "MAX_CPUS_PER_NODE", ofPart, func(r *row) string { return r.shown("MaxCPUsPerNode") }),
		f('c', "CPUs", "CPUS", ofSize, def(func(d *model.NodeDef) int64 { return int64(d.CPUs) })),
		f('C', "CPUsState", "CPUS(A/I/O/T)", ofAll, (*row).cpuStates),
		f('d', "Disk", "TMP_DISK", ofSize, def(func(d *model.NodeDef) int64 { return d.TmpMiB })),
		f('D', "Nodes", "NODES", ofAll, func(r *row) string { return strconv.Itoa(len(r.nodes)) }),
		f('e', "FreeMem", "FREE_MEM", ofSize, free),
		f('E', "Reason", "REASON", ofNode, node("none", func(i info) string {
			if i.Node.Reason == "" {
				return "none"
			}
			return i.Node.Reason
		})),
		f('f', "Features", "AVAIL_FEATURES", ofNode, node("", func(i info) string { return orNull(strings.Join(i.Node.Def.Features, ",")) })),
		f('F', "NodeAIOT", "NODES(A/I/O/T)", ofAll, func(r *row) string { return r.nodeStates(true) }),
		f('g', "Groups", "GROUPS", ofPart, func(r *row) string { return strings.ToLower(r.shown("AllowGroups")) }),
		f('G', "Gres", "GRES", ofNode, node("(null)", func(i info) string { return orNull(gresDefText(i.Node.Def.Gres)) })),
		f(0, "GresUsed", "GRES_USED", ofNode, node("(null)", func(i info) string { return orNull(gresUsedText(i.Node)) })),
		f('h', "OverSubscribe", "OVERSUBSCRIBE", ofPart, func(r *row) string { return r.shown("OverSubscribe") }),
		f('H', "TimeStamp", "TIMESTAMP", ofNode, func(r *row) string {
			return r.one("Unknown", func(i info) string { return string(r.append(nil, i.Node.ReasonAt, "Unknown")) })
		}),
		f('i', "Reservation", "RESERVATION", ofNode, word("")),
		f('I', "PriorityJobFactor", "PRIO_JOB_FACTOR", ofPart, func(r *row) string { return r.shown("PriorityJobFactor") }),
		f('l', "Time", "TIMELIMIT", ofPart, func(r *row) string {
			return r.partText(func(p *model.Partition) string { return timeText(p.MaxTimeS, "infinite") })
		}),
		f('L', "DefaultTime", "DEFAULTTIME", ofPart, func(r *row) string {
			return r.partText(func(p *model.Partition) string { return timeText(p.DefTimeS, "n/a") })
		}),
		f('m', "Memory", "MEMORY", ofSize, def(memory)),
		f(0, "AllocMem", "ALLOCMEM", ofNode, node("0", func(i info) string { return strconv.FormatInt(i.Node.UsedMem, 10) })),
		f('M', "PreemptMode", "PREEMPT_MODE", ofPart, func(r *row) string { return r.shown("PreemptMode") }),
		f('n', "NodeHost", "HOSTNAMES", ofNode, node("", addr)),
		f('N', "NodeList", "NODELIST", ofAll, (*row).nodeList),
		f('o', "NodeAddr", "NODE_ADDR", ofNode, node("", addr)),
		f('O', "CPUsLoad", "CPU_LOAD", ofSize, load),
		f('p', "PriorityTier", "PRIO_TIER", ofPart, func(r *row) string { return r.shown("PriorityTier") }),
		f('P', "Partition", "PARTITION", ofPart, (*row).partName),
		f('r', "Root", "ROOT", ofPart, func(r *row) string { return strings.ToLower(r.shown("RootOnly")) }),
		f('R', "PartitionName", "PARTITION", ofPart, func(r *row) string { return r.partText(func(p *model.Partition) string { return p.Name }) }),
		f('s', "Size", "JOB_SIZE", ofPart, sizeText),
		f('S', "AllocNodes", "ALLOCNODES", ofPart, func(r *row) string { return strings.ToLower(r.shown("AllocNodes")) }),
		f('t', "StateCompact", "STATE", ofNode, func(r *row) string { return r.state(true) }),
		f('T', "StateLong", "STATE", ofNode, func(r *row) string { return r.state(false) }),
		f(0, "StateComplete", "STATE", ofNode, node("n/a", func(i info) string { return strings.ToLower(i.Node.BaseState()) })),
		f('u', "User", "USER", ofNode, node("Unknown", reasonUser(false))),
		f('U', "UserLong", "USER", ofNode, node("Unknown", reasonUser(true))),
		f('v', "Version", "VERSION", ofNode, node("", func(i info) string { return orUnset(i.Node.Version) })),
		f('V', "Cluster", "CLUSTER", ofAll, func(r *row) string { return r.cluster }),
		f('w', "Weight", "WEIGHT", ofSize, def(func(d *model.NodeDef) int64 { return int64(d.Weight) })),
		f('X', "Sockets", "SOCKETS", ofSize, def(func(d *model.NodeDef) int64 { return int64(d.Sockets) })),
		f('Y', "Cores", "CORES", ofSize, def(func(d *model.NodeDef) int64 { return int64(d.CoresPerSocket) })),
		f('Z', "Threads", "THREADS", ofSize, def(func(d *model.NodeDef) int64 { return int64(d.ThreadsPerCore) })),
		f('z', "SocketCoreThread", "S:C:T", ofSize, shape),
		f(0, "Comment", "COMMENT", ofNode, word("(null)")),
		f(0, "Extra", "EXTRA", ofNode, word("(null)")),
		f(0, "Port", "PORT", ofNode, word("0")),
		f(0, "NodeNames", "NODELIST", ofNode, node("", name)),
		f(0, "SlurmVersion", "SLURM_VERSION", ofAll, word(version.Slurm)),
	}
}

// orUnset gives s, or n/a for nothing.
func orUnset(s string) string {
	if s == "" {
		return "n/a"
	}
	return s
}
