package noded

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/check"
	"gbatch/noded/oci"
	"gbatch/noded/shim"
)

// TestJobLimits: a job's limits are Slurm's ten, and only those that the configuration names go above the node's own.
func TestJobLimits(t *testing.T) {
	bad := []model.RLimit{{Resource: unix.RLIMIT_RTPRIO, Soft: 99, Hard: 99}}
	n := &Noded{root: true, opts: Options{Name: "n1"}}
	l := &proto.Launch{Job: 1, Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1"}}},
		Spec: &model.Spec{UID: 1001, Limits: bad}}
	if err := n.mayLaunch(l); err == nil {
		t.Error("a job may have a real-time priority")
	}
	if err := check.Step(&proto.StepRequest{Argv: []string{"true"}, Limits: bad}); err == nil {
		t.Error("a step may have a real-time priority")
	}
	asked := []model.RLimit{{Resource: unix.RLIMIT_MEMLOCK, Hard: 5}, {Resource: unix.RLIMIT_CORE, Hard: 5}}
	for _, c := range []struct {
		raise         []string
		memlock, core bool
	}{{nil, false, false}, {[]string{"NONE"}, false, false}, {[]string{"MEMLOCK"}, true, false},
		{[]string{"ALL"}, true, true}} {
		n.opts.Config = &conf.Config{RaiseLimits: c.raise}
		if got := n.limits(asked, true); got[0].Raise != c.memlock || got[1].Raise != c.core {
			t.Errorf("%v: %+v", c.raise, got)
		}
	}
	n.rules.Store(&model.NodeRules{Uninherited: 1 << unix.RLIMIT_MEMLOCK})
	if got := n.limits(asked, false); len(got) != 1 || got[0].Resource != unix.RLIMIT_CORE {
		t.Errorf("PropagateResourceLimitsExcept=MEMLOCK: %+v", got)
	}
	if got := n.limits(asked, true); len(got) != 2 {
		t.Errorf("with --propagate: %+v", got)
	}
}

// TestCarrierName: gshim knows the process of a container by its name, of which the kernel keeps 15 bytes.
func TestCarrierName(t *testing.T) {
	if oci.CarrierName != shim.CarrierName || len(oci.CarrierName) > 15 {
		t.Errorf("it is %q, and gshim looks for %q", oci.CarrierName, shim.CarrierName)
	}
}

// TestProgramsInContainers: containers have the site's programs around tasks, and with one of them the program that is
// around a task then: signals for the task alone and its CPU mask come by it.
func TestProgramsInContainers(t *testing.T) {
	around := filepath.Join(t.TempDir(), "gshim")
	n := &Noded{opts: Options{Shim: around}, ownRules: &model.NodeRules{TaskProlog: "/site/prolog"}}
	want := func(own bool, list ...string) {
		t.Helper()
		if got := n.taskPrograms(own); !slices.Equal(got, list) {
			t.Errorf("a container has %v, want %v", got, list)
		}
	}
	want(true, "/site/prolog") // there is no such program
	if err := os.WriteFile(around, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	want(false, "/site/prolog", around)
	n.ownRules = &model.NodeRules{}
	want(false)
	want(true, around)
	n.ownRules = &model.NodeRules{TaskEpilog: "/site/epilog"}
	want(false, "/site/epilog", around)
}
