package procs

import (
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestProcTree: the processes of a job without a control group are those of its session and their descendants, also in
// other sessions, and no others.
func TestProcTree(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 1000 & setsid -w sleep 1000 & echo ready; wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	head := cmd.Process.Pid
	var tree Tree
	var r Reader
	defer func() {
		tree.at = time.Time{}
		tree.Look(&r, time.Now())
		for _, pid := range tree.Below([]int{head}) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended with its parent
		}
		_ = cmd.Wait() // killed
	}()
	_, err = out.Read(make([]byte, 16))
	must(t, err)
	until(t, "three or more processes", func() bool {
		tree.at = time.Time{}
		tree.Look(&r, time.Now())
		return len(tree.Below([]int{head})) >= 3
	})
	pids := tree.Below([]int{head})
	if !slices.Contains(pids, head) || slices.Contains(pids, syscall.Getpid()) {
		t.Errorf("%v of %d", pids, head)
	}
	if none := tree.Below(nil); none != nil {
		t.Errorf("of nobody: %v", none)
	}
	at := tree.at
	tree.Look(&r, at.Add(fresh/2))
	if tree.at != at {
		t.Error("/proc was read again at once")
	}
	line := "12 (a b) c) S 3 12 7 0 -1 4194304 100 200 0 0 5 6 70 80 20 0 1 0 4000 1000000 50"
	if p, ok := parseTreeProc(12, []byte(line)); !ok || p != (Proc{12, 3, 7, 750, 860}) {
		t.Errorf("%+v %v", p, ok)
	}
	for i := range line {
		parseTreeProc(12, []byte(line[:i])) // a torn line is no panic
	}
	if _, ok := parseTreeProc(12, []byte(strings.Repeat(")", 3))); ok {
		t.Error("a line of nothing was read")
	}
}
