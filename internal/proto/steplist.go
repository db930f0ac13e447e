package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// Only the nodes that manage steps know the running ones: the nodes of the jobs' batch scripts. Running steps are
// neither replicated nor sent regularly, so the leader asks the nodes on request.

// StepRef names a step, or all steps of the jobs that Job names.
type StepRef struct {
	Job  model.JobRef
	Step int32 // a number, StepBatch, or StepAll
}

func (x *StepRef) Wire(c *wire.C) {
	wire.Struct(c, &x.Job)
	wire.Int(c, &x.Step)
}

// StepAll, as a step's number, means all steps of a job.
const StepAll int32 = -1

// StepsRequest lists steps of running jobs. Answered by a stream of StepsChunk.
type StepsRequest struct {
	Filter JobFilter // States has no effect
	Steps  []StepRef // in addition to Filter.Jobs; both empty: steps of all jobs that match the filter

	Ended bool // with those that have just ended, which accounting may not have had a moment ago
}

func (x *StepsRequest) Wire(c *wire.C) {
	wire.Struct(c, &x.Filter)
	wire.List(c, &x.Steps, model.MaxMany)
	wire.Bool(c, &x.Ended)
}

// StepsChunk is a part of the list: the steps of some jobs, each job's together and in order. Missing has a sentence
// for each node that did not answer in time.
type StepsChunk struct {
	Now     model.Time
	Steps   []RunningStep
	Missing []string
}

func (x *StepsChunk) Wire(c *wire.C) {
	wire.Int(c, &x.Now)
	wire.List(c, &x.Steps, model.MaxMany)
	wire.Texts(c, &x.Missing, model.MaxList, model.MaxName)
}

// RunningStep is one step of a running job.
type RunningStep struct {
	Job       model.JobID
	ArrayID   model.JobID
	Task      int32
	UID       uint32
	User      string
	Account   string
	Partition string
	LimitS    int64      // seconds; model.Unlimited for none
	Step      model.Step // as far as known: without end and exit while it runs
	Host      string     // host of its grun; its own node for the batch step, or if not known
	PID       int32      // of its grun; 0: not known
	Het       *model.Het // nil: its job is no component of a heterogeneous job
}

func (x *RunningStep) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.ArrayID)
	wire.Int(c, &x.Task)
	wire.Int(c, &x.UID)
	wire.Text(c, &x.User, model.MaxName)
	wire.Text(c, &x.Account, model.MaxName)
	wire.Text(c, &x.Partition, model.MaxName)
	wire.Int(c, &x.LimitS)
	wire.Struct(c, &x.Step)
	wire.Text(c, &x.Host, model.MaxName)
	wire.Int(c, &x.PID)
	wire.Ptr(c, &x.Het)
}

// StepTell is an order to a node for one of its steps.
type StepTell struct {
	Job     model.JobID
	Attempt uint32
	Step    int32
	Signal  int32 // 0: end it
	UID     uint32
	LimitS  int64 // its new time limit in seconds, instead of a signal; model.Unlimited: none; 0: a signal
}

func (x *StepTell) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Int(c, &x.Step)
	wire.Int(c, &x.Signal)
	wire.Int(c, &x.UID)
	wire.Int(c, &x.LimitS)
}
