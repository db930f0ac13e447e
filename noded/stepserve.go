package noded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gbatch/internal/crash"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/server"
	"gbatch/internal/wire"
	"gbatch/noded/check"
	"gbatch/noded/shares"
)

// stepserve.go is the socket on which commands ask for steps. It is separate from the socket for other requests,
// because open files are passed over it, and reading frames ahead would lose them. A connection is for one command and
// at most one step: the command sends a request, files and signals, and gets the step's events. The kernel gives the
// command's user.

// stepServer accepts commands.
type stepServer struct {
	inbox *inbox
	log   *slog.Logger
	wg    sync.WaitGroup
	own   *shares.Shares

	mu    sync.Mutex
	conns map[*stepConn]bool

	name   string
	login  bool // this host manages no steps itself
	system *slurmUser
	peers  *peers
	ending atomic.Bool
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
	user, local := peer.User()
	if !ok || err != nil || !local {
		_ = nc.Close() // nothing has been said
		return
	}
	who := shares.Owner{UID: user.UID}
	c := newStepConn(uc, s.own, who)
	if err := s.own.Conns.Take(who, 1); err != nil {
		c.refuse(&proto.StepEvent{Kind: proto.StepRefused, Text: shares.BusyText(err, "connections about steps").Error()})
		c.close()
		c.write()
		return
	}
	defer s.own.Conns.Give(who, 1)
	s.mu.Lock()
	s.conns[c] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	if s.ending.Load() {
		c.close() // it came beside closeAll
	}
	s.converse(c, "uid", who.UID, func() error { return s.read(c, user.UID, int(user.PID)) })
}

// converse runs a connection: read reads it, and its writer sends the events. It returns when both have ended.
func (s *stepServer) converse(c *stepConn, key string, who any, read func() error) {
	written := make(chan struct{})
	s.wg.Go(func() {
		defer close(written)
		c.write()
	})
	err := func() (err error) {
		defer func() {
			if crashed := crash.Recovered(recover()); crashed != nil {
				s.log.Error("a connection about a step has failed, and the daemon goes on", "err", crashed)
				err = crashed
			}
		}()
		return read()
	}()
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		s.log.Debug("a connection about a step has ended", key, who, "err", err)
	}
	if c.refused() {
		c.linger()
	}
	c.close()
	s.inbox.post(msgStepGone{c})
	<-written
	c.settle()
}

// requestLimit bounds the messages that can begin a conversation.
func requestLimit(kind uint8) int {
	switch kind {
	case proto.StepFrameRequest, proto.StepFramePart:
		return proto.MaxStepFrame
	}
	return plainMessage
}

func plainLimit(uint8) int { return plainMessage }

// refuseNow refuses a command before the loop knows of it.
func refuseNow(c *stepConn, why string) error {
	c.refuse(&proto.StepEvent{Kind: proto.StepRefused, Text: why})
	return errRefused
}

// read reads the request of a command, which is a process of a user (0: on another host), and then its further
// messages.
func (s *stepServer) read(c *stepConn, uid uint32, pid int) error {
	if err := c.nc.SetReadDeadline(time.Now().Add(stepFirst)); err != nil {
		return err
	}
	kind, body, paid, err := c.frame(requestLimit)
	switch {
	case err != nil:
		return c.sayBusy(err)
	case kind == proto.StepFrameAdopt:
		return s.adopt(c, uid, pid, body)
	case kind != proto.StepFrameRequest:
		return fmt.Errorf("a message of kind %d at this point", kind)
	}
	rq := new(proto.StepRequest)
	if err := c.decode(body, rq, func() int64 { return requestWorth(len(body), rq) }); err != nil {
		var bad *wire.NotPlain
		if errors.As(err, &bad) {
			return refuseNow(c, fmt.Sprintf("Unable to create step: its %s contains %v", strings.ToLower(bad.Field), bad.Why))
		}
		return c.sayBusy(err)
	}
	if err := check.Step(rq); err != nil {
		return refuseNow(c, err.Error())
	}
	switch {
	case s.login && (rq.Node == "" || rq.Node == s.name):
		return refuseNow(c, fmt.Sprintf("Unable to create step for job %d: %s is a login host and runs none", rq.Job,
			s.name))
	case rq.Node == "" || rq.Node == s.name:
	case c.door:
		return fmt.Errorf("a request for node %s was passed on to node %s", rq.Node, s.name)
	default:
		return s.pass(c, uid, rq, body)
	}
	c.release(paid)
	s.inbox.post(msgStep{conn: c, uid: uid, req: rq})
	return s.readOn(c)
}

// adopt reads the request of a login's PAM module (gbatch pam).
func (s *stepServer) adopt(c *stepConn, uid uint32, pid int, body []byte) error {
	rq := new(proto.StepAdopt)
	if err := c.decode(body, rq, nil); err != nil {
		return c.sayBusy(err)
	}
	switch {
	case uid != 0 || pid == 0:
		return refuseNow(c, "only root of this host puts processes into others' jobs")
	case s.login:
		return refuseNow(c, s.name+" is a login host and runs no jobs")
	}
	s.inbox.post(msgAdopt{conn: c, uid: rq.UID, asker: pid})
	return s.readOn(c)
}

// readOn reads the messages after a request.
func (s *stepServer) readOn(c *stepConn) error {
	for {
		kind, body, paid, err := c.frame(plainLimit)
		if err != nil {
			return c.sayBusy(err)
		}
		err = s.takeMessage(c, kind, body)
		c.release(paid)
		if err != nil {
			return c.sayBusy(err)
		}
	}
}

// takeMessage hands a message on to the loop, as soon as fewer of this connection are in hand there.
func (s *stepServer) takeMessage(c *stepConn, kind uint8, body []byte) error {
	var m any
	switch kind {
	case proto.StepFrameFiles:
		files, err := c.readFiles(body)
		if err != nil {
			return err
		}
		if !c.turn() {
			files.drop()
			return net.ErrClosed
		}
		s.inbox.post(*files)
		return nil
	case proto.StepFrameSignal:
		sig := new(proto.StepSignal)
		if err := c.decode(body, sig, nil); err != nil {
			return err
		}
		if err := check.Signal(sig); err != nil {
			return err
		}
		m = msgStepSignal{c, sig}
	case proto.StepFrameForget:
		m = msgPartForget{c}
	case proto.StepFrameWords:
		words := new(proto.StepWords)
		if err := c.decode(body, words, nil); err != nil {
			return err
		}
		if err := check.Words(words); err != nil {
			return err
		}
		m = msgStepWords{c, words}
	default:
		return fmt.Errorf("a message of kind %d at this point", kind)
	}
	if !c.turn() {
		return net.ErrClosed
	}
	s.inbox.post(m)
	return nil
}
