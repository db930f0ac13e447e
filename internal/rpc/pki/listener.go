package pki

import (
	"container/list"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Limits of a Listener.
const (
	// MaxHandshakes is the most concurrent handshakes. One more ends the oldest.
	MaxHandshakes = 512
	// AcceptQueue is the most verified connections of a protocol that wait for Accept; more are closed.
	AcceptQueue = 128

	acceptPause = 50 * time.Millisecond // after a failed accept, such as for want of file descriptors
)

// Accept is a protocol that a Listener serves, and the roles whose certificates may speak it; none means any role.
type Accept struct {
	Proto string
	Roles []string
}

func (a *Accept) strangers() bool { return a.Proto == ProtoJoin }

// Listener is one TCP port with several protocols. The accepting goroutine only accepts connections; each handshake has
// its own goroutine, so a slow or silent peer does not delay others.
type Listener struct {
	ln       net.Listener
	creds    *Credentials
	cfg      *tls.Config
	log      *slog.Logger
	protos   map[string]*protoListener
	wg       sync.WaitGroup
	limit    int           // MaxHandshakes
	patience time.Duration // HandshakeTimeout

	mu        sync.Mutex
	closed    bool
	pending   *list.List // of net.Conn, oldest first
	strangers strangers
}

// Listen listens on addr (host:port; port 0 is any) with this daemon's certificate. Close ends its goroutines.
func Listen(addr string, creds *Credentials, log *slog.Logger, accepts ...Accept) (*Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", addr, err)
	}
	l, err := newListener(ln, creds, log, accepts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listening on %s: %w", addr, err), ln.Close())
	}
	l.wg.Go(l.accept)
	return l, nil
}

// PortPatience is how long a daemon that starts waits for its port: the one that it replaces may still be ending, and
// an outgoing connection of another program may have been given it meanwhile.
const (
	PortPatience = 5 * time.Second
	portPace     = 50 * time.Millisecond
)

// ListenSoon is Listen, and waits while the port is in use.
func ListenSoon(patience time.Duration, addr string, creds *Credentials, log *slog.Logger,
	accepts ...Accept) (*Listener, error) {
	begun, told := time.Now(), false
	for {
		l, err := Listen(addr, creds, log, accepts...)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Since(begun) > patience {
			return l, err
		}
		if !told {
			told = true
			log.Warn("the port is in use; waiting for it", "addr", addr, "seconds", patience.Seconds())
		}
		time.Sleep(portPace)
	}
}

func newListener(ln net.Listener, creds *Credentials, log *slog.Logger, accepts []Accept) (*Listener, error) {
	if log == nil || creds == nil || len(accepts) == 0 {
		return nil, errors.New("needs a log, a certificate and a protocol")
	}
	l := &Listener{ln: ln, creds: creds, cfg: creds.ServerTLS(), log: log, protos: make(map[string]*protoListener),
		pending: list.New(),
		limit:   MaxHandshakes, patience: HandshakeTimeout}
	roles := make(map[string][]string)
	for _, a := range accepts {
		if _, twice := roles[a.Proto]; twice || a.Proto == "" {
			return nil, fmt.Errorf("protocol %q is there twice or has no name", a.Proto)
		}
		for _, r := range a.Roles {
			if err := checkRole(r); err != nil {
				return nil, err
			}
		}
		roles[a.Proto] = a.Roles
		l.protos[a.Proto] = &protoListener{addr: ln.Addr(), conns: make(chan net.Conn, AcceptQueue),
			done: make(chan struct{})}
		if a.strangers() {
			l.cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
				return creds.forStrangers(hello), nil
			}
			continue
		}
		l.cfg.NextProtos = append(l.cfg.NextProtos, a.Proto)
	}
	verify := l.cfg.VerifyConnection
	l.cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		if err := verify(cs); err != nil {
			return err
		}
		id, err := peerIdentity(cs)
		if err != nil {
			return err
		}
		allowed, served := roles[cs.NegotiatedProtocol]
		if !served {
			return fmt.Errorf("%s named none of the protocols here (%q)", id, l.cfg.NextProtos)
		}
		if len(allowed) > 0 && !slices.Contains(allowed, id.role) {
			return fmt.Errorf("%s may not speak %s", id, cs.NegotiatedProtocol)
		}
		return nil
	}
	return l, nil
}

