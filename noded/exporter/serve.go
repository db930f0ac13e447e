package exporter

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limits of the port.
const (
	maxScrapes = 4
	maxConns   = 32
	maxHeader  = 16 << 10
	patience   = 10 * time.Second
	idle       = 2 * time.Minute
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
	if err := s.Serve(&bounded{Listener: ln, slots: make(chan struct{}, maxConns)}); ctx.Err() == nil &&
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

// bounded is a listener with a limit of connections; more wait in the kernel.
type bounded struct {
	net.Listener
	slots chan struct{}
}

func (b *bounded) Accept() (net.Conn, error) {
	b.slots <- struct{}{} // given back when a connection ends, which its timeouts see to
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.slots
		return nil, err
	}
	return &boundedConn{Conn: c, slots: b.slots}, nil
}

type boundedConn struct {
	net.Conn
	once  sync.Once
	slots chan struct{}
}

func (c *boundedConn) Close() error {
	c.once.Do(func() { <-c.slots })
	return c.Conn.Close()
}
