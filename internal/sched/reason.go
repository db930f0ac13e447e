package sched

import "gbatch/internal/model"

// Every job that is looked at and does not start gets a reason. One that waits in several partitions gets the one that
// says most; a plan names only those that are new, so that a queue at rest gives an empty plan.

// reason is why a job waits, as far as one pass has found out.
type reason struct {
	model.Reason
	why string
}

// weight orders the reasons of one job in different partitions: where it is next in line beats where it may not run.
func weight(r model.Reason) int {
	switch r {
	case model.ReasonJobArrayTaskLimit:
		return 5
	case model.ReasonResources:
		return 4
	case model.ReasonPriority:
		return 3
	case model.ReasonReqNodeNotAvail:
		return 2
	case model.ReasonPartitionDown, model.ReasonPartitionInactive, model.ReasonBadConstraints:
		return 0
	}
	return 1
}

func (p *planner) because(j *model.Job, r model.Reason, why string) {
	old, have := p.reasons[j.ID]
	if !have {
		p.said = append(p.said, j)
	}
	if !have || weight(r) > weight(old.Reason) {
		p.reasons[j.ID] = reason{r, why}
	}
}

// refuseAll gives the head of a queue that starts nothing a reason.
func (p *planner) refuseAll(l *lane, r model.Reason, why string) {
	for _, j := range l.jobs {
		p.because(j, r, why)
	}
}

// What people read behind a reason.
const (
	nodesAway = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
	noNodes   = "no nodes of the partition, even if all of them were up and empty, hold the job"
)

// blocked deals with a job that does not fit. It blocks its lane, unless it would not fit if all the nodes that are up
// were empty: then it waits for nodes to come back, and those behind it need not wait for them too.
func (p *planner) blocked(l *lane, j *model.Job, rq *Request, sh *shape) {
	if l.away < p.policy.Depth {
		if !sh.seen {
			sh.none, sh.seen = p.whyNot(l, rq), true
		}
		switch sh.none {
		case model.ReasonNone:
		case model.ReasonReqNodeNotAvail:
			l.away++
			p.because(j, sh.none, nodesAway)
			return
		default:
			l.away++
			p.because(j, sh.none, noNodes)
			return
		}
	}
	l.block = j
	l.keep()
}

// whyNot tells why a request would not fit on the lane's nodes with nothing on them, if so.
func (p *planner) whyNot(l *lane, rq *Request) model.Reason {
	if l.all == nil {
		for _, name := range l.part.Nodes {
			n := p.v.Node(name)
			if n == nil {
				continue
			}
			r := p.stock.empty(n.Def)
			l.all = append(l.all, r)
			if n.Usable() {
				l.empty = append(l.empty, r)
			}
		}
		inOrder(l.all)
		inOrder(l.empty)
	}
	if a, _, _ := lay(l.empty, 0, rq, l.part.Name); a != nil {
		return model.ReasonNone
	}
	if a, _, _ := lay(l.all, 0, rq, l.part.Name); a != nil {
		return model.ReasonReqNodeNotAvail
	}
	return model.ReasonBadConstraints
}

// explain gives the job that blocks a lane the reason Resources, and those behind it Priority.
func (p *planner) explain(l *lane) {
	if l.block == nil {
		return
	}
	p.because(l.block, model.ReasonResources, "")
	for n := 0; n < p.policy.Depth; n++ {
		if l.next == len(l.jobs) {
			if p.refill(l); len(l.jobs) == 0 {
				return
			}
		}
		p.because(l.jobs[l.next], model.ReasonPriority, "")
		l.next++
	}
}

// say puts what is new of the reasons into the plan.
func (p *planner) say() {
	for _, j := range p.said {
		r := p.reasons[j.ID]
		if p.last[j.ID] == allStarted || j.Reason == r.Reason && j.Why == r.why {
			continue
		}
		p.plan.Reasons = append(p.plan.Reasons, model.ReasonSet{Job: j.ID, Reason: r.Reason, Why: r.why})
	}
}
