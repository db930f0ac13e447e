package up

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gbatch/internal/model"
)

// fence_test.go proves by a ledger that no two attempts of a job ever run at the same moment, and that controllers that
// are away cost no job. Every process of the job writes a line every few milliseconds; they all append to one file, so
// its order is that of time.

const fenceConf = "SlurmdTimeout=3\nNodeHeartbeatInterval=1\nReturnToService=1\n"

// ledger is a job's book.
type ledger struct {
	t    *testing.T
	path string
}

// script writes from the job's own shell and from a child that has left its session.
func (l *ledger) script() string {
	write := "while :; do echo $SLURMD_NODENAME ${SLURM_RESTART_COUNT:-0} >>" + l.path + "; sleep 0.02; done"
	return fmt.Sprintf("setsid sh -c '%s' &\n%s\n", write, write)
}

// tellShim shows what a node's launcher says, should the test fail.
func tellShim(t *testing.T, dir, name string) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("gshim of %s:\n%s", name, lines(t, filepath.Join(dir, "state", "node-"+name, "gshim", "shim.log")))
			t.Logf("the controller:\n%s", lines(t, filepath.Join(dir, "log", "ctld-ctl1.log")))
		}
	})
}

func (l *ledger) count(line string) int {
	return strings.Count("\n"+lines(l.t, l.path), "\n"+line+"\n")
}

// disjoint checks that no line of one attempt stands behind the first of the other.
func (l *ledger) disjoint(first, second string) {
	l.t.Helper()
	text := "\n" + lines(l.t, l.path)
	a, b := strings.LastIndex(text, "\n"+first+"\n"), strings.Index(text, "\n"+second+"\n")
	if a < 0 || b < 0 || a > b {
		l.t.Errorf("attempt %q wrote %d lines after attempt %q had begun", first,
			strings.Count(text[max(b, 0):], "\n"+first), second)
	}
}

// TestNoJobTwice: gnoded is stopped, or killed and not restarted, for longer than SlurmdTimeout. The processes on its
// node are dead before the job starts elsewhere.
func TestNoJobTwice(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"stopped": syscall.SIGSTOP, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), name)
			c, _ := mustUp(t, Options{Dir: dir, Nodes: 2, CPUs: 2, MemMiB: 1000})
			addConf(t, c, fenceConf)
			leased(t, c, "n1", 3)
			tellShim(t, dir, "n1")
			book := &ledger{t, filepath.Join(t.TempDir(), "ledger")}
			id := submit(t, c, book.script(), nil)
			until(t, "it runs on n1", func() bool { return book.count("n1 0") > 10 })
			n1 := gnodedOf(t, dir, "n1")
			if err := n1.signal(sig); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = n1.signal(syscall.SIGCONT) }) // it may be gone
			until(t, "it runs on n2", func() bool { return book.count("n2 1") > 50 })
			book.disjoint("n1 0", "n2 1")
			if link := node(t, c, "n1").Link; link != model.LinkLost {
				t.Errorf("n1's link is %v", link)
			}
			if sig == syscall.SIGSTOP {
				if err := n1.signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
			} else if _, _, err := tryUp(t, Options{Dir: dir}); err != nil {
				t.Fatal(err)
			}
			// Back in service, it takes and runs jobs.
			check := submit(t, c, "true\n", func(sp *model.Spec) { sp.ReqNodes = []string{"n1"} })
			untilState(t, c, check, model.Completed)
			book.disjoint("n1 0", "n2 1")
			if n := job(t, c, id).Restarts; n != 1 {
				t.Errorf("the job was restarted %d times", n)
			}
			cancel(t, c, id)
			untilState(t, c, id, model.Cancelled)
		})
	}
}

// TestNoJobTwiceOnDownNode: an operator sets a node DOWN whose daemon is stopped. Its jobs are given up KillWait later
// if the node answers; if it doesn't, not before its launcher has ended them.
func TestNoJobTwiceOnDownNode(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "down")
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 2, CPUs: 2, MemMiB: 1000})
	addConf(t, c, "SlurmdTimeout=12\nNodeHeartbeatInterval=1\nKillWait=1\n")
	leased(t, c, "n1", 12)
	tellShim(t, dir, "n1")
	book := &ledger{t, filepath.Join(t.TempDir(), "ledger")}
	id := submit(t, c, book.script(), nil)
	until(t, "it runs on n1", func() bool { return book.count("n1 0") > 10 })
	n1 := gnodedOf(t, dir, "n1")
	if err := n1.signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n1.signal(syscall.SIGCONT) }) // it may be gone
	setNode(t, c, "n1", "down")
	until(t, "it runs on n2", func() bool { return book.count("n2 1") > 50 })
	book.disjoint("n1 0", "n2 1")
	cancel(t, c, id)
	untilState(t, c, id, model.Cancelled)
}

// TestControllerAway: a controller that is stopped or dead for longer than SlurmdTimeout gives no node up, and no job
// ends for it, on one node and on several.
func TestControllerAway(t *testing.T) {
	t.Parallel()
	for _, k := range []struct {
		name  string
		nodes int
		sig   syscall.Signal
	}{{"stopped", 2, syscall.SIGSTOP}, {"killed", 2, syscall.SIGKILL}, {"single", 1, syscall.SIGKILL}} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), k.name)
			c, _ := mustUp(t, Options{Dir: dir, Nodes: k.nodes, CPUs: 2, MemMiB: 1000})
			addConf(t, c, fenceConf)
			leased(t, c, "n1", 3)
			tellShim(t, dir, "n1")
			book := &ledger{t, filepath.Join(t.TempDir(), "ledger")}
			id := submit(t, c, book.script(), nil)
			until(t, "it runs on n1", func() bool { return book.count("n1 0") > 10 })
			ctl := daemonOf(t, dir, RoleController, "")
			gone := time.Now()
			if err := ctl.signal(k.sig); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = ctl.signal(syscall.SIGCONT) }) // it may be gone
			const away = 9 * time.Second                          // three times SlurmdTimeout
			until(t, "three times SlurmdTimeout have gone", func() bool { return time.Since(gone) > away })
			before := book.count("n1 0")
			if k.sig == syscall.SIGSTOP {
				if err := ctl.signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
			} else if _, _, err := tryUp(t, Options{Dir: dir}); err != nil {
				t.Fatal(err)
			}
			// Another SlurmdTimeout of its being there.
			until(t, "the job runs on", func() bool { return book.count("n1 0") > before+200 })
			if j := job(t, c, id); j.State != model.Running || j.Restarts != 0 {
				t.Errorf("the job is %v after %d restarts", j.State, j.Restarts)
			}
			if n := book.count("n2 1"); n != 0 {
				t.Errorf("%d lines of another attempt", n)
			}
			cancel(t, c, id)
			untilState(t, c, id, model.Cancelled)
		})
	}
}
