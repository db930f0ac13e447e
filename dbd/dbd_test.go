package dbd

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
)

// certificates makes a cluster's authority with one certificate of each role.
func certificates(t testing.TB, dir string) {
	t.Helper()
	if err := pki.InitCA(dir, "c"); err != nil {
		t.Fatal(err)
	}
	for _, role := range pki.Roles() {
		if err := pki.Issue(dir, role, "acct", nil, dir); err != nil {
			t.Fatal(err)
		}
	}
}

type daemonInTest struct {
	*Daemon
	pki  string
	stop func() error
}

// startDaemon runs a daemon over real TLS until the test ends or stop is called.
func startDaemon(t testing.TB, change func(*Options)) *daemonInTest {
	t.Helper()
	dir := t.TempDir()
	o := Options{Name: "acct", Listen: "127.0.0.1:0", Dir: filepath.Join(dir, "db"), PKI: filepath.Join(dir, "pki"),
		Logger: testLog(t)}
	certificates(t, o.PKI)
	if change != nil {
		change(&o)
	}
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	r := &daemonInTest{Daemon: d, pki: o.PKI}
	r.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = r.stop() }) // tests that care have called it
	return r
}

func dial(t testing.TB, addr, dir, role string) (*rpc.Mux, error) {
	t.Helper()
	cfg, err := pki.Load(dir, role, "acct")
	if err != nil {
		t.Fatal(err)
	}
	nc, err := pki.Dial(t.Context(), addr, pki.ProtoRPC, cfg, pki.RoleDBD)
	if err != nil {
		return nil, err
	}
	m, err := rpc.NewMux(rpc.Client(nc, rpc.ConnOptions{Name: "gdbd"}))
	if err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	t.Cleanup(func() { _ = m.Close() }) // the test is over
	return m, nil
}

