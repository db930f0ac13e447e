package model

// Plan is what one scheduling pass decided. The state checks every start against the facts again before it takes it.
//
//gbatch:codec
type Plan struct {
	Starts  []Start
	Reasons []ReasonSet
}

// Start gives a job (or the next task of an array) its resources.
//
//gbatch:codec
type Start struct {
	Job       JobID // the plain job, or the array
	Task      int32 // the array's task, or NoTask
	Partition string
	LimitS    int64
	Alloc     *Alloc
	Priority  uint32 // as computed when it was planned; 0: Job.Priority
}

// ReasonSet says why a job still waits.
//
//gbatch:codec
type ReasonSet struct {
	Job    JobID
	Reason Reason
	Why    string
}
