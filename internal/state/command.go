package state

import (
	"fmt"

	"gbatch/internal/model"
	"gbatch/internal/wire"
)

// Kind numbers a command in the log. Append only: an old log must decode forever.
type Kind uint8

// The kinds.
const (
	KindSubmit Kind = iota + 1
	KindStart
	KindReports
	KindStop
	KindEdit
	KindJoin
	KindLost
	KindNodeEdit
	KindConfig
	KindTrim
	KindTick
	KindAccounts
	KindReserve
	KindSuspend
	KindUnits
	KindNodeHealth
	KindMailed
	KindOnce
	KindNewEra
	KindCerts
	KindSubmitHet
	KindTokens
	KindDefine
	KindReboot
	KindAudits
	KindPower

	KindResize Kind = 27
	KindCredit Kind = 28
	KindIssue  Kind = 29

	KindResvTold Kind = 30
	KindCrontab  Kind = 31
	KindTriggers Kind = 32
)

// Command is one change to the facts. At is the leader's clock.
type Command struct {
	Kind Kind
	At   model.Time
	Body Body

	parts []Command // of a Once
	rules uint8     // that it was written under
	read  bool      // from a log; one that is made here, for a simulation, follows today's rules, and tells no trail
}

// Body is the content of a command: one of the structs below.
type Body interface {
	wire.Coder
	kind() Kind
}

// Submit adds a job. A repeated RequestID gives the same job again. Script and Env may come without Data if the leader
// has seen the same content in the state.
type Submit struct {
	RequestID string
	Spec      *model.Spec
	Script    model.Blob
	Env       model.Blob
	Priority  uint32
	Hold      model.HoldKind
	Most      int32 // bytes that Spec may have by rules of before (tooLong); 0: any number
}

func (x *Submit) Wire(c *wire.C) {
	wire.ID(c, &x.RequestID, model.MaxName)
	wire.Ptr(c, &x.Spec)
	wire.Struct(c, &x.Script)
	wire.Struct(c, &x.Env)
	wire.Int(c, &x.Priority)
	wire.Int(c, &x.Hold)
	wire.Int(c, &x.Most)
}

// Starts carries a scheduling plan.
type Starts struct {
	Epoch uint64
	Plan  model.Plan
}

func (x *Starts) Wire(c *wire.C) {
	wire.Int(c, &x.Epoch)
	wire.Struct(c, &x.Plan)
}

// ReportKind is the kind of a node's report about an attempt. The numbers are stored: append only.
type ReportKind uint8

// The kinds, equal to proto's.
const (
	Started ReportKind = iota + 1
	Ended
	LaunchFailed
	Ready         // the node has run its prolog: the job may begin there
	PrologFailed  // Text says how; the end follows
	Ending        // the script has ended, and the epilog runs
	EpilogFailed  // Text says how; the end follows
	Unkillable    // processes survive SIGKILL: Text says which
	ProgramPassed // the leader's own: PrologSlurmctld or EpilogSlurmctld has run
	ProgramFailed // the leader's own: it failed, Text says how
)

// StepEnded says that a step has ended, with Step; equal to proto's.
const StepEnded ReportKind = 64

// Report is one report of a node about an attempt.
type Report struct {
	Kind    ReportKind
	Job     model.JobID
	Attempt uint32
	At      model.Time
	Exit    model.Exit
	Text    string
	Node    string // the node that reports; "": the job's first node, or with Placed no node: the leader's own
	Step    *model.Step
	Since   uint32 // NodeAlloc.Since of the part that it is about
	Taken   bool   // with LaunchFailed: the node could not take it now; it counts against neither job nor node
}

func (x *Report) Wire(c *wire.C) {
	wire.Int(c, &x.Kind)
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Int(c, &x.At)
	wire.Struct(c, &x.Exit)
	wire.Text(c, &x.Text, model.MaxText)
	wire.Text(c, &x.Node, model.MaxName)
	wire.Ptr(c, &x.Step)
	wire.Int(c, &x.Since)
	wire.Bool(c, &x.Taken)
}

// Reports has reports of nodes. Repeated and outdated reports change nothing.
type Reports struct {
	Reports []Report

	// Placed: every report has its node, and counts only for what that node has of the job. Leaders of before named no
	// node for a job's first one, and asked less.
	Placed bool
}

