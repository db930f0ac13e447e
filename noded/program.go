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

	"gbatch/internal/proto"
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
				fmt.Sprintf("SLURM_JOB_EXIT_CODE2=%d:%d", x.Code, x.Signal), "SLURM_JOB_DERIVED_EC=0")
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
	return o
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
	until time.Time   // when it is killed
	cut   time.Time   // when it was; zero: it has not been
	timer *time.Timer // when it is looked at next
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
	if p.timer != nil {
		p.timer.Stop()
	}
	m := msgProgramLate{a.key, step}
	p.timer = time.AfterFunc(wait, func() { l.n.inbox.post(m) })
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
	if a.program.timer != nil {
		a.program.timer.Stop()
	}
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
