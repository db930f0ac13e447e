package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// user.go is what users have done: jobs submitted, changed, cancelled and waited for, nodes and reservations changed,
// the configuration read anew.

// Empty is a message without content.
type Empty struct{}

func (x *Empty) Wire(*wire.C) {}

// PingReply has the state of the controllers, from the leader.
type PingReply struct {
	Cluster     string
	Leader      string
	Term        uint64
	Controllers []ControllerInfo
	Version     string
	Now         model.Time
	Ready       bool // it leads, has its configuration, and at least one node takes jobs
	DbdUp       bool
	Outbox      int64 // accounting records not yet acknowledged by gdbd

	Dbd      string   // address of gdbd; "": there is none
	DbdWhy   string   // why it takes no records; "": it does
	DbdNotes []string // what administrators have to know of its database, in sentences

	Discarded int64 // records of ended jobs and steps that were discarded, because more than MaxDBDMsgs waited

	CertNotes []string // certificates that expire soon, in sentences

	Dbds []DbdInfo // the accounting daemon, and its copy if there is one
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
	wire.Text(c, &x.Dbd, model.MaxName)
	wire.Text(c, &x.DbdWhy, model.MaxText)
	wire.Texts(c, &x.DbdNotes, model.MaxList, model.MaxText)
	wire.Int(c, &x.Discarded)
	wire.Texts(c, &x.CertNotes, model.MaxFew, model.MaxText)
	wire.List(c, &x.Dbds, model.MaxFew)
}

// DbdInfo is one accounting daemon as the leader sees it.
type DbdInfo struct {
	Addr   string
	Copy   bool   // it is AccountingStorageBackupHost's
	Up     bool   // it takes records
	Behind int64  // how many numbers of records it is behind the controllers, as far as it was heard
	Why    string // why it takes no records; "": it does
	Notes  []string

	TookUS int64 // its last answer, µs; 0: it was not heard
}

func (x *DbdInfo) Wire(c *wire.C) {
	wire.Text(c, &x.Addr, model.MaxName)
	wire.Bool(c, &x.Copy)
	wire.Bool(c, &x.Up)
	wire.Int(c, &x.Behind)
	wire.Text(c, &x.Why, model.MaxText)
	wire.Texts(c, &x.Notes, model.MaxList, model.MaxText)
	wire.Int(c, &x.TookUS)
}

// ControllerInfo is one controller as the leader sees it.
type ControllerInfo struct {
	Name   string
	Addr   string
	Leader bool
	Up     bool
	SeenMS int64 // since its last answer, ms; 0: it is the one that answers, or was never heard

	TookUS int64 // its last answer, µs; 0: as SeenMS
}

func (x *ControllerInfo) Wire(c *wire.C) {
	wire.Text(c, &x.Name, model.MaxName)
	wire.Text(c, &x.Addr, model.MaxName)
	wire.Bool(c, &x.Leader)
	wire.Bool(c, &x.Up)
	wire.Int(c, &x.SeenMS)
	wire.Int(c, &x.TookUS)
}

// SubmitRequest submits a job. RequestID makes a retry safe: the same id gives the same job. The daemon that accepts
// the connection fills in the user.
type SubmitRequest struct {
	RequestID string
	Spec      *model.Spec
	Script    []byte // as written
	Env       []byte // NAME=value, each ended by a NUL
	TestOnly  bool

	Rest []*model.Spec // the other components of a heterogeneous job, in order; the script runs in the first one

	PassUnknown bool // jobs of --dependency that the controllers don't know are not waited for; false: they are refused
}

func (x *SubmitRequest) Wire(c *wire.C) {
	wire.ID(c, &x.RequestID, model.MaxName)
	wire.Within(c, maxSpecRead, func(c *wire.C) { wire.Ptr(c, &x.Spec) })
	wire.Bytes(c, &x.Script, model.MaxFile)
	wire.Bytes(c, &x.Env, model.MaxFile)
	wire.Bool(c, &x.TestOnly)
	wire.Within(c, maxRestRead, func(c *wire.C) { wire.Ptrs(c, &x.Rest, model.MaxFew) })
	wire.Bool(c, &x.PassUnknown)
}

