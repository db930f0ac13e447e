package noded

// restart_test.go kills what can be killed: the real gnoded binary, gshim, the controller, and (on paper) the machine.

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gbatch/internal/proto"
	"gbatch/noded/shim"
)

// daemon is a gnoded of its own process.
type daemon struct {
	*cluster
	cmd *exec.Cmd
}

func newDaemon(t testing.TB) *daemon {
	t.Helper()
	pki := newPKI(t)
	d := &daemon{cluster: &cluster{t: t, ctl: newFake(t, pki, "c1"), dir: t.TempDir()}}
	d.opts = testOptions(t, pki, d.ctl.addr)
	d.opts.ConfigPath = filepath.Join(t.TempDir(), "gbatch.conf")
	must(t, os.WriteFile(d.opts.ConfigPath,
		[]byte("ClusterName=test\nSlurmctldHost=c1(127.0.0.1)\nNodeName=n1 CPUs=2 RealMemory=100\n"+
			"PartitionName=main Nodes=n1\n"), 0o644))
	d.run()
	d.ctl.waitNode(1)
	t.Cleanup(func() {
		d.kill()
		d.clean()
	})
	return d
}

// run starts gnoded.
func (d *daemon) run() {
	d.t.Helper()
	o := &d.opts
	d.cmd = exec.Command(filepath.Join(binaries, "gnoded"), "-N", "n1", "-f", o.ConfigPath, "--pki", o.PKI,
		"--spool", o.Spool,
		"--controllers", strings.Join(o.Controllers, ","), "--socket-dir", o.SocketDir)
	d.cmd.Stderr = d.t.Output()
	d.cmd.Stdout = d.t.Output()
	must(d.t, d.cmd.Start())
}

// kill ends gnoded as a crash would.
func (d *daemon) kill() {
	d.t.Helper()
	must(d.t, d.cmd.Process.Signal(unix.SIGKILL))
	err := d.cmd.Wait()
	if st, ok := d.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || st.Signal() != unix.SIGKILL {
		d.t.Errorf("gnoded ended by itself: %v", err)
	}
}

// registrations counts the Hellos so far; the next waitNode is about a later one.
func (d *cluster) registrations() int {
	n := 0
	d.ctl.set(func(f *fakeCtld) { n = len(f.hellos); f.conn = nil })
	return n
}

func TestKillGnoded(t *testing.T) {
	d := newDaemon(t)
	const script = `until [ -e go%d ]; do sleep 0.02; done; exit %d`
	early, late := d.job(1, fmt.Sprintf(script, 1, 11)), d.job(2, fmt.Sprintf(script, 2, 22))
	d.ctl.send(&proto.Orders{Launch: []*proto.Launch{early, late}})
	d.ctl.waitStarted(early)
	d.ctl.waitStarted(late)

	n := d.registrations()
	d.kill()
	must(t, os.WriteFile(filepath.Join(d.dir, "go1"), nil, 0o644)) // one ends while nobody looks
	d.run()
	h := d.ctl.waitNode(n + 1)
	if len(h.Known) != 2 {
		t.Errorf("known after the restart: %v", h.Known)
	}
	if r := d.ctl.waitEnded(early); r.Exit.Code != 11 || r.Exit.Unknown {
		t.Errorf("the one that ended meanwhile: %+v", r.Exit)
	}
	// The leader sends what it is not sure of again.
	d.ctl.send(&proto.Orders{Launch: []*proto.Launch{late}})
	must(t, os.WriteFile(filepath.Join(d.dir, "go2"), nil, 0o644))
	if r := d.ctl.waitEnded(late); r.Exit.Code != 22 {
		t.Errorf("the one that went on: %+v", r.Exit)
	}
}

