package noded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/noded/fence"
	"gbatch/noded/relay"
	"gbatch/noded/shim"
)

// session.go is the node's session with the leader: Hello and Welcome, then orders in one direction and reports and
// heartbeats in the other, until the connection ends or another controller leads. Neither affects jobs.

const (
	welcomeTimeout  = 30 * time.Second // for the leader to register the node
	refusedRetry    = 15 * time.Second // after a leader has refused this node
	reportsPerFrame = 512

	defaultHeartbeat = 10 * time.Second
	minHeartbeat     = 100 * time.Millisecond
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
}

// run registers the node again and again until ctx ends.
func (s *session) run(ctx context.Context) {
	s.settle(ctx)
	for ctx.Err() == nil {
		var conn *rpc.Conn
		var w proto.Welcome
		res := s.ctl.Look(ctx, func(addr string) (err error) {
			conn, err = s.register(ctx, addr, &w)
			return err
		})
		if res.Err == nil {
			s.retry.reset()
			s.said = ""
			err := s.serve(ctx, conn, &w)
			if ctx.Err() == nil {
				s.log.Warn("the session with the controller has ended; jobs go on", "controller", conn.Name(), "err", err)
			}
		} else if ctx.Err() == nil {
			s.complain(res)
		}
		if res.Refused {
			pause(ctx, s.refusedPause)
			continue
		}
		pause(ctx, s.n.fence.Retry(s.retry.take()))
	}
}

// settlePace is how often a rebooted node checks whether its epilogs have run.
const settlePace = 50 * time.Millisecond

// settle waits for epilogs from before a reboot, because a registered node gets jobs.
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
				s.log.Info("the machine was rebooted while jobs ran; their epilogs run before this node takes new jobs", "jobs", n)
			}
		case <-ctx.Done():
			return
		}
		pause(ctx, settlePace)
	}
}

// complain says once per change why the node is not registered.
func (s *session) complain(res relay.Look) {
	if res.Err.Error() == s.said {
		return
	}
	s.said = res.Err.Error()
	if res.Refused {
		s.log.Error("the controller refuses this node", "err", res.Err)
		return
	}
	s.log.Warn("no leading controller can be reached; jobs go on, their results wait", "err", res.Err)
}

// register says Hello to the controller at addr. The connection is the caller's if there is no error.
func (s *session) register(ctx context.Context, addr string, w *proto.Welcome) (*rpc.Conn, error) {
	conn, err := s.ctl.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends the wait for an answer
	err = s.greet(ctx, conn, w)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close() // err says what is wrong with it
		return nil, err
	}
	return conn, nil
}

// greet sends Hello and takes the Welcome.
func (s *session) greet(ctx context.Context, conn *rpc.Conn, w *proto.Welcome) error {
	hello, err := s.n.hello(ctx)
	if err != nil {
		return err
	}
	body, err := proto.Encode(hello)
	if err != nil {
		return err
	}
	const helloID = 1
	at := shim.Uptime()
	if err := conn.WriteFrame(proto.KindHello, 0, helloID, body); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(welcomeTimeout)); err != nil {
		return err
	}
	var f rpc.Frame
	if err := conn.ReadFrame(&f); err != nil {
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

// serve works through one session until its connection ends.
func (s *session) serve(ctx context.Context, conn *rpc.Conn, w *proto.Welcome) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
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
	err := s.read(ctx, conn, time.Duration(w.TimeoutS)*time.Second)
	cancel()
	writer.Wait()
	_ = conn.Close() // it has ended, or is of no more use
	if errors.Is(err, rpc.ErrClosed) && werr != nil {
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

// read reads the leader's messages. It handles orders one message at a time: it reads the next when the last is on
// disk. Orders that were delayed for longer than limit are ignored: the leader may have given this node up since.
func (s *session) read(ctx context.Context, conn *rpc.Conn, limit time.Duration) error {
	var f rpc.Frame
	for {
		if err := conn.ReadFrame(&f); err != nil {
			return err
		}
		switch f.Kind {
		case proto.KindOrders:
			o := new(proto.Orders)
			if err := proto.Decode(f.Body, o); err != nil {
				return err
			}
			if late := s.n.now().Sub(time.UnixMilli(int64(o.Heard))); limit > 0 && o.Heard != 0 && late > limit {
				return fmt.Errorf("the controller answers what this node sent %s ago, and nodes count as lost after %s: "+
					"it registers again",
					late.Round(time.Millisecond), limit)
			}
			if err := s.n.ask(ctx, func(done chan error) any { return msgOrders{o, done} }); err != nil {
				return err
			}
			s.n.fence.Told(o)
			if o.Rules != nil {
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
			body, err := proto.Encode(&proto.Reports{Reports: reports})
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
