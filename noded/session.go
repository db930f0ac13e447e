package noded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"gbatch/internal/crash"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/noded/check"
	"gbatch/noded/fence"
	"gbatch/noded/gpuwatch"
	"gbatch/noded/relay"
	"gbatch/noded/shim"
)

// session.go is the node's session with the leader: Hello (hardware, attempts) and Welcome, then orders in one
// direction and reports and heartbeats in the other, until the connection ends or another controller leads. Neither
// affects jobs.

const (
	welcomeTimeout  = 30 * time.Second // for the leader to register the node
	refusedRetry    = 15 * time.Second // after a leader has refused this node
	reportsPerFrame = 512

	defaultHeartbeat = 10 * time.Second
	minHeartbeat     = 100 * time.Millisecond

	// A leader that promised to speak, and is silent for doubtAfter times that long, is doubted: another one is looked
	// for. After silentAfter times that long, and leastSilence, the session ends.
	doubtAfter   = 2
	silentAfter  = 4
	leastSilence = 2 * time.Second
)

var (
	errSilent = errors.New("it is silent")
	errMoved  = errors.New("another controller leads")
)

// welcomed is the leader's answer to Hello.
type welcomed struct {
	cluster string
	def     *model.NodeDef

	killWaitS int64
}

// session keeps this node registered.
type session struct {
	n     *Noded
	ctl   *relay.Controllers
	log   *slog.Logger
	retry backoff
	said  string // the last thing logged about not being registered

	refusedPause time.Duration

	next *relay.Found // the leader that was found while another one was silent
}

// run registers the node again and again until ctx ends.
func (s *session) run(ctx context.Context) {
	s.settle(ctx)
	for ctx.Err() == nil {
		refused := false
		found, res := s.next, relay.Look{}
		if s.next = nil; found == nil {
			found, res = s.ctl.Find(ctx, nil)
		}
		var w proto.Welcome
		if found != nil {
			refused, res.Err = s.register(ctx, found, &w)
		}
		if res.Err == nil {
			s.retry.reset()
			s.said = ""
			err := s.serve(ctx, found, &w)
			if ctx.Err() == nil {
				s.log.Warn("the session with the controller has ended; jobs go on", "controller", found.Conn.Name(), "err", err)
			}
			if errors.Is(err, errMoved) || errors.Is(err, errSilent) {
				continue
			}
		} else if ctx.Err() == nil {
			s.complain(res.Err, refused)
		}
		if s.next != nil {
			continue
		}
		if refused {
			pause(ctx, s.refusedPause)
			continue
		}
		pause(ctx, s.n.fence.Retry(s.retry.take()))
	}
	if s.next != nil {
		_ = s.next.Conn.Close() // nobody needs it any more
	}
}

// settlePace is how often a node that went down checks whether what its jobs left is gone.
const settlePace = 50 * time.Millisecond

// settle waits for the jobs that were lost with the node (owed), because a registered node gets jobs.
func (s *session) settle(ctx context.Context) {
	for said := false; ctx.Err() == nil; said = true {
		reply := make(chan int, 1)
		s.n.inbox.post(msgOwed{reply})
		select {
		case n := <-reply:
			if n == 0 {
				return
			}
			if !said {
				s.log.Info("this node went down while jobs ran; what is left of them ends before it registers", "jobs", n)
			}
		case <-ctx.Done():
			return
		}
		pause(ctx, settlePace)
	}
}

// complain says once per change why the node is not registered.
func (s *session) complain(err error, refused bool) {
	if err.Error() == s.said {
		return
	}
	s.said = err.Error()
	if refused {
		s.log.Error("the controller refuses this node", "err", err)
		return
	}
	s.log.Warn("no leading controller can be reached; jobs go on, their results wait", "err", err)
}

