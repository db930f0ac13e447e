package proto

import "gbatch/internal/model"

// Empty is a message without content.
//
//gbatch:codec
type Empty struct{}

// PingReply tells about the controllers, from the one that leads.
//
//gbatch:codec
type PingReply struct {
	Cluster     string
	Leader      string
	Term        uint64
	Controllers []ControllerInfo
	Version     string
	Now         model.Time
	Ready       bool // leads, has its configuration, and at least one node takes jobs
	DbdUp       bool
	Outbox      int64 // accounting records not yet acknowledged by gdbd
}

// ControllerInfo is one controller as the leader sees it.
//
//gbatch:codec
type ControllerInfo struct {
	Name   string
	Addr   string
	Leader bool
	Up     bool
}

// SubmitRequest submits a job. RequestID makes a retry safe: the same one gives the same job. The daemon that accepts
// the connection fills in who submits.
//
//gbatch:codec
type SubmitRequest struct {
	RequestID string
	Spec      *model.Spec
	Script    []byte // as written
	Env       []byte // NAME=value, each ended by a NUL
	TestOnly  bool
}

// SubmitReply is a submission that was accepted or, with TestOnly, would be.
//
//gbatch:codec
type SubmitReply struct {
	Job       model.JobID
	Cluster   string
	Notes     []string // sentences for people; shown on standard error
	TestStart model.Time
	TestNodes string
	TestCPUs  int32
	TestPart  string
}

// SubmitEachRequest submits jobs that differ in their script's arguments only, in order: Spec.Args of the submission and,
// behind them, one list of Args, which has 1 to MaxEachJobs of them. Its RequestID makes a retry of the whole safe.
//
//gbatch:codec
type SubmitEachRequest struct {
	Submit *SubmitRequest
	Args   [][]string
}

// SubmitEachReply tells which jobs were accepted: the first len(Jobs) of them. Where that is not all, Refused says why
// the next was not, and with it those behind it.
//
//gbatch:codec
type SubmitEachReply struct {
	Jobs    []model.JobID
	Cluster string
	Notes   []string
	Code    Code
	Refused string
}

// JobRef names a job, a task of an array, several tasks, or a whole array (Task == NoTask, no Tasks).
//
//gbatch:codec
type JobRef struct {
	Job   model.JobID
	Task  int32
	Tasks model.TaskSet
}

// JobFilter picks jobs: all that fit every list that isn't empty.
//
//gbatch:codec
type JobFilter struct {
	Jobs       []JobRef
	Users      []uint32
	NotUsers   []uint32
	States     []model.JobState
	Names      []string
	Partitions []string
	Accounts   []string
	QOS        []string
	Nodes      []string

	Reservations []string
	Licenses     []string
}

// JobsRequest lists jobs. Answered by a stream of JobsChunk.
//
//gbatch:codec
type JobsRequest struct {
	Filter  JobFilter
	Default bool // no States given: pending, running and ending jobs only

	Positions bool // with the places of waiting jobs in their queues
}

// JobsChunk is a part of the list, in order of ID. The records are the replicated ones, whole.
//
//gbatch:codec
type JobsChunk struct {
	Now  model.Time
	Jobs []*model.Job
}

// NodesRequest lists nodes, all or the named ones. Answered by a stream of NodesChunk.
//
//gbatch:codec
type NodesRequest struct {
	Names []string
	Units bool // with the units of their resources, one by one
}

// NodeInfo is a node with what only the leader's memory holds.
//
//gbatch:codec
type NodeInfo struct {
	Node       *model.Node
	LoadMilli  int64 // load average of one minute, thousandths; -1: unknown
	FreeMemMiB int64 // -1: unknown
	SeenAt     model.Time
	Partitions []string
	Notes      []string // sentences about what the node can't enforce, as it said when it registered

	// Where the request asks for units:
	Units    []model.GresUnit
	Readings []UnitReading
	Holders  []UnitHolder

	Resv  string // the reservation that has the whole node just now; "": none
	Maint bool   // it is one for maintenance
}

// UnitHolder is a job that holds a unit.
//
//gbatch:codec
type UnitHolder struct {
	Name  string
	Index int32
	Job   string // as users write it
}

