package up

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCloud: nodes of a cloud are off in a cluster that is up, a job powers one up, and power down ends its daemon.
func TestCloud(t *testing.T) {
	work := t.TempDir()
	o := Options{Dir: filepath.Join(work, "c"), Cloud: 2, CPUs: 1, MemMiB: 500}
	c, out := mustUp(t, o)
	out.has(t, "powered down: c[1-2]")
	node := func(name string) *Daemon {
		t.Helper()
		st := status(t, c.Dir)
		if !st.AllRun() || !st.Ready {
			t.Errorf("nodes that are off count as missing: %+v", st)
		}
		i := slices.IndexFunc(st.Daemons, func(d Daemon) bool { return d.Name == name })
		return &st.Daemons[i]
	}
	if d := node("c1"); d.Running || !d.Off {
		t.Errorf("a new node of the cloud: %+v", d)
	}
	run := typed(t, c, work, "gsubmit", "gcontrol", "ginfo")
	run("gsubmit -w c1 --wait -o ran --wrap uptime")
	if d := node("c1"); !d.Running || d.Off || d.Shim == 0 {
		t.Errorf("a node that a job has powered up: %+v", d)
	}
	text, err := os.ReadFile(filepath.Join(work, "ran"))
	if err != nil || !strings.Contains(string(text), "load average") {
		t.Errorf("the job printed %q, %v", text, err)
	}
	run("gcontrol power down c1")
	until(t, "c1 is off", func() bool { // meanwhile its gshim is still there
		all := status(t, c.Dir).Daemons
		i := slices.IndexFunc(all, func(d Daemon) bool { return d.Name == "c1" })
		return all[i].Off && all[i].Shim == 0
	})
	node("c1")
	until(t, "c1 is shown so", func() bool { return strings.TrimSpace(run("ginfo -h -n c1 -o %t")) == "idle~" })

	// By hand, and again: what is off stays off, what is on comes back.
	if s := run("gbatch power on c2"); !strings.Contains(s, "c2 is on, process") {
		t.Errorf("power on said %q", s)
	}
	if s := run("gbatch power on c2"); s != "" {
		t.Errorf("power on of a node that is on said %q", s)
	}
	if s := run("gbatch power up c2"); !strings.Contains(s, "write power on NODES or power off NODES") {
		t.Errorf("power up said %q", s)
	}
	if s := run("gbatch power off c[1-3]"); !strings.Contains(s, `has no node "c3"`) {
		t.Errorf("power of a node that is not there said %q", s)
	}
	down(t, c.Dir)
	_, out = mustUp(t, Options{Dir: o.Dir})
	out.has(t, "powered down: c1\n", "started 1 node daemon")
}

// TestCloudOfFile: programs that power a site's machines are not called by its configuration's trial.
func TestCloudOfFile(t *testing.T) {
	work := t.TempDir()
	text := "ClusterName=x\nSlurmctldHost=a\nSuspendProgram=/bin/false\nResumeProgram=/bin/false\nSuspendTime=1\n" +
		"NodeName=m1 CPUs=1\nNodeName=c[1-2] CPUs=1 State=CLOUD\nPartitionName=p Nodes=ALL Default=YES\n"
	file := filepath.Join(work, "slurm.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, out := mustUp(t, Options{Dir: filepath.Join(work, "c"), Conf: file})
	out.has(t, "powered down: c[1-2]")
	until(t, "the idle node is off", func() bool {
		st := status(t, c.Dir)
		return slices.ContainsFunc(st.Daemons, func(d Daemon) bool { return d.Name == "m1" && d.Off })
	})
	run := typed(t, c, work, "gsubmit")
	run("gsubmit -w c2 --wait -o ran --wrap uptime")
	if _, err := os.Stat(filepath.Join(work, "ran")); err != nil {
		t.Error(err)
	}
}
