//go:build linux && (amd64 || arm64)

package shim

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// daemonized is a script that leaves a process in a session of its own, without parent, and waits; the process's pid is
// in the file daemon, its own child's in grandchild.
const daemonized = `( setsid sh -c 'sleep 1000 & echo $! > grandchild; echo $$ > daemon; wait' & ) ; `

func TestLeaderAndGroup(t *testing.T) {
	s := start(t)
	l := newScript(t, "sh -c 'trap \"echo child\" TERM; echo $$ > pid; while :; do sleep 0.01; done' & trap 'echo "+
		"leader; exit 3' USR1; trap : TERM; while :; do sleep 0.01; done")
	s.launch(l.Launch)
	child := l.pidFrom(t, "pid")
	ctx := testContext(t)
	if n, err := s.c.Signal(ctx, l.Key, 0, Leader); n != 1 || err != nil {
		t.Errorf("look: %d %v", n, err)
	}
	if n, err := s.c.Signal(ctx, l.Key, unix.SIGTERM, Group); n != 1 || err != nil {
		t.Errorf("group: %d %v", n, err)
	}
	until(t, "the child to hear SIGTERM", func() bool { return l.out(t) == "child" })
	if n, err := s.c.Signal(ctx, l.Key, unix.SIGUSR1, Leader); n != 1 || err != nil {
		t.Errorf("leader: %d %v", n, err)
	}
	if e := s.wait(l.Key, Exited); e.Code != 3 {
		t.Errorf("%+v", e)
	}
	if !alive(child) {
		t.Error("the child is dead")
	}
	if n, err := s.c.Signal(ctx, l.Key, unix.SIGKILL, Leader); n != 0 || err != nil {
		t.Errorf("leader that has ended: %d %v", n, err)
	}
	if n, err := s.c.Signal(ctx, l.Key, unix.SIGKILL, Tree); n == 0 || err != nil {
		t.Errorf("what the leader left behind: %d %v", n, err)
	}
	if alive(child) {
		t.Error("the child still runs")
	}
	if _, err := s.c.Signal(ctx, Key{JobID: 424242}, unix.SIGTERM, Tree); err == nil {
		t.Error("no error for an unknown job")
	}
}

// TestCarriers: a signal for all reaches what a carrier runs, and neither it nor its child; one for the leader reaches
// the carrier.
func TestCarriers(t *testing.T) {
	s := start(t)
	const loop = "while :; do sleep 0.01; done"
	l := newScript(t, "printf "+CarrierName+" > /proc/$$/comm; "+
		"sh -c 'sh -c \"trap \\\"echo inner\\\" USR1; echo \\$\\$ > pid; "+loop+"\" & trap \"echo runtime\" USR1; "+
		loop+"' & trap 'echo carrier' USR1; "+loop)
	s.launch(l.Launch)
	l.pidFrom(t, "pid")
	ctx := testContext(t)
	if n, err := s.c.Signal(ctx, l.Key, unix.SIGUSR1, Tree); n < 1 || err != nil {
		t.Errorf("all: %d %v", n, err)
	}
	until(t, "the inner process to hear it", func() bool { return l.out(t) == "inner" })
	if n, err := s.c.Signal(ctx, l.Key, unix.SIGUSR1, Leader); n != 1 || err != nil {
		t.Errorf("leader: %d %v", n, err)
	}
	until(t, "the carrier to hear it", func() bool { return l.out(t) == "inner\ncarrier" })
	if n, err := s.c.Signal(ctx, l.Key, unix.SIGKILL, Tree); n < 3 || err != nil {
		t.Errorf("kill: %d %v", n, err)
	}
}

// TestTreeWithoutCgroup: SIGKILL reaches all processes, also those that have left the session and lost their parents.
func TestTreeWithoutCgroup(t *testing.T) {
	s := start(t)
	l := newScript(t, daemonized+"sleep 1000")
	other := waitFor(t, 0)
	s.launch(l.Launch, other.Launch)
	pids := []int{l.pidFrom(t, "daemon"), l.pidFrom(t, "grandchild"), s.wait(l.Key, Launched).PID}
	if n, err := s.c.Signal(testContext(t), l.Key, unix.SIGKILL, Tree); n < 3 || err != nil {
		t.Errorf("reached %d, %v", n, err)
	}
	for _, p := range pids {
		if alive(p) {
			t.Errorf("pid %d still runs", p)
		}
	}
	if e := s.wait(l.Key, Exited); e.Signal != 9 {
		t.Errorf("%+v", e)
	}
	if e := s.wait(other.Key, Launched); !alive(e.PID) {
		t.Error("another job was hit")
	}
	other.release(t)
	s.wait(other.Key, Exited)
}

