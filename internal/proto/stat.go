package proto

import (
	"strconv"

	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// StatRequest asks for the usage of running jobs' steps so far. The leader asks their nodes; only the jobs' owners and
// operators get an answer.
type StatRequest struct {
	Jobs []model.JobRef
}

func (x *StatRequest) Wire(c *wire.C) {
	wire.List(c, &x.Jobs, model.MaxMany)
}

// MaxStatJobs bounds the jobs that one StatRequest asks about.
const MaxStatJobs = 256

// StatReply lists steps in order of job and step. Missing has a sentence for each node that did not answer in time.
type StatReply struct {
	Now     model.Time
	Steps   []StepStat
	Missing []string
}

func (x *StatReply) Wire(c *wire.C) {
	wire.Int(c, &x.Now)
	wire.List(c, &x.Steps, model.MaxMany)
	wire.Texts(c, &x.Missing, model.MaxList, model.MaxName)
}

// StepStat is one step of a running job.
type StepStat struct {
	Job     model.JobID
	ArrayID model.JobID
	Task    int32
	Step    int32  // StepBatch, or a step's number
	Nodes   string // hostlist of the nodes that answered
	Use     *model.Usage
	Pids    []NodePids
}

func (x *StepStat) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.ArrayID)
	wire.Int(c, &x.Task)
	wire.Int(c, &x.Step)
	wire.Text(c, &x.Nodes, model.MaxText)
	wire.Ptr(c, &x.Use)
	wire.List(c, &x.Pids, model.MaxMany)
}

// Steps with names have Slurm's numbers: a job's batch step, and the step of the shell that galloc starts on the job's
// first node.
const (
	StepExtern            = -4 // of records that were imported: gbatch makes none
	StepBatch             = -5
	StepInteractive int32 = -6
)

// StepText writes a step's part of an id: 0, batch.
func StepText(step int32) string {
	switch step {
	case StepBatch:
		return "batch"
	case StepExtern:
		return "extern"
	case StepInteractive:
		return "interactive"
	}
	return strconv.FormatInt(int64(step), 10)
}

// StepID writes a step's whole id: 12.0, 12.interactive.
func StepID(job model.JobID, step int32) string {
	return strconv.FormatUint(uint64(job), 10) + "." + StepText(step)
}

// NodePids are a step's processes on one node.
type NodePids struct {
	Node  string
	Pids  []int32
	Tasks []int32 // the first processes of tasks: pid, number among the node's tasks, rank; and so on
}

func (x *NodePids) Wire(c *wire.C) {
	wire.Text(c, &x.Node, model.MaxName)
	wire.Ints(c, &x.Pids, model.MaxMany)
	wire.Ints(c, &x.Tasks, model.MaxMany)
}

// NodeAsk asks one node, or orders something that it does at once; the answer has the same ID. Without a further field
// it asks for the usage of the attempts' steps.
type NodeAsk struct {
	ID       uint64
	Attempts []Attempt

	Steps bool       // list their running steps instead of usage
	Tell  []StepTell // end or signal these steps

	Doctor bool        // look at yourself
	Held   []HeldUnits // with Doctor: units that running jobs hold there

	MIG *MIGAsk // divide these GPUs

	Waits bool // asks what these attempts wait for: one finding for each, in order

	Reboot string // run RebootProgram if this is the ID of the host's present boot; "": do not

	Signals []*Stop // send these signals and messages, in this order

	Ended bool // with Steps: also those that have ended in the last seconds

	About bool // say what you are

	Tail *TailAsk // read the end of a file
}

func (x *NodeAsk) Wire(c *wire.C) {
	wire.Int(c, &x.ID)
	wire.List(c, &x.Attempts, model.MaxMany)
	wire.Bool(c, &x.Steps)
	wire.List(c, &x.Tell, model.MaxMany)
	wire.Bool(c, &x.Doctor)
	wire.List(c, &x.Held, model.MaxMany)
	wire.Ptr(c, &x.MIG)
	wire.Bool(c, &x.Waits)
	wire.Text(c, &x.Reboot, model.MaxName)
	wire.Ptrs(c, &x.Signals, model.MaxMany)
	wire.Bool(c, &x.Ended)
	wire.Bool(c, &x.About)
	wire.Ptr(c, &x.Tail)
}

