package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// Empty is a message without content.
type Empty struct{}

func (x *Empty) Wire(*wire.C) {}

// PingReply tells about the controllers, from the one that leads.
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

func (x *PingReply) Wire(c *wire.C) {
	wire.Text(c, &x.Cluster, model.MaxName)
	wire.Text(c, &x.Leader, model.MaxName)
	wire.Int(c, &x.Term)
	wire.List(c, &x.Controllers, model.MaxFew)
	wire.Text(c, &x.Version, model.MaxName)
	wire.Int(c, &x.Now)
	wire.Bool(c, &x.Ready)
	wire.Bool(c, &x.DbdUp)
	wire.Int(c, &x.Outbox)
}

// ControllerInfo is one controller as the leader sees it.
type ControllerInfo struct {
	Name   string
	Addr   string
	Leader bool
	Up     bool
}

func (x *ControllerInfo) Wire(c *wire.C) {
	wire.Text(c, &x.Name, model.MaxName)
	wire.Text(c, &x.Addr, model.MaxName)
	wire.Bool(c, &x.Leader)
	wire.Bool(c, &x.Up)
}

// SubmitRequest submits a job. RequestID makes a retry safe: the same one gives the same job. The daemon that accepts
// the connection fills in who submits.
type SubmitRequest struct {
	RequestID string
	Spec      *model.Spec
	Script    []byte // as written
	Env       []byte // NAME=value, each ended by a NUL
	TestOnly  bool
}

func (x *SubmitRequest) Wire(c *wire.C) {
	wire.Text(c, &x.RequestID, model.MaxName)
	wire.Ptr(c, &x.Spec)
	wire.Bytes(c, &x.Script, model.MaxFile)
	wire.Bytes(c, &x.Env, model.MaxFile)
	wire.Bool(c, &x.TestOnly)
}

// SubmitReply is a submission that was accepted or, with TestOnly, would be.
type SubmitReply struct {
	Job       model.JobID
	Cluster   string
	Notes     []string // sentences for people; shown on standard error
	TestStart model.Time
	TestNodes string
	TestCPUs  int32
	TestPart  string
}

func (x *SubmitReply) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Text(c, &x.Cluster, model.MaxName)
	wire.Texts(c, &x.Notes, model.MaxList, model.MaxText)
	wire.Int(c, &x.TestStart)
	wire.Text(c, &x.TestNodes, model.MaxText)
	wire.Int(c, &x.TestCPUs)
	wire.Text(c, &x.TestPart, model.MaxName)
}

// SubmitEachRequest submits jobs that differ in their script's arguments only, in order: Spec.Args of the submission
// and, behind them, one list of Args, which has 1 to MaxEachJobs of them. Its RequestID makes a retry of the whole
// safe.
type SubmitEachRequest struct {
	Submit *SubmitRequest
	Args   [][]string
}

func (x *SubmitEachRequest) Wire(c *wire.C) {
	wire.Ptr(c, &x.Submit)
	wire.Each(c, &x.Args, model.MaxList, func(c *wire.C, e *[]string) { wire.Texts(c, e, model.MaxList, model.MaxText) })
}

// SubmitEachReply tells which jobs were accepted: the first len(Jobs) of them. Where that is not all, Refused says why
// the next was not, and with it those behind it.
type SubmitEachReply struct {
	Jobs    []model.JobID
	Cluster string
	Notes   []string
	Code    Code
	Refused string
}

func (x *SubmitEachReply) Wire(c *wire.C) {
	wire.Ints(c, &x.Jobs, model.MaxMany)
	wire.Text(c, &x.Cluster, model.MaxName)
	wire.Texts(c, &x.Notes, model.MaxList, model.MaxText)
	wire.Int(c, &x.Code)
	wire.Text(c, &x.Refused, model.MaxText)
}

// JobRef names a job, a task of an array, several tasks, or a whole array (Task == NoTask, no Tasks).
type JobRef struct {
	Job   model.JobID
	Task  int32
	Tasks model.TaskSet
}

func (x *JobRef) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Task)
	wire.List(c, &x.Tasks, model.MaxMany)
}

