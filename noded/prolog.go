package noded

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gbatch/internal/hostlist"
	"gbatch/internal/jobenv"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/wire"
	"gbatch/noded/pool"
)

// prolog.go runs the programs of Prolog and Epilog: as root, one after the other, before the first and after the last
// process of a job on this node. They run outside of the job's control group (package sitegroup), and what they leave
// running as the job's user joins the job, or ends with the epilog. With PrologFlags=RunInJob they run within it, and
// all that they leave running does.
//
// gshim starts them like any other process, so that killing gnoded touches none and loses no exit status. The spool has
// an attempt's present program before its order goes out, and the next program begins only when the spool has the end
// of this one: no program is left out, run twice, or run at the same time as another of its job. The programs' data of
// the job (facts) is in the spool too, since an epilog may have to run when the leader can't be asked.
//
// If neither is configured an attempt has no facts, and this file costs nothing.

const (
	// stepProlog and stepEpilog are the step numbers of the first program of each list under which gshim knows them. They
	// count down.
	stepProlog = -1000
	stepEpilog = -2000
	// maxPrograms is how many programs the patterns of one list may name.
	maxPrograms = 64
	// maxProgramLog is how much of a program's output the log gets, bytes.
	maxProgramLog = 16 << 10
	// maxProgramFile is how long its output may grow on disk while it runs, bytes; what is over is cut off.
	maxProgramFile = 1 << 20
	// programPace is how often a running program's output is looked at.
	programPace = 10 * time.Second
	// programPath is the PATH of every program: fixed, whoever started gnoded.
	programPath = "/usr/sbin:/usr/bin:/sbin:/bin"
)

// stage is an attempt's progress through its programs. The numbers are on disk.
type stage uint8

const (
	stageNone stage = iota
	stageProlog
	stageEpilog
)

func (s stage) String() string {
	if s == stageEpilog {
		return "epilog"
	}
	return "prolog"
}

// facts are the data for an attempt's programs, from the configuration and the job at its launch.
type facts struct {
	Env            []string
	Prolog         []string // patterns
	Epilog         []string
	PrologTimeoutS int64
	EpilogTimeoutS int64
	InJob          bool // they run in the job's control group
}

func (x *facts) Wire(c *wire.C) {
	wire.Texts(c, &x.Env, model.MaxList, model.MaxText)
	wire.Texts(c, &x.Prolog, model.MaxList, model.MaxText)
	wire.Texts(c, &x.Epilog, model.MaxList, model.MaxText)
	wire.Int(c, &x.PrologTimeoutS)
	wire.Int(c, &x.EpilogTimeoutS)
	wire.Bool(c, &x.InJob)
}

// staged says which program an attempt has reached.
type staged struct {
	Job     model.JobID
	Attempt uint32
	Stage   uint8
	List    []string // the programs
	Index   int32    // the one that runs or is about to; len(List): all have ended
	Fault   string   // of the first that failed
}

func (x *staged) Wire(c *wire.C) {
	wire.Int(c, &x.Job)
	wire.Int(c, &x.Attempt)
	wire.Int(c, &x.Stage)
	wire.Texts(c, &x.List, model.MaxList, model.MaxText)
	wire.Int(c, &x.Index)
	wire.Text(c, &x.Fault, model.MaxText)
}

// finalRec keeps an attempt's last report until its epilog has run.
type finalRec struct {
	Report *proto.Report
}

func (x *finalRec) Wire(c *wire.C) {
	wire.Ptr(c, &x.Report)
}

// msgPrograms is a worker's: what the patterns name.
type msgPrograms struct {
	key  proto.Attempt
	list []string
}

// msgProgramLate says that a program has reached its time limit, or that its output has to be looked at.
type msgProgramLate struct {
	key  proto.Attempt
	step int32
}

// factsOf gives what an attempt's programs need, nil where none is configured.
func (n *Noded) factsOf(l *proto.Launch) *facts {
	r := n.rules.Load()
	if r == nil || len(r.Prolog) == 0 && len(r.Epilog) == 0 {
		return nil
	}
	return &facts{Env: n.programEnv(l), Prolog: r.Prolog, Epilog: r.Epilog, PrologTimeoutS: r.PrologTimeoutS,
		EpilogTimeoutS: r.EpilogTimeoutS, InJob: r.InJob}
}

