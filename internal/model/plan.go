package model

// Plan is what one scheduling pass decided. The state checks every start against the facts again before it takes it.
//
//gbatch:codec
type Plan struct {
	Starts  []Start
	Reasons []ReasonSet
	Preempt []Preemption
	Claims  []ClaimSet
	Resume  []JobID // suspended for room, which there is now
}

// Empty reports whether the plan changes nothing.
func (p *Plan) Empty() bool {
	return len(p.Starts)+len(p.Reasons)+len(p.Preempt)+len(p.Claims)+len(p.Resume) == 0
}

// Preemption ends or suspends a job with resources for the sake of another.
//
//gbatch:codec
type Preemption struct {
	Job    JobID // who ends
	For    JobID
	Cancel bool  // it doesn't come back, whatever it asked for
	GraceS int64 // seconds between SIGTERM and SIGKILL; 0: KillWait
	Sleep  bool  // it is suspended, and goes on when there is room again
}

// ClaimSet gives a job that waits a claim, or takes it away (nil).
//
//gbatch:codec
type ClaimSet struct {
	Job   JobID
	Claim *Claim
}

// Claim is what a job that waits was promised when others were ended for it. Nobody else gets it. It goes with the
// job's start, or when the job no longer may start.
//
//gbatch:codec
type Claim struct {
	Partition string
	Alloc     *Alloc
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
	Priority  uint32         // as computed when it was planned; 0: Job.Priority
	Licenses  []LicenseCount // that it takes
	Resv      string         // the reservation that it runs in; "": none
}

// ReasonSet says why a job still waits.
//
//gbatch:codec
type ReasonSet struct {
	Job    JobID
	Reason Reason
	Why    string
}