// A launch whose script did not start in time is a failed launch for the next gnoded too, whether its process is killed
// only now, as here, or was killed by the last gnoded.
func TestKillGnodedGivingUp(t *testing.T) {
	d := newDaemon(t)
	l := d.job(1, "sleep 1000")
	d.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
	d.ctl.waitStarted(l)
	n := d.registrations()
	d.kill()
	s, err := openSpool(d.opts.Spool, slog.New(slog.DiscardHandler))
	must(t, err)
	must(t, s.add(recLate, &lateFor{Job: l.Job, Attempt: l.Attempt}, true))
	commit(t, s)
	must(t, s.close())
	d.run()
	d.ctl.waitNode(n + 1)
	if r := d.ctl.waitEnded(l); r.Kind != proto.ReportLaunchFailed ||
		!strings.Contains(r.Text, "did not start within BatchStartTimeout") {
		t.Errorf("reported: %+v", r)
	}
}

// The next gnoded reports an end that was not acknowledged again, under the same number.
func TestKillGnodedBeforeTheAck(t *testing.T) {
	d := newDaemon(t)
	d.ctl.set(func(f *fakeCtld) { f.noAck = true })
	l := d.job(1, "exit 3")
	first := *d.cluster.run(l)
	n := d.registrations()
	d.kill()
	d.ctl.set(func(f *fakeCtld) { clear(f.ended); f.noAck = false })
	d.run()
	h := d.ctl.waitNode(n + 1)
	if len(h.Known) != 1 {
		t.Errorf("known: %v", h.Known)
	}
	again := d.ctl.waitEnded(l)
	if again.Exit.Code != 3 || again.Seq != first.Seq || again.At != first.At {
		t.Errorf("first %+v, then %+v", first, again)
	}
	// Numbers go on growing.
	if r := d.cluster.run(d.job(2, "exit 0")); r.Seq <= again.Seq {
		t.Errorf("report %d after %d", r.Seq, again.Seq)
	}
}

// gnoded is killed at any moment of two hundred launches: none is lost and none runs twice.
func TestKillGnodedInTheMiddle(t *testing.T) {
	d := newDaemon(t)
	const jobs = 200
	all := &proto.Orders{}
	for i := range jobs {
		l := d.job(1000+i, fmt.Sprintf("echo >> ran%d; exit %d", i, i%7))
		l.Spec.StdOut = "/dev/null"
		all.Launch = append(all.Launch, l)
	}
	// What has not ended is ordered again, as by a new leader. It never orders what has: an end is acknowledged for good.
	order := func() {
		o := &proto.Orders{}
		d.ctl.set(func(f *fakeCtld) {
			for _, l := range all.Launch {
				if f.ended[proto.Attempt{Job: l.Job, Attempt: 1}] == nil {
					o.Launch = append(o.Launch, l)
				}
			}
		})
		d.ctl.send(o)
	}
	for round := range 4 {
		order()
		want := (round + 1) * jobs / 5
		until(t, fmt.Sprintf("%d ends", want),
			func() bool { return d.ctl.is(func(f *fakeCtld) bool { return len(f.ended) >= want }) })
		n := d.registrations()
		d.kill()
		d.run()
		d.ctl.waitNode(n + 1)
	}
	order()
	for i, l := range all.Launch {
		r := d.ctl.waitEnded(l)
		if r.Kind != proto.ReportEnded || r.Exit.Code != int32(i%7) {
			t.Errorf("job %d: %+v", l.Job, r)
		}
		if b, err := os.ReadFile(filepath.Join(d.dir, fmt.Sprintf("ran%d", i))); err != nil || len(b) != 1 {
			t.Errorf("job %d ran %d times (%v)", l.Job, len(b), err)
		}
	}
}

