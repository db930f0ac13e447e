package noded

import (
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/wire"
)

// memory.go has the meaning of the spool's records: only fold knows it.

// recordKind says what a record is. The numbers are on disk: append only.
type recordKind byte

const (
	recOpened   recordKind = iota + 1 // opened: gnoded started
	recEpoch                          // leaderEpoch: a leader with a greater epoch, or another instance, was accepted
	recLaunch                         // launched: an attempt was taken on
	recReport                         // proto.Report: to be sent until it is acknowledged
	recAcked                          // ackedSeqs: the leader has these reports
	recDrop                           // proto.Attempt: forgotten with its reports
	recOrdered                        // orderedTo: gshim may have the order
	recSampled                        // sampledUse: what samples have found of an attempt so far
	recStage                          // staged: its prolog or epilog has come this far
	recFinal                          // finalRec: its last report, once the epilog has run
	recStep                           // placedStep: a step has got its part of its job
	recStepOver                       // stepOver: it has ended, and its report is written
	recWarned                         // warnedOf: it was sent the signal that it gets once
	recLate                           // lateFor: it is given up, since its script does not start
	recResized                        // proto.Resize: its job has other nodes
)

// opened begins every run of gnoded. Its incarnation makes report numbers grow over restarts.
type opened struct {
	Incarnation uint32
	BootID      string
	Node        string
}

func (x *opened) Wire(c *wire.C) {
	wire.Int(c, &x.Incarnation)
	wire.Text(c, &x.BootID, model.MaxName)
	wire.Text(c, &x.Node, model.MaxName)
}

type leaderEpoch struct {
	Epoch    uint64
	Instance uint64
}

func (x *leaderEpoch) Wire(c *wire.C) {
	wire.Int(c, &x.Epoch)
	wire.Int(c, &x.Instance)
}

// launched is the data of an attempt that is needed to end it properly after a restart.
type launched struct {
	Job     model.JobID
	Attempt uint32
	UID     uint32
	GID     uint32
	Groups  []uint32
	StdErr  string     // absolute; where messages for the user go
	At      model.Time // when it was taken on
	Started model.Time // when its script started; 0 until that is reported
	Ordered bool       // gshim has, or may have, its order: everything prepared is complete and in use
	Script  string     // name of its script file, once ordered

	Use      *model.NodeUsage // its resources here, and the samples' results
	MemOpt   string           // the option that it asked for its memory with: --mem, --mem-per-cpu, --mem-per-gpu
	MemUnits int32            // number of CPUs or GPUs here that count for it; 1 for --mem

	Facts *facts // data for prolog and epilog; nil if none is configured
	Stage uint8  // see staged
	List  []string
	Index int32
	Fault string
	Final *proto.Report // its last report, while the epilog runs

	// Order is the order without script and environment, for the job's steps.
	Order *proto.Launch

	Warned bool // it was sent the signal that it asked for before its time limit
	Late   bool // its script did not start in time, and it is or will be killed for that

	Steps     *model.Usage // usage of its ended steps; on all nodes if this node manages them
	OwnPeakKB int64        // see ownUse
	OwnRSSKB  int64

	Since uint32 // NodeAlloc.Since of this node

	GPUOOM string // its last step that failed had too little GPU memory, and why that is known; "": it did not
	Worst  int32  // the highest status of its ended steps, as far as this node manages them
}

