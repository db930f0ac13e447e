package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// DoctorRequest asks for checks of nodes, of all if none is named. Only operators get an answer.
type DoctorRequest struct {
	Nodes []string
}

func (x *DoctorRequest) Wire(c *wire.C) {
	wire.Texts(c, &x.Nodes, model.MaxList, model.MaxName)
}

// DoctorReply has the findings: about the controllers first (Node ""), then about each node.
type DoctorReply struct {
	Now   model.Time
	Nodes []NodeFindings
}

func (x *DoctorReply) Wire(c *wire.C) {
	wire.Int(c, &x.Now)
	wire.List(c, &x.Nodes, model.MaxList)
}

// NodeFindings are the findings about one node, in the order of the checks.
type NodeFindings struct {
	Node string
	List []Finding
}

func (x *NodeFindings) Wire(c *wire.C) {
	wire.Text(c, &x.Node, model.MaxName)
	wire.List(c, &x.List, model.MaxList)
}

// Grade is the result of a check. The numbers are on the wire: append only.
type Grade uint8

// The grades.
const (
	GradeOK   Grade = iota
	GradeNote       // worth knowing, but nothing is wrong
	GradeBad        // jobs suffer from it
)

// Finding is the result of one check.
type Finding struct {
	About string // one word
	Grade Grade
	Text  string
	Fix   string // what to do about it, or ""
}

func (x *Finding) Wire(c *wire.C) {
	wire.Text(c, &x.About, model.MaxText)
	wire.Int(c, &x.Grade)
	wire.Text(c, &x.Text, model.MaxText)
	wire.Text(c, &x.Fix, model.MaxText)
}

// HeldUnits has the units of the asked node that an attempt holds.
type HeldUnits struct {
	Attempt Attempt
	Gres    []model.GresAlloc
}

func (x *HeldUnits) Wire(c *wire.C) {
	wire.Struct(c, &x.Attempt)
	wire.List(c, &x.Gres, model.MaxFew)
}
