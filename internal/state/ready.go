package state

import (
	"fmt"
	"slices"

	"gbatch/internal/model"
)

// ready.go handles what runs before and after a job's script: the controller's own programs (Run.Program), prologs on
// every node (Run.Unready), and epilogs. A job stays COMPLETING until each of its nodes has reported its end
// (Run.Busy). For a job on one node without programs, Program is none and both sets are empty.

// Reasons that the state gives a node: Slurm's words, followed by what happened.
const (
	reasonProlog     = "Prolog error"
	reasonEpilog     = "Epilog error"
	reasonUnkillable = "Kill task failed"
)

// firstSteps sets what has to happen before a job that has got its nodes can begin.
func (s *State) firstSteps(run *model.Run) {
	r := &s.cfg.Params.Rules
	if len(r.CtldProlog) > 0 {
		run.Program = model.CtldProlog
	}
	n := len(run.Alloc.Nodes)
	if n < 2 || !r.EachNode(run.Alloc) {
		return
	}
	run.Busy = model.UpTo(n)
	run.Unready = run.Busy
	if r.NoHold {
		run.Unready = run.Busy.Minus(model.UpTo(1))
	}
}

// EndOf gives the reports of a job's end, one for each node that has a part of the job.
func (v *View) EndOf(job model.JobID, attempt uint32, at model.Time) []Report {
	out := []Report{{Kind: Ended, Job: job, Attempt: attempt, At: at}}
	if j := v.Job(job); j != nil && j.Run != nil {
		j.Run.Busy.Minus(model.UpTo(1)).Each(func(k int) bool {
			na := &j.Run.Alloc.Nodes[k]
			out = append(out, Report{Kind: Ended, Job: job, Attempt: attempt, At: at, Node: na.Node, Since: na.Since})
			return true
		})
		for _, l := range j.Run.Leaving {
			out = append(out,
				Report{Kind: Ended, Job: job, Attempt: attempt, At: at, Node: l.Part.Node, Since: l.Part.Since})
		}
	}
	return out
}

// placeOf gives the index of the reporting node among the job's nodes; -1 if it is none of them, or reports on a part
// that it had before the job gave it up and got it again.
func placeOf(j *model.Job, r *Report) int {
	if r.Node == "" {
		return 0
	}
	return slices.IndexFunc(j.Run.Alloc.Nodes,
		func(na model.NodeAlloc) bool { return na.Node == r.Node && na.Since == r.Since })
}

// reportOf makes a report that a node does not make itself.
func reportOf(j *model.Job, node string, at model.Time) *Report {
	r := &Report{Kind: Ended, At: at, Node: node}
	if na := j.Run.Part(node); na != nil {
		r.Since = na.Since
	}
	return r
}

func nodeOf(j *model.Job, r *Report) string {
	if r.Node == "" {
		return j.Run.Alloc.Nodes[0].Node
	}
	return r.Node
}

func nodeFault(r *Report) string {
	word := reasonEpilog
	if r.Kind == Unkillable {
		word = reasonUnkillable
	}
	if r.Text == "" {
		return word
	}
	return word + ": " + r.Text
}

func bit(i int) model.Bits { return model.Bits(nil).With(i) }

// change publishes j with another run.
func (s *State) change(j *model.Job, edit func(*model.Run)) *model.Job {
	n, run := *j, *j.Run
	edit(&run)
	n.Run = &run
	s.put(&n)
	return &n
}

// drain takes a node out of service, with a reason. An earlier reason of an operator or another fault stays.
func (s *State) drain(node, reason string, at model.Time) bool {
	old, ok := s.nodes.Get(node)
	if !ok || old.Admin != model.NodeUp {
		return false
	}
	n := *old
	n.Admin, n.Reason, n.ReasonBy, n.ReasonAt = model.NodeDrain, reason, byGbatch, at
	s.putNode(node, &n)
	return true
}

