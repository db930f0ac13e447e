package jobtext

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/format"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// This file owns ginfo's grouping of nodes: one row for all nodes of a partition whose shown fields are equal, as in
// sinfo. A field of a partition or of a node splits rows; a range (CPUs, memory, ...) splits them with --exact only and
// otherwise shows the least value and a +; a sum never splits.

// nodeKind is a field's role in the grouping.
type nodeKind uint8

const (
	ofPartition nodeKind = iota
	ofNode
	asRange
	asSum
)

// NodeField is a field of ginfo with its kind.
type NodeField struct {
	format.Field[NodeRow]
	kind nodeKind
}

// NodeView has the data that the rows of one ginfo table share.
type NodeView struct {
	Times
	UIDOf func(name string) (uint32, error) // a user's number on this host
}

// NodeRow is one line: nodes of one partition or, if no field of partitions is shown, of any.
type NodeRow struct {
	*NodeView
	part  *model.Partition
	order int // of the partition in the configuration
	nodes []*proto.NodeInfo
	names map[string]bool // of nodes
}

// NodeTable is the data for a table, and the options of what to show.
type NodeTable struct {
	NodeView
	Parts  []*model.Partition
	Nodes  map[string]*proto.NodeInfo
	Pick   func(*proto.NodeInfo) bool
	Once   bool // a node stands in its first partition only
	ByNode bool // -N: a line per node and partition
	Empty  bool // lines for partitions without nodes
	Exact  bool
}

// Rows groups the nodes for the fields that p shows.
func (t *NodeTable) Rows(p *format.Printer[NodeRow], fields []NodeField, lang *format.Language[NodeRow]) []NodeRow {
	var split []*format.Field[NodeRow]
	perPart := t.ByNode
	for f := range p.Fields {
		i := slices.IndexFunc(fields, func(x NodeField) bool { return x.Name == f.Name && x.Letter == f.Letter })
		if i < 0 {
			continue
		}
		switch fields[i].kind {
		case ofPartition:
			perPart = true
			split = append(split, &lang.Fields[i])
		case ofNode:
			split = append(split, &lang.Fields[i])
		case asRange:
			if t.Exact {
				split = append(split, &lang.Fields[i])
			}
		}
	}
	var out []*NodeRow
	index := map[string]*NodeRow{}
	var key []byte
	add := func(order int, part *model.Partition, n *proto.NodeInfo) {
		one := NodeRow{NodeView: &t.NodeView, part: part, order: order}
		if n != nil {
			one.nodes = []*proto.NodeInfo{n}
		}
		key = key[:0]
		if perPart {
			key = strconv.AppendInt(key, int64(order), 10)
		}
		if t.ByNode && n != nil {
			key = append(append(key, 0), n.Node.Def.Name...)
		}
		for _, f := range split {
			key = append(key, 0)
			if f.Append != nil {
				key = f.Append(key, &one)
			} else {
				key = append(key, f.Get(&one)...)
			}
		}
		row := index[string(key)]
		if row == nil {
			row = &NodeRow{NodeView: &t.NodeView, part: part, order: order, names: map[string]bool{}}
			index[string(key)] = row
			out = append(out, row)
		}
		if n != nil && !row.names[n.Node.Def.Name] {
			row.names[n.Node.Def.Name] = true
			row.nodes = append(row.nodes, n)
		}
	}
	seen := map[string]bool{}
	for i, part := range t.Parts {
		some := false
		for _, name := range part.Nodes {
			if n := t.Nodes[name]; n != nil && t.Pick(n) && !(t.Once && seen[name]) {
				seen[name] = true
				some = true
				add(i, part, n)
			}
		}
		if !some && t.Empty && perPart {
			add(i, part, nil)
		}
	}
	rows := make([]NodeRow, len(out))
	for i, r := range out {
		rows[i] = *r
	}
	return rows
}

// first gives a node of the row, or nil.
func (r *NodeRow) first() *proto.NodeInfo {
	if len(r.nodes) == 0 {
		return nil
	}
	return r.nodes[0]
}

func (r *NodeRow) list() string {
	names := make([]string, len(r.nodes))
	for i, n := range r.nodes {
		names[i] = n.Node.Def.Name
	}
	return hostlist.CompressSorted(names)
}

// span gives the least and the most of something over the row's nodes.
func (r *NodeRow) span(get func(*proto.NodeInfo) int64) (least, most int64) {
	for i, n := range r.nodes {
		v := get(n)
		if i == 0 || v < least {
			least = v
		}
		if i == 0 || v > most {
			most = v
		}
	}
	return least, most
}

// atLeast writes the least, followed by + if nodes differ.
func (r *NodeRow) atLeast(b []byte, get func(*proto.NodeInfo) int64) []byte {
	least, most := r.span(get)
	b = strconv.AppendInt(b, least, 10)
	if most > least {
		b = append(b, '+')
	}
	return b
}

// unknownMost stands for a missing measure; it is more than any value.
const unknownMost = math.MaxInt64

// between writes least-most, or one number where nodes agree.
func (r *NodeRow) between(b []byte, get func(*proto.NodeInfo) int64, one func(b []byte, v int64) []byte) []byte {
	write := func(b []byte, v int64) []byte {
		if v == unknownMost {
			return append(b, "N/A"...)
		}
		return one(b, v)
	}
	least, most := r.span(get)
	b = write(b, least)
	if most > least {
		b = write(append(b, '-'), most)
	}
	return b
}

