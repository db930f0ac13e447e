package ctld

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gbatch/ctld/present"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// nodeask.go sends single nodes questions over their sessions: usage of steps, lists of steps, a self-check; and
// requests that a caller waits for: to signal jobs and steps, or to divide GPUs. What a node has not answered has
// failed for the caller, though it may still come late. Orders, which are repeated until they are carried out, are sent
// by dispatch.go.

const maxAsks = 64 // unanswered questions on one session

// asks are the questions that a node has not answered.
type asks struct {
	mu   sync.Mutex
	next uint64
	open map[uint64]chan *proto.NodeAnswer
}

// ask sends a question; cancel must follow.
func (s *session) ask(m proto.NodeAsk) (answer <-chan *proto.NodeAnswer, cancel func(), err error) {
	a := &s.asks
	a.mu.Lock()
	if len(a.open) >= maxAsks {
		a.mu.Unlock()
		return nil, nil, fmt.Errorf("%d questions to it are under way", maxAsks)
	}
	if a.open == nil {
		a.open = map[uint64]chan *proto.NodeAnswer{}
	}
	a.next++
	id := a.next
	c := make(chan *proto.NodeAnswer, 1)
	a.open[id] = c
	a.mu.Unlock()
	cancel = func() {
		a.mu.Lock()
		delete(a.open, id)
		a.mu.Unlock()
	}
	m.ID = id
	body, err := proto.Encode(&m)
	if err == nil {
		err = s.conn.WriteFrame(proto.KindNodeAsk, 0, 0, body)
	}
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return c, cancel, nil
}

// answered passes an answer to its waiter; a late answer is dropped.
func (s *session) answered(m *proto.NodeAnswer) {
	s.asks.mu.Lock()
	c := s.asks.open[m.ID]
	delete(s.asks.open, m.ID)
	s.asks.mu.Unlock()
	if c != nil {
		c <- m // it has room for one, and there is only one
	}
}

const (
	reachWithin = 3 * time.Second // after a leader's begin: nodes find it, or are down; likewise after a session's end
	reachPace   = 20 * time.Millisecond
)

var errAway = errors.New("its gnoded is not connected")

// reach gives a node's session, nil for none. A leader that has just begun waits for the node to find it, and one whose
// session has just ended is waited for too: its gnoded may be starting again.
func (c *Controller) reach(ctx context.Context, node string) *session {
	for {
		s := c.nodes.session(node)
		switch {
		case s != nil || ctx.Err() != nil:
			return s
		case c.nodes.leadsMS(time.Now()) > reachWithin.Milliseconds():
			c.nodes.back(ctx, []string{node}, reachWithin)
			return c.nodes.session(node)
		}
		pause(ctx, reachPace)
	}
}

// askNode asks a node and waits for its answer until ctx ends.
func (c *Controller) askNode(ctx context.Context, node string, m proto.NodeAsk) (*proto.NodeAnswer, error) {
	s := c.reach(ctx, node)
	if s == nil {
		return nil, errAway
	}
	answer, cancel, err := s.ask(m)
	if err != nil {
		return nil, err
	}
	defer cancel()
	begin, reboots := time.Now(), m.Reboot != ""
	heard := func(m *proto.NodeAnswer) (*proto.NodeAnswer, error) {
		if m.Failed != "" && !reboots { // why it can't reboot is an answer
			return nil, errors.New(m.Failed)
		}
		return m, nil
	}
	select {
	case m := <-answer:
		return heard(m)
	case <-s.over:
		select {
		case m := <-answer: // its last word
			return heard(m)
		default:
			return nil, errors.New("its connection ended before it answered")
		}
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer in %v", time.Since(begin).Round(time.Second))
	}
}

// tells are what nodes are asked to do to running jobs and steps, by node.
type tells struct {
	asks map[string]*tellNode
}

// tellNode is for one node.
type tellNode struct {
	steps   []proto.StepTell
	signals []*proto.Stop
	ofSteps []int // for each of steps the place of its result
	ofJobs  []int // for each of signals likewise
}

func (t *tells) at(node string) *tellNode {
	if t.asks == nil {
		t.asks = map[string]*tellNode{}
	}
	if t.asks[node] == nil {
		t.asks[node] = &tellNode{}
	}
	return t.asks[node]
}

