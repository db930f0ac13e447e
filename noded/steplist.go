package noded

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// steplist.go answers the leader's questions about the steps that this node manages, and carries out its orders for
// them.

// msgStepList is a question; the answer always comes.
type msgStepList struct {
	ask   *proto.NodeAsk
	reply chan<- *proto.NodeAnswer // has room
}

func (l *loop) onStepList(m msgStepList) {
	answer := &proto.NodeAnswer{ID: m.ask.ID}
	if m.ask.Steps {
		for _, key := range m.ask.Attempts {
			if a := l.attempts[key]; a != nil && a.will == wanted {
				for _, s := range a.steps {
					if proto.IsAside(s.id) {
						continue
					}
					answer.Steps = append(answer.Steps, l.runningStep(s))
				}
			}
		}
	}
	if m.ask.Ended {
		answer.Steps = append(answer.Steps, l.endedSteps(m.ask.Attempts)...)
	}
	for _, t := range m.ask.Tell {
		answer.Known = append(answer.Known, l.tellStep(&t))
	}
	l.soon(func() { m.reply <- answer })
}

// Steps that have ended are remembered for a while, longer than a query of accounting takes.
const (
	endedFor  = 20 * time.Second
	mostEnded = 1 << 12
)

// noteEnded remembers a step's end.
func (l *loop) noteEnded(r *proto.Report) {
	old, gone := l.endedSince(), 0
	for gone < len(l.ended) && (l.ended[gone].At < old || len(l.ended)-gone >= mostEnded) {
		gone++
	}
	l.ended = append(slices.Delete(l.ended, 0, gone), r)
}

func (l *loop) endedSince() model.Time { return l.stamp().Add(-int64(endedFor / time.Second)) }

// endedSteps gives the steps of attempts that have just ended.
func (l *loop) endedSteps(of []proto.Attempt) (out []proto.RunningStep) {
	asked, old := map[proto.Attempt]bool{}, l.endedSince()
	for _, key := range of {
		asked[key] = true
	}
	for _, r := range l.ended {
		if r.At >= old && asked[reportKey(r)] {
			out = append(out, proto.RunningStep{Job: r.Job, Step: *r.Step})
		}
	}
	return out
}

// runningStep describes a step.
func (l *loop) runningStep(s *step) proto.RunningStep {
	r := proto.RunningStep{Job: s.rec.Job, LimitS: s.rec.LimitS, Step: *s.summary(),
		Host: orElse(s.rec.Host, l.n.opts.Name), PID: s.rec.PID}
	if r.Step.Start = s.began; s.began == 0 {
		r.Step.Start = s.rec.At
	}
	if r.Step.SleptMS = s.rec.Frozen; s.rec.FrozenAt != 0 {
		r.Step.SleepAt = max(s.rec.FrozenAt, s.began)
	}
	if r.LimitS == 0 || r.LimitS > model.Unlimited {
		r.LimitS = model.Unlimited
	}
	return r
}

// summary gives the data of a step that is known as soon as it has its resources.
func (s *step) summary() *model.Step {
	rec := &model.Step{ID: s.id, Name: s.rec.Name, Submit: s.rec.Submit, Container: s.rec.Container}
	for i := range s.rec.Nodes {
		n := &s.rec.Nodes[i]
		rec.Nodes = append(rec.Nodes, n.Node)
		rec.Tasks += int32(len(n.Ranks))
		rec.CPUs += int32(n.CPUs.Count())
		rec.MemMiB += n.MemMiB
		for _, g := range n.Gres {
			rec.AddGres(g.Name, g.Type, int64(g.Index.Count()))
		}
	}
	return rec
}

// tellStep ends or signals a step, or all of a job's, or gives them another time limit, and says whether any was there.
func (l *loop) tellStep(t *proto.StepTell) bool {
	a := l.attempts[proto.Attempt{Job: t.Job, Attempt: t.Attempt}]
	if a == nil || a.will != wanted {
		return false
	}
	known := false
	for id, s := range a.steps {
		if id != t.Step && t.Step != proto.StepAll || s.phase >= stepEnding {
			continue
		}
		known = true
		if t.LimitS > 0 {
			l.limitStep(s, t.LimitS)
			continue
		}
		if t.Signal != 0 && t.Signal != int32(unix.SIGKILL) {
			l.signalStep(s, unix.Signal(t.Signal), func() {})
		} else {
			l.stopStep(s, model.StopCancel, t.UID, t.Signal != 0, l.stepLine(s, ""))
		}
	}
	return known
}

// stepLine is what a step's command prints when the step is ended; why begins with a blank, or is "".
func (l *loop) stepLine(s *step, why string) string {
	return fmt.Sprintf("slurmstepd: error: *** STEP %s ON %s CANCELLED AT %s%s ***", s.name(),
		s.rec.Nodes[0].Node,
		l.now().Format("2006-01-02T15:04:05"), why)
}
