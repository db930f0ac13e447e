package noded

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/cgroup"
	"gbatch/noded/shim"
)

// constrained is a cluster with a cgroup.conf.
func constrained(t testing.TB, cgroupConf string) *cluster {
	t.Helper()
	c := confOf(t, "", "", cgroupConf)
	return newCluster(t, func(o *Options) { o.Config = c })
}

// confOf is a configuration of node n1.
func confOf(t testing.TB, node, gresConf, cgroupConf string) *conf.Config {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		conf.MainFile: "ClusterName=test\nSlurmctldHost=c1\nGresTypes=gpu,npu,nic\nNodeName=n1 CPUs=2 RealMemory=4000 " +
			node + "\nPartitionName=main Nodes=n1\n",
		conf.CgroupFile: cgroupConf,
		conf.GresFile:   gresConf,
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	c, problems := conf.Load(dir)
	if c == nil || conf.HasErrors(problems) {
		t.Fatal(problems)
	}
	return c
}

func needGroups(t testing.TB, want func(cgroup.Features) bool) {
	t.Helper()
	root, err := cgroup.Open("gbatch/test-probe")
	must(t, err)
	defer root.Close()
	if !want(root.Can()) {
		t.Skip("needs control groups that can: ", root.Why())
	}
}

func TestJobsStayInTheirCPUs(t *testing.T) {
	needGroups(t, func(f cgroup.Features) bool { return f.CPUs })
	c := constrained(t, "ConstrainCores=yes\n")
	cpus := c.n.inv.CPUs
	if len(cpus) < 2 {
		t.Skip("needs two CPUs")
	}
	l := c.job(1, "grep Cpus_allowed_list /proc/self/status",
		func(l *proto.Launch) { l.Alloc.Nodes[0].CPUs = model.Bits(nil).With(1) })
	c.run(l)
	if out := c.output(l); strings.TrimSpace(strings.TrimPrefix(out, "Cpus_allowed_list:")) != fmt.Sprint(cpus[1]) {
		t.Errorf("CPU 1 of the node is the machine's %d; the job had %q", cpus[1], out)
	}
}

func TestOutOfMemory(t *testing.T) {
	needGroups(t, func(f cgroup.Features) bool { return f.Memory })
	c := constrained(t, "ConstrainRAMSpace=yes\nConstrainSwapSpace=yes\n")
	l := c.job(1, `echo begin; dd if=/dev/zero of=/dev/null bs=200M count=1; echo "rc $?"`,
		func(l *proto.Launch) { l.Alloc.Nodes[0].MemMiB = 40 })
	r := c.run(l)
	if !r.Exit.OOM {
		t.Errorf("%+v", r.Exit)
	}
	if out := c.output(l); !strings.Contains(out,
		"slurmstepd: error: Detected 1 oom_kill event in StepId=1.batch. Some of the step tasks have been OOM Killed.\n") {
		t.Errorf("output %q", out)
	}
	if r.Exit.MaxRSSKB < 30<<10 || r.Exit.MaxRSSKB > 41<<10 {
		t.Errorf("peak memory %d KiB of 40 MiB", r.Exit.MaxRSSKB)
	}
}

func TestUsageAndLeftovers(t *testing.T) {
	needGroups(t, func(f cgroup.Features) bool { return f.Track })
	c := newCluster(t)
	// A process that leaves its session and family is the job's all the same: its CPU time counts, and it ends with it.
	l := c.job(1, `sh -c 'setsid sh -c "echo \$\$ > pid; while :; do :; done" & '
until [ -s pid ]; do sleep 0.01; done
until [ "$(cut -d' ' -f14 /proc/$(cat pid)/stat)" -ge 15 ]; do sleep 0.05; done # 150 ms in user mode
exit 2`)
	r := c.run(l)
	if r.Exit.Code != 2 || r.Exit.UserMS+r.Exit.SysMS < 100 {
		t.Errorf("%+v", r.Exit)
	}
	b, err := os.ReadFile(filepath.Join(c.dir, "pid"))
	must(t, err)
	var pid int
	_, err = fmt.Sscan(string(b), &pid)
	must(t, err)
	waitGone(t, pid)
	if names, err := c.n.groups.root.List(); err != nil || len(names) != 0 {
		t.Errorf("groups left: %v %v", names, err)
	}
}