// countEnding counts a job that becomes COMPLETING on its nodes.
func (s *State) countEnding(j *model.Job) {
	for i := range j.Run.Alloc.Nodes {
		s.endsAt(j.Run.Alloc.Nodes[i].Node)
	}
}

// endsAt counts a job that begins to end on one node.
func (s *State) endsAt(name string) {
	if old, ok := s.nodes.Get(name); ok {
		n := *old
		n.Ending++
		s.putNode(name, &n)
	}
}

// nodeReady records that a node has run its prolog.
func (s *State) nodeReady(j *model.Job, r *Report) bool {
	k := placeOf(j, r)
	if k < 0 || !j.Run.Unready.Has(k) {
		return false
	}
	s.change(j, func(run *model.Run) {
		if run.Unready = run.Unready.Minus(bit(k)); run.Unready.Empty() && run.Version > 0 {
			run.Version++ // the job can use it now
		}
	})
	return true
}

// prologFailed drains the node and ends the job on all its nodes; nodes that have a part of it run their epilogs.
func (s *State) prologFailed(j *model.Job, at model.Time, r *Report) {
	node := nodeOf(j, r)
	s.drain(node, reasonProlog+": "+r.Text, at)
	if j.State == model.Completing {
		return // it is already being ended, for another reason
	}
	if k := placeOf(j, r); s.late(j, k) {
		s.shrink(j, around(j, k), 0, at)
		return
	}
	n := s.change(j, func(run *model.Run) { run.Fault, run.FailedNode = node+": "+r.Text, node })
	s.stopRunning(n, at, model.StopProlog, 0)
}

// scriptEnded keeps how the script ended until the epilogs have run: from then on the job is COMPLETING.
func (s *State) scriptEnded(j *model.Job, at model.Time, r *Report) bool {
	if placeOf(j, r) != 0 || j.Run.Over != nil {
		return false
	}
	s.over(j, at, r)
	return true
}

// over makes a job whose script has ended COMPLETING.
func (s *State) over(j *model.Job, at model.Time, r *Report) *model.Job {
	n, run := *j, *j.Run
	end := max(s.plausible(r.At, run.Start, at, at), run.SizedAt())
	s.sleptUntil(j, &run, end, at)
	run.Over = &model.End{At: end, Exit: r.Exit}
	s.stopMeter(j, &run, at)
	n.Run, n.State = &run, model.Completing
	s.put(&n)
	if j.State != model.Completing {
		s.countEnding(&n)
	}
	if j.State == model.Configuring {
		s.wake(&n) // as in stopRunning
	}
	if n.HasEnded() && s.now.rules >= rulesWeighed {
		s.record(&n) // accounting shows its end, however long the epilogs take
	}
	return &n
}

// partEnded records that nothing of a job is left on one of its nodes, and ends the job with the last one.
func (s *State) partEnded(j *model.Job, at model.Time, r *Report) {
	k := placeOf(j, r)
	busy := j.Run.Busy
	switch {
	case k < 0 || k > 0 && !busy.Has(k):
		return
	case j.Run.Program == model.CtldEpilog && s.now.rules >= rulesBrief: // a repeated report
		return
	case !busy.Empty() && !busy.Has(k):
		return // a repeated report
	case !busy.Empty():
		j = s.change(j, func(run *model.Run) {
			run.Busy, run.Unready = run.Busy.Minus(bit(k)), run.Unready.Minus(bit(k))
		})
	}
	if k == 0 && j.Run.Over == nil && (!j.Run.Busy.Empty() || len(j.Run.Leaving) > 0 || s.closing(j)) {
		j = s.over(j, at, r)
	}
	switch {
	case !j.Run.Busy.Empty() && j.State != model.Completing: // a node has lost its part while the script runs
		s.stopFor(j, nodeOf(j, r), "lost its part of the job", at)
	case !j.Run.Busy.Empty() || len(j.Run.Leaving) > 0:
	default:
		s.lastGone(j, at, model.End{At: r.At, Exit: r.Exit})
	}
}

