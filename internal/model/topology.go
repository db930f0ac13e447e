package model

import "gbatch/internal/wire"

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