func (x *launched) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Int(c, &x.UID)
	wire.Int(c, &x.GID)
	wire.Ints(c, &x.Groups, model.MaxList)
	wire.Text(c, &x.StdErr, model.MaxText)
	wire.Int(c, &x.At)
	wire.Int(c, &x.Started)
	wire.Bool(c, &x.Ordered)
	wire.Text(c, &x.Script, model.MaxName)
	wire.Ptr(c, &x.Use)
	wire.Text(c, &x.MemOpt, model.MaxName)
	wire.Int(c, &x.MemUnits)
	wire.Ptr(c, &x.Facts)
	wire.Int(c, &x.Stage)
	wire.Texts(c, &x.List, model.MaxList, model.MaxText)
	wire.Int(c, &x.Index)
	wire.Text(c, &x.Fault, model.MaxText)
	wire.Ptr(c, &x.Final)
	wire.Ptr(c, &x.Order)
	wire.Bool(c, &x.Warned)
	wire.Bool(c, &x.Late)
	wire.Ptr(c, &x.Steps)
	wire.Int(c, &x.OwnPeakKB)
	wire.Int(c, &x.OwnRSSKB)
	wire.Int(c, &x.Since)
	wire.Text(c, &x.GPUOOM, model.MaxText)
	wire.Int(c, &x.Worst)
}

// sampledUse is what samples have found so far.
type sampledUse struct {
	Job     model.JobID
	Attempt uint32
	Use     *model.NodeUsage

	OwnPeakKB int64 // see ownUse
	OwnRSSKB  int64
}

func (x *sampledUse) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Ptr(c, &x.Use)
	wire.Int(c, &x.OwnPeakKB)
	wire.Int(c, &x.OwnRSSKB)
}

// orderedTo is written before an order goes out. A gnoded that finds it must not make the attempt's script and group
// anew: gshim may be forking into them.
type orderedTo struct {
	Job     model.JobID
	Attempt uint32
	Script  string
}

func (x *orderedTo) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Text(c, &x.Script, model.MaxName)
}

// placedStep is a step that has its part of its job.
type placedStep struct {
	Job       model.JobID
	Attempt   uint32
	ID        int32
	RequestID string
	Name      string
	Submit    string
	At        model.Time
	LimitS    int64
	Nodes     []proto.StepNode
	Shared    bool   // other steps may hold its resources too
	Manager   string // the node that manages it, if this node only has a part
	Terminal  bool   // a user is at task 0's terminal
	Host      string // host of its command; "": not known
	PID       int32  // of its command
	OOMKill   bool   // it ends as a whole when a process of it is killed for lack of memory
	Container string // what it runs in, as users see it; "": in none
	Ports     string // that it holds on its nodes (--resv-ports); "": none
	NoKill    bool   // it goes on without the tasks of nodes that are lost

	Frozen   int64      // ms that its job was suspended while its time limit counted
	FrozenAt model.Time // when its job was suspended; 0: it is not
	Waits    bool       // its relays end by themselves; those that an earlier gnoded started don't always
}

func (x *placedStep) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Int(c, &x.ID)
	wire.Text(c, &x.RequestID, model.MaxName)
	wire.Text(c, &x.Name, model.MaxName)
	wire.Text(c, &x.Submit, model.MaxText)
	wire.Int(c, &x.At)
	wire.Int(c, &x.LimitS)
	wire.List(c, &x.Nodes, model.MaxList)
	wire.Bool(c, &x.Shared)
	wire.Text(c, &x.Manager, model.MaxName)
	wire.Bool(c, &x.Terminal)
	wire.Text(c, &x.Host, model.MaxName)
	wire.Int(c, &x.PID)
	wire.Bool(c, &x.OOMKill)
	wire.Text(c, &x.Container, model.MaxText)
	wire.Text(c, &x.Ports, model.MaxText)
	wire.Bool(c, &x.NoKill)
	wire.Int(c, &x.Frozen)
	wire.Int(c, &x.FrozenAt)
	wire.Bool(c, &x.Waits)
}

// stepOver ends a step. Its number is not used again.
type stepOver struct {
	Job     model.JobID
	Attempt uint32
	ID      int32
	Use     *model.Usage // nil where nothing of it ran
	Failed  bool
	GPUOOM  string // with Failed: see launched
	Status  int32  // with Failed: Exit.Status
}

