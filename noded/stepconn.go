package noded

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/budget"
	"gbatch/internal/proto"
	"gbatch/internal/wire"
	"gbatch/noded/check"
	"gbatch/noded/shares"
)

// stepconn.go is one connection about a step: its messages, which are paid for before they are read, its events, which
// are paid for until they are written, and the open files that come with a message.
//
// A message that has begun has a deadline. Between messages a connection may be silent, as long as its step lives; when
// it has been refused, nothing more is read of it.

const (
	stepFirst    = 30 * time.Second // for a command's request
	stepWrite    = 30 * time.Second // for a command to read an event
	stepMessage  = 10 * time.Second // for a message that has begun, beside stepRate
	stepRate     = 1 << 20          // bytes a second
	stepLinger   = 5 * time.Second  // for a command that was refused to read why, and to go
	plainMessage = 1 << 20          // bytes of a message that is no request
	// stepTurns is how many messages of one connection are in hand at once; the next ones wait in the socket.
	stepTurns     = 64
	maxStepEvents = 4 * proto.MaxStepTasks
	headBytes     = 5
)

var errRefused = errors.New("it was refused")

// stepConn is one connection. step belongs to the loop.
type stepConn struct {
	nc   net.Conn
	step *step
	who  shares.Owner
	own  *shares.Shares

	// For a connection from another node's daemon: the node, and its address.
	from, role, host string
	door             bool // it passes on the messages of a command on its host
	part             bool // it manages a step that this node has a part of

	turns chan struct{} // one for each message in hand
	ended chan struct{} // closed with the connection

	mu     sync.Mutex
	cond   sync.Cond
	out    [][]byte
	held   int64 // bytes paid for what was read and is still needed
	files  int   // open files that its step waits for
	over   bool  // it was refused
	closed bool
}

func newStepConn(nc net.Conn, own *shares.Shares, who shares.Owner) *stepConn {
	c := &stepConn{nc: nc, own: own, who: who, turns: make(chan struct{}, stepTurns), ended: make(chan struct{})}
	c.cond.L = &c.mu
	return c
}

// direct gives the node that takes open files for its tasks: the command's own node.
func (c *stepConn) direct(node string) string {
	if c == nil || c.door || c.part {
		return ""
	}
	return node
}

// hold pays for memory until release.
func (c *stepConn) hold(n int64) error {
	c.mu.Lock()
	who := c.who
	c.mu.Unlock()
	if err := c.own.Memory.Take(who, n); err != nil {
		return shares.BusyText(err, "bytes of messages")
	}
	c.mu.Lock()
	c.held += n
	c.mu.Unlock()
	return nil
}

func (c *stepConn) release(n int64) {
	c.mu.Lock()
	who := c.who
	c.held -= n
	c.mu.Unlock()
	c.own.Memory.Give(who, n)
}

// pays says who pays from now on: the user for whom another host speaks.
func (c *stepConn) pays(who shares.Owner) error {
	c.mu.Lock()
	n, old := c.held, c.who
	c.mu.Unlock()
	if err := c.own.Memory.Take(who, n); err != nil {
		return shares.BusyText(err, "bytes of messages")
	}
	c.own.Memory.Give(old, n)
	c.mu.Lock()
	c.who = who
	c.mu.Unlock()
	return nil
}

// turn waits until one more message may be in hand; false: the connection has ended.
func (c *stepConn) turn() bool {
	select {
	case c.turns <- struct{}{}:
		return true
	case <-c.ended:
		return false
	}
}

// turnOver says that a message is no longer in hand.
func (c *stepConn) turnOver() {
	select {
	case <-c.turns:
	default: // it was not counted: a test's
	}
}

// frame reads one message, and no byte beyond it: descriptors may follow. The caller releases paid bytes when the body
// is of no more use. limit is the most that a message of its kind may have, bytes.
func (c *stepConn) frame(limit func(kind uint8) int) (kind uint8, body []byte, paid int64, err error) {
	var head [headBytes]byte
	if _, err := io.ReadFull(c.nc, head[:1]); err != nil {
		return 0, nil, 0, err
	}
	if err := c.deadline(stepMessage); err != nil {
		return 0, nil, 0, err
	}
	if _, err := io.ReadFull(c.nc, head[1:]); err != nil {
		return 0, nil, 0, err
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if most := limit(head[0]); int64(n) > int64(most) {
		return 0, nil, 0, fmt.Errorf("a message of %d bytes, at most %d", n, most)
	}
	if err := c.deadline(stepMessage + time.Duration(n)*time.Second/stepRate); err != nil {
		return 0, nil, 0, err
	}
	body, err = budget.ReadGrowing(c.nc, nil, int(n), func(more int64) error {
		if err := c.hold(more); err != nil {
			return err
		}
		paid += more
		return nil
	})
	if err == nil {
		err = c.deadline(0)
	}
	return head[0], body, paid, err
}

// deadline bounds the next reads; 0: nothing does, unless it was refused.
func (c *stepConn) deadline(d time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.over || c.closed:
		return errRefused
	case d == 0:
		return c.nc.SetReadDeadline(time.Time{})
	}
	return c.nc.SetReadDeadline(time.Now().Add(d))
}