// JobFilter picks jobs: all that fit every list that isn't empty.
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

func (x *JobFilter) Wire(c *wire.C) {
	wire.List(c, &x.Jobs, model.MaxMany)
	wire.Ints(c, &x.Users, model.MaxList)
	wire.Ints(c, &x.NotUsers, model.MaxList)
	wire.Ints(c, &x.States, model.MaxList)
	wire.Texts(c, &x.Names, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Partitions, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Accounts, model.MaxList, model.MaxName)
	wire.Texts(c, &x.QOS, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Nodes, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Reservations, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Licenses, model.MaxList, model.MaxName)
}

// JobsRequest lists jobs. Answered by a stream of JobsChunk.
type JobsRequest struct {
	Filter  JobFilter
	Default bool // no States given: pending, running and ending jobs only

	Positions bool // with the places of waiting jobs in their queues
}

func (x *JobsRequest) Wire(c *wire.C) {
	wire.Struct(c, &x.Filter)
	wire.Bool(c, &x.Default)
	wire.Bool(c, &x.Positions)
}

// JobsChunk is a part of the list, in order of ID. The records are the replicated ones, whole. A chunk without jobs,
// with the rules of the partitions, comes before the first with some.
type JobsChunk struct {
	Now  model.Time
	Jobs []*model.Job

	Rules []*model.AskRules // what partitions add to what jobs ask for
}

func (x *JobsChunk) Wire(c *wire.C) {
	wire.Int(c, &x.Now)
	wire.Ptrs(c, &x.Jobs, model.MaxMany)
	wire.Ptrs(c, &x.Rules, model.MaxList)
}

// NodesRequest lists nodes, all or the named ones. Answered by a stream of NodesChunk.
type NodesRequest struct {
	Names []string
	Units bool // with the units of their resources, one by one
}

func (x *NodesRequest) Wire(c *wire.C) {
	wire.Texts(c, &x.Names, model.MaxList, model.MaxName)
	wire.Bool(c, &x.Units)
}

// NodeInfo is a node with what only the leader's memory holds.
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

func (x *NodeInfo) Wire(c *wire.C) {
	wire.Ptr(c, &x.Node)
	wire.Int(c, &x.LoadMilli)
	wire.Int(c, &x.FreeMemMiB)
	wire.Int(c, &x.SeenAt)
	wire.Texts(c, &x.Partitions, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Notes, model.MaxList, model.MaxText)
	wire.List(c, &x.Units, model.MaxList)
	wire.List(c, &x.Readings, model.MaxList)
	wire.List(c, &x.Holders, model.MaxList)
	wire.Text(c, &x.Resv, model.MaxName)
	wire.Bool(c, &x.Maint)
}

// UnitHolder is a job that holds a unit.
type UnitHolder struct {
	Name  string
	Index int32
	Job   string // as users write it
}

func (x *UnitHolder) Wire(c *wire.C) {
	wire.Text(c, &x.Name, model.MaxName)
	wire.Int(c, &x.Index)
	wire.Text(c, &x.Job, model.MaxName)
}

// NodesChunk is a part of the list, in the order of the configuration.
type NodesChunk struct {
	Now   model.Time
	Nodes []*NodeInfo
}

func (x *NodesChunk) Wire(c *wire.C) {
	wire.Int(c, &x.Now)
	wire.Ptrs(c, &x.Nodes, model.MaxList)
}

// PartitionsReply lists the partitions in the order of the configuration.
type PartitionsReply struct {
	Now        model.Time
	Partitions []*model.Partition
	TotalCPUs  []int64 // by partition
	Gres       []GresTotals
}

func (x *PartitionsReply) Wire(c *wire.C) {
	wire.Int(c, &x.Now)
	wire.Ptrs(c, &x.Partitions, model.MaxList)
	wire.Ints(c, &x.TotalCPUs, model.MaxList)
	wire.List(c, &x.Gres, model.MaxList)
}

// GresTotals sums generic resources over one partition's nodes.
type GresTotals struct {
	MemMiB int64
	Gres   []model.GresCount
}

