package shim

// client.go is gnoded's side of one connection.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxPending     = 4 * maxEntries // events that wait for the client's owner; with more the connection is given up
	maxWriteBytes  = 1 << 20
	versionTimeout = 10 * time.Second
	writeTimeout   = time.Minute
)

// ErrGone says that the connection to gshim has ended: gshim was upgraded, or died. Start again; an order that is
// missing in the new list was not carried out.
var ErrGone = errors.New("the connection to gshim is gone")

// ErrUnknown says that gshim does not know a key: nothing of it was launched, or its end was acknowledged.
var ErrUnknown = errors.New("is not known to gshim")

// ProtocolError says that a running gshim speaks another protocol than this program. Upgrade works nevertheless.
type ProtocolError struct{ Theirs, Ours int }

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("the running gshim speaks protocol %d, this program %d: upgrade it", e.Theirs, e.Ours)
}

// Client is a connection to a gshim. Its methods may be called from several goroutines.
type Client struct {
	nc     *net.UnixConn
	info   Info
	events chan []Event
	ended  chan struct{} // closed when the reader has ended
	pumped chan struct{} // closed when the last event has been passed on

	emu     sync.Mutex
	pending []Event       // read, not yet taken by the owner
	news    chan struct{} // wakes the pump

	wmu sync.Mutex // writes

	mu      sync.Mutex
	seq     uint64
	waiting map[uint64]*waiter
	err     error
	closed  chan struct{}
	once    sync.Once
}

// waiter collects the answers to one order.
type waiter struct {
	events []Event
	done   chan reply
}

// dialHello connects and reads the greeting.
func dialHello(ctx context.Context, dir string) (*Client, error) {
	nc, err := dial(ctx, dir)
	if err != nil {
		return nil, err
	}
	c := &Client{nc: nc, events: make(chan []Event), ended: make(chan struct{}),
		pumped: make(chan struct{}), news: make(chan struct{}, 1), waiting: map[uint64]*waiter{}, closed: make(chan struct{})}
	r := bufio.NewReaderSize(nc, 64<<10)
	hello, err := c.readHello(ctx, nc, r)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("greeting of gshim: %w", err), nc.Close())
	}
	c.info = hello
	go c.readLoop(r)
	go c.pump()
	return c, nil
}

func (c *Client) readHello(ctx context.Context, nc *net.UnixConn, r *bufio.Reader) (Info, error) {
	uid, err := peerUID(nc)
	if err != nil {
		return Info{}, err
	}
	if uid != syscall.Geteuid() {
		return Info{}, &peerError{uid}
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetReadDeadline(time.Unix(1, 0)) }) // ends the read below
	defer stop()
	b, err := readFrame(r, nil)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return Info{}, err
	}
	h, err := decodeReply(b)
	if err == nil && h.kind != kindHello {
		err = fmt.Errorf("unexpected reply %d", h.kind)
	}
	return h.info, err
}

// Info is what the gshim said about itself.
func (c *Client) Info() Info { return c.info }

// Events has the events in batches, in order for each key. An event can come twice (also after a List). The channel is
// closed when the connection ends; Err then says why. The owner of a Client must read it.
func (c *Client) Events() <-chan []Event { return c.events }

