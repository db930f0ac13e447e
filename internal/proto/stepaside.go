package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// StepAside is the first number of steps that are none of the job's: they take in a file. No list, record or accounting
// has them.
const StepAside int32 = 1 << 29

// IsAside reports whether a step is none of its job's.
func IsAside(step int32) bool { return step >= StepAside }

// StepReceive is the file that a step's tasks take in: they read it from their standard input.
type StepReceive struct {
	Path  string // where it goes, on each node; with a Step it has %j, %s and %N
	Step  int32  // the step whose program it is, or StepNone
	Size  int64
	Mode  uint32 // permissions
	Force bool   // replace what is at Path
	Keep  bool   // --preserve: the times of the original
	ATime int64  // ns since 1970
	MTime int64
}

func (x *StepReceive) Wire(c *wire.C) {
	wire.Data(c, &x.Path, model.MaxText)
	wire.Int(c, &x.Step)
	wire.Int(c, &x.Size)
	wire.Int(c, &x.Mode)
	wire.Bool(c, &x.Force)
	wire.Bool(c, &x.Keep)
	wire.Int(c, &x.ATime)
	wire.Int(c, &x.MTime)
}

// StepAttach asks the command of a running step for what its tasks write from now on.
type StepAttach struct {
	IO *StepIO // where it is taken; nil: only the layout is wanted
}

func (x *StepAttach) Wire(c *wire.C) {
	wire.Ptr(c, &x.IO)
}
