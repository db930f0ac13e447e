package noded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/jobenv"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/greshelper"
	"gbatch/noded/shim"
)

// programKey is gshim's key of an attempt's present program.
func programKey(key proto.Attempt, r *launched) shim.Key {
	k := shimKey(key)
	k.Step = stepProlog - r.Index
	if stage(r.Stage) == stageEpilog {
		k.Step = stepEpilog - r.Index
	}
	return k
}

// programOrder is the order for the program that an attempt has reached. It is the same whenever it is made.
func (n *Noded) programOrder(key proto.Attempt, r *launched) *shim.Launch {
	k := programKey(key, r)
	env := slices.Clone(r.Facts.Env)
	context := "prolog_slurmd"
	if stage(r.Stage) == stageEpilog {
		context = "epilog_slurmd"
		if r.Final != nil {
			x := &r.Final.Exit
			env = append(env, fmt.Sprintf("SLURM_JOB_EXIT_CODE=%d", int(x.Code)<<8|int(x.Signal)),
				fmt.Sprintf("SLURM_JOB_EXIT_CODE2=%d:%d", x.Code, x.Signal), fmt.Sprintf("SLURM_JOB_DERIVED_EC=%d", r.Worst))
		}
	}
	path := r.List[r.Index]
	out := n.programOut(k)
	o := &shim.Launch{Key: k, Path: path, Argv: []string{path},
		Env: append(env, "SLURM_SCRIPT_CONTEXT="+context), Dir: "/",
		UID: uint32(n.uid), GID: uint32(os.Getegid()), Umask: 0o022, Stdout: out, Stderr: out, Append: true, Nice: n.nice}
	if n.root {
		o.Groups, o.AsRoot = []uint32{0}, true
	}
	var err error
	if r.Facts.InJob && r.Order != nil { // a prolog's group is there already, an epilog's is made for it
		if o.Cgroup, o.CPUs, err = n.groups.create(r.Order, true); err != nil {
			n.log.Error("a program runs outside of its job's control group", "job", key.Job, "program", path, "err", err)
		}
		return o
	}
	if o.Cgroup.V1, o.Cgroup.V2, err = n.groups.site.Join(programGroup(key, stage(r.Stage))); err != nil {
		n.log.Error("what a program leaves running can't be followed", "job", key.Job, "program", path, "err", err)
	}
	return o
}

// programGroup is the name of the group in which the programs of an attempt's prolog or epilog run.
func programGroup(key proto.Attempt, st stage) string {
	return fmt.Sprintf("%s_%d.%d", st, key.Job, key.Attempt)
}

// programLeft has what programs of the prolog have left running as the job's user join the job, also from before this
// gnoded.
func (l *loop) programLeft(a *attempt) {
	key, uid := a.key, a.rec.UID
	if a.rec.Facts == nil || a.rec.Facts.InJob || stage(a.rec.Stage) != stageProlog || len(a.rec.List) == 0 {
		return
	}
	l.soon(func() {
		l.n.workers.Do(func(context.Context) {
			job, err := l.n.groups.of(key)
			if err == nil {
				err = l.n.groups.site.Follow(programGroup(key, stageProlog), uid, job)
			}
			if err != nil {
				l.n.strayed(programGroup(key, stageProlog), err)
			}
		})
	})
}

// strayed says that what a prolog or an epilog has left running is not where it belongs.
func (n *Noded) strayed(group string, err error) {
	n.log.Warn("what a program has left running could not join its job, or not be killed", "group", group, "err", err)
}

// endPrograms ends what the programs of a prolog or an epilog have left running as the job's user: the job is over. Of
// an epilog within the job's group it is all; a prolog's has ended with the job.
func (n *Noded) endPrograms(ctx context.Context, key proto.Attempt, r *launched, st stage) error {
	switch {
	case r == nil || r.Facts == nil || r.Facts.InJob && st == stageProlog:
		return nil
	case r.Facts.InJob:
		return n.groups.remove(key)
	}
	return n.groups.site.Dismiss(ctx, programGroup(key, st), r.UID)
}