// NodesChunk is a part of the list, in the order of the configuration.
//
//gbatch:codec
type NodesChunk struct {
	Now   model.Time
	Nodes []*NodeInfo
}

// PartitionsReply lists the partitions in the order of the configuration.
//
//gbatch:codec
type PartitionsReply struct {
	Now        model.Time
	Partitions []*model.Partition
	TotalCPUs  []int64 // by partition
	Gres       []GresTotals
}

// GresTotals sums generic resources over one partition's nodes.
//
//gbatch:codec
type GresTotals struct {
	MemMiB int64
	Gres   []model.GresCount
}

// ConfigReply is the cluster's configuration.
//
//gbatch:codec
type ConfigReply struct {
	Config *model.Config
	Paths  []model.KV // local settings of the daemon that answered
	Now    model.Time
	BootAt model.Time

	LicensesInUse []model.LicenseCount // in the order of Config.Licenses
}

// CancelRequest ends or signals jobs: those named, or those that the filter picks.
//
//gbatch:codec
type CancelRequest struct {
	Targets []JobRef
	Filter  JobFilter // narrows Targets, or stands alone
	Signal  int32     // 0: end the job; otherwise send this signal to a running job's processes
	Batch   bool      // -b: only the batch shell
	Full    bool      // -f: the batch shell and everything it started

	Steps []StepRef // these steps instead of jobs; Targets is empty then

	Release bool  // with Signal: the job gives its resources back, and ends with Code
	Code    int32 // exit code
}

// Kind is that of the request. To end a job is asked for again where the answer is lost; a signal that a program counts
// is sent once.
func (rq *CancelRequest) Kind() uint16 {
	const sigKill = 9
	if rq.Signal == 0 || rq.Signal == sigKill || rq.Release {
		return KindCancel
	}
	return KindSignal
}

// TargetResult tells what became of one target. Code 0 is success.
//
//gbatch:codec
type TargetResult struct {
	Ref  JobRef
	Code Code
	Text string
}

// TargetsReply answers CancelRequest and UpdateJobRequest.
//
//gbatch:codec
type TargetsReply struct {
	Results []TargetResult
}

// JobAction is what UpdateJobRequest does.
type JobAction uint8

// The actions. The numbers are on the wire: append only.
const (
	ActUpdate   JobAction = iota + 1
	ActHold               // gcontrol hold: by an operator an admin hold
	ActUserHold           // gcontrol uhold
	ActRelease
	ActRequeue
	ActRequeueHold
	ActTop
	ActSuspend // gcontrol suspend, resume: operators'
	ActResume
)

// UpdateJobRequest changes jobs. Set holds gcontrol's key=value words; values that are moments of time come as
// "@" and Unix milliseconds.
//
//gbatch:codec
type UpdateJobRequest struct {
	Action  JobAction
	Targets []JobRef
	Set     []model.KV
}

// UpdateNodeRequest changes nodes: Set holds State= and Reason=.
//
//gbatch:codec
type UpdateNodeRequest struct {
	Names []string
	Set   []model.KV
}

// ReconfigureRequest makes the leader read its configuration files anew and replace the cluster's configuration in one
// step, or not at all.
//
//gbatch:codec
type ReconfigureRequest struct {
	DryRun bool
}

// ReconfigureReply is what changed (or would) or, with Problems of severity error, why nothing did.
//
//gbatch:codec
type ReconfigureReply struct {
	Applied  bool
	Changes  []Change
	Problems []Problem
	Affected []string // sentences: jobs and nodes that the change touches
	Restart  []string // sentences: daemons that take a change over when they are restarted
}

// Change is one difference between two configurations.
//
//gbatch:codec
type Change struct {
	Key    string
	Old    string
	New    string
	Effect string
}

// Problem is one finding in a configuration file.
//
//gbatch:codec
type Problem struct {
	File     string
	Line     int32
	Severity string // error, warning, note
	Text     string
	Hint     string
}

// WaitRequest waits until a job is over. The answer comes then, or after at most MaxWaitS seconds with Done false.
//
//gbatch:codec
type WaitRequest struct {
	Job model.JobID
}

