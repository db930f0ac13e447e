package cli

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// infoRow is one line of ginfo: nodes of one partition (or of none in particular) that look the same in every column
// that is shown.
type infoRow struct {
	*infoView
	part    *model.Partition
	nodes   []*proto.NodeInfo
	inOrder int // of the partition in the configuration
}

// infoView is what the rows of one table share.
type infoView struct {
	moments
	cluster   string
	exact     bool // --exact: unequal sizes make rows of their own
	noConvert bool
}

// size gives a number that nodes of one row may differ in: the smallest, with + when they do.
func (r *infoRow) size(of func(*model.NodeDef) int64) string {
	if len(r.nodes) == 0 {
		return "0"
	}
	least, same := of(r.nodes[0].Node.Def), true
	for _, n := range r.nodes[1:] {
		if v := of(n.Node.Def); v != least {
			same, least = false, min(least, v)
		}
	}
	if same {
		return strconv.FormatInt(least, 10)
	}
	return strconv.FormatInt(least, 10) + "+"
}

// span gives least-most of something measured, or N/A.
func (r *infoRow) span(of func(*proto.NodeInfo) int64, text func(int64) string) string {
	least, most, known := int64(0), int64(0), false
	for _, n := range r.nodes {
		v := of(n)
		switch {
		case v < 0:
		case !known:
			least, most, known = v, v, true
		default:
			least, most = min(least, v), max(most, v)
		}
	}
	switch {
	case !known:
		return "N/A"
	case text(least) == text(most):
		return text(least)
	}
	return text(least) + "-" + text(most)
}

// sum adds something up over the row's nodes.
func (r *infoRow) sum(of func(*model.Node) int) int {
	n := 0
	for _, i := range r.nodes {
		n += of(i.Node)
	}
	return n
}

func usedCPUs(n *model.Node) int {
	if n.Exclusive != 0 {
		return int(n.Def.CPUs)
	}
	return n.UsedCPUs.Count()
}

// cpuStates gives allocated/idle/other/total CPUs.
func (r *infoRow) cpuStates() string {
	alloc := r.sum(usedCPUs)
	other := r.sum(func(n *model.Node) int {
		if n.Usable() {
			return 0
		}
		return int(n.Def.CPUs) - usedCPUs(n)
	})
	total := r.sum(func(n *model.Node) int { return int(n.Def.CPUs) })
	return fmt.Sprintf("%d/%d/%d/%d", alloc, total-alloc-other, other, total)
}

// nodeStates gives allocated/idle or, with other, allocated/idle/other/total nodes.
func (r *infoRow) nodeStates(other bool) string {
	alloc := r.sum(func(n *model.Node) int {
		return yesNum(len(n.Jobs) > 0 && n.Link == model.LinkUp && n.Admin != model.NodeDown)
	})
	idle := r.sum(func(n *model.Node) int { return yesNum(len(n.Jobs) == 0 && n.Usable()) })
	if !other {
		return fmt.Sprintf("%d/%d", alloc, idle)
	}
	return fmt.Sprintf("%d/%d/%d/%d", alloc, idle, len(r.nodes)-alloc-idle, len(r.nodes))
}

func (r *infoRow) nodeList() string {
	names := make([]string, len(r.nodes))
	for i, n := range r.nodes {
		names[i] = n.Node.Def.Name
	}
	return hostlist.Compress(names)
}

// one gives a value of the first node, or none where there is no node.
func (r *infoRow) one(none string, of func(*proto.NodeInfo) string) string {
	if len(r.nodes) == 0 {
		return none
	}
	return of(r.nodes[0])
}

// state gives the state of the row's nodes, compact or long.
func (r *infoRow) state(short bool) string {
	return r.one("n/a", func(n *proto.NodeInfo) string {
		if short {
			return n.Node.ShortState()
		}
		s := strings.ToLower(n.Node.StateName())
		if n.Node.Link != model.LinkUp {
			s += "*"
		}
		return s
	})
}

// partText gives something of the partition, or n/a.
func (r *infoRow) partText(of func(*model.Partition) string) string {
	if r.part == nil {
		return "n/a"
	}
	return of(r.part)
}

// shown gives a setting as gcontrol show partition has it.
func (r *infoRow) shown(key string) string {
	return r.partText(func(p *model.Partition) string {
		for _, kv := range p.Show {
			if kv.Key == key {
				return kv.Value
			}
		}
		return "n/a"
	})
}

func timeText(limit int64, none string) string {
	switch {
	case limit == model.NotSet:
		return none
	case limit >= model.Unlimited:
		return "infinite"
	}
	return walltime.Short(limit)
}

// partName gives the partition's name, with * behind the default one.
func (r *infoRow) partName() string {
	return r.partText(func(p *model.Partition) string {
		if p.Default {
			return p.Name + "*"
		}
		return p.Name
	})
}

// stateOrder gives the place of a node's state in ginfo's default order.
func stateOrder(n *model.Node) int {
	switch {
	case n.Admin == model.NodeDown || n.Link == model.LinkLost:
		return 5
	case n.Link == model.LinkUnknown:
		return 6
	case n.Admin == model.NodeDrain:
		return 0
	case len(n.Jobs) > 0 && !n.FullCPUs():
		return 1
	case len(n.Jobs) > 0:
		return 2
	}
	return 3
}

