package pki

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gbatch/internal/rpc"
)

func TestCallOverTLS(t *testing.T) {
	dir := testCA(t, "c")
	d := startDaemon(t, dir, RoleCtld, "ctld1", nil)
	for _, role := range Roles() {
		got, err := d.call(t, dir, role, RoleCtld)
		if want := role + " " + role + "1: hello"; err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

// A node's session with its controller: the node asks, then both speak when they like.
func TestSessionOverTLS(t *testing.T) {
	dir := testCA(t, "c")
	d := startDaemon(t, dir, RoleCtld, "ctld1", nil)
	cfg, err := Load(dir, RoleNode, "node1")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []uint16{kindSession, kindLateSession} {
		for _, ahead := range []int{0, 50} {
			t.Run(fmt.Sprintf("kind %d, %d frames ahead", kind, ahead), func(t *testing.T) {
				nc, err := Dial(context.Background(), d.addr, ProtoRPC, cfg, RoleCtld)
				if err != nil {
					t.Fatal(err)
				}
				c := rpc.Client(nc, rpc.ConnOptions{Name: "ctld"})
				defer c.Close()
				if err := c.WriteFrame(kind, 0, 1, nil); err != nil {
					t.Fatal(err)
				}
				var f rpc.Frame
				for i := range ahead + 10 {
					if err := c.WriteFrame(7, 0, uint32(i), make([]byte, 3000)); err != nil {
						t.Fatal(err)
					}
				}
				for i := range ahead + 10 {
					if err := c.ReadFrame(&f); err != nil || f.ID != uint32(i) || len(f.Body) != 3000 {
						t.Fatalf("frame %d: id %d with %d bytes, %v", i, f.ID, len(f.Body), err)
					}
				}
				// A deadline that passes between frames costs nothing, under TLS neither.
				if err := c.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
					t.Fatal(err)
				}
				if err := c.ReadFrame(&f); !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, rpc.ErrLost) {
					t.Fatalf("got %v", err)
				}
				if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
					t.Fatal(err)
				}
				if err := c.WriteFrame(7, 0, 77, []byte("again")); err != nil {
					t.Fatal(err)
				}
				if err := c.ReadFrame(&f); err != nil || string(f.Body) != "again" {
					t.Errorf("got %q, %v", f.Body, err)
				}
			})
		}
	}
}

// Garbage from a daemon with a good certificate: its connection ends with a word, others live.
func TestGarbageOverTLS(t *testing.T) {
	dir := testCA(t, "c")
	d := startDaemon(t, dir, RoleCtld, "ctld1", nil)
	cfg, err := Load(dir, RoleNode, "node1")
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]string{
		"preface":   "GET / HTTP/1.1\r\n\r\n",
		"frame":     "GBATCH\x00\x01garbage, garbage, garbage",
		"oversized": "GBATCH\x00\x01\x7f\xff\xff\xff\x00\x01\x00\x00\x00\x00\x00\x01",
	} {
		t.Run(name, func(t *testing.T) {
			nc, err := Dial(context.Background(), d.addr, ProtoRPC, cfg, RoleCtld)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			if err := nc.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(nc, in); err != nil {
				t.Fatal(err)
			}
			var n net.Error
			if _, err := io.ReadAll(nc); errors.As(err, &n) && n.Timeout() {
				t.Error("the connection stays open")
			}
		})
	}
	if got, err := d.call(t, dir, RoleNode, RoleCtld); err != nil {
		t.Errorf("after it: %q, %v", got, err)
	}
	d.log.waitFor(t, "node node1 (127.0.0.1:")
}