func (x *GresTotals) Wire(c *wire.C) {
	wire.Int(c, &x.MemMiB)
	wire.List(c, &x.Gres, model.MaxFew)
}

// ConfigReply is the cluster's configuration.
type ConfigReply struct {
	Config *model.Config
	Paths  []model.KV // local settings of the daemon that answered
	Now    model.Time
	BootAt model.Time

	LicensesInUse []model.LicenseCount // in the order of Config.Licenses
}

func (x *ConfigReply) Wire(c *wire.C) {
	wire.Ptr(c, &x.Config)
	wire.List(c, &x.Paths, model.MaxFew)
	wire.Int(c, &x.Now)
	wire.Int(c, &x.BootAt)
	wire.List(c, &x.LicensesInUse, model.MaxFew)
}

// CancelRequest ends or signals jobs: those named, or those that the filter picks.
type CancelRequest struct {
	Targets []JobRef
	Filter  JobFilter // narrows Targets, or stands alone
	Signal  int32     // 0: end the job; otherwise send this signal to a running job's processes
	Batch   bool      // -b: only the batch shell
	Full    bool      // -f: the batch shell and everything it started

	Steps []StepRef // these steps instead of jobs; Targets is empty then

	Release bool  // with Signal: the job gives its resources back, and ends with Code
	Code    int32 // exit code

	RequestID string // the job that this submission of the caller made; "": see Targets

	Kill bool // with Signal 0: SIGKILL to all that is left, also of a job that ends already, without KillWait
}

func (x *CancelRequest) Wire(c *wire.C) {
	wire.List(c, &x.Targets, model.MaxMany)
	wire.Struct(c, &x.Filter)
	wire.Int(c, &x.Signal)
	wire.Bool(c, &x.Batch)
	wire.Bool(c, &x.Full)
	wire.List(c, &x.Steps, model.MaxMany)
	wire.Bool(c, &x.Release)
	wire.Int(c, &x.Code)
	wire.Text(c, &x.RequestID, model.MaxName)
	wire.Bool(c, &x.Kill)
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
type TargetResult struct {
	Ref  JobRef
	Code Code
	Text string
}

func (x *TargetResult) Wire(c *wire.C) {
	wire.Struct(c, &x.Ref)
	wire.Int(c, &x.Code)
	wire.Text(c, &x.Text, model.MaxText)
}

// TargetsReply answers CancelRequest and UpdateJobRequest.
type TargetsReply struct {
	Results []TargetResult
}

func (x *TargetsReply) Wire(c *wire.C) {
	wire.List(c, &x.Results, model.MaxMany)
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
type UpdateJobRequest struct {
	Action  JobAction
	Targets []JobRef
	Set     []model.KV
}

func (x *UpdateJobRequest) Wire(c *wire.C) {
	wire.Int(c, &x.Action)
	wire.List(c, &x.Targets, model.MaxMany)
	wire.List(c, &x.Set, model.MaxFew)
}

// UpdateNodeRequest changes nodes: Set holds State= and Reason=.
type UpdateNodeRequest struct {
	Names []string
	Set   []model.KV
}

func (x *UpdateNodeRequest) Wire(c *wire.C) {
	wire.Texts(c, &x.Names, model.MaxList, model.MaxName)
	wire.List(c, &x.Set, model.MaxFew)
}

// ReconfigureRequest makes the leader read its configuration files anew and replace the cluster's configuration in one
// step, or not at all.
type ReconfigureRequest struct {
	DryRun bool
}

func (x *ReconfigureRequest) Wire(c *wire.C) {
	wire.Bool(c, &x.DryRun)
}

// ReconfigureReply is what changed (or would) or, with Problems of severity error, why nothing did.
type ReconfigureReply struct {
	Applied  bool
	Changes  []Change
	Problems []Problem
	Affected []string // sentences: jobs and nodes that the change touches
	Restart  []string // sentences: daemons that take a change over when they are restarted
}

func (x *ReconfigureReply) Wire(c *wire.C) {
	wire.Bool(c, &x.Applied)
	wire.List(c, &x.Changes, model.MaxList)
	wire.List(c, &x.Problems, model.MaxList)
	wire.Texts(c, &x.Affected, model.MaxList, model.MaxText)
	wire.Texts(c, &x.Restart, model.MaxList, model.MaxText)
}

// Change is one difference between two configurations.
type Change struct {
	Key    string
	Old    string
	New    string
	Effect string
}

func (x *Change) Wire(c *wire.C) {
	wire.Text(c, &x.Key, model.MaxName)
	wire.Text(c, &x.Old, model.MaxText)
	wire.Text(c, &x.New, model.MaxText)
	wire.Text(c, &x.Effect, model.MaxName)
}

// Problem is one finding in a configuration file.
type Problem struct {
	File     string
	Line     int32
	Severity string // error, warning, note
	Text     string
	Hint     string
}

func (x *Problem) Wire(c *wire.C) {
	wire.Text(c, &x.File, model.MaxText)
	wire.Int(c, &x.Line)
	wire.Text(c, &x.Severity, model.MaxName)
	wire.Text(c, &x.Text, model.MaxText)
	wire.Text(c, &x.Hint, model.MaxText)
}

// WaitRequest waits until a job is over. The answer comes then, or after at most MaxWaitS seconds with Done false.
type WaitRequest struct {
	Job model.JobID
}

func (x *WaitRequest) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
}

// AttendRequest says that a job is there for the command that sends it (galloc, grun): the daemon of the command's host
// cancels the job when the connection ends and the command has not said, by any further frame, that it no longer
// needs the job. RequestID names the job that the submission of this id makes, also before it is made.
type AttendRequest struct {
	Job       model.JobID
	RequestID string
}

func (x *AttendRequest) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Text(c, &x.RequestID, model.MaxName)
}