// gshim dies: the job's processes go on, and their end is reported with an unknown status.
func TestKillGshim(t *testing.T) {
	c := newCluster(t)
	l := c.job(1, `echo $$ > pid; until [ -e go ]; do sleep 0.02; done; exit 5`)
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
	c.ctl.waitStarted(l)
	conn, _, err := shim.Connect(t.Context(), filepath.Join(c.opts.Spool, "gshim"))
	must(t, err)
	pid := conn.Info().PID
	must(t, conn.Close())
	must(t, unix.Kill(pid, unix.SIGKILL))
	// Other jobs start with a new gshim.
	if r := c.run(c.job(2, "exit 8")); r.Exit.Code != 8 {
		t.Errorf("%+v", r)
	}
	must(t, os.WriteFile(filepath.Join(c.dir, "go"), nil, 0o644))
	if r := c.ctl.waitEnded(l); !r.Exit.Unknown || r.Exit.Text == "" {
		t.Errorf("%+v", r.Exit)
	}
}

// Jobs end without a controller, and their ends are reported when it is back.
func TestControllerAway(t *testing.T) {
	c := newCluster(t)
	l := c.job(1, `until [ -e go ]; do sleep 0.02; done; exit 5`)
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
	c.ctl.waitStarted(l)
	c.ctl.close()
	n := c.registrations()
	must(t, os.WriteFile(filepath.Join(c.dir, "go"), nil, 0o644))
	until(t, "the end is on disk", func() bool { return c.n.out.count() == 1 })
	c.ctl.serve("c1", c.ctl.addr)
	h := c.ctl.waitNode(n + 1)
	if len(h.Known) != 1 {
		t.Errorf("known: %v", h.Known)
	}
	if r := c.ctl.waitEnded(l); r.Exit.Code != 5 {
		t.Errorf("%+v", r.Exit)
	}
}

// After a reboot, earlier ends are reported, and jobs that ran are no longer known.
func TestReboot(t *testing.T) {
	c := newCluster(t)
	c.ctl.set(func(f *fakeCtld) { f.noAck = true })
	ended, runs := c.job(1, "exit 3"), c.job(2, "sleep 600")
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{ended, runs}})
	c.ctl.waitEnded(ended)
	c.ctl.waitStarted(runs)
	c.stop()
	// The machine's power goes: first gshim, so that it sees nothing, then the job.
	conn, events, err := shim.Connect(t.Context(), filepath.Join(c.opts.Spool, "gshim"))
	must(t, err)
	must(t, conn.Close())
	must(t, unix.Kill(conn.Info().PID, unix.SIGKILL))
	for _, ev := range events {
		if ev.Kind == shim.Launched {
			must(t, unix.Kill(-ev.PID, unix.SIGKILL))
		}
	}
	sp := openTest(t, c.opts.Spool)
	must(t, sp.add(recOpened, &opened{Incarnation: sp.mem.opened.Incarnation, BootID: "the boot before", Node: "n1"},
		true))
	must(t, sp.close())
	n := c.registrations()
	c.ctl.set(func(f *fakeCtld) { f.noAck = false; clear(f.ended) })
	c.start()
	h := c.ctl.waitNode(n + 1)
	if len(h.Known) != 1 || h.Known[0].Job != 1 {
		t.Errorf("known after a reboot: %v", h.Known)
	}
	if r := c.ctl.waitEnded(ended); r.Exit.Code != 3 {
		t.Errorf("%+v", r.Exit)
	}
	if c.ctl.is(func(f *fakeCtld) bool { return f.ended[proto.Attempt{Job: 2, Attempt: 1}] != nil }) {
		t.Error("the end of a job that the reboot killed was reported")
	}
	until(t, "the scripts are gone", func() bool {
		left, err := os.ReadDir(c.n.scripts.Dir)
		return err == nil && len(left) == 0
	})
}