// lastGone ends a job of which no node has anything any more, after the controller's epilog. If its script's end is not
// known from before, it is end.
func (s *State) lastGone(j *model.Job, at model.Time, end model.End) {
	if s.closing(j) {
		s.change(j, func(run *model.Run) { run.Program = model.CtldEpilog })
		return
	}
	if j.Run.Over != nil {
		end = *j.Run.Over
	}
	s.ended(j, at, end.At, end.Exit)
}

// partMissing handles a node that has registered without knowing a job of its own; it is not the job's first node.
func (s *State) partMissing(j *model.Job, node string, at model.Time) {
	r := reportOf(j, node, at)
	k := placeOf(j, r)
	switch {
	case leavingOf(j, r) >= 0:
		s.left(j, leavingOf(j, r), at)
	case k < 0 || !j.Run.Busy.Has(k):
	case j.State == model.Completing:
		s.partEnded(j, at, r)
	case j.Run.Unready.Has(k): // the node still gets its order
	default:
		s.nodeFailed(j, node, whyForgot, at)
	}
}

// partFailed removes a failed node from the nodes that still have a part of a job, and ends the job on the other nodes.
// It returns the job if that was the last node, otherwise nil.
func (s *State) partFailed(j *model.Job, node, why string, exit model.Exit, at model.Time) *model.Job {
	k := j.Run.Alloc.Place(node)
	if k < 0 || !j.Run.Busy.Has(k) {
		return nil
	}
	cut := k == 0 && j.Run.Over == nil
	j = s.change(j, func(run *model.Run) {
		run.Busy, run.Unready = run.Busy.Minus(bit(k)), run.Unready.Minus(bit(k))
		if cut {
			s.sleptUntil(j, run, at, at)
			run.Over = &model.End{At: at, Exit: exit}
			s.stopMeter(j, run, at)
		}
	})
	if cut && j.State != model.Completing && s.now.rules >= rulesBrief {
		s.rememberCut(j, why, *j.Run.Over)
	}
	if j.Run.Busy.Empty() && len(j.Run.Leaving) == 0 {
		return j
	}
	if j.State != model.Completing {
		s.stopFor(j, node, why, at)
	}
	return nil
}

// closing reports whether EpilogSlurmctld has to run before a job gives its resources back.
func (s *State) closing(j *model.Job) bool {
	return len(s.cfg.Params.Rules.CtldEpilog) > 0 && j.Run.Program != model.CtldEpilog
}

// programPassed lets a job go on after the controller's program that it waited for.
func (s *State) programPassed(j *model.Job, at model.Time) bool {
	switch {
	case j.Run.Program == model.CtldProlog && j.State == model.Configuring:
		s.change(j, func(run *model.Run) { run.Program = model.NoCtldProgram })
	case j.Run.Program == model.CtldProlog: // it was ended meanwhile; no node has a part of it
		s.partsGone(s.change(j, func(run *model.Run) { run.Program = model.NoCtldProgram }), at)
	case j.Run.Program == model.CtldEpilog:
		s.lastGone(j, at, model.End{At: at})
	default:
		return false
	}
	return true
}

// programFailed puts a job back into the queue after a failed PrologSlurmctld. A failed EpilogSlurmctld does not affect
// the job.
func (s *State) programFailed(j *model.Job, at model.Time, r *Report) bool {
	if j.Run.Program != model.CtldProlog || j.State != model.Configuring {
		return s.programPassed(j, at)
	}
	n, run := *j, *j.Run
	run.Program, run.Fault = model.NoCtldProgram, "PrologSlurmctld: "+r.Text
	n.Run = &run
	s.stopRunning(&n, at, model.StopProlog, 0)
	if back, ok := s.jobs.Get(j.ID); ok && back.State == model.Completing {
		s.partsGone(back, at)
	}
	return true
}

