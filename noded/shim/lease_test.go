//go:build linux && (amd64 || arm64)

package shim

// lease_test.go is about the end of the lease: who is asked, what is killed then and what not, and what starts again.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// judge is a program that prints what a file says.
type judge struct {
	t   *testing.T
	dir string
}

func newJudge(t *testing.T, says string) *judge {
	j := &judge{t, workDir(t)}
	write(t, filepath.Join(j.dir, "judge"), "#!/bin/sh\necho asked >>"+j.dir+"/asked\ncat "+j.dir+"/says\n")
	if err := os.Chmod(filepath.Join(j.dir, "judge"), 0o755); err != nil {
		t.Fatal(err)
	}
	j.say(says)
	return j
}

func (j *judge) say(says string) {
	j.t.Helper()
	write(j.t, filepath.Join(j.dir, "new"), says)
	if err := os.Rename(filepath.Join(j.dir, "new"), filepath.Join(j.dir, "says")); err != nil {
		j.t.Fatal(err)
	}
}

func (j *judge) asked() int {
	b, _ := os.ReadFile(filepath.Join(j.dir, "asked")) // not yet is none
	return strings.Count(string(b), "\n")
}

func (j *judge) lease(d, ask time.Duration) Lease {
	now := Uptime()
	return Lease{Until: now + d, Heard: now, Ask: ask, Verdict: []string{filepath.Join(j.dir, "judge")}}
}

func (s *session) renew(l Lease) {
	s.t.Helper()
	if err := s.c.Renew(testContext(s.t), l); err != nil {
		s.t.Fatal(err)
	}
}

// TestLeaseEnds: all jobs are killed when the lease ends and not before. Later launches are reported as killed, except
// prologs and epilogs, until there is a new lease.
func TestLeaseEnds(t *testing.T) {
	s := start(t)
	j := newJudge(t, "cut 0 a controller answers\n")
	l := j.lease(700*time.Millisecond, 300*time.Millisecond)
	s.renew(l)
	job := newScript(t, "setsid sleep 1000 & echo $! >child; trap '' TERM; sleep 1000")
	stopped := newScript(t, "kill -STOP $$; true")
	ended := newScript(t, "exit 3")
	epilog := newScript(t, "sleep 1000")
	epilog.Key.Step = -2000
	s.launch(job.Launch, stopped.Launch, epilog.Launch)
	s.run(ended.Launch)
	leader, child := s.wait(job.Key, Launched).PID, job.pidFrom(t, "child")
	until(t, "the leader to end", func() bool {
		live := alive(leader)
		if !live && Uptime() < l.Until {
			t.Error("it was killed before the lease ended")
		}
		return !live
	})
	const want = "the node was cut off from the controllers for "
	for _, k := range []Key{job.Key, stopped.Key} {
		if e := s.wait(k, Exited); !e.Unknown || e.Signal != 0 || !strings.HasPrefix(e.Text, want) ||
			!strings.HasSuffix(e.Text, ": a controller answers") {
			t.Errorf("%+v", e)
		}
	}
	until(t, "its child to end", func() bool { return !alive(child) })
	if e := s.get(ended.Key); e.Code != 3 || e.Unknown {
		t.Errorf("what had ended before: %+v", e)
	}
	late := newScript(t, "echo ran >out2")
	if e := s.run(late.Launch); !e.Unknown || e.PID != 0 || !strings.HasPrefix(e.Text, want) {
		t.Errorf("a launch after the end: %+v", e)
	}
	program := newScript(t, "true")
	program.Key.Step = -1000
	if e := s.run(program.Launch); e.Unknown || e.Code != 0 {
		t.Errorf("a prolog after the end: %+v", e)
	}
	if e := s.get(epilog.Key); e.Kind != Launched || !alive(e.PID) {
		t.Errorf("an epilog: %+v", e)
	}
	old := l
	old.Until -= time.Millisecond
	s.renew(old) // one that was under way
	if e := s.run(newScript(t, "true").Launch); !e.Unknown {
		t.Errorf("an old lease counts: %+v", e)
	}
	s.renew(j.lease(time.Hour, time.Second))
	if e := s.run(newScript(t, "exit 4").Launch); e.Unknown || e.Code != 4 {
		t.Errorf("a launch under a new lease: %+v", e)
	}
}