// Addr is the address listened on, with the port that was chosen for port 0.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }

// Proto is the listener of one protocol given to Listen, and nil for another. Closing it ends that protocol only; its
// connections know their peer by PeerOfConn.
func (l *Listener) Proto(proto string) net.Listener {
	if p, ok := l.protos[proto]; ok {
		return p
	}
	return nil
}

// Close stops listening, ends current handshakes and all protocols' listeners, and waits for its goroutines. Accepted
// connections stay open. It is idempotent.
func (l *Listener) Close() error {
	l.mu.Lock()
	l.closed = true
	for e := l.pending.Front(); e != nil; e = e.Next() {
		// It is given up; its handshake then ends with an error.
		_ = e.Value.(net.Conn).Close()
	}
	l.mu.Unlock()
	err := l.ln.Close()
	l.wg.Wait()
	for _, p := range l.protos {
		// It never fails.
		_ = p.Close()
	}
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (l *Listener) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

func (l *Listener) accept() {
	for {
		nc, err := l.ln.Accept()
		switch {
		case err == nil:
			if e := l.begin(nc); e != nil {
				l.wg.Go(func() { l.handshake(nc, e) })
			}
		case errors.Is(err, net.ErrClosed):
			return // by Close
		default:
			l.log.Error("accepting a connection", "listener", l.Addr().String(), "err", err)
			time.Sleep(acceptPause)
			if l.isClosed() {
				return
			}
		}
	}
}

// begin admits a connection to the handshake, at the cost of the oldest if there are too many.
func (l *Listener) begin(nc net.Conn) *list.Element {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = nc.Close() // it was never looked at
		return nil
	}
	if l.pending.Len() >= l.limit {
		// Its handshake then ends with an error.
		_ = l.pending.Remove(l.pending.Front()).(net.Conn).Close()
	}
	return l.pending.PushBack(nc)
}

func (l *Listener) handshake(nc net.Conn, e *list.Element) {
	tc := tls.Server(nc, l.cfg)
	err := nc.SetDeadline(time.Now().Add(l.patience))
	if err == nil {
		err = tc.Handshake()
	}
	if err == nil {
		err = nc.SetDeadline(time.Time{})
	}
	l.mu.Lock()
	l.pending.Remove(e) // nothing happens if begin has removed it
	closed := l.closed
	l.mu.Unlock()
	if err == nil && !closed {
		err = l.deliver(tc)
	}
	if err == nil && !closed {
		return
	}
	// The peer gets only the alert that Handshake has sent.
	_ = nc.Close()
	if closed {
		return
	}
	l.creds.noteOutOfDate(err)
	from := nc.RemoteAddr().String()
	if n, ok := l.strangers.note(from, time.Now()); ok {
		l.log.Warn("refused a connection", "listener", l.Addr().String(), "from", from, "err", explain(err), "suppressed", n)
	}
}

// deliver gives a connection after its handshake to the protocol's listener.
func (l *Listener) deliver(tc *tls.Conn) error {
	proto := tc.ConnectionState().NegotiatedProtocol
	if proto == ProtoJoin {
		return l.protos[proto].deliver(tc)
	}
	held, err := l.creds.hold(tc)
	if err != nil {
		return err
	}
	if err := l.protos[proto].deliver(held); err != nil {
		return errors.Join(err, held.Close())
	}
	return nil
}

// protoListener is the net.Listener of one protocol.
type protoListener struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}

	mu     sync.Mutex
	closed bool
}

func (p *protoListener) deliver(nc net.Conn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errors.New("this daemon is ending")
	}
	select {
	case p.conns <- nc:
		return nil
	default:
		return fmt.Errorf("%d connections wait to be accepted already", AcceptQueue)
	}
}

func (p *protoListener) Accept() (net.Conn, error) {
	select {
	case nc := <-p.conns:
		return nc, nil
	case <-p.done:
		return nil, fmt.Errorf("accepting on %s: %w", p.addr, net.ErrClosed)
	}
}

func (p *protoListener) Addr() net.Addr { return p.addr }

// Close ends Accept and the connections that wait for it.
func (p *protoListener) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	close(p.done)
	for {
		select {
		case nc := <-p.conns:
			// It has not been accepted yet.
			_ = nc.Close()
		default:
			return nil
		}
	}
}