// partsGone ends a job that no node knows.
func (s *State) partsGone(j *model.Job, at model.Time) {
	j = s.change(j, func(run *model.Run) { run.Busy, run.Unready = nil, nil })
	s.partEnded(j, at, &Report{Kind: Ended})
}

// afterProlog puts a job whose prolog failed back into the queue, held as in Slurm, or ends it if it must not be
// requeued.
func (s *State) afterProlog(j *model.Job, at, when model.Time) {
	r := &s.cfg.Params.Rules
	why := "Prolog failed on " + j.Run.Fault
	exit := model.Exit{Code: 1, Text: why}
	if !j.Spec.Requeue && !r.ForceRequeue || s.endsHeld(j) && !r.NoHoldOnFail && !j.Spec.Extra().Expedite {
		s.finish(j, at, when, model.Failed, model.ReasonSystemFailure, exit, 0, false, model.NotHeld)
		return
	}
	hold := model.HeldByAdmin
	if r.NoHoldOnFail || j.Spec.Extra().Expedite {
		hold = model.NotHeld
	}
	s.finish(j, at, when, model.Failed, model.ReasonSystemFailure, exit, 0, true, hold)
	s.sayWhy(j.ID, hold, why)
}

// endsHeld reports whether a job ends rather than going back into the queue held: its command would wait for ever.
func (s *State) endsHeld(j *model.Job) bool {
	return j.Spec.Extra().Interactive && s.now.rules >= rulesBrief
}

// sayWhy sets the text of a job that has gone back to the queue: why it went back.
func (s *State) sayWhy(id model.JobID, hold model.HoldKind, why string) {
	s.sayBack(id, hold, why, model.ReasonLaunchFailedRequeued)
}

// sayBack is sayWhy with the reason of a job that is held then.
func (s *State) sayBack(id model.JobID, hold model.HoldKind, why string, reason model.Reason) {
	back, ok := s.jobs.Get(id)
	if !ok || back.State != model.Pending {
		return
	}
	n := *back
	n.Why = why
	if hold == model.HeldByAdmin {
		n.Reason = reason
	}
	s.put(&n)
	s.record(&n)
}

// Failed launches, for the job and for the node.
//
// The job goes back to the queue, waits for a time that doubles with each failure, and avoids that node for avoidS;
// after LaunchRetries failures it is held. The node is drained when it could not launch LaunchDrain distinct jobs in a
// row. So one job that can't be launched anywhere drains no node, and a broken node does not fail the whole queue. A
// launch that works resets both counts.
//
// A job that a node gives back since somebody else has its GPUs counts against neither: the node has said which GPUs
// are out, and the job waits a little longer each time, in case they come and go.

// avoidS is how long a job avoids a node that could not launch it, seconds. It is bounded, because the node may be the
// only one.
const avoidS = 600

// launchFailed handles a report that a node could not start a job.
func (s *State) launchFailed(j *model.Job, at model.Time, r *Report) bool {
	k := placeOf(j, r)
	if k < 0 || k > 0 && !j.Run.Busy.Has(k) {
		return false
	}
	node := nodeOf(j, r)
	if j.State == model.Running || j.State == model.Suspended {
		if k == 0 {
			return false // it has started
		}
	}
	if s.late(j, k) {
		if !r.Taken {
			s.strike(node, j.ID, r.Text, at)
		}
		s.shrink(j, around(j, k), 0, at)
		j, _ = s.jobs.Get(j.ID)
		s.left(j, leavingOf(j, r), at)
		return true
	}
	switch {
	case j.State == model.Completing:
	case r.Taken:
		j = s.change(j, func(run *model.Run) { run.Fault = node + ": " + r.Text })
		s.stopRunning(j, at, model.StopTaken, 0)
		j, _ = s.jobs.Get(j.ID)
	default:
		s.strike(node, j.ID, r.Text, at)
		j = s.change(j, func(run *model.Run) { run.Fault, run.FailedNode = node+": "+r.Text, node })
		s.stopRunning(j, at, model.StopLaunch, 0)
		j, _ = s.jobs.Get(j.ID)
		j = s.avoid(j, node, at)
	}
	s.partEnded(j, at, &Report{Kind: Ended, Job: r.Job, Attempt: r.Attempt, At: r.At, Exit: model.Exit{Text: r.Text},
		Node: r.Node, Since: r.Since})
	return true
}

