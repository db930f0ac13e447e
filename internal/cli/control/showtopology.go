package control

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// units are what show topology is asked for.
type units struct {
	topology string // "": all of them
	unit     string // a switch or a block
	node     string
	either   string // a switch, a block or a node
}

// unitsAsked reads the words after show topology: the name of a topology, or of a switch, a block or a node, unit=NAME
// and node=NAME.
func unitsAsked(nets []*model.Topology, words []string) (u units, err error) {
	for _, w := range words {
		key, value, pair := strings.Cut(w, "=")
		switch low := strings.ToLower(key); {
		case pair && low == "unit":
			u.unit = value
		case pair && low == "node":
			u.node = value
		case pair && low != "name":
			return u, fmt.Errorf("show topology %s: write NAME, unit=NAME or node=NAME", w)
		default:
			if !pair {
				value = w
			}
			if u.topology == "" && slices.ContainsFunc(nets, func(t *model.Topology) bool { return t.Name == value }) {
				u.topology = value
			} else {
				u.either = value
			}
		}
	}
	return u, nil
}

// has reports whether a switch or block with these nodes is asked for.
func (u *units) has(name string, nodes []string) bool {
	return (u.unit == "" || u.unit == name) && (u.node == "" || slices.Contains(nodes, u.node)) &&
		(u.either == "" || u.either == name || slices.Contains(nodes, u.either))
}

// showTopology shows the topologies: all, the named one, or a switch, a block or what a node is in.
func (c *control) showTopology(words []string) error {
	reply, err := c.clusterConfig("slurm_load_topo")
	if err != nil {
		return err
	}
	nets := reply.Config.Networks()
	u, err := unitsAsked(nets, words)
	if err != nil {
		return err
	}
	if c.json != "" {
		return c.topologyJSON(reply, &u)
	}
	shown := 0
	for _, t := range nets {
		if u.topology != "" && t.Name != u.topology {
			continue
		}
		if len(nets) > 1 && u == (units{}) {
			c.topologyHead(reply.Config, t)
			shown++
		}
		if t.Blocks != nil {
			shown += c.showBlocks(t.Blocks, &u)
		} else {
			shown += c.showSwitches(t.Switches, &u)
		}
	}
	asked := u.unit + u.node + u.either
	switch {
	case shown > 0:
	case asked == "" || len(nets) == 1 && nets[0].Flat():
		c.Errorf("No topology information available")
	default:
		what := "switch"
		for _, t := range nets {
			if t.Blocks != nil && (u.topology == "" || t.Name == u.topology) {
				what = "block"
			}
		}
		switch {
		case u.either != "":
			what += " or node named " + u.either
		case u.node == "":
			what += " named " + u.unit
		case u.unit == "":
			what += " with nodes " + u.node
		default:
			what += " named " + u.unit + " with nodes " + u.node
		}
		//nolint:revive,staticcheck // scontrol's words
		return plain{fmt.Errorf("Topology information contains no %s", what)}
	}
	return nil
}

// topologyHead is the line above the units of one of several topologies.
func (c *control) topologyHead(cfg *model.Config, t *model.Topology) {
	var parts []string
	nets := cfg.Networks()
	for _, p := range cfg.Partitions {
		if nets[cfg.NetworkOf(p)].Name == t.Name {
			parts = append(parts, p.Name)
		}
	}
	of := "(null)"
	if len(parts) > 0 {
		of = strings.Join(parts, ",")
	}
	fmt.Fprintf(c.Stdout, "TopologyName=%s Type=%s Default=%s Partitions=%s\n", t.Name, topologyKind(t),
		map[bool]string{true: "YES", false: "NO"}[nets[cfg.NetworkOf(nil)].Name == t.Name], of)
}

func topologyKind(t *model.Topology) string {
	switch {
	case t.Blocks != nil:
		return "block"
	case t.Flat():
		return "flat"
	}
	return "tree"
}

// showSwitches shows switches, and counts them.
func (c *control) showSwitches(tree []*model.Switch, u *units) (shown int) {
	for _, s := range slices.Backward(levels(tree)) {
		below := nodesBelow(tree, s)
		if !u.has(s.Name, below) {
			continue
		}
		shown++
		line := fmt.Sprintf("SwitchName=%s Level=%d LinkSpeed=%s Nodes=%s", s.Name, s.Level, orOne(s.Speed),
			hostlist.Compress(below))
		if len(s.Children) > 0 {
			line += " Switches=" + hostlist.Compress(s.Children)
		}
		c.topologyLine(line)
	}
	return shown
}

