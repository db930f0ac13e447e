package noded

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/server"
	"gbatch/noded/steplayout"
)

// stepserve.go is the socket on which commands ask for steps. It is separate from the socket for other requests,
// because open files are passed over it, and reading frames ahead would lose them. A connection is for one command and
// at most one step: the command sends a request, files and signals, and gets the step's events. The kernel gives the
// command's user.

const (
	stepConns        = 1024 // commands connected at once
	stepConnsPerUser = 512
	stepFirst        = 30 * time.Second // for a command's request
	stepWrite        = 30 * time.Second // for a command to read an event
	maxStepEvents    = 4 * proto.MaxStepTasks
)

// stepServer accepts commands.
type stepServer struct {
	inbox *inbox
	log   *slog.Logger
	wg    sync.WaitGroup

	mu    sync.Mutex
	conns map[*stepConn]uint32 // with their users

	name   string
	login  bool // this host manages no steps itself
	peers  *peers
	ending atomic.Bool
}

// stepConn is one command. step belongs to the loop.
type stepConn struct {
	nc   net.Conn
	step *step

	// For a connection from another node's daemon: the node, and its address.
	from, role, host string
	door             bool // it passes on the messages of a command on its host
	part             bool // it manages a step that this node has a part of

	mu     sync.Mutex
	cond   sync.Cond
	out    [][]byte
	closed bool
}

func newStepConn(nc net.Conn) *stepConn {
	c := &stepConn{nc: nc}
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

// serve accepts commands until ctx ends.
func (s *stepServer) serve(ctx context.Context, ln net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() }) // ends Accept
	defer stop()
	defer s.wg.Wait()
	for {
		nc, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				s.ending.Store(true)
				s.closeAll()
				return nil
			}
			s.log.Error("accept a command", "err", err)
			pause(ctx, acceptPace) // out of descriptors, say
			continue
		}
		s.wg.Go(func() { s.talk(nc) })
	}
}

func (s *stepServer) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.close()
	}
}

// talk is one connection from its beginning to its end.
func (s *stepServer) talk(nc net.Conn) {
	uc, ok := nc.(*net.UnixConn)
	peer, err := server.UnixPeer(nc)
	who, local := peer.User()
	if !ok || err != nil || !local {
		_ = nc.Close() // nothing has been said
		return
	}
	c := newStepConn(uc)
	if err := s.enter(c, who.UID); err != nil {
		c.send(&proto.StepEvent{Kind: proto.StepRefused, Text: err.Error()})
		c.closed = true
		c.write()
		return
	}
	defer s.leave(c)
	s.wg.Go(c.write)
	if err := s.read(c, who.UID); !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		s.log.Debug("a step's command has gone", "uid", who.UID, "err", err)
	}
	c.close()
	s.inbox.post(msgStepGone{c})
}

func (s *stepServer) enter(c *stepConn, uid uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := 0
	for _, u := range s.conns {
		if u == uid {
			mine++
		}
	}
	if len(s.conns) >= stepConns || uid != 0 && mine >= stepConnsPerUser {
		return fmt.Errorf("this node's gnoded is busy: %d steps run or wait, %d of them yours; try again in a moment",
			len(s.conns), mine)
	}
	s.conns[c] = uid
	return nil
}

