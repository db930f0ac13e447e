package dbd

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
)

// childDir makes the test binary a gdbd with that directory, to be killed.
const childDir = "GBATCH_TEST_DBD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		os.Exit(child(dir))
	}
	os.Exit(m.Run())
}

func child(dir string) int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	d, err := New(Options{Name: "acct", Listen: "127.0.0.1:0", Dir: filepath.Join(dir, "db"), PKI: filepath.Join(dir, "pki"), Logger: log})
	if err == nil {
		fmt.Println(d.Addr())
		err = d.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

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
	o := Options{Name: "acct", Listen: "127.0.0.1:0", Dir: filepath.Join(dir, "db"), PKI: filepath.Join(dir, "pki"), Logger: testLog(t)}
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
	cfg, err := pki.ClientTLS(dir, role, "acct")
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
	if seq, err := call(t.Context(), m, &proto.Put{Cluster: "c", Records: batch}); err != nil || seq != uint64(len(batch)) {
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
	if records, _, err := stream(t.Context(), m, &proto.AcctRequest{Jobs: []proto.JobRef{{Job: 4711, Task: model.NoTask}}}); err != nil || len(records) != 0 {
		t.Error(records, err)
	}
	wantRefusal := func(kind uint16, body []byte, want string) {
		t.Helper()
		_, err := m.Call(t.Context(), kind, body)
		var e *rpc.Error
		if !errors.As(err, &e) || e.Code != proto.CodeBadRequest || !strings.Contains(e.Text, want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	wantRefusal(proto.KindPut, []byte{0xc1}, "can't be read")
	wantRefusal(proto.KindPut, nil, "can't be read")
	wantRefusal(proto.KindQuery, []byte("\xdd\xff\xff\xff\xff"), "can't be read")
	wantRefusal(proto.KindSubmit, nil, "doesn't know the request")
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
	for _, role := range []string{pki.RoleNode, pki.RoleLogin, pki.RoleDBD} {
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

// TestGarbage throws what it is not meant to get at the port, before and after the handshake; it still serves.
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
		frame(18, proto.KindPut, strings.Repeat("\x91", 10)), frame(8+5, proto.KindQuery, "\xdf\xff\xff\xff\xff"), frame(400, proto.KindPut, "cut"),
	}
	cfg, err := pki.ClientTLS(d.pki, pki.RoleCtld, "acct")
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
	if seq, err := call(t.Context(), m, &proto.Put{Cluster: "c", Records: []*model.Record{rec(1, 1)}}); err != nil || seq != 1 {
		t.Error(seq, err)
	}
}

func TestOptions(t *testing.T) {
	good := Options{Name: "acct", Listen: "127.0.0.1:0", Dir: t.TempDir(), PKI: t.TempDir()}
	certificates(t, good.PKI)
	for want, change := range map[string]func(*Options){
		"-N":                func(o *Options) { o.Name = "" },
		"--listen":          func(o *Options) { o.Listen = "" },
		"--dir":             func(o *Options) { o.Dir = "" },
		"--pki":             func(o *Options) { o.PKI = "" },
		"months to keep":    func(o *Options) { o.KeepMonths = -1 },
		"dbd-other.crt":     func(o *Options) { o.Name = "other" },
		"not a directory":   func(o *Options) { o.Dir = filepath.Join(o.PKI, "ca.crt") },
		"another gdbd":      func(o *Options) { o.Listen = "256.0.0.1:1" },
		"missing port":      func(o *Options) { o.Listen = "localhost" },
		"in use by another": nil,
	} {
		o := good
		if change != nil {
			change(&o)
		} else {
			first, err := New(good)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = first.Close() }() // Close is tested elsewhere
		}
		d, err := New(o)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if err == nil {
			_ = d.Close() // reported above
		}
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

// TestKilled kills gdbd with SIGKILL again and again while records arrive. Each time what it acknowledged must be
// there, and the controller, which goes on from what was acknowledged to it, must end with every record once.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	certificates(t, filepath.Join(dir, "pki"))
	start := func() (addr string, kill func()) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childDir+"="+dir)
		cmd.Stderr = t.Output()
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 100)
		n, err := out.Read(line)
		kill = sync.OnceFunc(func() {
			_ = cmd.Process.Kill() // it may be gone
			_ = cmd.Wait()         // says that it was killed
		})
		t.Cleanup(kill)
		if err != nil {
			t.Fatal("gdbd didn't start: ", err)
		}
		return strings.TrimSpace(string(line[:n])), kill
	}
	rng := newRand(t)
	acked, next := uint64(0), uint64(1)
	const rounds = 6
	for range rounds {
		addr, kill := start()
		m := mustDial(t, addr, filepath.Join(dir, "pki"))
		if seq, err := call(t.Context(), m, &proto.Put{Cluster: "c"}); err != nil || seq < acked {
			t.Fatalf("%d of %d acknowledged records are left, %v", seq, acked, err)
		}
		puts := 3 + rng.IntN(20)
		for i := 0; ; i++ {
			// From what was acknowledged on: much of it has been there before the kill.
			var batch []*model.Record
			next = acked + 1
			for range 1 + rng.IntN(200) {
				batch = append(batch, rec(next, model.JobID(next)))
				next++
			}
			if i == puts {
				go kill()
			}
			seq, err := call(t.Context(), m, &proto.Put{Cluster: "c", Records: batch})
			if err != nil {
				break
			}
			if seq < next-1 {
				t.Fatalf("acknowledged %d of %d", seq, next-1)
			}
			acked = seq
		}
		kill()
	}
	addr, _ := start()
	m := mustDial(t, addr, filepath.Join(dir, "pki"))
	seq, err := call(t.Context(), m, &proto.Put{Cluster: "c"})
	if err != nil || seq < acked {
		t.Fatalf("%d of %d acknowledged records are left, %v", seq, acked, err)
	}
	records, _, err := stream(t.Context(), m, &proto.AcctRequest{Duplicates: true})
	if err != nil || uint64(len(records)) != seq {
		t.Fatalf("%d records up to %d, %v", len(records), seq, err)
	}
	for i, r := range records {
		if r.Job != model.JobID(i+1) || r.Seq != uint64(i+1) {
			t.Fatalf("record %d is of job %d, sequence %d", i+1, r.Job, r.Seq)
		}
	}
	t.Logf("%d records acknowledged through %d kills, %d on disk", acked, rounds, seq)
}

