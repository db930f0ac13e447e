package store

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMain runs the test binary as a voter to be killed if STORE_TEST_DIR is set, see TestKilledProcess.
func TestMain(m *testing.M) {
	if dir := os.Getenv("STORE_TEST_DIR"); dir != "" {
		fmt.Fprintln(os.Stderr, proposeForever(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestSingleVoterKeepsItsState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "raft")
	g := newGroup(t, 1, Options{Logger: testLogger(t)})
	began := time.Now()
	m := g.start(g.peers[0], dir)
	g.leader()
	t.Logf("leads %v after Open", time.Since(began))
	for i := range 10 {
		if got := propose(t, m.Store, fmt.Sprint("cmd", i)); got != i+1 {
			t.Errorf("command %d got result %d", i, got)
		}
	}
	if up := <-m.LeaderCh(); !up {
		t.Error("LeaderCh says false first")
	}
	if id, addr := m.Leader(); id != "c1" || addr != g.peers[0].Addr {
		t.Errorf("leader is %q at %q", id, addr)
	}
	if err := m.VerifyLeader(t.Context()); err != nil {
		t.Error(err)
	}
	term := m.Term()
	want := m.machine.snapshot()
	for range 2 {
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Propose(t.Context(), []byte("x")); !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNotLeader) {
		t.Errorf("Propose after Close: %v", err)
	}
	if err := m.Barrier(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Barrier after Close: %v", err)
	}
	for path, want := range map[string]os.FileMode{"": 0o700, "snapshots": 0o700, "raft.db": 0o600} {
		st, err := os.Stat(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", st.Name(), st.Mode().Perm(), want)
		}
	}

	m = g.start(g.peers[0], dir)
	g.leader()
	if !bytes.Equal(m.machine.snapshot(), want) {
		t.Errorf("after reopening there are %d commands", m.machine.count())
	}
	if m.Term() <= term {
		t.Errorf("term %d after %d", m.Term(), term)
	}
}

func TestSnapshotTruncationRestart(t *testing.T) {
	dir := t.TempDir()
	g := newGroup(t, 1, Options{TrailingLogs: 5})
	m := g.start(g.peers[0], dir)
	g.leader()
	if err := m.Snapshot(); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		propose(t, m.Store, fmt.Sprint("before", i))
	}
	if err := m.Snapshot(); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		propose(t, m.Store, fmt.Sprint("between", i))
	}
	older := m.Stats().SnapshotIndex
	if err := m.Snapshot(); err != nil {
		t.Fatal(err)
	}
	// With what is left of the log, the older snapshot can take the newer one's place.
	if first, err := m.disk.logs.FirstIndex(); err != nil || first != older+1 {
		t.Errorf("the log begins at %d, %v; the older snapshot is of %d", first, err, older)
	}
	if st := m.Stats(); st.SnapshotIndex < 100 || st.Applied < st.SnapshotIndex || st.State != "Leader" {
		t.Errorf("stats: %+v", st)
	}
	propose(t, m.Store, "after")
	want := m.machine.snapshot()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "snapshots", "1-2-3.tmp"), 0o700); err != nil {
		t.Fatal(err)
	}

	m = g.start(g.peers[0], dir)
	g.leader()
	if m.machine.restores != 1 || !bytes.Equal(m.machine.snapshot(), want) {
		t.Errorf("%d restores, %d commands", m.machine.restores, m.machine.count())
	}
	files, err := filepath.Glob(filepath.Join(dir, "snapshots", "*", "*"))
	if err != nil || len(files) == 0 {
		t.Errorf("no snapshot, %v", err)
	}
	for _, f := range files {
		if st, err := os.Stat(f); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v, want no rights for others", f, st.Mode(), err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "snapshots", "*.tmp")); err != nil || len(left) > 0 {
		t.Errorf("unfinished snapshots left: %v, %v", left, err)
	}
}

