//go:build linux && (amd64 || arm64)

package shim

// stranger_test.go is about whom gshim does not serve and what it can't do: garbage, other users, no root, a full disk.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func rawDial(t *testing.T, dir string) net.Conn {
	t.Helper()
	nc, err := dial(testContext(t), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(testWait)); err != nil {
		t.Fatal(err)
	}
	if _, err := readFrame(nc, nil); err != nil {
		t.Fatal(err)
	}
	return nc
}

// TestBadOrder: an order with a value out of range, or of an unknown kind, is answered with an error, and the
// connection goes on: the orders after it are not lost.
func TestBadOrder(t *testing.T) {
	dir := newDir(t)
	s := startIn(t, dir)
	key := Key{JobID: 4711, Attempt: 1}
	bad := sampleLaunch()
	bad.Key, bad.Nice, bad.Passed = key, 77, [PassedFiles]*os.File{}
	nc := rawDial(t, dir)
	for name, fill := range map[string]func(*encoder){
		"signal 65536":  (&order{kind: kindSignal, seq: 9, key: key, sig: 65536, scope: Tree}).encode,
		"signal -1":     (&order{kind: kindSignal, seq: 9, key: key, sig: -1, scope: Tree}).encode,
		"scope 9":       (&order{kind: kindSignal, seq: 9, key: key, sig: 1, scope: 9}).encode,
		"cut signal":    func(e *encoder) { e.u8(kindSignal); e.u64(9); e.u64(7) },
		"unknown order": func(e *encoder) { e.u8(200); e.u64(9) },
		"task -1":       (&order{kind: kindAck, seq: 9, keys: []Key{{JobID: 1, Task: -1}}}).encode,
		"lease":         (&order{kind: kindLease, seq: 9, lease: Lease{Until: -5}}).encode,
		"nice 77":       (&order{kind: kindLaunch, launch: bad}).encode,
	} {
		if _, err := nc.Write(frame(nil, fill)); err != nil {
			t.Fatal(err)
		}
		b, err := readFrame(nc, nil)
		if err != nil {
			t.Fatalf("%s: the connection was cut: %v", name, err)
		}
		switch r, err := decodeReply(b); {
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case name == "nice 77":
			if len(r.events) != 1 || r.events[0].Kind != LaunchFailed || r.events[0].Key != key ||
				!strings.Contains(r.events[0].Text, "nice value 77") {
				t.Errorf("%s: %+v", name, r)
			}
		case r.kind != kindDone || r.seq != 9 || r.err == "":
			t.Errorf("%s: %+v", name, r)
		}
	}
	if n, err := s.c.Signal(testContext(t), key, 65536, Tree); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("signal 65536 by a client: %d, %v", n, err)
	}
	if err := s.c.Ping(testContext(t)); err != nil {
		t.Error(err)
	}
}

// TestGarbage: after any garbage on the socket the connection ends and gshim goes on.
func TestGarbage(t *testing.T) {
	dir := newDir(t)
	s := startIn(t, dir)
	huge := binary.LittleEndian.AppendUint32(nil, MaxFrameBytes+1)
	for name, b := range map[string][]byte{
		"text":           []byte("GET / HTTP/1.0\r\n\r\n"),
		"huge":           huge,
		"empty frame":    {0, 0, 0, 0},
		"unknown order":  {2, 0, 0, 0, 200, 0},
		"reply as order": frame(nil, (&reply{kind: kindDone}).encode),
		"truncated":      frame(nil, func(e *encoder) { e.u8(kindLaunch); e.u64(1); e.u64(7) }),
	} {
		nc := rawDial(t, dir)
		if _, err := nc.Write(b); err != nil {
			t.Fatal(err)
		}
		if _, err := readFrame(nc, nil); err == nil {
			t.Errorf("%s: answered", name)
		} else if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
			t.Errorf("%s: the connection stays open", name)
		}
	}
	half := rawDial(t, dir)
	if _, err := half.Write([]byte{9, 0}); err != nil {
		t.Fatal(err)
	}
	half.Close()
	if err := s.c.Ping(testContext(t)); err != nil {
		t.Error(err)
	}
}

