package state

import (
	"fmt"
	"slices"

	"gbatch/internal/model"
)

// launchfail.go handles failed launches, for the job and for the node.
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
