//go:build linux && (amd64 || arm64)

package shim

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// BenchmarkLaunch runs /bin/true as another user, in its own session and with an output file, through a real gshim with
// its journal: from the order to the acknowledged end. Reported: launches/s, CPU of gshim and its children per launch
// (shim-ms), of this client per launch (client-ms).
func BenchmarkLaunch(b *testing.B) {
	needRoot(b)
	for _, c := range []struct {
		name    string
		cgroups func(b *testing.B, i int) (Cgroup, func())
	}{
		{"bare", func(*testing.B, int) (Cgroup, func()) { return Cgroup{}, func() {} }},
		{"into-existing-cgroups", existingCgroups(b)},
		{"with-cgroups-made-and-removed", ownCgroups},
	} {
		b.Run(c.name, func(b *testing.B) { benchLaunch(b, c.cgroups) })
	}
}

const benchWindow = 32 // launches in flight, about what a busy node has

func benchLaunch(b *testing.B, cgroups func(b *testing.B, i int) (Cgroup, func())) {
	dir := newDir(b)
	c, _, err := Start(testContext(b), Options{Dir: dir, Binary: filepath.Join(binaries, "gshim")})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	work := workDir(b)
	remove := map[Key]func(){}
	launch := func(i int) {
		l := &Launch{Key: Key{JobID: uint32(i + 1)}, Argv: []string{"/bin/true"}, Env: benchEnv(), Dir: work, UID: nobody,
			GID:    nobody,
			Groups: []uint32{nobody}, Umask: 0o022, Stdout: filepath.Join(work, strconv.Itoa(i%benchWindow)),
			Stderr: filepath.Join(work, strconv.Itoa(i%benchWindow))}
		l.Cgroup, remove[l.Key] = cgroups(b, i)
		if err := c.Launch(l); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	began, shim0, own0 := time.Now(), shimCPU(b, c.Info().PID), ownCPU()
	next, ended := 0, 0
	for ; next < min(benchWindow, b.N); next++ {
		launch(next)
	}
	for ended < b.N {
		var acks []Key
		for _, e := range <-c.Events() {
			if e.Kind == LaunchFailed || e.Kind == Exited && e.Code != 0 {
				b.Fatalf("%+v", e)
			}
			if e.Kind == Exited {
				acks = append(acks, e.Key)
			}
		}
		if len(acks) == 0 {
			continue
		}
		if err := c.Ack(testContext(b), acks...); err != nil {
			b.Fatal(err)
		}
		for _, k := range acks {
			remove[k]()
			delete(remove, k)
			ended++
			if next < b.N {
				launch(next)
				next++
			}
		}
	}
	n := float64(b.N)
	b.ReportMetric(n/time.Since(began).Seconds(), "launches/s")
	b.ReportMetric((shimCPU(b, c.Info().PID)-shim0)/n, "shim-ms")
	b.ReportMetric((ownCPU()-own0)/n, "client-ms")
	b.ReportMetric(0, "ns/op")
}

func benchEnv() []string {
	env := []string{"PATH=/usr/bin:/bin", "HOME=/tmp", "USER=nobody"}
	for i := range 40 {
		env = append(env, fmt.Sprintf("SLURM_SOMETHING_%d=value-%d", i, i))
	}
	return env
}

// shimCPU is the CPU time of a process and its reaped children, in ms.
func shimCPU(b *testing.B, pid int) float64 {
	s, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	f := strings.Fields(string(s[strings.LastIndexByte(string(s), ')')+1:]))
	sum := 0
	for _, v := range f[11:15] {
		n, err := strconv.Atoi(v)
		if err != nil {
			b.Fatal(err)
		}
		sum += n
	}
	return float64(sum) * 10 // USER_HZ is 100 on every Linux
}

func ownCPU() float64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e6
}