// AttendRequest says that a job is there for the command that sends it (galloc, grun): the daemon of the command's host cancels
// the job when the connection ends and the command has not said, by any further frame, that it no longer needs the job.
//
//gbatch:codec
type AttendRequest struct {
	Job model.JobID
}

// WaitReply tells how it ended; for an array the highest exit code of its tasks.
//
//gbatch:codec
type WaitReply struct {
	Done   bool
	State  model.JobState
	Code   int32
	Signal int32
}

// MaxWaitS bounds one WaitRequest, seconds; commands ask again.
const MaxWaitS = 60

// AcctRequest asks the accounting daemon for job records. Answered by a stream of RecordsChunk, ordered by job and
// attempt.
//
//gbatch:codec
type AcctRequest struct {
	Jobs       []JobRef
	Users      []uint32
	Groups     []uint32
	Accounts   []string
	Partitions []string
	Names      []string
	QOS        []string
	Nodes      []string
	States     []model.JobState
	Start      model.Time // window; 0: none
	End        model.Time
	Duplicates bool // -D: every attempt of a requeued job, not only the last
	Summaries  bool // the JS1 summaries as well
	Steps      bool // the records of each job's steps right behind its own
}

// RecordsChunk is a part of the answer.
//
//gbatch:codec
type RecordsChunk struct {
	Records []*model.Record

	Summaries []string // of each record, where they were asked for; "": it has none
}

// SharesRequest asks for usage by account and user.
//
//gbatch:codec
type SharesRequest struct {
	Accounts []string
	Users    []uint32
	Names    []string // users by name, beside Users
}

// ShareRow is one line of gshare: an account (User "") or a user in one.
//
//gbatch:codec
type ShareRow struct {
	Account    string
	Parent     string
	User       string
	UID        uint32
	Depth      int32
	RawShares  int64
	NormShares float64
	RawUsage   int64 // CPU-seconds
	NormUsage  float64
	FairShare  float64

	Partition   string
	UseParent   bool    // Fairshare=parent
	Used        float64 // effective usage: among its siblings
	LevelFS     float64 // +Inf where nothing was used
	ID          uint32  // of the association
	GrpTRESMins []model.TRESLimit
	RunMins     []model.TRESCount // TRES-minutes that running jobs still hold
	TRESMins    []model.TRESCount // used, in minutes
}

// SharesReply lists accounts, each followed by its users.
//
//gbatch:codec
type SharesReply struct {
	Rows []ShareRow
}

// ResvAction is what ReserveRequest does.
type ResvAction uint8

// The actions. The numbers are on the wire: append only.
const (
	CreateReservation ResvAction = iota + 1
	UpdateReservation
	DeleteReservation
)

// ReserveRequest creates, changes or removes a reservation. Set holds gcontrol's key=value words; values that are
// moments come as "@" and Unix milliseconds, a key that ends in + or - adds to a list or takes from it.
//
//gbatch:codec
type ReserveRequest struct {
	Action ResvAction
	Name   string // "": one is made of who may use it
	Set    []model.KV
}

// ReserveReply names the reservation.
//
//gbatch:codec
type ReserveReply struct {
	Name string
}

// ReservationsReply lists reservations in order of name; CPUs are those of all nodes of each.
//
//gbatch:codec
type ReservationsReply struct {
	Now  model.Time
	List []*model.Reservation
	CPUs []int64

	Sizes []ResvSize // of each
}

// ResvSize is what a reservation takes of its nodes together.
//
//gbatch:codec
type ResvSize struct {
	CPUs     int64
	Cores    int64
	Gres     []model.TRESCount // gres/NAME
	PartGres []string          // of each node of which it takes a part: gpu:a100:2
}

// ScriptRequest asks for a job's batch script; its owner and operators get it.
//
//gbatch:codec
type ScriptRequest struct {
	Job model.JobID
}

// ScriptReply is the script as it was submitted.
//
//gbatch:codec
type ScriptReply struct {
	Script []byte
}

// DumpChunk is a part of the leader's state as package state's WriteDump writes it; operators get it. It holds scripts and
// environments of all jobs.
//
//gbatch:codec
type DumpChunk struct {
	Data []byte
}

// DumpChunkBytes is how much of a dump stands in one frame.
const DumpChunkBytes = 256 << 10
