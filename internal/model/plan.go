package model

import "gbatch/internal/wire"

// Plan has the decisions of one scheduling pass. The state checks every start against the facts again before it applies
// it.
type Plan struct {
	Starts  []Start
	Reasons []ReasonSet
	Preempt []Preemption
	Claims  []ClaimSet
	Resume  []JobID // jobs suspended for room that have room now
	Grow    []Growth
	Ask     []Asking
}

func (x *Plan) Wire(c *wire.C) {
	wire.List(c, &x.Starts, MaxMany)
	wire.List(c, &x.Reasons, MaxMany)
	wire.List(c, &x.Preempt, MaxMany)
	wire.List(c, &x.Claims, MaxMany)
	wire.Ints(c, &x.Resume, MaxMany)
	wire.List(c, &x.Grow, MaxMany)
	wire.List(c, &x.Ask, MaxMany)
}

// Empty reports whether the plan changes nothing.
func (p *Plan) Empty() bool {
	return len(p.Starts)+len(p.Reasons)+len(p.Preempt)+len(p.Claims)+len(p.Resume)+len(p.Grow)+len(p.Ask) == 0
}

// Growth gives a running elastic job more nodes.
type Growth struct {
	Job     JobID
	Attempt uint32
	Parts   []NodeAlloc
}

func (x *Growth) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.List(c, &x.Parts, MaxList)
}

// Asking asks a running elastic job to give nodes back for another job.
type Asking struct {
	Job     JobID
	Attempt uint32
	Nodes   []string
	For     JobID
}

func (x *Asking) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Texts(c, &x.Nodes, MaxList, MaxName)
	wire.Int(c, &x.For)
}

// Preemption ends or suspends a job with resources for another job.
type Preemption struct {
	Job    JobID // the victim
	For    JobID
	Cancel bool  // it doesn't go back to the queue, even if it may be requeued
	GraceS int64 // seconds between SIGTERM and SIGKILL; 0: KillWait
	Sleep  bool  // it is suspended, and resumes when there is room again

	NoticeS int64 // it goes on for so long, as if its time limit ended then, with the signal that it wants before that
}

func (x *Preemption) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.For)
	wire.Bool(c, &x.Cancel)
	wire.Int(c, &x.GraceS)
	wire.Bool(c, &x.Sleep)
	wire.Int(c, &x.NoticeS)
}

// ClaimSet gives a pending job a claim, or takes it away (nil).
type ClaimSet struct {
	Job   JobID
	Claim *Claim
}

func (x *ClaimSet) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Ptr(c, &x.Claim)
}

// Claim is the allocation that a pending job was promised when victims were ended for it. No other job gets it. It ends
// when the job starts or may no longer start.
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
	Job       JobID // a plain job, or an array
	Task      int32 // the array's task, or NoTask
	Partition string
	LimitS    int64
	Alloc     *Alloc
	Priority  uint32         // computed when it was planned; 0: Job.Priority
	Licenses  []LicenseCount // licenses that it takes
	Resv      string         // the reservation in which it runs; "": none
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
