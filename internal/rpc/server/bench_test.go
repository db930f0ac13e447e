package server

import (
	"context"
	"testing"
	"time"

	"gbatch/internal/rpc"
)

// A list of 10,000 records as FACTS.md section 8 has it: 1.64 MB, sent in parts of about 64 KiB.
const (
	listBytes = 1640 << 10
	partBytes = 64 << 10
)

func listHandler(_ context.Context, r *Request) {
	if r.Kind == kindEcho {
		_ = r.Reply(r.Body)
		return
	}
	part := make([]byte, partBytes)
	for left := listBytes; left > partBytes; left -= partBytes {
		if r.ReplyMore(part) != nil {
			return
		}
	}
	_ = r.Reply(part)
}

// BenchmarkCommand does the same as a user command: connect, make one request, disconnect.
func BenchmarkCommand(b *testing.B) {
	s := startServer(b, listHandler, Options{})
	body := make([]byte, 500)
	for b.Loop() {
		c, err := rpc.DialUnix(s.path, time.Second)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := c.Call(context.Background(), kindEcho, body); err != nil {
			b.Fatal(err)
		}
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	s := startServer(b, listHandler, Options{})
	body := make([]byte, 500)
	b.Run("conn", func(b *testing.B) {
		c := s.dial(b)
		for b.Loop() {
			if _, err := c.Call(context.Background(), kindEcho, body); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("mux", func(b *testing.B) {
		m := s.dialMux(b)
		for b.Loop() {
			if _, err := m.Call(context.Background(), kindEcho, body); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("mux64", func(b *testing.B) {
		m := s.dialMux(b)
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := m.Call(context.Background(), kindEcho, body); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}

func BenchmarkStream10k(b *testing.B) {
	s := startServer(b, listHandler, Options{})
	for name, c := range map[string]rpc.Caller{"conn": s.dial(b), "mux": s.dialMux(b)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(listBytes)
			for b.Loop() {
				if err := c.Stream(context.Background(), kindStream, nil, func(*rpc.Frame) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
