package proto

import (
	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// Attempt keys one start of a job.
type Attempt struct {
	Job     model.JobID
	Attempt uint32
}

func (x *Attempt) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
}

// Hello opens a node's session. Known lists every attempt that the node runs, or has finished without an
// acknowledgement yet: an attempt that is not in it was never launched there or is lost.
type Hello struct {
	Node    string
	Version string
	Hw      Hardware
	BootID  string
	BootAt  model.Time
	UpSince model.Time
	Known   []Attempt

	// Instance is the instance of the node's attempts (see Welcome), 0 if there is none yet. A leader of another
	// instance treats Known as empty, because the job numbers mean other jobs.
	Instance uint64

	Now     model.Time // the node's clock
	Problem string     // a problem that its own checks found, or ""

	PeerPort int32 // port on which it answers other nodes' daemons, 0: none

	Leaving []Attempt // as in Heartbeat
	LeaseS  int64     // likewise

	// Uptime is when Known was looked up, ms since the host's boot. A network may deliver a Hello after the node has
	// registered over another connection, and got jobs that Known lacks: that one is refused. 0: not told.
	Uptime int64
}

func (x *Hello) Wire(c *wire.C) {
	wire.Text(c, &x.Node, model.MaxName)
	wire.Text(c, &x.Version, model.MaxName)
	wire.Struct(c, &x.Hw)
	wire.Text(c, &x.BootID, model.MaxName)
	wire.Int(c, &x.BootAt)
	wire.Int(c, &x.UpSince)
	wire.List(c, &x.Known, model.MaxMany)
	wire.Int(c, &x.Instance)
	wire.Int(c, &x.Now)
	wire.Text(c, &x.Problem, model.MaxText)
	wire.Int(c, &x.PeerPort)
	wire.List(c, &x.Leaving, model.MaxMany)
	wire.Int(c, &x.LeaseS)
	wire.Int(c, &x.Uptime)
}

// Hardware is the hardware that a node has found.
type Hardware struct {
	CPUs    int32
	Sockets int32
	Cores   int32 // per socket
	Threads int32 // per core
	MemMiB  int64
	TmpMiB  int64
	Gres    []model.GresDef
	OS      string
	Arch    string
	Virtual bool     // a stand-in: its hardware is taken from the configuration
	Notes   []string // sentences about what it can't enforce
	// why it can't take jobs although it has enough hardware: its resources contradict gres.conf; or ""
	Problem string
	Units   []model.GresUnit
}

func (x *Hardware) Wire(c *wire.C) {
	wire.Int(c, &x.CPUs)
	wire.Int(c, &x.Sockets)
	wire.Int(c, &x.Cores)
	wire.Int(c, &x.Threads)
	wire.Int(c, &x.MemMiB)
	wire.Int(c, &x.TmpMiB)
	wire.List(c, &x.Gres, model.MaxFew)
	wire.Text(c, &x.OS, model.MaxName)
	wire.Text(c, &x.Arch, model.MaxName)
	wire.Bool(c, &x.Virtual)
	wire.Texts(c, &x.Notes, model.MaxList, model.MaxText)
	wire.Text(c, &x.Problem, model.MaxText)
	wire.List(c, &x.Units, model.MaxList)
}

// Welcome accepts a node. It refuses orders with a smaller Epoch from then on.
type Welcome struct {
	Cluster    string
	Epoch      uint64
	HeartbeatS int64
	KillWaitS  int64
	Def        *model.NodeDef

	// Instance identifies one history of a cluster (see Put). A node with attempts of another instance ends them and
	// forgets the last epoch; 0 changes nothing.
	Instance uint64

	Rules *model.NodeRules

	Forget   []Attempt // the leader doesn't know these attempts; from the first heartbeat on they are in Leaving
	TimeoutS int64     // SlurmdTimeout: orders that answer an older heartbeat are ignored; 0: no order is too old

	// Sure says that this leader acknowledges heartbeats (Orders.Sure). It was the leader after it had read Hello.
	Sure      bool
	LeadsMS   int64 // for how long it has heard nodes without a break, ms
	Witnesses []Witness

	SpeakMS int64 // this leader sends something at least every so often, ms; 0: it may be silent for long

	Controllers []string // NAME=HOST:PORT of the controllers that vote; nil: as configured
	Revoked     *Revoked // certificates that count no more
}