func (x *Reports) Wire(c *wire.C) {
	wire.List(c, &x.Reports, model.MaxMany)
	wire.Bool(c, &x.Placed)
}

// Stop ends jobs: Event is EvCancel, EvRequeue, EvPreempt.
type Stop struct {
	Targets []model.JobRef
	Event   model.Event
	Hold    bool // with EvRequeue: hold the job too
	UID     uint32
	Why     string // a sentence, with EvCancel of running jobs; "" if UID says everything
	Special bool   // with EvRequeue and Hold: the job is shown as SPECIAL_EXIT

	Fate *model.Fate // with EvCancel: the job's command gives it back, and if it runs it ends with this Code
	Keep bool        // with EvCancel: a job that waits keeps its reason

	Limit model.Reason // with EvCancel: what runs has reached this limit, and ends like one whose time is over
}

func (x *Stop) Wire(c *wire.C) {
	wire.List(c, &x.Targets, model.MaxMany)
	wire.Int(c, &x.Event)
	wire.Bool(c, &x.Hold)
	wire.Int(c, &x.UID)
	wire.Text(c, &x.Why, model.MaxText)
	wire.Bool(c, &x.Special)
	wire.Ptr(c, &x.Fate)
	wire.Bool(c, &x.Keep)
	wire.Int(c, &x.Limit)
}

// Edit changes pending (and, as far as a field allows, running) jobs. It changes only the fields that Set names.
type Edit struct {
	Targets  []model.JobRef
	Set      []Field
	Spec     *model.Spec // the new specification of the first target's job, if a field changes the specification
	Hold     model.HoldKind
	Priority uint32
	Begin    model.Time
	LimitS   int64
	Throttle int32
	Deps     []model.Dep
	Comment  string
	Direct   bool  // with SetPriority: the priority stays, whatever the factors give
	Site     int32 // SiteFactor
	Most     int32 // bytes that Spec may have by rules of before (tooLong); 0: any number

	Undue bool // only jobs that wait for their next time; what somebody else has given one meanwhile stays
}

func (x *Edit) Wire(c *wire.C) {
	wire.List(c, &x.Targets, model.MaxMany)
	wire.Ints(c, &x.Set, model.MaxFew)
	wire.Ptr(c, &x.Spec)
	wire.Int(c, &x.Hold)
	wire.Int(c, &x.Priority)
	wire.Int(c, &x.Begin)
	wire.Int(c, &x.LimitS)
	wire.Int(c, &x.Throttle)
	wire.List(c, &x.Deps, model.MaxList)
	wire.Text(c, &x.Comment, model.MaxText)
	wire.Bool(c, &x.Direct)
	wire.Int(c, &x.Site)
	wire.Int(c, &x.Most)
	wire.Bool(c, &x.Undue)
}

// Field names what an Edit sets. The numbers are stored: append only.
type Field uint8

// The fields.
const (
	SetHold Field = iota + 1
	SetPriority
	SetBegin
	SetLimit
	SetThrottle
	SetDeps
	SetSpec
	SetAdminComment
	SetSite
	SetComment // of Spec, like the next four: also of a job that has begun
	SetName
	SetMail
	SetRequeue
	SetNice
	SetBegun // no field: SetPriority, SetSite and SetHold are for a job that has begun too
)

// Join says that a node's daemon has registered. Known lists the attempts that the daemon still knows: other attempts
// that had started there are lost.
type Join struct {
	Node    string
	BootID  string
	BootAt  model.Time
	UpSince model.Time
	Version string
	OS      string
	Arch    string
	Problem string // why it may not take jobs (less hardware than configured), or ""
	Known   []Report
	Gres    []model.GresDef // CPUs near the units of its resources, and the units' connections, as far as the node knows
	Uptime  int64           // when Known was looked up, ms since the boot; 0: the node did not say
}

func (x *Join) Wire(c *wire.C) {
	wire.Text(c, &x.Node, model.MaxName)
	wire.Text(c, &x.BootID, model.MaxName)
	wire.Int(c, &x.BootAt)
	wire.Int(c, &x.UpSince)
	wire.Text(c, &x.Version, model.MaxName)
	wire.Text(c, &x.OS, model.MaxName)
	wire.Text(c, &x.Arch, model.MaxName)
	wire.Text(c, &x.Problem, model.MaxText)
	wire.List(c, &x.Known, model.MaxMany)
	wire.List(c, &x.Gres, model.MaxFew)
	wire.Int(c, &x.Uptime)
}