// TestApplyGoesOnDuringSnapshot also checks that Close doesn't wait for a large snapshot.
func TestApplyGoesOnDuringSnapshot(t *testing.T) {
	dir := t.TempDir()
	g := newGroup(t, 1, Options{})
	m := g.start(g.peers[0], dir)
	g.leader()
	propose(t, m.Store, "one")
	m.machine.block = make(chan struct{})
	done := make(chan error, 1)
	go func() { done <- m.Snapshot() }()
	for i := range 50 {
		propose(t, m.Store, fmt.Sprint("during", i))
	}
	close(m.machine.block)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	want := m.machine.snapshot()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m = g.start(g.peers[0], dir)
	g.leader()
	if !bytes.Equal(m.machine.snapshot(), want) {
		t.Error("the state differs after a snapshot taken under load")
	}
}

func TestSnapshotByBytes(t *testing.T) {
	g := newGroup(t, 1, Options{Net: NewMemNet()})
	m := g.start(g.peers[0], "")
	g.leader()
	big := strings.Repeat("x", 1<<20)
	for range snapshotMinBytes>>20 + 1 {
		propose(t, m.Store, big)
	}
	await(t, "a snapshot", func() bool { return m.Stats().SnapshotIndex > 0 })
	await(t, "its size", func() bool { return m.fsm.size.Load() > snapshotMinBytes })
}

// TestSnapshotDue checks that large states are written when the log has grown by their size, within the limits.
func TestSnapshotDue(t *testing.T) {
	for size, want := range map[int64]int{0: snapshotMinBytes, 20 << 20: 20 << 20, 1 << 40: snapshotMaxBytes} {
		if got := snapshotDue(size); got != want {
			t.Errorf("a snapshot of %d bytes: again after %d, want %d", size, got, want)
		}
	}
}

