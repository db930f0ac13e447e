package state

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"gbatch/internal/model"
)

// applyReports applies reports of nodes. Every report is keyed by (job, attempt): a repeated or outdated one changes
// nothing, and is acknowledged like any other.
func (s *State) applyReports(at model.Time, c *Reports) Result {
	res := Result{}
	for i := range c.Reports {
		r := s.briefly(&c.Reports[i])
		j, ok := s.jobs.Get(r.Job)
		if r.Kind == StepEnded {
			res.Changed = ok && (!c.Placed || s.hadStep(j, r)) && s.stepEnded(j, r) || res.Changed
			continue
		}
		if r.Kind == Ended && s.correct(at, r) {
			res.Changed = true
			continue
		}
		if !ok || j.Attempt != r.Attempt || j.Run == nil || !j.State.HasResources() {
			continue
		}
		if k := leavingOf(j, r); k >= 0 {
			res.Changed = s.leavingSays(j, k, r, at) || res.Changed
			continue
		}
		if (c.Placed || r.Since != 0) && !concerns(j, r) {
			continue
		}
		if r.Kind != ProgramPassed && r.Kind != ProgramFailed && s.AwaitsPower(j) {
			continue // no node has it
		}
		changed := true
		switch r.Kind {
		case Started:
			changed = s.started(j, at, r)
		case Ended:
			if r.Exit.Unknown && s.rebootedSince(j) {
				s.nodeFailed(j, j.Run.Alloc.Nodes[0].Node, whyRebooted, at)
			} else {
				s.partEnded(j, at, r)
			}
		case LaunchFailed:
			changed = s.launchFailed(j, at, r)
		case Ready:
			changed = s.nodeReady(j, r)
		case PrologFailed:
			s.prologFailed(j, at, r)
		case Ending:
			changed = s.scriptEnded(j, at, r)
		case EpilogFailed, Unkillable:
			if j.Spec.Extra().Expedite && r.Kind == EpilogFailed && !j.Run.BadEpilog {
				j = s.change(j, func(run *model.Run) { run.BadEpilog = true })
			}
			changed = s.drain(nodeOf(j, r), nodeFault(r), at)
		case ProgramPassed:
			changed = s.programPassed(j, at)
		case ProgramFailed:
			changed = s.programFailed(j, at, r)
		default:
			changed = false
		}
		res.Changed = res.Changed || changed
	}
	s.wakeAll(at)
	s.plan()
	return res
}

// maxSaid bounds what a node or a person says and the facts keep as part of a sentence of their own, bytes: a sentence
// that is longer than model.MaxText can be in no snapshot.
const maxSaid = 4 << 10

// Brief shortens what somebody says. Apply does it too, so it never changes what it gives.
func Brief(text string) string {
	const more = "..."
	if len(text) <= maxSaid+len(more) {
		return text
	}
	return strings.ToValidUTF8(text[:maxSaid], "") + more
}

// brief is Brief, of commands that were written since it is done.
func (s *State) brief(text string) string {
	if s.now.rules < rulesBrief {
		return text
	}
	return Brief(text)
}

// briefly gives a report with brief texts.
func (s *State) briefly(r *Report) *Report {
	text, exit := s.brief(r.Text), s.brief(r.Exit.Text)
	if len(text) == len(r.Text) && len(exit) == len(r.Exit.Text) {
		return r
	}
	n := *r
	n.Text, n.Exit.Text = text, exit
	return &n
}

// concerns reports whether the node that reports has, of this job, what its report is about: the script for Started and
// Ending, a part for all others. No node reports on the controller's own programs.
func concerns(j *model.Job, r *Report) bool {
	own := r.Kind == ProgramPassed || r.Kind == ProgramFailed
	if r.Node == "" || own {
		return r.Node == "" && own
	}
	k := placeOf(j, r)
	return k == 0 || k > 0 && r.Kind != Started && r.Kind != Ending
}

