package model

import (
	"fmt"
	"slices"

	"gbatch/internal/wire"
)

// Job is the controllers' record of a plain job, of an array that still has tasks to start, or of one task of an array.
// Run has everything that exists only while the job has resources, and End everything that exists only after it. So a
// pending job cannot have a node, and a running job cannot have an exit code.
type Job struct {
	ID       JobID
	ArrayID  JobID   // the array of this task or, for the array's own record, its own ID; 0 for a plain job
	Task     int32   // the task's index in its array, or NoTask
	Tasks    TaskSet // tasks that have not started, on the array's own record only
	Throttle int32   // how many tasks of the array may run at once; 0: no limit. On every record of the array

	Spec     *Spec
	State    JobState
	Reason   Reason
	Why      string // a sentence for people behind Reason, may be empty
	Hold     HoldKind
	Priority uint32 // higher is better; 0 when held
	Submit   Time
	Eligible Time  // when it began to wait for resources only; 0 while something else holds it
	Begin    Time  // it starts no earlier; 0: at any time
	Deps     []Dep // dependencies that are unfulfilled or have failed; fulfilled ones are dropped

	Attempt  uint32 // grows with every start; (ID, Attempt) keys every launch, report and record
	Restarts uint32
	Run      *Run
	End      *End
	Comment  string // set by operators; the user's own is Spec.Comment
	Direct   bool   // Priority was set by hand and is not computed from factors
	Site     int32  // SiteFactor: added to the computed priority

	Expect *Expect // in lists only: the expected start, as far as the scheduler looks ahead
	Claim  *Claim  // the allocation for which victims are being ended; nil: none

	Strikes    uint32   // launches that have failed since it last ran
	Avoid      []string // nodes that could not launch it; at most MaxAvoid
	AvoidUntil Time     // from then on they may be tried again

	Accrue Time // since when it gains priority by age: 0 means since Eligible, NotAging that a limit prevents it

	Het *Het // nil: it is no component of a heterogeneous job

	Special bool // it was put back, held, for somebody to look at it: shown as SPECIAL_EXIT until it is released

	GPUOOMs uint32 // how often it was requeued because it ran out of GPU memory (--requeue-on-oom)
	Returns uint32 // launches that nodes gave back since it last ran, because somebody else had its GPUs
	Rush    *Rush  // it was lost with a node and starts again before others (--requeue=expedite); nil: it was not
	Exits   uint32 // how often it was requeued for its exit codes (ExitRules)

	WCKeyID uint32 // of Spec.WCKey, when it was submitted or given; 0: usage is not kept by it

	Back *Exit // how the run ended after which it went back into the queue, until it starts again; nil: it was cut short
	// Of a crontab's job (Spec.Cron).
	Undue   bool // it waits for the leader to set Begin: the entry's next time
	LastRun bool // it does not come back: it was cancelled, or another crontab has replaced its own
}

// Rush is the way back of a job that was lost with a node. It ends when the job starts, or is held or cancelled. The
// job's Claim has what it had of its other nodes.
type Rush struct {
	At    Time
	Until Time // until then these are kept for it
}

func (x *Rush) Wire(c *wire.C) {
	wire.Int(c, &x.At)
	wire.Int(c, &x.Until)
}

// ExpeditingText is the state that such a job is shown in, Slurm's word.
const ExpeditingText = "EXPEDITING"

// StateText gives the state as it is shown.
func (j *Job) StateText() string {
	if j.Expediting() {
		return ExpeditingText
	}
	if j.SpecialExit() {
		return SpecialExitText
	}
	return j.State.String()
}

// SpecialExitText is the state of a job that was put back with State=SpecialExit or by RequeueExitHold, until it is
// released.
const SpecialExitText = "SPECIAL_EXIT"

// SpecialExit reports whether the job waits, held, for somebody to look at it.
func (j *Job) SpecialExit() bool { return j.Special && j.State == Pending }

// Expediting reports whether the job waits to start again before others.
func (j *Job) Expediting() bool { return j.Rush != nil && j.State == Pending }