// TestTreeAfterTheEnd: processes that a job leaves behind can be killed after its leader's end, and are reaped.
func TestTreeAfterTheEnd(t *testing.T) {
	s := start(t)
	quiet := newScript(t, "true")
	s.run(quiet.Launch)
	if n, err := s.c.Signal(testContext(t), quiet.Key, unix.SIGKILL, Tree); n != 0 || err != nil {
		t.Errorf("nothing left: %d %v", n, err)
	}
	l := newScript(t, daemonized+"until [ -s daemon ]; do sleep 0.01; done; exit 0")
	s.run(l.Launch)
	daemon, grandchild := l.pidFrom(t, "daemon"), l.pidFrom(t, "grandchild")
	if p, err := readProcess(daemon); err != nil || p.parent != s.c.Info().PID {
		t.Errorf("the daemon's parent is %d, not gshim (%v)", p.parent, err)
	}
	if n, err := s.c.Signal(testContext(t), l.Key, unix.SIGKILL, Tree); n != 2 || err != nil {
		t.Errorf("reached %d, %v", n, err)
	}
	until(t, "both to be reaped", func() bool {
		_, err1 := readProcess(daemon)
		_, err2 := readProcess(grandchild)
		return os.IsNotExist(err1) && os.IsNotExist(err2)
	})
}

func TestFamily(t *testing.T) {
	all := []process{
		{pid: 1, state: 'S', session: 1, ticks: 1},
		{pid: 50, parent: 1, state: 'S', session: 50, ticks: 5},      // gshim
		{pid: 100, parent: 50, state: 'S', session: 100, ticks: 10},  // leader
		{pid: 101, parent: 100, state: 'S', session: 100, ticks: 11}, // its child
		// left the session
		{pid: 102, parent: 101, state: 'S', session: 102, ticks: 12},
		// lost its parent
		{pid: 103, parent: 50, state: 'S', session: 100, ticks: 13},
		// lost both, is marked
		{pid: 104, parent: 50, state: 'S', session: 104, ticks: 14},
		{pid: 105, parent: 104, state: 'S', session: 104, ticks: 15}, // its child
		{pid: 106, parent: 100, state: 'Z', session: 100, ticks: 16}, // dead
		{pid: 200, parent: 50, state: 'S', session: 200, ticks: 20},  // another job
		{pid: 201, parent: 200, state: 'S', session: 200, ticks: 21}, //
		// torn reading: a loop
		{pid: 300, parent: 301, state: 'S', session: 300}, {pid: 301, parent: 300, state: 'S', session: 300},
	}
	marked := func(p process) bool { return p.pid == 104 }
	pids := func(l []process) (out []int) {
		for _, p := range l {
			out = append(out, p.pid)
		}
		return out
	}
	if got := pids(family(all, 100, 10, 50, marked)); !slices.Equal(got, []int{100, 101, 102, 103, 104, 105}) {
		t.Errorf("family: %v", got)
	}
	// The leader has ended and its pid belongs to someone else now.
	if got := pids(family(all, 100, 9, 50, marked)); !slices.Equal(got, []int{104, 105}) {
		t.Errorf("family after pid reuse: %v", got)
	}
	if got := pids(family(all, 0, 0, 50, marked)); !slices.Equal(got, []int{104, 105}) {
		t.Errorf("family without a leader: %v", got)
	}
}

func TestParseStat(t *testing.T) {
	p, err := parseStat([]byte("42 (a) b (c)) S 7 42 43 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2 3"))
	if want := (process{42, 'S', 7, 42, 43, 987654, false}); err != nil || p != want {
		t.Errorf("%+v %v", p, err)
	}
	for _, bad := range []string{"", "x", "1 (a", "1 a) S", "1 (a) S 1 2",
		"a (b) S 7 42 43 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

// testCgroup makes a cgroup2 directory, or skips.
func testCgroup(t testing.TB) string {
	t.Helper()
	needRoot(t)
	for _, root := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, "cgroup.subtree_control")); err != nil {
			continue
		}
		dir := filepath.Join(root, "gshim-test-"+strconv.Itoa(os.Getpid())+"-"+strconv.FormatInt(time.Now().UnixNano(), 36))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Skipf("can't make a cgroup: %v", err)
		}
		t.Cleanup(func() {
			until(t, "the cgroup to be empty", func() bool { return os.Remove(dir) == nil })
		})
		return dir
	}
	t.Skip("no cgroup2 here")
	return ""
}