// rebootedSince reports whether the node that runs j's script has booted since j got it: then an unknown exit is the
// node's failure, not the job's.
func (s *State) rebootedSince(j *model.Job) bool {
	n, ok := s.nodes.Get(j.Run.Alloc.Nodes[0].Node)
	return ok && n.BootAt > j.Run.Start
}

// started records that the script runs. A second report changes nothing.
func (s *State) started(j *model.Job, at model.Time, r *Report) bool {
	next, ok := model.Next(j.State, model.EvStarted)
	if !ok && (j.State != model.Completing || j.Run.Launched != 0) {
		return false
	}
	n, run := *j, *j.Run
	run.Launched = s.plausible(r.At, run.Start, at, at)
	n.Run, n.State = &run, next
	n.Strikes, n.Returns, n.Avoid, n.AvoidUntil = 0, 0, nil, 0
	s.put(&n)
	s.record(&n)
	if s.now.rules >= rulesBrief {
		s.mailBegin(&n, at)
		s.countArray(n.ArrayID, func(a *Array) { a.Begun = true })
	}
	s.wake(&n)
	s.launchWorked(run.Alloc.Nodes[0].Node)
	s.load(&n, at)
	return true
}

// plausible gives a moment that a node reported, or the latest one possible if that moment is impossible: clocks differ
// between hosts, but a job can't start or end in the future or before it got its resources. A moment that is so little
// before that as the cluster's time may have been bent since, a tenth at most, is when it got them.
func (s *State) plausible(when, start, latest, at model.Time) model.Time {
	const bent = 10
	switch {
	case when == 0 || when > latest:
		return latest
	case when >= start:
		return when
	case s.now.rules >= rulesOwed && start-when <= (at-when)/bent:
		return start
	}
	return latest
}

// ended frees the job's resources, sets its final state and queues its accounting record, all in one step.
func (s *State) ended(j *model.Job, at, when model.Time, exit model.Exit) {
	when = max(s.plausible(when, j.Run.Start, at, at), j.Run.SizedAt())
	state, reason := exit.State()
	if j.Run.Stop != model.NoStop && j.Run.StopWhy != "" {
		exit.Text = j.Run.StopWhy
	}
	uid := uint32(0)
	requeue, hold := false, model.NotHeld
	switch j.Run.Stop {
	case model.NoStop:
		requeue = exit.CutOff && j.Spec.Requeue
		switch failed := exit.Code != 0 || exit.Signal != 0; {
		case reason == model.ReasonGPUOutOfMemory:
			requeue, exit.Text = s.afterGPUOOM(j, exit.Text)
		case s.backForExit(j, at, when, &exit):
			return
		case failed && !exit.CutOff && j.Spec.Extra().Expedite:
			requeue = true
			if !j.Run.BadEpilog { // the job's own fault, as in Slurm
				hold = model.HeldByUser
			}
		}
	case model.StopCancel:
		state, reason, uid = model.Cancelled, model.ReasonNone, j.Run.StopUID
	case model.StopTimeLimit:
		if state, reason = model.Timeout, model.ReasonTimeLimit; j.Run.StopReason != model.ReasonNone {
			reason = j.Run.StopReason
		}
	case model.StopPreempt:
		state, reason = model.Preempted, model.ReasonNone
		requeue, exit.Text = j.Spec.Requeue, s.preemptedFor(j)
	case model.StopPreemptCancel:
		state, reason = model.Preempted, model.ReasonNone
		exit.Text = s.preemptedFor(j)
	case model.StopRequeue:
		state, reason, requeue, uid = model.Requeued, model.ReasonNone, true, j.Run.StopUID
		if j.Run.StopWhy == "" {
			exit.Text = requeuedBy(j)
		}
		if j.Run.Sleep == model.SleepsByAdmin {
			hold = model.HeldByUser // as in Slurm
		}
	case model.StopRequeueHold:
		state, reason, requeue, hold = model.Requeued, model.ReasonNone, true, model.HeldByUser
		uid, exit.Text = j.Run.StopUID, requeuedBy(j)
	case model.StopGivenBack:
		exit.Code, exit.Signal, exit.Unknown = j.Run.Fate.Code, 0, false
		if exit.Code == 0 { // who had the resources has got over it
			exit.GPUOOM, exit.Text = false, ""
		}
		state, reason = exit.State()
	case model.StopWithFirst:
		f := j.Run.Fate
		state, reason, uid = f.State, f.Reason, f.UID
		exit.Code, exit.Signal, exit.Unknown, exit.OOM = f.Code, f.Signal, false, state == model.OutOfMemory
	case model.StopGive:
		state, reason, exit = model.Completed, model.ReasonNone, model.Exit{Text: j.Run.StopWhy}
	case model.StopDeadline:
		state, reason = model.Deadline, model.ReasonDeadLine
	case model.StopNodeFail, model.StopUnitFault:
		state, reason = model.NodeFail, model.ReasonNodeDown
		requeue = j.Spec.Requeue
	case model.StopProlog:
		s.afterProlog(j, at, when)
		return
	case model.StopLaunch:
		s.backFromLaunch(j, at, when)
		return
	case model.StopTaken:
		s.givenBack(j, at, when)
		return
	}
	s.finish(j, at, when, state, reason, exit, uid, requeue, hold)
}