func (n *Noded) programOut(k shim.Key) string {
	return filepath.Join(n.opts.Spool, "programs", fmt.Sprintf("%d.%d.%d", k.JobID, k.Attempt, -k.Step))
}

// isProgram reports whether gshim's key is one of a prolog or an epilog.
func isProgram(k shim.Key) bool { return k.Step <= stepProlog && k.Step > 2*stepEpilog }

// onProgram handles gshim's event of a program.
func (l *loop) onProgram(ev *shim.Event) error {
	key := keyOf(ev.Key)
	a := l.attempts[key]
	switch {
	case a == nil || a.rec == nil || a.facts() == nil || a.phase == over || stage(a.rec.Stage) == stageNone:
		if ev.Done() { // of a time that nobody remembers
			l.then(func() { l.n.link.ack(ev.Key) })
		}
		return nil
	case int(a.rec.Index) >= len(a.rec.List) || programKey(key, a.rec) != ev.Key:
		if ev.Done() { // its end has been noted, and the acknowledgement was lost
			l.then(func() { l.n.link.ack(ev.Key) })
		}
		return nil
	case !a.runsPrograms():
		return nil // a new gnoded: it goes on when the leader has launched the attempt once more
	case !ev.Done():
		l.watchProgram(a, ev)
		return nil
	}
	return l.programEnded(a, ev)
}

// program is the prolog or epilog that an attempt runs.
type program struct {
	until time.Time // when it is killed
	cut   time.Time // when it was; zero: it has not been
	look  deadline  // when it is looked at next
}

// limitOf gives the time limit of the program that an attempt has reached.
func limitOf(r *launched) time.Duration {
	s := r.Facts.PrologTimeoutS
	if stage(r.Stage) == stageEpilog {
		s = r.Facts.EpilogTimeoutS
	}
	if s <= 0 {
		return programLimit
	}
	return time.Duration(s) * time.Second
}

// watchProgram enforces a running program's time limit and the bound of its output.
func (l *loop) watchProgram(a *attempt, ev *shim.Event) {
	p := &a.program
	limit := ev.Started.Add(limitOf(a.rec))
	if a.phase == curbed && !p.until.IsZero() {
		limit = earlier(p.until, limit)
	}
	p.until = limit
	l.lookAt(a, ev.Key.Step)
}