// add adds a request for a step of a running job, for the node that manages it; place is that of its result.
func (t *tells) add(place int, j *model.Job, tell proto.StepTell) {
	n := t.at(j.Run.Alloc.Nodes[0].Node)
	tell.Job, tell.Attempt = j.ID, j.Attempt
	n.steps, n.ofSteps = append(n.steps, tell), append(n.ofSteps, place)
}

// signal adds a signal or a message for a job, for the first of its nodes; place is that of its result.
func (t *tells) signal(place int, j *model.Job, nodes int, st proto.Stop) {
	st.Job, st.Attempt = j.ID, j.Attempt
	for k := range j.Run.Alloc.Nodes[:nodes] {
		n := t.at(j.Run.Alloc.Nodes[k].Node)
		n.signals, n.ofJobs = append(n.signals, &st), append(n.ofJobs, place)
	}
}

// tellNodes asks all nodes at the same time: one that does not answer costs the others nothing. A result says so if a
// node did not answer, or if none of the steps that were meant is there.
func (c *Controller) tellNodes(ctx context.Context, t *tells, results []proto.TargetResult) {
	ctx, cancel := context.WithTimeout(ctx, statWait)
	defer cancel()
	var mu sync.Mutex
	var each sync.WaitGroup
	said := map[int]bool{}
	silent := func(i int, text string) { results[i].Code, results[i].Text = proto.CodeBusy, text }
	for node, n := range t.asks {
		if len(n.steps) > 0 {
			each.Go(func() {
				m, err := c.askNode(ctx, node, proto.NodeAsk{Tell: n.steps})
				mu.Lock()
				defer mu.Unlock()
				for k, i := range n.ofSteps {
					if err != nil {
						silent(i, fmt.Sprintf("node %s, which manages the step, does not answer: %v", node, err))
					}
					said[i] = said[i] || err != nil || k < len(m.Known) && m.Known[k]
				}
			})
		}
		if len(n.signals) > 0 {
			each.Go(func() {
				err := c.signalNode(ctx, node, n.signals)
				mu.Lock()
				defer mu.Unlock()
				for _, i := range n.ofJobs {
					if err != nil {
						silent(i, err.Error())
					}
				}
			})
		}
	}
	each.Wait()
	for _, n := range t.asks {
		for _, i := range n.ofSteps {
			if !said[i] {
				results[i].Code, results[i].Text = proto.CodeAlreadyDone, proto.Text(proto.CodeAlreadyDone)
			}
		}
	}
}

// signalNode has a node send signals and messages, and waits until it has.
func (c *Controller) signalNode(ctx context.Context, node string, list []*proto.Stop) error {
	m, err := c.askNode(ctx, node, proto.NodeAsk{Signals: list})
	switch {
	case errors.Is(err, errAway):
		return fmt.Errorf("%w: nothing was sent to node %s", err, node)
	case err != nil:
		return fmt.Errorf("%w: node %s may still do it", err, node)
	case int(m.Signalled) < len(list): // a gnoded of before
		c.nodes.stop(node, list[max(m.Signalled, 0):]...)
	}
	return nil
}

// notify adds a line for the output of a job's script or of the command that waits for it.
func (t *tells) notify(c *Controller, v *state.View, place int, target model.JobRef, set []model.KV) (proto.Code,
	string) {
	if len(set) != 1 || set[0].Value == "" || len(set[0].Value) > proto.MaxFieldBytes {
		return proto.CodeBadRequest, fmt.Sprintf("a message has 1 to %d bytes", proto.MaxFieldBytes)
	}
	told := false
	for _, j := range resolve(v, target) {
		if present.HasCommand(j) && !j.State.Finished() && c.words.Say(j.ID, set[0].Value, time.Now()) {
			told = true
		}
		if j.State == model.Running || j.State == model.Suspended {
			told = true
			t.signal(place, j, 1, proto.Stop{Tell: true, Line: set[0].Value})
		}
	}
	if !told {
		return proto.CodeBadRequest, "the job does not run"
	}
	return 0, ""
}