// topologyLine prints a switch or a block, as far as SLURM_TOPO_LEN lets it.
func (c *control) topologyLine(line string) {
	if most, err := strconv.Atoi(c.Getenv("SLURM_TOPO_LEN")); err == nil && most > 0 && len(line) > most {
		line = line[:most]
	}
	fmt.Fprintln(c.Stdout, line)
}

// showBlocks shows blocks, and counts them.
func (c *control) showBlocks(t *model.Blocks, u *units) (shown int) {
	line := func(kind, block string, index, size int, nodes []string) {
		if u.has(block, nodes) {
			shown++
			c.topologyLine(fmt.Sprintf("%s=%s BlockIndex=%d Nodes=%s BlockSize=%d", kind, block, index,
				hostlist.Compress(nodes), size))
		}
	}
	for i, b := range t.List {
		size := len(b.Nodes)
		if len(t.Sizes) > 0 {
			size = int(t.Sizes[0])
		}
		line("BlockName", b.Name, i, size, b.Nodes)
	}
	index := len(t.List)
	for _, size := range t.Sizes[min(1, len(t.Sizes)):] {
		each := max(1, int(size/max(1, t.Sizes[0])))
		for i := 0; i < len(t.List); i += each {
			var names, nodes []string
			for _, b := range t.List[i:min(i+each, len(t.List))] {
				names, nodes = append(names, b.Name), append(nodes, b.Nodes...)
			}
			line("AggregatedBlock", hostlist.Compress(names), index, int(size), nodes)
			index++
		}
	}
	return shown
}

// topologyJSON writes topologies with the members of topology.yaml.
func (c *control) topologyJSON(reply *proto.ConfigReply, u *units) error {
	j := c.JSONFrame("topologies", c.json)
	nets := reply.Config.Networks()
	byDefault := nets[reply.Config.NetworkOf(nil)]
	for _, t := range nets {
		if u.topology != "" && t.Name != u.topology {
			continue
		}
		j.Open("", '{')
		j.Str("topology", t.Name)
		j.Bool("cluster_default", t.Name == byDefault.Name)
		switch {
		case t.Blocks != nil:
			j.Open("block", '{')
			j.Open("block_sizes", '[')
			for _, n := range t.Blocks.Sizes {
				j.Num("", int64(n))
			}
			j.Close(']')
			j.Open("blocks", '[')
			for _, b := range t.Blocks.List {
				if u.has(b.Name, b.Nodes) {
					j.Open("", '{')
					j.Str("block", b.Name)
					j.Str("nodes", hostlist.Compress(b.Nodes))
					j.Close('}')
				}
			}
			j.Close(']')
			j.Close('}')
		case t.Flat():
			j.Bool("flat", true)
		default:
			j.Open("tree", '{')
			j.Open("switches", '[')
			for _, s := range t.Switches {
				if u.has(s.Name, nodesBelow(t.Switches, s)) {
					j.Open("", '{')
					j.Str("switch", s.Name)
					j.Str("children", hostlist.Compress(s.Children))
					j.Str("nodes", hostlist.Compress(s.Nodes))
					j.Close('}')
				}
			}
			j.Close(']')
			j.Close('}')
		}
		j.Close('}')
	}
	return c.JSONFinish(j, reply.Config.Cluster, reply.Now)
}

func orOne(s string) string {
	if s == "" {
		return "1"
	}
	return s
}

// levels gives the switches, the highest first, so that backwards the leaves come first.
func levels(tree []*model.Switch) []*model.Switch {
	out := slices.Clone(tree)
	slices.Reverse(out)
	slices.SortStableFunc(out, func(a, b *model.Switch) int { return int(b.Level - a.Level) })
	return out
}

// nodesBelow gives all nodes under a switch, in order.
func nodesBelow(tree []*model.Switch, s *model.Switch) []string {
	out := slices.Clone(s.Nodes)
	for _, child := range s.Children {
		for _, x := range tree {
			if x.Name == child && x.Level < s.Level {
				out = append(out, nodesBelow(tree, x)...)
			}
		}
	}
	slices.SortFunc(out, strings.Compare)
	return out
}
