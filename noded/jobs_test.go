package noded

// jobs_test.go drives a real gnoded and gshim through the life of jobs.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/blob"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/shim"
)

// endShim kills whatever a test's gshim still has, and ends it.
func endShim(t testing.TB, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testWait)
	defer cancel()
	c, events, err := shim.Connect(ctx, dir)
	if errors.Is(err, shim.ErrNotRunning) {
		return
	}
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	go func() {
		for range c.Events() {
		}
	}()
	for _, ev := range events {
		if _, err := c.Signal(ctx, ev.Key, unix.SIGKILL, shim.Tree); err != nil {
			t.Error(err)
		}
	}
	until(t, "gshim ends", func() bool { return c.Shutdown(ctx) == nil })
}

func TestExitCodes(t *testing.T) {
	c := newCluster(t)
	for i, tc := range []struct {
		name, script string
		change       func(*proto.Launch)
		code, signal int32
		kind         proto.ReportKind
		text         string
		ran          bool
	}{
		{name: "ok", script: "exit 0", ran: true},
		{name: "code", script: "exit 7", code: 7, ran: true},
		{name: "segv", script: "kill -SEGV $$", signal: 11, ran: true},
		{name: "no output directory", script: "exit 0",
			change: func(l *proto.Launch) { l.Spec.StdOut = "/nonexistent/x.out" }, signal: 53, text: "/nonexistent/x.out"},
		{name: "no input", script: "exit 0", change: func(l *proto.Launch) { l.Spec.StdIn = "/nonexistent/in" }, signal: 53,
			text: "/nonexistent/in"},
		{name: "interpreter", change: func(l *proto.Launch) { l.Script = blob.Make([]byte("#!/nonexistent/interp\nx\n")) },
			code: 2, text: "bad interpreter /nonexistent/interp"},
		{name: "no script", change: func(l *proto.Launch) { l.Script = model.Blob{} }, kind: proto.ReportLaunchFailed,
			text: "script is empty"},
		{name: "not this node", change: func(l *proto.Launch) { l.Alloc.Nodes[0].Node = "n2" },
			kind: proto.ReportLaunchFailed, text: "not for node n1"},
		{name: "no allocation", change: func(l *proto.Launch) { l.Alloc = nil }, kind: proto.ReportLaunchFailed,
			text: "incomplete"},
		{name: "negative place", change: func(l *proto.Launch) { l.Node = -1 }, kind: proto.ReportLaunchFailed,
			text: "not for node n1"},
		{name: "broken script", change: func(l *proto.Launch) { l.Script = model.Blob{Data: []byte("junk"), Packed: true} },
			kind: proto.ReportLaunchFailed, text: "unpack"},
		{name: "broken environment", change: func(l *proto.Launch) { l.Env = model.Blob{Data: []byte("junk"), Packed: true} },
			kind: proto.ReportLaunchFailed, text: "environment"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := c.job(100+i, tc.script)
			if tc.change != nil {
				tc.change(l)
			}
			r := c.run(l)
			if tc.kind == 0 {
				tc.kind = proto.ReportEnded
			}
			if r.Kind != tc.kind || r.Exit.Code != tc.code || r.Exit.Signal != tc.signal || r.Exit.Unknown {
				t.Errorf("got %+v", r)
			}
			if !strings.Contains(r.Text+r.Exit.Text, tc.text) {
				t.Errorf("text %q / %q, want %q", r.Text, r.Exit.Text, tc.text)
			}
			if got := c.ctl.count(l, proto.ReportStarted) > 0; got != tc.ran {
				t.Errorf("started: %v", got)
			}
		})
	}
	until(t, "no script in use", func() bool {
		return c.n.scripts.InUse() == 0
	})
	until(t, "every report acknowledged", func() bool { return c.n.out.count() == 0 })
}

// A missing interpreter is named in the job's output file.
func TestExecFailureIsInTheOutput(t *testing.T) {
	c := newCluster(t)
	l := c.job(1, "", func(l *proto.Launch) { l.Script = blob.Make([]byte("#!/nonexistent/interp\nx\n")) })
	c.run(l)
	if out := c.output(l); !strings.Contains(out, "slurmstepd: error: ") ||
		!strings.Contains(out, "bad interpreter /nonexistent/interp") {
		t.Errorf("output %q", out)
	}
}