// decode reads a message's body, which may take up to eight times its memory. keep is what of it is needed for long,
// bytes: it is paid for until the connection ends.
func (c *stepConn) decode(body []byte, m proto.Message, keep func() int64) error {
	worth := int64(wire.Worth(len(body), m))
	if err := c.hold(worth); err != nil {
		return err
	}
	care := wire.Keep
	if _, ofUser := m.(*proto.StepRequest); ofUser {
		care = wire.Refuse
	}
	err := proto.DecodeWith(body, m, care)
	rest := worth
	if err == nil && keep != nil {
		rest = worth - min(keep(), worth)
	}
	c.release(rest)
	return err
}

// requestWorth is the memory that a request keeps, bytes: its environment as it is, the rest as decoded at the most.
func requestWorth(n int, rq *proto.StepRequest) int64 {
	return int64(wire.Worth(n-min(len(rq.Env), n), rq)) + int64(len(rq.Env))
}

// partWorth is requestWorth for a part.
func partWorth(n int, m *proto.StepPart) int64 {
	if m.Request == nil {
		return int64(wire.Worth(n, m))
	}
	return requestWorth(n, m.Request)
}

// waitsFor says how many open files may come: the step is there, and waits for them.
func (c *stepConn) waitsFor(tasks int) {
	c.mu.Lock()
	c.files = 3 * tasks
	c.mu.Unlock()
}

// takeFiles claims n of them. They can come once.
func (c *stepConn) takeFiles(n int) error {
	c.mu.Lock()
	most := c.files
	c.files = 0
	c.mu.Unlock()
	if n > most {
		return fmt.Errorf("%d open files for a step that waits for at most %d", n, most)
	}
	return nil
}

// readFiles takes the descriptors that follow a message with files.
func (c *stepConn) readFiles(body []byte) (m *msgStepFiles, err error) {
	var files proto.StepFiles
	if err := c.decode(body, &files, nil); err != nil {
		return nil, err
	}
	if err := check.Files(&files); err != nil {
		return nil, err
	}
	var want [3]int
	total := 0
	for i, f := range files.Files {
		want[i] = int(f.FDs)
		total += want[i]
	}
	m = &msgStepFiles{conn: c, files: files.Files, io: files.IO, het: files.Het, pmi: files.PMI,
		x11: files.X11}
	if total == 0 {
		return m, nil
	}
	uc, local := c.nc.(*net.UnixConn)
	if !local {
		return nil, fmt.Errorf("%d open files can't come from another host", total)
	}
	if err := c.takeFiles(total); err != nil {
		return nil, err
	}
	if err := c.own.Files.Take(c.who, int64(total)); err != nil {
		return nil, shares.BusyText(err, "open files of steps that begin")
	}
	m.paid = &paidFiles{own: c.own, who: c.who}
	m.paid.left.Store(int64(total))
	all, err := c.readDescriptors(uc, total)
	if err != nil {
		m.paid.give(int64(total))
		return nil, err
	}
	for i := range want {
		m.given[i], all = all[:want[i]:want[i]], all[want[i]:]
	}
	return m, nil
}

func (c *stepConn) readDescriptors(uc *net.UnixConn, total int) (all []*os.File, err error) {
	if err := c.deadline(stepMessage); err != nil {
		return nil, err
	}
	for len(all) < total {
		got, err := readFDs(uc)
		all = append(all, got...)
		if err != nil || len(all) > total {
			closeFiles(all)
			return nil, fmt.Errorf("%d open files where %d were announced: %w", len(all), total, err)
		}
	}
	if err := c.deadline(0); err != nil {
		closeFiles(all)
		return nil, err
	}
	return all, nil
}

// paidFiles is the claim of a message's open files, until they are closed.
type paidFiles struct {
	own  *shares.Shares
	who  shares.Owner
	left atomic.Int64
}

// give ends the claim of n of them. What is claimed is given back once.
func (p *paidFiles) give(n int64) {
	if p == nil {
		return
	}
	if n = min(n, p.left.Load()); n > 0 {
		p.left.Add(-n)
		p.own.Files.Give(p.who, n)
	}
}