func (x *Welcome) Wire(c *wire.C) {
	wire.Text(c, &x.Cluster, model.MaxName)
	wire.Int(c, &x.Epoch)
	wire.Int(c, &x.HeartbeatS)
	wire.Int(c, &x.KillWaitS)
	wire.Ptr(c, &x.Def)
	wire.Int(c, &x.Instance)
	wire.Ptr(c, &x.Rules)
	wire.List(c, &x.Forget, model.MaxMany)
	wire.Int(c, &x.TimeoutS)
	wire.Bool(c, &x.Sure)
	wire.Int(c, &x.LeadsMS)
	wire.List(c, &x.Witnesses, model.MaxFew)
	wire.Int(c, &x.SpeakMS)
	wire.Texts(c, &x.Controllers, model.MaxFew, model.MaxName)
	wire.Ptr(c, &x.Revoked)
}

// Witness is a node that another one may ask whether it hears a controller.
type Witness struct {
	Node string
	Addr string // host:port of its daemon
}

func (x *Witness) Wire(c *wire.C) {
	wire.Text(c, &x.Node, model.MaxName)
	wire.Text(c, &x.Addr, model.MaxName)
}

// MaxWitnesses bounds the witnesses of a node.
const MaxWitnesses = 16

// Orders are the leader's orders to a node: level-triggered, so every order may be repeated.
type Orders struct {
	Epoch  uint64
	Launch []*Launch
	Stop   []*Stop
	Forget []Attempt // the leader doesn't know these attempts: kill their processes and drop them

	Rules  *model.NodeRules // the configuration has changed
	Health bool             // run HealthCheckProgram
	Freeze []*Freeze        // orders for attempts that are or have been suspended

	// Heard is Now of the node's last message that the leader had when it sent this, 0 if there was none. A network, or
	// a stopped process, may delay orders until the leader has given the node up and the job runs elsewhere.
	Heard model.Time

	TimeoutS int64 // with Rules: as in Welcome

	// Sure is the Now of a heartbeat, 0: none. A majority of the controllers has confirmed since that one was read that
	// this is the leader, so that nobody gives the node up for SlurmdTimeout from when it said so.
	Sure      model.Time
	LeadsMS   int64     // beside Sure: as in Welcome
	Witnesses []Witness // beside Sure, where they have changed; nil: as before

	Moved string // another controller leads, at this address; this is the session's last message

	Controllers []string // with Rules: as in Welcome
	Revoked     *Revoked // when it has changed

	Resize []*Resize
}

func (x *Orders) Wire(c *wire.C) {
	wire.Int(c, &x.Epoch)
	wire.Ptrs(c, &x.Launch, model.MaxMany)
	wire.Ptrs(c, &x.Stop, model.MaxMany)
	wire.List(c, &x.Forget, model.MaxMany)
	wire.Ptr(c, &x.Rules)
	wire.Bool(c, &x.Health)
	wire.Ptrs(c, &x.Freeze, model.MaxMany)
	wire.Int(c, &x.Heard)
	wire.Int(c, &x.TimeoutS)
	wire.Int(c, &x.Sure)
	wire.Int(c, &x.LeadsMS)
	wire.List(c, &x.Witnesses, model.MaxFew)
	wire.Text(c, &x.Moved, model.MaxName)
	wire.Texts(c, &x.Controllers, model.MaxFew, model.MaxName)
	wire.Ptr(c, &x.Revoked)
	wire.Ptrs(c, &x.Resize, model.MaxMany)
}

// Empty reports whether there is nothing in it for a node to do: it is only a sign of life.
func (x *Orders) Empty() bool {
	return len(x.Launch)+len(x.Stop)+len(x.Forget)+len(x.Freeze)+len(x.Resize)+len(x.Witnesses) == 0 &&
		x.Rules == nil && !x.Health && x.Sure == 0 && x.Revoked == nil
}

// Launch starts a job's batch script. A node that has the attempt already does nothing and reports again.
type Launch struct {
	Job      model.JobID
	Attempt  uint32
	ArrayID  model.JobID
	Task     int32
	Array    ArrayShape
	Spec     *model.Spec
	Script   model.Blob
	Env      model.Blob
	Part     string
	LimitS   int64
	Start    model.Time
	Restarts uint32
	Alloc    *model.Alloc // of all nodes
	Node     int32        // this node's index in Alloc
	Resv     string

	// Prepare asks only for the preparations: control group and prolog. ReportReady answers it, and the script, if this
	// node runs it, comes with a later Launch. Without Prepare the prolog runs first if it has not run yet.
	Prepare bool

	Het    *model.Het // nil: it is no component of a heterogeneous job
	Others []HetPart  // the other components with resources, in order; for the first one only

	Switches string // the switches or blocks above this node, the highest first: s0.s1; "": there is none

	// Addrs has host:port of the daemons of Alloc's nodes, "" where it is not known: all of them for the first node,
	// which manages the job's steps, and only the first node's for the others.
	Addrs []string

	Version uint32 // Run.Version of Alloc
	Blocks  bool   // Switches names blocks

	CPUBind string // CpuBind of the nodes or the partition; "": NodeRules.CPUBind counts
}

