package exporter

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"gbatch/internal/rpc/server"
)

// Limits of the port.
const (
	maxScrapes = 4
	maxConns   = 32
	maxConnsOf = 4 // of one host
	maxHeader  = 16 << 10
	patience   = 10 * time.Second
	idle       = 30 * time.Second
)

// Exporter is one node's.
type Exporter struct {
	Listen string   // host:port; "": no port
	Names  []string // sets of names that are served beside DCGM's
	Dir    string   // of the files that say which jobs have which GPU; "": none
	Look   func() *Snapshot
	Log    *slog.Logger
}

// Run serves, and keeps the files, until ctx ends. A port that is taken is no reason for a node to take no jobs.
func (e *Exporter) Run(ctx context.Context) {
	var parts sync.WaitGroup
	defer parts.Wait()
	if e.Dir != "" {
		parts.Go(func() { e.keepFiles(ctx) })
	}
	if e.Listen == "" {
		return
	}
	ln, err := net.Listen("tcp", e.Listen)
	if err != nil {
		e.Log.Error("this node serves no metrics (NodeMetricsListen); jobs are not affected", "err", err)
		return
	}
	e.Log.Info("metrics of this node's GPUs are served", "addr", ln.Addr().String())
	s := &http.Server{Handler: e.handler(), ReadHeaderTimeout: patience, ReadTimeout: patience, WriteTimeout: patience,
		IdleTimeout: idle, MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(e.Log.Handler(), slog.LevelDebug)}
	parts.Go(func() {
		<-ctx.Done()
		_ = s.Close() // who scrapes asks again
	})
	if err := s.Serve(&bounded{Listener: ln}); ctx.Err() == nil &&
		!errors.Is(err, http.ErrServerClosed) {
		e.Log.Error("this node's metrics are not served any more", "err", err)
	}
}

func (e *Exporter) handler() http.Handler {
	turns := make(chan struct{}, maxScrapes)
	m := http.NewServeMux()
	m.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		default:
			http.Error(w, "too many scrapes at the same time", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(e.Look().Text(e.Names)) // who has gone needs no answer
	})
	m.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n")) // likewise
	})
	return m
}

// bounded is a listener with limits of connections. A new one takes the place of the oldest, of its host if that has
// enough and else of all: whoever holds connections open keeps nobody else from asking.
type bounded struct {
	net.Listener

	mu   sync.Mutex
	open []*boundedConn // the oldest first
}

func (b *bounded) Accept() (net.Conn, error) {
	nc, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &boundedConn{Conn: nc, of: b, host: server.Host(nc.RemoteAddr().String())}
	b.mu.Lock()
	var out *boundedConn
	same := 0
	for _, o := range slices.Backward(b.open) {
		if o.host == c.host {
			if same++; same >= maxConnsOf {
				out = o
			}
		}
	}
	if out == nil && len(b.open) >= maxConns {
		out = b.open[0]
	}
	b.open = append(b.open, c)
	b.mu.Unlock()
	if out != nil {
		_ = out.Close() // who uses it connects again
	}
	return c, nil
}

type boundedConn struct {
	net.Conn
	of   *bounded
	host string
}

func (c *boundedConn) Close() error {
	c.of.mu.Lock()
	c.of.open = slices.DeleteFunc(c.of.open, func(o *boundedConn) bool { return o == c })
	c.of.mu.Unlock()
	return c.Conn.Close()
}
