package state

import (
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
	s.stir(j, &run, at)
	run.Over = &model.End{At: max(plausible(r.At, run.Start, at), run.SizedAt()), Exit: r.Exit}
	n.Run, n.State = &run, model.Completing
	s.put(&n)
	if j.State != model.Completing {
		s.countEnding(&n)
	}
	if j.State == model.Configuring {
		s.wake(&n) // as in stopRunning
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
	case s.closing(j):
		s.change(j, func(run *model.Run) { run.Program = model.CtldEpilog })
	case j.Run.Over != nil:
		s.ended(j, at, j.Run.Over.At, j.Run.Over.Exit)
	default:
		s.ended(j, at, r.At, r.Exit)
	}
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
	j = s.change(j, func(run *model.Run) {
		run.Busy, run.Unready = run.Busy.Minus(bit(k)), run.Unready.Minus(bit(k))
		if k == 0 && run.Over == nil {
			s.stir(j, run, at)
			run.Over = &model.End{At: at, Exit: exit}
		}
	})
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
	case j.Run.Program == model.CtldEpilog && j.Run.Over != nil:
		s.ended(j, at, j.Run.Over.At, j.Run.Over.Exit)
	case j.Run.Program == model.CtldEpilog:
		s.ended(j, at, at, model.Exit{})
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
	if !j.Spec.Requeue && !r.ForceRequeue {
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