// NodeAnswer is a node's answer: attempts that don't run there are not in it.
type NodeAnswer struct {
	ID   uint64
	List []StatOf

	Steps []RunningStep
	Known []bool // for each Tell: whether the step was there

	Findings []Finding
	At       model.Time // the node's clock; with Findings

	MIG *MIGDone

	Failed string // why it could not do what was asked; ""

	Signalled int32 // how many of Signals it has sent; daemons of before send none

	About *DaemonAbout // nil: daemons of before say nothing

	Tail *TailEnd // likewise
}

func (x *NodeAnswer) Wire(c *wire.C) {
	wire.Int(c, &x.ID)
	wire.List(c, &x.List, model.MaxMany)
	wire.List(c, &x.Steps, model.MaxMany)
	wire.Each(c, &x.Known, model.MaxMany, wire.Bool)
	wire.List(c, &x.Findings, model.MaxList)
	wire.Int(c, &x.At)
	wire.Ptr(c, &x.MIG)
	wire.Text(c, &x.Failed, model.MaxText)
	wire.Int(c, &x.Signalled)
	wire.Ptr(c, &x.About)
	wire.Ptr(c, &x.Tail)
}

// StatOf is one step on the node that answers.
type StatOf struct {
	Job     model.JobID
	Attempt uint32
	Step    int32
	Use     *model.NodeUsage
	Pids    []int32
	Tasks   []int32 // as in NodePids
}

func (x *StatOf) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Int(c, &x.Step)
	wire.Ptr(c, &x.Use)
	wire.Ints(c, &x.Pids, model.MaxMany)
	wire.Ints(c, &x.Tasks, model.MaxMany)
}

// DaemonRequest asks a node's daemon what it is.
type DaemonRequest struct{ Node string }

func (x *DaemonRequest) Wire(c *wire.C) { wire.Text(c, &x.Node, model.MaxName) }

// DaemonReply is its answer.
type DaemonReply struct{ About DaemonAbout }

func (x *DaemonReply) Wire(c *wire.C) { wire.Struct(c, &x.About) }

// DaemonAbout is what a node's daemon says of itself and of its host.
type DaemonAbout struct {
	Node    string
	Version string
	Hw      Hardware // what the host has, whatever the configuration says
	UpSince model.Time
	PID     int32
	Level   string     // of its log
	Log     string     // its log's file; "": standard error
	Heard   model.Time // when the leader last said something
	Steps   []StepHere // that have tasks on the node
}

func (x *DaemonAbout) Wire(c *wire.C) {
	wire.Text(c, &x.Node, model.MaxName)
	wire.Text(c, &x.Version, model.MaxName)
	wire.Struct(c, &x.Hw)
	wire.Int(c, &x.UpSince)
	wire.Int(c, &x.PID)
	wire.Text(c, &x.Level, model.MaxName)
	wire.Text(c, &x.Log, model.MaxText)
	wire.Int(c, &x.Heard)
	wire.List(c, &x.Steps, model.MaxMany)
}

// StepHere is a step of a job, with its part on a node.
type StepHere struct {
	Job  model.JobID
	Step int32
}

func (x *StepHere) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Step)
}

// MaxTail is the most of a job's output that an answer has, bytes.
const MaxTail = 16 << 10

// TailRequest asks for the end of a job's output, or of its file of errors, as the job's first node has it.
type TailRequest struct {
	Job model.JobID
	Err bool
}

func (x *TailRequest) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Bool(c, &x.Err)
}

// TailReply is its answer.
type TailReply struct {
	Node, File string
	End        TailEnd
}

func (x *TailReply) Wire(c *wire.C) {
	wire.Text(c, &x.Node, model.MaxName)
	wire.Text(c, &x.File, model.MaxText)
	wire.Struct(c, &x.End)
}

// TailAsk has a node read the end of a file with a user's rights.
type TailAsk struct {
	File     string
	UID, GID uint32
	Groups   []uint32
}

func (x *TailAsk) Wire(c *wire.C) {
	wire.Text(c, &x.File, model.MaxText)
	wire.Int(c, &x.UID)
	wire.Int(c, &x.GID)
	wire.Ints(c, &x.Groups, model.MaxMany)
}

// TailEnd is the end of a file.
type TailEnd struct {
	Text    []byte
	Size    int64      // of the whole file, bytes
	Written model.Time // when it last was
}

func (x *TailEnd) Wire(c *wire.C) {
	wire.Bytes(c, &x.Text, MaxTail)
	wire.Int(c, &x.Size)
	wire.Int(c, &x.Written)
}
