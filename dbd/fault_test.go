package dbd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	d, err := New(Options{Name: "acct", Listen: "127.0.0.1:0", Dir: filepath.Join(dir, "db"),
		PKI: filepath.Join(dir, "pki"), Logger: log})
	if err == nil {
		fmt.Println(d.Addr())
		err = d.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// startChild starts a gdbd in a process of its own. kill ends it with SIGKILL; again it does nothing.
func startChild(t *testing.T, dir string) (addr string, kill func()) {
	t.Helper()
	addr, _, kill = startProcess(t, dir)
	return addr, kill
}

// startProcess is startChild for who sends the process signals.
func startProcess(t *testing.T, dir string) (addr string, p *os.Process, kill func()) {
	t.Helper()
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
	return strings.TrimSpace(string(line[:n])), cmd.Process, kill
}

// TestKilled kills gdbd with SIGKILL again and again while records arrive. Each time all acknowledged records must be
// there; the controller continues after the last acknowledged record, and at the end every record must be there once.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	certificates(t, filepath.Join(dir, "pki"))
	rng := newRand(t)
	acked, next := uint64(0), uint64(1)
	const rounds = 6
	for range rounds {
		addr, kill := startChild(t, dir)
		m := mustDial(t, addr, filepath.Join(dir, "pki"))
		if seq, err := call(t.Context(), m, &proto.Put{Cluster: "c"}); err != nil || seq < acked {
			t.Fatalf("%d of %d acknowledged records are left, %v", seq, acked, err)
		}
		puts := 3 + rng.IntN(20)
		for i := 0; ; i++ {
			// Continue after the last acknowledged record: many of these were stored before the kill.
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
	addr, _ := startChild(t, dir)
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

// TestDiskFull fills a small file system. Nothing is acknowledged, queries work, the log has one line, and everything
// works again when there is space.
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
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 || strings.Contains(log.String(), "can be written again") {
		t.Errorf("the log says it %d times, or that it is over while the disk is full", n)
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
	if _, err := checkFile(filepath.Join(dir, "db", fileName)); err != nil {
		t.Error(err)
	}
}

// TestBrokenDisk: if a write fails for another reason than a full disk, gdbd ends with an error.
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
