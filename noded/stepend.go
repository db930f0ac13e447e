package noded

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/pool"
	"gbatch/noded/shim"
)

// stepend.go follows a step's tasks to their ends: gshim's events, signals and time limits, and, when the last task has
// ended, the removal of what they left, the report, and giving the resources to waiting steps.

type ctxType = context.Context

const (
	// drainFor is how long after the last task's end MPI programs' servers have to end, and when those who pass output on
	// are told of that end; these may take as long as its reader takes.
	drainFor = 2 * time.Second
	// tellAgain is how often these are told.
	tellAgain = 30 * time.Second
)

// onStepEvent takes gshim's news of a task.
func (l *loop) onStepEvent(ev *shim.Event) error {
	if ev.Key.Task >= relayTask {
		l.onRelay(ev)
		return nil
	}
	s := l.step(keyOf(ev.Key), ev.Key.Step)
	i := -1
	if s != nil && s.here >= 0 {
		for k, r := range s.rec.Nodes[s.here].Ranks {
			if r == ev.Key.Task {
				i = k
			}
		}
	}
	if i < 0 {
		key := ev.Key
		if ev.Done() {
			l.then(func() { l.n.link.ack(key) })
			return nil
		}
		l.then(func() {
			l.n.stops.Do(func(ctx context.Context) { l.n.signalTask(ctx, key, unix.SIGKILL, shim.Tree) })
		})
		return nil
	}
	t := &s.tasks[i]
	if t.ended != nil {
		return nil
	}
	first := !t.began && t.ended == nil
	if ev.Done() {
		t.ended = ev
	}
	if ev.Kind != shim.LaunchFailed {
		t.began, t.pid, t.since = true, ev.PID, model.Time(ev.Started.UnixMilli())
		l.stepBegins(s, t.since)
		if first && !ev.Done() {
			l.n.sampler.begin(s.sampleKey(), l.n.stepShape(s), s.began, ev.PID, int32(i), ev.Key.Task)
			l.watchStep(s)
		}
	} else if s.began == 0 && ev.Stage != shim.StageOrder {
		// A program that can't be run is a step of its own all the same.
		if s.began = model.Time(ev.Ended.UnixMilli()); ev.Ended.IsZero() {
			s.began = l.stamp()
		}
	}
	if first && !ev.Done() {
		l.stepHappens(s, sevTask, stepNews{})
	}
	s.tellTask(l, i)
	l.stepProgress(s)
	return nil
}

// stepBegins notes that a task of a step has begun, here or on another node.
func (l *loop) stepBegins(s *step, at model.Time) {
	if s.began != 0 && at >= s.began {
		return
	}
	s.began = at
	if s.limit == nil { // the step has no task here, or this daemon has been started anew
		l.armLimit(s)
	}
}

// tellTask sends the command a task's state.
func (s *step) tellTask(l *loop, i int) {
	t := &s.tasks[i]
	ev := &proto.StepEvent{Kind: proto.StepStarted, Step: s.id, Task: s.rec.Nodes[s.here].Ranks[i],
		Node: s.rec.Nodes[s.here].Node, PID: int32(t.pid), Began: t.since}
	switch {
	case t.ended != nil && t.ended.Kind == shim.LaunchFailed:
		ev.Kind = proto.StepExited
		x := t.failed()
		if ev.Code = x.Code; x.Text != "" {
			ev.Text = stepdError + x.Text
		}
	case t.ended != nil:
		ev.Kind = proto.StepExited
		ev.Code, ev.Signal, ev.Core = int32(t.ended.Code), int32(t.ended.Signal), t.ended.Core
		if t.ended.Unknown {
			ev.Code, ev.Text = 1, "exit status unknown: "+t.ended.Text
		}
	case !t.began:
		return
	}
	if t.ended != nil && !t.ended.Ended.IsZero() {
		ev.Ended = model.Time(t.ended.Ended.UnixMilli())
	}
	s.send(l, ev)
}

// stepProgress does what follows when tasks have started or ended.
func (l *loop) stepProgress(s *step) {
	started, ended := 0, 0
	for i := range s.tasks {
		if s.tasks[i].began || s.tasks[i].ended != nil {
			started++
		}
		if s.tasks[i].ended != nil {
			ended++
		}
	}
	if started == len(s.tasks) {
		l.closeFiles(s)
	}
	if ended < len(s.tasks) || !s.partsEnded() {
		return
	}
	if s.relaying() {
		if s.drain == nil {
			s.setTimer(l, timerDrain, drainFor)
		}
		return
	}
	l.stepHappens(s, sevTasksEnd, stepNews{})
}

