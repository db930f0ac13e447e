package proto

import "gbatch/internal/model"

// Running steps are known only to the nodes that manage them: those of the jobs' batch scripts. Nothing of them is
// replicated or sent unasked, so the leader asks the nodes when a command asks it.

// StepRef names a step, or all steps of what Job names.
//
//gbatch:codec
type StepRef struct {
	Job  JobRef
	Step int32 // a number, StepBatch, or StepAll
}

// StepAll as a step's number means all of a job's.
const StepAll int32 = -1

// StepsRequest lists steps of running jobs. Answered by a stream of StepsChunk.
//
//gbatch:codec
type StepsRequest struct {
	Filter JobFilter // States has no effect
	Steps  []StepRef // beside Filter.Jobs; both empty: of all jobs that the filter picks
}

// StepsChunk is a part of the list: the steps of some jobs, each job's together and in order. Missing has a sentence for
// each node that did not answer in time.
//
//gbatch:codec
type StepsChunk struct {
	Now     model.Time
	Steps   []RunningStep
	Missing []string
}

// RunningStep is one step of a running job.
//
//gbatch:codec
type RunningStep struct {
	Job       model.JobID
	ArrayID   model.JobID
	Task      int32
	UID       uint32
	User      string
	Account   string
	Partition string
	LimitS    int64      // seconds; model.Unlimited for none
	Step      model.Step // as far as it is known: no end, no exit
	Host      string     // where its grun runs; its node where it is the batch step, or not known
	PID       int32      // of its grun; 0: not known
}

// StepTell is what a node is to do with a step of its own.
//
//gbatch:codec
type StepTell struct {
	Job     model.JobID
	Attempt uint32
	Step    int32
	Signal  int32 // 0: end it
	UID     uint32
}
