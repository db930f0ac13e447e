package ctld

import (
	"context"
	"fmt"
	"sync"
	"time"

	"gbatch/internal/proto"
)

// nodeask.go sends single nodes questions over their sessions: usage of steps, lists of steps, a self-check; and
// requests to signal steps or divide GPUs. Orders, which are repeated until they are carried out, are sent by
// dispatch.go.

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
	reachWithin = 3 * time.Second // after a leader's begin: nodes find it, or are down
	reachPace   = 20 * time.Millisecond
)

// reach gives a node's session, nil for none. A leader that has just begun waits for the node to find it.
func (c *Controller) reach(ctx context.Context, node string) *session {
	for {
		s := c.nodes.session(node)
		if s != nil || ctx.Err() != nil || c.nodes.leadsMS(time.Now()) > reachWithin.Milliseconds() {
			return s
		}
		pause(ctx, reachPace)
	}
}

// askNode asks a node and waits for its answer until ctx ends.
func (c *Controller) askNode(ctx context.Context, node string, m proto.NodeAsk) (*proto.NodeAnswer, error) {
	s := c.reach(ctx, node)
	if s == nil {
		return nil, fmt.Errorf("its gnoded is not connected")
	}
	answer, cancel, err := s.ask(m)
	if err != nil {
		return nil, err
	}
	defer cancel()
	begin := time.Now()
	select {
	case m := <-answer:
		return m, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer in %v", time.Since(begin).Round(time.Second))
	}
}
