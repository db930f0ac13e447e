package up

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gbatch/internal/model"
)

// readonly_test.go makes disks turn read-only under daemons, as ext4 does after an error (errors=remount-ro). There is
// no way back but to end the daemon and to mount the disk anew.

// breaks makes a file system find an error.
func (a *apart) breaks(dir string) {
	a.t.Helper()
	out, err := exec.Command("findmnt", "-n", "-o", "SOURCE", dir).Output()
	if err != nil {
		a.t.Fatal(err)
	}
	mustRun(a.t, "mount", "-o", "remount,errors=remount-ro", dir)
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(strings.TrimSpace(string(out))), "trigger_fs_error")
	if err := os.WriteFile(trigger, []byte("1"), 0); err != nil {
		a.t.Skipf("skipped: this kernel makes no errors in file systems: %v", err)
	}
}

// TestFullDiskOfNode: a node whose disk is full keeps its jobs and gives others back, and needs nobody when there is
// room again.
func TestFullDiskOfNode(t *testing.T) {
	t.Parallel()
	a := mustUpApart(t, Options{Dir: filepath.Join(t.TempDir(), "full"), Nodes: 2, CPUs: 8, MemMiB: 1000}, "node-n1")
	keepOnFailure(t, a.Dir)
	setQuiet(t, a.Cluster)
	disk := layout(a.Dir).at("state", "node-n1")
	onNode := func(sp *model.Spec) { sp.ReqNodes = []string{"n1"} }
	over := filepath.Join(t.TempDir(), "over")
	ends := submit(t, a.Cluster, "until test -e "+over+"; do sleep 0.1; done\nexit 3\n", onNode)
	untilState(t, a.Cluster, ends, model.Running)
	a.fill(disk)
	wait := []model.JobID{}
	for range 5 { // more than LaunchDrain
		wait = append(wait, submit(t, a.Cluster, "true\n", onNode))
	}
	until(t, "the node is out of service for its disk", func() bool {
		return strings.Contains(node(t, a.Cluster, "n1").Reason, "space")
	})
	if err := os.WriteFile(over, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	untilState(t, a.Cluster, ends, model.Failed)
	a.clear(disk)
	for _, id := range wait {
		untilState(t, a.Cluster, id, model.Completed)
	}
	if n := node(t, a.Cluster, "n1"); n.Reason != "" || len(n.Strikes) > 0 {
		t.Errorf("the node's reason is %q, with strikes of %v", n.Reason, n.Strikes)
	}
	if j := job(t, a.Cluster, ends); j.End.Exit.Code != 3 {
		t.Errorf("the job that ran ended with %+v", j.End.Exit)
	}
}

// mends mounts it anew.
func (a *apart) mends(dir string) {
	a.t.Helper()
	mustRun(a.t, "umount", dir)
	mustRun(a.t, "mount", "-o", "loop", dir+".image", dir)
}

// TestReadOnlyDisks: the leader's disk, gdbd's and a node's turn read-only, one after the other. Another controller
// leads, records wait, and the node's jobs go on there and end, while others wait for it. Each daemon says what is
// wrong, and when the disks are mended nothing is missing.
func TestReadOnlyDisks(t *testing.T) {
	t.Parallel()
	a := mustUpApart(t, Options{Dir: filepath.Join(t.TempDir(), "readonly"), Nodes: 2, CPUs: 4, MemMiB: 1000,
		Controllers: 3}, "dbd", "node-n1", "node-n2")
	s := &stage{t: t, c: a.Cluster, a: a, bin: a.bin}
	keepOnFailure(t, a.Dir)
	ready(t, a.Cluster)
	setQuiet(t, a.Cluster)
	at := func(dir string) string { return layout(a.Dir).at("state", dir) }
	beats := filepath.Join(t.TempDir(), "beats")
	long := submit(t, a.Cluster, "while echo $SLURMD_NODENAME >> "+beats+"; do sleep 0.1; done\n", nil)
	untilState(t, a.Cluster, long, model.Running)
	says := func(name, words string) {
		t.Helper()
		until(t, name+" says: "+words, func() bool { return strings.Contains(lines(t, s.log(name)), words) })
	}

	name, leader := leaderOf(t, a.Cluster)
	a.breaks(a.disk(name))
	first := submit(t, a.Cluster, "true\n", nil)
	untilState(t, a.Cluster, first, model.Completed)
	says(name, "its disk has turned read-only; see the kernel's log, stop gctld, mend and mount the disk")
	until(t, "the alert disk_broken", func() bool { return s.alerts("disk_broken") > 0 })

	gdbd := daemonOf(t, a.Dir, RoleAccounting, dbdName)
	a.breaks(at("dbd"))
	second := submit(t, a.Cluster, "true\n", nil)
	untilState(t, a.Cluster, second, model.Completed)
	s.ended(dbdName, gdbd)
	says(dbdName, "look after the disk and start gdbd again")

	where := job(t, a.Cluster, long).Run.Alloc.Nodes[0].Node
	onNode := func(sp *model.Spec) { sp.ReqNodes = []string{where} }
	d := daemon(t, a.Dir, func(d *Daemon) bool { return d.Name == where })
	gnoded := daemonOf(t, a.Dir, RoleNode, where)
	over := filepath.Join(t.TempDir(), "over")
	ends := submit(t, a.Cluster, "until test -e "+over+"; do sleep 0.1; done\nexit 3\n", onNode)
	untilState(t, a.Cluster, ends, model.Running)
	a.breaks(at("node-" + where))
	third := submit(t, a.Cluster, "true\n", onNode)
	until(t, "the node is drained with its reason", func() bool {
		n := node(t, a.Cluster, where)
		return strings.Contains(n.Reason, "read-only")
	})
	says(where, "no job starts here until the spool can be written")
	if err := os.WriteFile(over, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	untilState(t, a.Cluster, ends, model.Failed)
	had := strings.Count(lines(t, beats), where)
	until(t, "the job outlives SlurmdTimeout there", func() bool {
		return strings.Count(lines(t, beats), where) > had+10*2*8
	})
	if j := job(t, a.Cluster, long); j.State != model.Running || j.Restarts != 0 {
		t.Errorf("the node's job is %s after %d restarts", j.State, j.Restarts)
	}
	cancel(t, a.Cluster, long)
	untilState(t, a.Cluster, long, model.Cancelled)
	s.send(gnoded, syscall.SIGTERM)
	s.ended(where, gnoded)

	s.send(leader, syscall.SIGTERM)
	s.ended(name, leader)
	if shim, ok := processOf(d.Shim); ok {
		s.send(shim, syscall.SIGKILL)
		gone([]process{shim}, nodePatience)
	}
	for _, dir := range []string{"ctld-" + name, "dbd", "node-" + where} {
		a.mends(at(dir))
	}
	s.up()
	(&soak{stage: s}).healthy()
	for id, state := range map[model.JobID]model.JobState{first: model.Completed, second: model.Completed,
		third: model.Completed, ends: model.Failed, long: model.Cancelled} {
		until(t, "the jobs are on record", func() bool {
			r := lastRecords(t, a.Cluster)[id]
			return r != nil && r.State == state
		})
	}
	if list := pingOf(t, a.Cluster); len(list.DbdNotes) > 0 {
		t.Errorf("%q", list.DbdNotes)
	}
}