// inState reports whether a node is in one of the states that -t names.
func inState(n *model.Node, states []string) bool {
	for _, s := range states {
		low := strings.ToLower(s)
		name := strings.ToLower(n.StateName())
		hit := false
		switch low {
		case "alloc", "allocated":
			hit = len(n.Jobs) > 0 && n.Usable() && n.FullCPUs()
		case "mix", "mixed":
			hit = len(n.Jobs) > 0 && n.Usable() && !n.FullCPUs()
		case "idle":
			hit = len(n.Jobs) == 0 && n.Usable()
		case "drain":
			hit = n.Admin == model.NodeDrain
		case "drng", "draining":
			hit = name == "draining"
		case "drained":
			hit = name == "drained"
		case "down":
			hit = name == "down"
		case "unk", "unknown":
			hit = name == "unknown"
		case "no_respond", "noresp":
			hit = n.Link != model.LinkUp
		case "all":
			hit = true
		}
		if hit {
			return true
		}
	}
	return false
}

// nodeStateWords are what -t takes.
func nodeStateWords() []string {
	return []string{"alloc", "allocated", "mix", "mixed", "idle", "drain", "drng", "draining", "drained", "down", "unk", "unknown", "no_respond", "all",
		"comp", "completing", "fail", "maint", "resv", "reserved", "planned", "power_down", "power_up", "future", "reboot", "block", "inval", "perfctrs"}
}

// groupRows puts nodes that look the same into one row. keyOf gives what is shown of a single node, and byPart says
// whether something of the partition is shown.
func groupRows(v *infoView, parts []*model.Partition, infos []*proto.NodeInfo, byPart, byNode bool, keyOf func(*infoRow) string) []infoRow {
	byName := make(map[string]*proto.NodeInfo, len(infos))
	for _, i := range infos {
		byName[i.Node.Def.Name] = i
	}
	var rows []infoRow
	index := map[string]int{}
	have := map[string]bool{}
	put := func(order int, p *model.Partition, n *proto.NodeInfo) {
		row := infoRow{infoView: v, part: p, inOrder: order}
		if n != nil {
			row.nodes = []*proto.NodeInfo{n}
		}
		key := ""
		if byPart {
			key = strconv.Itoa(order)
		} else {
			row.part, row.inOrder = nil, 0
		}
		if n != nil && byNode {
			key += "\x00" + n.Node.Def.Name
		}
		key += "\x00" + keyOf(&row)
		at, ok := index[key]
		if !ok {
			index[key] = len(rows)
			at = len(rows)
			rows = append(rows, row)
			if n != nil {
				have[key+"\x00"+n.Node.Def.Name] = true
			}
			return
		}
		if n != nil && !have[key+"\x00"+n.Node.Def.Name] {
			have[key+"\x00"+n.Node.Def.Name] = true
			rows[at].nodes = append(rows[at].nodes, n)
		}
	}
	for order, p := range parts {
		found := false
		for _, name := range p.Nodes {
			if n := byName[name]; n != nil {
				put(order, p, n)
				found = true
			}
		}
		if !found && byPart && !byNode {
			put(order, p, nil)
		}
	}
	return rows
}

// sortInfo orders rows: by partition and state, or by node name.
func sortInfo(rows []infoRow, keys string) error {
	type less func(a, b *infoRow) int
	var order []less
	for word := range strings.SplitSeq(keys, ",") {
		sign := 1
		word = strings.TrimSpace(word)
		for word != "" && (word[0] == '-' || word[0] == '+' || word[0] == '#') {
			if word[0] == '-' {
				sign = -1
			}
			word = word[1:]
		}
		by := func(f less) { order = append(order, func(a, b *infoRow) int { return sign * f(a, b) }) }
		num := func(of func(r *infoRow) int) less { return func(a, b *infoRow) int { return of(a) - of(b) } }
		str := func(of func(r *infoRow) string) less {
			return func(a, b *infoRow) int { return strings.Compare(of(a), of(b)) }
		}
		switch word {
		case "":
		case "P", "R":
			by(num(func(r *infoRow) int { return r.inOrder }))
		case "t", "T":
			sign = -sign
			by(num(func(r *infoRow) int {
				if len(r.nodes) == 0 {
					return -99
				}
				return -stateOrder(r.nodes[0].Node)
			}))
		case "N", "n":
			by(str(func(r *infoRow) string { return r.one("", func(n *proto.NodeInfo) string { return n.Node.Def.Name }) }))
		case "D":
			by(num(func(r *infoRow) int { return len(r.nodes) }))
		case "c":
			by(num(func(r *infoRow) int { return r.sum(func(n *model.Node) int { return int(n.Def.CPUs) }) }))
		case "m":
			by(num(func(r *infoRow) int { return r.sum(func(n *model.Node) int { return int(n.Def.MemMiB) }) }))
		case "w":
			by(num(func(r *infoRow) int { return r.sum(func(n *model.Node) int { return int(n.Def.Weight) }) }))
		case "E":
			by(str(func(r *infoRow) string { return r.one("", func(n *proto.NodeInfo) string { return n.Node.Reason }) }))
		case "H":
			by(num(func(r *infoRow) int {
				if len(r.nodes) == 0 {
					return 0
				}
				return int(r.nodes[0].Node.ReasonAt.Seconds())
			}))
		case "f", "G", "l", "a", "u":
			// what these sort by is equal within what the other keys put together
		default:
			return fmt.Errorf("Invalid sort specification: %s; write some of P t N D c m w E H, each with - before it to turn the order", word)
		}
	}
	sort.SliceStable(rows, func(i, j int) bool {
		for _, f := range order {
			if c := f(&rows[i], &rows[j]); c != 0 {
				return c < 0
			}
		}
		return false
	})
	return nil
}