// programEnv gives the variables of a prolog or an epilog, as in Slurm.
func (n *Noded) programEnv(l *proto.Launch) []string {
	s := l.Spec
	v := make(jobenv.Vars, 0, 32)
	v.Set("PATH", programPath)
	jobenv.Site(&v, &model.Job{ID: l.Job, ArrayID: l.ArrayID, Task: l.Task, Spec: s, Restarts: l.Restarts, Het: l.Het,
		Run: &model.Run{Alloc: l.Alloc, Partition: l.Part, Resv: l.Resv, Start: l.Start}}, l.Array)
	v.Num("SLURM_UID", int64(s.UID))
	v.Set("SLURM_NODELIST", hostlist.CompressInOrder(l.Alloc.NodeNames()))
	v.Num("SLURM_NODEID", int64(l.Node))
	if l.LimitS < model.Unlimited {
		v.Num("SLURM_JOB_END_TIME", l.Start.Add(l.LimitS).Seconds())
	}
	if gpus, _ := n.env.Units.GPUsOf(l.Alloc.Nodes[l.Node].Gres); !gpus.Empty() {
		list := jobenv.CommaList(gpus)
		v.Set("SLURM_JOB_GPUS", list)
		v.Set("CUDA_VISIBLE_DEVICES", list)
		v.Set("GPU_DEVICE_ORDINAL", list)
		v.Set("ROCR_VISIBLE_DEVICES", list)
	}
	jobenv.Shares(&v, s.UID, &l.Alloc.Nodes[l.Node])
	if w := n.def.Load(); w != nil {
		v.Set("SLURM_CLUSTER_NAME", w.cluster)
	}
	v.Set("SLURMD_NODENAME", n.opts.Name)
	v.Given("SLURM_CONF", n.opts.ConfigPath)
	return v
}

// hasEpilog reports whether an epilog has to run before the attempt's end is reported.
func (a *attempt) hasEpilog() bool {
	f := a.facts()
	return f != nil && len(f.Epilog) > 0 && (a.rec.Ordered || stage(a.rec.Stage) != stageNone)
}

func (a *attempt) facts() *facts {
	if a.rec == nil {
		return nil
	}
	return a.rec.Facts
}

// keep adds a record about an attempt and updates the attempt's own record.
func (l *loop) keep(a *attempt, kind recordKind, rec wire.Coder, durable bool) error {
	if err := l.spool.add(kind, rec, durable); err != nil {
		return err
	}
	if k := l.spool.mem.attempts[a.key]; k != nil && k.launched != nil {
		a.rec = k.launched
	}
	return nil
}

// expand finds the programs that patterns name, in order. A path without wildcards means that file, whether it exists
// or not.
func expand(patterns []string) []string {
	var out []string
	for _, p := range patterns {
		list, err := filepath.Glob(p)
		if err != nil || len(list) == 0 && !strings.ContainsAny(p, "*?[") {
			list = []string{p}
		}
		slices.Sort(list)
		out = append(out, list...)
	}
	if len(out) > maxPrograms {
		out = out[:maxPrograms]
	}
	return out
}

// prologBegins runs the prolog, or continues one that an earlier gnoded has begun.
func (l *loop) prologBegins(a *attempt) error {
	if stage(a.rec.Stage) == stageProlog {
		return l.nextProgram(a)
	}
	if len(a.rec.Facts.Prolog) == 0 {
		return l.onPrograms(msgPrograms{key: a.key})
	}
	l.find(a, a.rec.Facts.Prolog)
	return nil
}

// epilogBegins keeps the attempt's last report and runs the epilog.
func (l *loop) epilogBegins(a *attempt, last *proto.Report) error {
	a.launch, a.order = nil, nil
	last.Job, last.Attempt = a.key.Job, a.key.Attempt
	if last.At == 0 {
		last.At = l.stamp()
	}
	clipReport(last)
	err := l.keep(a, recFinal, &finalRec{Report: last}, true)
	if tooLarge(err) {
		bareReport(last)
		err = l.keep(a, recFinal, &finalRec{Report: last}, true)
	}
	if err != nil {
		return err
	}
	if a.will == wanted && a.origin != beforeBoot && a.rec.Ordered && last.Kind == proto.ReportEnded {
		if err := l.report(&proto.Report{Kind: proto.ReportEnding, Job: a.key.Job, Attempt: a.key.Attempt, At: last.At,
			Exit: last.Exit}); err != nil {
			return err
		}
	}
	l.then(func() { l.n.link.ack(shimKey(a.key)) })
	l.find(a, a.rec.Facts.Epilog)
	return nil
}

// find makes a worker look for programs, because the directory may be on a file server.
func (l *loop) find(a *attempt, patterns []string) {
	key := a.key
	if a.phase != curbed {
		l.setDeadline(a, findWait)
	}
	l.soon(func() {
		l.n.stops.Do(func(context.Context) {
			defer pool.Or(func(error) { l.n.inbox.post(msgPrograms{key, patterns}) })
			l.n.inbox.post(msgPrograms{key, expand(patterns)})
		})
	})
}

