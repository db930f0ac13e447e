package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// StepFiles has the tasks' standard files. It is the answer to StepCreated.
type StepFiles struct {
	Files []StepFile // stdin, stdout, stderr
	IO    *StepIO    // for the files of tasks on other hosts; nil: they need none
	Het   *StepHet   // nil: it is not one of several steps that belong together
	PMI   *StepIO    // where the command serves MPI programs (internal/pmi); nil: they are not served
	X11   *StepIO    // where the command takes connections to its display; nil: the tasks have none
}

func (x *StepFiles) Wire(c *wire.C) {
	wire.List(c, &x.Files, model.MaxList)
	wire.Ptr(c, &x.IO)
	wire.Ptr(c, &x.Het)
	wire.Ptr(c, &x.PMI)
	wire.Ptr(c, &x.X11)
}

// ComponentVar is the variable that names the component of a heterogeneous job in which a step's task runs: 12+1.
// SLURM_JOB_ID is the whole job's number in all of them, as in Slurm, and does not say where the commands belong that a
// task starts.
const ComponentVar = "GBATCH_HET_COMPONENT"

// StepHet says which part a step has of all steps that one command started over components of a heterogeneous job: its
// tasks are numbered among the tasks of all.
type StepHet struct {
	Job       model.JobID // the first component
	Nodes     string      // nodes of all steps, hostlist
	Counts    string      // tasks on each node of all steps, as in SLURM_TASKS_PER_NODE
	NumNodes  int32
	Tasks     int32 // of all steps
	FirstNode int32 // nodes of the steps before it
	FirstTask int32 // tasks of the steps before it
}

// First gives the number of the step's first task among those of all steps.
func (x *StepHet) First() int32 {
	if x == nil {
		return 0
	}
	return x.FirstTask
}

func (x *StepHet) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Text(c, &x.Nodes, model.MaxText)
	wire.Text(c, &x.Counts, model.MaxText)
	wire.Int(c, &x.NumNodes)
	wire.Int(c, &x.Tasks)
	wire.Int(c, &x.FirstNode)
	wire.Int(c, &x.FirstTask)
}

// StepIO has the address at which the command handles input and output of tasks on other hosts (internal/stepio).
type StepIO struct {
	Host string // "": the address from which this message comes
	Port int32
	Key  []byte
	PMIx bool // of MPI programs: they are served by libpmix, otherwise by package pmi

	Nodes uint8 // of a display: on which of the step's nodes tasks have it
}

// The nodes whose tasks have the command's display.
const (
	X11All uint8 = iota
	X11First
	X11Last
)

func (x *StepIO) Wire(c *wire.C) {
	wire.Text(c, &x.Host, model.MaxName)
	wire.Int(c, &x.Port)
	wire.Bytes(c, &x.Key, model.MaxFile)
	wire.Bool(c, &x.PMIx)
	wire.Int(c, &x.Nodes)
}

// StepFile is one standard file.
type StepFile struct {
	Mode    uint8
	Pattern string // FilePath: with %t and the like, absolute
	Append  bool
	Task    int32 // FileOne
	FDs     int32 // number of open files that follow for it: for tasks on the command's host
	Label   bool  // FilePath: each line has its task's number before it
}

func (x *StepFile) Wire(c *wire.C) {
	wire.Int(c, &x.Mode)
	wire.Data(c, &x.Pattern, model.MaxText)
	wire.Bool(c, &x.Append)
	wire.Int(c, &x.Task)
	wire.Int(c, &x.FDs)
	wire.Bool(c, &x.Label)
}

// Kinds of a task's file.
const (
	FileNull   uint8 = iota
	FilePath         // opened for each task
	FileShared       // one open file for all tasks
	FileEach         // an open file for each task
	FileOne          // an open file for one task, none for the others
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
