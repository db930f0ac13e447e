package model

import "gbatch/internal/wire"

// Explanation says why a job waits, when it is expected to start and what would let it start sooner. It is computed
// when somebody asks and never stored. In sentences moments stand as <t:N> with N Unix milliseconds: how they are
// written is the reader's affair.
type Explanation struct {
	Job     JobID
	ArrayID JobID
	Task    int32
	Tasks   TaskSet // of an array's own record: the tasks that wait
	Name    string
	User    string
	State   JobState
	Text    string // for a job that does not wait: what it does, or how it ended; otherwise how Start is to be read
	Causes  []Cause
	Places  []QueuePlace
	Start   Time // expected; 0: unknown
	Nodes   []string
	Changes []WhatIf
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
}

// Cause is one thing that holds a job. The first of a list is the binding one.
type Cause struct {
	Reason    Reason
	Partition string // "": whatever the partition
	Text      string
	Nodes     []string // that it is about, at most a few
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
	Ahead     int32 // jobs that come first
	Queue     int32 // jobs in the queue
}

func (x *QueuePlace) Wire(c *wire.C) {
	wire.Text(c, &x.Partition, MaxName)
	wire.Int(c, &x.Ahead)
	wire.Int(c, &x.Queue)
}

// WhatIf is a single change of a request and what would come of it.
type WhatIf struct {
	Option    string // as one would submit it: --time=1:30:00
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