func TestWhatAScriptSees(t *testing.T) {
	c := newCluster(t)
	in := filepath.Join(c.dir, "in")
	if err := os.WriteFile(in, []byte("from stdin\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	l := c.job(42, `echo "$SLURM_JOB_ID $SLURMD_NODENAME $GBATCH_CONF"; pwd; umask; echo "args:$1:$2"; cat; basename `+
		`$0; ls -ld $0 | cut -c1-10; echo err >&2; touch made; ulimit -n`,
		func(l *proto.Launch) {
			l.Spec.Umask, l.Spec.Args, l.Spec.StdIn = 0o027, []string{"a b", "c"}, "in"
			l.Spec.StdErr = "err-%j.txt"
			l.Spec.Limits = []model.RLimit{{Resource: unix.RLIMIT_NOFILE, Soft: 300, Hard: 400}}
		})
	c.run(l)
	want := "42 n1 /etc/gbatch/gbatch.conf\n" + c.dir + "\n0027\nargs:a b:c\nfrom stdin\nslurm_script\n-r-x------\n300\n"
	if got := c.output(l); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if b, err := os.ReadFile(filepath.Join(c.dir, "err-42.txt")); err != nil || string(b) != "err\n" {
		t.Errorf("stderr %q %v", b, err)
	}
	if st, err := os.Stat(filepath.Join(c.dir, "made")); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("umask: %v %v", st, err)
	}
}

func TestOutputFiles(t *testing.T) {
	c := newCluster(t)
	for i, tc := range []struct {
		name, pattern, want string
		change              func(*proto.Launch)
	}{
		{name: "default", want: "slurm-%d.out"},
		{name: "default of an array", want: "slurm-77_5.out", change: func(l *proto.Launch) { l.ArrayID, l.Task = 77, 5 }},
		{name: "symbols", pattern: "%A-%4a-%x-%N-%u-%n-%t-%%", want: "77-0005-job-n1-u-0-0-%",
			change: func(l *proto.Launch) { l.ArrayID, l.Task = 77, 5 }},
		{name: "directory", pattern: "sub/%5j", want: "sub/00203"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := os.MkdirAll(filepath.Join(c.dir, "sub"), 0o777); err != nil {
				t.Fatal(err)
			}
			l := c.job(200+i, "echo hello", func(l *proto.Launch) { l.Spec.StdOut = tc.pattern })
			if tc.change != nil {
				tc.change(l)
			}
			c.run(l)
			name := tc.want
			if strings.Contains(name, "%d") {
				name = fmt.Sprintf(name, l.Job)
			}
			if b, err := os.ReadFile(filepath.Join(c.dir, name)); err != nil || string(b) != "hello\n" {
				t.Errorf("%q %v", b, err)
			}
		})
	}
	// --open-mode
	path := filepath.Join(c.dir, "mode")
	for i, app := range []bool{false, false, true} {
		l := c.job(300+i, fmt.Sprintf("echo %d", i), func(l *proto.Launch) { l.Spec.StdOut, l.Spec.Append = path, app })
		c.run(l)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "1\n2\n" {
		t.Errorf("append and truncate: %q %v", b, err)
	}
}

func TestCancelEndsTheWholeTree(t *testing.T) {
	c := newCluster(t)
	l := c.job(1, `trap "" TERM; setsid sh -c 'trap "" TERM; echo $$ > child; while :; do sleep 1; done' & echo $$ > `+
		`parent; while :; do sleep 1; done`)
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
	c.ctl.waitStarted(l)
	var pids [2]int
	for i, name := range []string{"parent", "child"} {
		until(t, name, func() bool {
			b, err := os.ReadFile(filepath.Join(c.dir, name))
			if err != nil {
				return false
			}
			_, err = fmt.Sscan(string(b), &pids[i])
			return err == nil
		})
	}
	const line = "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2026-11-20T10:00:00 DUE TO TIME LIMIT ***"
	c.ctl.send(&proto.Orders{
		Stop: []*proto.Stop{{Job: 1, Attempt: 1, Cause: model.StopTimeLimit, KillWaitS: 1, Line: line}}})
	r := c.ctl.waitEnded(l)
	if r.Exit.Signal != int32(unix.SIGKILL) {
		t.Errorf("a script that ignores SIGTERM ended with %+v", r.Exit)
	}
	for _, pid := range pids {
		waitGone(t, pid)
	}
	if out := c.output(l); !strings.Contains(out, line+"\n") {
		t.Errorf("output %q", out)
	}
	// A Stop for what is over and acknowledged changes nothing; the next job runs.
	c.ctl.send(&proto.Orders{Stop: []*proto.Stop{{Job: 1, Attempt: 1}}})
	if r := c.run(c.job(2, "exit 3")); r.Exit.Code != 3 {
		t.Errorf("%+v", r.Exit)
	}
}

