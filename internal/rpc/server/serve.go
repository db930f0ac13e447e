package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"gbatch/internal/rpc"
	"gbatch/internal/rpc/share"
)

// Defaults of Options.
const (
	MaxConns        = 4096 // connections at once on one listener
	MaxConnsPerUser = 512  // of them, by one local user other than root

	// What one local user other than root may send, after a burst of five seconds' worth. Who sends more waits.
	UserConns  = 1000    // new connections a second; one that ends by the user's fault counts as faultConns
	UserBytes  = 8 << 20 // bytes a second of requests that are not small
	faultConns = 10
	LocalIdle  = 2 * time.Minute

	maxRefusals  = 64                    // refused connections that get a reason at the same time; more are just closed
	refuseLinger = time.Second           // for the refused client to read it
	refusePause  = time.Second           // before a user who has enough connections is told so
	maxPauses    = 1024                  // of connections at once; more are refused without
	usersAtOnce  = 16                    // users who may do so at the same time
	acceptPause  = 50 * time.Millisecond // after a failed accept, such as for want of file descriptors
)

// Handler answers one request through its methods, before it returns. ctx ends when the client leaves or cancels and
// when the server stops. It runs on its own goroutine; a panic in it becomes an internal error.
type Handler func(ctx context.Context, r *Request)

// Options bound a server. Zero values mean the defaults; Log is required.
type Options struct {
	Log             *slog.Logger
	Peer            func(net.Conn) (rpc.Peer, error) // default UnixPeer; pki.PeerOfConn for TLS
	MaxConns        int                              // default MaxConns
	MaxConnsPerUser int                              // default MaxConnsPerUser
	MaxConnsPerHost int                              // those of one host, where nobody is known; 0: as MaxConns
	MaxConnsPerPeer int                              // those of one daemon, by role and name; 0: as MaxConns
	UserConns       float64                          // default UserConns
	UserBytes       float64                          // default UserBytes
	MuxRequests     int                              // concurrent requests of one rpc.Mux; default rpc.MuxRequests
	MaxRequest      int                              // largest request in bytes; default rpc.MaxRequest
	MaxBytes        func(kind uint16) int            // the same for a kind; nil: MaxRequest
	Waits           func(kind uint16) bool           // kinds of which many may wait for long; nil: none
	Budget          *share.Budget                    // of all the daemon's listeners; default: of this one
	Idle            time.Duration                    // a connection without requests is closed after it; 0 is never
	Life            time.Duration                    // any connection is closed after it; 0 is never
}

func (o Options) withDefaults() Options {
	if o.Peer == nil {
		o.Peer = UnixPeer
	}
	if o.MaxConns == 0 {
		o.MaxConns = MaxConns
	}
	if o.MaxConnsPerUser == 0 {
		o.MaxConnsPerUser = MaxConnsPerUser
	}
	if o.UserConns == 0 {
		o.UserConns = UserConns
	}
	if o.UserBytes == 0 {
		o.UserBytes = UserBytes
	}
	if o.MuxRequests == 0 {
		o.MuxRequests = rpc.MuxRequests
	}
	if o.MaxRequest == 0 {
		o.MaxRequest = rpc.MaxRequest
	}
	if most := o.MaxRequest; o.MaxBytes == nil {
		o.MaxBytes = func(uint16) int { return most }
	}
	if o.Waits == nil {
		o.Waits = func(uint16) bool { return false }
	}
	if o.Budget == nil {
		o.Budget = &share.Budget{}
	}
	return o
}

