package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const testWait = 20 * time.Second

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testWait)
	t.Cleanup(cancel)
	return ctx
}

func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(testWait)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for: %s", testWait, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// flavours are the ways this host's hierarchies can be used; each test runs with every one that is there.
func flavours() map[string]Support {
	s := Detect()
	out := map[string]Support{s.Mode.String(): s}
	if s.Mode == Hybrid {
		legacy := s
		legacy.v2, legacy.ctl = "", nil
		legacy.setMode()
		out["v1 alone"] = legacy
		bare := s
		bare.v1 = nil
		bare.setMode()
		out["v2 alone, without controllers"] = bare
	}
	return out
}

// forEach runs a test on a fresh root of every flavour.
func forEach(t *testing.T, f func(t *testing.T, r *Root)) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for name, s := range flavours() {
		t.Run(name, func(t *testing.T) {
			r := open(testPrefix(t), s, 0)
			if !r.Can().Track {
				t.Skipf("no usable control groups: %s", r.Why())
			}
			t.Cleanup(func() {
				names, err := r.List()
				if err != nil {
					t.Error(err)
				}
				for _, n := range names {
					g, err := r.Load(n)
					if err != nil {
						t.Error(err)
						continue
					}
					if err := errors.Join(g.Kill(context.Background()), g.Remove(context.Background())); err != nil {
						t.Error(err)
					}
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
				for _, d := range r.dirs() {
					if isDir(d) {
						t.Errorf("%s is left", d)
					}
				}
			})
			f(t, r)
		})
	}
}

func testPrefix(t testing.TB) string {
	return fmt.Sprintf("gbatch-test-%d/%d", os.Getpid(), time.Now().UnixNano())
}