// TestStranger: another user gets no answer, even if the file system lets them connect.
func TestStranger(t *testing.T) {
	needRoot(t)
	dir := newDir(t)
	s := startIn(t, dir)
	for p := dir; p != "/tmp" && p != "/"; p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, socketFile), 0o666); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(workDir(t), "client")
	copyFile(t, os.Args[0], bin)
	cmd := exec.Command(bin)
	cmd.Env = append(os.Environ(), helperEnv+"="+dir, helperEnv+"_BINARY=/bin/false")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "the peer is uid 0") {
		t.Errorf("the stranger says %q, %v", out, err)
	}
	until(t, "a warning", func() bool {
		return strings.Contains(mustRead(t, filepath.Join(dir, logFile)), "the peer is uid 65534") || s.gone()
	})
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestOrdinaryUser runs the tests of this package that need no root as an ordinary user.
func TestOrdinaryUser(t *testing.T) {
	needRoot(t)
	tmp := workDir(t)
	bin := filepath.Join(tmp, "tests")
	copyFile(t, os.Args[0], bin)
	cmd := exec.Command(bin, "-test.run",
		"^(TestUnprivileged|TestShimKilled|TestUpgrade|TestOutputFiles|TestCleanProcess|TestTree.*|TestLimitsSeenByTheJob)$",
		"-test.v")
	cmd.Dir = tmp
	cmd.Env = append(os.Environ(), "GSHIM_TEST_BINARIES="+binaries, "HOME="+tmp, "TMPDIR=/tmp")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	} else {
		for _, line := range strings.Split(string(out), "\n") {
			if strings.HasPrefix(line, "--- ") {
				t.Log(line)
			}
		}
	}
}

func TestUnprivileged(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("run as an ordinary user by TestOrdinaryUser")
	}
	s := start(t)
	other := newScript(t, "true").as(uint32(os.Geteuid())+1, uint32(os.Getegid()))
	s.launch(other.Launch)
	want := fmt.Sprintf(
		"gshim runs as uid %d and can't start a job of uid %d: run gnoded as root to run other users' jobs", os.Geteuid(),
		os.Geteuid()+1)
	if e := s.wait(other.Key, LaunchFailed); e.Text != want || e.Stage != StageOrder {
		t.Errorf("%+v", e)
	}
	group := newScript(t, "true").as(uint32(os.Geteuid()), someGroup)
	s.launch(group.Launch)
	if e := s.wait(group.Key, LaunchFailed); !strings.Contains(e.Text, fmt.Sprint("gid ", someGroup)) {
		t.Errorf("%+v", e)
	}
	have, err := ownLimit(unix.RLIMIT_NOFILE)
	if err != nil {
		t.Fatal(err)
	}
	l := newScript(t, "ulimit -Hn")
	l.Limits = []Limit{{unix.RLIMIT_NOFILE, 100, Unlimited, false}}
	s.launch(l.Launch)
	var notes []string
	until(t, "the launch", func() bool {
		e := s.get(l.Key)
		if e.Kind == Launched {
			notes = e.Notes
		}
		return e.Kind == Exited
	})
	if got := l.out(t); got != fmt.Sprint(have.Max) {
		t.Errorf("hard limit %s", got)
	}
	if len(notes) == 0 {
		t.Log("the event with the notes was too short-lived to be seen")
	} else if !strings.Contains(notes[0], "this node's hard limit") {
		t.Errorf("notes %q", notes)
	}
	low := newScript(t, "true")
	low.Nice = -5
	s.launch(low.Launch)
	if e := s.wait(low.Key, LaunchFailed); e.Stage != StageNice {
		t.Errorf("%+v", e)
	}
}

// TestFullDisk: while the journal can't be written, launches are refused and no end is lost; later all works again.
func TestFullDisk(t *testing.T) {
	needRoot(t)
	mnt := t.TempDir()
	if err := unix.Mount("tmpfs", mnt, "tmpfs", 0, "size=256k,mode=700"); err != nil {
		t.Skipf("can't mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		until(t, "the tmpfs to be free", func() bool { return unix.Unmount(mnt, 0) == nil })
	})
	dir := filepath.Join(mnt, "shim")
	s := startIn(t, dir)
	runs := waitFor(t, 4)
	s.launch(runs.Launch)
	s.wait(runs.Key, Launched)
	fill := filepath.Join(mnt, "fill")
	f, err := os.Create(fill)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	f.Close()
	var refused Event
	for range 1000 { // until the last page of the journal is full
		l := newScript(t, "true")
		s.launch(l.Launch)
		until(t, "an answer", func() bool { refused = s.get(l.Key); return refused.Done() })
		if refused.Kind == LaunchFailed {
			break
		}
	}
	if refused.Kind != LaunchFailed || refused.Stage != StageJournal || refused.Errno != unix.ENOSPC {
		t.Fatalf("%+v", refused)
	}
	runs.release(t)
	if e := s.wait(runs.Key, Exited); e.Code != 4 {
		t.Errorf("%+v", e)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	until(t, "launches to work again", func() bool {
		l := newScript(t, "true")
		s.launch(l.Launch)
		var e Event
		until(t, "an answer", func() bool { e = s.get(l.Key); return e.Done() })
		return e.Kind == Exited
	})
	killShim(t, s)
	s = startIn(t, dir)
	if e := s.wait(runs.Key, Exited); e.Code != 4 || e.Unknown {
		t.Errorf("the end that was told while the disk was full: %+v", e)
	}
	if err := s.c.Shutdown(testContext(t)); err != nil {
		t.Error(err)
	}
	until(t, "gshim to end", func() bool { return !alive(s.c.Info().PID) })
}
