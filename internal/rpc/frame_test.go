package rpc

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"
)

// memStream is a Stream over bytes: those from the peer, and those sent to it.
type memStream struct {
	in  io.Reader
	out bytes.Buffer
}

func (s *memStream) Read(p []byte) (int, error)       { return s.in.Read(p) }
func (s *memStream) Write(p []byte) (int, error)      { return s.out.Write(p) }
func (s *memStream) Close() error                     { return nil }
func (s *memStream) SetReadDeadline(time.Time) error  { return nil }
func (s *memStream) SetWriteDeadline(time.Time) error { return nil }

func frameBytes(kind, flags uint16, id uint32, body []byte) []byte {
	return append(appendHeader(nil, kind, flags, id, len(body)), body...)
}

func TestHeaderRoundTrip(t *testing.T) {
	for _, f := range []Frame{
		{},
		{Kind: 1, Flags: FlagMore, ID: 1, Body: []byte("x")},
		{Kind: 0xffff, Flags: flagsKnown, ID: 0xffffffff, Body: make([]byte, 70000)},
	} {
		c := newConn(&memStream{in: bytes.NewReader(frameBytes(f.Kind, f.Flags, f.ID, f.Body))}, ConnOptions{})
		var got Frame
		if err := c.ReadFrame(&got); err != nil {
			t.Fatal(err)
		}
		if got.Kind != f.Kind || got.Flags != f.Flags || got.ID != f.ID || !bytes.Equal(got.Body, f.Body) {
			t.Errorf("got kind %d flags %#x id %d and %d bytes, want %d %#x %d and %d", got.Kind, got.Flags, got.ID,
				len(got.Body),
				f.Kind, f.Flags, f.ID, len(f.Body))
		}
		if err := c.ReadFrame(&got); err != io.EOF {
			t.Errorf("after the last frame: %v, want io.EOF", err)
		}
	}
}

func TestBadFrames(t *testing.T) {
	tests := []struct {
		name string
		in   []byte
		is   error
		says string
	}{
		{"http", []byte("GET / HTTP/1.1\r\n\r\n"), ErrProtocol, "unknown flags"},
		{"too short a length", []byte{0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0}, ErrProtocol,
			"a frame of 7 bytes is shorter than its header"},
		{"oversized", appendHeader(nil, 1, 0, 1, 1001), ErrProtocol,
			"a message of 1001 bytes is over the limit of 1000 bytes"},
		{"largest length", []byte{0xff, 0xff, 0xff, 0xff, 0, 1, 0, 0, 0, 0, 0, 1}, ErrProtocol, "over the limit"},
		{"unknown flag", appendHeader(nil, 1, 0x8000, 1, 0), ErrProtocol, "unknown flags 0x8000"},
		{"half a header", []byte{0, 0, 0, 9, 0}, ErrLost, "stopped after 5 of the 12 bytes of its header"},
		{"half a body", append(appendHeader(nil, 1, 0, 1, 100), 1, 2, 3), ErrLost, "stopped after 3 of its 100 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newConn(&memStream{in: bytes.NewReader(tt.in)}, ConnOptions{Name: "uid 7 pid 8", ReadLimit: 1000})
			var f Frame
			err := c.ReadFrame(&f)
			if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.says) ||
				!strings.Contains(err.Error(), "uid 7 pid 8") {
				t.Errorf("got %q, want %q, %q and the peer's name", err, tt.is, tt.says)
			}
			if again := c.ReadFrame(&f); again == nil || again.Error() != err.Error() {
				t.Errorf("the next read says %v, want the same reason", again)
			}
			if err := c.WriteFrame(1, 0, 1, nil); err == nil {
				t.Error("the connection still sends")
			}
		})
	}
}

func TestOversizedIsAnErrorWithCode(t *testing.T) {
	c := newConn(&memStream{in: bytes.NewReader(appendHeader(nil, 3, 0, 9, 11))}, ConnOptions{ReadLimit: 10})
	var f Frame
	err := c.ReadFrame(&f)
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeTooLarge || f.ID != 9 {
		t.Errorf("got %v with id %d, want CodeTooLarge and id 9", err, f.ID)
	}
	err = c.WriteFrame(1, 0, 1, nil)
	if err == nil {
		t.Error("sent on a closed connection")
	}
	c = newConn(&memStream{}, ConnOptions{WriteLimit: 10})
	if err := c.WriteFrame(1, 0, 1, make([]byte, 11)); !errors.As(err, &e) || e.Code != CodeTooLarge {
		t.Errorf("got %v, want CodeTooLarge", err)
	}
	if err := c.WriteFrame(1, 0, 1, make([]byte, 10)); err != nil {
		t.Errorf("after a refused message: %v", err)
	}
}

