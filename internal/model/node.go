package model

import (
	"strings"

	"gbatch/internal/wire"
)

// NodeDef is a node as the configuration defines it.
type NodeDef struct {
	Name           string
	Addr           string // host name or address, for people
	CPUs           int32
	Boards         int32
	Sockets        int32
	CoresPerSocket int32
	ThreadsPerCore int32
	MemMiB         int64
	TmpMiB         int64
	Features       []string
	Gres           []GresDef
	Weight         int32
	Virtual        bool      // `gbatch up --conf`: its hardware is only claimed, the machine may have less
	Admin          NodeAdmin // State= of the configuration: the state of a new node
	Reason         string    // Reason= of the configuration, for Admin

	Kept       Bits  // CPUs that jobs can't get (CoreSpecCount, CpuSpecList)
	KeptMemMiB int64 // memory that jobs can't get (MemSpecLimit)

	// Available are the features that the node can have, if some of them are not active; nil: Features are all.
	Available []string
	// as of partitions: keys that operators have set, and whether the node is in no file (a dynamic node)
	Set  []string
	Made bool

	Host string // NodeHostname; "": Name

	Cloud bool // State=CLOUD: it exists only while it is powered up

	Topology string // TOPOLOGY:UNIT,...: where it is in these topologies, whatever their file says; "": as the file says

	CPUBind string // CpuBind: counts where all nodes of a job have the same; "": its partition or the cluster says it

	Future   bool // State=FUTURE: it is in Config.Future, and no node yet
	FutureAt Time // it was a node until then; 0: it has not been one

	External bool // State=EXTERNAL: it has no daemon, and only jobs whose processes are another system's
}

func (x *NodeDef) Wire(c *wire.C) {
	wire.Text(c, &x.Name, MaxName)
	wire.Text(c, &x.Addr, MaxName)
	wire.Int(c, &x.CPUs)
	wire.Int(c, &x.Boards)
	wire.Int(c, &x.Sockets)
	wire.Int(c, &x.CoresPerSocket)
	wire.Int(c, &x.ThreadsPerCore)
	wire.Int(c, &x.MemMiB)
	wire.Int(c, &x.TmpMiB)
	wire.Texts(c, &x.Features, MaxList, MaxName)
	wire.List(c, &x.Gres, MaxFew)
	wire.Int(c, &x.Weight)
	wire.Bool(c, &x.Virtual)
	wire.Int(c, &x.Admin)
	wire.Text(c, &x.Reason, MaxText)
	wire.Ints(c, &x.Kept, MaxFew)
	wire.Int(c, &x.KeptMemMiB)
	wire.Texts(c, &x.Available, MaxList, MaxName)
	wire.Texts(c, &x.Set, MaxFew, MaxName)
	wire.Bool(c, &x.Made)
	wire.Text(c, &x.Host, MaxName)
	wire.Bool(c, &x.Cloud)
	wire.Text(c, &x.Topology, MaxText)
	wire.Text(c, &x.CPUBind, MaxName)
	wire.Bool(c, &x.Future)
	wire.Int(c, &x.FutureAt)
	wire.Bool(c, &x.External)
}

// HostName gives the name of the node's host.
func (d *NodeDef) HostName() string {
	if d.Host != "" {
		return d.Host
	}
	return d.Name
}

// CanHave gives the features that the node can have, active or not.
func (d *NodeDef) CanHave() []string {
	if d.Available != nil {
		return d.Available
	}
	return d.Features
}

// JobCPUs are the CPUs that jobs can get.
func (d *NodeDef) JobCPUs() Bits { return UpTo(int(d.CPUs)).Minus(d.Kept) }

// JobCPUCount counts the CPUs that jobs can get.
func (d *NodeDef) JobCPUCount() int { return int(d.CPUs) - d.Kept.Count() }

// JobMemMiB is the memory that jobs can get.
func (d *NodeDef) JobMemMiB() int64 { return d.MemMiB - d.KeptMemMiB }

