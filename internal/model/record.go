package model

import (
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/price"
	"gbatch/internal/wire"
)

// Record is a job's accounting record: complete in itself, one per (Job, Attempt), or with Step one per step. A later
// record of the same key replaces the earlier one, so sending a record twice changes nothing.
type Record struct {
	Seq          uint64 // position in the controller's outbox: strictly growing
	Cluster      string
	Job          JobID
	Attempt      uint32
	ArrayID      JobID
	Task         int32
	TaskText     string // for an array's own record: its tasks as text, "0-9%2"
	Name         string
	User         string
	Group        string
	UID          uint32
	GID          uint32
	Account      string
	QOS          string
	Partition    string
	State        JobState
	Reason       Reason
	Submit       Time
	Eligible     Time
	Start        Time
	End          Time
	LimitS       int64
	Nodes        string // hostlist
	NumNodes     int32
	ReqCPUs      int32
	AllocCPUs    int32
	ReqMemMiB    int64       // per node
	AllocMemMiB  int64       // all nodes
	ReqGres      []GresCount // whole job
	AllocGres    []GresCount
	Exit         Exit
	CancelUID    uint32
	Priority     uint32
	Restarts     uint32
	WorkDir      string
	Command      string
	SubmitLine   string
	Comment      string
	AdminComment string
	StdOut       string
	StdErr       string
	StdIn        string
	Constraints  string
	Why          string
	Purge        bool // the array's own record is done: its tasks have records of their own, so this one is deleted

	Reservation string // the reservation in which it ran, or the first that it asked for
	// Step makes this the record of a step of (Job, Attempt), one per step. Of the other fields, only those that
	// identify the job and its user are set.
	Step      *Step
	SuspendMS int64 // how long it was suspended before SuspendAt, milliseconds: not part of its run time
	SuspendAt Time  // since when it is suspended; 0: it runs or has ended
	NoScript  bool  // made by galloc or grun: there is no batch step

	FailedNode string // the node whose failure, fault or prolog ended the run; "": none did

	Asked *Asked // nil: an older controller's record

	Het   *Het   // nil: it is no component of a heterogeneous job
	Audit *Audit // not nil: an entry of the audit trail and no job's record; of the other fields only Seq is set
	Size  uint32 // how many sizes the run had before this one, whose record this is; at most MaxSizes

	Container string // the image or bundle in which the script ran; "": in none

	Noted []KV // what was changed since the job has ended; see Note

	WCKey   string // as Spec.WCKey
	WCKeyID uint32 // 0: usage is not kept by it

	Earlier *Earlier // what the run had before this size; nil: it is the first one, or an older controller's record
	Open    bool     // another size follows: no minimum is charged

	Unbegun bool // nothing of an ended run was launched: it costs nothing, and used nothing
}