// SubmitReply is the answer to a submission that was accepted or, with TestOnly, would be.
type SubmitReply struct {
	Job       model.JobID
	Cluster   string
	Notes     []string // sentences for the user, shown on standard error
	TestStart model.Time
	TestNodes string
	TestCPUs  int32
	TestPart  string
	Shell     string // of an allocation: the options with which srun starts its shell on the first node; "": it runs here
}

func (x *SubmitReply) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Text(c, &x.Cluster, model.MaxName)
	wire.Texts(c, &x.Notes, model.MaxList, model.MaxText)
	wire.Int(c, &x.TestStart)
	wire.Text(c, &x.TestNodes, model.MaxText)
	wire.Int(c, &x.TestCPUs)
	wire.Text(c, &x.TestPart, model.MaxName)
	wire.Text(c, &x.Shell, model.MaxText)
}

// SubmitEachRequest submits jobs that differ only in their script's arguments, in order. Args has 1 to MaxEachJobs
// lists; each job gets Spec.Args of the submission followed by one list. RequestID makes a retry of the whole request
// safe.
type SubmitEachRequest struct {
	Submit *SubmitRequest
	Args   [][]string
}

func (x *SubmitEachRequest) Wire(c *wire.C) {
	wire.Ptr(c, &x.Submit)
	wire.Within(c, maxEachRead, func(c *wire.C) {
		wire.Each(c, &x.Args, model.MaxList,
			func(c *wire.C, e *[]string) { wire.DataList(c, e, model.MaxList, model.MaxText) })
	})
}

// SubmitEachReply says which jobs were accepted: the first len(Jobs). If these are not all, Refused says why the next
// job, and with it all following jobs, was refused.
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

// CancelRequest ends or signals the named jobs, or the jobs that match the filter.
type CancelRequest struct {
	Targets []model.JobRef
	Filter  JobFilter // restricts Targets, or selects jobs by itself
	Signal  int32     // 0: end the job; otherwise send this signal to a running job's processes
	Batch   bool      // -b: only the batch shell
	Full    bool      // -f: the batch shell and everything that it started

	Steps []StepRef // steps instead of jobs; Targets is empty then

	Release bool  // the allocation is no longer needed: instead of being cancelled, the job ends with Code
	Code    int32 // exit code

	RequestID string // the job of the caller's submission with this id; "": see Targets

	Kill bool // with Signal 0: SIGKILL to all processes without KillWait, also of a job that is already being ended

	Cron bool // jobs of crontabs too, where ScronParameters=explicit_scancel asks for that word
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
	wire.ID(c, &x.RequestID, model.MaxName)
	wire.Bool(c, &x.Kill)
	wire.Bool(c, &x.Cron)
}

// Kind is the kind of the request. A request to end a job may be repeated if its answer is lost; other signals are sent
// only once, because programs may count them.
func (rq *CancelRequest) Kind() uint16 {
	const sigKill = 9
	if rq.Signal == 0 || rq.Signal == sigKill || rq.Release {
		return KindCancel
	}
	return KindSignal
}

// TargetResult is the result for one target. Code 0 is success.
type TargetResult struct {
	Ref  model.JobRef
	Code Code
	Text string
	Left bool // the filters left it out: nothing was done
}

func (x *TargetResult) Wire(c *wire.C) {
	wire.Struct(c, &x.Ref)
	wire.Int(c, &x.Code)
	wire.Text(c, &x.Text, model.MaxText)
	wire.Bool(c, &x.Left)
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
	ActHold               // gcontrol hold: an admin hold if an operator asks for it
	ActUserHold           // gcontrol uhold
	ActRelease
	ActRequeue
	ActRequeueHold
	ActTop
	ActSuspend // gcontrol suspend, resume: operators only
	ActResume
	ActNotify // gcontrol notify: Set has Message
	ActStep   // gcontrol update StepId=: Set has Step (a number; StepAll: all steps) and TimeLimit
	ActRecord // gacctmgr modify job: Records picks jobs that have ended, Set has what to change of their records
)