// TestClaimedLengthAllocatesNothing checks that a claimed length allocates nothing before the bytes arrive.
func TestClaimedLengthAllocatesNothing(t *testing.T) {
	in := append(appendHeader(nil, 1, 0, 1, MaxFrame), make([]byte, 1000)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		var f Frame
		if err := newConn(&memStream{in: bytes.NewReader(in)}, ConnOptions{}).ReadFrame(&f); err == nil {
			t.Fatal("half a frame was accepted")
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / 100; each > 2*bodyChunk {
		t.Errorf("each took %d bytes", each)
	}
}

func TestReadFrameReusesBody(t *testing.T) {
	in := append(frameBytes(1, 0, 1, make([]byte, 5000)), frameBytes(1, 0, 2, []byte("short"))...)
	c := newConn(&memStream{in: bytes.NewReader(in)}, ConnOptions{})
	var f Frame
	if err := c.ReadFrame(&f); err != nil {
		t.Fatal(err)
	}
	first := &f.Body[0]
	if err := c.ReadFrame(&f); err != nil {
		t.Fatal(err)
	}
	if string(f.Body) != "short" || &f.Body[0] != first {
		t.Errorf("got %q in other memory", f.Body)
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add(frameBytes(1, FlagMore, 2, []byte("body")))
	f.Add(append(frameBytes(1, 0, 1, nil), frameBytes(2, FlagError, 1, (&Error{Code: 3, Text: "no"}).Encode())...))
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Add(appendHeader(nil, 0, 0, 0, MaxFrame))
	f.Fuzz(func(t *testing.T, in []byte) {
		c := newConn(&memStream{in: bytes.NewReader(in)}, ConnOptions{ReadLimit: 1 << 20})
		out := newConn(&memStream{}, ConnOptions{})
		var fr Frame
		var err error
		for {
			if err = c.ReadFrame(&fr); err != nil {
				break
			}
			if err := out.WriteFrame(fr.Kind, fr.Flags, fr.ID, fr.Body); err != nil {
				t.Fatal(err)
			}
		}
		// The frames that were read encode to the beginning of the input.
		if sent := out.s.(*memStream).out.Bytes(); !bytes.HasPrefix(in, sent) {
			t.Errorf("read %x as frames that write as %x", in, sent)
		}
		if err != io.EOF && !errors.Is(err, ErrProtocol) && !errors.Is(err, ErrLost) {
			t.Errorf("ended with %v", err)
		}
	})
}

func FuzzAccept(f *testing.F) {
	f.Add(preface())
	f.Add([]byte("GBATCH\x00\x02"))
	f.Add([]byte("GBA"))
	f.Add([]byte("SSH-2.0-OpenSSH_9.2\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		s := &memStream{in: bytes.NewReader(in)}
		c, err := Accept(s, ConnOptions{Name: "peer"})
		if ok := bytes.HasPrefix(in, preface()); ok != (err == nil) {
			t.Fatalf("%x: %v", in, err)
		}
		if err != nil {
			return
		}
		var fr Frame
		for c.ReadFrame(&fr) == nil {
		}
	})
}

func TestErrorRoundTrip(t *testing.T) {
	for _, e := range []Error{{}, {Code: 7, Text: "no such job: 12"}, {Code: 0xffff, Text: strings.Repeat("ü", 300)}} {
		got, err := DecodeError(e.Encode())
		if err != nil || *got != e {
			t.Errorf("%v came back as %v, %v", e, got, err)
		}
	}
	long := Error{Text: strings.Repeat("x", maxErrorText+1)}
	if got, err := DecodeError(long.Encode()); err != nil || len(got.Text) != maxErrorText {
		t.Errorf("a long text came back as %d bytes, %v", len(got.Text), err)
	}
	// A later version may add fields.
	if got, err := DecodeError([]byte{0x93, 0x05, 0xa2, 'h', 'i', 0x01}); err != nil || *got != (Error{5, "hi"}) {
		t.Errorf("three fields came back as %v, %v", got, err)
	}
}

func FuzzDecodeError(f *testing.F) {
	f.Add((&Error{Code: 1, Text: "text"}).Encode())
	f.Add([]byte{0x92, 0x01, 0xdb, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		e, err := DecodeError(in)
		if err != nil {
			if !errors.Is(err, ErrProtocol) {
				t.Errorf("%x: %v", in, err)
			}
			return
		}
		if again, err := DecodeError(e.Encode()); err != nil || again.Code != e.Code {
			t.Errorf("%v came back as %v, %v", e, again, err)
		}
	})
}