// Lost says that nodes have been silent for too long.
type Lost struct {
	Nodes []string
}

func (x *Lost) Wire(c *wire.C) {
	wire.Texts(c, &x.Nodes, model.MaxList, model.MaxName)
}

// NodeHealth says what is wrong with a registered node; "" means that it is healthy again.
type NodeHealth struct {
	Node    string
	Problem string
}

func (x *NodeHealth) Wire(c *wire.C) {
	wire.Text(c, &x.Node, model.MaxName)
	wire.Text(c, &x.Problem, model.MaxText)
}

// NodeEdit is an operator's change of nodes.
type NodeEdit struct {
	Nodes  []string
	Admin  model.NodeAdmin
	Keep   bool // leave Admin as it is
	Reason string
	By     string

	Gres  string // if set: Admin (NodeDrain, NodeUp) and Reason are for these units of this resource, not for the node
	Units []int32

	Failing bool // with NodeDrain: the node is shown as failing
	Comment *Words
	Extra   *Words
	ResumeS int64 // with NodeDown and NodeDrain: the nodes resume after so many seconds; 0: they don't

	Loaded []string // with Gres=gpu: models that these units have loaded
	Gone   []string // and that they don't have any more
}

func (x *NodeEdit) Wire(c *wire.C) {
	wire.Texts(c, &x.Nodes, model.MaxList, model.MaxName)
	wire.Int(c, &x.Admin)
	wire.Bool(c, &x.Keep)
	wire.Text(c, &x.Reason, model.MaxText)
	wire.Text(c, &x.By, model.MaxName)
	wire.Text(c, &x.Gres, model.MaxText)
	wire.Ints(c, &x.Units, model.MaxList)
	wire.Bool(c, &x.Failing)
	wire.Ptr(c, &x.Comment)
	wire.Ptr(c, &x.Extra)
	wire.Int(c, &x.ResumeS)
	wire.Texts(c, &x.Loaded, model.MaxFew, model.MaxName)
	wire.Texts(c, &x.Gone, model.MaxFew, model.MaxName)
}

// Words is a text that may be set to nothing.
type Words struct{ Text string }

func (x *Words) Wire(c *wire.C) { wire.Text(c, &x.Text, model.MaxText) }

// Units is a node's complete report on units that jobs should not get.
type Units struct {
	Node  string
	Tells []model.UnitTell
	Held  []model.GPUHeld // GPU memory that processes outside of jobs hold
}

func (x *Units) Wire(c *wire.C) {
	wire.Text(c, &x.Node, model.MaxName)
	wire.List(c, &x.Tells, model.MaxFew)
	wire.List(c, &x.Held, model.MaxFew)
}

// SetConfig replaces the configuration.
type SetConfig struct {
	Config   *model.Config
	Instance uint64 // of a new cluster: random, never 0; ignored once the cluster has one
}

func (x *SetConfig) Wire(c *wire.C) {
	wire.Ptr(c, &x.Config)
	wire.Int(c, &x.Instance)
}

// Trim takes accounting records up to Seq out of the outbox: gdbd has them, or there is no accounting.
type Trim struct {
	Seq   uint64
	Acked bool   // gdbd has them: they are kept for a while, within the bounds below
	From  uint64 // the last record that gdbd had before these

	Keep, KeepBytes, KeepS int64 // model.ShipRules
}

func (x *Trim) Wire(c *wire.C) {
	wire.Int(c, &x.Seq)
	wire.Bool(c, &x.Acked)
	wire.Int(c, &x.From)
	wire.Int(c, &x.Keep)
	wire.Int(c, &x.KeepBytes)
	wire.Int(c, &x.KeepS)
}

// NewEra says that the facts are older than what nodes and gdbd have seen: a snapshot was restored. Numbers given since
// are not given again, and gdbd takes the records that follow as new ones.
type NewEra struct {
	Number  uint64      // of the era; if it is not above the last one, the next one is taken
	NextJob model.JobID // the next submission gets at least this number

	Restored bool       // no controller runs: the facts are changed before any of them reads them
	Found    []FoundRun // what gdbd has of jobs that have not ended by the facts, by job and attempt
}

func (x *NewEra) Wire(c *wire.C) {
	wire.Int(c, &x.Number)
	wire.Int(c, &x.NextJob)
	wire.Bool(c, &x.Restored)
	wire.List(c, &x.Found, model.MaxMany)
}