// UpdateJobRequest changes jobs. Set has gcontrol's key=value settings; moments come as "@" and Unix milliseconds. With
// ActRequeue and ActRequeueHold Set may have Incomplete (only jobs that did not end well) and State=SpecialExit.
type UpdateJobRequest struct {
	Action  JobAction
	Targets []model.JobRef
	Set     []model.KV
	Records *AcctRequest // with ActRecord, in place of Targets: Jobs, Users, Start and End count
}

func (x *UpdateJobRequest) Wire(c *wire.C) {
	wire.Int(c, &x.Action)
	wire.List(c, &x.Targets, model.MaxMany)
	wire.List(c, &x.Set, model.MaxFew)
	wire.Ptr(c, &x.Records)
}

// NodeAction is what UpdateNodeRequest does.
type NodeAction uint8

// The actions. The numbers are on the wire: append only.
const (
	ChangeNodes NodeAction = iota // Set has gcontrol's key=value words
	CreateNodes                   // Set has the keys of a NodeName line
	DeleteNodes
	RebootNodes // Set may have ASAP, NextState and Reason
	CancelReboots
	ChangeSpare // of the cluster: Set has SuspendExcNodes, SuspendExcParts and SuspendExcStates
)

// UpdateNodeRequest changes nodes.
type UpdateNodeRequest struct {
	Names  []string
	Set    []model.KV
	Action NodeAction
}

func (x *UpdateNodeRequest) Wire(c *wire.C) {
	wire.Texts(c, &x.Names, model.MaxList, model.MaxName)
	wire.List(c, &x.Set, model.MaxFew)
	wire.Int(c, &x.Action)
}

// PartAction is what UpdatePartitionRequest does.
type PartAction uint8

// The actions. The numbers are on the wire: append only.
const (
	ChangePartition PartAction = iota + 1
	CreatePartition
	DeletePartition
)

// UpdatePartitionRequest creates, changes or removes a partition. Set has the keys of a PartitionName line; their names
// may be shortened, and a key that ends in + or - adds to a list or removes from it.
type UpdatePartitionRequest struct {
	Action PartAction
	Name   string
	Set    []model.KV
}

func (x *UpdatePartitionRequest) Wire(c *wire.C) {
	wire.Int(c, &x.Action)
	wire.Text(c, &x.Name, model.MaxName)
	wire.List(c, &x.Set, model.MaxFew)
}

// SetDebugRequest changes what the leader's log has, until it is restarted.
type SetDebugRequest struct {
	Level string // of SlurmctldDebug, as its name or number; "": as it is
}

func (x *SetDebugRequest) Wire(c *wire.C) {
	wire.Text(c, &x.Level, model.MaxName)
}

// ReconfigureRequest makes the leader read its configuration files again and replace the cluster's configuration in one
// step, or not at all.
type ReconfigureRequest struct {
	DryRun bool
}

func (x *ReconfigureRequest) Wire(c *wire.C) {
	wire.Bool(c, &x.DryRun)
}

// ReconfigureReply has the changes that were (or would be) made or, with Problems of severity error, why none was.
type ReconfigureReply struct {
	Applied  bool
	Changes  []Change
	Problems []Problem
	Affected []string // sentences about jobs and nodes that the change affects
	Restart  []string // sentences about daemons that have to be restarted for a change
	Undone   []string // sentences about changes that operators had made while the cluster ran, and that the files undo
	Notes    []string // other sentences: nodes that stay out, QOS that don't exist
}

