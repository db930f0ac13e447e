package model

import (
	"fmt"
	"strings"
)

// endtext.go says in a sentence how a job ended: the text in its record, or one made from its state and exit status.
// Every command that shows an ended job shows this sentence, from the queue and from accounting.

// ending has the data for the sentence.
type ending struct {
	state  JobState
	reason Reason
	why    string
	exit   Exit
	began  bool
	limitS int64
	owner  uint32
	by     uint32 // who cancelled it
	node   string
}

// EndText says why an ended job did not complete; "" for a job that completed or has not ended.
func (j *Job) EndText() string {
	if !j.State.Finished() || j.End == nil {
		return ""
	}
	e := ending{state: j.State, reason: j.Reason, why: j.Why, exit: j.End.Exit, owner: j.Spec.UID, by: j.End.UID}
	if j.Run != nil {
		e.began, e.limitS, e.node = true, j.Run.LimitS, j.Run.FailedNode
	}
	return e.text()
}

// EndText says why a job did not complete, as Job.EndText does.
func (r *Record) EndText() string {
	if r.End == 0 {
		return ""
	}
	return ending{r.State, r.Reason, r.Why, r.Exit, r.Start != 0, r.LimitS, r.UID, r.CancelUID, r.FailedNode}.text()
}

// SystemText is the part of EndText for which Slurm has no field: the cluster's own observation. It is "" if state and
// exit status say everything. Operators can put another text in its place.
func (r *Record) SystemText() string {
	if text, ok := r.NotedAs(NotedSystem); ok {
		return text
	}
	if r.End == 0 {
		return ""
	}
	return r.Why
}

// StopText says why a job is being ended; "" for a job that ends by itself.
func (j *Job) StopText() string {
	if j.State != Completing || j.Run == nil || j.Run.Stop == NoStop {
		return ""
	}
	if j.Run.StopWhy != "" {
		return j.Run.StopWhy
	}
	if j.Run.Fault != "" {
		return j.Run.Fault
	}
	e := ending{owner: j.Spec.UID, by: j.Run.StopUID, began: true, limitS: j.Run.LimitS, reason: ReasonTimeLimit,
		node: j.Run.FailedNode}
	switch j.Run.Stop {
	case StopCancel:
		e.state = Cancelled
	case StopTimeLimit:
		e.state = Timeout
	case StopPreempt, StopPreemptCancel:
		e.state = Preempted
	case StopDeadline:
		e.state = Deadline
	case StopNodeFail, StopUnitFault:
		e.state = NodeFail
	case StopRequeue, StopRequeueHold:
		return "put back into the queue"
	}
	return e.text()
}

// SystemText is the cluster's observation of an ended job's failure, as in Record.SystemText.
func (j *Job) SystemText() string {
	if !j.State.Finished() {
		return ""
	}
	return j.Why
}

// AdminText is a job's AdminComment: the operators' text or, for an ended job without one, SystemText.
func (j *Job) AdminText() string {
	if j.Comment != "" {
		return j.Comment
	}
	return j.SystemText()
}

// FailedNode names the node whose failure ended the job's last run; "" if none did.
func (j *Job) FailedNode() string {
	if j.Run == nil {
		return ""
	}
	return j.Run.FailedNode
}

func (e ending) text() string {
	if e.why != "" {
		return e.why
	}
	switch e.state {
	case Failed:
		return e.failed()
	case Timeout:
		if e.reason != ReasonTimeLimit && e.reason != ReasonNone {
			return "a limit in minutes has run out: " + e.reason.String()
		}
		return "reached its time limit of " + clock(e.limitS)
	case OutOfMemory:
		return "ran out of memory"
	case NodeFail:
		if e.node != "" {
			return "node " + e.node + " failed"
		}
		return "one of its nodes failed"
	case BootFail:
		return "its nodes could not be booted"
	case Preempted:
		return "preempted by a job of higher priority"
	case Deadline:
		if !e.began {
			return "could not start early enough to end before its deadline (--deadline)"
		}
		return "reached its deadline (--deadline)"
	case Requeued:
		return "put back into the queue"
	case Resizing:
		return "went on with other nodes"
	case Cancelled:
		switch {
		case e.reason == ReasonDependencyNeverSatisfied:
			return "cancelled: its dependency can't be fulfilled any more"
		case e.by == e.owner:
			return "cancelled by its owner"
		}
		return fmt.Sprintf("cancelled by user id %d", e.by)
	}
	return ""
}

func (e ending) failed() string {
	switch x := &e.exit; {
	case x.Unknown:
		return "exit status unknown"
	case x.Signal != 0:
		return fmt.Sprintf("its script was ended by signal %d", x.Signal)
	case x.Code == 126:
		return "its script ended with exit code 126: as a rule a command that may not be executed"
	case x.Code == 127:
		return "its script ended with exit code 127: as a rule a command that was not found"
	case x.Code != 0:
		return fmt.Sprintf("its script ended with exit code %d", x.Code)
	}
	return "failed: " + e.reason.String()
}

// clock writes seconds as a time limit: 01:30:00, 2-00:00:00.
func clock(s int64) string {
	if s >= Unlimited || s < 0 {
		return "UNLIMITED"
	}
	text := fmt.Sprintf("%02d:%02d:%02d", s%86400/3600, s%3600/60, s%60)
	if days := s / 86400; days > 0 {
		text = fmt.Sprintf("%d-%s", days, text)
	}
	return text
}

// NeverText says why a dependency can't be fulfilled any more.
func (d *Dep) NeverText() string {
	text := fmt.Sprintf("waits for %s:%d", d.Kind, d.Job)
	if d.Task != NoTask {
		text += fmt.Sprintf("_%d", d.Task)
	}
	text += ", which can't come true any more"
	if d.Why != "" {
		text += ": " + d.Why
	}
	return text
}

// NeverText says which of a job's dependencies can't be fulfilled any more, and why.
func (j *Job) NeverText() string {
	var out []string
	for i := range j.Deps {
		if d := &j.Deps[i]; d.Failed && len(out) < maxNeverTold {
			out = append(out, d.NeverText())
		}
	}
	return strings.Join(out, "; ")
}

// maxNeverTold bounds the dependencies that one sentence names.
const maxNeverTold = 4