// onPrograms begins a list of programs.
func (l *loop) onPrograms(m msgPrograms) error {
	a := l.attempts[m.key]
	if a == nil {
		return nil
	}
	st := staged{Job: a.key.Job, Attempt: a.key.Attempt, List: m.list}
	switch {
	case a.phase == prologue && stage(a.rec.Stage) == stageNone:
		st.Stage = uint8(stageProlog)
	case a.phase == curbed: // it is to end, and none has begun
		return l.goOn(a)
	case a.phase == epilogue && stage(a.rec.Stage) != stageEpilog:
		st.Stage = uint8(stageEpilog)
	default:
		return nil
	}
	l.setDeadline(a, 0)
	if err := l.keep(a, recStage, &st, false); err != nil {
		return err
	}
	return l.nextProgram(a)
}

// nextProgram orders the attempt's next program, or continues after the last.
func (l *loop) nextProgram(a *attempt) error {
	r := a.rec
	if int(r.Index) >= len(r.List) {
		return l.programsEnded(a)
	}
	if rules := l.n.rules.Load(); rules != nil && rules.Serial && l.serial != (proto.Attempt{}) && l.serial != a.key {
		l.queue = append(l.queue, a.key)
		return nil
	}
	l.serial = a.key
	l.then(func() { l.n.link.launch(l.n.programOrder(a.key, r)) })
	return nil
}

// programsEnded continues after the last program of a list.
func (l *loop) programsEnded(a *attempt) error {
	switch {
	case a.phase == epilogue:
		return l.happens(a, evRun, news{})
	case a.rec.Fault != "":
		return l.happens(a, evFault, news{text: a.rec.Fault})
	}
	return l.goOn(a)
}

// prologFailed reports that a prolog failed; nothing of the job runs here.
func (l *loop) prologFailed(a *attempt, why string) error {
	if a.will == wanted && a.stop == nil {
		if err := l.report(&proto.Report{Kind: proto.ReportPrologFailed, Job: a.key.Job, Attempt: a.key.Attempt,
			Text: why}); err != nil {
			return err
		}
	}
	a.order = nil
	l.clear(a)
	return nil
}

// epilogEnded reports the attempt's end, and before that an epilog that failed or could not be waited for.
func (l *loop) epilogEnded(a *attempt) error {
	fault := ""
	switch r := a.rec; {
	case stage(r.Stage) != stageEpilog:
		fault = fmt.Sprintf("the programs of Epilog (%s) could not be listed within %v",
			strings.Join(r.Facts.Epilog, ", "), findWait)
	case r.Fault != "":
		fault = r.Fault
	case int(r.Index) < len(r.List):
		fault = fmt.Sprintf("%s survives SIGKILL; it is not waited for", r.List[r.Index])
	}
	if fault != "" && a.will == wanted {
		if err := l.report(&proto.Report{Kind: proto.ReportEpilogFailed, Job: a.key.Job, Attempt: a.key.Attempt,
			Text: fault}); err != nil {
			return err
		}
	}
	key, r := a.key, a.rec
	l.soon(func() {
		l.n.workers.Do(func(ctx context.Context) {
			if err := l.n.endPrograms(ctx, key, r, stageEpilog); err != nil {
				l.log.Warn("what an epilog has left running could not be ended", "job", key.Job, "err", err)
			}
		})
	})
	last := *a.rec.Final
	return l.finish(a, &last)
}

// resumePrograms continues the programs that gshim doesn't list, after a start of gnoded or a new connection to gshim.
func (l *loop) resumePrograms(a *attempt) error {
	switch {
	case a.phase == epilogue && stage(a.rec.Stage) != stageEpilog:
		l.find(a, a.rec.Facts.Epilog)
		return nil
	case a.phase == curbed: // it is to end, and nothing runs
		return l.goOn(a)
	case a.phase == prologue && stage(a.rec.Stage) == stageNone:
		return nil // they are being looked for
	}
	return l.nextProgram(a)
}

// runsPrograms reports whether a prolog or an epilog of the attempt runs, or is about to.
func (a *attempt) runsPrograms() bool {
	return a.phase == prologue || a.phase == curbed || a.phase == epilogue
}

// inProlog reports whether a program of its prolog may be running that an earlier gnoded has begun.
func (a *attempt) inProlog() bool {
	return a.facts() != nil && stage(a.rec.Stage) == stageProlog && int(a.rec.Index) < len(a.rec.List)
}