// FoundRun is an attempt of a job as gdbd has it.
type FoundRun struct {
	Job      model.JobID
	Attempt  uint32
	Restarts uint32
	State    model.JobState
	Reason   model.Reason
	Start    model.Time // 0: it has not begun
	End      model.Time // 0: it has not ended
	Exit     model.Exit
	UID      uint32 // who cancelled it

	// Array is that of a task which had no number of its own in the snapshot, as it waited in its array's record; else 0.
	Array model.JobID
	Task  int32

	Unbegun bool // as in its record
}

func (x *FoundRun) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Int(c, &x.Restarts)
	wire.Int(c, &x.State)
	wire.Int(c, &x.Reason)
	wire.Int(c, &x.Start)
	wire.Int(c, &x.End)
	wire.Struct(c, &x.Exit)
	wire.Int(c, &x.UID)
	wire.Int(c, &x.Array)
	wire.Int(c, &x.Task)
	wire.Bool(c, &x.Unbegun)
}

// Tick applies the effects of time: time limits, begin times, the age at which finished jobs are forgotten.
type Tick struct {
	Limit int32 // most jobs of each kind
}

func (x *Tick) Wire(c *wire.C) {
	wire.Int(c, &x.Limit)
}

func (*Submit) kind() Kind     { return KindSubmit }
func (*Starts) kind() Kind     { return KindStart }
func (*Reports) kind() Kind    { return KindReports }
func (*Stop) kind() Kind       { return KindStop }
func (*Edit) kind() Kind       { return KindEdit }
func (*Join) kind() Kind       { return KindJoin }
func (*NodeHealth) kind() Kind { return KindNodeHealth }
func (*Lost) kind() Kind       { return KindLost }
func (*NodeEdit) kind() Kind   { return KindNodeEdit }
func (*SetConfig) kind() Kind  { return KindConfig }
func (*Trim) kind() Kind       { return KindTrim }
func (*Tick) kind() Kind       { return KindTick }
func (*NewEra) kind() Kind     { return KindNewEra }
func (*Accounts) kind() Kind   { return KindAccounts }

func newBody(k Kind) Body {
	switch k {
	case KindSubmit:
		return new(Submit)
	case KindStart:
		return new(Starts)
	case KindReports:
		return new(Reports)
	case KindStop:
		return new(Stop)
	case KindEdit:
		return new(Edit)
	case KindJoin:
		return new(Join)
	case KindLost:
		return new(Lost)
	case KindNodeEdit:
		return new(NodeEdit)
	case KindConfig:
		return new(SetConfig)
	case KindTrim:
		return new(Trim)
	case KindTick:
		return new(Tick)
	case KindAccounts:
		return new(Accounts)
	case KindReserve:
		return new(Reserve)
	case KindSuspend:
		return new(Suspend)
	case KindUnits:
		return new(Units)
	case KindNodeHealth:
		return new(NodeHealth)
	case KindMailed:
		return new(Mailed)
	case KindOnce:
		return new(Once)
	case KindNewEra:
		return new(NewEra)
	case KindCerts:
		return new(Certs)
	case KindSubmitHet:
		return new(SubmitHet)
	case KindTokens:
		return new(Tokens)
	case KindDefine:
		return new(Define)
	case KindReboot:
		return new(Reboots)
	case KindAudits:
		return new(Audits)
	case KindPower:
		return new(Powers)
	case KindResize:
		return new(Resize)
	case KindCredit:
		return new(Credit)
	case KindIssue:
		return new(Issue)
	case KindResvTold:
		return new(ResvTold)
	case KindCrontab:
		return new(Crontab)
	case KindTriggers:
		return new(Triggers)
	}
	return nil
}