func (x *Record) Wire(c *wire.C) {
	wire.Int(c, &x.Seq)
	wire.Text(c, &x.Cluster, MaxName)
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Int(c, &x.ArrayID)
	wire.Int(c, &x.Task)
	wire.Text(c, &x.TaskText, MaxText)
	wire.Text(c, &x.Name, MaxName)
	wire.Text(c, &x.User, MaxName)
	wire.Text(c, &x.Group, MaxName)
	wire.Int(c, &x.UID)
	wire.Int(c, &x.GID)
	wire.Text(c, &x.Account, MaxName)
	wire.Text(c, &x.QOS, MaxName)
	wire.Text(c, &x.Partition, MaxName)
	wire.Int(c, &x.State)
	wire.Int(c, &x.Reason)
	wire.Int(c, &x.Submit)
	wire.Int(c, &x.Eligible)
	wire.Int(c, &x.Start)
	wire.Int(c, &x.End)
	wire.Int(c, &x.LimitS)
	wire.Text(c, &x.Nodes, MaxText)
	wire.Int(c, &x.NumNodes)
	wire.Int(c, &x.ReqCPUs)
	wire.Int(c, &x.AllocCPUs)
	wire.Int(c, &x.ReqMemMiB)
	wire.Int(c, &x.AllocMemMiB)
	wire.List(c, &x.ReqGres, MaxFew)
	wire.List(c, &x.AllocGres, MaxFew)
	wire.Struct(c, &x.Exit)
	wire.Int(c, &x.CancelUID)
	wire.Int(c, &x.Priority)
	wire.Int(c, &x.Restarts)
	wire.Text(c, &x.WorkDir, MaxText)
	wire.Text(c, &x.Command, MaxText)
	wire.Derived(c, &x.SubmitLine, MaxText)
	wire.Text(c, &x.Comment, MaxText)
	wire.Text(c, &x.AdminComment, MaxText)
	wire.Text(c, &x.StdOut, MaxText)
	wire.Text(c, &x.StdErr, MaxText)
	wire.Text(c, &x.StdIn, MaxText)
	wire.Text(c, &x.Constraints, MaxText)
	wire.Text(c, &x.Why, MaxText)
	wire.Bool(c, &x.Purge)
	wire.Text(c, &x.Reservation, MaxText)
	wire.Ptr(c, &x.Step)
	wire.Int(c, &x.SuspendMS)
	wire.Int(c, &x.SuspendAt)
	wire.Bool(c, &x.NoScript)
	wire.Text(c, &x.FailedNode, MaxText)
	wire.Ptr(c, &x.Asked)
	wire.Ptr(c, &x.Het)
	wire.Ptr(c, &x.Audit)
	wire.Int(c, &x.Size)
	wire.Text(c, &x.Container, MaxText)
	wire.List(c, &x.Noted, MaxFew)
	wire.Text(c, &x.WCKey, MaxName)
	wire.Int(c, &x.WCKeyID)
	wire.Ptr(c, &x.Earlier)
	wire.Bool(c, &x.Open)
	wire.Bool(c, &x.Unbegun)
}

// Earlier is what a run had before the size that a record is of.
type Earlier struct {
	Began Time        // the run
	Secs  int64       // without suspensions
	Used  []TRESCount // units times milliseconds
}

func (x *Earlier) Wire(c *wire.C) {
	wire.Int(c, &x.Began)
	wire.Int(c, &x.Secs)
	wire.List(c, &x.Used, MaxFew)
}

// Earlier gives what a run had before its present size; nil: it is the first one.
func (x *Run) Earlier() *Earlier {
	if x.Sizes == 0 || x.Sized == 0 {
		return nil
	}
	return &Earlier{Began: x.Start, Secs: max(0, int64(x.Sized-x.Start)-x.SizedSleepMS) / 1000, Used: x.Spent}
}

// price adds it to what a size is charged for. Licenses are a run's from its beginning to its end.
func (x *Earlier) price(s *price.Session, held []LicenseCount) {
	if x == nil {
		return
	}
	s.Since, s.Before = x.Began.Seconds(), x.Secs
	for _, c := range x.Used {
		n := c.Count
		if strings.HasPrefix(c.TRES, gresTRES) && !strings.Contains(c.TRES, ":") {
			for _, typed := range x.Used { // they have prices of their own
				if strings.HasPrefix(typed.TRES, c.TRES+":") {
					n -= typed.Count
				}
			}
		}
		s.Earlier = append(s.Earlier, price.Amount{TRES: c.TRES, Count: max(0, n) / 1000})
	}
	for _, l := range held {
		s.Earlier = append(s.Earlier, price.Amount{TRES: LicenseTRES(l.Name), Count: l.Count * x.Secs})
	}
}

// MaxSizes bounds how often a run may change its size: each size has a record.
const MaxSizes = 4095