// Cancel is how the job is given back.
func (x *AttendRequest) Cancel() *CancelRequest {
	if x.RequestID != "" {
		return &CancelRequest{RequestID: x.RequestID}
	}
	return &CancelRequest{Targets: []JobRef{{Job: x.Job, Task: model.NoTask}}}
}

// WaitReply tells how it ended; for an array the highest exit code of its tasks.
type WaitReply struct {
	Done   bool
	State  model.JobState
	Code   int32
	Signal int32
}

func (x *WaitReply) Wire(c *wire.C) {
	wire.Bool(c, &x.Done)
	wire.Int(c, &x.State)
	wire.Int(c, &x.Code)
	wire.Int(c, &x.Signal)
}

// MaxWaitS bounds one WaitRequest, seconds; commands ask again.
const MaxWaitS = 60

// AcctRequest asks the accounting daemon for job records. Answered by a stream of RecordsChunk, ordered by job and
// attempt.
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

func (x *AcctRequest) Wire(c *wire.C) {
	wire.List(c, &x.Jobs, model.MaxMany)
	wire.Ints(c, &x.Users, model.MaxList)
	wire.Ints(c, &x.Groups, model.MaxList)
	wire.Texts(c, &x.Accounts, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Partitions, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Names, model.MaxList, model.MaxName)
	wire.Texts(c, &x.QOS, model.MaxList, model.MaxName)
	wire.Texts(c, &x.Nodes, model.MaxList, model.MaxName)
	wire.Ints(c, &x.States, model.MaxList)
	wire.Int(c, &x.Start)
	wire.Int(c, &x.End)
	wire.Bool(c, &x.Duplicates)
	wire.Bool(c, &x.Summaries)
	wire.Bool(c, &x.Steps)
}

// RecordsChunk is a part of the answer.
type RecordsChunk struct {
	Records []*model.Record

	Summaries []string // of each record, where they were asked for; "": it has none
}

func (x *RecordsChunk) Wire(c *wire.C) {
	wire.Ptrs(c, &x.Records, model.MaxMany)
	wire.Texts(c, &x.Summaries, model.MaxMany, model.MaxText)
}

// Unpaid: gdbd sends records as they are stored. An empty one takes about a KiB of memory.
func (x *RecordsChunk) Unpaid() int { return ChunkJobs * 2 << 10 }

// SharesRequest asks for usage by account and user.
type SharesRequest struct {
	Accounts []string
	Users    []uint32
	Names    []string // users by name, beside Users
}