// TestLeaseKept: jobs run on and launches start as long as no controller gives the node up, or if that can't be found
// out; a later verdict replaces an earlier one.
func TestLeaseKept(t *testing.T) {
	for _, says := range []string{"keep no controller answers\n", "", "nonsense\n"} {
		s := start(t)
		j := newJudge(t, says)
		s.renew(j.lease(100*time.Millisecond, 50*time.Millisecond))
		job := waitFor(t, 5)
		s.launch(job.Launch)
		pid := s.wait(job.Key, Launched).PID
		until(t, "it is asked again", func() bool { return j.asked() > 2 })
		if e := s.run(newScript(t, "exit 6").Launch); e.Unknown || e.Code != 6 {
			t.Errorf("%q: a launch: %+v", says, e)
		}
		if !alive(pid) {
			t.Fatalf("%q: it was killed", says)
		}
		at := Uptime() + 300*time.Millisecond
		j.say(fmt.Sprintf("cut %d there is one again\n", at.Nanoseconds()))
		until(t, "it ends", func() bool {
			live := alive(pid)
			if !live && Uptime() < at {
				t.Errorf("%q: it was killed before its time", says)
			}
			return !live
		})
		if e := s.wait(job.Key, Exited); !e.Unknown {
			t.Errorf("%q: %+v", says, e)
		}
	}
}

// TestLeaseRenewed: if the lease is renewed, even at the last moment, no job ends; without a lease no verdict is asked
// for.
func TestLeaseRenewed(t *testing.T) {
	s := start(t)
	j := newJudge(t, "cut 0 somebody answers\n")
	job := waitFor(t, 5)
	s.launch(job.Launch)
	first := j.lease(500*time.Millisecond, 450*time.Millisecond)
	s.renew(first)
	until(t, "it is asked", func() bool { return j.asked() == 1 })
	s.renew(j.lease(time.Hour, time.Second))
	until(t, "the first lease is over", func() bool { return Uptime() > first.Until+200*time.Millisecond })
	s.renew(Lease{})
	job.release(t)
	if e := s.wait(job.Key, Exited); e.Code != 5 || e.Unknown {
		t.Errorf("%+v", e)
	}
	if n := j.asked(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// TestLeaseOutlives: the next gshim keeps the lease, after an upgrade and after a kill.
func TestLeaseOutlives(t *testing.T) {
	dir := newDir(t)
	s := startIn(t, dir)
	j := newJudge(t, "keep for now\n")
	s.renew(j.lease(100*time.Millisecond, 50*time.Millisecond))
	job := waitFor(t, 0)
	s.launch(job.Launch)
	pid := s.wait(job.Key, Launched).PID
	if err := s.c.Upgrade(testContext(t), filepath.Join(binaries, "gshim2")); err != nil {
		t.Fatal(err)
	}
	until(t, "the connection to end", s.gone)
	s = startIn(t, dir)
	n := j.asked()
	until(t, "the new one asks", func() bool { return j.asked() > n+1 })
	killShim(t, s)
	j.say("cut 0 again\n")
	s = startIn(t, dir)
	if e := s.wait(job.Key, Exited); !e.Unknown || !strings.HasSuffix(e.Text, ": again") || alive(pid) {
		t.Errorf("%+v", e)
	}
}

// TestLeaseEndsFrozen: a suspended job is killed too, with either freezer.
func TestLeaseEndsFrozen(t *testing.T) {
	needRoot(t)
	tried := 0
	for _, f := range []struct{ mount, file, frozen string }{
		{"/sys/fs/cgroup/freezer", "freezer.state", "FROZEN"},
		{"/sys/fs/cgroup/unified", "cgroup.freeze", "1"},
		{"/sys/fs/cgroup", "cgroup.freeze", "1"},
	} {
		dir, err := os.MkdirTemp(f.mount, "gshim-lease-")
		if err != nil || !isThere(filepath.Join(dir, "cgroup.procs")) {
			_ = os.Remove(dir) // another kind of mount, or none
			continue
		}
		t.Cleanup(func() { until(t, "the group is empty", func() bool { return os.Remove(dir) == nil }) })
		if !isThere(filepath.Join(dir, f.file)) {
			continue
		}
		tried++
		s := start(t)
		job := newScript(t, "sleep 1000 & sleep 1000")
		if f.file == "freezer.state" {
			job.Cgroup.V1 = []string{dir}
		} else {
			job.Cgroup.V2 = dir
		}
		s.launch(job.Launch)
		s.wait(job.Key, Launched)
		write(t, filepath.Join(dir, f.file), f.frozen)
		s.renew(newJudge(t, "cut 0 now\n").lease(0, 0))
		if e := s.wait(job.Key, Exited); !e.Unknown {
			t.Errorf("%s: %+v", f.mount, e)
		}
		until(t, "all to end", func() bool {
			pids, err := cgroupProcesses(dir)
			return err == nil && len(pids) == 0
		})
	}
	if tried == 0 {
		t.Skip("no freezer here")
	}
}

func isThere(path string) bool { return unix.Access(path, unix.F_OK) == nil }
