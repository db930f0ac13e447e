package rest

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"gbatch/internal/rpc"
	"gbatch/internal/rpc/server"
)

// door.go takes connections: plain HTTP and TLS on one port, told apart by the first byte, and bounds how many there
// are, in all and from one address.

// conns counts connections.
type conns struct {
	mu  sync.Mutex
	all int
	of  map[string]int // by host, or by user
}

func (c *conns) enter(from string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]int{}
	}
	most := maxConnsOf
	if ip := net.ParseIP(from); ip != nil && ip.IsLoopback() {
		most = maxConnsHere
	}
	if c.all >= maxConns || c.of[from] >= most {
		return false
	}
	c.all++
	c.of[from]++
	return true
}

func (c *conns) leave(from string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.of[from]--; c.of[from] == 0 {
		delete(c.of, from)
	}
}

// door is a listener. Handshakes have goroutines of their own, which end with the connection or the door.
type door struct {
	net.Listener
	tls   *tls.Config
	mode  string // yes: TLS only; no: plain only; both
	open  *conns
	ready chan net.Conn
	done  chan struct{}
	once  sync.Once
	wg    sync.WaitGroup
	err   error
}

const acceptPause = 50 * time.Millisecond

func newDoor(l net.Listener, cfg *tls.Config, mode string, open *conns) *door {
	d := &door{Listener: l, tls: cfg, mode: mode, open: open, ready: make(chan net.Conn), done: make(chan struct{})}
	d.wg.Go(d.take)
	return d
}

// take accepts connections until the listener is closed.
func (d *door) take() {
	for {
		nc, err := d.Listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			select { // no descriptors, or memory: it gets better
			case <-time.After(acceptPause):
			case <-d.done:
				return
			}
			continue
		}
		from := server.Host(nc.RemoteAddr().String())
		if !d.open.enter(from) {
			_ = nc.Close() // it is told nothing: it holds hundreds of connections
			continue
		}
		own := &counted{Conn: nc, leave: sync.OnceFunc(func() { d.open.leave(from) })}
		d.wg.Go(func() { d.greet(own) })
	}
}

// greet finds out what a connection speaks.
func (d *door) greet(nc net.Conn) {
	const handshake = 0x16                             // the first byte of TLS
	_ = nc.SetReadDeadline(time.Now().Add(headerTime)) // a failure shows in the read
	peeked := &peekedConn{Conn: nc, r: bufio.NewReader(nc)}
	first, err := peeked.r.Peek(1)
	if err != nil {
		_ = nc.Close() // nobody speaks
		return
	}
	_ = nc.SetReadDeadline(time.Time{}) // likewise
	var out net.Conn = peeked
	switch isTLS := first[0] == handshake; {
	case isTLS && d.mode != "no":
		out = tls.Server(peeked, d.tls)
	case !isTLS && d.mode == "yes":
		const text = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n" +
			"This port speaks TLS: use https://, or see HttpTLS in gbatch.conf(5).\n"
		_ = nc.SetDeadline(time.Now().Add(time.Second)) // a failure shows in the write
		_, _ = nc.Write([]byte(text))                   // who has gone needs no answer
		_ = nc.Close()
		return
	case isTLS:
		_ = nc.Close() // a TLS client understands nothing else
		return
	}
	select {
	case d.ready <- out:
	case <-d.done:
		_ = nc.Close() // the server ends
	}
}

func (d *door) Accept() (net.Conn, error) {
	select {
	case nc := <-d.ready:
		return nc, nil
	case <-d.done:
		return nil, net.ErrClosed
	}
}

func (d *door) Close() error {
	d.once.Do(func() {
		close(d.done)
		d.err = d.Listener.Close()
	})
	return d.err
}

// peekedConn is a connection whose first bytes have been looked at.
type peekedConn struct {
	net.Conn
	r *bufio.Reader
}

func (p *peekedConn) Read(b []byte) (int, error) {
	if p.r != nil {
		if p.r.Buffered() > 0 {
			return p.r.Read(b)
		}
		p.r = nil
	}
	return p.Conn.Read(b)
}

// counted gives its place back when it is closed.
type counted struct {
	net.Conn
	leave func()
}

func (c *counted) Close() error {
	c.leave()
	return c.Conn.Close()
}

// localDoor is the unix socket with a bound on each user's connections.
type localDoor struct {
	net.Listener
	open *conns
}

func (d *localDoor) Accept() (net.Conn, error) {
	for {
		nc, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := "nobody"
		if peer, err := server.UnixPeer(nc); err == nil {
			from = peer.String()
			if u, ok := peer.User(); ok {
				from = "uid " + strconv.FormatUint(uint64(u.UID), 10)
			}
		}
		if d.open.enter(from) {
			return &counted{Conn: nc, leave: sync.OnceFunc(func() { d.open.leave(from) })}, nil
		}
		_ = nc.Close() // it is told nothing: its user holds hundreds of connections
	}
}

// peerKey finds, in a request's context, the process at the other end of the unix socket.
type peerKey struct{}

func withPeer(ctx context.Context, nc net.Conn) context.Context {
	if c, ok := nc.(*counted); ok {
		nc = c.Conn
	}
	if _, local := nc.(*net.UnixConn); !local {
		return ctx
	}
	peer, err := server.UnixPeer(nc)
	u, ok := peer.User()
	if err != nil || !ok {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, &u)
}

// LocalUser is whom the kernel names at the other end of the unix socket; nil: the request came in another way.
func LocalUser(ctx context.Context) *rpc.User {
	u, _ := ctx.Value(peerKey{}).(*rpc.User)
	return u
}