// All of a node is killed under the same boot, as by the restart of a container: the node registers without the job, as
// after a reboot, when what the script left is gone.
func TestKillAllOfNode(t *testing.T) {
	c := newCluster(t)
	l := c.job(1, `setsid sh -c 'echo $$ > left; sleep 600' & echo $$ > pid; sleep 600`)
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
	c.ctl.waitStarted(l)
	pid, left := c.pidIn("pid"), c.pidIn("left")
	c.stop()
	conn, _, err := shim.Connect(t.Context(), filepath.Join(c.opts.Spool, "gshim"))
	must(t, err)
	must(t, conn.Close())
	must(t, unix.Kill(conn.Info().PID, unix.SIGKILL))
	must(t, unix.Kill(-pid, unix.SIGKILL))
	n := c.registrations()
	c.start()
	if h := c.ctl.waitNode(n + 1); len(h.Known) != 0 {
		t.Errorf("known after all was killed: %v", h.Known)
	}
	if st, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", left)); err == nil && !strings.Contains(string(st), ") Z ") {
		t.Errorf("the node registered while a process of the lost job ran: %s", st)
	}
	if c.ctl.is(func(f *fakeCtld) bool { return f.ended[proto.Attempt{Job: 1, Attempt: 1}] != nil }) {
		t.Error("the end of a job that was lost with the node was reported")
	}
}

// The spool is lost while gshim runs on: gnoded adds the job again, and the leader decides.
func TestSpoolLost(t *testing.T) {
	c := newCluster(t)
	l := c.job(1, `until [ -e go ]; do sleep 0.02; done; exit 5`)
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{l}})
	c.ctl.waitStarted(l)
	c.stop()
	must(t, os.Remove(filepath.Join(c.opts.Spool, spoolFile)))
	n := c.registrations()
	c.start()
	h := c.ctl.waitNode(n + 1)
	if len(h.Known) != 1 || h.Known[0].Job != 1 {
		t.Errorf("known: %v", h.Known)
	}
	must(t, os.WriteFile(filepath.Join(c.dir, "go"), nil, 0o644))
	if r := c.ctl.waitEnded(l); r.Exit.Code != 5 {
		t.Errorf("%+v", r.Exit)
	}
}

func TestSpoolOfAnotherNode(t *testing.T) {
	c := newCluster(t)
	c.stop()
	sp := openTest(t, c.opts.Spool)
	must(t, sp.add(recOpened, &opened{Node: "n2"}, true))
	must(t, sp.close())
	n, err := New(c.opts)
	must(t, err)
	if err := n.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "is that of node n2") {
		t.Errorf("%v", err)
	}
	must(t, n.Close())
}

// A job that can't be written down is refused with the reason, and the next one runs when the disk has space again.
func TestSpoolFails(t *testing.T) {
	pki := newPKI(t)
	c := &cluster{t: t, ctl: newFake(t, pki, "c1"), dir: t.TempDir()}
	c.opts = testOptions(t, pki, c.ctl.addr)
	n, err := New(c.opts)
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(c.clean)
	c.ctl.waitNode(1)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(t, err)
	must(t, unix.Dup3(int(full.Fd()), int(n.loop.spool.f.Fd()), unix.O_CLOEXEC))
	must(t, full.Close())
	first, second := c.job(1, "exit 0"), c.job(2, "exit 0")
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{first}})
	refused := c.ctl.waitEnded(first)
	if refused.Kind != proto.ReportLaunchFailed || !refused.Taken ||
		!strings.Contains(refused.Text, "write the spool: ") ||
		!strings.Contains(refused.Text, "no space left on device") {
		t.Errorf("%q", refused.Text)
	}
	until(t, "the spool is mended", func() bool { return n.spoolBroken.Load() == nil })
	c.ctl.send(&proto.Orders{Launch: []*proto.Launch{second}})
	if r := c.ctl.waitEnded(second); r.Kind != proto.ReportEnded {
		t.Errorf("%+v", r)
	}
	stop()
	must(t, <-done)
	again, err := New(c.opts)
	must(t, err)
	if mem := &again.loop.spool.mem; mem.opened.Node != "n1" || mem.epoch.Epoch != 1 {
		t.Errorf("the mended spool has lost who it is of: %+v, %+v", mem.opened, mem.epoch)
	}
	must(t, again.Close())
}