func create(t testing.TB, r *Root, job string, l Limits) *Group {
	t.Helper()
	g, err := r.Create(job, l)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// run starts sh -c text in the group: it enters v1 groups itself and is born into v2.
func run(t testing.TB, g *Group, text string, env ...string) (*exec.Cmd, *strings.Builder) {
	t.Helper()
	v1, v2 := g.JoinDirs()
	var enter strings.Builder
	for _, d := range v1 {
		fmt.Fprintf(&enter, "echo $$ > %s/cgroup.procs || exit 99; ", d)
	}
	cmd := exec.Command("/bin/sh", "-c", enter.String()+text)
	cmd.Env = append(os.Environ(), env...)
	out := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, out
	if v2 != "" {
		fd, err := unix.Open(v2, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "the process to be in its group", func() bool {
		pids, err := g.Procs()
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		return slices.Contains(pids, cmd.Process.Pid) || err == nil && strings.Contains(string(b), ") Z ")
	})
	return cmd, out
}

// output runs to the end and gives what it printed.
func output(t testing.TB, g *Group, text string) string {
	t.Helper()
	cmd, out := run(t, g, text)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.TrimSpace(out.String())
}

func TestKillReachesEverything(t *testing.T) {
	forEach(t, func(t *testing.T, r *Root) {
		g := create(t, r, "job_1", Limits{})
		dir := t.TempDir()
		cmd, _ := run(t, g, "cd "+dir+
			"; (setsid sh -c '(setsid sleep 1000 &) ; echo > ready; sleep 1000' &) ; trap '' TERM; sleep 1000; sleep 1000")
		until(t, "the processes", func() bool {
			pids, err := g.Procs()
			_, serr := os.Stat(filepath.Join(dir, "ready"))
			return err == nil && serr == nil && len(pids) >= 4
		})
		pids, err := g.Procs()
		if err != nil {
			t.Fatal(err)
		}
		if n, err := g.Signal(unix.SIGCONT); err != nil || n < len(pids) { // a shell may be forking another just now
			t.Errorf("Signal reached %d of %d, %v", n, len(pids), err)
		}
		if err := g.Remove(shortContext(t)); err == nil || !strings.Contains(err.Error(), "the first is pid") {
			t.Errorf("Remove with processes: %v", err)
		}
		waited := make(chan error, 1)
		go func() { waited <- cmd.Wait() }() // a zombie stays in a v1 group
		if err := g.Kill(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if err := <-waited; err == nil || err.Error() != "signal: killed" {
			t.Errorf("the leader: %v", err)
		}
		if left, err := g.Procs(); err != nil || len(left) != 0 {
			t.Errorf("left: %v %v", left, err)
		}
		if err := g.Kill(testContext(t)); err != nil {
			t.Errorf("killing nothing: %v", err)
		}
		if err := g.Remove(testContext(t)); err != nil {
			t.Error(err)
		}
		if err := g.Remove(testContext(t)); err != nil {
			t.Errorf("removing twice: %v", err)
		}
		if err := g.Kill(testContext(t)); err != nil {
			t.Errorf("killing what is gone: %v", err)
		}
	})
}

func shortContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestFreezeAndKillFrozen(t *testing.T) {
	forEach(t, func(t *testing.T, r *Root) {
		if !r.Can().Freeze {
			t.Skip("can't freeze here")
		}
		g := create(t, r, "job_1", Limits{})
		file := filepath.Join(t.TempDir(), "count")
		cmd, _ := run(t, g, "i=0; while :; do i=$((i+1)); echo $i > "+file+"; done")
		count := func() string { b, _ := os.ReadFile(file); return string(b) }
		until(t, "it to count", func() bool { return count() != "" })
		if err := g.Freeze(testContext(t)); err != nil {
			t.Fatal(err)
		}
		before := count()
		for range 5 {
			if _, err := g.Usage(); err != nil { // anything that takes a moment
				t.Fatal(err)
			}
		}
		if now := count(); now != before {
			t.Errorf("counted from %s to %s while frozen", before, now)
		}
		if err := g.Thaw(testContext(t)); err != nil {
			t.Fatal(err)
		}
		until(t, "it to go on", func() bool { return count() != before })
		if err := g.Freeze(testContext(t)); err != nil {
			t.Fatal(err)
		}
		waited := make(chan error, 1)
		go func() { waited <- cmd.Wait() }()
		if err := g.Kill(testContext(t)); err != nil {
			t.Fatal(err)
		}
		<-waited
	})
}

// TestKillSurvivesForks: processes that fork as fast as they can are killed.
func TestKillSurvivesForks(t *testing.T) {
	forEach(t, func(t *testing.T, r *Root) {
		g := create(t, r, "job_1", Limits{Pids: 200})
		if !r.Can().Pids {
			t.Skip("no limit on processes here: the test could eat the machine")
		}
		cmd, _ := run(t, g, "f() { while :; do (f &) ; /bin/true; done; }; f & f & wait")
		until(t, "some forks", func() bool { p, err := g.Procs(); return err == nil && len(p) > 20 })
		waited := make(chan error, 1)
		go func() { waited <- cmd.Wait() }()
		if err := g.Kill(testContext(t)); err != nil {
			t.Error(err)
		}
		<-waited
	})
}

func TestCPUs(t *testing.T) {
	forEach(t, func(t *testing.T, r *Root) {
		if !r.Can().CPUs {
			t.Skip("no cpuset here")
		}
		g := create(t, r, "job_1", Limits{CPUs: []int{0}})
		if got := output(t, g, "grep Cpus_allowed_list /proc/self/status | cut -f2; nproc"); got != "0\n1" {
			t.Errorf("got %q", got)
		}
		if dir := g.v1["cpuset"]; dir != "" && r.balanced {
			if b, err := os.ReadFile(filepath.Join(dir, balanceFile)); err != nil || strings.TrimSpace(string(b)) != "0" {
				t.Errorf("%s is %q (%v): the kernel works out scheduling domains for each job", balanceFile, b, err)
			}
		}
		_, err := r.Create("job_2", Limits{CPUs: []int{5000}})
		if err == nil || !strings.Contains(err.Error(), "cpuset.cpus") {
			t.Errorf("CPU 5000: %v", err)
		}
		if names, err := r.List(); err != nil || !slices.Equal(names, []string{"job_1"}) {
			t.Errorf("what could not be made is left: %v %v", names, err)
		}
		all := create(t, r, "job_3", Limits{})
		if got := output(t, all, "nproc"); got == "0" {
			t.Errorf("got %q", got)
		}
	})
}

// TestSharedCpusets: groups with the same CPUs share one v1 cpuset. It outlives them, is corrected when its CPUs have
// changed, is found by the next gnoded, and is removed when it is empty and too many are kept.
func TestSharedCpusets(t *testing.T) {
	forEach(t, func(t *testing.T, r *Root) {
		if r.sets == nil {
			t.Skip("no cpusets to share here")
		}
		r.sets.most = 2
		zero, both := Limits{CPUs: []int{0}}, Limits{CPUs: []int{0, 1}}
		a, b := create(t, r, "job_1", zero), create(t, r, "job_2", zero)
		if a.v1["cpuset"] != b.v1["cpuset"] || filepath.Base(a.v1["cpuset"]) != "cpus_0" {
			t.Fatalf("%q and %q", a.v1["cpuset"], b.v1["cpuset"])
		}
		// A CPU that goes offline and comes back is missing from the sets that had it.
		if err := writeFile(filepath.Join(a.v1["cpuset"], "cpuset.cpus"), "0-1"); err != nil {
			t.Fatal(err)
		}
		if got := output(t, create(t, r, "job_3", zero), "grep Cpus_allowed_list /proc/self/status | cut -f2"); got != "0" {
			t.Errorf("a set that had changed was used as it was: CPUs %s", got)
		}
		step, err := a.Sub("step_0", both)
		if err != nil {
			t.Fatal(err)
		}
		if got := filepath.Base(step.v1["cpuset"]); got != "cpus_0-1" {
			t.Errorf("the step is in %s", got)
		}
		again := open(r.prefix, r.support, 0) // a gnoded after this one
		g, err := again.Reopen("job_1", zero)
		if err != nil || g.v1["cpuset"] != a.v1["cpuset"] {
			t.Errorf("%+v %v", g, err)
		}
		cmd, _ := run(t, a, "sleep 100")
		until(t, "the process to be in the cpuset", func() bool {
			pids, err := readProcs(a.v1["cpuset"])
			return err == nil && len(pids) > 0
		})
		// the third set: of the two before it cpus_0 was not given out for longest, and is in use
		create(t, r, "job_4", Limits{CPUs: []int{1}})
		var left []string
		for name := range r.sets.sets {
			left = append(left, name)
		}
		slices.Sort(left)
		if !slices.Equal(left, []string{"cpus_0", "cpus_1"}) {
			t.Errorf("kept: %v", left)
		}
		if err := a.Kill(testContext(t)); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	})
}

func TestPids(t *testing.T) {
	forEach(t, func(t *testing.T, r *Root) {
		if !r.Can().Pids {
			t.Skip("no pids controller here")
		}
		g := create(t, r, "job_1", Limits{Pids: 5})
		cmd, out := run(t, g, "for i in 1 2 3 4 5 6 7 8; do sleep 1 & done; wait")
		if err := cmd.Wait(); err == nil && !strings.Contains(out.String(), "fork") {
			t.Errorf("eight processes were allowed: %s", out)
		}
	})
}

// TestOutOfMemory: OOM kills and the memory peak are reported.
func TestOutOfMemory(t *testing.T) {
	forEach(t, func(t *testing.T, r *Root) {
		if !r.Can().Memory {
			t.Skip("no memory controller here")
		}
		const limit = 64 << 20
		g := create(t, r, "job_1", Limits{MemBytes: limit})
		cmd, out := run(t, g, "dd if=/dev/zero of=/dev/null bs=200M count=1; echo status $?; exit 0")
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		u, err := g.Usage()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "status 137") || u.OOMKills < 1 || u.MemPeakBytes > limit ||
			u.MemPeakBytes < limit-(4<<20) {
			t.Errorf("%s, %+v", out, u)
		}
		fine := create(t, r, "job_2", Limits{MemBytes: limit, SwapBytes: Unlimited})
		output(t, fine, "dd if=/dev/zero of=/dev/null bs=10M count=1 2> /dev/null")
		if u, err := fine.Usage(); err != nil || u.OOMKills != 0 || u.MemPeakBytes < 9<<20 {
			t.Errorf("%+v %v", u, err)
		}
	})
}

func TestCPUTime(t *testing.T) {
	forEach(t, func(t *testing.T, r *Root) {
		if !r.Can().CPUTime {
			t.Skip("no CPU time here")
		}
		g := create(t, r, "job_1", Limits{})
		output(t, g, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
		u, err := g.Usage()
		if err != nil || u.UserCPU < 30*time.Millisecond || u.UserCPU > time.Minute {
			t.Errorf("%+v %v", u, err)
		}
	})
}

// TestDevices: with real 195:N nodes and no driver, EPERM means denied and ENXIO allowed.
func TestDevices(t *testing.T) {
	forEach(t, func(t *testing.T, r *Root) {
		if !r.Can().Devices {
			t.Skip("no device control here")
		}
		dir := t.TempDir()
		for i := range 3 {
			if err := unix.Mknod(filepath.Join(dir, "nvidia"+strconv.Itoa(i)), unix.S_IFCHR|0o666,
				int(unix.Mkdev(195, uint32(i)))); err != nil {
				t.Skipf("can't make device files: %v", err)
			}
		}
		probe := "for f in " + dir + "/nvidia0 " + dir + "/nvidia1 " + dir + "/nvidia2 /dev/null /dev/zero; do " +
			"if e=$( { head -c 1 $f; } 2>&1 >/dev/null ); then echo ok; else case \"$e\" in *permitted*) echo denied;; *) " +
			"echo open;; esac; fi; done"
		for _, c := range []struct {
			name string
			d    *Devices
			want string
		}{
			{"no control", nil, "open open open ok ok"},
			{"all but two", &Devices{Deny: []Device{{Major: 195, Minor: 0}, {Major: 195, Minor: 2}}},
				"denied open denied ok ok"},
			{"all but a range", &Devices{Deny: []Device{{Major: 195, Minor: Any}}}, "denied denied denied ok ok"},
			{"only one and the base", &Devices{Allow: append(BaseDevices(), Device{Major: 195, Minor: 1})},
				"denied open denied ok ok"},
			{"only null", &Devices{Allow: []Device{{Major: 1, Minor: 3}}}, "denied denied denied ok denied"},
			{"all", &Devices{Deny: []Device{}}, "open open open ok ok"},
		} {
			t.Run(c.name, func(t *testing.T) {
				g := create(t, r, "job_1", Limits{Devices: c.d})
				if got := strings.Join(strings.Fields(output(t, g, probe)), " "); got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
				if err := g.Remove(testContext(t)); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// TestFoundAgain: after a restart a group is found by name and works.
func TestFoundAgain(t *testing.T) {
	forEach(t, func(t *testing.T, r *Root) {
		l := Limits{MemBytes: 1 << 30, Pids: 100}
		g := create(t, r, "job_7", l)
		create(t, r, "job_8", Limits{})
		cmd, _ := run(t, g, "exec sleep 1000")
		again := open(r.prefix, r.support, 0)
		names, err := again.List()
		if err != nil || !slices.Equal(names, []string{"job_7", "job_8"}) {
			t.Fatalf("%v %v", names, err)
		}
		found, err := again.Load("job_7")
		if err != nil {
			t.Fatal(err)
		}
		v1, v2 := g.JoinDirs()
		fv1, fv2 := found.JoinDirs()
		if !slices.Equal(v1, fv1) || v2 != fv2 {
			t.Errorf("joins %v %s, joined %v %s", fv1, fv2, v1, v2)
		}
		if _, err := again.Create("job_7", l); !errors.Is(err, fs.ErrExist) {
			t.Errorf("Create: %v", err)
		}
		if pids, err := found.Procs(); err != nil || !slices.Equal(pids, []int{cmd.Process.Pid}) {
			t.Errorf("%v %v", pids, err)
		}
		waited := make(chan error, 1)
		go func() { waited <- cmd.Wait() }()
		if err := errors.Join(found.Kill(testContext(t)), found.Remove(testContext(t))); err != nil {
			t.Error(err)
		}
		<-waited
		if _, err := again.Load("job_7"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Load: %v", err)
		}
		if _, err := g.Usage(); r.Can().CPUTime && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Usage: %v", err)
		}
	})
}

func TestSub(t *testing.T) {
	forEach(t, func(t *testing.T, r *Root) {
		job := create(t, r, "job_1", Limits{MemBytes: 1 << 30})
		step, err := job.Sub("step_0", Limits{MemBytes: 512 << 20})
		if err != nil {
			t.Fatal(err)
		}
		cmd, _ := run(t, step, "exec sleep 1000")
		if pids, err := job.Procs(); err != nil || !slices.Equal(pids, []int{cmd.Process.Pid}) {
			t.Errorf("%v %v", pids, err)
		}
		found, err := r.Load("job_1/step_0")
		if err != nil {
			t.Fatal(err)
		}
		if pids, err := found.Procs(); err != nil || len(pids) != 1 {
			t.Errorf("%v %v", pids, err)
		}
		waited := make(chan error, 1)
		go func() { waited <- cmd.Wait() }()
		if err := job.Kill(testContext(t)); err != nil {
			t.Error(err)
		}
		<-waited
		if err := job.Remove(testContext(t)); err != nil {
			t.Error(err)
		}
	})
}

// TestStepsBesideTheScript: a step has a part of its job's cores and usage of its own, while the job's script runs.
func TestStepsBesideTheScript(t *testing.T) {
	forEach(t, func(t *testing.T, r *Root) {
		job := create(t, r, "job_1", Limits{MemBytes: 1 << 30})
		script, _ := run(t, job, "while :; do sleep 0.01; done")
		l := Limits{MemBytes: 512 << 20}
		if r.Can().CPUs {
			l.CPUs = []int{0} // the job has all
		}
		for _, name := range []string{"step_0", "step_1"} {
			step, err := job.Sub(name, l)
			if err != nil {
				t.Fatal(err)
			}
			want := "0"
			if l.CPUs == nil {
				want = output(t, job, "grep Cpus_allowed_list /proc/self/status | cut -f2")
			}
			if got := output(t, step, "grep Cpus_allowed_list /proc/self/status | cut -f2; dd if=/dev/zero of=/dev/null "+
				"bs=10M count=1 2> /dev/null"); got != want {
				t.Errorf("%s runs on %q, want %q", name, got, want)
			}
			if u, err := step.Usage(); err != nil || r.Can().Memory && (u.MemPeakBytes < 5<<20 || u.MemPeakBytes > 512<<20) {
				t.Errorf("%s: %+v %v", name, u, err)
			}
		}
		if _, err := job.Sub("step_0", l); !errors.Is(err, fs.ErrExist) {
			t.Errorf("made twice: %v", err)
		}
		if pids, err := job.Procs(); err != nil || !slices.Contains(pids, script.Process.Pid) {
			t.Errorf("the script %d is not among %v, %v", script.Process.Pid, pids, err)
		}
		found, err := r.Load("job_1/step_0")
		if err != nil {
			t.Fatal(err)
		}
		if err := found.Remove(testContext(t)); err != nil {
			t.Error(err)
		}
		waited := make(chan error, 1)
		go func() { waited <- script.Wait() }()
		if err := job.Kill(testContext(t)); err != nil {
			t.Error(err)
		}
		<-waited
		if err := job.Remove(testContext(t)); err != nil {
			t.Error(err)
		}
		if names, err := r.List(); err != nil || len(names) != 0 {
			t.Errorf("left: %v %v", names, err)
		}
	})
}

// TestTwoClusters: two prefixes on one machine don't interfere.
func TestTwoClusters(t *testing.T) {
	forEach(t, func(t *testing.T, r *Root) {
		other := open(r.prefix+"-other", r.support, 0)
		a, b := create(t, r, "job_1", Limits{}), create(t, other, "job_1", Limits{})
		if err := errors.Join(b.Remove(testContext(t)), other.Close()); err != nil {
			t.Error(err)
		}
		if _, err := a.Procs(); err != nil {
			t.Error(err)
		}
		if names, err := r.List(); err != nil || len(names) != 1 {
			t.Errorf("%v %v", names, err)
		}
	})
}