// counts gives nodes allocated, idle and other.
func (r *NodeRow) counts() (alloc, idle, other int) {
	for _, n := range r.nodes {
		switch base, drain, _ := NodeState(n.Node); {
		case base == NodeAllocated || base == NodeMixed:
			alloc++
		case base == NodeIdle && !drain:
			idle++
		default:
			other++
		}
	}
	return alloc, idle, other
}

// cpuCounts gives CPUs allocated, idle, other and all.
func (r *NodeRow) cpuCounts() (alloc, idle, other, all int64) {
	for _, n := range r.nodes {
		used, total := usedCPUs(n.Node), int64(n.Node.Def.CPUs)
		alloc += used
		all += total
		if base, drain, _ := NodeState(n.Node); drain || base == NodeDown || base == NodeUnknown || base == NodeFuture {
			other += total - used
		} else {
			kept := int64(n.Node.Def.Kept.Count())
			other += kept
			idle += total - used - kept
		}
	}
	return alloc, idle, other, all
}

func usedCPUs(n *model.Node) int64 {
	if n.Exclusive != 0 {
		return int64(n.Def.JobCPUCount())
	}
	return int64(n.UsedCPUs.Count())
}

// baseState is a node's state without flags. The numbers are Slurm's: rows are sorted by them.
type baseState int

const (
	NodeUnknown   baseState = 0
	NodeDown      baseState = 1
	NodeIdle      baseState = 2
	NodeAllocated baseState = 3
	NodeMixed     baseState = 5
	NodeFuture    baseState = 6
)

func (s baseState) String() string {
	switch s {
	case NodeDown:
		return "down"
	case NodeIdle:
		return "idle"
	case NodeAllocated:
		return "allocated"
	case NodeMixed:
		return "mixed"
	case NodeFuture:
		return "future"
	}
	return "unknown"
}

func NodeState(n *model.Node) (base baseState, drain, silent bool) {
	if n.Def.Future {
		return NodeFuture, false, false
	}
	drain, silent = n.Draining(), n.Silent()
	switch {
	case n.Admin == model.NodeDown, silent && n.Link == model.LinkLost:
		base = NodeDown
	case silent:
		base = NodeUnknown
	case len(n.Jobs) == 0:
		base = NodeIdle
	case n.FullCPUs():
		base = NodeAllocated
	default:
		base = NodeMixed
	}
	return base, drain, silent
}

// stateOrder gives the number by which Slurm sorts states.
func stateOrder(n *proto.NodeInfo) int {
	if n == nil {
		return 0
	}
	base, drain, silent := NodeState(n.Node)
	return int(base) + yesNum(n.Resv != "" && !n.Maint)<<5 + yesNum(drain)<<9 + yesNum(silent)<<11 + yesNum(n.Maint)<<15
}

// SortNodes sorts rows by letters of -o. "#P" is the order of the configuration, and so is P here where names are
// equal.
func SortNodes(rows []NodeRow, keys []format.SortKey, configOrder bool, fields []NodeField) {
	text := func(f *NodeField, r *NodeRow) string {
		if f.Append != nil {
			return string(f.Append(nil, r))
		}
		return f.Get(r)
	}
	value := func(r *NodeRow, letter byte) format.SortValue {
		switch letter {
		case 'P', 'R':
			if configOrder {
				return format.SortValue{N: int64(r.order)}
			}
			return format.SortValue{S: r.part.Name}
		case 't', 'T':
			return format.SortValue{N: int64(stateOrder(r.first()))}
		case 'D', 'F', 'A':
			return format.SortValue{N: int64(len(r.nodes))}
		case 'C', 'c', 'm', 'd', 'w', 'e', 'X', 'Y', 'Z', 'p', 'I':
			i := slices.IndexFunc(fields, func(f NodeField) bool { return f.Letter == letter })
			digits := text(&fields[i], r)
			if end := strings.IndexFunc(digits, func(c rune) bool { return c < '0' || c > '9' }); end >= 0 {
				digits = digits[:end]
			}
			n, err := strconv.ParseInt(digits, 10, 64)
			if err != nil {
				n = 0
			}
			return format.SortValue{N: n}
		case 'N', 'n', 'o':
			// n9 before n10, and by the first of several
			return format.SortValue{S: natural(r.first())}
		case 'l':
			return format.SortValue{N: r.part.MaxTimeS}
		case 'H':
			if n := r.first(); n != nil {
				return format.SortValue{N: int64(n.Node.ReasonAt)}
			}
			return format.SortValue{}
		}
		i := slices.IndexFunc(fields, func(f NodeField) bool { return f.Letter == letter })
		return format.SortValue{S: text(&fields[i], r)}
	}
	slices.SortStableFunc(rows, func(a, b NodeRow) int {
		for _, k := range keys {
			x, y := value(&a, k.Letter), value(&b, k.Letter)
			c := cmp.Or(cmp.Compare(x.N, y.N), strings.Compare(x.S, y.S))
			if k.Down {
				c = -c
			}
			if c != 0 {
				return c
			}
		}
		return 0
	})
}

// natural gives a node's name with its numbers padded, so that texts compare as names do.
func natural(n *proto.NodeInfo) string {
	if n == nil {
		return ""
	}
	var out []byte
	name := n.Node.Def.Name
	for i := 0; i < len(name); {
		end := i
		for end < len(name) && name[end] >= '0' && name[end] <= '9' {
			end++
		}
		if end == i {
			out = append(out, name[i])
			i++
			continue
		}
		out = append(out, strings.Repeat("0", max(0, 20-(end-i)))...)
		out = append(out, name[i:end]...)
		i = end
	}
	return string(out)
}
