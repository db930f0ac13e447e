//go:build linux && (amd64 || arm64)

package shim

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Ordinary ids for tests: nobody, and a group that no system file belongs to.
const (
	nobody    = 65534
	someGroup = 45678
)

func TestExitStatus(t *testing.T) {
	s := start(t)
	for _, c := range []struct {
		text         string
		code, signal int
	}{{"exit 0", 0, 0}, {"exit 7", 7, 0}, {"kill -9 $$", 0, 9}, {"kill -TERM $$", 0, 15}} {
		e := s.run(newScript(t, c.text).Launch)
		if e.Code != c.code || e.Signal != c.signal || e.Unknown {
			t.Errorf("%s: %+v", c.text, e)
		}
		if e.PID == 0 || e.Started.IsZero() || e.Ended.Before(e.Started) {
			t.Errorf("%s: %+v", c.text, e)
		}
	}
}

func TestUsageIsMeasured(t *testing.T) {
	e := start(t).run(newScript(t, "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done").Launch)
	if e.UserCPU < 5*time.Millisecond || e.MaxRSSKB < 500 {
		t.Errorf("user CPU %v, max RSS %d KiB", e.UserCPU, e.MaxRSSKB)
	}
}

// forBoth runs a test with each way of forking.
func forBoth(t *testing.T, f func(t *testing.T, s *session)) {
	t.Run("clone3", func(t *testing.T) { f(t, start(t)) })
	t.Run("clone", func(t *testing.T) { f(t, startIn(t, newDir(t), noClone3Env+"=1")) })
}

// TestCleanProcess: a job has its own session, default signals, three descriptors, and only its environment.
func TestCleanProcess(t *testing.T) {
	forBoth(t, func(t *testing.T, s *session) {
		l := newScript(t, `cat /proc/self/status | grep -E '^Sig(Blk|Ign|Cgt):' | tr -d '\n\t'; echo
cut -d' ' -f6 /proc/$$/stat; echo $$
cut -d' ' -f7 /proc/$$/stat
tr '\0' '\n' < /proc/$$/environ | grep -v GBATCH_TRACK
pwd; umask; cat`)
		l.Umask = 0o027
		l.Path, l.Argv[0] = "/bin/sh", "my-own-name"
		e := s.run(l.Launch)
		pid := fmt.Sprint(e.PID)
		want := []string{"SigBlk:0000000000000000SigIgn:0000000000000000SigCgt:0000000000000000", pid, pid, "0",
			"PATH=/usr/bin:/bin", l.dir, "0027"}
		got := strings.Split(l.out(t), "\n")
		if !slices.Equal(got, want) {
			t.Errorf("got\n%q\nwant\n%q\nstderr %s", got, want, l.read(t, "err"))
		}
		if fi, err := os.Stat(filepath.Join(l.dir, "out")); err != nil || fi.Mode().Perm() != 0o640 {
			t.Errorf("mode of the output file: %v %v", fi.Mode(), err)
		}
		fds := newScript(t, "")
		fds.Argv = []string{"/bin/ls", "/proc/self/fd"}
		s.run(fds.Launch)
		if got := fds.out(t); got != "0\n1\n2\n3" { // 3 is the directory itself
			t.Errorf("open descriptors: %q", got)
		}
	})
}

// TestIgnoredSignals: signals that gshim inherits as ignored, as from make or nohup, are not ignored in jobs.
func TestIgnoredSignals(t *testing.T) {
	ignored := []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGTSTP}
	signal.Ignore(ignored...)
	defer signal.Reset(ignored...)
	forBoth(t, func(t *testing.T, s *session) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.c.Info().PID))
		if err != nil || strings.Contains(string(b), "SigIgn:\t0000000000000000") {
			t.Fatalf("gshim ignores nothing, so this test shows nothing: %v", err)
		}
		l := newScript(t, "grep SigIgn /proc/self/status")
		s.run(l.Launch)
		if got := l.out(t); got != "SigIgn:\t0000000000000000" {
			t.Error(got)
		}
	})
}

