package exporter

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestIdleConnections: whoever holds connections open, from however many hosts, keeps nobody from a scrape.
func TestIdleConnections(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &Exporter{Listen: ln.Addr().String(), Look: demo, Log: slog.New(slog.DiscardHandler)}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { e.Run(ctx); close(done) }()
	defer func() { stop(); <-done }()
	hold := func(from string) *bufio.Reader {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		var nc net.Conn
		for until := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			if nc, err = d.Dial("tcp", e.Listen); err == nil || time.Now().After(until) {
				break
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(30 * time.Second)) // shows in the read
		if _, err := io.WriteString(nc, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(nc)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal("not answered:", err)
		}
		_, _ = io.Copy(io.Discard, resp.Body) // "ok"
		return r
	}
	scrape := func() {
		t.Helper()
		c := &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := c.Get("http://" + e.Listen + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // the answer is there
	}
	other := hold("127.0.0.2")
	var first *bufio.Reader
	for range maxConns {
		if r := hold("127.0.0.3"); first == nil {
			first = r
		}
	}
	scrape()
	if _, err := first.Peek(1); err != io.EOF {
		t.Errorf("the oldest of a host with %d connections: %v", maxConns, err)
	}
	if other.Buffered() != 0 {
		t.Error("another host's connection has an answer that nobody asked for")
	}
	for i := range maxConns {
		hold(net.IPv4(127, 0, 1, byte(i)).String())
	}
	scrape()
	if _, err := other.Peek(1); err != io.EOF {
		t.Errorf("the oldest of all: %v", err)
	}
}