// Serve answers requests on ln until ctx ends; it then closes ln and all connections, waits for the handlers and
// returns nil. It returns an error if the options are wrong or ln fails for good. It owns ln.
func Serve(ctx context.Context, ln net.Listener, h Handler, o Options) error {
	if o.Log == nil || h == nil {
		return errors.Join(errors.New("rpc server: needs a handler and a log"), ln.Close())
	}
	s := &server{h: h, o: o.withDefaults(), ln: ln, users: make(map[uint32]int), hosts: make(map[string]int),
		peers: make(map[string]int), refusals: make(chan struct{}, maxRefusals),
		opened: share.Limits{Total: usersAtOnce, Refuse: true}, sent: share.Limits{Total: usersAtOnce, Refuse: true}}
	parent := ctx // it ends first: somebody else may close ln for the same reason
	ctx, cancel := context.WithCancel(parent)
	defer s.wg.Wait()
	defer cancel()
	s.wg.Go(func() {
		<-ctx.Done()
		// Its error doesn't matter; Accept has returned or returns now.
		_ = ln.Close()
	})
	for {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			s.start(ctx, nc)
		case parent.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("rpc server: accepting on %s: %w", ln.Addr(), err)
		default:
			s.o.Log.Error("accepting a connection", "listener", ln.Addr().String(), "err", err)
			pause(ctx, acceptPause)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

type server struct {
	h  Handler
	o  Options
	ln net.Listener
	wg sync.WaitGroup // connections and refusals

	opened share.Limits // new connections of users
	sent   share.Limits // bytes of users' large requests

	pauses   atomic.Int32  // connections that will be refused
	refusals chan struct{} // holds a token for each refused connection that gets a reason

	mu    sync.Mutex
	conns int            // connections served
	hosts map[string]int // of them, by host, with MaxConnsPerHost
	users map[uint32]int // of them, by uid
	peers map[string]int // of them, by role and name, with MaxConnsPerPeer
	noise noise
}

// start serves nc on its own goroutine, which ends when ctx does.
func (s *server) start(ctx context.Context, nc net.Conn) {
	host := ""
	if s.o.MaxConnsPerHost > 0 {
		host = hostOf(nc.RemoteAddr())
	}
	s.mu.Lock()
	full := s.conns >= s.o.MaxConns
	many := host != "" && s.hosts[host] >= s.o.MaxConnsPerHost
	if !full && !many {
		s.conns++
		if host != "" {
			s.hosts[host]++
		}
	}
	s.mu.Unlock()
	switch {
	case many:
		s.refuse(nc, rpc.Errorf(rpc.CodeBusy, "%s has %d connections open to this daemon, as many as one host may; try "+
			"again in a moment", host, s.o.MaxConnsPerHost))
		return
	case full:
		s.refuse(nc, rpc.Errorf(rpc.CodeBusy, "the daemon is busy: all %d connections are taken; try again in a moment",
			s.o.MaxConns))
		return
	}
	s.wg.Go(func() {
		closed := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			_ = nc.Close() // the server has ended
			close(closed)
		})
		if s.o.Life > 0 {
			defer time.AfterFunc(s.o.Life, func() { _ = nc.Close() }).Stop()
		}
		kept := false
		defer func() { // also where a handler ends its goroutine
			if !kept {
				_ = nc.Close() // often closed already
			}
			s.mu.Lock()
			s.conns--
			if host != "" {
				if s.hosts[host]--; s.hosts[host] == 0 {
					delete(s.hosts, host)
				}
			}
			s.mu.Unlock()
			if !stop() {
				<-closed
			}
		}()
		kept = s.serve(ctx, nc)
	})
}

// hostOf is Host for a connection's other end.
func hostOf(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return ""
	}
	return Host(tcp.String())
}

// Host names the host of an address (host:port): of IPv6 the network, all of whose addresses one host may have; "" for
// what is no address, as a socket's.
func Host(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return ""
	}
	const network = 64 // bits
	ip := at.Addr().Unmap().WithZone("")
	if prefix, err := ip.Prefix(network); ip.Is6() && !ip.IsLoopback() && err == nil {
		return prefix.String()
	}
	return ip.String()
}

// serve runs one connection. It reports whether nc has another owner now.
func (s *server) serve(ctx context.Context, nc net.Conn) (kept bool) {
	peer, err := s.o.Peer(nc)
	if err != nil {
		s.stranger(ctx, nc, err)
		return false
	}
	name := peer.String()
	if addr := nc.RemoteAddr(); addr != nil && addr.Network() != "unix" {
		name += " (" + addr.String() + ")"
	}
	if role, who, ok := peer.Daemon(); ok && s.o.MaxConnsPerPeer > 0 {
		if !s.admitPeer(role + " " + who) {
			many := rpc.Errorf(rpc.CodeBusy, "%s %s has %d connections open to this daemon, as many as one daemon may; is "+
				"its certificate used elsewhere?", role, who, s.o.MaxConnsPerPeer)
			s.stranger(ctx, nc, many)
			s.refuse(nc, many)
			return true
		}
		defer s.leavePeer(role + " " + who)
	}
	if u, ok := peer.User(); ok && u.UID != 0 {
		if !s.admit(u.UID) {
			s.refuseUser(ctx, nc, rpc.Errorf(rpc.CodeBusy,
				"you have %d connections open to this daemon, as many as one user may; try again in a moment",
				s.o.MaxConnsPerUser))
			return true
		}
		defer s.leave(u.UID)
		if err := s.opened.Pay(ctx, Payer(u.UID), 1, s.o.UserConns); err != nil {
			if errors.Is(err, share.ErrOwes) {
				s.refuseUser(ctx, nc, rpc.Errorf(rpc.CodeBusy,
					"you open more than %.0f connections a second; try again in a moment", s.o.UserConns))
				return true
			}
			return false
		}
	}
	c, err := rpc.Accept(nc, rpc.ConnOptions{Name: name, ReadLimit: s.o.MaxRequest})
	if err != nil {
		if err != io.EOF {
			s.stranger(ctx, nc, err)
		}
		return false
	}
	cn := &conn{s: s, nc: nc, c: c, peer: peer, payer: payer(peer), watched: make(chan error, 1),
		muxed: make(map[uint32]*Request)}
	cn.run(ctx)
	return false
}

