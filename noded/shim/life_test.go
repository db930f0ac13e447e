//go:build linux && (amd64 || arm64)

package shim

// life_test.go is about what happens around a gshim: clients that die, gshim that dies, upgrades, damage, strangers.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// waitFor is a script that ends with code once the file go is there.
func waitFor(t *testing.T, code int) *script {
	return newScript(t, fmt.Sprintf("until [ -e go ]; do sleep 0.01; done; exit %d", code))
}

func (s *script) release(t *testing.T) { t.Helper(); write(t, filepath.Join(s.dir, "go"), "") }

// TestClientKilled: kill -9 of the client touches no job, and no end is lost meanwhile.
func TestClientKilled(t *testing.T) {
	dir := newDir(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+dir, helperEnv+"_BINARY="+filepath.Join(binaries, "gshim"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ordered\n" {
		t.Fatalf("helper says %q, %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("the helper was not killed")
	}
	s := startIn(t, dir)
	if e := s.wait(Key{JobID: 1}, Exited); e.Code != 4 {
		t.Errorf("%+v", e)
	}
	if e := s.wait(Key{JobID: 2}, Launched); !alive(e.PID) {
		t.Errorf("%+v does not run", e)
	}
	write(t, filepath.Join(filepath.Dir(dir), "go"), "")
	if e := s.wait(Key{JobID: 2}, Exited); e.Code != 5 {
		t.Errorf("%+v", e)
	}
}

func killShim(t *testing.T, s *session) {
	t.Helper()
	pid := s.c.Info().PID
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "gshim to be dead", func() bool { return !alive(pid) })
	until(t, "the client to notice", s.gone)
	if err := s.c.Err(); !errors.Is(err, ErrGone) {
		t.Errorf("Err() = %v", err)
	}
	if err := s.c.Ping(testContext(t)); !errors.Is(err, ErrGone) {
		t.Errorf("Ping: %v", err)
	}
}

// TestShimKilled: kill -9 of gshim touches no job. Earlier ends are known; the status of a job that ends without gshim
// is unknown.
func TestShimKilled(t *testing.T) {
	dir := newDir(t)
	s := startIn(t, dir)
	ended, lives, dies, killed, failed, acked := newScript(t, "exit 3"), waitFor(t, 0), waitFor(t, 0), waitFor(t, 0),
		newScript(t, ""), newScript(t, "true")
	failed.Argv = []string{"/no/where"}
	s.launch(ended.Launch, lives.Launch, dies.Launch, killed.Launch, failed.Launch, acked.Launch)
	s.wait(ended.Key, Exited)
	s.wait(acked.Key, Exited)
	s.wait(failed.Key, LaunchFailed)
	pid := s.wait(lives.Key, Launched).PID
	gone := s.wait(dies.Key, Launched).PID
	s.wait(killed.Key, Launched)
	if err := s.c.Ack(testContext(t), acked.Key); err != nil {
		t.Fatal(err)
	}
	killShim(t, s)
	dies.release(t)
	until(t, "the script to end", func() bool { return !alive(gone) })

	s = startIn(t, dir)
	if e := s.wait(ended.Key, Exited); e.Code != 3 || e.Unknown {
		t.Errorf("ended before: %+v", e)
	}
	if e := s.wait(failed.Key, LaunchFailed); e.Text != "could not run /no/where: no such file or directory" ||
		e.Errno != unix.ENOENT {
		t.Errorf("failed before: %+v", e)
	}
	if e := s.wait(dies.Key, Exited); !e.Unknown || e.Text == "" || e.Code != 0 || e.PID != gone {
		t.Errorf("ended meanwhile: %+v", e)
	}
	if e := s.get(acked.Key); e.Kind != 0 {
		t.Errorf("acknowledged, and there again: %+v", e)
	}
	if e := s.wait(lives.Key, Orphaned); e.PID != pid || e.StartTicks == 0 || !alive(pid) {
		t.Errorf("runs on: %+v", e)
	}
	s.launch(lives.Launch) // must not start it again
	lives.release(t)
	if e := s.wait(lives.Key, Exited); !e.Unknown {
		t.Errorf("ended after: %+v", e)
	}
	s.wait(killed.Key, Orphaned)
	if n, err := s.c.Signal(testContext(t), killed.Key, unix.SIGKILL, Leader); n != 1 || err != nil {
		t.Errorf("kill an orphan: %d %v", n, err)
	}
	s.wait(killed.Key, Exited)
}

// TestIntentOnly: gshim died between journal and fork, or just after. The launch is not started a second time.
func TestIntentOnly(t *testing.T) {
	dir := newDir(t)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	j, _, _, err := openJournal(filepath.Join(dir, journalFile), bootID(), testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	l := newScript(t, "echo again >> out")
	if err := j.add(&record{kind: recIntent, key: l.Key}); err != nil {
		t.Fatal(err)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	s := startIn(t, dir)
	s.launch(l.Launch)
	if e := s.wait(l.Key, Exited); !e.Unknown {
		t.Errorf("%+v", e)
	}
	if _, err := os.Stat(l.Stdout); err == nil {
		t.Error("it was started")
	}
}

// TestIntentOnlyButAlive: as above, but the process runs. It is found by the mark in its environment.
func TestIntentOnlyButAlive(t *testing.T) {
	dir := newDir(t)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	k := Key{JobID: 71, Attempt: 2, Step: -5}
	j, _, _, err := openJournal(filepath.Join(dir, journalFile), bootID(), testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := j.add(&record{kind: recIntent, key: k}); err != nil {
		t.Fatal(err)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	id := identity{trackName: trackName(dir)}
	cmd := exec.Command("/bin/sleep", "1000")
	cmd.Env = []string{id.trackEntry(k)}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	s := startIn(t, dir)
	s.wait(k, Orphaned)
	if n, err := s.c.Signal(testContext(t), k, unix.SIGKILL, Tree); n != 1 || err != nil {
		t.Errorf("reached %d, %v", n, err)
	}
	if err := <-ended; err == nil || err.Error() != "signal: killed" {
		t.Errorf("it ended with %v", err)
	}
	if e := s.wait(k, Exited); !e.Unknown {
		t.Errorf("%+v", e)
	}
}

func TestReboot(t *testing.T) {
	dir := newDir(t)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	j, _, _, err := openJournal(filepath.Join(dir, journalFile), "another boot", testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	me, err := readProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	k := Key{JobID: 1}
	if err := j.add(&record{kind: recIntent, key: k},
		&record{kind: recLaunched, event: Event{Kind: Launched, Key: k, PID: me.pid, StartTicks: me.ticks}}); err != nil {
		t.Fatal(err)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	if e := startIn(t, dir).wait(k, Exited); !e.Unknown || e.Text != "the node was rebooted while it ran" {
		t.Errorf("%+v", e)
	}
}

// TestTornJournal: a tail of garbage gives a warning; the launches before it are known.
func TestTornJournal(t *testing.T) {
	dir := newDir(t)
	s := startIn(t, dir)
	one, two := newScript(t, "exit 1"), waitFor(t, 2)
	s.run(one.Launch)
	s.launch(two.Launch)
	s.wait(two.Key, Launched)
	killShim(t, s)
	f, err := os.OpenFile(filepath.Join(dir, journalFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("\x20\x00\x00\x00torn in the middle"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s = startIn(t, dir)
	if e := s.wait(one.Key, Exited); e.Code != 1 {
		t.Errorf("%+v", e)
	}
	s.wait(two.Key, Orphaned)
	two.release(t)
	s.wait(two.Key, Exited)
	if !strings.Contains(mustRead(t, filepath.Join(dir, logFile)), "tail is damaged") {
		t.Error("no warning in the log")
	}
}

// TestUpgrade: the program is replaced while jobs run, and their exit codes arrive.
func TestUpgrade(t *testing.T) {
	dir := newDir(t)
	s := startIn(t, dir)
	before := s.c.Info()
	runs, atOnce, old := waitFor(t, 6), newScript(t, "sleep 0.05; exit 8"), newScript(t, "exit 9")
	s.run(old.Launch)
	s.launch(runs.Launch, atOnce.Launch)
	pid := s.wait(runs.Key, Launched).PID
	s.wait(atOnce.Key, Launched)
	if err := s.c.Upgrade(testContext(t), filepath.Join(binaries, "gshim2")); err != nil {
		t.Fatal(err)
	}
	until(t, "the connection to end", s.gone)
	s = startIn(t, dir)
	after := s.c.Info()
	if after.PID != before.PID || after.Version != "2.0.0-test" || before.Version != "1.0.0-test" || after.Upgrades != 1 ||
		!after.Started.Equal(before.Started) {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if e := s.wait(atOnce.Key, Exited); e.Code != 8 || e.Unknown {
		t.Errorf("%+v", e)
	}
	if e := s.wait(old.Key, Exited); e.Code != 9 {
		t.Errorf("%+v", e)
	}
	if e := s.wait(runs.Key, Launched); e.PID != pid {
		t.Errorf("%+v", e)
	}
	runs.release(t)
	if e := s.wait(runs.Key, Exited); e.Code != 6 || e.Unknown {
		t.Errorf("%+v", e)
	}
	if e := s.run(newScript(t, "exit 1").Launch); e.Code != 1 {
		t.Errorf("a launch after the upgrade: %+v", e)
	}
}

// TestUpgradeUnderLoad: orders that are sent during an upgrade are carried out once, by the old gshim or the new one.
func TestUpgradeUnderLoad(t *testing.T) {
	dir := newDir(t)
	s := startIn(t, dir)
	work := workDir(t)
	var all []*Launch
	for i := range 60 {
		all = append(all, &Launch{Key: Key{JobID: 800000 + uint32(i)},
			Argv: []string{"/bin/sh", "-c", fmt.Sprintf("echo x >> %d; exit %d", i, i)},
			Env:  []string{"PATH=/bin:/usr/bin"}, Dir: work,
			AsRoot: os.Geteuid() == 0, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())})
	}
	s.launch(all[:20]...)
	asked := make(chan error, 1)
	go func() { asked <- s.c.Upgrade(context.Background(), filepath.Join(binaries, "gshim2")) }()
	for _, l := range all[20:] {
		if err := s.c.Launch(l); err != nil && !errors.Is(err, ErrGone) {
			t.Fatal(err)
		}
	}
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	until(t, "the connection to end", s.gone)
	s = startIn(t, dir)
	s.launch(all...) // as gnoded does with what it misses; what is known is not repeated
	for i, l := range all {
		if e := s.wait(l.Key, Exited); e.Code != i || e.Unknown {
			t.Errorf("%+v", e)
		}
		if got := mustRead(t, filepath.Join(work, fmt.Sprint(i))); got != "x\n" {
			t.Errorf("job %d ran %d times", i, strings.Count(got, "x"))
		}
	}
}

// TestLastEnd: an exit status that the reaper collects before an upgrade, after the other loops have stopped, is in the
// journal: the kernel reports it once.
func TestLastEnd(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shim")
	if err := prepareDir(dir); err != nil {
		t.Fatal(err)
	}
	s, err := newServer(serverOptions{Dir: dir, Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // other tests' gshims are to be nobody's children
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); err != nil {
			t.Error(err)
		}
	})
	e := &entry{key: Key{JobID: 7}, state: running, event: Event{Kind: Launched, Key: Key{JobID: 7}, PID: 77}}
	s.entries[e.key] = e
	s.wg.Go(func() { // the reaper, slower than the others
		<-s.stopping
		time.Sleep(50 * time.Millisecond)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.finish(e, Event{Kind: Exited, Key: e.key, PID: 77, Code: 3})
	})
	s.stop()
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	_, known, _, err := replay([]byte(mustRead(t, filepath.Join(dir, journalFile))))
	if err != nil || len(known) != 1 || known[0].event.Kind != Exited || known[0].event.Code != 3 {
		t.Errorf("the journal has %+v, %v", known, err)
	}
}

func TestUpgradesThatFail(t *testing.T) {
	dir := newDir(t)
	s := startIn(t, dir)
	job := waitFor(t, 2)
	s.launch(job.Launch)
	s.wait(job.Key, Launched)
	tmp := workDir(t)
	liar := filepath.Join(tmp, "liar") // answers -version, but is no program by the time it counts
	write(t, liar, "#!/bin/sh\necho gshim 3 protocol 1; printf junk > "+liar+"\n")
	if err := os.Chmod(liar, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.c.Upgrade(testContext(t), "/no/gshim"); err == nil {
		t.Error("no error for a missing binary")
	}
	if err := s.c.Upgrade(testContext(t), "/bin/echo"); err == nil || !strings.Contains(err.Error(), "is not a gshim") {
		t.Errorf("another program: %v", err)
	}
	if err := s.c.Upgrade(testContext(t), liar); err != nil {
		t.Fatal(err)
	}
	until(t, "the connection to end", s.gone)
	s = startIn(t, dir)
	if i := s.c.Info(); i.Upgrades != 0 || i.Version != "1.0.0-test" {
		t.Errorf("%+v", i)
	}
	job.release(t)
	if e := s.wait(job.Key, Exited); e.Code != 2 || e.Unknown {
		t.Errorf("%+v", e)
	}
}

// TestSignalsToShim: gshim ends on SIGTERM only if nothing runs, and never on another signal that a terminal sends.
func TestSignalsToShim(t *testing.T) {
	dir := newDir(t)
	s := startIn(t, dir)
	pid := s.c.Info().PID
	p, err := readProcess(pid)
	if err != nil || p.session != pid || p.parent == os.Getpid() {
		t.Errorf("not detached: %+v, %v", p, err)
	}
	job := waitFor(t, 0)
	s.launch(job.Launch)
	s.wait(job.Key, Launched)
	for _, sig := range []syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE,
		unix.SIGUSR1} {
		if err := unix.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "SIGTERM to be refused",
		func() bool { return strings.Contains(mustRead(t, filepath.Join(dir, logFile)), "SIGTERM ignored") })
	if err := s.c.Shutdown(testContext(t)); err == nil || !strings.Contains(err.Error(), "1 processes still run") {
		t.Errorf("Shutdown: %v", err)
	}
	job.release(t)
	s.wait(job.Key, Exited)
	if err := unix.Kill(pid, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	until(t, "gshim to end", func() bool { return !alive(pid) })
	if _, _, err := Connect(testContext(t), dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("Connect: %v", err)
	}
	// The end that nobody acknowledged is there for the next.
	if e := startIn(t, dir).wait(job.Key, Exited); e.Code != 0 || e.Unknown {
		t.Errorf("%+v", e)
	}
}

// TestAbandoned: a gshim whose directory is deleted ends, but not while it has a job or a client.
func TestAbandoned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shim")
	s := startIn(t, dir)
	pid := s.c.Info().PID
	job := waitFor(t, 0)
	s.launch(job.Launch)
	leader := s.wait(job.Key, Launched).PID
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := s.c.Ping(testContext(t)); err != nil {
		t.Error(err)
	}
	if err := s.c.Close(); err != nil {
		t.Error(err)
	}
	if !alive(pid) || !alive(leader) {
		t.Error("it has not waited for the job")
	}
	job.release(t)
	until(t, "gshim to end", func() bool { return !alive(pid) })
	if alive(leader) {
		t.Error("it has not waited for the job")
	}
}