func mustDial(t testing.TB, addr, dir string) *rpc.Mux {
	t.Helper()
	m, err := dial(t, addr, dir, pki.RoleCtld)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func call(ctx context.Context, m *rpc.Mux, p *proto.Put) (uint64, error) {
	body, err := proto.Encode(p)
	if err != nil {
		return 0, err
	}
	f, err := m.Call(ctx, proto.KindPut, body)
	if err != nil {
		return 0, err
	}
	var reply proto.PutReply
	return reply.Seq, errors.Join(proto.Decode(f.Body, &reply))
}

func stream(ctx context.Context, m *rpc.Mux, q *proto.AcctRequest) (records []*model.Record, frames int, err error) {
	body, err := proto.Encode(q)
	if err != nil {
		return nil, 0, err
	}
	err = m.Stream(ctx, proto.KindQuery, body, func(f *rpc.Frame) error {
		var chunk proto.RecordsChunk
		if err := proto.Decode(f.Body, &chunk); err != nil {
			return err
		}
		if len(chunk.Records) > proto.ChunkJobs {
			return fmt.Errorf("a chunk of %d records", len(chunk.Records))
		}
		frames++
		records = append(records, chunk.Records...)
		return nil
	})
	return records, frames, err
}

func TestDaemon(t *testing.T) {
	d := startDaemon(t, nil)
	m := mustDial(t, d.Addr(), d.pki)
	if _, err := m.Call(t.Context(), proto.KindPing, nil); err != nil {
		t.Fatal(err)
	}
	var batch []*model.Record
	for i := range 2*proto.ChunkJobs + 10 {
		batch = append(batch, rec(uint64(i+1), model.JobID(i+1)))
	}
	if seq, err := call(t.Context(), m, &proto.Put{Cluster: "c", Records: batch}); err != nil ||
		seq != uint64(len(batch)) {
		t.Fatal(seq, err)
	}
	records, frames, err := stream(t.Context(), m, &proto.AcctRequest{})
	if err != nil || len(records) != len(batch) || frames != 4 {
		t.Fatalf("%d records in %d frames, %v", len(records), frames, err)
	}
	for i, r := range records {
		if r.Job != model.JobID(i+1) || r.SubmitLine != batch[0].SubmitLine || r.Cluster != "c" {
			t.Fatalf("record %d is %+v", i, r)
		}
	}
	if records, _, err := stream(t.Context(), m,
		&proto.AcctRequest{Jobs: []model.JobRef{{Job: 4711, Task: model.NoTask}}}); err != nil || len(records) != 0 {
		t.Error(records, err)
	}
	wantRefusal := func(kind uint16, body []byte, want string) {
		t.Helper()
		_, err := m.Call(t.Context(), kind, body)
		var e *rpc.Error
		if !errors.As(err, &e) || e.Code != proto.CodeBadRequest && e.Code != proto.CodeAccess ||
			!strings.Contains(e.Text, want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	wantRefusal(proto.KindPut, []byte{0xc1}, "can't be read")
	wantRefusal(proto.KindPut, nil, "can't be read")
	wantRefusal(proto.KindQuery, []byte("\xdd\xff\xff\xff\xff"), "can't be read")
	wantRefusal(proto.KindSubmit, nil, "can't ask this of gdbd")
	body, err := proto.Encode(&proto.AcctRequest{Start: 2000, End: 1000})
	if err != nil {
		t.Fatal(err)
	}
	wantRefusal(proto.KindQuery, body, "ends before it starts")
	if err := d.stop(); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := d.Run(t.Context()); err == nil {
		t.Error("ran again")
	}
}

// TestOnlyControllers: no other role, no other authority and no stranger without a certificate gets an answer.
func TestOnlyControllers(t *testing.T) {
	d := startDaemon(t, func(o *Options) { o.Logger = slog.New(slog.DiscardHandler) })
	for _, role := range []string{pki.RoleNode, pki.RoleLogin} {
		if _, err := dial(t, d.Addr(), d.pki, role); err == nil {
			t.Errorf("a %s was let in", role)
		}
	}
	other := t.TempDir()
	certificates(t, other)
	if _, err := dial(t, d.Addr(), other, pki.RoleCtld); err == nil {
		t.Error("another cluster's controller was let in")
	}
	nc, err := tls.Dial("tcp", d.Addr(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{pki.ProtoRPC}})
	if err == nil { // TLS 1.3 tells a client of its refusal with the first read
		if n, err := nc.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Error("a stranger got an answer")
		}
		_ = nc.Close() // refused
	}
}

// TestGarbage sends garbage to the port, before and after the handshake; gdbd still serves.
func TestGarbage(t *testing.T) {
	d := startDaemon(t, func(o *Options) { o.Logger = slog.New(slog.DiscardHandler) })
	frame := func(length uint32, kind uint16, body string) string {
		b := binary.BigEndian.AppendUint32([]byte("GBATCH\x00\x01"), length)
		b = binary.BigEndian.AppendUint16(b, kind)
		return string(b) + "\x00\x00\x00\x00\x00\x01" + body
	}
	garbage := []string{
		"", "GET / HTTP/1.0\r\n\r\n", strings.Repeat("\xff", 9000), "GBATCH\x00\x09",
		frame(1<<31, proto.KindPut, ""), frame(3, proto.KindPut, ""), frame(8, proto.KindPut, ""),
		frame(18, proto.KindPut, strings.Repeat("\x91", 10)), frame(8+5, proto.KindQuery, "\xdf\xff\xff\xff\xff"),
		frame(400, proto.KindPut, "cut"),
	}
	cfg, err := pki.Load(d.pki, pki.RoleCtld, "acct")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range garbage {
		plain, err := net.Dial("tcp", d.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(plain, g) // it may be closed on us already
		_ = plain.Close()

		nc, err := pki.Dial(t.Context(), d.Addr(), pki.ProtoRPC, cfg, pki.RoleDBD)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(nc, g) // as above
		_ = nc.Close()
	}
	m := mustDial(t, d.Addr(), d.pki)
	if seq, err := call(t.Context(), m, &proto.Put{Cluster: "c", Records: []*model.Record{rec(1, 1)}}); err != nil ||
		seq != 1 {
		t.Error(seq, err)
	}
}

func TestOptions(t *testing.T) {
	good := Options{Name: "acct", Listen: "127.0.0.1:0", Dir: t.TempDir(), PKI: t.TempDir()}
	certificates(t, good.PKI)
	for want, change := range map[string]func(*Options){
		"-N":              func(o *Options) { o.Name = "" },
		"--listen":        func(o *Options) { o.Listen = "" },
		"--dir":           func(o *Options) { o.Dir = "" },
		"--pki":           func(o *Options) { o.PKI = "" },
		"months to keep":  func(o *Options) { o.KeepMonths = -1 },
		"dbd-other.crt":   func(o *Options) { o.Name = "other" },
		"not a directory": func(o *Options) { o.Dir = filepath.Join(o.PKI, "ca.crt") },
		"another gdbd":    func(o *Options) { o.Listen = "256.0.0.1:1" },
		"missing port":    func(o *Options) { o.Listen = "localhost" },
	} {
		o := good
		change(&o)
		d, err := New(o)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if err == nil {
			_ = d.Close() // reported above
		}
	}
	first, err := New(good)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(good); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v", err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
}

func TestCloseWithoutRun(t *testing.T) {
	o := Options{Name: "acct", Listen: "127.0.0.1:0", Dir: t.TempDir(), PKI: t.TempDir()}
	certificates(t, o.PKI)
	for range 2 {
		d, err := New(o) // the second time: everything was given up
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.Close(), d.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCloseEndsRun(t *testing.T) {
	o := Options{Name: "acct", Listen: "127.0.0.1:0", Dir: t.TempDir(), PKI: t.TempDir(), Logger: testLog(t)}
	certificates(t, o.PKI)
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- d.Run(context.Background()) }()
	m := mustDial(t, d.Addr(), o.PKI)
	if _, err := m.Call(t.Context(), proto.KindPing, nil); err != nil { // it runs
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