// TestStartTicks: a process's start time is right although it is rarely read from /proc.
func TestStartTicks(t *testing.T) {
	s := start(t)
	var unread int
	for range 40 {
		l := newScript(t, "exec sleep 100")
		s.launch(l.Launch)
		e := s.wait(l.Key, Launched)
		p, err := readProcess(e.PID)
		if err != nil || p.ticks != e.StartTicks {
			t.Errorf("pid %d started at tick %d by gshim and at %d by /proc (%v)", e.PID, e.StartTicks, p.ticks, err)
		}
		if err := unix.Kill(e.PID, unix.SIGKILL); err != nil {
			t.Error(err)
		}
		s.wait(l.Key, Exited)
	}
	for range 40 {
		a := &childArgs{}
		now := func(ts *unix.Timespec) {
			if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, ts); err != nil {
				t.Fatal(err)
			}
		}
		now(&a.forked)
		now(&a.born)
		if a.startTicks() == 0 {
			unread++
		}
		a.born.Sec++
		if a.startTicks() != 0 {
			t.Error("a second between the fork and the child, and its tick is known")
		}
	}
	if unread > 20 {
		t.Errorf("%d of 40 times the clock moved on between two readings", unread)
	}
}

func TestIdentity(t *testing.T) {
	needRoot(t)
	forBoth(t, func(t *testing.T, s *session) {
		l := newScript(t, "id -u; id -g; id -G; grep -E '^(Uid|Gid|CapEff):' /proc/self/status").as(nobody, someGroup, 7,
			8, 9)
		s.run(l.Launch)
		want := fmt.Sprintf("%d\n%d\n%d 7 8 "+
			"9\nUid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\nGid:\t%[2]d\t%[2]d\t%[2]d\t%[2]d\nCapEff:\t0000000000000000", nobody,
			someGroup, someGroup)
		if got := l.out(t); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		var st syscall.Stat_t
		if err := syscall.Stat(filepath.Join(l.dir, "out"), &st); err != nil || st.Uid != nobody || st.Gid != someGroup {
			t.Errorf("the output file belongs to %d:%d (%v)", st.Uid, st.Gid, err)
		}
	})
}

func TestLimitsSeenByTheJob(t *testing.T) {
	forBoth(t, func(t *testing.T, s *session) {
		hard, err := ownLimit(unix.RLIMIT_NOFILE)
		if err != nil {
			t.Fatal(err)
		}
		l := newScript(t, "ulimit -Sn; ulimit -Hn; ulimit -Sc; ulimit -Ss; ulimit -Hs; ulimit -St")
		l.Limits = []Limit{{unix.RLIMIT_NOFILE, 50, min(777, hard.Max), false}, {unix.RLIMIT_CORE, 0, 0, false},
			{unix.RLIMIT_STACK, 4 << 20, 16 << 20, false}, {unix.RLIMIT_CPU, 100, 200, false}}
		s.run(l.Launch)
		if got, want := l.out(t), fmt.Sprintf("50\n%d\n0\n4096\n16384\n100", min(777, hard.Max)); got != want {
			t.Errorf("got\n%s\nwant\n%s (%s)", got, want, l.read(t, "err"))
		}
		l = newScript(t, "ulimit -Sn")
		s.run(l.Launch)
		if got := l.out(t); got != fmt.Sprint(inheritedOpenFiles()) {
			t.Errorf("default soft limit of open files: %s, expected %d", got, inheritedOpenFiles())
		}
		l = newScript(t, "head -c 100000 /dev/zero > big; exit 3")
		l.Limits = []Limit{{unix.RLIMIT_FSIZE, 50000, 50000, false}}
		s.run(l.Launch)
		if fi, err := os.Stat(filepath.Join(l.dir, "big")); err != nil || fi.Size() != 50000 {
			t.Errorf("file size limit: %v %v", fi, err)
		}
	})
}

func TestRootRaisesHardLimits(t *testing.T) {
	needRoot(t)
	if !mayRaiseLimits() {
		t.Skip("root without CAP_SYS_RESOURCE")
	}
	s := start(t)
	l := newScript(t, "ulimit -Hn; ulimit -Sn; ulimit -Hl").as(nobody, nobody)
	l.Limits = []Limit{{unix.RLIMIT_NOFILE, 5, Unlimited, true}, {unix.RLIMIT_MEMLOCK, Unlimited, Unlimited, true}}
	s.launch(l.Launch)
	e := s.wait(l.Key, Exited)
	open := readNumber("/proc/sys/fs/nr_open", 0)
	if got, want := l.out(t), fmt.Sprintf("%d\n5\nunlimited", open); got != want {
		t.Errorf("got %q, want %q, %v", got, want, e)
	}
}