// GresDef is one kind of generic resource on a node. Indices count from First, over all types of one name.
type GresDef struct {
	Name  string
	Type  string
	First int32
	Count int32

	// Properties of the units, in order: empty, or one entry for each unit.
	Near  []Bits    // CPUs near each unit; an empty set: all are near
	Links [][]int32 // connections to each unit of the same name, by index
	// distance to each unit of the same name, by index: NVML's levels, from 10 (one PCIe switch) to 50 (another
	// socket); 0: not known
	Dist [][]int32

	MemMiB int64 // memory of each GPU; 0: not known
	// for a resource whose units are shares of GPUs (shard, mps): the GPUs; their units are numbered consecutively from
	// First
	Over       []Share
	OneSharing bool // only one of these GPUs is shared at a time (Flags=one_sharing)

	Off Bits // indices of units that jobs never get (Flags=reserved)

	NoConsume bool // jobs may ask for up to Count units, and use up none: the units have no indices
	Explicit  bool // only jobs that ask for it get it, not a job that has the node alone (Flags=explicit)
}

func (x *GresDef) Wire(c *wire.C) {
	wire.Text(c, &x.Name, MaxName)
	wire.Text(c, &x.Type, MaxName)
	wire.Int(c, &x.First)
	wire.Int(c, &x.Count)
	wire.Each(c, &x.Near, MaxFew, func(c *wire.C, e *Bits) { wire.Ints(c, e, MaxFew) })
	wire.Each(c, &x.Links, MaxFew, func(c *wire.C, e *[]int32) { wire.Ints(c, e, MaxFew) })
	wire.Each(c, &x.Dist, MaxFew, func(c *wire.C, e *[]int32) { wire.Ints(c, e, MaxFew) })
	wire.Int(c, &x.MemMiB)
	wire.List(c, &x.Over, MaxFew)
	wire.Bool(c, &x.OneSharing)
	wire.Ints(c, &x.Off, MaxFew)
	wire.Bool(c, &x.NoConsume)
	wire.Bool(c, &x.Explicit)
}

// Share is the number of units of a sharing resource that one GPU has.
type Share struct {
	GPU   int32 // index among the node's units of gpu
	Count int32
}

func (x *Share) Wire(c *wire.C) {
	wire.Int(c, &x.GPU)
	wire.Int(c, &x.Count)
}

// NodeAdmin is a node's state as set by an operator or a rule. The numbers are stored: append only.
type NodeAdmin uint8

// The values.
const (
	NodeUp NodeAdmin = iota
	NodeDrain
	NodeDown
)

// NodeLink says whether the node's daemon is connected.
type NodeLink uint8

// The values. A node is lost once it has been silent for SlurmdTimeout.
const (
	LinkUnknown NodeLink = iota // never registered since it was defined
	LinkUp
	LinkLost
)

// Node is one node, with its state and the jobs on it.
type Node struct {
	Def      *NodeDef
	Admin    NodeAdmin
	Reason   string
	ReasonBy string // "root", as in [root@2026-...]
	ReasonAt Time
	Link     NodeLink
	LinkAt   Time
	BootID   string // boot ID of the host: it tells a reboot from a restart of the daemon
	BootAt   Time
	UpSince  Time // start of the daemon
	Version  string
	OS       string
	Arch     string

	UsedCPUs  Bits
	UsedMem   int64       // MiB
	UsedGres  []GresAlloc // by name, Type ""
	Jobs      []JobID     // jobs with resources here, ascending
	Exclusive JobID       // the job that has the node for itself, or 0
	BusyAt    Time        // when it last had a job
	Problem   string      // why it may not take jobs, from its last registration; or ""
	Shared    []SharedGPU // GPUs whose shares jobs hold, by GPU
	Asleep    []JobID     // jobs of Jobs that are suspended and have given their CPUs back
	CPUShares []CPUShare  // CPUs of UsedCPUs that several jobs may share, in order of partition
	Out       []UnitOut   // units that new jobs don't get
	Strikes   []JobID     // jobs that it could not launch since its last successful launch; at most MaxStrikes
	Ending    int32       // how many of Jobs are COMPLETING
	// units that it found when it last registered, of resources about which it found something
	Found []GresDef
	Held  []GPUHeld // GPU memory that processes outside of jobs hold, by index

	Uptime int64 // of its host as it last registered, ms since the boot; 0: it did not say

	Comment string // set by operators
	Extra   string // likewise
	Failing bool   // an operator expects it to fail (State=FAIL); Admin is NodeDrain
	Reboot  *Reboot
	Power   *Power   // nil: it is powered up, and nothing else is asked for
	Tags    []GPUTag // models that its GPUs have loaded, by GPU, the latest first

	ResumeAt Time // when a node that an operator has taken out resumes by itself (ResumeAfter=); 0: it does not
}