// TestSizeAfterRestart: a state that was read from a snapshot is as large as it was, and the next snapshot is due when
// the log has grown by that.
func TestSizeAfterRestart(t *testing.T) {
	g := newGroup(t, 1, Options{})
	dir := filepath.Join(t.TempDir(), "live")
	m := g.start(g.peers[0], dir)
	g.leader()
	big := strings.Repeat("x", 1<<20)
	for range 3 {
		propose(t, m.Store, big)
	}
	if err := m.Snapshot(); err != nil {
		t.Fatal(err)
	}
	size := m.fsm.size.Load()
	if size < 3<<20 {
		t.Fatalf("a snapshot of 3 MiB has %d bytes", size)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m = g.start(g.peers[0], dir)
	if got := m.fsm.size.Load(); got != size {
		t.Errorf("after a restart the snapshot has %d bytes, before %d", got, size)
	}
}

// TestCopyOfOpenDirectory checks that acknowledged commands are in the files at once, without Close.
func TestCopyOfOpenDirectory(t *testing.T) {
	base := t.TempDir()
	g := newGroup(t, 1, Options{TrailingLogs: 3})
	m := g.start(g.peers[0], filepath.Join(base, "live"))
	g.leader()
	for round := range 4 {
		for i := range 20 {
			propose(t, m.Store, fmt.Sprint("r", round, "c", i))
		}
		dir := filepath.Join(base, fmt.Sprint("copy", round))
		if err := os.CopyFS(dir, os.DirFS(filepath.Join(base, "live"))); err != nil {
			t.Fatal(err)
		}
		want := m.machine.snapshot()
		other := newGroup(t, 1, Options{})
		c := other.start(other.peers[0], dir)
		other.leader()
		if !bytes.Equal(c.machine.snapshot(), want) {
			t.Errorf("round %d: the copy has %d commands of %d", round, c.machine.count(), m.machine.count())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := m.Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKilledProcess kills a voter at work: every command that it printed as done must be there, once.
func TestKilledProcess(t *testing.T) {
	dir := t.TempDir()
	acked := 0
	for round := range 3 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "STORE_TEST_DIR="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var done []string
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			if done = append(done, sc.Text()); len(done) == 200*(round+1) {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		// Killed: the error says so.
		if err := cmd.Wait(); len(done) < 200*(round+1) {
			t.Fatalf("the voter ended by itself: %v\n%s", err, stderr.String())
		}
		acked += len(done)
		g := newGroup(t, 1, Options{})
		m := g.start(g.peers[0], dir)
		g.leader()
		for _, c := range done {
			if n := m.machine.times(c); n != 1 {
				t.Errorf("round %d: %s is there %d times", round, c, n)
			}
		}
		if got := m.machine.count(); got < acked {
			t.Errorf("round %d: %d commands, %d were acknowledged", round, got, acked)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// proposeForever runs in the process to be killed: it prints each command once acknowledged.
func proposeForever(dir string) error {
	m := newLedger()
	s, err := Open(Options{ID: "c1", Dir: dir, Peers: []Peer{{"c1", "mem"}}, Net: NewMemNet(), Machine: m,
		SnapshotThreshold: 50, TrailingLogs: 10, Begin: true})
	if err != nil {
		return err
	}
	<-s.LeaderCh()
	if err := s.Barrier(context.Background()); err != nil {
		return err
	}
	failed := make(chan error, 8)
	for w := range 8 {
		go func() {
			for i := 0; ; i++ {
				cmd := fmt.Sprintf("pid%d-w%d-%d", os.Getpid(), w, i)
				if _, err := s.Propose(context.Background(), []byte(cmd)); err != nil {
					failed <- err
					return
				}
				fmt.Println(cmd)
				if i%40 == 39 && w == 0 {
					if err := s.Snapshot(); err != nil {
						failed <- err
						return
					}
				}
			}
		}()
	}
	return <-failed
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	g := newGroup(t, 1, Options{})
	m := g.start(g.peers[0], dir)
	g.leader()
	mem := func(o Options) Options {
		o.Net = NewMemNet()
		if o.Machine == nil {
			o.Machine = newLedger()
		}
		o.Begin = true
		return o
	}
	one := []Peer{{"c1", "a"}}
	_, err := Open(mem(Options{ID: "c1", Dir: dir, Peers: one}))
	if err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("a second store on one directory: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "notadir"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := t.TempDir()
	if err := os.WriteFile(filepath.Join(damaged, "raft.db"), bytes.Repeat([]byte("garbage!"), 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]Options{
		"is of the controllers c1, without other":      {ID: "other", Dir: dir, Peers: []Peer{{"other", "a"}}},
		`this voter, "c9", is not among the voters c1`: {ID: "c9", Peers: one},
		"two voters with one name":                     {ID: "c1", Peers: []Peer{{"c1", "a"}, {"c1", "b"}}},
		"name or address is empty":                     {ID: "c1", Peers: []Peer{{"c1", ""}}},
		"0 voters":                                     {ID: "c1"},
		"ID is empty":                                  {Peers: one},
		"heartbeat timeout 1ms":                        {ID: "c1", Peers: one, HeartbeatTimeout: time.Millisecond},
		"not a directory":                              {ID: "c1", Peers: one, Dir: filepath.Join(dir, "notadir", "x")},
		"No other controller has what was in it; no snapshot is whole either. Restore a snapshot": {ID: "c1",
			Peers: one, Dir: damaged},
	} {
		if s, err := Open(mem(o)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
			if s != nil {
				_ = s.Close()
			}
		}
	}
	// A refused listener is closed, not leaked.
	l := listen(t, "127.0.0.1:0")
	if _, err := Open(Options{ID: "", Layer: l}); err == nil {
		t.Error("no error")
	}
	if _, err := l.Accept(); err == nil {
		t.Error("the listener is still open")
	}
	// The refused cluster has not changed the log.
	g.start(g.peers[0], dir)
	g.leader()
}

// TestCrashWhileBeginning simulates a crash between the two writes of a new log.
func TestCrashWhileBeginning(t *testing.T) {
	dir := t.TempDir()
	o := Options{Dir: dir, Peers: []Peer{{"c1", "mem"}}, Begin: true, Logger: testLogger(t)}
	d, err := openDisk(o, newLogger(testLogger(t)))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.stable.Set(keyJoining, nil); err != nil {
		t.Fatal(err)
	}
	if err := d.stable.SetUint64([]byte("CurrentTerm"), 1); err != nil {
		t.Fatal(err)
	}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	g := newGroup(t, 1, Options{})
	m := g.start(g.peers[0], dir)
	g.leader()
	propose(t, m.Store, "x")
}
