package noded

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gbatch/internal/proto"
	"gbatch/noded/shim"
)

// launchesAtOnce is how many one-core jobs BenchmarkLaunch runs.
const launchesAtOnce = 1000

// BenchmarkLaunch launches 1,000 one-core `true` jobs on one node, through gnoded and gshim as processes of their own,
// each job with its control group and limits, from the launch orders to the last Ended report; and measures in the same
// run how fast this machine forks and reaps /bin/true with nothing around it, before and after. Reported: launches and
// forks a second, their ratio, how idle the machine was, CPU per launch (of each daemon without children, of the
// jobs, of the test that plays the controller), and both daemons' memory with 100 jobs running.
func BenchmarkLaunch(b *testing.B) {
	d := newDaemon(b)
	conn, _, err := shim.Connect(b.Context(), filepath.Join(d.opts.Spool, "gshim"))
	must(b, err)
	shimPID := conn.Info().PID
	must(b, conn.Close())
	id := 0
	orders := func(n int, script string) *proto.Orders {
		o := &proto.Orders{}
		for range n {
			id++
			l := d.job(id, "", func(l *proto.Launch) { l.Spec.StdOut = "/dev/null" })
			l.Script.Data = []byte(script)
			o.Launch = append(o.Launch, l)
		}
		return o
	}
	ended := func() (n int) { d.ctl.set(func(f *fakeCtld) { n = len(f.ended) }); return n }
	d.ctl.send(orders(50, "#!/bin/true\n"))
	until(b, "warm", func() bool { return ended() == 50 })

	cpu := func() [4]time.Duration {
		return [4]time.Duration{cpuOf(b, d.cmd.Process.Pid), cpuOf(b, shimPID), cpuOfChildren(b, shimPID),
			cpuOf(b, os.Getpid())}
	}
	var took, forks, idle time.Duration
	var used [4]time.Duration
	for b.Loop() {
		forks += forkTime(b)
		before, idleBefore, began, first := cpu(), idleTime(b), time.Now(), id
		for id < first+launchesAtOnce {
			d.ctl.send(orders(100, "#!/bin/true\n"))
		}
		until(b, "all ended", func() bool { return ended() == id })
		took += time.Since(began)
		idle += idleTime(b) - idleBefore
		for i, now := range cpu() {
			used[i] += now - before[i]
		}
		forks += forkTime(b)
	}
	launches := float64(b.N * launchesAtOnce)
	rate, forkRate := launches/took.Seconds(), 2*float64(b.N)*forksAtOnce/forks.Seconds()
	b.ReportMetric(rate, "launches/s")
	b.ReportMetric(forkRate, "forks/s")
	b.ReportMetric(100*rate/forkRate, "%-of-forks")
	b.ReportMetric(100*idle.Seconds()/took.Seconds()/float64(runtime.NumCPU()), "%-idle")
	for i, unit := range []string{"gnoded-µs", "gshim-µs", "jobs-µs", "controller-µs"} {
		b.ReportMetric(float64(used[i].Microseconds())/launches, unit)
	}

	o := orders(100, "#!/bin/sh\nexec sleep 1000\n")
	d.ctl.send(o)
	until(b, "100 jobs run", func() bool {
		return d.ctl.is(func(f *fakeCtld) bool {
			for _, l := range o.Launch {
				if f.started[proto.Attempt{Job: l.Job, Attempt: l.Attempt}] == nil {
					return false
				}
			}
			return true
		})
	})
	b.ReportMetric(rssMiB(b, d.cmd.Process.Pid), "gnoded-MiB")
	b.ReportMetric(rssMiB(b, shimPID), "gshim-MiB")
	b.ReportMetric(0, "ns/op")
	stop := &proto.Orders{}
	for _, l := range o.Launch {
		stop.Stop = append(stop.Stop, &proto.Stop{Job: l.Job, Attempt: l.Attempt, KillWaitS: 1})
	}
	d.ctl.send(stop)
	until(b, "all ended", func() bool { return ended() == id })
}

// forksAtOnce is how many times forkTime forks.
const forksAtOnce = 600

// forkTime is how long this machine takes to fork, execute and reap /bin/true so often, from as many threads as it
// has CPUs.
func forkTime(b *testing.B) time.Duration {
	b.Helper()
	var wg sync.WaitGroup
	began := time.Now()
	workers := runtime.NumCPU()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	must(b, err)
	defer null.Close()
	for range workers {
		wg.Go(func() {
			for range forksAtOnce / workers {
				pid, err := syscall.ForkExec("/bin/true", []string{"true"},
					&syscall.ProcAttr{Files: []uintptr{null.Fd(), null.Fd(), null.Fd()},
						Sys: &syscall.SysProcAttr{Setsid: true}})
				if err != nil {
					b.Error(err)
					return
				}
				var ws syscall.WaitStatus
				if _, err := syscall.Wait4(pid, &ws, 0, nil); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

// idleTime is how long this machine's CPUs have had nothing to do, all together, since it was started.
func idleTime(b *testing.B) time.Duration {
	b.Helper()
	stat, err := os.ReadFile("/proc/stat")
	must(b, err)
	f := strings.Fields(string(stat))
	if len(f) < 6 {
		b.Fatalf("/proc/stat begins with %q", f)
	}
	var ticks time.Duration
	for _, field := range f[4:6] { // idle, and idle while a disk works
		var n int64
		_, err := fmt.Sscan(field, &n)
		must(b, err)
		ticks += time.Duration(n)
	}
	return ticks * (time.Second / 100)
}

// rssMiB is the memory of a process that is in RAM and is its own, or shared with nobody else.
func rssMiB(b *testing.B, pid int) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(b, err)
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var kib float64
			_, err := fmt.Sscan(v, &kib)
			must(b, err)
			return kib / 1024
		}
	}
	b.Fatal("no VmRSS")
	return 0
}
