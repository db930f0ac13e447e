package share

import (
	"context"
	"sync"
)

// Gate lets a few in at a time. Those who wait are taken in turns by their names, so one name with many requests is one
// among all. The zero value lets nobody in; see NewGate.
type Gate struct {
	mu    sync.Mutex
	free  int
	lines map[string][]*ticket
	turns []string // names with a line, the next one first
}

type ticket struct {
	in   chan struct{}
	gone bool // under the gate's lock
}

// NewGate gives a gate for n at a time.
func NewGate(n int) *Gate { return &Gate{free: n, lines: map[string][]*ticket{}} }

// Enter waits for a turn. Without an error the caller calls Leave.
func (g *Gate) Enter(ctx context.Context, name string) error {
	g.mu.Lock()
	if g.free > 0 {
		g.free--
		g.mu.Unlock()
		return nil
	}
	t := &ticket{in: make(chan struct{})}
	if len(g.lines[name]) == 0 {
		g.turns = append(g.turns, name)
	}
	g.lines[name] = append(g.lines[name], t)
	g.mu.Unlock()
	select {
	case <-t.in:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	select {
	case <-t.in: // it was its turn
		g.mu.Unlock()
		g.Leave()
	default:
		t.gone = true
		g.mu.Unlock()
	}
	return context.Cause(ctx)
}

// Leave lets the next one in.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.turns) > 0 {
		name := g.turns[0]
		g.turns = g.turns[1:]
		line := g.lines[name]
		t := line[0]
		if line = line[1:]; len(line) == 0 {
			delete(g.lines, name)
		} else {
			g.lines[name] = line
			g.turns = append(g.turns, name)
		}
		if !t.gone {
			close(t.in)
			return
		}
	}
	g.free++
}