// In reports whether a list of states, as filters have it, has the job's. One that expedites is pending too,
// and so is one in SPECIAL_EXIT.
func (j *Job) In(states []JobState) bool {
	return slices.Contains(states, j.State) || j.Expediting() && slices.Contains(states, Expediting) ||
		j.State == Pending && slices.Contains(states, Queued) && !j.Special ||
		j.SpecialExit() && slices.Contains(states, SpecialExit)
}

// LastExit gives how the job ended or, while it waits to run again, how its last run did; nil: it has not ended yet.
func (j *Job) LastExit() *Exit {
	switch {
	case j.End != nil:
		return &j.End.Exit
	case j.State == Pending:
		return j.Back
	case j.Run != nil && j.Run.Over != nil: // its epilogs still run
		return &j.Run.Over.Exit
	}
	return nil
}

// HasEnded reports whether a job that is COMPLETING has ended by itself: only its epilogs still run.
func (j *Job) HasEnded() bool {
	return j.State == Completing && j.Run != nil && j.Run.Over != nil && j.Run.Stop == NoStop
}

// Ending gives since when a job is COMPLETING: its script ended, or it was told to; 0: it isn't.
func (j *Job) Ending() Time {
	switch {
	case j.Run == nil || j.State != Completing:
		return 0
	case j.Run.Over != nil:
		return max(j.Run.StopAt, j.Run.Over.At)
	}
	return j.Run.StopAt
}

func (x *Job) Wire(c *wire.C) {
	wire.Int(c, &x.ID)
	wire.Int(c, &x.ArrayID)
	wire.Int(c, &x.Task)
	wire.List(c, &x.Tasks, MaxRanges)
	wire.Int(c, &x.Throttle)
	wire.Ptr(c, &x.Spec)
	wire.Int(c, &x.State)
	wire.Int(c, &x.Reason)
	wire.Text(c, &x.Why, MaxText)
	wire.Int(c, &x.Hold)
	wire.Int(c, &x.Priority)
	wire.Int(c, &x.Submit)
	wire.Int(c, &x.Eligible)
	wire.Int(c, &x.Begin)
	wire.List(c, &x.Deps, MaxList)
	wire.Int(c, &x.Attempt)
	wire.Int(c, &x.Restarts)
	wire.Ptr(c, &x.Run)
	wire.Ptr(c, &x.End)
	wire.Text(c, &x.Comment, MaxText)
	wire.Bool(c, &x.Direct)
	wire.Int(c, &x.Site)
	wire.Ptr(c, &x.Expect)
	wire.Ptr(c, &x.Claim)
	wire.Int(c, &x.Strikes)
	wire.Texts(c, &x.Avoid, MaxList, MaxName)
	wire.Int(c, &x.AvoidUntil)
	wire.Int(c, &x.Accrue)
	wire.Ptr(c, &x.Het)
	wire.Bool(c, &x.Special)
	wire.Int(c, &x.GPUOOMs)
	wire.Int(c, &x.Returns)
	wire.Ptr(c, &x.Rush)
	wire.Int(c, &x.Exits)
	wire.Int(c, &x.WCKeyID)
	wire.Ptr(c, &x.Back)
	wire.Bool(c, &x.Undue)
	wire.Bool(c, &x.LastRun)
}

// NotAging in Job.Accrue says that the job does not gain priority by age, because GrpJobsAccrue, MaxJobsAccrue or a
// similar limit is full.
const NotAging Time = -1

// AccrueTime gives the moment since which a job gains priority by age; 0: it does not.
func (j *Job) AccrueTime() Time {
	switch j.Accrue {
	case 0:
		return j.Eligible
	case NotAging:
		return 0
	}
	return j.Accrue
}

// MaxAvoid is how many nodes a job avoids.
const MaxAvoid = 16

// HoldKind says whether its user or an operator holds a job.
type HoldKind uint8

// The owner can release a user hold, an operator any hold.
const (
	NotHeld HoldKind = iota
	HeldByUser
	HeldByAdmin
)

// StopCause says why a job's processes are being ended and so what the job becomes.
type StopCause uint8

