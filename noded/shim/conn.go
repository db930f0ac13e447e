//go:build linux && (amd64 || arm64)

package shim

// conn.go is one client's connection on the server's side: a reader that passes orders to server.handle, and a writer
// that sends everything queued since its last write.

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/crash"
)

const (
	maxOutBytes = 16 << 20 // unsent bytes at which a client that does not read is cut off; it can come back and List
	drainWait   = 2 * time.Second
	readBuffer  = 64 << 10
)

// conn is one connection. Its mutex is taken after server.mu, never before.
type conn struct {
	nc         net.Conn
	subscribed bool          // server.mu: it has listed
	orders     chan struct{} // bounds its orders that are under way

	mu     sync.Mutex
	cond   sync.Cond
	out    []byte
	busy   bool // the writer holds bytes that are not written yet
	closed bool
}

func newConn(nc net.Conn) *conn {
	c := &conn{nc: nc, orders: make(chan struct{}, maxOrders)}
	c.cond.L = &c.mu
	return c
}

func (c *conn) send(r *reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.out = frame(c.out, r.encode)
	if len(c.out) > maxOutBytes {
		c.shut()
		return
	}
	c.cond.Broadcast()
}

func (c *conn) events(seq uint64, evs []Event) {
	c.send(&reply{kind: kindEvents, seq: seq, events: evs})
}

// done answers an order that asks for an answer.
func (c *conn) done(seq uint64, n int, err error) {
	if seq == 0 {
		return
	}
	r := reply{kind: kindDone, seq: seq, n: n}
	if err != nil {
		r.err = clipText(err.Error())
	}
	c.send(&r)
}

func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shut()
}

func (c *conn) shut() {
	if !c.closed {
		c.closed = true
		_ = c.nc.Close() // both loops see it and end
		c.cond.Broadcast()
	}
}

// hungUp reports whether the other side has closed the connection or is dead. What it sent before may still be unread.
func (c *conn) hungUp() bool {
	raw, err := c.nc.(syscall.Conn).SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(p, 0)
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Poll(p, 0)
		}
		gone = err == nil && n > 0 // hung up, closed or an error: nothing else was asked for
	})
	return gone || err != nil
}

// drain waits until everything queued is written.
func (c *conn) drain() {
	give := time.AfterFunc(drainWait, c.close)
	defer give.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.closed && (len(c.out) > 0 || c.busy) {
		c.cond.Wait()
	}
}

func (c *conn) writeLoop() {
	var spare []byte
	for {
		c.mu.Lock()
		c.busy = false
		c.cond.Broadcast()
		for len(c.out) == 0 && !c.closed {
			c.cond.Wait()
		}
		if c.closed {
			c.mu.Unlock()
			return
		}
		b := c.out
		c.out, c.busy = spare[:0], true
		c.mu.Unlock()
		if _, err := c.nc.Write(b); err != nil {
			c.close()
			return
		}
		spare = nil
		if cap(b) <= readBuffer {
			spare = b
		}
	}
}

func (s *server) acceptLoop(ctx context.Context) {
	pause := time.Millisecond
	for ctx.Err() == nil {
		nc, err := s.listener.AcceptUnix()
		if err != nil {
			if ctx.Err() == nil {
				s.log.Error("accept", "err", err)
				time.Sleep(pause) // out of file descriptors, say: try again at an easy pace
				pause = min(2*pause, time.Second)
			}
			continue
		}
		pause = time.Millisecond
		if err := s.admit(ctx, nc); err != nil {
			s.log.Warn("connection refused", "err", err)
			_ = nc.Close() // it has been told nothing
		}
	}
}

// admit accepts only peers of gshim's own user.
func (s *server) admit(ctx context.Context, nc *net.UnixConn) error {
	uid, err := peerUID(nc)
	if err != nil {
		return err
	}
	if uid != s.id.uid {
		return &peerError{uid}
	}
	c := newConn(nc)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || ctx.Err() != nil {
		return errors.New("gshim is ending")
	}
	if len(s.conns) >= maxConns {
		return errors.New("too many connections")
	}
	s.conns[c] = struct{}{}
	c.send(&reply{kind: kindHello, info: s.info})
	s.wg.Go(c.writeLoop)
	s.wg.Go(func() {
		s.readLoop(c, nc)
		c.close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	})
	return nil
}

func (s *server) readLoop(c *conn, nc *net.UnixConn) {
	rights := &rightsReader{nc: nc}
	defer rights.close()
	r := bufio.NewReaderSize(rights, readBuffer)
	var buf []byte
	for {
		payload, err := readFrame(r, buf)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				s.log.Warn("connection cut: unreadable frame", "err", err)
			}
			return
		}
		if cap(payload) <= readBuffer {
			buf = payload
		}
		o, err := decodeOrder(payload)
		switch {
		case err == nil:
		case o.kind == kindLaunch || o.seq == 0: // it can't be answered, or has descriptors
			s.log.Warn("connection cut: unreadable order", "err", err)
			return
		default:
			o.bad = err
		}
		if err := rights.give(&o); err != nil {
			s.log.Warn("connection cut: descriptors are missing", "err", err)
			return
		}
		if o.bad != nil {
			s.refuseOrder(c, &o)
			continue
		}
		s.guard(func() { s.handle(c, &o) }, func(err error) {
			o.bad = err
			s.refuseOrder(c, &o)
		})
	}
}

// refuseOrder answers an order that can't be carried out. The connection goes on with the next one.
func (s *server) refuseOrder(c *conn, o *order) {
	s.log.Warn("an order is refused", "kind", int(o.kind), "err", o.bad)
	if o.kind == kindLaunch {
		s.dropPassed(&o.launch)
		c.events(0, []Event{failedEvent(o.launch.Key, refuse(StageOrder, "%w", o.bad))})
		return
	}
	c.done(o.seq, 0, o.bad)
}

// guard carries out one order. If that panics, the order fails alone: failed says so to whoever gave it.
func (s *server) guard(do func(), failed func(error)) {
	defer func() {
		if err := crash.Recovered(recover()); err != nil {
			s.log.Error("an order has failed, and gshim goes on", "err", err)
			failed(err)
		}
	}()
	do()
}