// TestDiskFull fills a small file system. Nothing is acknowledged, reading goes on, the log says it once, and with room
// again everything does.
func TestDiskFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m,mode=700"); err != nil {
		t.Skip("can't mount a tmpfs here: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	var log lockedBuffer
	d := startDaemon(t, func(o *Options) {
		o.Dir = filepath.Join(dir, "db")
		o.Logger = slog.New(slog.NewTextHandler(io.MultiWriter(&log, t.Output()), nil))
	})
	t.Cleanup(func() { _ = d.stop() }) // before the file system goes
	m := mustDial(t, d.Addr(), d.pki)
	seq, failures := uint64(0), 0
	batch := func() (b []*model.Record) {
		for i := range uint64(100) {
			b = append(b, rec(seq+1+i, model.JobID(seq+1+i)))
		}
		return b
	}
	for failures < 5 {
		got, err := call(t.Context(), m, &proto.Put{Cluster: "c", Records: batch()})
		var e *rpc.Error
		switch {
		case err == nil && failures == 0:
			seq = got
		case err == nil:
			t.Fatal("written after the disk was full")
		case !errors.As(err, &e) || e.Code != proto.CodeNoAccounting || !strings.Contains(e.Text, "no space left"):
			t.Fatal(err)
		default:
			failures++
		}
	}
	if seq == 0 {
		t.Fatal("nothing was written at all")
	}
	if got, err := call(t.Context(), m, &proto.Put{Cluster: "c"}); err != nil || got != seq {
		t.Fatalf("%d, %v: want %d", got, err, seq)
	}
	if records, _, err := stream(t.Context(), m, &proto.AcctRequest{}); err != nil || uint64(len(records)) != seq {
		t.Fatalf("%d records, %v: want %d", len(records), err, seq)
	}
	if n := strings.Count(log.String(), "no space left"); n != 1 && strings.Count(log.String(), "level=ERROR") != 1 {
		t.Errorf("the log says it %d times", n)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=32m,mode=700"); err != nil {
		t.Fatal(err)
	}
	got, err := call(t.Context(), m, &proto.Put{Cluster: "c", Records: batch()})
	if err != nil || got != seq+100 {
		t.Fatal(got, err)
	}
	if !strings.Contains(log.String(), "can be written again") {
		t.Error("the log doesn't say that it is over")
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	if err := checkFile(filepath.Join(dir, "db", fileName)); err != nil {
		t.Error(err)
	}
}

// TestBrokenDisk: when the file fails in another way than by being full, gdbd ends and says so.
func TestBrokenDisk(t *testing.T) {
	var log lockedBuffer
	d := startDaemon(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	m := mustDial(t, d.Addr(), d.pki)
	if _, err := call(t.Context(), m, &proto.Put{Cluster: "c", Records: []*model.Record{rec(1, 1)}}); err != nil {
		t.Fatal(err)
	}
	breakFile(t, d.db)
	if seq, err := call(t.Context(), m, &proto.Put{Cluster: "c", Records: []*model.Record{rec(2, 2)}}); err == nil {
		t.Fatalf("acknowledged %d", seq)
	}
	<-m.Done()
	if err := d.stop(); err == nil || !strings.Contains(err.Error(), "look after the disk and start gdbd again") {
		t.Errorf("got %v", err)
	}
}

// breakFile puts a file that can't be written behind the database's descriptor.
func breakFile(t *testing.T, d *db) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("needs /proc: ", err)
	}
	for _, e := range entries {
		if path, err := os.Readlink("/proc/self/fd/" + e.Name()); err != nil || path != d.path {
			continue
		}
		readOnly, err := os.Open(d.path)
		if err != nil {
			t.Fatal(err)
		}
		var fd int
		if _, err := fmt.Sscan(e.Name(), &fd); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Dup3(int(readOnly.Fd()), fd, syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		_ = readOnly.Close() // its copy stays
		return
	}
	t.Fatal("the database's descriptor was not found")
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// BenchmarkDaemonPut is one controller that ships batches of 1000 over TLS.
func BenchmarkDaemonPut(b *testing.B) {
	d := startDaemon(b, nil)
	m := mustDial(b, d.Addr(), d.pki)
	records := make([]*model.Record, 1000)
	seq := uint64(1)
	b.ResetTimer()
	for n := 0; n < b.N; n += len(records) {
		for i := range records {
			records[i] = rec(seq, model.JobID(seq), user(uint32(1000+seq*7919%300)), later(model.Time(seq)*second))
			seq++
		}
		if _, err := call(b.Context(), m, &proto.Put{Cluster: "c", Records: records}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkDaemonDay is a day of 40,000 jobs over TLS, decoded by the client.
func BenchmarkDaemonDay(b *testing.B) {
	d := startDaemon(b, nil)
	m := mustDial(b, d.Addr(), d.pki)
	const jobs = 40000
	fill(b, d.db, 1, jobs, t0, day/jobs)
	for b.Loop() {
		records, _, err := stream(b.Context(), m, &proto.AcctRequest{Start: t0})
		if err != nil || len(records) != jobs {
			b.Fatal(len(records), err)
		}
	}
}