// The causes. The numbers are stored: append only.
const (
	NoStop StopCause = iota
	StopCancel
	StopTimeLimit
	StopPreempt
	StopRequeue
	StopRequeueHold
	StopDeadline
	StopNodeFail
	StopPreemptCancel // preempted, and does not come back
	StopUnitFault     // a GPU of its own, or another unit, has failed: Run.StopWhy says which
	StopProlog        // a prolog failed: back into the queue, held
	StopLaunch        // a node could not launch it
	StopWithFirst     // the first component of its heterogeneous job has ended: Run.Fate says how
	StopShrink        // of a part: the job has given the node up
	StopGive          // it gives its nodes to another job: Run.GiveTo
	StopTaken         // a node gave it back before its launch: it could not take it now
	StopGivenBack     // an allocation that its command gives back: Run.Fate says how it ends
)

// Run is a job's life on its nodes.
type Run struct {
	Partition string // the partition of Spec.Partitions in which it runs
	Alloc     *Alloc
	Start     Time  // allocation
	Launched  Time  // start of the script as its node reported it; 0 before that
	LimitS    int64 // time limit in seconds, or Unlimited
	Stop      StopCause
	StopAt    Time
	StopUID   uint32         // user who cancelled it
	Epoch     uint64         // raft term of the leader whose plan started it
	Priority  uint32         // its priority when it started; 0: Job.Priority
	BillRate  int64          // charge per second, UsageFactor included, millionths of a billing unit
	Factor    int64          // UsageFactor of its QOS when it started, millionths
	AssocPart string         // partition of the association that it is charged to; "" if that has none
	GraceS    int64          // with a Stop: seconds between SIGTERM and SIGKILL; 0: KillWait
	StopFor   JobID          // the job that preempted it
	Licenses  []LicenseCount // licenses that it holds

	Share   int32     // how many jobs of its partition may share each of its CPUs; up to 1: its CPUs are its own
	Alone   bool      // no other job has CPUs on its nodes
	Sleep   SleepKind // why it is suspended
	SleepAt Time      // when it was last suspended or resumed; 0: never
	SleepMS int64     // time suspended before SleepAt, milliseconds
	Turns   uint32    // how often it was suspended or resumed
	StopWhy string    // a sentence, if Stop alone does not say why

	Program CtldProgram // the controller's program that has to run first
	Unready Bits        // indices in Alloc of nodes that have not run their prolog yet
	Busy    Bits        // indices of nodes that still have a part of the job; empty: only the first, which reports the end
	Over    *End        // how the script ended, while epilogs still run; nil before
	Fault   string      // the error, with StopProlog, StopLaunch, StopTaken
	Resv    string      // the reservation in which it runs; "": none

	PartQOS    string // the partition's QOS if it differs from the job's own: the job's use counts in it too
	StopReason Reason // with StopTimeLimit: the limit in minutes that has run out; StopWhy names its owner
	Warned     Time   // when Spec.Warning's signal was due: it is sent once; 0: not yet
	Mailed     int32  // the last percentage of the time limit about which a mail was sent; 0: none

	FailedNode string // the node whose failure, fault or prolog ended the run; "": none did

	Bill int64 // billing units that it holds (TRESBillingWeights), without UsageFactor; see Billing

	Fate *Fate // with StopWithFirst; of it Code with StopGivenBack

	Worst int32 // the highest Exit.Status of its ended steps, those of its script and shell aside

	Version      uint32    // grows whenever the nodes that it can use change; nodes are told of it
	Sizes        uint32    // how many sizes it had before the present one: each has its accounting record
	Sized        Time      // since when it has the present one; 0: Start
	SizedSleepMS int64     // SleepMS at that moment
	Leaving      []Leaving // of nodes that it has given up
	GiveTo       JobID     // the job that gets its nodes when it has ended; 0: none

	Recall *Recall     // nodes that it is to give back; nil: none
	Spent  []TRESCount // what its earlier sizes used, billing units included, in units times milliseconds

	BadEpilog bool // an epilog of it has failed

	GivesWay StopCause // it gives way to a job of a reservation: what ends it at its limit; NoStop: it doesn't

	Uncounted bool // its use is not counted any more: its script has ended
	ResvEnd   Time // when the clock ends it with its reservation; 0: not

	Broke uint32 // the Version with which it last went on without a node that failed; 0: never
}