func TestTreeInCgroup(t *testing.T) {
	forBoth(t, func(t *testing.T, s *session) {
		l := newScript(t, daemonized+"sleep 1000")
		l.Cgroup.V2 = testCgroup(t)
		s.launch(l.Launch)
		pids := []int{l.pidFrom(t, "daemon"), l.pidFrom(t, "grandchild"), s.wait(l.Key, Launched).PID}
		in, err := cgroupProcesses(l.Cgroup.V2)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pids {
			if !slices.Contains(in, p) {
				t.Errorf("pid %d is not in the cgroup: %v", p, in)
			}
		}
		if slices.Contains(in, s.c.Info().PID) {
			t.Error("gshim is in the job's cgroup")
		}
		if n, err := s.c.Signal(testContext(t), l.Key, unix.SIGCONT, Tree); n < 3 || err != nil {
			t.Errorf("SIGCONT reached %d, %v", n, err)
		}
		if n, err := s.c.Signal(testContext(t), l.Key, unix.SIGKILL, Tree); n < 3 || err != nil {
			t.Errorf("SIGKILL reached %d, %v", n, err)
		}
		if e := s.wait(l.Key, Exited); e.Signal != 9 {
			t.Errorf("%+v", e)
		}
	})
}

// TestHangingLaunch: a child that stops between fork and exec (here: in a frozen cgroup, in real life on a dead file
// server) holds up neither other launches nor the garbage collector, and can be killed.
func TestHangingLaunch(t *testing.T) {
	s := startIn(t, newDir(t), "GOGC=1")
	dir := testCgroup(t)
	freeze := func(v string) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte(v), 0); err != nil {
			t.Skip("cgroups can't be frozen here")
		}
	}
	freeze("1")
	thaw, kill := newScript(t, "exit 3"), newScript(t, "exit 3")
	thaw.Cgroup.V2, kill.Cgroup.V2 = dir, dir
	s.launch(thaw.Launch, kill.Launch)
	until(t, "both to hang", func() bool {
		in, err := cgroupProcesses(dir)
		return err == nil && len(in) == 2
	})
	for range 20 + 2*runtime.NumCPU() {
		s.run(newScript(t, "true").Launch)
	}
	if e := s.get(thaw.Key); e.Kind != 0 {
		t.Errorf("it does not hang: %+v", e)
	}
	if n, err := s.c.Signal(testContext(t), kill.Key, unix.SIGKILL, Leader); err != nil {
		t.Errorf("kill: %d %v", n, err)
	}
	if e := s.wait(kill.Key, Exited); e.Signal != 9 {
		t.Errorf("%+v", e)
	}
	freeze("0")
	if e := s.wait(thaw.Key, Exited); e.Code != 3 {
		t.Errorf("%+v", e)
	}
}

// A user may stop the child of a launch as soon as it has their id: it goes on and is stopped as a process of theirs.
// gshim's place for it is free.
func TestStoppedLaunch(t *testing.T) {
	s := start(t)
	dir := testCgroup(t)
	freeze := func(v string) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte(v), 0); err != nil {
			t.Skip("cgroups can't be frozen here")
		}
	}
	freeze("1")
	l := newScript(t, "sleep 2; exit 3")
	l.Cgroup.V2 = dir
	s.launch(l.Launch)
	var in []int
	until(t, "it to hang", func() bool {
		in, _ = cgroupProcesses(dir)
		return len(in) == 1
	})
	if err := unix.Kill(in[0], unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	freeze("0")
	s.wait(l.Key, Launched)
	until(t, "it to be stopped again", func() bool {
		p, err := readProcess(in[0])
		return err == nil && p.state == 'T'
	})
	if err := unix.Kill(in[0], unix.SIGCONT); err != nil {
		t.Error(err)
	}
	if e := s.wait(l.Key, Exited); e.Code != 3 {
		t.Errorf("%+v", e)
	}
}

