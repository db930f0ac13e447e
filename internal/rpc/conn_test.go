package rpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sockPair gives two connected unix sockets.
func sockPair(t *testing.T) (a, b *sock) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b = &sock{fd: fds[0]}, &sock{fd: fds[1]}
	t.Cleanup(func() {
		_ = a.Close() // the test may have closed it
		_ = b.Close()
	})
	return a, b
}

// connPair gives a client and a server connection after their handshake.
func connPair(t *testing.T) (client, server *Conn) {
	t.Helper()
	a, b := sockPair(t)
	done := make(chan error, 1)
	client = Client(a, ConnOptions{Name: "server"})
	go func() { done <- client.Handshake() }()
	server, err := Accept(b, ConnOptions{Name: "client"})
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	return client, server
}

func TestFramesBothWays(t *testing.T) {
	client, server := connPair(t)
	sizes := []int{0, 1, writeBuffer - headerLen, writeBuffer - headerLen + 1, writeBuffer, 3 * writeBuffer, 5 << 20}
	go func() {
		var f Frame
		for range sizes {
			if err := server.ReadFrame(&f); err != nil {
				t.Error(err)
				return
			}
			if err := server.WriteFrame(f.Kind+1, f.Flags, f.ID, f.Body); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	var f Frame
	for i, n := range sizes {
		body := bytes.Repeat([]byte{byte(i + 1)}, n)
		if err := client.WriteFrame(uint16(i), FlagMore, uint32(i), body); err != nil {
			t.Fatal(err)
		}
		if err := client.ReadFrame(&f); err != nil {
			t.Fatal(err)
		}
		if f.Kind != uint16(i+1) || f.ID != uint32(i) || !f.More() || !bytes.Equal(f.Body, body) {
			t.Errorf("%d bytes came back as kind %d id %d with %d bytes", n, f.Kind, f.ID, len(f.Body))
		}
	}
}

func TestConcurrentWriters(t *testing.T) {
	client, server := connPair(t)
	const writers, each = 8, 200
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := client.WriteFrame(uint16(w), 0, uint32(i), bytes.Repeat([]byte{byte(w)}, i*100)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	next := make([]uint32, writers)
	var f Frame
	for range writers * each {
		if err := server.ReadFrame(&f); err != nil {
			t.Fatal(err)
		}
		if f.ID != next[f.Kind] || len(f.Body) != int(f.ID)*100 || len(bytes.Trim(f.Body, string(rune(f.Kind)))) != 0 {
			t.Fatalf("writer %d: got frame %d with %d bytes where %d was due", f.Kind, f.ID, len(f.Body), next[f.Kind])
		}
		next[f.Kind]++
	}
	wg.Wait()
}

func TestQueuedFramesLeaveTogether(t *testing.T) {
	m := &memStream{}
	c := newConn(m, ConnOptions{})
	for i := range 3 {
		if err := c.QueueFrame(1, 0, uint32(i), []byte("abc")); err != nil {
			t.Fatal(err)
		}
	}
	if m.out.Len() != 0 {
		t.Errorf("%d bytes left early", m.out.Len())
	}
	if err := c.Flush(); err != nil || m.out.Len() != 3*(headerLen+3) {
		t.Errorf("%d bytes after the flush, %v", m.out.Len(), err)
	}
}

func TestReadDeadlineLosesNothing(t *testing.T) {
	client, server := connPair(t)
	var f Frame
	if err := server.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if err := server.ReadFrame(&f); !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, ErrLost) {
		t.Fatalf("got %v, want only a passed deadline", err)
	}
	if err := client.WriteFrame(1, 0, 5, []byte("late")); err != nil {
		t.Fatal(err)
	}
	if err := server.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := server.ReadFrame(&f); err != nil || string(f.Body) != "late" {
		t.Errorf("got %q, %v", f.Body, err)
	}
}

// TestFrameMustEnd checks that an incomplete frame does not block a reader forever, even without a read deadline.
func TestFrameMustEnd(t *testing.T) {
	for _, begun := range [][]byte{{0}, appendHeader(nil, 1, 0, 1, 100)} {
		a, b := sockPair(t)
		c := newConn(b, ConnOptions{Name: "slow"})
		c.frameTimeout = 20 * time.Millisecond
		if _, err := a.Write(begun); err != nil {
			t.Fatal(err)
		}
		var f Frame
		if err := c.ReadFrame(&f); !errors.Is(err, ErrLost) || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes of a frame: %v", len(begun), err)
		}
	}
}

func TestPeerThatDoesNotRead(t *testing.T) {
	a, _ := sockPair(t)
	c := newConn(a, ConnOptions{Name: "deaf"})
	done := make(chan error, 1)
	go func() { done <- c.WriteFrame(1, 0, 1, make([]byte, 8<<20)) }()
	// Close from another goroutine ends it before WriteTimeout.
	for c.wmu.TryLock() {
		c.wmu.Unlock()
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, ErrClosed) && !errors.Is(err, ErrLost) {
		t.Errorf("got %v", err)
	}
}

func TestCloseWakesReader(t *testing.T) {
	client, server := connPair(t)
	done := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		var f Frame
		close(started)
		done <- client.ReadFrame(&f)
	}()
	<-started
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("the reader got %v", err)
	}
	if err := client.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
	var f Frame
	if err := server.ReadFrame(&f); err != io.EOF {
		t.Errorf("the other side got %v", err)
	}
}