// Era is a part of a history: it begins when the controllers go on from an older state than gdbd has seen, because a
// snapshot was restored. From then on record numbers may mean other records than before.
type Era struct {
	Number uint64 // grows from era to era; the first era of a history is 0 and is not listed
	From   uint64 // the first record number of the era: smaller ones mean what they meant before

	// What follows is 0 in eras that an older version began.
	At      Time  // when it began
	Unknown JobID // the controllers know nothing of jobs from this number on
	Next    JobID // and gave this one first
}

func (x *Era) Wire(c *wire.C) {
	wire.Int(c, &x.Number)
	wire.Int(c, &x.From)
	wire.Int(c, &x.At)
	wire.Int(c, &x.Unknown)
	wire.Int(c, &x.Next)
}

// MaxEras bounds the eras that a history remembers.
const MaxEras = 64

// Lists reports whether the record of a run that goes on lists one of its steps: of a run that changed its size, each
// size has those that began in it and have ended, and the present one has those that still run.
func (r *Record) Lists(s *Step) bool { return r.Size == 0 || s.End == 0 || s.Start >= r.Start }

// ElapsedS gives how long an ended job had its resources without being suspended, seconds.
func (r *Record) ElapsedS() int64 {
	if r.End == 0 {
		return 0
	}
	return r.HeldS(r.End)
}

// HeldS gives how long a job had its resources without being suspended until a moment that is no later than its end,
// seconds.
func (r *Record) HeldS(until Time) int64 {
	if r.Start == 0 {
		return 0
	}
	return max(0, until.Seconds()-r.Start.Seconds()-r.AsleepS(until))
}

// AsleepS gives how long a job was suspended until a moment that is no later than its end, seconds.
func (r *Record) AsleepS(until Time) int64 {
	ms := r.SuspendMS
	if r.SuspendAt != 0 { // gdbd may end what is suspended
		ms += max(0, int64(until-r.SuspendAt))
	}
	return ms / 1000
}

// Session gives what an ended run had, for prices; nil: it never began, or has not ended. It is that of Job.Session.
func (r *Record) Session() *price.Session {
	if r.Start == 0 || r.End == 0 || r.Unbegun || r.Step != nil || r.Audit != nil || r.TaskText != "" {
		return nil
	}
	s := &price.Session{Start: r.Start.Seconds(), Seconds: r.ElapsedS(), Partition: r.Partition}
	var bill int64
	var held []LicenseCount
	if r.Asked != nil {
		bill, held = r.Asked.Billed, r.Asked.Held
	}
	s.Has = priced(int64(r.AllocCPUs), r.AllocMemMiB, int64(r.NumNodes), bill, r.AllocGres, held)
	s.Open = r.Open
	r.Earlier.price(s, held)
	return s
}

// Unbegun reports whether nothing of a run that has ended was launched: its nodes did not come up, or could not take
// it.
func (j *Job) Unbegun() bool { return j.Run != nil && j.End != nil && j.Run.Unbegun(&j.End.Exit) }

// Unbegun is that of Job, of a run that has ended so. Who has an exit status of its own has begun, told or not.
func (x *Run) Unbegun(exit *Exit) bool { return x.Launched == 0 && (x.Stop != NoStop || exit.Unknown) }

// Session gives what a run, or a size of it, that has ended had; nil: it has no resources. Whether it has begun is
// Unbegun.
func (j *Job) Session() *price.Session {
	if j.Run == nil || j.End == nil || j.Run.Alloc == nil || j.Run.Start == 0 {
		return nil
	}
	from, slept := j.Run.SizedAt(), (j.Run.SleptMS(j.End.At)-j.Run.SizedSleepMS)/1000
	s := &price.Session{Start: from.Seconds(), Partition: j.Run.Partition, Has: j.Run.Priced(),
		Seconds: max(0, j.End.At.Seconds()-from.Seconds()-slept), Open: j.State == Resizing}
	j.Run.Earlier().price(s, j.Run.Licenses)
	return s
}

