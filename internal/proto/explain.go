package proto

import "gbatch/internal/model"

// DiagReply holds the leader's statistics in sdiag's terms. Spans are in microseconds. All but what is said otherwise
// counts from Since.
//
//gbatch:codec
type DiagReply struct {
	Counters []model.KV // what sdiag has no words for, by name, in order

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
	Pending       int64 // now; an array counts its tasks that have not started
	Running       int64 // now
	Main          DiagPass
	Backfill      DiagPass
	Backfilled    int64 // jobs started ahead of their turn
	BackfilledAll int64 // the same since this controller leads
	TryDepthSum   int64 // as Backfill.DepthSum, of those that had a chance to start
	TryDepthLast  int64
	TableLast     int64 // moments on the calendar in the last backfill pass
	TableSum      int64
	ByType        []DiagRPC
	ByUser        []DiagRPC
}

// DiagPass counts the passes of one scheduling algorithm.
//
//gbatch:codec
type DiagPass struct {
	Count     int64
	LastUS    int64
	MaxUS     int64
	SumUS     int64
	DepthLast int64 // jobs looked at
	DepthSum  int64
	QueueLast int64 // jobs that stood in the queues, one in several partitions once for each
	QueueSum  int64
	At        model.Time // the last
}

// DiagRPC counts requests of one type, or of one user.
//
//gbatch:codec
type DiagRPC struct {
	Name  string // the type in Slurm's terms where it has one; the user's name
	ID    uint32 // its number; the uid
	Count int64
	SumUS int64
}

// WhyRequest asks why jobs wait.
//
//gbatch:codec
type WhyRequest struct {
	Jobs []JobRef
}

// MaxWhy bounds the records that one WhyRequest explains.
const MaxWhy = 16

// WhyReply explains the named jobs as of Now; Left says how many records it leaves out.
//
//gbatch:codec
type WhyReply struct {
	Now  model.Time
	List []*model.Explanation
	Left int32
}
