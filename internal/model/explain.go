package model

import "gbatch/internal/wire"

// Explanation says why a job waits, when it is expected to start and what would let it start sooner. It is computed on
// request and never stored. Sentences contain moments as <t:N>, N in Unix milliseconds; the reader replaces them by
// times.
type Explanation struct {
	Job     JobID
	ArrayID JobID
	Task    int32
	Tasks   TaskSet // for an array's own record: its pending tasks
	Name    string
	User    string
	State   JobState
	Text    string // for a job that is not pending: what it does, or how it ended; otherwise a remark on Start
	Causes  []Cause
	Places  []QueuePlace
	Start   Time // expected; 0: unknown
	Nodes   []string
	Changes []WhatIf

	// Between these moments it starts if jobs run as long as their users' jobs did lately; 0: not known.
	Early, Late Time
}

func (x *Explanation) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.ArrayID)
	wire.Int(c, &x.Task)
	wire.List(c, &x.Tasks, MaxMany)
	wire.Text(c, &x.Name, MaxName)
	wire.Text(c, &x.User, MaxName)
	wire.Int(c, &x.State)
	wire.Text(c, &x.Text, MaxText)
	wire.List(c, &x.Causes, MaxList)
	wire.List(c, &x.Places, MaxMany)
	wire.Int(c, &x.Start)
	wire.Texts(c, &x.Nodes, MaxList, MaxName)
	wire.List(c, &x.Changes, MaxList)
	wire.Int(c, &x.Early)
	wire.Int(c, &x.Late)
}

// Cause is one thing that keeps a job waiting. The first of a list is the decisive one.
type Cause struct {
	Reason    Reason
	Partition string // "": in all partitions
	Text      string
	Nodes     []string // nodes that the cause is about, a few at most
	Jobs      []JobID  // likewise
}

func (x *Cause) Wire(c *wire.C) {
	wire.Int(c, &x.Reason)
	wire.Text(c, &x.Partition, MaxName)
	wire.Text(c, &x.Text, MaxText)
	wire.Texts(c, &x.Nodes, MaxList, MaxName)
	wire.Ints(c, &x.Jobs, MaxMany)
}

// QueuePlace is a job's place in a partition's queue.
type QueuePlace struct {
	Partition string
	Ahead     int32 // jobs ahead of it
	Queue     int32 // jobs in the queue
}

func (x *QueuePlace) Wire(c *wire.C) {
	wire.Text(c, &x.Partition, MaxName)
	wire.Int(c, &x.Ahead)
	wire.Int(c, &x.Queue)
}

// WhatIf is a single change of a request, and its effect.
type WhatIf struct {
	Option    string // as an option: --time=1:30:00
	Start     Time
	Now       bool // Start is now
	Partition string
	Nodes     []string
}

func (x *WhatIf) Wire(c *wire.C) {
	wire.Text(c, &x.Option, MaxName)
	wire.Int(c, &x.Start)
	wire.Bool(c, &x.Now)
	wire.Text(c, &x.Partition, MaxName)
	wire.Texts(c, &x.Nodes, MaxList, MaxName)
}
