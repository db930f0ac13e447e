package conf

import (
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/hostlist"
)

// field is one shown property of a node or partition.
type field struct{ key, value string }

func nodeFields(n *NodeDef) []field {
	num := func(v int64) string { return strconv.FormatInt(v, 10) }
	var gres []string
	for _, g := range n.Gres {
		gres = append(gres, g.String())
	}
	return []field{
		{"CPUs", num(n.CPUs)}, {"Boards", num(n.Boards)}, {"Sockets", num(n.Sockets)},
		{"CoresPerSocket", num(n.CoresPerSocket)},
		{"ThreadsPerCore", num(n.ThreadsPerCore)}, {"RealMemory", num(n.RealMemoryMiB)},
		{"MemSpecLimit", num(n.MemSpecLimitMiB)},
		{"CoreSpecCount", num(n.CoreSpecCount)}, {"CpuSpecList", orNull(hostlist.FormatIndexes(n.CPUSpecList))},
		{"TmpDisk", num(n.TmpDiskMiB)},
		{"Gres", orNull(strings.Join(gres, ","))}, {"Features", orNull(strings.Join(n.Features, ","))},
		{"Weight", num(n.Weight)},
		{"CpuBind", orNull(n.CPUBind)}, {"State", n.State}, {"Virtual", showBool(n.Virtual)},
	}
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
