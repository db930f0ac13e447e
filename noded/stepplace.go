package noded

import (
	"errors"
	"fmt"
	"slices"

	"gbatch/internal/proto"
	"gbatch/noded/steplayout"
)

// stepplace.go gives the waiting steps of a job their part of it, in their order, as soon as it is free. The steps of
// one command (grun a : b) begin together or not at all: none holds anything while it waits for another.

// placeSteps starts a job's waiting steps that fit now.
func (l *loop) placeSteps(a *attempt) error {
	waiting := a.queue
	a.queue = a.queue[:0:0]
	for _, group := range ofCommands(waiting) {
		if err := l.placeTogether(a, group); err != nil {
			return err
		}
	}
	return nil
}

// ofCommands gives the steps that begin together, in the order of the first of each.
func ofCommands(waiting []*step) (groups [][]*step) {
	place := map[string]int{}
	for _, s := range waiting {
		if s.req.Command == "" {
			groups = append(groups, []*step{s})
			continue
		}
		at, seen := place[s.req.Command]
		if !seen {
			at = len(groups)
			place[s.req.Command], groups = at, append(groups, nil)
		}
		groups[at] = append(groups[at], s)
	}
	return groups
}

// placed is where a step can begin.
type placed struct {
	nodes []proto.StepNode
	ports string
}

// placeTogether starts the steps of a command if all fit now.
func (l *loop) placeTogether(a *attempt, group []*step) error {
	if rq := group[0].req; rq.Command != "" && len(group) < int(rq.Parts) { // the others are on the way
		a.queue = append(a.queue, group...)
		return nil
	}
	held := a.held()
	where := make([]placed, len(group))
	var own []steplayout.Holding // what those before it in the command will hold
	for i, s := range group {
		nodes, ports, err := l.layout(a, s, slices.Concat(held, own))
		var busy *steplayout.BusyError
		if errors.As(err, &busy) && len(own) > 0 {
			err = l.besideOthers(a, s, held, own, busy)
		}
		switch {
		case err == nil:
			where[i] = placed{nodes, ports}
			if !s.shares() {
				own = append(own, steplayout.Holding{ID: a.nextStep + int32(i), Nodes: placedIn(a.rec.Order.Alloc, nodes)})
			}
		case errors.As(err, &busy) && !s.req.Immediate:
			a.queue = append(a.queue, group...)
			if s.said != busy.Text {
				s.said = busy.Text
				s.send(l, &proto.StepEvent{Kind: proto.StepWaits, Step: s.number, Text: busy.Text})
			}
			return nil
		default: // its command gives up the others
			l.refuseStep(s.conn, "Unable to create step for job %d: %s", a.key.Job, err.Error())
			s.conn.step = nil
			a.queue = append(a.queue, slices.Delete(group, i, i+1)...)
			return nil
		}
	}
	for i, s := range group {
		if i > 0 { // those before it may hold ports that were free
			var err error
			if where[i].ports, err = l.choosePorts(a, s.req, where[i].nodes); err != nil {
				l.refuseStep(s.conn, "Unable to create step for job %d: %s", a.key.Job, err.Error())
				s.conn.step = nil
				a.queue = append(a.queue, group[i+1:]...) // its command gives up the others
				break
			}
		}
		if err := l.createStep(s, where[i].nodes, where[i].ports); err != nil {
			return err
		}
	}
	return nil
}

// besideOthers says why a step doesn't fit that comes after others of its command: it waits, or never fits beside them.
func (l *loop) besideOthers(a *attempt, s *step, held, own []steplayout.Holding, busy error) error {
	if _, _, err := l.layout(a, s, own); err != nil {
		return errors.New("there is no room in the job beside the command's other components: ask for a larger job, or " +
			"share with --overlap")
	}
	var alone *steplayout.BusyError
	if _, _, err := l.layout(a, s, held); errors.As(err, &alone) {
		return alone
	}
	return &steplayout.BusyError{Text: "other steps hold what the components of the command need together"}
}

// layout gives the nodes on which a step can begin, and its ports.
func (l *loop) layout(a *attempt, s *step, held []steplayout.Holding) (nodes []proto.StepNode, ports string,
	err error) {
	j := &steplayout.Job{ID: a.key.Job, Spec: a.rec.Order.Spec, Alloc: a.rec.Order.Alloc}
	var parent []proto.StepNode
	if p := a.steps[s.req.Parent]; p != nil {
		parent = placedIn(j.Alloc, p.rec.Nodes)
	}
	switch {
	case s.req.Receive != nil:
		nodes = steplayout.OneOnEach(j, parent)
	case s.req.Interactive:
		nodes = steplayout.FirstNode(j)
	default:
		nodes, err = steplayout.Layout(j, held, parent, &s.req.Need)
	}
	if err == nil && a.suspended() { // its tasks would freeze between fork and exec, with what gshim holds for them
		err = &steplayout.BusyError{Text: fmt.Sprintf("job %d is suspended", a.key.Job)}
	}
	if err == nil && s.req.Receive == nil {
		err = steplayout.CheckTasks(nodes, l.n.configured().MaxTasks)
	}
	if err == nil {
		ports, err = l.choosePorts(a, s.req, nodes)
	}
	return nodes, ports, err
}

// shares reports whether a step takes nothing from others.
func (s *step) shares() bool {
	return s.req.Need.Overlap || s.job.steps[s.req.Parent] != nil || s.req.Receive != nil || s.req.Interactive
}

// held gives the resources that the job's steps hold and don't share.
func (a *attempt) held() []steplayout.Holding {
	var out []steplayout.Holding
	for _, s := range a.steps {
		if !s.rec.Shared {
			out = append(out, steplayout.Holding{ID: s.id, Nodes: placedIn(a.rec.Order.Alloc, s.rec.Nodes)})
		}
	}
	slices.SortFunc(out, func(x, y steplayout.Holding) int { return int(x.ID - y.ID) })
	return out
}