// Since gives the version of the allocation with which the job got this node.
func (x *Launch) Since() uint32 { return x.Alloc.Nodes[x.Node].Since }

func (x *Launch) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Int(c, &x.ArrayID)
	wire.Int(c, &x.Task)
	wire.Struct(c, &x.Array)
	wire.Ptr(c, &x.Spec)
	wire.Struct(c, &x.Script)
	wire.Struct(c, &x.Env)
	wire.Text(c, &x.Part, model.MaxName)
	wire.Int(c, &x.LimitS)
	wire.Int(c, &x.Start)
	wire.Int(c, &x.Restarts)
	wire.Ptr(c, &x.Alloc)
	wire.Int(c, &x.Node)
	wire.Text(c, &x.Resv, model.MaxName)
	wire.Bool(c, &x.Prepare)
	wire.Ptr(c, &x.Het)
	wire.List(c, &x.Others, model.MaxFew)
	wire.Text(c, &x.Switches, model.MaxText)
	wire.Texts(c, &x.Addrs, model.MaxList, model.MaxText)
	wire.Int(c, &x.Version)
	wire.Bool(c, &x.Blocks)
	wire.Text(c, &x.CPUBind, model.MaxName)
}

// HetPart is what the script of a heterogeneous job is told of another component.
type HetPart struct {
	Job    model.JobID
	Offset int32
	Spec   *model.Spec
	Part   string
	LimitS int64
	Start  model.Time
	Alloc  *model.Alloc
	Resv   string
}

func (x *HetPart) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Offset)
	wire.Ptr(c, &x.Spec)
	wire.Text(c, &x.Part, model.MaxName)
	wire.Int(c, &x.LimitS)
	wire.Int(c, &x.Start)
	wire.Ptr(c, &x.Alloc)
	wire.Text(c, &x.Resv, model.MaxName)
}

// ArrayShape has the values of SLURM_ARRAY_TASK_{COUNT,MIN,MAX,STEP}, of the array as submitted.
type ArrayShape struct {
	Count int32
	Min   int32
	Max   int32
	Step  int32
}

func (x *ArrayShape) Wire(c *wire.C) {
	wire.Int(c, &x.Count)
	wire.Int(c, &x.Min)
	wire.Int(c, &x.Max)
	wire.Int(c, &x.Step)
}

// Stop ends an attempt's processes (Signal 0: SIGCONT and SIGTERM now, SIGKILL after KillWaitS) or, with Signal, only
// sends one. Line, if any, is written to the job's standard error first.
type Stop struct {
	Job       model.JobID
	Attempt   uint32
	Cause     model.StopCause
	Signal    int32
	Batch     bool // only the batch shell
	Full      bool // the batch shell and everything below it
	KillWaitS int64
	Line      string
	Once      bool // with Signal: the attempt gets it once, even if the order is repeated

	_    bool
	Code int32 // with StopGivenBack: the exit code of the command that had the job

	Tell bool // don't stop anything: only write Line

	Since uint32 // NodeAlloc.Since of the part that is to end; a node that the job got again meanwhile ignores it
}

func (x *Stop) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Int(c, &x.Cause)
	wire.Int(c, &x.Signal)
	wire.Bool(c, &x.Batch)
	wire.Bool(c, &x.Full)
	wire.Int(c, &x.KillWaitS)
	wire.Text(c, &x.Line, model.MaxText)
	wire.Bool(c, &x.Once)
	wire.Retired(c)
	wire.Int(c, &x.Code)
	wire.Bool(c, &x.Tell)
	wire.Int(c, &x.Since)
}

// ReportKind is the kind of a node's report about an attempt. The numbers are stored: append only.
type ReportKind uint8

// The kinds.
const (
	ReportStarted ReportKind = iota + 1
	ReportEnded
	ReportLaunchFailed
	ReportReady        // the prolog has run; asked for with Launch.Prepare
	ReportPrologFailed // Text says how; ReportEnded follows when the epilog has run
	ReportEnding       // the script has ended with Exit, all its processes are gone, and the epilog runs
	ReportEpilogFailed // Text says how; ReportEnded follows
	ReportUnkillable   // Text says which processes survive SIGKILL; ReportEnded follows if they ever die
)

// ReportStep says that a step has ended. There is a gap before its number, because package state has further kinds of
// its own.
const ReportStep ReportKind = 64