// Priced gives what a run holds, as prices count it.
func (x *Run) Priced() []price.Amount {
	cpus, mem, gres := x.Alloc.Totals()
	return priced(int64(cpus), mem, int64(len(x.Alloc.Nodes)), x.Billing(), gres, x.Licenses)
}

// priced lists amounts. A generic resource has the name of its type, if it has one.
func priced(cpus, mem, nodes, bill int64, gres []GresCount, held []LicenseCount) []price.Amount {
	out := make([]price.Amount, 0, 4+len(gres)+len(held))
	add := func(tres string, n int64) {
		if n > 0 {
			out = append(out, price.Amount{TRES: tres, Count: n})
		}
	}
	add("cpu", cpus)
	add("mem", mem)
	add("node", nodes)
	for _, g := range gres {
		add(GresTRES(g.Name, g.Type), g.Count)
	}
	add("billing", bill)
	for _, l := range held {
		add(LicenseTRES(l.Name), l.Count)
	}
	return out
}

// ShortForSummary reports whether an ended job ran for less than two samples, or for less than a minute without
// samples: too short for a summary.
func (r *Record) ShortForSummary() bool {
	every := int64(30)
	if r.Exit.Use != nil && len(r.Exit.Use.Nodes) > 0 && r.Exit.Use.Nodes[0].EveryS > 0 {
		every = int64(r.Exit.Use.Nodes[0].EveryS)
	}
	return r.ElapsedS() < 2*every
}

// Asked has a record's totals: what the job asks for, and its billing.
type Asked struct {
	Nodes  int32
	MemMiB int64 // 0: the share of its nodes or CPUs
	Bill   int64 // billing units of its request
	Billed int64 // billing units of its allocation; 0: it has not started

	Licenses []LicenseCount // that it asks for in any case
	Held     []LicenseCount // that it holds, or held

	GPUMemMiB int64 // memory that each GPU must have; 0: not given
}

func (x *Asked) Wire(c *wire.C) {
	wire.Int(c, &x.Nodes)
	wire.Int(c, &x.MemMiB)
	wire.Int(c, &x.Bill)
	wire.Int(c, &x.Billed)
	wire.List(c, &x.Licenses, MaxFew)
	wire.List(c, &x.Held, MaxFew)
	wire.Int(c, &x.GPUMemMiB)
}

// Audit is one entry of the audit trail: what happened to a job, node, account or another thing, by whom and when. It
// is shipped to gdbd as accounting records are, exactly once. The names of events are package trail's.
type Audit struct {
	At    Time
	Event string // its name, such as node_down
	What  string // the kind of thing: job, node, gpu, partition, account, reservation, config, cluster, trigger
	Name  string // of the thing: n1, 12, physics
	UID   uint32 // who did it; of no meaning if ByUser is not set
	By    string // the user's name, or gbatch
	Text  string // what was changed, or why
	Owner uint32 // of a job: its user
	Job   JobID  // 0: it is about no job

	ByUser bool   // a user did it
	State  string // of a node from now on: "" up, DOWN, DRAIN

	TRES       []TRESCount // what the cluster, the node or the reservation has from now on
	Nodes      string      // of a reservation, hostlist
	Start, End Time        // of a reservation
	Maint      bool        // of a reservation: its time counts as planned down
	Gone       bool        // the thing is no more

	Ledger  *price.Ledger  // not nil: what was done with an account's money
	Invoice *price.Invoice // not nil: it was made

	Noted *Noted // not nil: the record of the job, which has ended, is changed

	Renamed string // the name that the user whom Name names has from now on; "": it is about nothing of that kind
}