// clearStep makes a worker kill what the step left behind.
func (l *loop) clearStep(s *step) {
	if s.cleared.IsZero() {
		s.cleared = l.now()
	}
	if s.phase == stepEnding {
		l.setStepDeadline(s, l.n.unkillable()+abandonWait)
	}
	key, id, tries := s.job.key, s.id, s.tries
	keys := s.shimKeys()
	for _, r := range s.relays { // without a control group nothing else ends them
		keys = append(keys, r.order.Key)
	}
	want := s.memoryWanted()
	rec, looks := s.job.rec, s.failedOutputs()
	l.soon(func() {
		by := l.n.stops
		if tries == 0 && len(looks) == 0 { // a user's file system may hang
			by = l.n.workers
		}
		by.Do(func(ctx context.Context) {
			m := msgStepCleared{key: key, id: id}
			defer pool.Or(func(err error) { l.n.inbox.post(msgStepCleared{key: key, id: id, left: err}) })
			if m.use, m.left = l.n.finishStep(ctx, key, id, keys, tries); m.left == nil {
				m.left = l.n.shows.Remove(key, id)
			}
			if m.left == nil {
				m.seen = l.n.sampler.end(sampleKey{key, id})
				m.oom = l.n.stepOOM(key, id, m.use, m.seen, want)
				m.gpu = l.n.gpuSaid(rec, looks)
			}
			l.n.inbox.post(m)
		})
	})
}

// shimKeys are the keys of the tasks that gshim has or had.
func (s *step) shimKeys() []shim.Key {
	var out []shim.Key
	if s.here < 0 {
		return nil
	}
	for i, r := range s.rec.Nodes[s.here].Ranks {
		if s.tasks[i].order != nil || s.tasks[i].began {
			out = append(out, s.shimKey(r))
		}
	}
	return out
}

// shimKey is a task's key.
func (s *step) shimKey(rank int32) shim.Key {
	return shim.Key{JobID: uint32(s.rec.Job), Attempt: s.rec.Attempt, Step: s.id, Task: rank}
}

// finishStep kills the remaining processes of a step and gives its usage. The first try is quick, as a worker waits for
// it that others need.
func (n *Noded) finishStep(ctx context.Context, key proto.Attempt, id int32, tasks []shim.Key, tries int) (usage,
	error) {
	if tries == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, firstKill)
		defer cancel()
	}
	if n.groups.root.Can().Track {
		use, err := n.groups.finishStep(ctx, key, id)
		if err == nil {
			err = n.leaveRoom(key, id)
		}
		return use, err
	}
	for _, t := range tasks {
		if _, err := n.link.signal(ctx, t, unix.SIGKILL, shim.Tree); err != nil && !errors.Is(err, shim.ErrUnknown) {
			return usage{}, err
		}
	}
	return usage{}, nil
}

// onStepCleared goes on when a worker has cleared a step away, or could not.
func (l *loop) onStepCleared(m msgStepCleared) {
	s := l.step(m.key, m.id)
	switch {
	case s == nil:
	case m.left != nil:
		l.stepHappens(s, sevLeft, stepNews{cleared: &m})
	default:
		l.stepHappens(s, sevCleared, stepNews{cleared: &m})
	}
}

// clearStepLater tries again to clear a step away, and says so from time to time.
func (l *loop) clearStepLater(s *step, left error) {
	if l.hopelessStep(s) {
		l.stepHappens(s, sevGiveUp, stepNews{})
		return
	}
	if s.tries%64 == 1 {
		l.log.Error("a step has ended but its processes or files remain; its resources stay allocated", "job", s.rec.Job,
			"step",
			s.id, "left", left)
	}
	l.setStepDeadline(s, min(clearAgainMin<<min(s.tries, 10), clearAgainMax))
	s.tries++
}