// backForExit puts a batch job back into the queue if its exit code is one of RequeueExit or RequeueExitHold; false: it
// is not. As in Slurm that is the site's rule: JobRequeue and --no-requeue don't matter. What goes back too often is
// held, so that no job comes back for ever.
func (s *State) backForExit(j *model.Job, at, when model.Time, exit *model.Exit) bool {
	r := &s.cfg.Params.Exits
	held := slices.Contains(r.Hold, exit.Code)
	back := held || !j.Recurs() && slices.Contains(r.Requeue, exit.Code) // what comes back anyway does so at its time
	if !back || exit.Signal != 0 || exit.Unknown || exit.CutOff || exit.OOM || j.Spec.Extra().Interactive ||
		s.firstOver(j) {
		return false
	}
	n := *j
	n.Exits, n.Special = n.Exits+1, false
	if !held {
		s.delayed(&n, at)
	}
	hold, why := model.NotHeld, fmt.Sprintf("put back into the queue for its exit code %d", exit.Code)
	switch {
	case held:
		hold, n.Special, why = model.HeldByUser, true, why+" (RequeueExitHold)"
	case n.Exits > r.MostTimes():
		hold, why = model.HeldByAdmin, oftenBack(exit.Code, n.Exits-1)
		n.Exits = 0
	default:
		why += " (RequeueExit)"
	}
	e := *exit
	e.Text, e.Worst = why, j.Run.Worst
	n.Back = codes(&e)
	s.finish(&n, at, when, model.Requeued, model.ReasonNone, e, 0, true, hold)
	s.sayBack(j.ID, hold, why, model.ReasonMaxRequeue)
	return true
}

// codes gives what is shown of an exit while the job waits to run again.
func codes(e *model.Exit) *model.Exit {
	return &model.Exit{Code: e.Code, Signal: e.Signal, Worst: e.Worst}
}

func oftenBack(code int32, times uint32) string {
	often := fmt.Sprintf("after it had been put back %d times for its exit codes (MaxBatchRequeue)", times)
	switch times {
	case 0:
		often = "and MaxBatchRequeue is 0"
	case 1:
		often = "after it had been put back once for its exit code (MaxBatchRequeue)"
	}
	return fmt.Sprintf("it ended with exit code %d %s", code, often)
}