func (x *Audit) Wire(c *wire.C) {
	wire.Int(c, &x.At)
	wire.Text(c, &x.Event, MaxName)
	wire.Text(c, &x.What, MaxName)
	wire.Text(c, &x.Name, MaxText)
	wire.Int(c, &x.UID)
	wire.Text(c, &x.By, MaxName)
	wire.Text(c, &x.Text, MaxText)
	wire.Int(c, &x.Owner)
	wire.Int(c, &x.Job)
	wire.Bool(c, &x.ByUser)
	wire.Text(c, &x.State, MaxName)
	wire.List(c, &x.TRES, MaxFew)
	wire.Text(c, &x.Nodes, MaxText)
	wire.Int(c, &x.Start)
	wire.Int(c, &x.End)
	wire.Bool(c, &x.Maint)
	wire.Bool(c, &x.Gone)
	wire.Ptr(c, &x.Ledger)
	wire.Ptr(c, &x.Invoice)
	wire.Ptr(c, &x.Noted)
	wire.Text(c, &x.Renamed, MaxName)
}

// The members of an ended job's record that can be changed.
const (
	NotedComment  = "Comment"
	NotedAdmin    = "AdminComment"
	NotedSystem   = "SystemComment"
	NotedExtra    = "Extra"
	NotedExitCode = "DerivedExitCode" // code:signal
	NotedWCKey    = "WCKey"
	NotedWCKeyID  = "WCKeyID" // beside WCKey
)

// Noted is what a user or an operator changes of the record of a job that has ended, with gacctmgr modify job: that of
// (Audit.Job, Attempt, Size), submitted at Submit. It is part of an entry of the trail, and gdbd changes the record
// when it keeps the entry.
type Noted struct {
	Attempt uint32
	Size    uint32
	Submit  Time // a number means another job in another history of the cluster
	Set     []KV // keys as above
}

func (x *Noted) Wire(c *wire.C) {
	wire.Int(c, &x.Attempt)
	wire.Int(c, &x.Size)
	wire.Int(c, &x.Submit)
	wire.List(c, &x.Set, MaxFew)
}

// Note changes a record and remembers what was changed, so that a later version of the record that the controllers send
// has it too. A key that this version doesn't know is only remembered.
func (r *Record) Note(set []KV) {
	r.Noted = slices.Clone(r.Noted)
	for _, kv := range set {
		switch kv.Key {
		case NotedComment:
			r.Comment = kv.Value
		case NotedAdmin:
			r.AdminComment = kv.Value
		case NotedWCKey:
			r.WCKey = kv.Value
		case NotedWCKeyID:
			if n, err := strconv.ParseUint(kv.Value, 10, 32); err == nil {
				r.WCKeyID = uint32(n)
			}
		case NotedExitCode:
			if status, ok := StatusOf(kv.Value); ok {
				r.Exit.Worst = status
			}
		}
		i := slices.IndexFunc(r.Noted, func(old KV) bool { return old.Key == kv.Key })
		if i < 0 {
			r.Noted = append(r.Noted, kv)
		} else {
			r.Noted[i] = kv
		}
	}
}

// NotedAs gives what a member of the record was set to; false: it was not.
func (r *Record) NotedAs(key string) (string, bool) {
	for _, kv := range r.Noted {
		if kv.Key == key {
			return kv.Value, true
		}
	}
	return "", false
}

// Extra is the text that a user has given the record of an ended job; Slurm takes one at submission too.
func (r *Record) Extra() string {
	text, _ := r.NotedAs(NotedExtra)
	return text
}

// StatusOf reads code:signal as a wait status, in which a process that ended by itself has its code above the signal's
// bits. A number alone is the status, as in sacctmgr: 256 is 1:0.
func StatusOf(text string) (int32, bool) {
	code, signal, both := strings.Cut(text, ":")
	if !both {
		n, err := strconv.ParseUint(text, 10, 16)
		return int32(n) &^ 0x80, err == nil
	}
	c, err := strconv.ParseUint(code, 10, 8)
	if err != nil {
		return 0, false
	}
	s, err := strconv.ParseUint(signal, 10, 7)
	return int32(c)<<8 | int32(s), err == nil
}
