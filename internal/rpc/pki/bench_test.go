package pki

import (
	"context"
	"log/slog"
	"testing"

	"gbatch/internal/rpc"
	"gbatch/internal/rpc/server"
)

func benchMux(b *testing.B) (*rpc.Mux, func()) {
	dir := testCA(b, "c")
	cfg, err := Load(dir, RoleCtld, "ctld1")
	if err != nil {
		b.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	ln, err := Listen("127.0.0.1:0", cfg, log, Accept{Proto: ProtoRPC})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	part := make([]byte, 64<<10)
	go func() {
		done <- server.Serve(ctx, ln.Proto(ProtoRPC), func(_ context.Context, r *server.Request) {
			for i := 1; r.Kind == 2 && i < 26; i++ {
				if r.ReplyMore(part) != nil {
					return
				}
			}
			_ = r.Reply(r.Body)
		}, server.Options{Log: log, Peer: PeerOfConn})
	}()
	client, err := Load(dir, RoleNode, "node1")
	if err != nil {
		b.Fatal(err)
	}
	dial := func() *rpc.Mux {
		nc, err := Dial(context.Background(), ln.Addr().String(), ProtoRPC, client, RoleCtld)
		if err != nil {
			b.Fatal(err)
		}
		m, err := rpc.NewMux(rpc.Client(nc, rpc.ConnOptions{Name: "ctld"}))
		if err != nil {
			b.Fatal(err)
		}
		return m
	}
	m := dial()
	b.Cleanup(func() {
		_ = m.Close()
		cancel()
		<-done
		_ = ln.Close()
	})
	return m, func() { _ = dial().Close() }
}

func BenchmarkTLS(b *testing.B) {
	m, connect := benchMux(b)
	body := make([]byte, 500)
	b.Run("round trip", func(b *testing.B) {
		for b.Loop() {
			if _, err := m.Call(context.Background(), 1, body); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("stream10k", func(b *testing.B) {
		b.SetBytes(1640 << 10)
		for b.Loop() {
			if err := m.Stream(context.Background(), 2, nil, func(*rpc.Frame) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("connect", func(b *testing.B) {
		for b.Loop() {
			connect()
		}
	})
}