// finish ends a job with resources for good, or puts it back into the queue.
func (s *State) finish(j *model.Job, at, when model.Time, state model.JobState, reason model.Reason, exit model.Exit,
	uid uint32, requeue bool, hold model.HoldKind) {
	if state == model.Failed && exit.Unknown && exit.Code == 0 && exit.Signal == 0 {
		exit.Code = 1 // so that the exit code never looks like success
	}
	requeue = (requeue || j.Recurs()) && !s.firstOver(j)
	exit.Worst = 0
	if j.Run != nil {
		exit.Worst = j.Run.Worst
	}
	n := *j
	n.State, n.Reason, n.Why = state, reason, exit.Text
	n.End = &model.End{At: when, Exit: exit, UID: uid}
	s.release(j, at)
	s.charge(&n, at)
	defer s.handOver(j, at)
	if requeue {
		s.record(&n)
		switch unseen := n.Run != nil && n.Run.Launched == 0 && hold == model.NotHeld; {
		case n.Recurs():
			s.mailEnd(&n, at)
		case !unseen || s.now.rules < rulesBrief: // of one that never began its user has heard nothing
			s.mailBack(&n, at)
		}
		s.countArray(n.ArrayID, func(a *Array) { a.Active--; a.Waiting++; a.Back = true })
		if n.Reason == model.ReasonGPUOutOfMemory && n.Spec.Extra().OOMRequeue {
			n.Spec, n.GPUOOMs = s.withGPUMem(&n), n.GPUOOMs+1
		}
		s.requeued(s.rushed(&n, at, hold), at, hold)
		s.allBack(&n, at)
		return
	}
	s.put(&n)
	s.record(&n)
	s.mailEnd(&n, at)
	s.countArray(n.ArrayID, func(a *Array) {
		a.Active--
		s.arrayDone(a, &n, 1)
	})
	s.wake(&n)
	s.withFirst(&n, at)
}

// preemptedFor says for which job another one goes. With PrivateData=jobs its user is not told of other users' jobs:
// the text becomes a part of the job's record.
func (s *State) preemptedFor(j *model.Job) string {
	id := j.Run.StopFor
	by, _ := s.jobs.Get(id)
	if id == 0 || s.now.rules >= rulesWeighed && slices.Contains(s.cfg.Params.PrivateData, "jobs") &&
		(by == nil || by.Spec.UID != j.Spec.UID) {
		return ""
	}
	return fmt.Sprintf("preempted for job %d", id)
}

func requeuedBy(j *model.Job) string {
	if j.Run.StopUID == j.Spec.UID {
		return "put back into the queue by its owner"
	}
	return fmt.Sprintf("put back into the queue by user id %d", j.Run.StopUID)
}

// howEnded gives the text about a job's end for jobs that depend on it.
func howEnded(j *model.Job) string {
	id := fmt.Sprint(j.ID)
	if j.ArrayID != 0 && j.Task != model.NoTask {
		id = fmt.Sprintf("%d_%d", j.ArrayID, j.Task)
	}
	return "job " + id + " ended " + j.State.String()
}

func (s *State) arrayDone(a *Array, j *model.Job, tasks int32) {
	if e := j.End; e != nil {
		if a.Done == 0 {
			a.LeastExit = e.Exit.Code
		}
		a.LeastExit, a.MostExit = min(a.LeastExit, e.Exit.Code), max(a.MostExit, e.Exit.Code)
		a.MaxExit, a.MaxSignal = max(a.MaxExit, exitNumber(j)), max(a.MaxSignal, e.Exit.Signal)
	}
	a.Done += tasks
	if j.State != model.Completed && a.Culprit == "" {
		a.Culprit = howEnded(j)
	}
	switch j.State {
	case model.Completed:
	case model.Cancelled:
		a.Failed += tasks
	default:
		a.Failed += tasks
		a.Ill += tasks
	}
	if a.Done == a.Total {
		s.mailArrayEnd(a, j)
	}
}

// exitNumber gives the exit status that a shell would see: the exit code, 128 plus the signal, or 1 for a job that
// never ran.
func exitNumber(j *model.Job) int32 {
	switch e := j.End.Exit; {
	case e.Code != 0:
		return e.Code
	case e.Signal != 0:
		return 128 + e.Signal
	case j.State != model.Completed:
		return 1
	}
	return 0
}

