package model

import "gbatch/internal/wire"

// Job is one job as the controllers remember it: a plain job, an array that still has tasks to start, or one task of
// an array. What exists only while a job has resources stands in Run, what exists only once it is over in End, so that
// a pending job cannot have a node and a running one cannot have an exit code.
type Job struct {
	ID       JobID
	ArrayID  JobID   // the array this is a task of or, with Tasks, its own ID; 0 for a plain job
	Task     int32   // the task's index in its array, or NoTask
	Tasks    TaskSet // tasks that have not started, on the array's own record only
	Throttle int32   // how many tasks of the array may run at once; 0: no limit. On every record of the array

	Spec     *Spec
	State    JobState
	Reason   Reason
	Why      string // a sentence for people behind Reason, may be empty
	Hold     HoldKind
	Priority uint32 // higher first; 0 when held
	Submit   Time
	Eligible Time  // when nothing but resources held it any longer; 0 while something does
	Begin    Time  // not before; 0: any time
	Deps     []Dep // what is still unfulfilled or has failed; fulfilled ones are dropped

	Attempt  uint32 // grows with every start; (ID, Attempt) keys every launch, report and record
	Restarts uint32
	Run      *Run
	End      *End
	Comment  string // set by operators; the user's own is Spec.Comment
	Direct   bool   // Priority was set by somebody and is not computed from factors
	Site     int32  // SiteFactor: added to the computed priority

	Expect *Expect // in lists only: when and where it will start, as far as the scheduler looks ahead
	Claim  *Claim  // what others are being ended for; nil: nothing

	Strikes    uint32   // launches that have failed since it last ran
	Avoid      []string // nodes that could not launch it; at most MaxAvoid
	AvoidUntil Time     // from then on they may be tried again

	Accrue Time // since when it gains priority by age: 0 is since Eligible, NotAging while a limit keeps it from doing so
}

func (x *Job) Wire(c *wire.C) {
	wire.Int(c, &x.ID)
	wire.Int(c, &x.ArrayID)
	wire.Int(c, &x.Task)
	wire.List(c, &x.Tasks, MaxMany)
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
}

// NotAging as Job.Accrue says that others gain priority by age in its place: GrpJobsAccrue, MaxJobsAccrue and their
// like.
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

// HoldKind says who holds a job.
type HoldKind uint8

// Who can release what: a user hold its owner, an admin hold an operator.
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
	StopPreemptCancel // preempted, and not to come back
	StopUnitFault     // a GPU of its own, or another unit, has failed: Run.StopWhy says which
	StopProlog        // a prolog failed: back into the queue, held
	StopLaunch        // a node could not launch it
)

// Run is a job's life on its nodes.
type Run struct {
	Partition string // the one of Spec.Partitions that it runs in
	Alloc     *Alloc
	Start     Time  // allocation
	Launched  Time  // the script's own start as its node reported it; 0 before
	LimitS    int64 // time limit in seconds, or Unlimited
	Stop      StopCause
	StopAt    Time
	StopUID   uint32         // who cancelled
	Epoch     uint64         // raft term of the leader whose plan started it
	Priority  uint32         // that it started with; 0: Job.Priority
	BillRate  int64          // millionths of a billing unit that it is charged with each second, UsageFactor included
	Factor    int64          // UsageFactor of its QOS when it started, millionths
	AssocPart string         // the partition of the association that it is charged to; "" for one without
	GraceS    int64          // with a Stop: seconds between SIGTERM and SIGKILL; 0: KillWait
	StopFor   JobID          // who it was preempted for
	Licenses  []LicenseCount // that it holds

	Share   int32     // how many jobs of its partition may have each of its CPUs; up to 1: it has them for itself
	Alone   bool      // nobody else has CPUs on its nodes
	Sleep   SleepKind // why it is suspended
	SleepAt Time      // when it was last suspended or resumed; 0: never
	SleepMS int64     // suspended before that, milliseconds
	Turns   uint32    // how often it was suspended or resumed
	StopWhy string    // for people, where Stop alone does not say it

	Gate    Gate   // the program of the controller that has to run before it goes on
	Unready Bits   // places in Alloc whose node has not run its prolog yet
	Busy    Bits   // places whose node still has something of the job; empty: only the first, which says so by its end
	Over    *End   // the script has ended, and epilogs still run; nil before
	Fault   string // with StopProlog and StopLaunch: what went wrong
	Resv    string // the reservation that it runs in; "": none

	PartQOS    string // the partition's QOS, where it is another than the job's own: it counts what the job uses as well
	StopReason Reason // with StopTimeLimit: the limit in minutes that has run out; StopWhy says whose
	Warned     Time   // when Spec.Warning's signal was due: it is sent once; 0: not yet
	Mailed     int32  // percentage of the time limit of whose passing people have been told last; 0: none

	FailedNode string // the node whose failure, fault or prolog ended the run; "": none did

	Bill int64 // billing units that it holds (TRESBillingWeights), whatever its UsageFactor; see Billing
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
	wire.Int(c, &x.Gate)
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
}

// Gate says which program of the controller a job waits for. The numbers are stored: append only.
type Gate uint8

// The values.
const (
	GateOpen   Gate = iota
	GateProlog      // PrologSlurmctld, before anything is launched
	GateEpilog      // EpilogSlurmctld, before the resources are given back
)

// Deadline gives the moment at which the time limit ends the job; 0 for never, and while the job is suspended: that
// time does not count.
func (r *Run) Deadline() Time {
	if r.LimitS >= Unlimited || r.Idles() {
		return 0
	}
	return r.Start.Add(r.LimitS) + Time(r.SleepMS)
}

// Billing gives the billing units that the job holds. Of one that an older controller started they are worked out from
// what it is charged with.
func (r *Run) Billing() int64 {
	if r.Bill != 0 || r.Factor <= 0 {
		return r.Bill
	}
	return Scale(r.BillRate, FactorOne, r.Factor) / FactorOne
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

// Exit is what a node reports of a finished job.
type Exit struct {
	Code     int32  // exit code of the script, 0-255
	Signal   int32  // the signal that ended it, or 0
	Unknown  bool   // nobody saw the exit (launcher lost); Code and Signal mean nothing
	OOM      bool   // the kernel's memory controller killed one of its processes
	UserMS   int64  // CPU time, milliseconds
	SysMS    int64  // CPU time in the kernel, milliseconds
	MaxRSSKB int64  // peak memory, KiB
	Text     string // a sentence for people where something went wrong beside the exit code
	Use      *Usage // what the batch step used, in detail; nil: nobody measured
	NoStart  bool   // the script did not begin: its files or its program can't be opened; Text says which
}

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
}

// State gives what the exit makes of a job that nobody stopped.
func (e Exit) State() (JobState, Reason) {
	switch {
	case e.Unknown:
		return Failed, ReasonSystemFailure
	case e.OOM:
		return OutOfMemory, ReasonOutOfMemory
	case e.NoStart:
		return Failed, ReasonJobLaunchFailure
	case e.Signal != 0:
		return Failed, ReasonRaisedSignal
	case e.Code != 0:
		return Failed, ReasonNonZeroExitCode
	}
	return Completed, ReasonNone
}

// IsArray reports whether j is an array's own record with tasks still to start.
func (j *Job) IsArray() bool { return len(j.Tasks) > 0 }

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
