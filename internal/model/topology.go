package model

import "gbatch/internal/wire"

// Topology is how nodes lie to each other: one of topology.yaml, or that of topology.conf.
type Topology struct {
	Name     string
	Kind     TopologyKind
	Default  bool      // of partitions that name none
	Switches []*Switch // of a tree, in the order of the file
	Blocks   []*Block  // of blocks, in the order of the file: those side by side make the larger ones
	Sizes    []int32   // of a block and of the larger blocks above it, in nodes: BlockSizes
}

func (x *Topology) Wire(c *wire.C) {
	wire.Text(c, &x.Name, MaxName)
	wire.Int(c, &x.Kind)
	wire.Bool(c, &x.Default)
	wire.Ptrs(c, &x.Switches, MaxList)
	wire.Ptrs(c, &x.Blocks, MaxList)
	wire.Ints(c, &x.Sizes, MaxFew)
}

// TopologyKind is a kind of topology.
type TopologyKind int8

// The kinds.
const (
	Flat   TopologyKind = iota // all nodes are alike
	Tree                       // switches
	Blocky                     // blocks of nodes with fast links inside
)

var topologyKinds = [...]string{Flat: "flat", Tree: "tree", Blocky: "block"}

func (k TopologyKind) String() string {
	if k < 0 || int(k) >= len(topologyKinds) {
		return "flat"
	}
	return topologyKinds[k]
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

// TopologyNamed gives the topology of that name; "" is the cluster's default: the first that says so, else the first.
// nil: there is none, and all nodes are alike.
func (x *Config) TopologyNamed(name string) *Topology {
	if len(x.Topologies) == 0 && len(x.Switches) > 0 { // a configuration of before there were several
		x := &Topology{Name: "default", Kind: Tree, Default: true, Switches: x.Switches}
		if name == "" || name == x.Name {
			return x
		}
		return nil
	}
	for _, t := range x.Topologies {
		if t.Name == name || name == "" && t.Default {
			return t
		}
	}
	if name == "" && len(x.Topologies) > 0 {
		return x.Topologies[0]
	}
	return nil
}

// TopologyOf gives the topology by which a partition's jobs are placed; nil: all nodes are alike.
func (x *Config) TopologyOf(p *Partition) *Topology {
	if p == nil {
		return x.TopologyNamed("")
	}
	return x.TopologyNamed(p.Topology)
}