// register says Hello to the controller that leads. The connection is closed if there is an error; refused says that
// the controller does lead.
func (s *session) register(ctx context.Context, found *relay.Found, w *proto.Welcome) (refused bool, err error) {
	stop := context.AfterFunc(ctx, func() { _ = found.Conn.Close() }) // ends the wait for an answer
	err = s.greet(ctx, found, w)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		return false, nil
	}
	_ = found.Conn.Close() // err says what is wrong with it
	var e *rpc.Error
	return errors.As(err, &e) && e.Code < rpc.CodeInternal && e.Code != proto.CodeNotLeader, err
}

// greet sends Hello and takes the Welcome.
func (s *session) greet(ctx context.Context, found *relay.Found, w *proto.Welcome) error {
	conn := found.Conn
	hello, err := s.n.hello(ctx)
	if err != nil {
		return err
	}
	body, err := proto.Encode(hello)
	if err != nil {
		return err
	}
	const helloID = 1 << 31 // searching has used others
	at := shim.Uptime()
	if err := conn.WriteFrame(proto.KindHello, 0, helloID, body); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(welcomeTimeout)); err != nil {
		return err
	}
	var f rpc.Frame
	if err := s.readWelcome(ctx, found, &f); err != nil {
		return err
	}
	if f.Flags&rpc.FlagError != 0 {
		refusal, err := rpc.DecodeError(f.Body)
		if err != nil {
			return err
		}
		return refusal
	}
	if f.Kind != proto.KindWelcome {
		return fmt.Errorf("%s answered Hello with a frame of kind %d", conn.Name(), f.Kind)
	}
	if err := proto.Decode(f.Body, w); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if err := s.n.ask(ctx, func(done chan error) any { return msgWelcome{w, done} }); err != nil {
		return err
	}
	s.n.fence.Welcomed(at, w)
	return nil
}

// readWelcome reads the answer to a Hello. If the leader falls silent meanwhile, it fails as soon as another one leads.
func (s *session) readWelcome(ctx context.Context, found *relay.Found, f *rpc.Frame) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h := s.hear(ctx, found, leastSilence/silentAfter)
	h.limit = welcomeTimeout
	err := h.readFrame(f)
	cancel()
	h.look.Wait()
	if err == nil && s.next != nil { // it came at the same moment
		_ = s.next.Conn.Close() // not needed
		s.next = nil
	}
	return err
}

// serve works through one session until its connection ends.
func (s *session) serve(ctx context.Context, found *relay.Found, w *proto.Welcome) error {
	conn := found.Conn
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.ctl.Know(w.Controllers)
	s.n.takeRevoked(w.Revoked)
	s.log.Info("registered", "controller", conn.Name(), "cluster", w.Cluster, "epoch", w.Epoch)
	s.n.registered.Store(true)
	defer s.n.registered.Store(false)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends the reader
	defer stop()
	var writer sync.WaitGroup
	var werr error
	writer.Go(func() {
		werr = s.write(ctx, conn, heartbeatOf(w))
		cancel()
	})
	h := s.hear(ctx, found, time.Duration(w.SpeakMS)*time.Millisecond)
	h.limit = max(silentAfter*h.every, leastSilence)
	err := s.readGuarded(ctx, conn, h, time.Duration(w.TimeoutS)*time.Second)
	cancel()
	writer.Wait()
	h.look.Wait()
	_ = conn.Close() // it has ended, or is of no more use
	if errors.Is(err, rpc.ErrClosed) && werr != nil && s.next == nil {
		return werr
	}
	return err
}

func heartbeatOf(w *proto.Welcome) time.Duration {
	if w.HeartbeatS <= 0 {
		return defaultHeartbeat
	}
	return max(time.Duration(w.HeartbeatS)*time.Second, minHeartbeat)
}

// readGuarded is read. A message whose handling panics ends the session, not the daemon.
func (s *session) readGuarded(ctx context.Context, conn *rpc.Conn, h *hearing, limit time.Duration) (err error) {
	defer func() {
		if crashed := crash.Recovered(recover()); crashed != nil {
			s.log.Error("a message of the controller has failed, and the daemon goes on", "err", crashed)
			err = crashed
		}
	}()
	return s.read(ctx, conn, h, limit)
}