func (s *stepServer) leave(c *stepConn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// read reads the command's request, and then its further messages.
func (s *stepServer) read(c *stepConn, uid uint32) error {
	if err := c.nc.SetReadDeadline(time.Now().Add(stepFirst)); err != nil {
		return err
	}
	kind, body, err := readStepFrame(c.nc)
	if err != nil {
		return err
	}
	if kind != proto.StepFrameRequest {
		return fmt.Errorf("a message of kind %d at this point", kind)
	}
	rq := new(proto.StepRequest)
	if err := proto.Decode(body, rq); err != nil {
		return err
	}
	if err := checkStep(rq); err != nil {
		c.send(&proto.StepEvent{Kind: proto.StepRefused, Text: err.Error()})
		return err
	}
	if err := c.nc.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	switch {
	case s.login && (rq.Node == "" || rq.Node == s.name):
		c.send(&proto.StepEvent{Kind: proto.StepRefused,
			Text: fmt.Sprintf("Unable to create step for job %d: %s is a login host and runs none", rq.Job, s.name)})
		return errors.New("a step on a login host")
	case rq.Node == "" || rq.Node == s.name:
	case c.door:
		return fmt.Errorf("a request for node %s was passed on to node %s", rq.Node, s.name)
	default:
		return s.pass(c, uid, rq, body)
	}
	s.inbox.post(msgStep{conn: c, uid: uid, req: rq})
	return s.readOn(c)
}

// readOn reads the messages after a request.
func (s *stepServer) readOn(c *stepConn) error {
	for {
		kind, body, err := readStepFrame(c.nc)
		if err != nil {
			return err
		}
		switch kind {
		case proto.StepFrameFiles:
			m, err := readStepFiles(c, body)
			if err != nil {
				return err
			}
			s.inbox.post(*m)
		case proto.StepFrameSignal:
			sig := new(proto.StepSignal)
			if err := proto.Decode(body, sig); err != nil {
				return err
			}
			if sig.Signal < 0 || sig.Signal > 64 || len(sig.Text) > maxReportText {
				return fmt.Errorf("signal %d with %d bytes of text", sig.Signal, len(sig.Text))
			}
			s.inbox.post(msgStepSignal{c, sig})
		case proto.StepFrameForget:
			s.inbox.post(msgPartForget{c})
		default:
			return fmt.Errorf("a message of kind %d at this point", kind)
		}
	}
}

// checkStep refuses an invalid request.
func checkStep(rq *proto.StepRequest) error {
	n, b := &rq.Need, &rq.Bind
	switch {
	case len(rq.Argv) == 0 && len(rq.Multi) == 0, len(rq.Argv) > proto.MaxStepArgs:
		return fmt.Errorf("a step of %d arguments: at least the command and at most %d", len(rq.Argv), proto.MaxStepArgs)
	case len(rq.Name) > proto.MaxFieldBytes, len(rq.Submit) > proto.MaxFieldBytes, len(rq.RequestID) > 64,
		len(rq.Dir) > proto.MaxFieldBytes:
		return fmt.Errorf("a name, a path or the command line is longer than %d bytes", proto.MaxFieldBytes)
	case n.Tasks < 0 || n.CPUsPerTask < 0 || n.TasksPerNode < 0 || n.MinNodes < 0 || n.MemPerNode < 0 || n.MemPerCPU < 0 ||
		n.MemPerGPU < 0 || n.CPUsPerGPU < 0 || n.TasksPerGPU < 0:
		return errors.New("a step's numbers can't be negative")
	case n.Tasks > proto.MaxStepTasks || n.TasksPerNode > proto.MaxStepTasks || len(n.Ranks) > proto.MaxStepTasks:
		return fmt.Errorf("a step of %d tasks: at most %d", max(n.Tasks, n.TasksPerNode), proto.MaxStepTasks)
	case n.CPUsPerTask > steplayout.MaxIndex || b.GPUCount > steplayout.MaxIndex || n.CPUsPerGPU > steplayout.MaxIndex:
		return fmt.Errorf("%d of something for each task: at most %d", max(n.CPUsPerTask, b.GPUCount, n.CPUsPerGPU),
			steplayout.MaxIndex)
	case (b.CPU == proto.BindMap || b.CPU == proto.BindMask) && len(b.CPUList) == 0,
		(b.GPU == proto.BindMap || b.GPU == proto.BindMask) && len(b.GPUList) == 0,
		(b.Mem == proto.BindMap || b.Mem == proto.BindMask) && len(b.MemList) == 0:
		return errors.New("a map or mask to bind to is empty")
	case rq.Terminal != nil && (rq.Terminal.Rows < 0 || rq.Terminal.Cols < 0 || rq.Terminal.Rows > math.MaxUint16 ||
		rq.Terminal.Cols > math.MaxUint16):
		return fmt.Errorf("a terminal of %d rows and %d columns", rq.Terminal.Rows, rq.Terminal.Cols)
	case len(n.Gres) > 64:
		return fmt.Errorf("%d generic resources, at most 64", len(n.Gres))
	}
	for _, g := range n.Gres {
		if g.Count < 0 || g.Count > steplayout.MaxIndex {
			return fmt.Errorf("%d of %s", g.Count, steplayout.GresName(g.Name, g.Type))
		}
	}
	for _, m := range rq.Multi {
		if !m.Ranks.Valid() || len(m.Argv) == 0 {
			return errors.New("--multi-prog: a line without ranks or command")
		}
	}
	return model.CheckLimits(rq.Limits)
}

// readStepFrame reads one message, and no byte beyond it: descriptors may follow.
func readStepFrame(r io.Reader) (kind uint8, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if n > proto.MaxStepFrame {
		return 0, nil, fmt.Errorf("a message of %d bytes, at most %d", n, proto.MaxStepFrame)
	}
	body = make([]byte, n)
	_, err = io.ReadFull(r, body)
	return head[0], body, err
}

// readStepFiles takes the descriptors that follow a message with files.
func readStepFiles(c *stepConn, body []byte) (m *msgStepFiles, err error) {
	var files proto.StepFiles
	if err := proto.Decode(body, &files); err != nil {
		return nil, err
	}
	if len(files.Files) != 3 {
		return nil, fmt.Errorf("%d standard files", len(files.Files))
	}
	var want [3]int
	total := 0
	for i, f := range files.Files {
		want[i] = int(f.FDs)
		if want[i] < 0 || want[i] > proto.MaxStepTasks {
			return nil, fmt.Errorf("%d files for one stream", want[i])
		}
		total += want[i]
	}
	uc, local := c.nc.(*net.UnixConn)
	if !local && total > 0 {
		return nil, fmt.Errorf("%d open files can't come from another host", total)
	}
	var all []*os.File
	for len(all) < total {
		got, err := readFDs(uc)
		all = append(all, got...)
		if err != nil || len(all) > total {
			closeFiles(all)
			return nil, fmt.Errorf("%d open files where %d were announced: %w", len(all), total, err)
		}
	}
	m = &msgStepFiles{conn: c, files: files.Files, io: files.IO}
	for i := range want {
		m.given[i], all = all[:want[i]:want[i]], all[want[i]:]
	}
	return m, nil
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

// refuse sends the last event: there is no step for this command.
func (c *stepConn) refuse(ev *proto.StepEvent) { c.send(ev) }

// put queues a message.
func (c *stepConn) put(kind uint8, m proto.Message) {
	b, err := appendFrame(nil, kind, m)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
	case err != nil || len(c.out) >= maxStepEvents:
		c.shut()
	default:
		c.out = append(c.out, b)
		c.cond.Signal()
	}
}

// appendFrame adds a message to the bytes to write.
func appendFrame(dst []byte, kind uint8, m proto.Message) ([]byte, error) {
	at := len(dst)
	b, err := proto.Append(append(dst, kind, 0, 0, 0, 0), m)
	if err == nil {
		binary.LittleEndian.PutUint32(b[at+1:], uint32(len(b)-at-5))
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
	var buf []byte
	for {
		c.mu.Lock()
		for len(c.out) == 0 && !c.closed {
			c.cond.Wait()
		}
		list, closed := c.out, c.closed
		c.out = nil
		c.mu.Unlock()
		buf = slices.Concat(list...)
		if len(buf) > 0 {
			err := c.nc.SetWriteDeadline(time.Now().Add(stepWrite))
			if err == nil {
				_, err = c.nc.Write(buf)
			}
			if err != nil {
				c.close()
				return
			}
		}
		if closed {
			return
		}
	}
}