// A launch into a frozen group of v1, as of a suspended job, holds one thread of gshim until it is thawed, and nothing
// else.
func TestHangingLaunchV1(t *testing.T) {
	needRoot(t)
	dir := filepath.Join("/sys/fs/cgroup/freezer", "gshim-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no freezer of cgroup v1: %v", err)
	}
	t.Cleanup(func() { until(t, "the cgroup to be empty", func() bool { return os.Remove(dir) == nil }) })
	state := func(v string) {
		if err := os.WriteFile(filepath.Join(dir, "freezer.state"), []byte(v), 0); err != nil {
			t.Fatal(err)
		}
	}
	s := startIn(t, newDir(t), "GOGC=1")
	state("FROZEN")
	thaw, kill := newScript(t, "exit 3"), newScript(t, "exit 3")
	thaw.Cgroup.V1, kill.Cgroup.V1 = []string{dir}, []string{dir}
	s.launch(thaw.Launch, kill.Launch)
	until(t, "both to hang", func() bool {
		in, err := cgroupProcesses(dir)
		return err == nil && len(in) == 2
	})
	for range 20 + 2*runtime.NumCPU() {
		s.run(newScript(t, "true").Launch)
	}
	if e := s.get(thaw.Key); e.Kind != 0 {
		t.Errorf("it does not hang: %+v", e)
	}
	// Nothing frozen dies on v1: who sends a signal is told so, and thaws.
	if n, err := s.c.Signal(testContext(t), kill.Key, unix.SIGKILL, Leader); err == nil ||
		!strings.Contains(err.Error(), "still being launched") {
		t.Errorf("kill: %d %v", n, err)
	}
	state("THAWED")
	s.wait(kill.Key, Exited)
	if e := s.wait(thaw.Key, Exited); e.Code != 3 {
		t.Errorf("%+v", e)
	}
}

func TestCgroupThatIsNotThere(t *testing.T) {
	s := start(t)
	for _, c := range []Cgroup{{V2: "/sys/fs/cgroup/none"}, {V1: []string{"/sys/fs/cgroup/memory/none"}}, {V2: "/tmp"}} {
		l := newScript(t, "true")
		l.Cgroup = c
		s.launch(l.Launch)
		if e := s.wait(l.Key, LaunchFailed); e.Stage != StageCgroup {
			t.Errorf("%+v", e)
		}
	}
}

// TestEntersAllCgroups: one fork enters v1 hierarchies and cgroup2; gshim itself does not move.
func TestEntersAllCgroups(t *testing.T) {
	needRoot(t)
	forBoth(t, func(t *testing.T, s *session) {
		name := "gshim-test-" + strconv.FormatInt(time.Now().UnixNano(), 36)
		c := benchDirs(t, name)
		t.Cleanup(func() { c.remove(t) })
		if len(c.V1) == 0 {
			t.Skip("no v1 hierarchies here")
		}
		before := mustRead(t, "/proc/self/cgroup")
		l := newScript(t, "grep -c /"+name+"$ /proc/self/cgroup").as(nobody, nobody)
		l.Cgroup = c
		s.run(l.Launch)
		if got, want := l.out(t), strconv.Itoa(len(c.V1)+1); got != want {
			t.Errorf("the job is in %s of %s cgroups", got, want)
		}
		for _, f := range append([]string{"/proc/" + strconv.Itoa(s.c.Info().PID) + "/cgroup"},
			threads(t, s.c.Info().PID)...) {
			if now := mustRead(t, f); now != before {
				t.Errorf("%s: gshim is in\n%s", f, now)
			}
		}
	})
}

func threads(t *testing.T, pid int) (files []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestStopSignal: SIGTSTP stops a process that does not catch it, also in a session of its own, where the kernel would
// not stop it; a process that catches it runs on.
func TestStopSignal(t *testing.T) {
	s := start(t)
	plain := newScript(t, "setsid sh -c 'echo $$ > pid; while :; do sleep 0.01; done'")
	caught := newScript(t, "trap 'echo caught' TSTP; echo $$ > pid; while :; do :; done")
	s.launch(plain.Launch, caught.Launch)
	pid, other := plain.pidFrom(t, "pid"), caught.pidFrom(t, "pid")
	state := func(pid int) byte {
		p, err := readProcess(pid)
		if err != nil {
			t.Fatal(err)
		}
		return p.state
	}
	ctx := testContext(t)
	for _, l := range []*script{plain, caught} {
		if n, err := s.c.Signal(ctx, l.Key, unix.SIGTSTP, Tree); n < 1 || err != nil {
			t.Errorf("%v: %d %v", l.Key, n, err)
		}
	}
	// A shell that is stopped within vfork waits (D) for its child, which is stopped before its exec.
	stands := func() bool { s := state(pid); return s == 'T' || s == 'D' }
	until(t, "the one to stop", stands)
	until(t, "the other to hear of it", func() bool {
		return strings.Contains(caught.out(t), "caught") || state(other) == 'T'
	})
	if state(other) == 'T' {
		t.Error("who catches SIGTSTP was stopped")
	}
	if _, err := s.c.Signal(ctx, plain.Key, unix.SIGCONT, Tree); err != nil {
		t.Error(err)
	}
	until(t, "it to go on", func() bool { return !stands() })
	for _, l := range []*script{plain, caught} {
		if _, err := s.c.Signal(ctx, l.Key, unix.SIGKILL, Tree); err != nil {
			t.Error(err)
		}
	}
}