func TestTwoProtocolsOnOnePort(t *testing.T) {
	dir := testCA(t, "c")
	d := startDaemon(t, dir, RoleCtld, "ctld1", nil)
	raft := d.Proto(ProtoRaft)
	if d.Proto("h2") != nil {
		t.Error("there is a listener for a protocol that is not served")
	}
	cfg, err := Load(dir, RoleCtld, "ctld1")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		nc, err := raft.Accept()
		if err != nil {
			done <- err
			return
		}
		p, err := PeerOfConn(nc)
		if role, name, ok := p.Daemon(); !ok || role != RoleCtld || name != "ctld1" {
			t.Errorf("the raft peer is %v", p)
		}
		_, werr := io.WriteString(nc, "raft here")
		done <- errors.Join(err, werr, nc.Close())
	}()
	nc, err := Dial(context.Background(), d.addr, ProtoRaft, cfg, RoleCtld)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := PeerOfConn(nc); err != nil || p.String() != "ctld ctld1" {
		t.Errorf("the server is %v, %v", p, err)
	}
	b, err := io.ReadAll(nc)
	if err != nil || string(b) != "raft here" {
		t.Errorf("got %q, %v", b, err)
	}
	if err := errors.Join(<-done, nc.Close()); err != nil {
		t.Error(err)
	}
	if got, err := d.call(t, dir, RoleNode, RoleCtld); err != nil {
		t.Errorf("rpc beside it: %q, %v", got, err)
	}
	// A closed protocol's listener accepts no peer; the others continue.
	if err := raft.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := raft.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after its end raft accepts: %v", err)
	}
	if nc, err := Dial(context.Background(), d.addr, ProtoRaft, cfg, RoleCtld); err == nil {
		if _, err := io.ReadAll(nc); err != nil && !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
			t.Errorf("got %v", err)
		}
		_ = nc.Close()
	}
	if got, err := d.call(t, dir, RoleNode, RoleCtld); err != nil {
		t.Errorf("rpc after raft: %q, %v", got, err)
	}
}