func (x *SharesRequest) Wire(c *wire.C) {
	wire.Texts(c, &x.Accounts, model.MaxList, model.MaxName)
	wire.Ints(c, &x.Users, model.MaxList)
	wire.Texts(c, &x.Names, model.MaxList, model.MaxName)
}

// ShareRow is one line of gshare: an account (User "") or a user in one.
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

func (x *ShareRow) Wire(c *wire.C) {
	wire.Text(c, &x.Account, model.MaxName)
	wire.Text(c, &x.Parent, model.MaxName)
	wire.Text(c, &x.User, model.MaxName)
	wire.Int(c, &x.UID)
	wire.Int(c, &x.Depth)
	wire.Int(c, &x.RawShares)
	wire.Float(c, &x.NormShares)
	wire.Int(c, &x.RawUsage)
	wire.Float(c, &x.NormUsage)
	wire.Float(c, &x.FairShare)
	wire.Text(c, &x.Partition, model.MaxName)
	wire.Bool(c, &x.UseParent)
	wire.Float(c, &x.Used)
	wire.Float(c, &x.LevelFS)
	wire.Int(c, &x.ID)
	wire.List(c, &x.GrpTRESMins, model.MaxFew)
	wire.List(c, &x.RunMins, model.MaxFew)
	wire.List(c, &x.TRESMins, model.MaxFew)
}

// SharesReply lists accounts, each followed by its users.
type SharesReply struct {
	Rows []ShareRow
}

func (x *SharesReply) Wire(c *wire.C) {
	wire.List(c, &x.Rows, model.MaxMany)
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
type ReserveRequest struct {
	Action ResvAction
	Name   string // "": one is made of who may use it
	Set    []model.KV
}

func (x *ReserveRequest) Wire(c *wire.C) {
	wire.Int(c, &x.Action)
	wire.Text(c, &x.Name, model.MaxName)
	wire.List(c, &x.Set, model.MaxFew)
}

// ReserveReply names the reservation.
type ReserveReply struct {
	Name string
}

func (x *ReserveReply) Wire(c *wire.C) {
	wire.Text(c, &x.Name, model.MaxName)
}

// ReservationsReply lists reservations in order of name; CPUs are those of all nodes of each.
type ReservationsReply struct {
	Now  model.Time
	List []*model.Reservation
	CPUs []int64

	Sizes []ResvSize // of each
}

func (x *ReservationsReply) Wire(c *wire.C) {
	wire.Int(c, &x.Now)
	wire.Ptrs(c, &x.List, model.MaxList)
	wire.Ints(c, &x.CPUs, model.MaxList)
	wire.List(c, &x.Sizes, model.MaxList)
}

// ResvSize is what a reservation takes of its nodes together.
type ResvSize struct {
	CPUs     int64
	Cores    int64
	Gres     []model.TRESCount // gres/NAME
	PartGres []string          // of each node of which it takes a part: gpu:a100:2
}

func (x *ResvSize) Wire(c *wire.C) {
	wire.Int(c, &x.CPUs)
	wire.Int(c, &x.Cores)
	wire.List(c, &x.Gres, model.MaxFew)
	wire.Texts(c, &x.PartGres, model.MaxList, model.MaxText)
}

// ScriptRequest asks for a job's batch script; its owner and operators get it.
type ScriptRequest struct {
	Job model.JobID
}

func (x *ScriptRequest) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
}

// ScriptReply is the script as it was submitted.
type ScriptReply struct {
	Script []byte
}

func (x *ScriptReply) Wire(c *wire.C) {
	wire.Bytes(c, &x.Script, model.MaxFile)
}

// DumpChunk is a part of the leader's state as package state's WriteDump writes it; operators get it. It holds scripts
// and environments of all jobs.
type DumpChunk struct {
	Data []byte
}

func (x *DumpChunk) Wire(c *wire.C) {
	wire.Bytes(c, &x.Data, model.MaxFile)
}

// DumpChunkBytes is how much of a dump stands in one frame.
const DumpChunkBytes = 256 << 10