// requeued publishes j as a pending job again, as its next attempt. A hold that it got while it ran counts now.
func (s *State) requeued(j *model.Job, at model.Time, hold model.HoldKind) {
	n := *j
	n.State, n.Run, n.End, n.Eligible = model.Pending, nil, nil, 0
	n.Attempt = s.nextAttempt(j)
	n.Restarts++
	n.Undue = n.Recurs() && !retries(j)
	if s.doubtsJob(&n) != "" {
		hold = max(hold, model.HeldByUser)
	}
	n.Hold = s.heldWith(&n, max(hold, j.Hold))
	s.judge(&n, at)
	s.put(&n)
	s.record(&n)
	s.holdAll(&n, at)
}

// maxGivenUp bounds the attempts whose end may still become known; the oldest jobs' are dropped.
const maxGivenUp = 1024

// attemptKey orders attempts by job.
type attemptKey struct {
	job     model.JobID
	attempt uint32
}

func attemptLess(a, b attemptKey) bool {
	if a.job != b.job {
		return a.job < b.job
	}
	return a.attempt < b.attempt
}

// lastAttempt is an attempt with the job as it was at its end.
type lastAttempt struct {
	attemptKey
	job *model.Job
}

func newGivenUp() *btree.BTreeG[lastAttempt] {
	return btree.NewBTreeGOptions(func(a, b lastAttempt) bool { return attemptLess(a.attemptKey, b.attemptKey) }, noLocks)
}

// remember keeps an attempt that was given up with its node: the node may come back and know how it ended.
func (s *State) remember(j *model.Job) {
	s.givenUp.Set(lastAttempt{attemptKey{j.ID, j.Attempt}, j})
	if s.givenUp.Len() > maxGivenUp {
		s.givenUp.PopMin()
	}
}

// rememberCut remembers an attempt that is given up with the node of its script, unless nobody can know how it ended.
func (s *State) rememberCut(j *model.Job, why string, end model.End) {
	if why == whyRebooted || why == whyForgot {
		return
	}
	n := *j
	n.State, n.Reason, n.End = model.NodeFail, model.ReasonNodeDown, &end
	s.remember(&n)
}

// correct takes the end of an attempt that was given up with its node before it was heard of: its record gets the true
// state, exit code and time, and its user is charged for that time only. What has followed from the job's end
// meanwhile stays: a later attempt, jobs that depend on it, mail. It reports whether it knows such an attempt.
func (s *State) correct(at model.Time, r *Report) bool {
	was, ok := s.givenUp.Get(lastAttempt{attemptKey: attemptKey{r.Job, r.Attempt}})
	if !ok || placeOf(was.job, r) != 0 {
		return false
	}
	s.givenUp.Delete(was)
	gaveUp := was.job.End.At
	if r.Exit.Unknown && !r.Exit.CutOff || r.At > gaveUp { // it was ended because it was given up
		return true
	}
	cur, _ := s.jobs.Get(r.Job)
	same := cur != nil && cur.Attempt == r.Attempt
	if same && cur.State == model.Completing { // it ends as is known now, when nothing of it is left on other nodes
		s.endsSo(cur, r, gaveUp, at)
		return true
	}
	present := same && cur.State == model.NodeFail
	n := *was.job
	if present {
		n = *cur
	}
	exit := r.Exit
	n.State, n.Reason = exit.State()
	if n.State != model.NodeFail {
		run := *n.Run
		run.FailedNode = ""
		if s.now.rules >= rulesOwed && run.Stop == model.StopNodeFail {
			run.Stop, run.StopWhy = model.NoStop, ""
		}
		n.Run = &run
	}
	exit.Text = lateText(exit.Text, was.job.Run.Alloc.Nodes[0].Node)
	n.Why = exit.Text
	n.End = &model.End{At: max(s.plausible(r.At, n.Run.Start, gaveUp, at), n.Run.SizedAt()), Exit: exit, UID: n.End.UID}
	if s.now.rules >= rulesOwed && s.unbegun(was.job) {
		s.owe(&n, at)
	} else {
		s.refund(&n, gaveUp, at)
	}
	if !present {
		s.queueRecord(&n)
		return true
	}
	s.put(&n)
	s.record(&n)
	if n.State == model.Completed {
		s.countArray(n.ArrayID, func(a *Array) { a.Failed, a.Ill = max(0, a.Failed-1), max(0, a.Ill-1) })
	}
	return true
}