// readFDs reads the byte that up to MaxStepFDs descriptors come with.
func readFDs(nc *net.UnixConn) ([]*os.File, error) {
	var one [1]byte
	oob := make([]byte, unix.CmsgSpace(4*proto.MaxStepFDs))
	n, oobn, flags, _, err := nc.ReadMsgUnix(one[:], oob)
	if err != nil {
		return nil, err
	}
	var out []*os.File
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, err
	}
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			out = append(out, os.NewFile(uintptr(fd), "a step's file"))
		}
	}
	if n == 0 || len(out) == 0 || flags&unix.MSG_CTRUNC != 0 {
		closeFiles(out)
		return nil, errors.New("open files were announced and did not come, or more than can be taken")
	}
	return out, nil
}

// send queues an event. A command that does not read its events is disconnected.
func (c *stepConn) send(ev *proto.StepEvent) { c.put(proto.StepFrameEvent, ev) }

// refuse sends the last event: there is no step for this command. Nothing more is read from it, and it has a moment to
// go.
func (c *stepConn) refuse(ev *proto.StepEvent) {
	c.send(ev)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over && !c.closed {
		c.over = true
		_ = c.nc.SetReadDeadline(time.Now().Add(stepLinger)) // a connection that takes none is closed
	}
}

func (c *stepConn) refused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over && !c.closed
}

// sayBusy tells the other side why its message is not taken, if that is for want of room.
func (c *stepConn) sayBusy(err error) error {
	var busy *shares.Busy
	if errors.As(err, &busy) {
		c.refuse(&proto.StepEvent{Kind: proto.StepRefused, Text: err.Error()})
	}
	return err
}

// linger waits for a refused command to go. What it sends is read by nobody.
func (c *stepConn) linger() {
	var b [512]byte
	for range 1 << 16 { // some 32 MiB: a request may be under way
		if _, err := c.nc.Read(b[:]); err != nil {
			return
		}
	}
}

// put queues a message.
func (c *stepConn) put(kind uint8, m proto.Message) {
	b, err := appendFrame(nil, kind, m)
	if err == nil {
		err = c.hold(int64(len(b)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		c.shut()
	case c.closed:
		c.giveBack(int64(len(b)))
	case len(c.out) >= maxStepEvents:
		c.giveBack(int64(len(b)))
		c.shut()
	default:
		c.out = append(c.out, b)
		c.cond.Signal()
	}
}

// giveBack is release for a caller that holds mu.
func (c *stepConn) giveBack(n int64) {
	c.held -= n
	c.own.Memory.Give(c.who, n)
}

// appendFrame adds a message to the bytes to write.
func appendFrame(dst []byte, kind uint8, m proto.Message) ([]byte, error) {
	at := len(dst)
	b, err := proto.Append(append(dst, kind, 0, 0, 0, 0), m)
	if err == nil {
		binary.LittleEndian.PutUint32(b[at+1:], uint32(len(b)-at-headBytes))
	}
	return b, err
}

// appendRaw is appendFrame for a message that has been encoded.
func appendRaw(dst []byte, kind uint8, body []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(append(dst, kind), uint32(len(body)))
	return append(dst, body...)
}

func (c *stepConn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

func (c *stepConn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shut()
}

func (c *stepConn) shut() {
	if !c.closed {
		c.closed = true
		close(c.ended)
		// Ends the reader; the writer closes when it has said everything.
		if uc, local := c.nc.(*net.UnixConn); local {
			_ = uc.CloseRead()
		} else {
			_ = c.nc.SetReadDeadline(time.Unix(1, 0))
		}
		c.cond.Signal()
	}
}

// write sends what has been queued until the connection is closed.
func (c *stepConn) write() {
	defer func() { _ = c.nc.Close() }() // the last word has been said
	for {
		c.mu.Lock()
		for len(c.out) == 0 && !c.closed {
			c.cond.Wait()
		}
		list, closed := c.out, c.closed
		c.out = nil
		c.mu.Unlock()
		if buf := slices.Concat(list...); len(buf) > 0 {
			err := c.nc.SetWriteDeadline(time.Now().Add(stepWrite))
			if err == nil {
				_, err = c.nc.Write(buf)
			}
			c.release(int64(len(buf)))
			if err != nil {
				c.close()
				c.drop()
				return
			}
		}
		if closed {
			return
		}
	}
}

// drop gives back what is paid for events that nobody reads any more.
func (c *stepConn) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range c.out {
		c.giveBack(int64(len(b)))
	}
	c.out = nil
}

// settle gives back everything. Nothing is read or sent any more.
func (c *stepConn) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.giveBack(c.held)
}
