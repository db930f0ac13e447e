package noded

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gbatch/internal/proto"
	"gbatch/noded/shim"
)

// cpuOf is what a process has used, its ended children not counted.
func cpuOf(t testing.TB, pid int) time.Duration { return cpuFields(t, pid, 11) }

// cpuOfChildren is what the ended children of a process have used.
func cpuOfChildren(t testing.TB, pid int) time.Duration { return cpuFields(t, pid, 13) }

func cpuFields(t testing.TB, pid, at int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var user, sys int64
	_, err = fmt.Sscan(f[at]+" "+f[at+1], &user, &sys)
	must(t, err)
	return time.Duration(user+sys) * 10 * time.Millisecond
}

// BenchmarkJob runs jobs through gnoded and gshim, each a process, from the launch order to the Ended report, in
// batches of 100 as from a busy leader. It also reports the CPU time of both daemons per job, without their children
// (the job itself, /bin/true).
func BenchmarkJob(b *testing.B) {
	d := newDaemon(b)
	conn, _, err := shim.Connect(b.Context(), filepath.Join(d.opts.Spool, "gshim"))
	must(b, err)
	shimPID := conn.Info().PID
	must(b, conn.Close())
	id := 0
	batch := func(n int) {
		o := &proto.Orders{}
		for range n {
			id++
			l := d.job(id, "", func(l *proto.Launch) { l.Spec.StdOut = "/dev/null" })
			l.Script.Data = []byte("#!/bin/true\n")
			o.Launch = append(o.Launch, l)
		}
		d.ctl.send(o)
	}
	ended := func() (n int) { d.ctl.set(func(f *fakeCtld) { n = len(f.ended) }); return n }
	batch(50)
	until(b, "warm", func() bool { return ended() == 50 })
	gnoded, gshim := cpuOf(b, d.cmd.Process.Pid), cpuOf(b, shimPID)
	b.ResetTimer()
	for id < 50+b.N {
		for id-ended() > 200 {
			time.Sleep(time.Millisecond) // as a leader that has no free CPUs
		}
		batch(min(100, 50+b.N-id))
	}
	until(b, "all ended", func() bool { return ended() == id })
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	b.ReportMetric(float64((cpuOf(b, d.cmd.Process.Pid)-gnoded).Microseconds())/float64(b.N), "gnoded-µs/job")
	b.ReportMetric(float64((cpuOf(b, shimPID)-gshim).Microseconds())/float64(b.N), "gshim-µs/job")
}

// BenchmarkLatency is one job at a time: from the order to its first line in the output.
func BenchmarkLatency(b *testing.B) {
	d := newDaemon(b)
	first := filepath.Join(d.dir, "first")
	id := 0
	for b.Loop() {
		id++
		l := d.job(id, "echo > first", func(l *proto.Launch) { l.Spec.StdOut = "/dev/null" })
		d.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
		for !isThere(first) {
			time.Sleep(50 * time.Microsecond) // between two looks
		}
		must(b, os.Remove(first))
		d.ctl.waitEnded(l)
	}
}