func (x *Run) Wire(c *wire.C) {
	wire.Text(c, &x.Partition, MaxName)
	wire.Ptr(c, &x.Alloc)
	wire.Int(c, &x.Start)
	wire.Int(c, &x.Launched)
	wire.Int(c, &x.LimitS)
	wire.Int(c, &x.Stop)
	wire.Int(c, &x.StopAt)
	wire.Int(c, &x.StopUID)
	wire.Int(c, &x.Epoch)
	wire.Int(c, &x.Priority)
	wire.Int(c, &x.BillRate)
	wire.Int(c, &x.Factor)
	wire.Text(c, &x.AssocPart, MaxName)
	wire.Int(c, &x.GraceS)
	wire.Int(c, &x.StopFor)
	wire.List(c, &x.Licenses, MaxFew)
	wire.Int(c, &x.Share)
	wire.Bool(c, &x.Alone)
	wire.Int(c, &x.Sleep)
	wire.Int(c, &x.SleepAt)
	wire.Int(c, &x.SleepMS)
	wire.Int(c, &x.Turns)
	wire.Text(c, &x.StopWhy, MaxText)
	wire.Int(c, &x.Program)
	wire.Ints(c, &x.Unready, MaxFew)
	wire.Ints(c, &x.Busy, MaxFew)
	wire.Ptr(c, &x.Over)
	wire.Text(c, &x.Fault, MaxText)
	wire.Text(c, &x.Resv, MaxName)
	wire.Text(c, &x.PartQOS, MaxName)
	wire.Int(c, &x.StopReason)
	wire.Int(c, &x.Warned)
	wire.Int(c, &x.Mailed)
	wire.Text(c, &x.FailedNode, MaxText)
	wire.Int(c, &x.Bill)
	wire.Ptr(c, &x.Fate)
	wire.Int(c, &x.Worst)
	wire.Int(c, &x.Version)
	wire.Int(c, &x.Sizes)
	wire.Int(c, &x.Sized)
	wire.Int(c, &x.SizedSleepMS)
	wire.List(c, &x.Leaving, MaxList)
	wire.Int(c, &x.GiveTo)
	wire.Ptr(c, &x.Recall)
	wire.List(c, &x.Spent, MaxFew)
	wire.Bool(c, &x.BadEpilog)
	wire.Int(c, &x.GivesWay)
	wire.Bool(c, &x.Uncounted)
	wire.Int(c, &x.ResvEnd)
	wire.Int(c, &x.Broke)
}

// CutShort reports whether it is stopped at its limit to make room for a job of a reservation.
func (r *Run) CutShort() bool { return r.GivesWay == StopPreempt || r.GivesWay == StopPreemptCancel }

// SizedAt gives the moment since which the job has had its present nodes.
func (r *Run) SizedAt() Time {
	if r.Sized != 0 {
		return r.Sized
	}
	return r.Start
}

// Part gives the job's part of a node, also of one that it has given up and not left; nil: it has none.
func (r *Run) Part(node string) *NodeAlloc {
	if k := r.Alloc.Place(node); k >= 0 {
		return &r.Alloc.Nodes[k]
	}
	if k := r.LeavingAt(node); k >= 0 {
		return &r.Leaving[k].Part
	}
	return nil
}

// LeavingAt gives the index of a node in Leaving, or -1.
func (r *Run) LeavingAt(node string) int {
	return slices.IndexFunc(r.Leaving, func(l Leaving) bool { return l.Part.Node == node })
}

// Yields reports whether the job leaves a node before it ends: it has given it up, or is to give it back.
func (r *Run) Yields(node string) bool {
	return r.LeavingAt(node) >= 0 || r.Recall != nil && slices.Contains(r.Recall.Nodes, node)
}

// Spare gives how many nodes an elastic job can still be asked for.
func (j *Job) Spare() int {
	if j.Spec.Elastic() == nil || j.State != Running || j.Run.Stop != NoStop || j.Run.GiveTo != 0 {
		return 0
	}
	n := len(j.Run.Alloc.Nodes) - int(j.Spec.MinNodes)
	if j.Run.Recall != nil {
		n -= len(j.Run.Recall.Nodes)
	}
	return max(0, n)
}