func (x *stepOver) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Int(c, &x.ID)
	wire.Ptr(c, &x.Use)
	wire.Bool(c, &x.Failed)
	wire.Text(c, &x.GPUOOM, model.MaxText)
	wire.Int(c, &x.Status)
}

// warnedOf records, before it is sent, a signal that is sent only once.
type warnedOf struct {
	Job     model.JobID
	Attempt uint32
}

func (x *warnedOf) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
}

// lateFor records, before the kill, a launch that is given up: its end then counts as a failed launch, not as the job's
// end.
type lateFor struct {
	Job     model.JobID
	Attempt uint32
}

func (x *lateFor) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
}

type ackedSeqs struct {
	Seqs []uint64
}

func (x *ackedSeqs) Wire(c *wire.C) {
	wire.Ints(c, &x.Seqs, model.MaxMany)
}

// prepared reports whether nothing is left to do for the attempt but to wait: its script runs on another node, and
// this one has run its prolog or has none.
func (l *launched) prepared() bool {
	return l.Order != nil && l.Order.Node > 0 &&
		(l.Facts == nil || stage(l.Stage) == stageProlog && int(l.Index) >= len(l.List) && l.Fault == "")
}

func (l *launched) key() proto.Attempt { return proto.Attempt{Job: l.Job, Attempt: l.Attempt} }

func reportKey(r *proto.Report) proto.Attempt { return proto.Attempt{Job: r.Job, Attempt: r.Attempt} }

// final reports whether nothing more can be reported of the attempt.
func final(r *proto.Report) bool {
	return r.Kind == proto.ReportEnded || r.Kind == proto.ReportLaunchFailed
}

// memory is the content of the journal once all of it has been read.
type memory struct {
	opened   opened
	epoch    leaderEpoch
	attempts map[proto.Attempt]*kept
	reports  map[uint64]*proto.Report // by Seq, not acknowledged
}

// kept is the journal's data of one attempt. launched is nil for an attempt that was refused and only has to be
// reported.
type kept struct {
	launched *launched
	reports  []*proto.Report // the same as in memory.reports
	steps    map[int32]*placedStep
	nextStep int32 // number of its next step
	shell    bool  // it has or had its interactive step
}

// numbered notes that a step has or had a number.
func (k *kept) numbered(step int32) {
	switch {
	case step == proto.StepInteractive:
		k.shell = true
	case !proto.IsAside(step):
		k.nextStep = max(k.nextStep, step+1)
	}
}

func newMemory() memory {
	return memory{attempts: map[proto.Attempt]*kept{}, reports: map[uint64]*proto.Report{}}
}

func (m *memory) at(key proto.Attempt) *kept {
	k, ok := m.attempts[key]
	if !ok {
		k = &kept{}
		m.attempts[key] = k
	}
	return k
}

// relaunch replaces what the memory has of an attempt's order, if it has one: workers may still read the old one.
func (m *memory) relaunch(key proto.Attempt, change func(*launched)) {
	if k := m.attempts[key]; k != nil && k.launched != nil {
		anew := *k.launched
		change(&anew)
		k.launched = &anew
	}
}