// avoid adds a node to the nodes that a job avoids for a time.
func (s *State) avoid(j *model.Job, node string, at model.Time) *model.Job {
	n := *j
	if !slices.Contains(n.Avoid, node) {
		n.Avoid = append(slices.Clone(n.Avoid), node)
		if len(n.Avoid) > model.MaxAvoid {
			n.Avoid = n.Avoid[1:]
		}
	}
	n.AvoidUntil = at.Add(avoidS)
	s.put(&n)
	return &n
}

// backFromLaunch puts a job that could not be launched back into the queue, and holds it after too many failures.
func (s *State) backFromLaunch(j *model.Job, at, when model.Time) {
	r := &s.cfg.Params.Rules
	n := *j
	n.Strikes++
	hold := model.HeldByAdmin
	why := "launch failed on " + j.Run.Fault
	exit := model.Exit{Code: 1, Text: why}
	if n.Strikes < uint32(max(1, r.LaunchRetries)) {
		hold = model.NotHeld
		wait := r.LaunchBackoffS << min(n.Strikes-1, 6)
		if n.Spec.Extra().Expedite {
			wait = 0
		}
		n.Begin = at.Add(wait)
		why = fmt.Sprintf("%s; try %d of %d follows after %d s", why, n.Strikes+1, r.LaunchRetries, wait)
	}
	if hold != model.NotHeld && s.endsHeld(j) {
		s.finish(&n, at, when, model.Failed, model.ReasonSystemFailure, exit, 0, false, model.NotHeld)
		return
	}
	s.finish(&n, at, when, model.Failed, model.ReasonSystemFailure, exit, 0, true, hold)
	s.sayWhy(j.ID, hold, why)
}

// Bounds of the time that a job waits which nodes gave back, seconds; it doubles from the first to the last.
const (
	takenWaitS    = 1
	maxTakenWaitS = 256
)

// givenBack puts a job back into the queue that its node could not take: somebody else had its GPUs, or the node's disk
// is full.
func (s *State) givenBack(j *model.Job, at, when model.Time) {
	n := *j
	wait := int64(takenWaitS) << min(n.Returns, 16)
	n.Returns++
	n.Begin = at.Add(min(wait, maxTakenWaitS))
	why := "given back by " + j.Run.Fault
	s.finish(&n, at, when, model.Requeued, model.ReasonNone, model.Exit{Text: why}, 0, true, model.NotHeld)
	s.sayWhy(j.ID, model.NotHeld, why)
}

// strike counts a launch that failed against the node.
func (s *State) strike(node string, job model.JobID, text string, at model.Time) {
	old, ok := s.nodes.Get(node)
	if !ok || slices.Contains(old.Strikes, job) {
		return
	}
	n := *old
	n.Strikes = append(slices.Clone(n.Strikes), job)
	if len(n.Strikes) > model.MaxStrikes {
		n.Strikes = n.Strikes[1:]
	}
	s.putNode(node, &n)
	if limit := int(s.cfg.Params.Rules.LaunchDrain); limit > 0 && len(n.Strikes) >= limit {
		s.drain(node, fmt.Sprintf("%d jobs in a row could not be launched, the last one %d: %s", len(n.Strikes), job, text),
			at)
	}
}

// launchWorked forgets what a node could not launch before.
func (s *State) launchWorked(node string) {
	old, ok := s.nodes.Get(node)
	if !ok || len(old.Strikes) == 0 {
		return
	}
	n := *old
	n.Strikes = nil
	s.putNode(node, &n)
}