func TestSigtermIsEnough(t *testing.T) {
	c := newCluster(t)
	l := c.job(1, `trap 'echo got TERM; exit 5' TERM; echo ready > ready; while :; do sleep 0.05; done`)
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
	until(t, "the script runs", func() bool { _, err := os.Stat(filepath.Join(c.dir, "ready")); return err == nil })
	c.ctl.send(&proto.Orders{Stop: []*proto.Stop{{Job: 1, Attempt: 1, Cause: model.StopCancel, KillWaitS: 60}}})
	if r := c.ctl.waitEnded(l); r.Exit.Code != 5 {
		t.Errorf("%+v", r.Exit)
	}
	if out := c.output(l); !strings.HasSuffix(out, "got TERM\n") {
		t.Errorf("output %q", out)
	}
}

func TestSignals(t *testing.T) {
	c := newCluster(t)
	const script = `trap 'echo shell' USR1; sh -c 'trap "echo child" USR1; echo > ready; while :; do sleep 0.05; done' ` +
		`& while :; do sleep 0.05; done`
	for i, tc := range []struct {
		name string
		stop proto.Stop
		want []string
	}{
		{"batch", proto.Stop{Batch: true}, []string{"shell"}},
		{"full", proto.Stop{Full: true}, []string{"child", "shell"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// The job may not be there any more.
			_ = os.Remove(filepath.Join(c.dir, "ready"))
			l := c.job(10+i, script)
			c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
			until(t, "the script runs", func() bool { _, err := os.Stat(filepath.Join(c.dir, "ready")); return err == nil })
			tc.stop.Job, tc.stop.Attempt, tc.stop.Signal = l.Job, 1, int32(unix.SIGUSR1)
			c.ctl.send(&proto.Orders{Stop: []*proto.Stop{&tc.stop}})
			for _, w := range tc.want {
				until(t, "the signal arrives at the "+w, func() bool { return strings.Contains(c.output(l), w) })
			}
			if out := c.output(l); tc.name == "batch" && strings.Contains(out, "child") {
				t.Errorf("the child got it too: %q", out)
			}
			c.ctl.send(&proto.Orders{Stop: []*proto.Stop{{Job: l.Job, Attempt: 1, Signal: int32(unix.SIGKILL)}}})
			if r := c.ctl.waitEnded(l); r.Exit.Signal != int32(unix.SIGKILL) {
				t.Errorf("%+v", r.Exit)
			}
		})
	}
}

func TestStopBeforeLaunch(t *testing.T) {
	c := newCluster(t)
	// One that the node never heard of: the leader waits to hear that nothing runs.
	l := c.job(1, "touch ran")
	c.ctl.send(&proto.Orders{Stop: []*proto.Stop{{Job: 1, Attempt: 1, Cause: model.StopCancel}}})
	if r := c.ctl.waitEnded(l); r.Kind != proto.ReportEnded || r.Exit != (model.Exit{}) {
		t.Errorf("%+v", r)
	}
	// A launch that comes late does not start it.
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
	// Both in one message: it may or may not have begun, but it ends, once.
	both := c.job(2, "sleep 60")
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{both},
		Stop: []*proto.Stop{{Job: 2, Attempt: 1, Cause: model.StopCancel, KillWaitS: 1}}})
	c.ctl.waitEnded(both)
	if _, err := os.Stat(filepath.Join(c.dir, "ran")); err == nil {
		t.Error("a job ran that had been stopped before")
	}
	if n := c.ctl.count(both, proto.ReportEnded); n != 1 {
		t.Errorf("%d ends", n)
	}
}