// TestNoOtherLimits: limits that would give a process more than its share of the node are refused.
func TestNoOtherLimits(t *testing.T) {
	for _, resource := range []int{unix.RLIMIT_RTPRIO, unix.RLIMIT_NICE, unix.RLIMIT_MSGQUEUE, unix.RLIMIT_LOCKS, -1} {
		l := Launch{Argv: []string{"/bin/true"}, Limits: []Limit{{Resource: resource, Soft: 99, Hard: 99}}}
		if err := l.Check(); err == nil {
			t.Errorf("limit %d is taken", resource)
		}
	}
}

func TestPlanLimits(t *testing.T) {
	have := func(int) (syscall.Rlimit, error) { return syscall.Rlimit{Cur: 100, Max: 1000}, nil }
	user := limitRules{have: have, nrOpen: 5000, openFiles: 64}
	root := user
	root.mayRaise = true
	for _, c := range []struct {
		name  string
		rules limitRules
		asked Limit
		want  syscall.Rlimit // zero: not set
		notes int
	}{
		{"as it is", user, Limit{unix.RLIMIT_CORE, 100, 1000, false},
			syscall.Rlimit{}, 0},
		{"lower", user, Limit{unix.RLIMIT_CORE, 1, 2, false}, syscall.Rlimit{Cur: 1, Max: 2}, 0},
		{"beyond the hard limit", user, Limit{unix.RLIMIT_CORE, 1, Unlimited, false},
			syscall.Rlimit{Cur: 1, Max: 1000}, 1},
		{"soft beyond the hard limit", user, Limit{unix.RLIMIT_CORE, 2000, 3000, false},
			syscall.Rlimit{Cur: 1000, Max: 1000}, 1},
		{"soft beyond its own hard limit", user, Limit{unix.RLIMIT_CORE, 500, 400, false},
			syscall.Rlimit{Cur: 400, Max: 400}, 1},
		{"root, not told to raise", root, Limit{unix.RLIMIT_CORE, 2000, Unlimited, false},
			syscall.Rlimit{Cur: 1000, Max: 1000}, 1},
		{"root raises", root, Limit{unix.RLIMIT_CORE, 2000, Unlimited, true},
			syscall.Rlimit{Cur: 2000, Max: Unlimited}, 0},
		{"no right to raise", user, Limit{unix.RLIMIT_CORE, 2000, Unlimited, true},
			syscall.Rlimit{Cur: 1000, Max: 1000}, 1},
		{"root and nr_open", root, Limit{unix.RLIMIT_NOFILE, 10, Unlimited, true},
			syscall.Rlimit{Cur: 10, Max: 5000}, 1},
	} {
		set, notes, err := planLimits([]Limit{c.asked}, c.rules)
		if err != nil {
			t.Fatal(err)
		}
		var got, files syscall.Rlimit
		for _, r := range set {
			if int(r.resource) == c.asked.Resource {
				got = r.lim
			} else {
				files = r.lim
			}
		}
		if got != c.want || len(notes) != c.notes {
			t.Errorf("%s: got %+v %q, want %+v", c.name, got, notes, c.want)
		}
		if c.asked.Resource != unix.RLIMIT_NOFILE && files != (syscall.Rlimit{Cur: 64, Max: 1000}) {
			t.Errorf("%s: open files %+v", c.name, files)
		}
	}
}