// TestKillGnodedOnReadOnlySpool: gnoded is killed, and its spool can only be read meanwhile. The next one knows the
// jobs and tells their ends, takes no other one, and takes jobs again when the spool can be written.
func TestKillGnodedOnReadOnlySpool(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root makes a directory read-only")
	}
	d := newDaemon(t)
	first, second := d.job(1, "until [ -e go ]; do sleep 0.02; done; exit 7"), d.job(2, "exit 0")
	d.ctl.send(&proto.Orders{Launch: []*proto.Launch{first}})
	d.ctl.waitStarted(first)
	n := d.registrations()
	d.kill()
	must(t, unix.Mount(d.opts.Spool, d.opts.Spool, "", unix.MS_BIND, ""))
	mounted := true
	t.Cleanup(func() {
		if mounted {
			_ = unix.Unmount(d.opts.Spool, unix.MNT_DETACH) // the test has failed
		}
	})
	must(t, unix.Mount("", d.opts.Spool, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	d.run()
	if h := d.ctl.waitNode(n + 1); len(h.Known) != 1 {
		t.Errorf("known after the restart: %v", h.Known)
	}
	must(t, os.WriteFile(filepath.Join(d.dir, "go"), nil, 0o644))
	if r := d.ctl.waitEnded(first); r.Exit.Code != 7 || r.Exit.Unknown {
		t.Errorf("the job that went on: %+v", r.Exit)
	}
	d.ctl.send(&proto.Orders{Launch: []*proto.Launch{second}})
	if r := d.ctl.waitEnded(second); r.Kind != proto.ReportLaunchFailed || !r.Taken ||
		!strings.Contains(r.Text, "read-only file system") {
		t.Errorf("a job that came meanwhile: %+v", r)
	}
	must(t, unix.Mount("", d.opts.Spool, "", unix.MS_BIND|unix.MS_REMOUNT, ""))
	third := 3
	until(t, "the node takes jobs again", func() bool {
		next := d.job(third, "exit 0")
		third++
		d.ctl.send(&proto.Orders{Launch: []*proto.Launch{next}})
		return d.ctl.waitEnded(next).Kind == proto.ReportEnded
	})
	d.kill()
	must(t, unix.Unmount(d.opts.Spool, unix.MNT_DETACH))
	mounted = false
	d.run()
}

// TestAckTakesBackOrder: an order that waits to be sent is not carried out when its end is known already, but one for
// the next run under the same key is.
func TestAckTakesBackOrder(t *testing.T) {
	k := &link{wake: make(chan struct{}, 1)}
	key, next := shim.Key{JobID: 1, Step: stepProlog}, shim.Key{JobID: 1, Step: stepProlog - 1}
	k.launch(&shim.Launch{Key: key})
	k.ack(key)
	k.launch(&shim.Launch{Key: next})
	if len(k.orders) != 1 || k.orders[0].Key != next || len(k.acks) != 1 {
		t.Errorf("orders %v, acknowledgements %v", k.orders, k.acks)
	}
	k.ack(next)
	k.launch(&shim.Launch{Key: next})
	if len(k.orders) != 1 || len(k.acks) != 2 {
		t.Errorf("orders %v, acknowledgements %v", k.orders, k.acks)
	}
}

// An attempt that was only reported, and never taken on, does not stop the next start: neither one that was refused,
// nor one that this node has not heard of.
func TestReportOnlySurvivesRestart(t *testing.T) {
	c := newCluster(t)
	c.ctl.set(func(f *fakeCtld) { f.noAck = true })
	l := c.job(77, "true")
	c.ctl.send(&proto.Orders{Stop: []*proto.Stop{{Job: l.Job, Attempt: l.Attempt}}})
	c.ctl.waitEnded(l)
	c.stop()
	c.start()
	c.ctl.waitNode(2)
	c.ctl.set(func(f *fakeCtld) { f.noAck = false })
}