// fold applies a record to the memory.
func (m *memory) fold(kind recordKind, rec wire.Coder) {
	switch r := rec.(type) {
	case *opened:
		m.opened = *r
	case *leaderEpoch:
		m.epoch = *r
	case *launched:
		m.at(r.key()).launched = r
	case *proto.Report:
		k := m.at(reportKey(r))
		k.reports = append(k.reports, r)
		m.reports[r.Seq] = r
		if r.Kind == proto.ReportStarted {
			m.relaunch(reportKey(r), func(l *launched) { l.Started = r.At })
		}
	case *ackedSeqs:
		for _, seq := range r.Seqs {
			if old, ok := m.reports[seq]; ok {
				m.acked(old)
			}
		}
	case *orderedTo:
		m.relaunch(proto.Attempt{Job: r.Job, Attempt: r.Attempt}, func(l *launched) {
			l.Ordered, l.Script = true, r.Script
		})
	case *sampledUse:
		m.relaunch(proto.Attempt{Job: r.Job, Attempt: r.Attempt}, func(l *launched) {
			l.Use, l.OwnPeakKB, l.OwnRSSKB = r.Use, r.OwnPeakKB, r.OwnRSSKB
		})
	case *staged:
		m.relaunch(proto.Attempt{Job: r.Job, Attempt: r.Attempt}, func(l *launched) {
			l.Stage, l.List, l.Index, l.Fault = r.Stage, r.List, r.Index, r.Fault
		})
	case *warnedOf:
		m.relaunch(proto.Attempt{Job: r.Job, Attempt: r.Attempt}, func(l *launched) { l.Warned = true })
	case *lateFor:
		m.relaunch(proto.Attempt{Job: r.Job, Attempt: r.Attempt}, func(l *launched) { l.Late = true })
	case *proto.Resize:
		m.relaunch(proto.Attempt{Job: r.Job, Attempt: r.Attempt}, func(l *launched) { l.Order = resized(l.Order, r) })
	case *finalRec:
		m.relaunch(reportKey(r.Report), func(l *launched) { l.Final = r.Report })
	case *placedStep:
		k := m.at(proto.Attempt{Job: r.Job, Attempt: r.Attempt})
		if k.steps == nil {
			k.steps = map[int32]*placedStep{}
		}
		k.steps[r.ID] = r
		k.numbered(r.ID)
	case *stepOver:
		key := proto.Attempt{Job: r.Job, Attempt: r.Attempt}
		k := m.at(key)
		delete(k.steps, r.ID)
		k.numbered(r.ID)
		if r.Use != nil || r.Failed {
			m.relaunch(key, func(l *launched) { l.addStep(r) })
		}
	case *proto.Attempt:
		m.drop(*r)
	}
}

// addStep counts a step that has ended.
func (x *launched) addStep(r *stepOver) {
	if r.Use != nil {
		all := &model.Usage{}
		all.Add(x.Steps)
		all.Add(r.Use)
		x.Steps = all
	}
	if r.Failed {
		x.GPUOOM, x.Worst = r.GPUOOM, max(x.Worst, r.Status)
	}
}

// acked forgets a report, and its attempt if that is over.
func (m *memory) acked(r *proto.Report) {
	key := reportKey(r)
	if final(r) {
		m.drop(key)
		return
	}
	delete(m.reports, r.Seq)
	k := m.at(key)
	k.reports = slices.DeleteFunc(k.reports, func(o *proto.Report) bool { return o.Seq == r.Seq })
	if k.launched == nil && len(k.reports) == 0 {
		delete(m.attempts, key)
	}
}

func (m *memory) drop(key proto.Attempt) {
	k, ok := m.attempts[key]
	if !ok {
		return
	}
	for _, r := range k.reports {
		delete(m.reports, r.Seq)
	}
	delete(m.attempts, key)
}

// newRecord makes an empty record of a kind, nil for one that this version doesn't know.
func newRecord(kind recordKind) wire.Coder {
	switch kind {
	case recOpened:
		return new(opened)
	case recEpoch:
		return new(leaderEpoch)
	case recLaunch:
		return new(launched)
	case recReport:
		return new(proto.Report)
	case recAcked:
		return new(ackedSeqs)
	case recDrop:
		return new(proto.Attempt)
	case recOrdered:
		return new(orderedTo)
	case recSampled:
		return new(sampledUse)
	case recStage:
		return new(staged)
	case recFinal:
		return &finalRec{Report: new(proto.Report)}
	case recStep:
		return new(placedStep)
	case recStepOver:
		return new(stepOver)
	case recWarned:
		return new(warnedOf)
	case recLate:
		return new(lateFor)
	case recResized:
		return new(proto.Resize)
	}
	return nil
}