func (x *ReconfigureReply) Wire(c *wire.C) {
	wire.Bool(c, &x.Applied)
	wire.List(c, &x.Changes, model.MaxList)
	wire.List(c, &x.Problems, model.MaxList)
	wire.Texts(c, &x.Affected, model.MaxList, model.MaxText)
	wire.Texts(c, &x.Restart, model.MaxList, model.MaxText)
	wire.Texts(c, &x.Undone, model.MaxList, model.MaxText)
	wire.Texts(c, &x.Notes, model.MaxList, model.MaxText)
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

// WaitRequest waits until a job has ended. The answer comes then, or after at most MaxWaitS seconds with Done false.
type WaitRequest struct {
	Job   model.JobID
	Hears bool   // the job's command asks, which also wants what is said to it
	Heard uint64 // WaitReply.Said of the answer before; 0: there was none
}

func (x *WaitRequest) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Bool(c, &x.Hears)
	wire.Int(c, &x.Heard)
}

// AttendRequest ties a job to the command that sends it (galloc, grun): the daemon of the command's host cancels the
// job when the connection ends, unless the command has sent a further frame, which says that it no longer needs the
// job. RequestID names the job of the submission with this id, even before the job exists.
type AttendRequest struct {
	Job       model.JobID
	RequestID string
}

func (x *AttendRequest) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.ID(c, &x.RequestID, model.MaxName)
}

// Cancel gives the request that cancels the job.
func (x *AttendRequest) Cancel() *CancelRequest {
	if x.RequestID != "" {
		return &CancelRequest{RequestID: x.RequestID}
	}
	return &CancelRequest{Targets: []model.JobRef{{Job: x.Job, Task: model.NoTask}}}
}

// PresentRequest says that the command which has an allocation is still there.
type PresentRequest struct {
	Job model.JobID
}

func (x *PresentRequest) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
}

// PresentReply says when to say it again.
type PresentReply struct {
	EveryS int64
}

func (x *PresentReply) Wire(c *wire.C) {
	wire.Int(c, &x.EveryS)
}

// WaitReply is the job's result; for an array the highest exit code of its tasks.
type WaitReply struct {
	Done   bool
	State  model.JobState
	Code   int32
	Signal int32
	Words  []string // what is said to the job's command (gcontrol notify)
	Said   uint64   // the number of the last of Words
}

func (x *WaitReply) Wire(c *wire.C) {
	wire.Bool(c, &x.Done)
	wire.Int(c, &x.State)
	wire.Int(c, &x.Code)
	wire.Int(c, &x.Signal)
	wire.Texts(c, &x.Words, model.MaxList, model.MaxText)
	wire.Int(c, &x.Said)
}

// MaxWaitS bounds one WaitRequest, seconds; commands ask again.
const MaxWaitS = 60

// ResvAction is what ReserveRequest does.
type ResvAction uint8

// The actions. The numbers are on the wire: append only.
const (
	CreateReservation ResvAction = iota + 1
	UpdateReservation
	DeleteReservation
)

// ReserveRequest creates, changes or removes a reservation. Set holds gcontrol's key=value words; moments come as "@"
// and Unix milliseconds. A key that ends in + or - adds to a list or removes from it.
type ReserveRequest struct {
	Action ResvAction
	Name   string // "": a name is made from its users or accounts
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

// TakeoverRequest makes another controller the leader. Only operators may.
type TakeoverRequest struct {
	Index int64  // of the new leader, from 1 in the order of the configuration; 0: Name says
	Name  string // of the new leader; "" with Index 0: another one than From
	From  string // who led when the command was given, so that it can be repeated
}

func (x *TakeoverRequest) Wire(c *wire.C) {
	wire.Int(c, &x.Index)
	wire.Text(c, &x.Name, model.MaxName)
	wire.Text(c, &x.From, model.MaxName)
}

// TakeoverReply names the leader.
type TakeoverReply struct {
	Leader string // "": not known yet
}

func (x *TakeoverReply) Wire(c *wire.C) { wire.Text(c, &x.Leader, model.MaxName) }