// Plain TCP of all kinds gets nothing but the end, and others are served meanwhile.
func TestPlainTCP(t *testing.T) {
	dir := testCA(t, "c")
	d := startDaemon(t, dir, RoleCtld, "ctld1", func(l *Listener) { l.patience = 2 * time.Second })
	kinds := map[string]string{
		"http":      "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"gbatch":    "GBATCH\x00\x01\x00\x00\x00\x08\x00\x01\x00\x00\x00\x00\x00\x01",
		"garbage":   "\xff\xfe\xfd\xfc\x00\x00\x00",
		"half":      "\x16\x03\x01\x02",
		"oversized": "\x16\x03\x01\xff\xff" + strings.Repeat("x", 70000),
		"silence":   "",
	}
	one := func(in string) func(*testing.T) {
		return func(t *testing.T) {
			t.Parallel()
			nc, err := net.Dial("tcp", d.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			if err := nc.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(nc, in); err != nil && !strings.Contains(err.Error(), "reset") &&
				!strings.Contains(err.Error(), "broken pipe") {
				t.Fatal(err)
			}
			if got, err := d.call(t, dir, RoleNode, RoleCtld); err != nil {
				t.Errorf("others meanwhile: %q, %v", got, err)
			}
			b, err := io.ReadAll(nc)
			var n net.Error
			if errors.As(err, &n) && n.Timeout() || len(b) > 7 { // an alert is 7 bytes
				t.Errorf("got %q, %v", b, err)
			}
		}
	}
	t.Run("at once", func(t *testing.T) {
		for name, in := range kinds {
			t.Run(name, one(in))
		}
	})
	if n := strings.Count(d.log.String(), "refused a connection"); n != 1 {
		t.Errorf("%d lines about one address within a minute:\n%s", n, d.log)
	}
}

// TestSilentStrangersGiveWay checks that with silent peers in every handshake, the next peer is still served.
func TestSilentStrangersGiveWay(t *testing.T) {
	dir := testCA(t, "c")
	const limit = 4
	d := startDaemon(t, dir, RoleCtld, "ctld1", func(l *Listener) { l.limit = limit })
	var silent []net.Conn
	for range 3 * limit {
		nc, err := net.Dial("tcp", d.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		silent = append(silent, nc)
	}
	if got, err := d.call(t, dir, RoleNode, RoleCtld); err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	// The oldest had to go, well before HandshakeTimeout.
	if err := silent[0].SetReadDeadline(time.Now().Add(HandshakeTimeout / 2)); err != nil {
		t.Fatal(err)
	}
	var n net.Error
	if _, err := silent[0].Read(make([]byte, 1)); err == nil || errors.As(err, &n) && n.Timeout() {
		t.Errorf("the oldest silent one got %v", err)
	}
	// Close doesn't wait for the remaining peers.
	start := time.Now()
	d.stop()
	if took := time.Since(start); took > HandshakeTimeout/2 {
		t.Errorf("Close took %v", took)
	}
}

func TestManyDialAtOnce(t *testing.T) {
	dir := testCA(t, "c")
	d := startDaemon(t, dir, RoleCtld, "ctld1", nil)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if got, err := d.call(t, dir, RoleNode, RoleCtld); err != nil || got != "node node1: hello" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	wg.Wait()
}

func TestAcceptQueueIsBounded(t *testing.T) {
	p := &protoListener{conns: make(chan net.Conn, 2), done: make(chan struct{})}
	var ends []net.Conn
	for i := range 3 {
		a, b := net.Pipe()
		ends = append(ends, b)
		if err := p.deliver(a); (err != nil) != (i == 2) {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	for i, b := range ends[:2] {
		if _, err := b.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("waiting connection %d got %v", i, err)
		}
	}
	a, _ := net.Pipe()
	if err := p.deliver(a); err == nil {
		t.Error("delivered to a closed listener")
	}
}

func TestListenRefusesUnsafeConfigurations(t *testing.T) {
	dir := testCA(t, "c")
	good, err := Load(dir, RoleCtld, "ctld1")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	rpcOnly := Accept{Proto: ProtoRPC}
	for name, listen := range map[string]func() (*Listener, error){
		"nobody's":    func() (*Listener, error) { return Listen("127.0.0.1:0", nil, log, rpcOnly) },
		"no protocol": func() (*Listener, error) { return Listen("127.0.0.1:0", good, log) },
		"twice":       func() (*Listener, error) { return Listen("127.0.0.1:0", good, log, rpcOnly, rpcOnly) },
		"role": func() (*Listener,
			error) {
			return Listen("127.0.0.1:0", good, log, Accept{ProtoRPC, []string{"king"}})
		},
		"address": func() (*Listener, error) { return Listen("127.0.0.1:99999", good, log, rpcOnly) },
	} {
		if l, err := listen(); err == nil {
			t.Errorf("%s: listens on %s", name, l.Addr())
		}
	}
	l, err := Listen("127.0.0.1:0", good, log, rpcOnly)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	// A ClientTLS configuration without Dial's role connects to nobody.
	if c, err := tls.Dial("tcp", startDaemon(t, dir, RoleCtld, "ctld1", nil).addr, good.ClientTLS()); err == nil {
		t.Errorf("connected to %s", c.RemoteAddr())
	}
}

// TestListenSoon: a daemon waits a while for a port that is in use, and says so.
func TestListenSoon(t *testing.T) {
	creds, err := Load(testCA(t, "c"), RoleCtld, "ctld1")
	if err != nil {
		t.Fatal(err)
	}
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := other.Addr().String()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	if _, err := ListenSoon(0, addr, creds, log, Accept{Proto: ProtoRPC}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("without patience: %v", err)
	}
	says := &firstLine{said: make(chan struct{})}
	go func() {
		<-says.said
		_ = other.Close() // the port is free
	}()
	l, err := ListenSoon(time.Minute, addr, creds, slog.New(slog.NewTextHandler(says, nil)), Accept{Proto: ProtoRPC})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil || !strings.Contains(says.text, "the port is in use") {
		t.Errorf("%v, %q", err, says.text)
	}
}

// firstLine has the first line of a log.
type firstLine struct {
	text string
	said chan struct{}
}

func (f *firstLine) Write(b []byte) (int, error) {
	if f.text == "" {
		f.text = string(b)
		close(f.said)
	}
	return len(b), nil
}
