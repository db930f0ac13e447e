package store

import (
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// halter stops a voter's connections, as SIGSTOP stops its process: nothing is sent or received, nothing is closed.
type halter struct {
	StreamLayer
	mu     sync.Mutex
	armed  bool
	halted chan struct{} // closed when a snapshot is under way
	again  chan struct{} // closed when it goes on
}

func (h *halter) Accept() (net.Conn, error) {
	c, err := h.StreamLayer.Accept()
	return &haltedConn{c, h}, err
}

func (h *halter) Dial(addr string, timeout time.Duration) (net.Conn, error) {
	c, err := h.StreamLayer.Dial(addr, timeout)
	return &haltedConn{c, h}, err
}

// pass waits while the voter is stopped.
func (h *halter) pass() {
	select {
	case <-h.halted:
		<-h.again
	default:
	}
}

type haltedConn struct {
	net.Conn
	h *halter
}

func (c *haltedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.h.pass()
	return n, err
}

func (c *haltedConn) Write(b []byte) (int, error) {
	c.h.pass()
	n, err := c.Conn.Write(b)
	const installSnapshot = 2 // raft's number of the request, which is one write; the snapshot follows
	if len(b) > 0 && b[0] == installSnapshot {
		c.h.mu.Lock()
		if c.h.armed {
			c.h.armed = false
			close(c.h.halted)
		}
		c.h.mu.Unlock()
	}
	return n, err
}

// TestSnapshotOfSilentLeader: a leader falls silent in the middle of a snapshot that a returning voter needs. The voter
// gives the snapshot up and the two others go on; the leader follows when it is back.
func TestSnapshotOfSilentLeader(t *testing.T) {
	base := t.TempDir()
	g := newGroup(t, 3, Options{HeartbeatTimeout: time.Second, Logger: testLogger(t), TrailingLogs: 10})
	halters := map[string]*halter{}
	g.wrap = func(id string, l StreamLayer) StreamLayer {
		halters[id] = &halter{StreamLayer: l, halted: make(chan struct{}), again: make(chan struct{})}
		return halters[id]
	}
	g.startAll(base)
	lead := g.leader()
	var late Peer
	for _, p := range g.peers {
		if p.ID != lead.peer.ID {
			late = p
		}
	}
	if err := g.members[late.ID].Close(); err != nil {
		t.Fatal(err)
	}
	delete(g.members, late.ID)
	n := 0
	for range 2 { // the log reaches back to the older of two snapshots
		for range 50 {
			propose(t, lead.Store, fmt.Sprint("a", n))
			n++
		}
		if err := lead.Snapshot(); err != nil {
			t.Fatal(err)
		}
	}

	h := halters[lead.peer.ID]
	goOn := sync.OnceFunc(func() { close(h.again) })
	t.Cleanup(goOn)
	h.mu.Lock()
	h.armed = true
	h.mu.Unlock()
	delete(g.members, lead.peer.ID)
	g.start(late, filepath.Join(base, late.ID))
	<-h.halted
	g.proposeSomewhere("b")
	n++
	g.agree(n)

	goOn()
	g.members[lead.peer.ID] = lead
	g.proposeSomewhere("c")
	n++
	g.agree(n)
}
