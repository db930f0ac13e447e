package model

import (
	"slices"
	"strings"

	"gbatch/internal/wire"
)

// Switch is one switch of the network: a leaf with nodes, or a switch above other switches.
type Switch struct {
	Name     string
	Nodes    []string // of a leaf
	Children []string // switches below it
	Level    int32    // 0: a leaf
	Speed    string   // LinkSpeed, for people
}

func (x *Switch) Wire(c *wire.C) {
	wire.Text(c, &x.Name, MaxName)
	wire.Texts(c, &x.Nodes, MaxList, MaxName)
	wire.Texts(c, &x.Children, MaxList, MaxName)
	wire.Int(c, &x.Level)
	wire.Text(c, &x.Speed, MaxName)
}

// Blocks are blocks of nodes with fast links inside (TopologyPlugin=topology/block).
type Blocks struct {
	List  []*Block // in the order of topology.conf: those side by side make the larger ones
	Sizes []int32  // of a block and of the larger blocks above it, in nodes: BlockSizes
}

func (x *Blocks) Wire(c *wire.C) {
	wire.Ptrs(c, &x.List, MaxList)
	wire.Ints(c, &x.Sizes, MaxFew)
}

// Block is a block of nodes.
type Block struct {
	Name  string
	Nodes []string
}

func (x *Block) Wire(c *wire.C) {
	wire.Text(c, &x.Name, MaxName)
	wire.Texts(c, &x.Nodes, MaxList, MaxName)
}

// Topology is one picture of the network, by which partitions place their jobs: a tree of switches, blocks, or, with
// neither, nodes that are all alike (flat).
type Topology struct {
	Name     string
	Default  bool // of partitions that name none
	Switches []*Switch
	Blocks   *Blocks
}

func (x *Topology) Wire(c *wire.C) {
	wire.Text(c, &x.Name, MaxName)
	wire.Bool(c, &x.Default)
	wire.Ptrs(c, &x.Switches, MaxList)
	wire.Ptr(c, &x.Blocks)
}

// DefaultTopology is the name of topology.conf's topology.
const DefaultTopology = "default"

// Flat reports whether all nodes are alike.
func (x *Topology) Flat() bool { return len(x.Switches) == 0 && x.Blocks == nil }

// Networks gives the topologies in effect, at least one: those of topology.yaml, else that of topology.conf, with each
// node where its Topology says.
func (x *Config) Networks() []*Topology {
	out := x.Topologies
	if len(out) == 0 {
		out = []*Topology{{Name: DefaultTopology, Default: true, Switches: x.Switches, Blocks: x.Blocks}}
	}
	own := false
	for _, n := range x.Nodes {
		own = own || n.Topology != ""
	}
	if !own {
		return out
	}
	moved := make([]*Topology, len(out))
	for i, t := range out {
		moved[i] = t.with(x.Nodes)
	}
	return moved
}

// NetworkOf gives the place, among Networks, of the one by which a partition places its jobs.
func (x *Config) NetworkOf(p *Partition) int {
	first := 0
	for i := len(x.Topologies) - 1; i >= 0; i-- {
		t := x.Topologies[i]
		if p != nil && p.Topology != "" && t.Name == p.Topology {
			return i
		}
		if t.Default {
			first = i
		}
	}
	return first
}

// TopologyUnits gives what a node's Topology says: names of topologies and the unit there.
func (d *NodeDef) TopologyUnits() (out []KV) {
	for w := range strings.SplitSeq(d.Topology, ",") {
		name, path, ok := strings.Cut(w, ":")
		if ok {
			out = append(out, KV{Key: name, Value: path[strings.LastIndexByte(path, ':')+1:]})
		}
	}
	return out
}

// with gives the topology with nodes where their Topology says. A unit that is not in the topology has no place: the
// node is in none.
func (x *Topology) with(nodes []*NodeDef) *Topology {
	if x.Flat() {
		return x
	}
	unit, put := map[string]string{}, map[string][]string{} // of nodes, and the nodes of each
	for _, d := range nodes {
		for _, kv := range d.TopologyUnits() {
			if _, twice := unit[d.Name]; kv.Key == x.Name && !twice {
				unit[d.Name] = kv.Value
				put[kv.Value] = append(put[kv.Value], d.Name)
			}
		}
	}
	if len(unit) == 0 {
		return x
	}
	in := func(name string, was []string) []string {
		list := make([]string, 0, len(was))
		for _, n := range was {
			if u, ok := unit[n]; !ok || u == name {
				list = append(list, n)
			}
		}
		for _, n := range put[name] {
			if !slices.Contains(was, n) {
				list = append(list, n)
			}
		}
		return list
	}
	out := *x
	if x.Blocks != nil {
		b := *x.Blocks
		b.List = make([]*Block, len(x.Blocks.List))
		for i, o := range x.Blocks.List {
			b.List[i] = &Block{Name: o.Name, Nodes: in(o.Name, o.Nodes)}
		}
		out.Blocks = &b
		return &out
	}
	out.Switches = make([]*Switch, len(x.Switches))
	for i, o := range x.Switches {
		s := *o
		if len(s.Children) == 0 {
			s.Nodes = in(o.Name, o.Nodes)
		}
		out.Switches[i] = &s
	}
	return &out
}