// Rules that a command was written under, by number; a command without one is of before. Append only.
const (
	rulesPlain uint8 = iota + 1 // texts are plain: wire.Keep
	rulesTold                   // what happens goes into the audit trail
	rulesLast                   // a job ends with its last part, a name is free with its last job, sizes are counted,
	// a notice is a limit that counts without OverTimeLimit, a job shows the exit code of the run from which it was put
	// back, components of heterogeneous jobs come back together, nodes that are being powered up don't join jobs that run

	// rulesBrief: what others say is cut; a configuration forgets the usage of accounts that it drops; the trail and the
	// ends of steps push out no ends of jobs; EpilogSlurmctld runs also for a job that has lost the node of its script;
	// epilogs are no use of the job's; a reservation's end is that of its jobs; the end of a script whose node was given
	// up is taken when it comes late; nobody waits for a node that can't come up; mail says BEGIN when the script begins;
	// single tasks wait for their counterparts; commands don't wait for held jobs; heterogeneous jobs come back as a
	// whole; --no-kill is for suspended jobs too.
	rulesBrief

	// rulesWeighed: what is kept is weighed, not measured by what a version makes of it (weight), and only the leader
	// refuses descriptions that are too long; a run has one minimum price, however often its size changes, and one of
	// which nothing was launched costs nothing, and used nothing; the record of a job has its end when its script has
	// ended, not when its epilogs have; MaxTRESMins ends jobs in OverTimeLimit too; nodes are told whether one that a job
	// goes on without has failed; accounting has the time from which a waiting job could start; who may not see whose job
	// preempted theirs is not told its number.
	rulesWeighed

	// rulesOwed: what a run owes whose end is known late, and of which nobody knew that it had begun, counts for fair
	// share and budgets as its record says, whether its node was silent or the controllers went on from a snapshot; one
	// that ended sooner after its beginning than the cluster's time was bent since has ended when it began. What users
	// have set by way of a host ends, or waits for them, when that host's certificate is revoked. A job that a user or
	// its exit code has put back waits for requeue_delay, and can be given another time while it ends.
	rulesOwed

	rulesNow = rulesOwed
)

// Encode gives the command's bytes in the log: kind, time, body, rules. It refuses what Decode would: every replica
// applies what is in the log, and none can pass over an entry that it can't read. The limits of texts and lists hold
// both ways (package wire); what else Decode asks for is in validBody.
func Encode(at model.Time, b Body) ([]byte, error) {
	err := validBody(b)
	if err != nil {
		return nil, fmt.Errorf("encode command kind %d: %w", b.kind(), err)
	}
	return encode(at, b)
}

func encode(at model.Time, b Body) ([]byte, error) {
	kind := b.kind()
	rules := rulesNow
	data, err := wire.Values(func(c *wire.C) {
		wire.Int(c, &kind)
		wire.Int(c, &at)
		wire.Struct(c, b)
		wire.Int(c, &rules)
	})
	if err != nil {
		return nil, fmt.Errorf("encode command kind %d: %w", kind, err)
	}
	return data, nil
}

// read reads a command, with care for its texts.
func read(data []byte, care wire.Care) (cmd Command, rules uint8, replaced bool, err error) {
	replaced, err = wire.ReadValuesWith(data, care, func(c *wire.C) {
		wire.Int(c, &cmd.Kind)
		wire.Int(c, &cmd.At)
		if cmd.Body = newBody(cmd.Kind); cmd.Body == nil {
			return
		}
		wire.Struct(c, cmd.Body)
		if c.More() {
			wire.Int(c, &rules)
		}
	})
	return cmd, rules, replaced, err
}

// Decode reads what Encode wrote. It refuses commands that Apply can't handle: missing parts, task sets out of order.
func Decode(data []byte) (Command, error) {
	care := wire.Keep
	if len(data) > 0 && Kind(data[0]) == KindConfig { // it is of the administrators' files, with paths in it
		care = wire.AsIs
	}
	cmd, rules, replaced, err := read(data, care)
	if err == nil && replaced && rules < rulesPlain {
		cmd, rules, _, err = read(data, wire.AsIs)
	}
	cmd.rules, cmd.read = rules, true
	if err == nil && rules > rulesNow {
		return Command{}, fmt.Errorf("command kind %d follows rules %d, which are unknown to this version: the log was "+
			"written by a newer gbatch", cmd.Kind, rules)
	}
	if err != nil {
		return Command{}, fmt.Errorf("decode command kind %d: %w", cmd.Kind, err)
	}
	if cmd.Body == nil {
		return Command{}, fmt.Errorf("command kind %d is unknown to this version: the log was written by a newer gbatch",
			cmd.Kind)
	}
	err = validBody(cmd.Body)
	if once, ok := cmd.Body.(*Once); ok && err == nil {
		cmd.parts, err = once.parts()
	}
	if err != nil {
		return Command{}, fmt.Errorf("command kind %d: %w", cmd.Kind, err)
	}
	return cmd, nil
}