// CtldProgram is the controller's program that a job waits for. The numbers are stored: append only.
type CtldProgram uint8

// The values.
const (
	NoCtldProgram CtldProgram = iota
	CtldProlog                // PrologSlurmctld, before anything is launched
	CtldEpilog                // EpilogSlurmctld, before the resources are given back
)

// Deadline gives the moment at which the time limit ends the job. 0 means never, or that the job is suspended: that
// time does not count.
func (r *Run) Deadline() Time {
	if r.LimitS >= Unlimited || r.Idles() {
		return 0
	}
	return r.Start.Add(r.LimitS) + Time(r.SleepMS)
}

// Billing gives the billing units that the job holds. If an older controller started the job, they are computed from
// its charge.
func (r *Run) Billing() int64 {
	if r.Bill != 0 || r.Factor <= 0 {
		return r.Bill
	}
	return Scale(r.BillRate, FactorOne, r.Factor) / FactorOne
}

// TRES gives what the job holds, licenses included, in order of name.
func (r *Run) TRES() []TRESCount {
	all := r.Alloc.TRES()
	for _, l := range r.Licenses {
		all = AddTRES(all, LicenseTRES(l.Name), l.Count)
	}
	return all
}

// End is how a job ended.
type End struct {
	At   Time
	Exit Exit
	UID  uint32 // who cancelled it, when State is Cancelled
}

func (x *End) Wire(c *wire.C) {
	wire.Int(c, &x.At)
	wire.Struct(c, &x.Exit)
	wire.Int(c, &x.UID)
}

// Exit is a node's report of how a job's processes ended.
type Exit struct {
	Code     int32  // exit code of the script, 0-255
	Signal   int32  // the signal that ended it, or 0
	Unknown  bool   // the exit status was lost with the launcher; Code and Signal mean nothing
	OOM      bool   // the kernel's memory controller killed one of its processes
	UserMS   int64  // CPU time, milliseconds
	SysMS    int64  // CPU time in the kernel, milliseconds
	MaxRSSKB int64  // peak memory, KiB
	Text     string // a sentence about what went wrong, if the exit code doesn't say it
	Use      *Usage // usage of the batch step in detail; nil: not measured
	NoStart  bool   // the script did not begin, because a file or its program can't be opened; Text names it
	CutOff   bool   // its node ended it, or did not begin it, since nobody heard that node: the node's failure
	Worst    int32  // a job's only: the highest Status of its steps, those of its script and shell aside
	GPUOOM   bool   // it failed, and its output says that a GPU had too little memory
}

// Status gives the exit in wait's form: the code times 256, or the signal.
func (e Exit) Status() int32 { return e.Code<<8 | e.Signal }

// Derived gives Slurm's derived exit code: of the step that ended worst.
func (e Exit) Derived() Exit { return Exit{Code: e.Worst >> 8, Signal: e.Worst & 0x7f} }

func (x *Exit) Wire(c *wire.C) {
	wire.Int(c, &x.Code)
	wire.Int(c, &x.Signal)
	wire.Bool(c, &x.Unknown)
	wire.Bool(c, &x.OOM)
	wire.Int(c, &x.UserMS)
	wire.Int(c, &x.SysMS)
	wire.Int(c, &x.MaxRSSKB)
	wire.Text(c, &x.Text, MaxText)
	wire.Ptr(c, &x.Use)
	wire.Bool(c, &x.NoStart)
	wire.Bool(c, &x.CutOff)
	wire.Int(c, &x.Worst)
	wire.Bool(c, &x.GPUOOM)
}

// State gives the final state of a job that was not stopped, by its exit.
func (e Exit) State() (JobState, Reason) {
	switch {
	case e.CutOff:
		return NodeFail, ReasonNodeDown
	case e.Unknown:
		return Failed, ReasonSystemFailure
	case e.OOM:
		return OutOfMemory, ReasonOutOfMemory
	case e.NoStart:
		return Failed, ReasonJobLaunchFailure
	case e.GPUOOM && e.Status() != 0:
		return Failed, ReasonGPUOutOfMemory
	case e.Signal != 0:
		return Failed, ReasonRaisedSignal
	case e.Code != 0:
		return Failed, ReasonNonZeroExitCode
	}
	return Completed, ReasonNone
}