// stepEnds reports the end of a step when nothing of it is left; m is nil if the step does not wait for that.
func (l *loop) stepEnds(s *step, m *msgStepCleared) error {
	if m == nil {
		m = &msgStepCleared{}
	}
	if m.use.oomKills > 0 {
		s.oom = true
		s.send(l, &proto.StepEvent{Kind: proto.StepLine,
			Text: fmt.Sprintf("slurmstepd: error: Detected %d oom_kill event%s in StepId=%s. Some of the step tasks have "+
				"been OOM Killed.", m.use.oomKills, plural(m.use.oomKills), s.name())})
		s.send(l, &proto.StepEvent{Kind: proto.StepLine, Text: m.oom})
	}
	s.gpuSaid = orElse(m.gpu, s.gpuSaid)
	if s.rec.Manager != "" {
		return l.partCleared(s, m)
	}
	if s.job.will == wanted && s.began != 0 {
		r := l.stepReport(s, m.use, m.seen)
		s.used = r.Step.Exit.Use
		if !proto.IsAside(s.id) {
			l.noteFault(s, &r.Step.Exit)
			l.noteFailed(s, &r.Step.Exit)
			if err := l.report(r); err != nil {
				return err
			}
			l.noteEnded(r)
		}
	}
	s.done = &proto.StepEvent{Kind: proto.StepDone, Step: s.id, OOM: s.oom, Cause: s.cause}
	s.send(l, s.done)
	s.job.keepMissed(s, l.now())
	return l.overStep(s)
}

// noteFault tells the log why a step's program did not run, and keeps it for the end of its job.
func (l *loop) noteFault(s *step, x *model.Exit) {
	if x.Text == "" || x.GPUOOM {
		return
	}
	l.log.Warn("a step could not be run", "job", s.rec.Job, "step", s.id, "why", x.Text)
	s.job.fault = model.Exit{Code: x.Code, Text: fmt.Sprintf("step %d: %s", s.id, x.Text)}
}

func plural(n int64) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// stepReport makes the report of a step's end.
func (l *loop) stepReport(s *step, use usage, seen *sampled) *proto.Report {
	rec := s.summary()
	rec.Start, rec.Stop, rec.StopUID = s.began, s.cause, s.uid
	rec.End = s.lastEnd(l.stamp())
	if rec.SleptMS = s.rec.Frozen; s.rec.FrozenAt != 0 {
		rec.SleptMS += max(0, int64(rec.End-max(s.rec.FrozenAt, s.began)))
	}
	var sum usage
	for i := range s.tasks {
		ev := s.tasks[i].ended
		if ev == nil {
			continue
		}
		x := exitOf(ev, usage{})
		if ev.Kind == shim.LaunchFailed {
			x = s.tasks[i].failed()
		}
		if worse(x, rec.Exit) {
			rec.Exit.Code, rec.Exit.Signal, rec.Exit.Unknown, rec.Exit.Text = x.Code, x.Signal, x.Unknown, x.Text
		}
		sum.userMS += x.UserMS
		sum.sysMS += x.SysMS
		sum.peakKB = max(sum.peakKB, x.MaxRSSKB)
	}
	sum.known = true
	x := exitOf(nil, use.or(sum))
	defer func() {
		s.addParts(rec)
		oomExit(&rec.Exit)
	}()
	rec.Exit.UserMS, rec.Exit.SysMS, rec.Exit.MaxRSSKB, rec.Exit.OOM = max(x.UserMS, sum.userMS), max(x.SysMS, sum.sysMS),
		max(x.MaxRSSKB, sum.peakKB), s.oom
	rec.Exit.Use = l.n.stepUsage(s, use, seen, rec.Exit)
	if said := s.gpuSaid; said != "" && s.someFailed() {
		rec.Exit.GPUOOM, rec.Exit.Text = true, gpuStory("the step's", said, rec.Exit.Use.Node(l.n.opts.Name))
	}
	return &proto.Report{Kind: proto.ReportStep, Job: s.job.key.Job, Attempt: s.job.key.Attempt, At: rec.End, Step: rec}
}

// lastEnd gives the end of the task that ended last, on any node; now if no task's is known.
func (s *step) lastEnd(now model.Time) (end model.Time) {
	for i := range s.tasks {
		if ev := s.tasks[i].ended; ev != nil && !ev.Ended.IsZero() {
			end = max(end, model.Time(ev.Ended.UnixMilli()))
		}
	}
	for _, p := range s.parts {
		for i := range p.tasks {
			if ev := p.tasks[i].ended; ev != nil {
				end = max(end, ev.Ended)
			}
		}
	}
	if end == 0 {
		return now
	}
	return end
}

