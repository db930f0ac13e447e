package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// resize.go has the orders that change an attempt while it runs.

// Resize tells a node of a job that the job's nodes have changed: later steps have Alloc. An order with a smaller
// Version than one before is outdated.
type Resize struct {
	Job     model.JobID
	Attempt uint32
	Version uint32
	Alloc   *model.Alloc // of the nodes that the job can use now; the node is one of them
	Addrs   []string     // as in Launch

	Asked []string   // nodes that the job is to give back
	Due   model.Time // when they are taken

	Broke uint32 // the Version with which a node that failed was last taken; 0: none was
}

func (x *Resize) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Int(c, &x.Version)
	wire.Ptr(c, &x.Alloc)
	wire.Texts(c, &x.Addrs, model.MaxList, model.MaxText)
	wire.Texts(c, &x.Asked, model.MaxList, model.MaxName)
	wire.Int(c, &x.Due)
	wire.Int(c, &x.Broke)
}

// Freeze is the order to freeze an attempt's processes, or to let them go on. An order with a smaller Turn than one
// before is outdated.
type Freeze struct {
	Job     model.JobID
	Attempt uint32
	Frozen  bool
	Turn    uint32
	GraceMS int64 // between SIGTSTP and the freeze
}

func (x *Freeze) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Bool(c, &x.Frozen)
	wire.Int(c, &x.Turn)
	wire.Int(c, &x.GraceMS)
}