func TestDuplicateLaunch(t *testing.T) {
	c := newCluster(t)
	l := c.job(1, `echo ran >> count; until [ -e go ]; do sleep 0.02; done; exit 4`)
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l, l}})
	c.ctl.waitStarted(l)
	n := c.ctl.count(l, proto.ReportStarted)
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
	until(t, "it is said again that it runs", func() bool { return c.ctl.count(l, proto.ReportStarted) > n })
	c.ctl.set(func(f *fakeCtld) { f.noAck = true })
	if err := os.WriteFile(filepath.Join(c.dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if r := c.ctl.waitEnded(l); r.Exit.Code != 4 {
		t.Errorf("%+v", r.Exit)
	}
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
	until(t, "its end is said again", func() bool { return c.ctl.count(l, proto.ReportEnded) > 1 })
	c.ctl.send(&proto.Orders{Stop: []*proto.Stop{{Job: 1, Attempt: 1}}})
	until(t, "and to a Stop", func() bool { return c.ctl.count(l, proto.ReportEnded) > 2 })
	if b, err := os.ReadFile(filepath.Join(c.dir, "count")); err != nil || string(b) != "ran\n" {
		t.Errorf("it ran %q times (%v)", b, err)
	}
	// The next attempt is another thing.
	c.ctl.set(func(f *fakeCtld) { f.noAck = false })
	l2 := c.job(1, "exit 9", func(l *proto.Launch) { l.Attempt = 2 })
	if r := c.run(l2); r.Exit.Code != 9 {
		t.Errorf("%+v", r.Exit)
	}
}

func TestStaleLeader(t *testing.T) {
	c := newCluster(t)
	c.ctl.set(func(f *fakeCtld) { f.epoch = 7 })
	c.run(c.job(1, "exit 0"))
	l := c.job(2, "touch ran")
	c.ctl.send(&proto.Orders{Epoch: 6, Launch: []*proto.Launch{l}})
	c.ctl.waitNode(2) // the session was ended and begun again
	if r := c.run(c.job(3, "exit 0")); r.Exit.Code != 0 {
		t.Error(r)
	}
	if _, err := os.Stat(filepath.Join(c.dir, "ran")); err == nil {
		t.Error("a stale leader started a job")
	}
	// It is remembered over a restart, and in the Welcome too.
	c.stop()
	c.ctl.set(func(f *fakeCtld) { f.epoch = 5; f.conn = nil })
	c.start()
	until(t, "two more tries to register",
		func() bool { return c.ctl.is(func(f *fakeCtld) bool { return len(f.hellos) >= 4 }) })
	if c.n.Registered() {
		t.Error("registered with a stale leader")
	}
	c.ctl.set(func(f *fakeCtld) { f.epoch = 8 })
	until(t, "registered with a new leader", c.n.Registered)
}

func TestForget(t *testing.T) {
	c := newCluster(t)
	l := c.job(1, "sleep 600")
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
	c.ctl.waitStarted(l)
	c.ctl.send(&proto.Orders{Forget: []proto.Attempt{{Job: 1, Attempt: 1}, {Job: 99, Attempt: 1}}})
	until(t, "it is forgotten", func() bool {
		reply, running := make(chan answerFor, 1), make(chan answerFor, 1)
		c.n.inbox.post(msgKnown{reply})
		c.n.inbox.post(msgRunning{running})
		known, now := <-reply, <-running
		return len(known.known) == 0 && len(known.leaving) == 0 && now.running == 0
	})
	if c.ctl.count(l, proto.ReportEnded) != 0 {
		t.Error("the end of a forgotten attempt was reported")
	}
}

// A cluster that has lost its state counts jobs and epochs from the beginning.
func TestNewInstance(t *testing.T) {
	c := newCluster(t)
	c.ctl.set(func(f *fakeCtld) { f.instance, f.epoch = 100, 50; _ = f.conn.Close() })
	c.ctl.waitNode(2)
	old := c.job(1, "echo old > who; sleep 600")
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{old}})
	c.ctl.waitStarted(old)
	c.ctl.set(func(f *fakeCtld) { f.instance, f.epoch = 200, 1; _ = f.conn.Close(); f.conn = nil })
	if h := c.ctl.waitNode(3); h.Instance != 100 || len(h.Known) != 1 {
		t.Errorf("hello %+v", h)
	}
	c.ctl.set(func(f *fakeCtld) { clear(f.started); clear(f.ended) })
	fresh := c.job(1, "exit 6")
	if r := c.run(fresh); r.Exit.Code != 6 {
		t.Errorf("job 1 of the new cluster: %+v", r)
	}
}