// endsSo gives a job that was given up with its first node, and still ends, the end that is known now.
func (s *State) endsSo(j *model.Job, r *Report, gaveUp, at model.Time) {
	end := max(s.plausible(r.At, j.Run.Start, gaveUp, at), j.Run.SizedAt())
	unseen := s.now.rules >= rulesWeighed && j.Run.Launched == 0 // nothing of it was counted
	if j.Run.Uncounted && j.Run.Sleep == model.Awake && !unseen {
		s.unmeter(j, gaveUp-end, at)
	}
	n := s.change(j, func(run *model.Run) {
		run.Over = &model.End{At: end, Exit: r.Exit}
		if run.Stop == model.StopNodeFail {
			run.Stop, run.StopWhy, run.FailedNode = model.NoStop, "", ""
		}
	})
	if s.now.rules >= rulesOwed && unseen && n.Run.Uncounted && !n.Run.Unbegun(&r.Exit) {
		s.amend(n, n.Run.SizedAt(), end, at, 1)
	}
}

func lateText(text, node string) string {
	late := "known only after node " + node + " had been given up"
	if text == "" {
		return late
	}
	return text + " (" + late + ")"
}

// rushed gives the job as it goes back into the queue: with --requeue=expedite, and lost to a fault of a node, before
// others, and with a claim to what it had of its other nodes. Nobody else gets that in between, since it is given back
// and claimed in one step. The other components of a heterogeneous job come back as the lost one did.
func (s *State) rushed(j *model.Job, at model.Time, hold model.HoldKind) *model.Job {
	wait := s.cfg.Params.ExpediteHoldS
	rush := s.rushWith(j)
	if j.Spec.Extra().Expedite && faulty(j) && (!j.Recurs() || retries(j)) {
		rush = &model.Rush{At: at, Until: at.Add(wait)}
	}
	if max(hold, j.Hold) != model.NotHeld || rush == nil {
		return j
	}
	n := *j
	n.Rush = rush
	var kept []model.NodeAlloc
	for _, na := range j.Run.Alloc.Nodes {
		if o, ok := s.nodes.Get(na.Node); ok && o.Usable() && na.Node != j.Run.FailedNode &&
			!slices.Contains(j.Avoid, na.Node) {
			na.Since = 0
			kept = append(kept, na)
		}
	}
	if len(kept) > 0 && wait > 0 && (j.Het == nil || s.now.rules >= rulesLast) {
		n.Claim = &model.Claim{Partition: j.Run.Partition, Alloc: &model.Alloc{Nodes: kept}}
	}
	return &n
}

// rushWith gives the Rush of another component of j's job, with which j was put back into the queue; nil: it was not.
func (s *State) rushWith(j *model.Job) (rush *model.Rush) {
	if j.Het == nil || j.Run.Stop != model.StopRequeue || s.now.rules < rulesLast {
		return nil
	}
	s.others(j, func(o *model.Job) {
		if rush == nil {
			rush = o.Rush
		}
	})
	return rush
}

// faulty reports whether a fault of a node has ended a job.
func faulty(j *model.Job) bool {
	switch j.Run.Stop {
	case model.StopProlog, model.StopLaunch, model.StopNodeFail, model.StopUnitFault:
		return true
	case model.NoStop:
		return j.State == model.NodeFail || j.Run.BadEpilog
	}
	return false
}