// BenchmarkFloor measures the least time that any daemons need: two threads make the two control groups that a job has
// on a host with v1's memory controller, fork a script into them with gshim's own fork, wait for it, and remove them.
// No limits, no usage, no journal, no order and no report. It also forks plain /bin/true, with which noded's
// BenchmarkLaunch compares.
func BenchmarkFloor(b *testing.B) {
	needRoot(b)
	id := &identity{uid: os.Geteuid(), gid: os.Getegid(), root: true, clone3: hasClone3(), reasons: errnoTexts(),
		reset: ignoredSignals(), limits: limitRules{have: ownLimit, mayRaise: mayRaiseLimits(), nrOpen: defaultNrOpen,
			openFiles: inheritedOpenFiles()}}
	work := workDir(b)
	script := filepath.Join(work, "script")
	if err := os.WriteFile(script, []byte("#!/bin/true\n"), 0o755); err != nil {
		b.Fatal(err)
	}
	const each = 300
	both := func(run func(worker, i int) error) time.Duration {
		began := time.Now()
		var wg sync.WaitGroup
		for w := range runtime.NumCPU() {
			wg.Go(func() {
				for i := range each {
					if err := run(w, i); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		return time.Since(began)
	}
	plain := func(_, _ int) error {
		pid, err := syscall.ForkExec("/bin/true", []string{"true"},
			&syscall.ProcAttr{Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true}})
		if err != nil {
			return err
		}
		_, err = syscall.Wait4(pid, nil, 0, nil)
		return err
	}
	launch := func(w, i int) error {
		l := &Launch{Key: Key{JobID: uint32(w*each + i + 1)}, Path: script, Argv: []string{script}, Env: benchEnv(),
			Dir: work, UID: nobody, GID: nobody,
			Groups: []uint32{nobody}, Umask: 0o022, Stdout: os.DevNull, Stderr: os.DevNull}
		l.Cgroup = dirsIn(b, fmt.Sprintf("gshim-floor-%d-%d-%d", os.Getpid(), w, i), "memory")
		p, lerr := id.prepare(l)
		if lerr != nil {
			return fmt.Errorf("prepare or fork: %+v", lerr)
		}
		pid, lerr := p.forkExec(l)
		p.close()
		if lerr != nil {
			return fmt.Errorf("prepare or fork: %+v", lerr)
		}
		_, err := syscall.Wait4(pid, nil, 0, nil)
		l.Cgroup.remove(b)
		return err
	}
	var forks, launches time.Duration
	for b.Loop() {
		forks += both(plain)
		launches += both(launch)
		forks += both(plain)
	}
	n := float64(b.N * each * runtime.NumCPU())
	b.ReportMetric(n/launches.Seconds(), "launches/s")
	b.ReportMetric(2*n/forks.Seconds(), "forks/s")
	b.ReportMetric(100*forks.Seconds()/2/launches.Seconds(), "%-of-forks")
	b.ReportMetric(0, "ns/op")
}

// benchDirs makes one directory in the v1 hierarchies memory, cpuset and pids and in cgroup2, as far as they are there.
func benchDirs(b testing.TB, name string) Cgroup {
	return dirsIn(b, name, "memory", "cpuset", "pids")
}

// dirsIn makes a directory in these v1 hierarchies and in cgroup2.
func dirsIn(b testing.TB, name string, v1 ...string) Cgroup {
	var c Cgroup
	for _, h := range v1 {
		root := filepath.Join("/sys/fs/cgroup", h)
		if _, err := os.Stat(filepath.Join(root, "tasks")); err != nil {
			continue
		}
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		if h == "cpuset" {
			for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
				v, err := os.ReadFile(filepath.Join(root, f))
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, f), v, 0)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		}
		c.V1 = append(c.V1, dir)
	}
	for _, root := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.subtree_control")); err == nil {
			c.V2 = filepath.Join(root, name)
			if err := os.Mkdir(c.V2, 0o755); err != nil {
				b.Fatal(err)
			}
			break
		}
	}
	return c
}

func (c Cgroup) remove(b testing.TB) {
	for _, d := range append(c.V1[:len(c.V1):len(c.V1)], c.V2) {
		if d != "" {
			until(b, "remove "+d, func() bool { return os.Remove(d) == nil })
		}
	}
}

func existingCgroups(b *testing.B) func(b *testing.B, i int) (Cgroup, func()) {
	var c Cgroup
	b.Cleanup(func() { c.remove(b) })
	return func(_ *testing.B, i int) (Cgroup, func()) {
		if c.empty() {
			c = benchDirs(b, "gshim-bench-"+strconv.Itoa(os.Getpid()))
		}
		return c, func() {}
	}
}

func ownCgroups(b *testing.B, i int) (Cgroup, func()) {
	c := benchDirs(b, fmt.Sprintf("gshim-bench-%d-%d", os.Getpid(), i))
	return c, func() { c.remove(b) }
}
