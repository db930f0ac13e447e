package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// DiagReply has the leader's statistics in sdiag's terms. Spans are in microseconds. Counts begin at Since unless a
// field says otherwise.
type DiagReply struct {
	Counters []model.KV // counters that sdiag does not have, by name, in order

	Now, Since    model.Time
	Threads       int64 // requests being served now
	AgentQueue    int64 // orders that wait for a node's connection, now
	DbdQueue      int64 // accounting records that wait, now
	RaftQueue     int64 // commands that wait for the log, now
	Submitted     int64
	Started       int64
	Completed     int64
	Canceled      int64
	Failed        int64
	Pending       int64 // now; an array counts as its pending tasks
	Running       int64 // now
	Main          DiagPass
	Backfill      DiagPass
	Backfilled    int64 // jobs started ahead of their turn
	BackfilledAll int64 // the same since this controller leads
	TryDepthSum   int64 // as Backfill.DepthSum, but only jobs that had a chance to start
	TryDepthLast  int64
	TableLast     int64 // moments on the calendar in the last backfill pass
	TableSum      int64
	ByType        []DiagRPC
	ByUser        []DiagRPC
	Backlogs      []DiagBacklog // of partitions with jobs that wait for room
}

// DiagBacklog is what waits for room in a partition. A job with several partitions counts in its first one.
type DiagBacklog struct {
	Partition string
	Jobs      int64 // an array counts as its waiting tasks
	OldestS   int64 // for how long the oldest one waits, seconds
	WorkS     int64 // how long the whole partition would take for it, seconds
}

func (x *DiagBacklog) Wire(c *wire.C) {
	wire.Text(c, &x.Partition, model.MaxName)
	wire.Int(c, &x.Jobs)
	wire.Int(c, &x.OldestS)
	wire.Int(c, &x.WorkS)
}

func (x *DiagReply) Wire(c *wire.C) {
	wire.List(c, &x.Counters, model.MaxFew)
	wire.Int(c, &x.Now)
	wire.Int(c, &x.Since)
	wire.Int(c, &x.Threads)
	wire.Int(c, &x.AgentQueue)
	wire.Int(c, &x.DbdQueue)
	wire.Int(c, &x.RaftQueue)
	wire.Int(c, &x.Submitted)
	wire.Int(c, &x.Started)
	wire.Int(c, &x.Completed)
	wire.Int(c, &x.Canceled)
	wire.Int(c, &x.Failed)
	wire.Int(c, &x.Pending)
	wire.Int(c, &x.Running)
	wire.Struct(c, &x.Main)
	wire.Struct(c, &x.Backfill)
	wire.Int(c, &x.Backfilled)
	wire.Int(c, &x.BackfilledAll)
	wire.Int(c, &x.TryDepthSum)
	wire.Int(c, &x.TryDepthLast)
	wire.Int(c, &x.TableLast)
	wire.Int(c, &x.TableSum)
	wire.List(c, &x.ByType, model.MaxList)
	wire.List(c, &x.ByUser, model.MaxList)
	wire.List(c, &x.Backlogs, model.MaxList)
}

// DiagPass counts the passes of one scheduling algorithm.
type DiagPass struct {
	Count     int64
	LastUS    int64
	MaxUS     int64
	SumUS     int64
	DepthLast int64 // jobs looked at
	DepthSum  int64
	QueueLast int64 // jobs in the queues; a job in several partitions counts once for each
	QueueSum  int64
	At        model.Time // the last pass
}

func (x *DiagPass) Wire(c *wire.C) {
	wire.Int(c, &x.Count)
	wire.Int(c, &x.LastUS)
	wire.Int(c, &x.MaxUS)
	wire.Int(c, &x.SumUS)
	wire.Int(c, &x.DepthLast)
	wire.Int(c, &x.DepthSum)
	wire.Int(c, &x.QueueLast)
	wire.Int(c, &x.QueueSum)
	wire.Int(c, &x.At)
}

// DiagRPC counts requests of one type, or of one user.
type DiagRPC struct {
	Name  string // the type, in Slurm's terms if it has one; or the user's name
	ID    uint32 // the type's number; or the uid
	Count int64
	SumUS int64

	// Of a user: requests that were slowed (QueryRateLimit), and the sum of their waits.
	Slowed   int64
	SlowedMS int64
}

func (x *DiagRPC) Wire(c *wire.C) {
	wire.Text(c, &x.Name, model.MaxName)
	wire.Int(c, &x.ID)
	wire.Int(c, &x.Count)
	wire.Int(c, &x.SumUS)
	wire.Int(c, &x.Slowed)
	wire.Int(c, &x.SlowedMS)
}

// WhyRequest asks why jobs wait.
type WhyRequest struct {
	Jobs []model.JobRef
	Mine bool // all pending jobs of the caller, instead of Jobs
}

func (x *WhyRequest) Wire(c *wire.C) {
	wire.List(c, &x.Jobs, model.MaxMany)
	wire.Bool(c, &x.Mine)
}

// MaxWhy bounds the records that one WhyRequest explains.
const MaxWhy = 16

// WhyReply explains the named jobs as of Now; Left says how many records it leaves out.
type WhyReply struct {
	Now  model.Time
	List []*model.Explanation
	Left int32
}

func (x *WhyReply) Wire(c *wire.C) {
	wire.Int(c, &x.Now)
	wire.Ptrs(c, &x.List, model.MaxMany)
	wire.Int(c, &x.Left)
}