// cutProlog gives a prolog KillWait to end, because its job is to end. The attempt waits for it, so that the epilog
// doesn't run at the same time.
func (l *loop) cutProlog(a *attempt) {
	switch {
	case stage(a.rec.Stage) == stageNone: // its programs are being listed
		return
	case slices.Contains(l.queue, a.key): // it waits for its turn
		l.queue = slices.DeleteFunc(l.queue, func(k proto.Attempt) bool { return k == a.key })
		// The phase is curbed: what follows is the end.
		l.n.inbox.post(msgPrograms{key: a.key})
		return
	case int(a.rec.Index) >= len(a.rec.List):
		return
	}
	wait := killWait(a.stop)
	if a.will != wanted {
		wait = 0
	}
	a.program.until = earlier(a.program.until, l.now().Add(wait))
	l.lookAt(a, programKey(a.key, a.rec).Step)
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// lookAt arms the timer after which a running program is looked at.
func (l *loop) lookAt(a *attempt, step int32) {
	p := &a.program
	wait := programPace
	if !p.until.IsZero() {
		wait = min(wait, max(0, p.until.Sub(l.now())))
	}
	p.look.arm(l.n.inbox, max(wait, 1), func(uint64) any { return msgProgramLate{a.key, step} })
}

// onProgramLate kills a program whose time is up, and cuts the output of one that goes on. One that survives SIGKILL is
// given up.
func (l *loop) onProgramLate(m msgProgramLate) error {
	a := l.attempts[m.key]
	if a == nil || !a.runsPrograms() || int(a.rec.Index) >= len(a.rec.List) {
		return nil
	}
	k, p := programKey(a.key, a.rec), &a.program
	if k.Step != m.step {
		return nil
	}
	now := l.now()
	out := l.n.programOut(k)
	switch {
	case !p.cut.IsZero() && now.Sub(p.cut) >= l.n.unkillable():
		return l.happens(a, evGiveUp, news{})
	case !p.until.IsZero() && !now.Before(p.until):
		if p.cut.IsZero() {
			p.cut = now
		}
		p.until = now.Add(killAgain)
		l.n.stops.Do(func(ctx context.Context) { l.n.killProgram(ctx, k) })
	default:
		l.n.stops.Do(func(context.Context) { l.n.cutOutput(out) })
	}
	l.lookAt(a, m.step)
	return nil
}

func (n *Noded) killProgram(ctx context.Context, k shim.Key) {
	if _, err := n.link.signal(ctx, k, unix.SIGKILL, shim.Tree); err != nil {
		n.log.Warn("a program over its time limit could not be killed; it is tried again", "job", k.JobID, "err", err)
	}
}

// cutOutput keeps a program's output file short. The file is written at its end, wherever that is.
func (n *Noded) cutOutput(path string) {
	st, err := os.Stat(path)
	if err != nil || st.Size() <= maxProgramFile {
		return
	}
	if err := os.Truncate(path, maxProgramLog); err != nil {
		n.log.Warn("the output of a program could not be shortened", "file", path, "bytes", st.Size(), "err", err)
	}
}

// programEnded notes a program's end and goes on with the next. A prolog that fails ends its list; an epilog runs its
// whole list, so that a failed program keeps no other from cleaning up.
func (l *loop) programEnded(a *attempt, ev *shim.Event) error {
	a.program.look.stop()
	r := a.rec
	st := staged{Job: a.key.Job, Attempt: a.key.Attempt, Stage: r.Stage, List: r.List, Index: r.Index + 1, Fault: r.Fault}
	fault := programFault(r, ev, !a.program.cut.IsZero())
	if a.phase == curbed { // it ends with its job: no other program begins
		st.Index = int32(len(r.List))
		if !a.program.cut.IsZero() {
			fault = ""
		}
	}
	a.program = program{}
	if fault != "" {
		l.log.Error("a program failed", "what", stage(r.Stage), "job", a.key.Job, "why", fault)
		if st.Fault == "" {
			st.Fault = fault
		}
		if a.phase == prologue {
			st.Index = int32(len(r.List))
		}
	}
	if err := l.keep(a, recStage, &st, false); err != nil {
		return err
	}
	path, out, what := r.List[r.Index], l.n.programOut(ev.Key), stage(r.Stage)
	l.soon(func() { l.n.stops.Do(func(context.Context) { l.n.logOutput(a.key, what, path, out) }) })
	l.programLeft(a)
	l.then(func() { l.n.link.ack(ev.Key) })
	l.serialEnds(a.key)
	return l.nextProgram(a)
}

// serialEnds lets the next attempt's program begin where one at a time runs.
func (l *loop) serialEnds(key proto.Attempt) {
	if l.serial != key {
		return
	}
	l.serial = proto.Attempt{}
	for len(l.queue) > 0 {
		next := l.attempts[l.queue[0]]
		l.queue = l.queue[1:]
		if next == nil || next.phase != prologue && next.phase != epilogue || int(next.rec.Index) >= len(next.rec.List) {
			continue
		}
		l.serial = next.key
		r := next.rec
		l.then(func() { l.n.link.launch(l.n.programOrder(next.key, r)) })
		return
	}
}

// programFault says how a program failed, "" if it did not.
func programFault(r *launched, ev *shim.Event, late bool) string {
	path := r.List[r.Index]
	switch {
	case ev.Kind == shim.LaunchFailed:
		return ev.Text
	case late:
		return fmt.Sprintf("%s was killed after %d s, its time limit", path, int64(limitOf(r)/time.Second))
	case ev.Unknown:
		return fmt.Sprintf("%s: %s", path, orElse(ev.Text, "how it ended is not known"))
	case ev.Signal != 0:
		return fmt.Sprintf("%s was ended by signal %d", path, ev.Signal)
	case ev.Code != 0:
		return fmt.Sprintf("%s exited with %d", path, ev.Code)
	}
	return ""
}

// logOutput puts the beginning of a program's output into the log and removes the file.
func (n *Noded) logOutput(key proto.Attempt, what stage, path, out string) {
	f, err := os.Open(out)
	if err != nil {
		return // it has written nothing, or was noted before
	}
	text, err := io.ReadAll(io.LimitReader(f, maxProgramLog))
	if line := strings.TrimSpace(string(text)); line != "" {
		n.log.Info("output of a program", "what", what, "job", key.Job, "program", path, "output", line)
	}
	if err := errors.Join(err, f.Close(), os.Remove(out)); err != nil {
		n.log.Warn("the output of a program could not be read", "file", out, "err", err)
	}
}

// Beside each job with remote GPUs runs the program of GresHelper, on each of its nodes that has some (package
// greshelper): from the moment when its control group is there to its last process.

// stepHelper is the step number under which gshim knows the first keeper of a helper. It counts down, so that one that
// is asked again after a restart is another.
const (
	stepHelper  = -5000
	helperSteps = 1000
)

func isHelper(k shim.Key) bool { return k.Step <= stepHelper && k.Step > stepHelper-helperSteps }

func helped(key proto.Attempt) greshelper.Attempt {
	return greshelper.Attempt{Job: uint32(key.Job), Attempt: key.Attempt}
}

// helps reports whether a launch waits for a helper.
func (n *Noded) helps(l *proto.Launch) bool {
	r := n.rules.Load()
	return r != nil && r.GresHelper != "" && l.Alloc.Nodes[l.Node].Remote()
}

// endpoints gives those of a part of the node.
func (n *Noded) endpoints(here *model.NodeAlloc) map[int]string {
	at := map[int]string{}
	for i := range n.inv.Units {
		if u := &n.inv.Units[i]; u.Endpoint != "" && here.Units(u.Name).Has(int(u.Index)) {
			at[int(u.Index)] = u.Endpoint
		}
	}
	return at
}

// remoteOf gives what an attempt is told of its remote GPUs; nil: it has none.
func (n *Noded) remoteOf(key proto.Attempt, here *model.NodeAlloc) *jobenv.Remote {
	if !here.Remote() {
		return nil
	}
	far := &jobenv.Remote{Endpoints: n.endpoints(here)}
	far.Given, far.Helped = n.helpers.Env(helped(key))
	return far
}

// remote asks the helper of an attempt with remote GPUs, and gives what the attempt is told of them. o is an order for
// a process of it.
func (n *Noded) remote(ctx context.Context, l *proto.Launch, o *shim.Launch, reuse bool) (*jobenv.Remote, error) {
	key, s, here := proto.Attempt{Job: l.Job, Attempt: l.Attempt}, l.Spec, &l.Alloc.Nodes[l.Node]
	far := n.remoteOf(key, here)
	if far == nil || far.Helped && reuse || !n.helps(l) {
		return far, nil
	}
	rules, e := n.rules.Load(), n.jobEnv()
	line := &greshelper.Start{Version: 1, Event: "start", Node: n.opts.Name, Job: uint32(l.Job), Attempt: l.Attempt,
		UID: s.UID, GID: s.GID, User: s.User, Account: s.Account, Partition: l.Part, Name: s.Name, Gres: model.GPUName,
		Type: model.RemoteType, LimitS: rules.GresHelperS}
	if w := n.def.Load(); w != nil {
		line.Cluster, e.Hidden = w.cluster, e.Units.HiddenOn(w.def)
	}
	if l.Task != model.NoTask {
		task := int32(l.Task)
		line.ArrayJob, line.ArrayTask = uint32(l.ArrayID), &task
	}
	for i := range here.Gres {
		if g := &here.Gres[i]; model.IsRemote(g.Name, g.Type) {
			g.Index.Each(func(k int) bool {
				line.Units = append(line.Units, greshelper.Unit{Index: k, Endpoint: far.Endpoints[k]})
				return true
			})
		}
	}
	k := shimKey(key)
	k.Step = stepHelper - int32((uint32(n.upSince/1000)+n.helping.Add(1))%helperSteps)
	order := &shim.Launch{Key: k, Path: n.opts.Shim,
		Argv: greshelper.Argv(n.opts.Shim, rules.GresHelperS, rules.GresHelper),
		Env: []string{"PATH=" + programPath, fmt.Sprintf("SLURM_JOB_ID=%d", l.Job), fmt.Sprintf("SLURM_JOB_UID=%d", s.UID),
			"SLURM_JOB_USER=" + s.User, "SLURMD_NODENAME=" + n.opts.Name},
		Dir: "/", UID: s.UID, GID: s.GID, Groups: s.Groups, Umask: 0o077, Limits: o.Limits, Cgroup: o.Cgroup, CPUs: o.CPUs,
		Mounts: o.Mounts, Nice: n.nice, AsRoot: s.UID == 0}
	a, err := n.helpers.Ask(helped(key), order, line, e.Owned(), func(o *shim.Launch) { n.link.launch(o) })
	switch {
	case err != nil:
		n.endHelper(ctx, k, unix.SIGKILL)
		return nil, fmt.Errorf("GresHelper %s on node %s: %w", rules.GresHelper, n.opts.Name, err)
	case a.Refuse != "":
		n.endHelper(ctx, k, unix.SIGKILL)
		return nil, jobsFault{fmt.Errorf("the remote GPUs of node %s are refused: %s", n.opts.Name, a.Refuse)}
	}
	far.Given, far.Helped = a.Env, true
	return far, nil
}

// endHelper signals a keeper, and says whether it is there. Its helper ends with it.
func (n *Noded) endHelper(ctx context.Context, k shim.Key, sig unix.Signal) bool {
	reached, err := n.link.signal(ctx, k, sig, shim.Leader)
	if err != nil && !errors.Is(err, shim.ErrUnknown) {
		n.log.Warn("the process beside a job with remote GPUs could not be signaled", "job", k.JobID, "err", err)
	}
	return err == nil && reached > 0
}

// helperStops ends an attempt's helper; it reports whether it is still there.
func (n *Noded) helperStops(ctx context.Context, key proto.Attempt) bool {
	return n.helpers.Stop(helped(key), n.now(), func(step int32, kill bool) bool {
		k, sig := shimKey(key), greshelper.StopSignal
		if k.Step = step; kill {
			sig = unix.SIGKILL
		}
		return n.endHelper(ctx, k, sig)
	})
}

// onHelper takes gshim's news of a keeper.
func (l *loop) onHelper(ev *shim.Event) {
	key, k := keyOf(ev.Key), ev.Key
	known, early := l.n.helpers.Hear(helped(key), ev)
	if ev.Done() {
		l.then(func() { l.n.link.ack(k) })
	} else if !known { // of an earlier gnoded that had no answer yet
		l.then(func() { l.n.stops.Do(func(ctx context.Context) { l.n.endHelper(ctx, k, unix.SIGKILL) }) })
	}
	if a := l.attempts[key]; early && a != nil && a.phase < stopping {
		line := fmt.Sprintf("the program that connects the job with its remote GPUs on node %s has ended (exit code %d)",
			l.n.opts.Name, ev.Code)
		l.log.Warn("GresHelper has ended before its job", "job", key.Job, "code", ev.Code, "signal", ev.Signal)
		rec := a.rec
		l.then(func() { l.n.stops.Do(func(context.Context) { l.n.tellUser(rec, "gnoded: "+line) }) })
	}
}