// payer names who pays for a peer's requests. Only the total bounds root's and daemons': these have many users.
func payer(p rpc.Peer) string {
	if u, ok := p.User(); ok && u.UID != 0 {
		return Payer(u.UID)
	}
	return ""
}

// Payer is the name in share.Budget of a user.
func Payer(uid uint32) string { return "uid " + strconv.FormatUint(uint64(uid), 10) }

func (s *server) admit(uid uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[uid] >= s.o.MaxConnsPerUser {
		return false
	}
	s.users[uid]++
	return true
}

func (s *server) admitPeer(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peers[name] >= s.o.MaxConnsPerPeer {
		return false
	}
	s.peers[name]++
	return true
}

func (s *server) leavePeer(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peers[name]--; s.peers[name] == 0 {
		delete(s.peers, name)
	}
}

func (s *server) leave(uid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[uid]--; s.users[uid] == 0 {
		delete(s.users, uid)
	}
}

// refuseUser refuses a connection to a user who has enough of them, after a while: a client that dials again as soon
// as it is refused would keep the daemon at accepting and refusing, ten thousand times a second.
func (s *server) refuseUser(ctx context.Context, nc net.Conn, e *rpc.Error) {
	if s.pauses.Add(1) <= maxPauses {
		pause(ctx, refusePause)
	}
	s.pauses.Add(-1)
	s.refuse(nc, e)
}

// refuse sends a client the reason why it isn't served and closes nc. The client may still be sending: an immediate
// close could discard the reason before the client reads it.
func (s *server) refuse(nc net.Conn, e *rpc.Error) {
	select {
	case s.refusals <- struct{}{}:
	default:
		_ = nc.Close() // too many at once: close without a reason
		return
	}
	s.wg.Go(func() {
		defer func() { <-s.refusals }()
		defer func() { _ = nc.Close() }() // it was refused; how it ends doesn't matter
		if rpc.Refuse(nc, e) != nil || nc.SetReadDeadline(time.Now().Add(refuseLinger)) != nil {
			return
		}
		if w, ok := nc.(interface{ CloseWrite() error }); ok && w.CloseWrite() != nil {
			return
		}
		// Until the client has read it and closes, or refuseLinger.
		_, _ = io.Copy(io.Discard, nc)
	})
}

// stranger logs a peer that does not use the protocol, at most once per second, because any process may connect. It
// does not log peers that only disconnected.
func (s *server) stranger(ctx context.Context, nc net.Conn, err error) {
	if ctx.Err() != nil {
		return // it ended with the server
	}
	if errors.Is(err, rpc.ErrLost) {
		s.o.Log.Debug("connection lost", "listener", s.ln.Addr().String(), "err", err)
		return
	}
	s.mu.Lock()
	suppressed, ok := s.noise.allow(time.Now())
	s.mu.Unlock()
	if ok {
		s.o.Log.Warn("closed a connection", "listener", s.ln.Addr().String(), "from", addrOf(nc), "err", err, "suppressed",
			suppressed)
	}
}

func addrOf(nc net.Conn) string {
	if a := nc.RemoteAddr(); a != nil {
		return a.String()
	}
	return ""
}

// noise lets one message a second through and counts the others.
type noise struct {
	last       time.Time
	suppressed int
}

func (n *noise) allow(now time.Time) (suppressed int, ok bool) {
	if now.Sub(n.last) < time.Second {
		n.suppressed++
		return 0, false
	}
	suppressed = n.suppressed
	n.last, n.suppressed = now, 0
	return suppressed, true
}
