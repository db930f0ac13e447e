package cgroup

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestWithoutRoot(t *testing.T) {
	r := open("gbatch/x", Detect(), 1000)
	if r.Mode() != None || r.Can() != (Features{}) || !strings.Contains(r.Why(), "uid 1000") {
		t.Errorf("%v %+v %q", r.Mode(), r.Can(), r.Why())
	}
	g, err := r.Create("job_1", Limits{CPUs: []int{0}, MemBytes: 1, Devices: &Devices{}})
	if err != nil {
		t.Fatal(err)
	}
	if v1, v2 := g.JoinDirs(); len(v1) != 0 || v2 != "" {
		t.Errorf("%v %q", v1, v2)
	}
	ctx := testContext(t)
	for name, err := range map[string]error{"Kill": g.Kill(ctx), "Freeze": g.Freeze(ctx), "Thaw": g.Thaw(ctx)} {
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := g.Procs(); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Procs: %v", err)
	}
	u, err := g.Usage()
	if u != (Usage{}) || err != nil {
		t.Errorf("%+v %v", u, err)
	}
	if err := errors.Join(g.Remove(ctx), r.Close()); err != nil {
		t.Error(err)
	}
	if names, err := r.List(); err != nil || len(names) != 0 {
		t.Errorf("%v %v", names, err)
	}
	if none := open("gbatch/x", Support{Why: "no cgroup file system is mounted"}, 0); none.Mode() != None ||
		!strings.HasSuffix(none.Why(), "no cgroup file system is mounted") {
		t.Errorf("%q", none.Why())
	}
}

func TestNamesAndLimits(t *testing.T) {
	for _, bad := range []string{"", "/abs", "a/../b", ".hidden", "a//b", "a b", "a\n", "job;rm", strings.Repeat("x", 300),
		"a/b/c/d/e/f/g/h/i", "cgroup.procs"} {
		if _, err := Open(bad); err == nil {
			t.Errorf("prefix %q: no error", bad)
		}
	}
	r := open("gbatch/x", Detect(), 1000)
	for _, l := range []Limits{{MemBytes: -1}, {SwapBytes: -2}, {Pids: -1}, {CPUs: []int{}}, {CPUs: []int{-1}},
		{Devices: &Devices{Allow: []Device{{}}, Deny: []Device{{}}}}, {Devices: &Devices{Allow: []Device{{Major: -2}}}}} {
		if _, err := r.Create("job_1", l); err == nil {
			t.Errorf("%+v: no error", l)
		}
	}
	for want, cpus := range map[string][]int{"0": {0}, "0-3,8": {8, 0, 1, 3, 2, 2}, "1,3,5-6": {1, 3, 5, 6}} {
		if got := cpuList(cpus); got != want {
			t.Errorf("cpuList(%v) = %s, want %s", cpus, got, want)
		}
	}
}

func TestDetect(t *testing.T) {
	v1 := "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n" +
		"34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n" +
		"35 31 0:32 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n" +
		"36 31 0:37 / /sys/fs/cgroup/with\\040blank rw - cgroup cgroup rw,memory\n"
	v2 := "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
	for _, c := range []struct {
		name, in string
		mode     Mode
	}{{"v1", v1, Legacy}, {"hybrid", v1 + v2, Hybrid}, {"v2", v2, Unified},
		{"nothing", "garbage\n- - -\n1 2 3 - cgroup\n", None}} {
		s := parseMounts([]byte(c.in))
		s.setMode()
		if s.Mode != c.mode {
			t.Errorf("%s: %v", c.name, s.Mode)
		}
		if c.mode == Legacy && (s.v1["cpuacct"] != "/sys/fs/cgroup/cpu,cpuacct" ||
			s.v1["memory"] != "/sys/fs/cgroup/with blank") {
			t.Errorf("%+v", s.v1)
		}
	}
}

// BenchmarkGroup makes and removes a job's group with the usual limits.
func BenchmarkGroup(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root")
	}
	r, err := Open(testPrefix(b))
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	for name, l := range map[string]Limits{
		"tracking":     {},
		"cores-memory": {CPUs: []int{0}, MemBytes: 1 << 30},
		"with-devices": {CPUs: []int{0}, MemBytes: 1 << 30,
			Devices: &Devices{Deny: []Device{{Major: 195, Minor: 0}, {Major: 195, Minor: 2}}}},
	} {
		b.Run(name, func(b *testing.B) {
			before := cpuTime(b)
			defer func() { b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op") }()
			for b.Loop() {
				g, err := r.Create("job_1", l)
				if err != nil {
					b.Fatal(err)
				}
				if err := g.Remove(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// cpuTime is what this process has used: on a busy machine the figure to compare.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
