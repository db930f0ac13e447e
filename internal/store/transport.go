package store

import (
	"context"
	"encoding/json"
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

// network is what a voter has of the network.
type network struct {
	raft.Transport
	ask   askFunc      // asks another voter for its standing
	admit func()       // lets incoming connections in, which are held back until then
	cut   func()       // breaks all incoming connections; others make them again
	leave func() error // ends it
}

// newNetwork connects raft with the other voters. It answers those who ask for this voter's standing with mine.
func newNetwork(o Options, book *roll, lg *logger, mine func() Standing) *network {
	if o.Net != nil {
		mem := o.Net.transport(o.addr(o.ID))
		return &network{Transport: mem, ask: o.Net.asks(mem.LocalAddr()), admit: func() { o.Net.join(mem, mine) },
			cut: func() {}, leave: func() error { o.Net.leave(mem); return nil }}
	}
	g := &gate{layer: o.Layer, open: make(chan struct{}), closed: make(chan struct{}), conns: map[*incoming]bool{},
		ready: make(chan net.Conn), mine: mine}
	nt := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: g, Logger: lg, MaxPool: transportPool, Timeout: transportTimeout, ServerAddressProvider: addressBook{book},
		MsgpackUseNewTimeFormat: true,
	})
	g.wg.Add(1)
	go g.receive()
	leave := func() error {
		err := nt.Close()
		nt.CloseStreams() // Close leaves the pooled connections open
		g.wg.Wait()
		return err
	}
	return &network{Transport: nt, ask: g.ask, admit: sync.OnceFunc(func() { close(g.open) }), cut: g.cut, leave: leave}
}

// askFunc asks another voter for its standing.
type askFunc func(ctx context.Context, p Peer) (Standing, error)

// addressBook gives the voters' addresses by their names.
type addressBook struct{ book *roll }

func (b addressBook) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if a := b.book.addr(string(id)); a != "" {
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

	mine  func() Standing
	ready chan net.Conn // of raft
	wg    sync.WaitGroup

	mu    sync.Mutex
	conns map[*incoming]bool
	shut  bool
}

type incoming struct {
	net.Conn
	gate  *gate
	first []byte // read already
}

// Read reports our own close as end of file, which raft doesn't log.
func (c *incoming) Read(b []byte) (int, error) {
	if len(c.first) > 0 && len(b) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
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

// askMark is the first byte of a connection that asks for a voter's standing; raft's own requests begin with small
// numbers. The answer is one line of JSON.
const (
	askMark     = 0xfe
	maxStanding = 16 << 10
	maxUnsorted = 64 // connections that have sent nothing yet
)

// ask asks another voter for its standing.
func (g *gate) ask(ctx context.Context, p Peer) (st Standing, err error) {
	return askOver(ctx, g.layer.Dial, p)
}

func askOver(ctx context.Context, dial dialer, p Peer) (st Standing, err error) {
	patience := askTimeout
	if end, ok := ctx.Deadline(); ok {
		patience = max(time.Until(end), time.Millisecond)
	}
	conn, err := dial(p.Addr, patience)
	if err != nil {
		return st, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return st, err
	}
	if _, err := conn.Write([]byte{askMark}); err != nil {
		return st, err
	}
	return st, json.NewDecoder(io.LimitReader(conn, maxStanding)).Decode(&st)
}

// receive takes connections when the gate is open. It gives those of raft to Accept and answers the others.
func (g *gate) receive() {
	defer g.wg.Done()
	select {
	case <-g.open:
	case <-g.closed:
		return
	}
	unsorted := make(chan struct{}, maxUnsorted)
	for {
		conn, err := g.layer.Accept()
		if err != nil {
			select {
			case <-g.closed:
				return
			case <-time.After(acceptPause): // out of descriptors, for one
				continue
			}
		}
		c := g.took(conn)
		if c == nil {
			return
		}
		unsorted <- struct{}{}
		g.wg.Add(1)
		go func() {
			defer g.wg.Done()
			defer func() { <-unsorted }()
			g.sort(c)
		}()
	}
}

// took registers a connection; nil if the gate is closed.
func (g *gate) took(conn net.Conn) *incoming {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		_ = conn.Close() // nobody waits for it
		return nil
	}
	c := &incoming{Conn: conn, gate: g}
	g.conns[c] = true
	return c
}

func (g *gate) sort(c *incoming) {
	first := make([]byte, 1)
	err := c.SetReadDeadline(time.Now().Add(transportTimeout))
	if err == nil {
		_, err = io.ReadFull(c.Conn, first)
	}
	if err == nil {
		err = c.SetReadDeadline(time.Time{})
	}
	if err != nil || first[0] == askMark {
		if err == nil {
			_ = c.SetWriteDeadline(time.Now().Add(transportTimeout)) // the write fails as well
			_ = json.NewEncoder(c.Conn).Encode(g.mine())             // the other side sees that it is incomplete
		}
		_ = c.Close() // nothing more is expected
		return
	}
	c.first = first
	select {
	case g.ready <- c:
	case <-g.closed:
		_ = c.Close() // as above
	}
}

// Accept gives a connection of raft.
func (g *gate) Accept() (net.Conn, error) {
	select {
	case c := <-g.ready:
		return c, nil
	case <-g.closed:
		return nil, net.ErrClosed
	}
}

func (g *gate) Close() error {
	g.once.Do(func() { close(g.closed) })
	err := g.layer.Close()
	g.mu.Lock()
	g.shut = true
	g.mu.Unlock()
	g.cut()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// cut closes all connections that others have made.
func (g *gate) cut() {
	g.mu.Lock()
	left := slices.Collect(maps.Keys(g.conns))
	g.mu.Unlock()
	for _, c := range left {
		_ = c.Close() // the other side sees the end
	}
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
	of  map[raft.ServerAddress]func() Standing
	cut map[raft.ServerAddress]bool
}

// NewMemNet returns a net without voters.
func NewMemNet() *MemNet {
	return &MemNet{in: map[raft.ServerAddress]*raft.InmemTransport{}, of: map[raft.ServerAddress]func() Standing{},
		cut: map[raft.ServerAddress]bool{}}
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

func (n *MemNet) join(t *raft.InmemTransport, mine func() Standing) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.in[t.LocalAddr()], n.of[t.LocalAddr()] = t, mine
	n.wire()
}

func (n *MemNet) leave(t *raft.InmemTransport) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.in[t.LocalAddr()] == t {
		delete(n.in, t.LocalAddr())
		delete(n.of, t.LocalAddr())
	}
	for _, other := range n.in {
		other.Disconnect(t.LocalAddr())
	}
	t.DisconnectAll()
}

// asks gives what the voter at an address asks the others with.
func (n *MemNet) asks(from raft.ServerAddress) askFunc {
	return func(_ context.Context, p Peer) (Standing, error) {
		to := raft.ServerAddress(p.Addr)
		n.mu.Lock()
		mine := n.of[to]
		if n.cut[from] || n.cut[to] {
			mine = nil
		}
		n.mu.Unlock()
		if mine == nil {
			return Standing{}, errors.New("no answer")
		}
		return mine(), nil
	}
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
