package proto

import "gbatch/internal/model"

// StatRequest asks what the steps of running jobs have used so far. The leader asks their nodes; the owners of the jobs
// and operators get an answer.
//
//gbatch:codec
type StatRequest struct {
	Jobs []JobRef
}

// MaxStatJobs bounds the jobs that one StatRequest asks about.
const MaxStatJobs = 256

// StatReply lists steps in order of job and step. Missing has a sentence for each node that did not answer in time.
//
//gbatch:codec
type StatReply struct {
	Now     model.Time
	Steps   []StepStat
	Missing []string
}

// StepStat is one step of a running job.
//
//gbatch:codec
type StepStat struct {
	Job     model.JobID
	ArrayID model.JobID
	Task    int32
	Step    int32  // StepBatch, or a step's number
	Nodes   string // hostlist of those that answered
	Use     *model.Usage
	Pids    []NodePids
}

// StepBatch is the number of a job's batch step, as Slurm counts.
const StepBatch = -5

// NodePids are a step's processes on one node.
//
//gbatch:codec
type NodePids struct {
	Node string
	Pids []int32
}

// NodeAsk asks one node, or has it do something at once; the answer has the same ID. Without a further field it asks what
// steps of these attempts use.
//
//gbatch:codec
type NodeAsk struct {
	ID       uint64
	Attempts []Attempt

	Steps bool       // list their running steps, not what they use
	Tell  []StepTell // end or signal these

	Doctor bool        // look at yourself
	Held   []HeldUnits // with Doctor: by jobs that run there

	MIG *MIGAsk // divide these GPUs
}

// NodeAnswer is what a node knows or has done: attempts that don't run there are not in it.
//
//gbatch:codec
type NodeAnswer struct {
	ID   uint64
	List []StatOf

	Steps []RunningStep
	Known []bool // for each Tell: whether the step was there

	Findings []Finding
	At       model.Time // by the node's clock; with Findings

	MIG *MIGDone
}

// StatOf is one step on the node that answers.
//
//gbatch:codec
type StatOf struct {
	Job     model.JobID
	Attempt uint32
	Step    int32
	Use     *model.NodeUsage
	Pids    []int32
}