// The next start ends and removes groups that are in no record.
func TestForgottenGroups(t *testing.T) {
	needGroups(t, func(f cgroup.Features) bool { return f.Track })
	c := newCluster(t)
	if _, err := c.n.groups.root.Create("job_77.1", cgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	c.stop()
	c.ctl.set(func(f *fakeCtld) { f.conn = nil })
	c.start()
	c.ctl.waitNode(2)
	until(t, "the group is gone", func() bool {
		names, err := c.n.groups.root.List()
		return err == nil && len(names) == 0
	})
}

// A step's tasks start with a part of the job's resources, on the node of the job's script and on another one.
func TestStepGroup(t *testing.T) {
	needGroups(t, func(f cgroup.Features) bool { return f.Track && f.CPUs && f.Memory })
	c := constrained(t, "ConstrainCores=yes\nConstrainRAMSpace=yes\n")
	if len(c.n.inv.CPUs) < 2 {
		t.Skip("needs two CPUs")
	}
	g := c.n.groups
	l := c.job(1, "sleep 1000", func(l *proto.Launch) { l.Alloc.Nodes[0].CPUs = model.UpTo(2) })
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
	c.ctl.waitStarted(l)
	key, job := proto.Attempt{Job: 1, Attempt: 1}, &l.Alloc.Nodes[0]
	other := proto.Attempt{Job: 2, Attempt: 1} // its script runs elsewhere
	for _, k := range []proto.Attempt{key, other} {
		for step := range int32(2) {
			share := &model.NodeAlloc{CPUs: model.Bits(nil).With(1), MemMiB: 32}
			in, pin, err := g.createStep(k, step, job, share, false)
			must(t, err)
			if len(in.V1) == 0 && in.V2 == "" || pin != nil {
				t.Errorf("born into %+v, pinned to %v", in, pin)
			}
			again, _, err := g.createStep(k, step, job, share, true)
			if err != nil || !reflect.DeepEqual(again, in) {
				t.Errorf("found again: %+v, %v; was %+v", again, err, in)
			}
			if _, _, err = g.createStep(k, step, job, share, false); err != nil {
				t.Errorf("made anew: %v", err)
			}
			cmd := joined(in, "grep Cpus_allowed_list /proc/self/status")
			out, err := cmd.CombinedOutput()
			if want := fmt.Sprintf("Cpus_allowed_list:\t%d\n", c.n.inv.CPUs[1]); err != nil || string(out) != want {
				t.Errorf("%v: %q, want %q", err, out, want)
			}
		}
		if use, err := g.finishStep(t.Context(), k, 0); err != nil || !use.known {
			t.Errorf("%+v %v", use, err)
		}
		if group, err := g.ofStep(k, 0); group != nil || err != nil {
			t.Errorf("step 0 is still there: %v %v", group, err)
		}
	}
	must(t, g.remove(other)) // and with it step 1
	c.ctl.send(&proto.Orders{Stop: []*proto.Stop{{Job: 1, Attempt: 1, Cause: model.StopCancel, KillWaitS: 1}}})
	if r := c.ctl.waitEnded(l); r.Exit.Signal == 0 {
		t.Errorf("%+v", r.Exit)
	}
}

// joined runs sh -c text in a group.
func joined(in shim.Cgroup, text string) *exec.Cmd {
	enter := ""
	for _, d := range in.V1 {
		enter += "echo $$ > " + d + "/cgroup.procs || exit 99; "
	}
	if in.V2 != "" {
		enter += "echo $$ > " + in.V2 + "/cgroup.procs || exit 99; "
	}
	return exec.Command("/bin/sh", "-c", enter+text)
}

func TestLimits(t *testing.T) {
	g := &groups{cpus: []int{0, 4, 1, 5}, mem: 1000,
		conf: conf.Cgroup{ConstrainCores: true, ConstrainRAMSpace: true, ConstrainSwapSpace: true,
			AllowedRAMSpacePct: 150, MaxRAMPercent: 80, AllowedSwapSpacePct: 10, MaxSwapPercent: 100, MinRAMSpaceMiB: 30,
			MemorySwappiness: -1}}
	const mib = 1 << 20
	for _, tc := range []struct {
		name string
		here model.NodeAlloc
		want cgroup.Limits
	}{
		{"half of the cores", model.NodeAlloc{CPUs: model.UpTo(2), MemMiB: 100},
			cgroup.Limits{CPUs: []int{0, 4}, MemBytes: 150 * mib, SwapBytes: 10 * mib}},
		{"all of the cores: no limit", model.NodeAlloc{CPUs: model.UpTo(4), MemMiB: 100},
			cgroup.Limits{MemBytes: 150 * mib, SwapBytes: 10 * mib}},
		{"cores that are not here", model.NodeAlloc{CPUs: model.UpTo(9).Minus(model.UpTo(4)), MemMiB: 100},
			cgroup.Limits{MemBytes: 150 * mib, SwapBytes: 10 * mib}},
		{"no more than the node's share", model.NodeAlloc{CPUs: model.UpTo(1), MemMiB: 900},
			cgroup.Limits{CPUs: []int{0}, MemBytes: 800 * mib, SwapBytes: 90 * mib}},
		{"at least the minimum", model.NodeAlloc{CPUs: model.UpTo(1), MemMiB: 1},
			cgroup.Limits{CPUs: []int{0}, MemBytes: 30 * mib, SwapBytes: 1 * mib}},
		{"no memory allocated: the node's share", model.NodeAlloc{CPUs: model.UpTo(1)},
			cgroup.Limits{CPUs: []int{0}, MemBytes: 800 * mib, SwapBytes: 1000 * mib}},
	} {
		if got := g.limits(&tc.here); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
	sixty := 60
	for _, tc := range []struct {
		name   string
		change func(*conf.Cgroup)
		want   cgroup.Limits // of 2 of 4 CPUs and 100 MiB
	}{
		{"nothing constrained", func(c *conf.Cgroup) { *c = conf.Cgroup{} }, cgroup.Limits{SwapBytes: cgroup.Unlimited}},
		{"cores only", func(c *conf.Cgroup) { c.ConstrainRAMSpace = false },
			cgroup.Limits{CPUs: []int{0, 4}, SwapBytes: cgroup.Unlimited}},
		{"no swap limit", func(c *conf.Cgroup) { c.ConstrainSwapSpace = false },
			cgroup.Limits{CPUs: []int{0, 4}, MemBytes: 150 * mib, SwapBytes: cgroup.Unlimited}},
		{"swappiness goes with swap", func(c *conf.Cgroup) { c.MemorySwappiness = 60 },
			cgroup.Limits{CPUs: []int{0, 4}, MemBytes: 150 * mib, SwapBytes: 10 * mib, Swappy: &sixty}},
		{"no swap", func(c *conf.Cgroup) { c.AllowedSwapSpacePct = 0 },
			cgroup.Limits{CPUs: []int{0, 4}, MemBytes: 150 * mib}},
		{"swap at most", func(c *conf.Cgroup) { c.AllowedSwapSpacePct, c.MaxSwapPercent = 50, 2 },
			cgroup.Limits{CPUs: []int{0, 4}, MemBytes: 150 * mib, SwapBytes: 20 * mib}},
		{"only swap constrained: one limit for both",
			func(c *conf.Cgroup) { c.AllowedRAMSpacePct, c.RAMFollowsSwap = 100, true },
			cgroup.Limits{CPUs: []int{0, 4}, MemBytes: 110 * mib}},
		{"less than allocated", func(c *conf.Cgroup) { c.AllowedRAMSpacePct = 50.5 },
			cgroup.Limits{CPUs: []int{0, 4}, MemBytes: 51 * mib, SwapBytes: 10 * mib}},
	} {
		one := &groups{cpus: g.cpus, mem: g.mem, conf: g.conf}
		tc.change(&one.conf)
		if got := one.limits(&model.NodeAlloc{CPUs: model.UpTo(2), MemMiB: 100}); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
	g.claims = 64
	if l := g.limits(&model.NodeAlloc{CPUs: model.UpTo(2)}); l.CPUs != nil {
		t.Errorf("a virtual node of 64 CPUs on a machine of 4: %v", l.CPUs)
	}
}
