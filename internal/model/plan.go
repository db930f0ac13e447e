package model

import "gbatch/internal/wire"

// Plan is what one scheduling pass decided. The state checks every start against the facts again before it takes it.
type Plan struct {
	Starts  []Start
	Reasons []ReasonSet
	Preempt []Preemption
	Claims  []ClaimSet
	Resume  []JobID // suspended for room, which there is now
}

func (x *Plan) Wire(c *wire.C) {
	wire.List(c, &x.Starts, MaxMany)
	wire.List(c, &x.Reasons, MaxMany)
	wire.List(c, &x.Preempt, MaxMany)
	wire.List(c, &x.Claims, MaxMany)
	wire.Ints(c, &x.Resume, MaxMany)
}

// Empty reports whether the plan changes nothing.
func (p *Plan) Empty() bool {
	return len(p.Starts)+len(p.Reasons)+len(p.Preempt)+len(p.Claims)+len(p.Resume) == 0
}

// Preemption ends or suspends a job with resources for the sake of another.
type Preemption struct {
	Job    JobID // who ends
	For    JobID
	Cancel bool  // it doesn't come back, whatever it asked for
	GraceS int64 // seconds between SIGTERM and SIGKILL; 0: KillWait
	Sleep  bool  // it is suspended, and goes on when there is room again
}

func (x *Preemption) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.For)
	wire.Bool(c, &x.Cancel)
	wire.Int(c, &x.GraceS)
	wire.Bool(c, &x.Sleep)
}

// ClaimSet gives a job that waits a claim, or takes it away (nil).
type ClaimSet struct {
	Job   JobID
	Claim *Claim
}

func (x *ClaimSet) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Ptr(c, &x.Claim)
}

// Claim is what a job that waits was promised when others were ended for it. Nobody else gets it. It goes with the
// job's start, or when the job no longer may start.
type Claim struct {
	Partition string
	Alloc     *Alloc
}

func (x *Claim) Wire(c *wire.C) {
	wire.Text(c, &x.Partition, MaxName)
	wire.Ptr(c, &x.Alloc)
}

// Start gives a job (or the next task of an array) its resources.
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

func (x *Start) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Task)
	wire.Text(c, &x.Partition, MaxName)
	wire.Int(c, &x.LimitS)
	wire.Ptr(c, &x.Alloc)
	wire.Int(c, &x.Priority)
	wire.List(c, &x.Licenses, MaxFew)
	wire.Text(c, &x.Resv, MaxName)
}

// ReasonSet says why a job still waits.
type ReasonSet struct {
	Job    JobID
	Reason Reason
	Why    string
}

func (x *ReasonSet) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Reason)
	wire.Text(c, &x.Why, MaxText)
}