// RebootStep says how far a node's reboot is. The numbers are stored: append only.
type RebootStep uint8

// The steps.
const (
	RebootAsked  RebootStep = iota + 1 // it waits until the node has no job
	RebootIssued                       // the node was told to reboot
)

// Reboot is a node's reboot, from its order to the node's return.
type Reboot struct {
	Step   RebootStep
	At     Time // of the step
	ASAP   bool // no job starts before it
	Next   RebootNext
	Reason string // what the node's reason becomes; ""
	By     string
	For    JobID // the job that has the node and waits for its return (--reboot); 0: none
}

func (x *Reboot) Wire(c *wire.C) {
	wire.Int(c, &x.Step)
	wire.Int(c, &x.At)
	wire.Bool(c, &x.ASAP)
	wire.Int(c, &x.Next)
	wire.Text(c, &x.Reason, MaxText)
	wire.Text(c, &x.By, MaxName)
	wire.Int(c, &x.For)
}

// RebootNext is the state that a node gets when it is back. The numbers are stored: append only.
type RebootNext uint8

// The values.
const (
	RebootSame   RebootNext = iota // the state that it had before
	RebootResume                   // it takes jobs
	RebootDown
)

func (x *Node) Wire(c *wire.C) {
	wire.Ptr(c, &x.Def)
	wire.Int(c, &x.Admin)
	wire.Text(c, &x.Reason, MaxText)
	wire.Text(c, &x.ReasonBy, MaxName)
	wire.Int(c, &x.ReasonAt)
	wire.Int(c, &x.Link)
	wire.Int(c, &x.LinkAt)
	wire.Text(c, &x.BootID, MaxName)
	wire.Int(c, &x.BootAt)
	wire.Int(c, &x.UpSince)
	wire.Text(c, &x.Version, MaxName)
	wire.Text(c, &x.OS, MaxName)
	wire.Text(c, &x.Arch, MaxName)
	wire.Ints(c, &x.UsedCPUs, MaxFew)
	wire.Int(c, &x.UsedMem)
	wire.List(c, &x.UsedGres, MaxFew)
	wire.Ints(c, &x.Jobs, MaxMany)
	wire.Int(c, &x.Exclusive)
	wire.Int(c, &x.BusyAt)
	wire.Text(c, &x.Problem, MaxText)
	wire.List(c, &x.Shared, MaxFew)
	wire.Ints(c, &x.Asleep, MaxMany)
	wire.List(c, &x.CPUShares, MaxFew)
	wire.List(c, &x.Out, MaxList)
	wire.Ints(c, &x.Strikes, MaxMany)
	wire.Int(c, &x.Ending)
	wire.List(c, &x.Found, MaxFew)
	wire.List(c, &x.Held, MaxFew)
	wire.Int(c, &x.Uptime)
	wire.Text(c, &x.Comment, MaxText)
	wire.Text(c, &x.Extra, MaxText)
	wire.Bool(c, &x.Failing)
	wire.Ptr(c, &x.Reboot)
	wire.Ptr(c, &x.Power)
	wire.List(c, &x.Tags, MaxList)
	wire.Int(c, &x.ResumeAt)
}

// MaxStrikes is how many failed launches a node remembers.
const MaxStrikes = 64

// Usable reports whether new jobs may be given the node: it is up, or is powered up for them.
func (n *Node) Usable() bool {
	return n.Admin == NodeUp && !n.Leaving() && (n.Link == LinkUp || n.Rises()) && n.PowerStep() != PoweringDown
}

// Draining reports whether the node has the flag DRAIN: it gets no more jobs.
func (n *Node) Draining() bool {
	return n.Admin == NodeDrain || n.Reboot != nil && n.Reboot.ASAP || n.Power != nil && n.Power.Want.now()
}