// Report is one thing that happened to an attempt. The node keeps it in its spool until it is acknowledged.
type Report struct {
	Seq     uint64 // number of the report on this node, strictly growing over restarts
	Kind    ReportKind
	Job     model.JobID
	Attempt uint32
	At      model.Time
	Exit    model.Exit  // ReportEnded
	Text    string      // what went wrong, and why
	Step    *model.Step // ReportStep
	Since   uint32      // NodeAlloc.Since of the part that it is about
	Taken   bool        // ReportLaunchFailed: the node could not take it now
}

func (x *Report) Wire(c *wire.C) {
	wire.Int(c, &x.Seq)
	wire.Int(c, &x.Kind)
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Int(c, &x.At)
	wire.Struct(c, &x.Exit)
	wire.Text(c, &x.Text, model.MaxText)
	wire.Ptr(c, &x.Step)
	wire.Int(c, &x.Since)
	wire.Bool(c, &x.Taken)
}

// Reports brings news from a node.
type Reports struct {
	Reports []*Report
	Now     model.Time // by the node's clock, as the message leaves; 0: not told
}

func (x *Reports) Wire(c *wire.C) {
	wire.Ptrs(c, &x.Reports, model.MaxMany)
	wire.Int(c, &x.Now)
}

// ReportAck says which reports are in the replicated log: the node may forget them.
type ReportAck struct {
	Seqs []uint64
}

func (x *ReportAck) Wire(c *wire.C) {
	wire.Ints(c, &x.Seqs, model.MaxMany)
}

// Heartbeat says that the node is alive, with its load and problems.
type Heartbeat struct {
	LoadMilli  int64
	FreeMemMiB int64
	Running    int32
	Problem    string // why the node should take no jobs, from its own checks and HealthCheckProgram; or ""

	Units      []model.UnitTell // a complete report on GPUs that jobs should not get
	UnitsKnown bool             // the GPUs have been read since gnoded started
	Readings   []UnitReading    // at most MaxUnits
	Now        model.Time       // by the node's clock

	// Leaving lists attempts that the leader told the node to forget and that have not ended yet, at most MaxLeaving.
	// Until it is empty the node gets no work.
	Leaving []Attempt
	Held    []model.GPUHeld // GPU memory that processes outside of jobs hold; at most model.MaxUnitTells

	// LeaseS is the SlurmdTimeout by which the node counts: it is not given up sooner, whatever was configured since.
	LeaseS int64

	// Uses is what jobs here use, now and then; empty: nothing new. At most MaxJobUses.
	Uses []JobUse
}

func (x *Heartbeat) Wire(c *wire.C) {
	wire.Int(c, &x.LoadMilli)
	wire.Int(c, &x.FreeMemMiB)
	wire.Int(c, &x.Running)
	wire.Text(c, &x.Problem, model.MaxText)
	wire.List(c, &x.Units, model.MaxFew)
	wire.Bool(c, &x.UnitsKnown)
	wire.List(c, &x.Readings, model.MaxList)
	wire.Int(c, &x.Now)
	wire.List(c, &x.Leaving, model.MaxMany)
	wire.List(c, &x.Held, model.MaxFew)
	wire.Int(c, &x.LeaseS)
	wire.List(c, &x.Uses, model.MaxFew)
}

// MaxLeaving bounds Heartbeat.Leaving.
const MaxLeaving = 64

// MaxUnits bounds the units of one node that are listed one by one.
const MaxUnits = 256

// UnitReading is the state of one unit. Numbers that are not known are -1.
type UnitReading struct {
	Name        string
	Index       int32
	UtilPct     int32
	MemUtilPct  int32
	MemUsedMiB  int64
	MemTotalMiB int64
	TempC       int32
	PowerMilliW int64
	XID         int32  // the last one since gnoded started, 0: none
	Fault       string // the last fatal fault since then, "" if none
	Lost        bool   // it does not answer any more
	Processes   int32
}

func (x *UnitReading) Wire(c *wire.C) {
	wire.Text(c, &x.Name, model.MaxName)
	wire.Int(c, &x.Index)
	wire.Int(c, &x.UtilPct)
	wire.Int(c, &x.MemUtilPct)
	wire.Int(c, &x.MemUsedMiB)
	wire.Int(c, &x.MemTotalMiB)
	wire.Int(c, &x.TempC)
	wire.Int(c, &x.PowerMilliW)
	wire.Int(c, &x.XID)
	wire.Text(c, &x.Fault, model.MaxText)
	wire.Bool(c, &x.Lost)
	wire.Int(c, &x.Processes)
}