// Err is nil while the connection lives, afterwards an error that wraps ErrGone.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection, not gshim. It can be called again.
func (c *Client) Close() error {
	c.once.Do(func() { close(c.closed) })
	err := c.nc.Close()
	<-c.ended
	<-c.pumped
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (c *Client) readLoop(r io.Reader) {
	defer close(c.ended)
	var buf []byte
	for {
		b, err := readFrame(r, buf)
		if err != nil {
			c.fail(err)
			return
		}
		buf = b
		m, err := decodeReply(b)
		if err != nil {
			c.fail(err)
			return
		}
		if err := c.deliver(&m); err != nil {
			c.fail(err)
			return
		}
	}
}

// pump passes events on. It runs apart from the reader, so that the receiver of events can wait for an answer
// meanwhile.
func (c *Client) pump() {
	defer close(c.pumped)
	defer close(c.events)
	for {
		// Events that were read before the end are still passed on.
		over := false
		select {
		case <-c.news:
		case <-c.ended:
			over = true
		}
		c.emu.Lock()
		batch := c.pending
		c.pending = nil
		c.emu.Unlock()
		if len(batch) > 0 {
			select {
			case c.events <- batch:
			case <-c.closed:
				return
			}
		}
		if over {
			return
		}
	}
}

// deliver passes one message on: an event to pump, an answer to its waiter.
func (c *Client) deliver(m *reply) error {
	if m.kind == kindEvents && m.seq == 0 {
		c.emu.Lock()
		defer c.emu.Unlock()
		if len(c.pending)+len(m.events) > maxPending {
			return fmt.Errorf("%d events wait to be read", len(c.pending))
		}
		c.pending = append(c.pending, m.events...)
		wake(c.news)
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiting[m.seq]
	if w == nil {
		return nil // the caller no longer waits
	}
	switch m.kind {
	case kindEvents:
		w.events = append(w.events, m.events...)
	case kindDone:
		delete(c.waiting, m.seq)
		w.done <- *m
	}
	return nil
}

func (c *Client) fail(err error) {
	_ = c.nc.Close() // the error that matters is err
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = fmt.Errorf("%w: %w", ErrGone, err)
	}
	for seq, w := range c.waiting {
		delete(c.waiting, seq)
		close(w.done)
	}
}

func (c *Client) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if err := c.nc.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	if _, err := c.nc.Write(b); err != nil {
		c.fail(err) // a frame may be half written
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return nil
}

// writePassed writes one frame with the open files of its launch: they travel with the frame's first bytes.
func (c *Client) writePassed(b []byte, l *Launch) error {
	var fds []int
	for _, f := range l.Passed {
		if f != nil {
			fds = append(fds, fdOf(f))
		}
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	err := c.nc.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err == nil {
		_, _, err = c.nc.WriteMsgUnix(b[:frameHead], unix.UnixRights(fds...), nil)
	}
	if err == nil {
		_, err = c.nc.Write(b[frameHead:])
	}
	if err != nil {
		c.fail(err)
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return nil
}

// ask sends an order and waits for its answer.
func (c *Client) ask(ctx context.Context, o order) ([]Event, int, error) {
	if c.info.Protocol != Protocol && o.kind != kindUpgrade {
		return nil, 0, &ProtocolError{c.info.Protocol, Protocol}
	}
	w := &waiter{done: make(chan reply, 1)}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, 0, c.err
	}
	c.seq++
	o.seq = c.seq
	c.waiting[o.seq] = w
	c.mu.Unlock()
	if err := c.write(frame(nil, o.encode)); err != nil {
		return nil, 0, err
	}
	select {
	case r, ok := <-w.done:
		if !ok {
			return nil, 0, c.Err()
		}
		if r.err != "" {
			if strings.HasSuffix(r.err, ErrUnknown.Error()) {
				return w.events, r.n, fmt.Errorf("%s%w", strings.TrimSuffix(r.err, ErrUnknown.Error()), ErrUnknown)
			}
			return w.events, r.n, errors.New(r.err)
		}
		return w.events, r.n, nil
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.waiting, o.seq)
		c.mu.Unlock()
		return nil, 0, ctx.Err()
	}
}

// Launch orders the start of processes. Nil means that the orders were sent; the result of each is an Event (Launched
// or LaunchFailed, and after Launched Exited). An order whose key is known is not carried out again but answered with
// that key's newest event. An error that is not ErrGone names an order that can never work; then none is sent.
func (c *Client) Launch(orders ...*Launch) error {
	if c.info.Protocol != Protocol {
		return &ProtocolError{c.info.Protocol, Protocol}
	}
	for _, l := range orders {
		if err := l.Check(); err != nil {
			return err
		}
	}
	var b []byte
	for _, l := range orders {
		o := order{kind: kindLaunch, launch: *l}
		if l.Passed != ([PassedFiles]*os.File{}) {
			err := c.write(b)
			if err == nil {
				err = c.writePassed(frame(nil, o.encode), l)
			}
			if err != nil {
				return err
			}
			b = b[:0]
			continue
		}
		b = frame(b, o.encode)
		if len(b) >= maxWriteBytes {
			if err := c.write(b); err != nil {
				return err
			}
			b = b[:0]
		}
	}
	if len(b) == 0 {
		return nil
	}
	return c.write(b)
}

// Signal sends a signal (0: only count) and returns the number of processes that it reached; 0 if all have ended. With
// SIGKILL and Tree it returns when no process is left, also of a launch that has ended without an Ack; an error then
// names the survivors.
func (c *Client) Signal(ctx context.Context, k Key, sig syscall.Signal, scope Scope) (int, error) {
	_, n, err := c.ask(ctx, order{kind: kindSignal, key: k, sig: int(sig), scope: scope})
	return n, err
}

// Ack makes gshim forget launches that have ended. Unknown keys count as forgotten. A key that still runs is an error;
// the others are forgotten nevertheless.
func (c *Client) Ack(ctx context.Context, keys ...Key) error {
	for len(keys) > 0 {
		n := min(len(keys), MaxAckKeys)
		if _, _, err := c.ask(ctx, order{kind: kindAck, keys: keys[:n]}); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

// List gives the newest event of every launch that runs or waits for an Ack, sorted by key. A launch that is under way
// (ordered, not yet Launched) is not in it.
func (c *Client) List(ctx context.Context) ([]Event, error) {
	evs, _, err := c.ask(ctx, order{kind: kindList})
	return evs, err
}

// Renew replaces the lease, which says how long processes may run without the next one.
func (c *Client) Renew(ctx context.Context, l Lease) error {
	_, _, err := c.ask(ctx, order{kind: kindLease, lease: l})
	return err
}

// Ping waits for an answer.
func (c *Client) Ping(ctx context.Context) error {
	_, _, err := c.ask(ctx, order{kind: kindPing})
	return err
}

// Shutdown ends gshim. It refuses while anything runs; ends that are not acknowledged stay in the journal for the next.
func (c *Client) Shutdown(ctx context.Context) error {
	_, _, err := c.ask(ctx, order{kind: kindShutdown})
	return err
}

// Upgrade makes gshim replace its program by binary, keeping pid, children and journal. After nil this connection
// ends: Start again and compare Info().Upgrades. gshim refuses a file that it can't run, and goes on as before
// if the kernel refuses it.
func (c *Client) Upgrade(ctx context.Context, binary string) error {
	vctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(vctx, binary, "-version").Output()
	if err != nil {
		return fmt.Errorf("%s -version: %w", binary, err)
	}
	if !strings.HasPrefix(string(out), "gshim ") {
		return fmt.Errorf("%s is not a gshim: it says %q", binary, clip(string(out)))
	}
	_, _, err = c.ask(ctx, order{kind: kindUpgrade, path: binary})
	return err
}