// Leaving reports whether the node is about to reboot or to be powered down, and takes no more jobs.
func (n *Node) Leaving() bool {
	return n.Rebooting() || n.Reboot != nil && n.Reboot.ASAP || n.Power != nil && n.Power.Want.now()
}

// Rebooting reports whether the node was told to reboot and has not come back: its silence is no failure.
func (n *Node) Rebooting() bool { return n.Reboot != nil && n.Reboot.Step == RebootIssued }

// Used gives the indices of a generic resource's units that jobs hold.
func (n *Node) Used(gres string) Bits {
	for i := range n.UsedGres {
		if n.UsedGres[i].Name == gres {
			return n.UsedGres[i].Index
		}
	}
	return nil
}

// FullCPUs reports whether no CPU is free.
func (n *Node) FullCPUs() bool { return n.UsedCPUs.Count() >= n.Def.JobCPUCount() || n.Exclusive != 0 }

// PowerStep says where a node is between on and off. The numbers are stored: append only.
type PowerStep uint8

// The steps, each until what stands behind it has happened.
const (
	PowerOn      PowerStep = iota
	PoweringDown           // SuspendProgram has SuspendTimeout to switch it off
	PoweredDown            // jobs may be given the node, or an operator asks for it
	PoweringUp             // it registers; ResumeProgram has ResumeTimeout for that
)

// PowerWant is what is asked for next. The numbers are stored: append only.
type PowerWant uint8

// The values.
const (
	PowerAsIs      PowerWant = iota
	PowerUp                  // the node is powered up, whether a job needs it or not
	PowerDown                // when it has no job; until then it gets new ones
	PowerDownASAP            // likewise, and it gets no new jobs
	PowerDownForce           // likewise, and its jobs are being ended
)

func (w PowerWant) now() bool { return w == PowerDownASAP || w == PowerDownForce }

// Down reports whether the node is to be powered down.
func (w PowerWant) Down() bool { return w >= PowerDown }

// Power is a node's way between on and off.
type Power struct {
	Step PowerStep
	At   Time // of the step
	Want PowerWant
	Told bool   // the program of the step has run
	Fail bool   // the node did not come up: ResumeFailProgram has to run
	By   string // the operator who asks; "": nobody does
}

func (x *Power) Wire(c *wire.C) {
	wire.Int(c, &x.Step)
	wire.Int(c, &x.At)
	wire.Int(c, &x.Want)
	wire.Bool(c, &x.Told)
	wire.Bool(c, &x.Fail)
	wire.Text(c, &x.By, MaxName)
}

// PowerStep gives where the node is between on and off.
func (n *Node) PowerStep() PowerStep {
	if n.Power == nil {
		return PowerOn
	}
	return n.Power.Step
}

// Rises reports whether the node is off, or on its way up: a job that is given it waits until it registers.
func (n *Node) Rises() bool { return n.PowerStep() == PoweredDown || n.PowerStep() == PoweringUp }

// Awaited reports whether the node is off, on its way up, or rebooted for a job: its job waits until it registers.
func (n *Node) Awaited() bool { return n.Rises() || n.Reboot != nil && n.Reboot.For != 0 }

// Silent reports whether the node's daemon should answer and does not.
func (n *Node) Silent() bool { return n.PowerStep() == PowerOn && n.Link != LinkUp }

// PowerFlags gives Slurm's flags of a node's power, each with a + before it: +CLOUD, +POWERED_DOWN, ...
func (n *Node) PowerFlags() string {
	flags := ""
	if n.Def.Cloud {
		flags = "+CLOUD"
	}
	if n.Power == nil {
		return flags
	}
	switch {
	case n.Power.Want.Down():
		flags += "+POWER_DOWN"
	case n.Power.Want == PowerUp:
		flags += "+POWER_UP"
	}
	return flags + [...]string{"", "+POWERING_DOWN", "+POWERED_DOWN", "+POWERING_UP"}[n.Power.Step&3]
}

