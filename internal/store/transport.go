package store

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// newTransport connects raft with the other voters. It holds back incoming connections until admit is called.
func newTransport(o Options, lg *logger) (t raft.Transport, admit func(), leave func() error) {
	if o.Net != nil {
		mem := o.Net.transport(o.addr(o.ID))
		return mem, func() { o.Net.join(mem) }, func() error { o.Net.leave(mem); return nil }
	}
	g := &gate{layer: o.Layer, open: make(chan struct{}), closed: make(chan struct{}), conns: map[*incoming]bool{}}
	nt := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: g, Logger: lg, MaxPool: transportPool, Timeout: transportTimeout, ServerAddressProvider: addressBook{o},
		MsgpackUseNewTimeFormat: true,
	})
	leave = func() error {
		err := nt.Close()
		nt.CloseStreams() // Close leaves the pooled connections open
		return err
	}
	return nt, sync.OnceFunc(func() { close(g.open) }), leave
}

// addressBook gives the voters' addresses from Options.Peers, not from the log.
type addressBook struct{ o Options }

func (b addressBook) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if a := b.o.addr(string(id)); a != "" {
		return raft.ServerAddress(a), nil
	}
	return "", fmt.Errorf("no address for controller %s", id)
}

// gate adapts a StreamLayer to raft. It holds back incoming connections until open is closed, and closes them at the
// end, because raft leaves that to the other side.
type gate struct {
	layer  StreamLayer
	open   chan struct{}
	once   sync.Once
	closed chan struct{}

	mu    sync.Mutex
	conns map[*incoming]bool
	shut  bool
}

type incoming struct {
	net.Conn
	gate *gate
}

// Read reports our own close as end of file, which raft doesn't log.
func (c *incoming) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, net.ErrClosed) {
		err = io.EOF
	}
	return n, err
}

func (c *incoming) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.conns, c)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}

func (g *gate) Accept() (net.Conn, error) {
	select {
	case <-g.open:
	case <-g.closed:
		return nil, net.ErrClosed
	}
	conn, err := g.layer.Accept()
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		_ = conn.Close() // the gate is closed already
		return nil, net.ErrClosed
	}
	c := &incoming{conn, g}
	g.conns[c] = true
	return c, nil
}

func (g *gate) Close() error {
	g.once.Do(func() { close(g.closed) })
	err := g.layer.Close()
	g.mu.Lock()
	g.shut = true
	left := slices.Collect(maps.Keys(g.conns))
	g.mu.Unlock()
	for _, c := range left {
		_ = c.Close() // the other side sees the end
	}
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (g *gate) Addr() net.Addr { return g.layer.Addr() }

func (g *gate) Dial(a raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return g.layer.Dial(string(a), timeout)
}

// memRPCTimeout is the time that a voter in memory waits for an answer.
const memRPCTimeout = 500 * time.Millisecond

// MemNet connects stores of one process without sockets, for tests, also inside testing/synctest. Any of them can be
// isolated from the others.
type MemNet struct {
	mu  sync.Mutex
	in  map[raft.ServerAddress]*raft.InmemTransport
	cut map[raft.ServerAddress]bool
}

// NewMemNet returns a net without voters.
func NewMemNet() *MemNet {
	return &MemNet{in: map[raft.ServerAddress]*raft.InmemTransport{}, cut: map[raft.ServerAddress]bool{}}
}

// Isolate separates the voter at addr from all others until Rejoin, even across its restarts.
func (n *MemNet) Isolate(addr string) { n.set(addr, true) }

// Rejoin undoes Isolate.
func (n *MemNet) Rejoin(addr string) { n.set(addr, false) }

func (n *MemNet) set(addr string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[raft.ServerAddress(addr)] = cut
	n.wire()
}

func (n *MemNet) transport(addr string) *raft.InmemTransport {
	_, t := raft.NewInmemTransportWithTimeout(raft.ServerAddress(addr), memRPCTimeout)
	return t
}

func (n *MemNet) join(t *raft.InmemTransport) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.in[t.LocalAddr()] = t
	n.wire()
}

func (n *MemNet) leave(t *raft.InmemTransport) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.in[t.LocalAddr()] == t {
		delete(n.in, t.LocalAddr())
	}
	for _, other := range n.in {
		other.Disconnect(t.LocalAddr())
	}
	t.DisconnectAll()
}

// wire connects or disconnects each pair according to cut. The lock is held.
func (n *MemNet) wire() {
	for a, ta := range n.in {
		for b, tb := range n.in {
			switch {
			case a == b:
			case n.cut[a] || n.cut[b]:
				ta.Disconnect(b)
			default:
				ta.Connect(b, tb)
			}
		}
	}
}