// read reads the leader's messages. It handles orders one message at a time: it reads the next when the last is on
// disk. Orders that were delayed for longer than limit are ignored: the leader may have given this node up since.
func (s *session) read(ctx context.Context, conn *rpc.Conn, h *hearing, limit time.Duration) error {
	var f rpc.Frame
	for {
		if err := h.readFrame(&f); err != nil {
			return err
		}
		switch f.Kind {
		case proto.KindOrders:
			o := new(proto.Orders)
			if err := proto.Decode(f.Body, o); err != nil {
				return err
			}
			check.Orders(o, s.log)
			if late := s.n.fence.Since(o.Heard); limit > 0 && late > limit {
				return fmt.Errorf("the controller answers what this node sent %s ago, and nodes count as lost after %s: "+
					"it registers again",
					late.Round(time.Millisecond), limit)
			}
			if o.Moved != "" {
				s.ctl.Leads(o.Moved)
				return errMoved
			}
			if o.Empty() {
				continue
			}
			if err := s.n.ask(ctx, func(done chan error) any { return msgOrders{o, done} }); err != nil {
				return err
			}
			s.n.fence.Told(o)
			if o.Rules != nil {
				s.ctl.Know(o.Controllers)
				s.n.takeRevoked(o.Revoked)
				limit = time.Duration(o.TimeoutS) * time.Second
				s.n.paceAnew()
				s.n.beatNow() // its acknowledgement brings SlurmdTimeout into the lease
			}
		case proto.KindReportAck:
			var ack proto.ReportAck
			if err := proto.Decode(f.Body, &ack); err != nil {
				return err
			}
			s.n.inbox.post(msgAck{ack.Seqs})
		case proto.KindNodeAsk:
			ask := new(proto.NodeAsk)
			if err := proto.Decode(f.Body, ask); err != nil {
				return err
			}
			check.Ask(ask, s.log)
			s.n.answerNode(conn, ask)
		default:
			return fmt.Errorf("%s sent a frame of kind %d, which leaders do not send", conn.Name(), f.Kind)
		}
	}
}

