package noded

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/blob"
	"gbatch/internal/proto"
)

// TestFirstClearingIsQuick: the first try to clear a step away, which other launches and ends wait for, doesn't wait
// for processes that SIGKILL does not end.
func TestFirstClearingIsQuick(t *testing.T) {
	freezer := filepath.Join("/sys/fs/cgroup/freezer", "gbatch-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(freezer, 0o755); errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) ||
		errors.Is(err, unix.EROFS) {
		t.Skip("needs root and the freezer of cgroup v1, to make processes that do not die")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { until(t, "the freezer is gone", func() bool { return os.Remove(freezer) == nil }) })
	set := func(file, text string) {
		if err := os.WriteFile(filepath.Join(freezer, file), []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
	c := newCluster(t)
	if !c.n.groups.root.Can().Track {
		t.Skip("needs control groups that follow processes")
	}
	l := c.job(1, "sleep 1000")
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
	c.ctl.waitStarted(l)
	cmd := c.askStep(l, "/bin/sh", "-c", "echo $$ > step; exec sleep 1000")
	step := cmd.wait(proto.StepCreated).Step
	cmd.files()
	pid := c.pidIn("step")
	set("tasks", strconv.Itoa(pid))
	set("freezer.state", "FROZEN")
	defer set("freezer.state", "THAWED")
	began := time.Now()
	_, err := c.n.finishStep(t.Context(), proto.Attempt{Job: 1, Attempt: 1}, step, nil, 0)
	if took := time.Since(began); err == nil || took > 8*firstKill {
		t.Errorf("after %v: %v", took, err)
	}
}

// TestScriptsComeBack: a job that ends releases its script file, once, also if it is abandoned with processes that
// survive SIGKILL.
func TestScriptsComeBack(t *testing.T) {
	c := newCluster(t)
	l := c.job(1, "exit 3")
	if r := c.run(l); r.Exit.Code != 3 {
		t.Errorf("%+v", r)
	}
	until(t, "its script is back", func() bool { return c.n.scripts.InUse() == 0 })
	// What the loop does when nothing could be cleared away.
	b := blob.Make([]byte("#!/bin/sh\n"))
	name, err := c.n.scripts.Take(&b, uint32(c.n.uid), 0)
	must(t, err)
	again, err := c.n.scripts.Take(&b, uint32(c.n.uid), 0)
	must(t, err)
	if name != again || c.n.scripts.InUse() != 2 {
		t.Fatalf("%s and %s, %d users", name, again, c.n.scripts.InUse())
	}
	lo := &loop{n: c.n, log: c.n.log}
	a := &attempt{script: name, phase: over}
	for range 2 { // the worker that hung may come back later
		must(t, lo.cleared(a, &proto.Report{}))
	}
	for _, f := range lo.early {
		f()
	}
	until(t, "the script is back once", func() bool { return c.n.scripts.InUse() == 1 })
}