func TestPrefaces(t *testing.T) {
	tests := []struct {
		name, in string
		says     string
		eof      bool
	}{
		{"http", "GET / HTTP/1.1\r\n\r\n", `it opened with "GET / HT"`, false},
		{"one wrong byte", "X", `it opened with "X"`, false},
		{"version", "GBATCH\x00\x09", "the peer speaks 9, this side 1", false},
		{"half", "GBAT", "it sent 4 of the 8 bytes", false},
		{"nothing", "", "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := sockPair(t)
			if _, err := a.Write([]byte(tt.in)); err != nil {
				t.Fatal(err)
			}
			if err := unix.Shutdown(a.fd, unix.SHUT_WR); err != nil {
				t.Fatal(err)
			}
			_, err := Accept(b, ConnOptions{Name: "stranger"})
			if tt.eof {
				if err != io.EOF {
					t.Errorf("got %v, want io.EOF", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "stranger") {
				t.Errorf("got %v, want %q", err, tt.says)
			}
		})
	}
	t.Run("silence", func(t *testing.T) {
		_, b := sockPair(t)
		if _, err := accept(b, ConnOptions{Name: "stranger"}, 5*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("server of another version", func(t *testing.T) {
		a, b := sockPair(t)
		if _, err := b.Write([]byte("GBATCH\x00\x02")); err != nil {
			t.Fatal(err)
		}
		_, err := Client(a, ConnOptions{Name: "server"}).Call(context.Background(), 1, nil)
		if !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), "the peer speaks 2, this side 1") {
			t.Errorf("got %v", err)
		}
	})
}

// TestOneRoundTrip checks that the first request is sent with the preface, and its answer with the server's.
func TestOneRoundTrip(t *testing.T) {
	a, b := sockPair(t)
	client := Client(a, ConnOptions{})
	if err := client.WriteFrame(1, 0, 1, []byte("q")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, err := b.Read(buf)
	if want := prefaceLen + headerLen + 1; err != nil || n != want {
		t.Fatalf("the server got %d bytes at once, want %d, %v", n, want, err)
	}
	m := &memStream{in: bytes.NewReader(buf[:n])}
	server, err := Accept(m, ConnOptions{})
	if err != nil || m.out.Len() != 0 {
		t.Fatalf("%d bytes before the answer, %v", m.out.Len(), err)
	}
	if err := server.WriteFrame(1, 0, 1, []byte("a")); err != nil || m.out.Len() != prefaceLen+headerLen+1 {
		t.Errorf("%d bytes with the answer, %v", m.out.Len(), err)
	}
}

func TestCallEnds(t *testing.T) {
	t.Run("server leaves", func(t *testing.T) {
		client, server := connPair(t)
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Call(context.Background(), 1, nil); !errors.Is(err, ErrLost) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("context", func(t *testing.T) {
		client, _ := connPair(t)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
		defer cancel()
		if _, err := client.Call(ctx, 1, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("read deadline", func(t *testing.T) {
		client, _ := connPair(t)
		if err := client.SetReadDeadline(time.Now().Add(5 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Call(context.Background(), 1, nil); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if _, err := client.Call(context.Background(), 1, nil); !errors.Is(err, ErrClosed) {
			t.Errorf("the next call got %v", err)
		}
	})
	answers := []struct {
		name string
		f    Frame
		is   error
	}{
		{"another's answer", Frame{ID: 99}, ErrProtocol},
		{"a request", Frame{ID: 1, Flags: FlagMux}, ErrProtocol},
		{"many answers", Frame{ID: 1, Flags: FlagMore}, ErrProtocol},
		{"an error that is none", Frame{ID: 1, Flags: FlagError, Body: []byte("x")}, ErrProtocol},
	}
	for _, tt := range answers {
		t.Run(tt.name, func(t *testing.T) {
			client, server := connPair(t)
			if err := server.WriteFrame(1, tt.f.Flags, tt.f.ID, tt.f.Body); err != nil {
				t.Fatal(err)
			}
			if _, err := client.Call(context.Background(), 1, nil); !errors.Is(err, tt.is) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("the server's last word", func(t *testing.T) {
		client, server := connPair(t)
		e := Errorf(CodeBusy, "too many")
		if err := server.WriteFrame(0, FlagError, 0, e.Encode()); err != nil {
			t.Fatal(err)
		}
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
		var got *Error
		// Either the write or the read may fail; both must return the reason.
		if _, err := client.Call(context.Background(), 1, make([]byte, 1<<20)); !errors.As(err, &got) || *got != *e {
			t.Errorf("got %v", err)
		}
	})
}