// write sends reports as they come and a heartbeat every so often.
func (s *session) write(ctx context.Context, conn *rpc.Conn, every time.Duration) error {
	pace := s.n.heartbeatPace(every)
	tick := time.NewTicker(pace)
	defer tick.Stop()
	sent, last := uint64(0), time.Time{}
	if err := s.beat(ctx, conn); err != nil {
		return err
	}
	for {
		for {
			reports := s.n.out.after(sent, reportsPerFrame)
			if len(reports) == 0 {
				break
			}
			body, err := proto.Encode(&proto.Reports{Reports: reports, Now: s.n.hostTime()})
			if err == nil {
				err = conn.WriteFrame(proto.KindReports, 0, 0, body)
			}
			if err != nil {
				return err
			}
			sent, last = max(sent, reports[len(reports)-1].Seq), time.Now()
		}
		select {
		case <-s.n.out.wake:
			s.n.out.gather(ctx.Done(), last)
		case <-s.n.beat:
			if err := s.beat(ctx, conn); err != nil {
				return err
			}
		case <-tick.C:
			if since, limit := s.n.fence.Silent(); limit > 0 && since > fence.Patience(limit) {
				return fmt.Errorf("it has acknowledged nothing for %s: perhaps another controller leads",
					since.Round(time.Millisecond))
			}
			if err := s.beat(ctx, conn); err != nil {
				return err
			}
		case <-s.n.paced:
			if now := s.n.heartbeatPace(every); now != pace {
				pace = now
				tick.Reset(pace)
			}
		case <-s.n.gpuHealth.Changed(): // a GPU has failed, or is in use by others: now, not with the next tick
			if err := s.beat(ctx, conn); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *session) beat(ctx context.Context, conn *rpc.Conn) error {
	hb, err := s.n.heartbeat(ctx)
	if err != nil {
		return err
	}
	body, err := proto.Encode(hb)
	if err != nil {
		return err
	}
	s.n.fence.Sent(hb.Now)
	return conn.WriteFrame(proto.KindHeartbeat, 0, 0, body)
}

// hearing reads one session's frames, and notices that the leader has fallen silent: its process is stopped or hangs,
// or its host is off the network. The leader has promised in Welcome how often it says something.
type hearing struct {
	s     *session
	ctx   context.Context
	of    *relay.Found
	every time.Duration // the leader's promise; 0: none, or no other controller could lead
	limit time.Duration
	look  sync.WaitGroup // for another leader
}

func (s *session) hear(ctx context.Context, found *relay.Found, every time.Duration) *hearing {
	if !s.ctl.Several() {
		every = 0
	}
	return &hearing{s: s, ctx: ctx, of: found, every: every}
}

// readFrame reads the next frame. It fails with errSilent if the leader is silent, and with any error after another
// leader was found: that one is then the session's next.
func (h *hearing) readFrame(f *rpc.Frame) error {
	conn := h.of.Conn
	if h.every == 0 {
		return conn.ReadFrame(f)
	}
	begin, wait, looking := time.Now(), min(doubtAfter*h.every, h.limit), false
	for {
		if err := conn.SetReadDeadline(begin.Add(wait)); err != nil {
			return err
		}
		err := conn.ReadFrame(f)
		switch {
		case err == nil || !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, rpc.ErrLost):
			return err
		case wait >= h.limit:
			return fmt.Errorf("%w: nothing has come from it for %v", errSilent, h.limit)
		}
		if wait = h.limit; !looking {
			looking = true
			h.look.Go(h.lookAround)
		}
	}
}

// lookAround ends the session if another controller leads by now.
func (h *hearing) lookAround() {
	found, _ := h.s.ctl.Find(h.ctx, nil)
	switch {
	case found == nil:
	case found.Addr == h.of.Addr:
		_ = found.Conn.Close() // the leader is there after all: the session shows it soon, or ends
	default:
		h.s.next = found
		_ = h.of.Conn.Close() // ends the reader
	}
}

// hello makes the message with which this node registers.
func (n *Noded) hello(ctx context.Context) (*proto.Hello, error) {
	uptime := shim.Uptime().Milliseconds() // before it is looked up what is known
	reply := make(chan answerFor, 1)
	n.inbox.post(msgKnown{reply})
	h := &proto.Hello{Node: n.opts.Name, Version: n.opts.Version, Hw: n.inv.Hw, BootID: n.inv.BootID, BootAt: n.inv.BootAt,
		UpSince: n.upSince, Instance: n.instance.Load(), Now: n.hostTime(), Problem: n.health.look(),
		PeerPort: peerPort(n.peerLn), LeaseS: n.fence.LeaseS(), Uptime: uptime}
	select {
	case of := <-reply:
		h.Known, h.Leaving = of.known, of.leaving
		return h, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// heartbeat reads the machine's load and readings. A value that can't be read is -1: unknown.
func (n *Noded) heartbeat(ctx context.Context) (*proto.Heartbeat, error) {
	hb := &proto.Heartbeat{LoadMilli: -1, FreeMemMiB: -1, Problem: n.health.look(), Now: n.hostTime()}
	if load, err := n.machine.LoadMilli(); err == nil {
		hb.LoadMilli = load
	}
	if _, free, err := n.machine.Memory(); err == nil {
		hb.FreeMemMiB = free
	}
	hb.Units, hb.Held, hb.UnitsKnown = n.gpuHealth.Account()
	hb.Readings = gpuwatch.UnitReadings(n.inv, n.gpus.Last(), &n.troubles)
	hb.LeaseS, hb.Uses = n.fence.LeaseS(), n.sampler.uses()
	reply := make(chan answerFor, 1)
	n.inbox.post(msgRunning{reply})
	select {
	case of := <-reply:
		hb.Running, hb.Leaving = int32(of.running), of.leaving
		return hb, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