// powerMark gives the sign of a node's power behind its state, "" if it is up.
func (n *Node) powerMark() string {
	if n.Power == nil {
		return ""
	}
	if n.Power.Step == PowerOn && n.Power.Want.Down() {
		return "!"
	}
	return [...]string{"", "%", "~", "#"}[n.Power.Step&3]
}

// States of nodes in the configuration: FutureText of what is no node yet, CloudText of a node that exists only while
// it is powered up, ExternalText of one whose processes are another system's.
const (
	FutureText   = "FUTURE"
	CloudText    = "CLOUD"
	ExternalText = "EXTERNAL"
)

// StateName gives Slurm's long state without suffix: IDLE, COMPLETING, MIXED, ALLOCATED, DRAINED, DRAINING, DOWN,
// UNKNOWN, FAIL, FAILING, REBOOT, FUTURE.
func (n *Node) StateName() string {
	busy := len(n.Jobs) > 0
	switch {
	case n.Def.Future:
		return FutureText
	case n.Admin == NodeDown, n.Silent() && n.Link == LinkLost:
		return "DOWN"
	case n.Silent():
		return "UNKNOWN"
	case n.Rebooting():
		return "REBOOT"
	case n.Admin == NodeDrain && n.Failing && busy:
		return "FAILING"
	case n.Admin == NodeDrain && n.Failing:
		return "FAIL"
	case (n.Admin == NodeDrain || n.Leaving()) && busy:
		return "DRAINING"
	case n.Admin == NodeDrain || n.Leaving():
		return "DRAINED"
	case n.AwakeJobs() == 0: // as in Slurm, even if jobs are suspended on it
		return "IDLE"
	case int(n.Ending) >= len(n.Jobs):
		return "COMPLETING"
	case n.FullCPUs():
		return "ALLOCATED"
	}
	return "MIXED"
}

// ShortState gives Slurm's compact state: idle, comp, mix, alloc, drain, drng, down, unk; with * if it does not answer.
func (n *Node) ShortState() string {
	s := map[string]string{"DOWN": "down", "UNKNOWN": "unk", "DRAINING": "drng", "DRAINED": "drain", "IDLE": "idle",
		"ALLOCATED": "alloc", "MIXED": "mix", "COMPLETING": "comp", "REBOOT": "boot", "FAILING": "failg",
		"FAIL": "fail", FutureText: "futr"}[n.StateName()]
	return s + n.StateMark()
}

// StateMark gives what follows a state's name: * if the node does not answer, @ if it is to be rebooted, ^ while it
// reboots; ! if it is to be powered down, % while it is, ~ when it is, # while it is powered up.
func (n *Node) StateMark() string {
	switch {
	case n.Def.Future:
		return ""
	case n.Rebooting():
		return "^"
	case n.powerMark() != "":
		return n.powerMark()
	case n.Link != LinkUp:
		return "*"
	case n.Reboot != nil:
		return "@"
	}
	return ""
}

// BaseState gives the state as scontrol shows it: IDLE, MIXED+DRAIN, DOWN*, ...
func (n *Node) BaseState() string {
	if n.Def.Future {
		return FutureText
	}
	base := "IDLE"
	down := n.Admin == NodeDown || n.Silent() && n.Link == LinkLost
	switch {
	case down:
		base = "DOWN"
	case n.Silent():
		base = "UNKNOWN"
	case n.AwakeJobs() == 0:
	case n.FullCPUs():
		base = "ALLOCATED"
	default:
		base = "MIXED"
	}
	if n.Silent() {
		base += "*"
	}
	if n.Def.External {
		base += "+" + ExternalText
	}
	power := n.PowerFlags()
	if cloud, rest, is := strings.Cut(power, "+CLOUD"); is {
		base, power = base+cloud+"+CLOUD", rest
	}
	if n.Ending > 0 && !down {
		base += "+COMPLETING"
	}
	switch {
	case n.Admin == NodeDrain && n.Failing:
		base += "+FAIL"
	case n.Draining():
		base += "+DRAIN"
	}
	base += power
	switch {
	case n.Reboot == nil:
	case n.Rebooting():
		base += "+REBOOT_ISSUED"
	default:
		base += "+REBOOT_REQUESTED"
	}
	return base
}