func TestProgramsThatCannotRun(t *testing.T) {
	s := start(t)
	dir := workDir(t)
	file := func(name, text string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		write(t, p, text)
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	plain := file("plain", "#!/bin/sh\n", 0o644)
	gone := file("gone", "#!/usr/bin/pyhton3 -u\nprint(1)\n", 0o755)
	dos := file("dos", "#!/bin/sh\r\necho\r\n", 0o755)
	binary := file("binary", "\x00\x01\x02", 0o755)
	for path, want := range map[string]string{
		plain: "could not run " + plain + ": permission denied",
		gone:  "could not run " + gone + ": bad interpreter /usr/bin/pyhton3: no such file or directory",
		dos: "could not run " + dos +
			`: bad interpreter "/bin/sh\r" (the script has DOS line ends): no such file or directory`,
		binary:      "could not run " + binary + ": not a program of this machine and not a script beginning with #!",
		"/no/where": "could not run /no/where: no such file or directory",
		dir:         "could not run " + dir + ": permission denied",
	} {
		l := newScript(t, "")
		l.Argv = []string{path}
		s.launch(l.Launch)
		if e := s.wait(l.Key, LaunchFailed); e.Text != want || e.Stage != StageExec {
			t.Errorf("got  %q\nwant %q", e.Text, want)
		}
	}
	l := newScript(t, "true")
	l.Env = append(l.Env, "BIG="+strings.Repeat("x", 200<<10))
	s.launch(l.Launch)
	if e := s.wait(l.Key, LaunchFailed); !strings.Contains(e.Text, "too long") || !strings.Contains(e.Text, "BIG=") {
		t.Errorf("got %q", e.Text)
	}
}

// TestScriptStillOpenForWriting: ETXTBSY ends when no fork of gnoded holds the file.
func TestScriptStillOpenForWriting(t *testing.T) {
	s := start(t)
	l := newScript(t, "")
	prog := filepath.Join(l.dir, "prog")
	if err := os.WriteFile(prog, []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(prog, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	l.Argv = []string{prog}
	s.launch(l.Launch)
	if e := s.wait(l.Key, LaunchFailed); !strings.Contains(e.Text, "text file busy") {
		t.Errorf("got %q", e.Text)
	}
	again := newScript(t, "")
	again.Argv = []string{prog}
	timer := time.AfterFunc(10*time.Millisecond, func() { f.Close() })
	defer timer.Stop()
	if e := s.run(again.Launch); e.Code != 0 {
		t.Errorf("%+v", e)
	}
}

func TestNiceAndCPUs(t *testing.T) {
	s := start(t)
	l := newScript(t, "cut -d' ' -f19 /proc/$$/stat; grep Cpus_allowed_list /proc/self/status | cut -f2")
	l.Nice, l.CPUs = 5, []int{0}
	s.run(l.Launch)
	if got := l.out(t); got != "5\n0" {
		t.Errorf("got %q", got)
	}
	l = newScript(t, "true")
	l.CPUs = []int{8000}
	s.launch(l.Launch)
	if e := s.wait(l.Key, LaunchFailed); e.Text != "could not pin the process to CPUs [8000]: invalid argument" {
		t.Errorf("got %q", e.Text)
	}
}

func TestShieldedFromOOMKiller(t *testing.T) {
	needRoot(t)
	before := strings.TrimSpace(mustRead(t, "/proc/self/oom_score_adj"))
	s := start(t)
	if got := strings.TrimSpace(mustRead(t, fmt.Sprintf("/proc/%d/oom_score_adj", s.c.Info().PID))); got != "-1000" {
		t.Skipf("this kernel keeps the protection from us: %s", got)
	}
	l := newScript(t, "cat /proc/self/oom_score_adj").as(nobody, nobody)
	s.run(l.Launch)
	if got := l.out(t); got != before {
		t.Errorf("the job's oom_score_adj is %s, expected %s", got, before)
	}
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestRefusedOrders(t *testing.T) {
	s := start(t)
	for want, set := range map[string]func(l *Launch){
		"no command given":                          func(l *Launch) { l.Argv = nil },
		`the program "sh" is not an absolute`:       func(l *Launch) { l.Argv = []string{"sh"} },
		"contains a NUL byte":                       func(l *Launch) { l.Env = []string{"A=\x00"} },
		"umask 02000 is not between 0 and 0777":     func(l *Launch) { l.Umask = 0o2000 },
		"nice value 40 is not between -20 and 19":   func(l *Launch) { l.Nice = 40 },
		"the working directory \"x\" is not an abs": func(l *Launch) { l.Dir = "x" },
		"the stdout file has 5000 bytes":            func(l *Launch) { l.Stdout = strings.Repeat("x", 5000) },
		"at most 6291456 can be passed": func(l *Launch) {
			l.Argv = slices.Repeat([]string{strings.Repeat("x",
				1<<20)}, 7)
		},
	} {
		l := newScript(t, "true")
		set(l.Launch)
		if len(l.Argv) == 7 {
			l.Path = "/bin/true"
		}
		if err := s.c.Launch(l.Launch); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want ...%s", err, want)
		}
	}
	if err := s.c.Ping(testContext(t)); err != nil {
		t.Error(err)
	}
}

// TestOnce: an order is carried out once, however often it comes.
func TestOnce(t *testing.T) {
	s := start(t)
	l := newScript(t, "echo once >> count; cat fifo")
	if err := unix.Mkfifo(filepath.Join(l.dir, "fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	s.launch(l.Launch, l.Launch, l.Launch)
	s.wait(l.Key, Launched)
	s.launch(l.Launch)
	until(t, "the script to run", func() bool { _, err := os.Stat(filepath.Join(l.dir, "count")); return err == nil })
	write(t, filepath.Join(l.dir, "fifo"), "end\n")
	s.wait(l.Key, Exited)
	s.launch(l.Launch)
	if err := s.c.Ping(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if got := l.read(t, "count"); got != "once\n" {
		t.Errorf("got %q", got)
	}
	if err := s.c.Ack(testContext(t), l.Key); err != nil {
		t.Fatal(err)
	}
	if err := s.c.Ack(testContext(t), l.Key); err != nil {
		t.Errorf("a second Ack: %v", err)
	}
}

// TestLaunchOfADeadGnoded: a launch that gshim reads only when its sender is dead is not carried out. The next gnoded
// sends it again, and its end may be known and forgotten by then.
func TestLaunchOfADeadGnoded(t *testing.T) {
	dir := newDir(t)
	o := Options{Dir: dir, Binary: filepath.Join(binaries, "gshim")}
	old, _, err := Start(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	ran := filepath.Join(t.TempDir(), "ran")
	launchOf := func(id uint32) *Launch {
		return &Launch{Key: Key{JobID: id}, Argv: []string{"/bin/sh", "-c", "echo >> " + ran},
			AsRoot: os.Geteuid() == 0, UID: uint32(os.Geteuid()),
			GID: uint32(os.Getegid())}
	}
	pid := old.Info().PID
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	err = errors.Join(old.Launch(launchOf(1), launchOf(2)), old.Close(), syscall.Kill(pid, syscall.SIGCONT))
	if err != nil {
		t.Fatal(err)
	}
	c, first, err := Start(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	s := follow(t, c, first)
	if e := s.run(launchOf(1)); e.Code != 0 {
		t.Errorf("%+v", e)
	}
	if err := c.Ack(testContext(t), Key{JobID: 1}); err != nil {
		t.Fatal(err)
	}
	s.run(launchOf(3)) // whatever was to be read before is read
	if b, err := os.ReadFile(ran); err != nil || len(b) != 2 {
		t.Errorf("%d runs of jobs 1 and 3, %v", len(b), err)
	}
}

// TestAnswersWhileEventsWait: the reader of events may send orders meanwhile, however many events wait.
func TestAnswersWhileEventsWait(t *testing.T) {
	c, _, err := Start(testContext(t), Options{Dir: newDir(t), Binary: filepath.Join(binaries, "gshim")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var all []*Launch
	for i := range 200 {
		all = append(all, &Launch{Key: Key{JobID: uint32(i + 1)}, Argv: []string{"/bin/true"},
			AsRoot: os.Geteuid() == 0, UID: uint32(os.Geteuid()),
			GID: uint32(os.Getegid())})
	}
	if err := c.Launch(all...); err != nil {
		t.Fatal(err)
	}
	until(t, "all to end, with no event taken", func() bool {
		evs, err := c.List(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		return len(evs) == len(all) && !slices.ContainsFunc(evs, func(e Event) bool { return !e.Done() })
	})
	for n := 0; n < len(all); {
		for _, e := range <-c.Events() {
			if e.Kind == Exited {
				n++
				if err := c.Ack(testContext(t), e.Key); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	s := start(t)
	var all []*Launch
	var keys []Key
	dir := workDir(t)
	for i := range 400 {
		l := &Launch{Key: Key{JobID: 900000 + uint32(i)}, Argv: []string{"/bin/sh", "-c", fmt.Sprintf("exit %d", i%200)},
			AsRoot: os.Geteuid() == 0, UID: uint32(os.Geteuid()),
			GID: uint32(os.Getegid()), Stdout: filepath.Join(dir, fmt.Sprint(i))}
		all, keys = append(all, l), append(keys, l.Key)
	}
	s.launch(all...)
	for i, k := range keys {
		if e := s.wait(k, Exited); e.Code != i%200 {
			t.Fatalf("%v: code %d", k, e.Code)
		}
	}
	s.mu.Lock()
	for _, k := range keys {
		if !slices.Equal(s.seen[k], []EventKind{Launched, Exited}) {
			t.Errorf("%v: %v", k, s.seen[k])
		}
	}
	s.mu.Unlock()
	if err := s.c.Ack(testContext(t), keys...); err != nil {
		t.Fatal(err)
	}
	if evs, err := s.c.List(testContext(t)); err != nil || len(evs) != 0 {
		t.Errorf("%d launches left (%v)", len(evs), err)
	}
}