func TestManyAtOnce(t *testing.T) {
	c := newCluster(t)
	o := &proto.Orders{}
	for i := range 200 {
		o.Launch = append(o.Launch,
			c.job(1000+i, fmt.Sprintf("exit %d", i%5), func(l *proto.Launch) { l.Spec.StdOut = "/dev/null" }))
	}
	begin := time.Now()
	c.ctl.send(o)
	for i, l := range o.Launch {
		if r := c.ctl.waitEnded(l); r.Exit.Code != int32(i%5) {
			t.Errorf("job %d: %+v", l.Job, r.Exit)
		}
	}
	t.Logf("200 jobs in %v", time.Since(begin))
	for _, l := range o.Launch {
		if n := c.ctl.count(l, proto.ReportEnded); n != 1 {
			t.Errorf("job %d: %d ends", l.Job, n)
		}
	}
	until(t, "nothing is left", func() bool { return c.n.out.count() == 0 })
}

func TestOtherUsersJobs(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to run a job as another user")
	}
	c := newCluster(t)
	l := c.job(1, "id -u; id -g; id -G; cat secret", func(l *proto.Launch) {
		l.Spec.UID, l.Spec.GID, l.Spec.Groups, l.Spec.User = 65534, 65534, []uint32{65534, 4242}, "nobody"
	})
	if err := os.WriteFile(filepath.Join(c.dir, "secret"), []byte("root only"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := c.run(l)
	if out := c.output(l); !strings.HasPrefix(out, "65534\n65534\n65534 4242\n") || strings.Contains(out, "root only") ||
		r.Exit.Code != 1 {
		t.Errorf("%+v: %q", r.Exit, out)
	}
	// Nor is a message for the user written where the user could not.
	target := filepath.Join(c.dir, "target")
	if err := os.WriteFile(target, []byte("untouched"), 0o644); err != nil {
		t.Fatal(err)
	}
	l = c.job(2, `rm -f 2.out; ln -s target 2.out; echo > ready; while :; do sleep 0.1; done`, func(l *proto.Launch) {
		l.Spec.UID, l.Spec.GID, l.Spec.User = 65534, 65534, "nobody"
	})
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
	until(t, "the link is there", func() bool { _, err := os.Stat(filepath.Join(c.dir, "ready")); return err == nil })
	c.ctl.send(&proto.Orders{Stop: []*proto.Stop{{Job: 2, Attempt: 1, KillWaitS: 5, Line: "*** CANCELLED ***"}}})
	c.ctl.waitEnded(l)
	if b, err := os.ReadFile(target); err != nil || string(b) != "untouched" {
		t.Errorf("%q %v", b, err)
	}
}

// Without root rights gnoded runs its own user's jobs, refuses others' with a sentence, and reports its limits.
func TestOrdinaryUser(t *testing.T) {
	if os.Getuid() == 0 {
		asNobody(t, "TestOrdinaryUser")
		return
	}
	c := newCluster(t)
	if notes := strings.Join(c.ctl.waitNode(1).Hw.Notes, "\n"); !strings.Contains(notes,
		fmt.Sprintf("only jobs of uid %d run here", os.Getuid())) ||
		!strings.Contains(notes, "can't be confined") {
		t.Errorf("notes %q", notes)
	}
	own := c.job(1, `sh -c 'trap "" TERM; setsid sleep 600 & echo $! > pid; exit 0' ; exit 7`)
	if r := c.run(own); r.Exit.Code != 7 {
		t.Errorf("%+v", r)
	}
	b, err := os.ReadFile(filepath.Join(c.dir, "pid"))
	must(t, err)
	var pid int
	_, err = fmt.Sscan(string(b), &pid)
	must(t, err)
	waitGone(t, pid)
	other := c.job(2, "exit 0", func(l *proto.Launch) { l.Spec.UID, l.Spec.User = 1, "daemon" })
	if r := c.run(other); r.Kind != proto.ReportLaunchFailed ||
		!strings.Contains(r.Text, "can't run a job of uid 1 (daemon)") {
		t.Errorf("%+v", r)
	}
	// Cancel works as well.
	l := c.job(3, `trap "" TERM; echo > ready; while :; do sleep 0.1; done`)
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
	until(t, "it runs", func() bool { return isThere(filepath.Join(c.dir, "ready")) })
	c.ctl.send(&proto.Orders{Stop: []*proto.Stop{{Job: 3, Attempt: 1, KillWaitS: 1, Line: "*** CANCELLED ***"}}})
	if r := c.ctl.waitEnded(l); r.Exit.Signal != int32(unix.SIGKILL) {
		t.Errorf("%+v", r.Exit)
	}
	if out := c.output(l); !strings.Contains(out, "*** CANCELLED ***\n") {
		t.Errorf("output %q", out)
	}
}