// IsArray reports whether j is an array's own record with tasks still to start.
func (j *Job) IsArray() bool { return len(j.Tasks) > 0 }

// OverSubscribe says whether other jobs may share its CPUs, in squeue's words.
func (j *Job) OverSubscribe() string {
	more := j.Spec.Extra()
	switch {
	case more.Share, j.Run != nil && j.Run.Share > 1:
		return "YES"
	case j.Spec.Exclusive, j.Run != nil && j.Run.Alone:
		return "NO"
	case more.ExclusiveUser:
		return "USER"
	}
	return "OK"
}

// Partition gives the partition to show: the one it runs in, or the first it asked for.
func (j *Job) Partition() string {
	if j.Run != nil {
		return j.Run.Partition
	}
	if len(j.Spec.Partitions) > 0 {
		return j.Spec.Partitions[0]
	}
	return ""
}

// Partitions gives where the job belongs: the partition it runs in, or all it asked for while it waits.
func (j *Job) Partitions() []string {
	if j.Run != nil {
		return []string{j.Run.Partition}
	}
	return j.Spec.Partitions
}

// ElapsedS gives how long the job has had its resources without being suspended, in seconds.
func (j *Job) ElapsedS(now Time) int64 {
	if j.Run == nil {
		return 0
	}
	end := now
	switch {
	case j.End != nil:
		end = j.End.At
	case j.Run.Over != nil:
		end = j.Run.Over.At
	}
	return max(0, (int64(end-j.Run.Start)-j.Run.SleptMS(end))/1000)
}

// MaxHet is how many components a heterogeneous job has at most, as in Slurm.
const MaxHet = 128

// Het makes a job a component of a heterogeneous job. The components have consecutive numbers; the first one, whose
// number is the whole job's, runs the script.
type Het struct {
	ID     JobID // of the first component
	Offset int32 // of this component: its own number is ID+Offset
	Size   int32 // components as submitted
}

func (x *Het) Wire(c *wire.C) {
	wire.Int(c, &x.ID)
	wire.Int(c, &x.Offset)
	wire.Int(c, &x.Size)
}

// Last gives the number of the last component.
func (x *Het) Last() JobID { return x.ID + JobID(x.Size) - 1 }

// Name gives the component's name: "12+1".
func (x *Het) Name() string { return fmt.Sprintf("%d+%d", x.ID, x.Offset) }

// Set gives the numbers of all components: "12-14".
func (x *Het) Set() string { return fmt.Sprintf("%d-%d", x.ID, x.Last()) }

// valid reports whether job id can be this component.
func (x *Het) valid(id JobID) bool {
	return x.ID > 0 && x.Size > 1 && x.Size <= MaxHet && x.Offset >= 0 && x.Offset < x.Size && x.ID+JobID(x.Offset) == id
}

// ValidHet reports whether a job's number fits its place in a heterogeneous job.
func (j *Job) ValidHet() bool { return j.Het == nil || j.Het.valid(j.ID) && j.ArrayID == 0 }

// Leads reports whether j is the first component of a heterogeneous job.
func (j *Job) Leads() bool { return j.Het != nil && j.Het.Offset == 0 }

// Follows reports whether j is another component than the first: it holds resources and runs no script.
func (j *Job) Follows() bool { return j.Het != nil && j.Het.Offset > 0 }

// Fate is how a component ends because the first component has ended: as that one did.
type Fate struct {
	State  JobState
	Reason Reason
	Code   int32
	Signal int32
	UID    uint32 // who cancelled it
}

func (x *Fate) Wire(c *wire.C) {
	wire.Int(c, &x.State)
	wire.Int(c, &x.Reason)
	wire.Int(c, &x.Code)
	wire.Int(c, &x.Signal)
	wire.Int(c, &x.UID)
}