// addParts adds what the step's other nodes have said.
func (s *step) addParts(rec *model.Step) {
	for _, p := range s.parts {
		for i := range p.tasks {
			if ev := p.tasks[i].ended; ev != nil {
				if x := (model.Exit{Code: ev.Code, Signal: ev.Signal}); worse(x, rec.Exit) {
					rec.Exit.Code, rec.Exit.Signal, rec.Exit.Unknown = x.Code, x.Signal, false
					rec.Exit.Text = strings.TrimPrefix(ev.Text, stepdError)
				}
			}
		}
		if u := p.use; u != nil {
			rec.Exit.UserMS += u.UserMS
			rec.Exit.SysMS += u.SysMS
			rec.Exit.MaxRSSKB = max(rec.Exit.MaxRSSKB, u.MaxRSSKB)
			rec.Exit.OOM = rec.Exit.OOM || u.OOM
			if u.GPUOOM && !rec.Exit.GPUOOM {
				rec.Exit.GPUOOM, rec.Exit.Text = true, u.Text
			}
			if u.Use != nil {
				all := &model.Usage{}
				if rec.Exit.Use != nil {
					all.Add(rec.Exit.Use)
				}
				all.Add(u.Use)
				rec.Exit.Use = all
			}
		}
	}
}

// worse orders exits as srun does for its own exit code: the highest status that a shell would see comes first.
func worse(a, b model.Exit) bool {
	number := func(x model.Exit) int32 {
		if x.Signal != 0 {
			return 128 + x.Signal
		}
		return x.Code
	}
	return number(a) > number(b)
}

// adoptSteps looks, after gshim's list, for tasks that gshim does not know. If the step was ordered, they are ordered
// again; if its command is away, they wait for it for a while.
func (l *loop) adoptSteps(a *attempt, listed map[shim.Key]bool) (again []*shim.Launch) {
	for _, s := range a.steps {
		if s.conn == nil && s.req == nil && s.phase < stepEnding {
			s.setTimer(l, timerLonely, lonelyStep)
		}
		if s.here < 0 {
			continue
		}
		for i, r := range s.rec.Nodes[s.here].Ranks {
			t := &s.tasks[i]
			key := shim.Key{JobID: uint32(s.rec.Job), Attempt: s.rec.Attempt, Step: s.id, Task: r}
			switch {
			case listed[key] || t.ended != nil:
			case t.began:
				t.ended = &shim.Event{Kind: shim.Exited, Unknown: true, Text: "the launcher lost its records while the task ran",
					Ended: l.now()}
				s.tellTask(l, i)
			case t.order != nil && s.phase < stepStopping:
				again = append(again, t.order)
			case t.order != nil: // it is to end, and gshim has not heard of it
				t.order, t.ended = nil, &shim.Event{Kind: shim.LaunchFailed, Stage: shim.StageOrder, Text: "it was not started"}
			}
		}
		for _, r := range s.relays {
			switch {
			case r.began || listed[r.order.Key]:
			case s.phase < stepStopping:
				again = append(again, r.order)
			default:
				r.ended = true
			}
		}
		l.stepProgress(s)
	}
	return again
}

// recoverSteps takes up the steps that the spool has of a job.
func (a *attempt) recoverSteps(k *kept, node string) {
	a.nextStep, a.shellMade = k.nextStep, k.shell
	for id, rec := range k.steps {
		if a.steps == nil {
			a.steps = map[int32]*step{}
		}
		s := &step{job: a, id: id, rec: rec, phase: stepCreated}
		s.place(node)
		if rec.Manager == "" {
			s.makeParts(node)
		}
		a.steps[id] = s
	}
}

// memoryWanted is the option with which a step, or else its job, asked for memory.
type memoryWanted struct {
	option string
	units  int64
	memMiB int64 // here; 0: no limit
}

func (s *step) memoryWanted() memoryWanted {
	var w memoryWanted
	rec := s.job.rec
	if rec != nil && rec.Use != nil {
		w = memoryWanted{rec.MemOpt, int64(rec.MemUnits), rec.Use.MemMiB}
	}
	if s.here >= 0 {
		if mem := s.rec.Nodes[s.here].MemMiB; mem > 0 && mem != w.memMiB {
			w = memoryWanted{"--mem", 1, mem}
		}
	}
	return w
}

// stepOOM is the sentence about a step that ran out of memory; "" for one that did not.
func (n *Noded) stepOOM(key proto.Attempt, step int32, use usage, seen *sampled, want memoryWanted) string {
	if use.oomKills == 0 {
		return ""
	}
	o := oomStory{step: proto.StepID(key.Job, step), node: n.opts.Name, limitKB: use.limitKB, peakKB: use.peakKB,
		kills: n.oom.of(n.groups.path(key) + "/" + stepName(step)), option: want.option, units: want.units,
		memMiB: want.memMiB}
	o.sawIn(seen)
	return o.sentence()
}
