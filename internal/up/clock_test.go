package up

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// clock_test.go sets the clocks of real daemons an hour forward and back: of all at once, of the leader, of a node. The
// daemons are built so that they add to the host's clock what stands in a file for their process (internal/wall).

// clocks is the directory with the daemons' errors.
type clocks struct {
	t   *testing.T
	dir string
}

// clocksEnv is the environment variable that names it.
const clocksEnv = "TEST_CLOCKS"

// wrongClocks gives programs whose clocks can be set.
func wrongClocks(t *testing.T) (bin string, k clocks) {
	t.Helper()
	bin, k = t.TempDir(), clocks{t, t.TempDir()}
	if err := os.CopyFS(bin, os.DirFS(programs(t))); err != nil {
		t.Fatal(err)
	}
	t.Setenv(clocksEnv, k.dir)
	cmd := exec.Command("go", "build", "-ldflags", "-X gbatch/internal/wall.skew="+clocksEnv, "-o", bin,
		"gbatch/cmd/gctld", "gbatch/cmd/gnoded", "gbatch/cmd/gshim", "gbatch/cmd/gdbd")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"gctld", "gnoded", "gdbd", "gshim", "gbatch", "gcli"} {
		if err := os.Chmod(filepath.Join(bin, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return bin, k
}

// set sets the clocks of some processes, or of all.
func (k clocks) set(by time.Duration, pids ...int) {
	k.t.Helper()
	names := []string{"all"}
	if len(pids) > 0 {
		names = nil
		for _, pid := range pids {
			names = append(names, strconv.Itoa(pid))
		}
	}
	for _, name := range names {
		path := filepath.Join(k.dir, name)
		err := os.WriteFile(path+".new", fmt.Append(nil, int64(by/time.Second)), 0o644)
		if err == nil {
			err = os.Rename(path+".new", path)
		}
		if err != nil {
			k.t.Fatal(err)
		}
	}
}

// daemon gives what status says of one daemon.
func daemon(t *testing.T, dir string, is func(*Daemon) bool) Daemon {
	t.Helper()
	for _, d := range status(t, dir).Daemons {
		if is(&d) {
			return d
		}
	}
	return Daemon{}
}

func leader(t *testing.T, dir string) Daemon {
	t.Helper()
	var d Daemon
	until(t, "a controller leads", func() bool {
		d = daemon(t, dir, func(d *Daemon) bool { return d.Leader })
		return d.PID != 0
	})
	return d
}

// timed are jobs that a jump of the clock would end, start or charge wrongly.
type timed struct {
	t           *testing.T
	c           *Cluster
	runs, waits model.JobID
	begun       time.Time
}

func startTimed(t *testing.T, c *Cluster) *timed {
	t.Helper()
	k := &timed{t: t, c: c, begun: time.Now()}
	k.runs = submit(t, c, "sleep 3000\n", func(sp *model.Spec) { sp.LimitS = 1800 })
	k.waits = submit(t, c, "true\n", func(sp *model.Spec) {
		sp.Begin = model.Time(time.Now().Add(40 * time.Minute).UnixMilli())
	})
	untilState(t, c, k.runs, model.Running)
	return k
}

// hold checks that the jobs are as they were after some time in which jobs were started and ended on each node.
func (k *timed) hold(when string, nodes ...string) {
	k.t.Helper()
	for range 3 {
		for _, n := range nodes {
			short := submit(k.t, k.c, "sleep 0.3\n", func(sp *model.Spec) { sp.ReqNodes = []string{n} })
			untilState(k.t, k.c, short, model.Completed)
			j := job(k.t, k.c, short)
			if ran := time.Duration(j.End.At-j.Run.Start) * time.Millisecond; ran < 0 || ran > time.Since(k.begun) {
				k.t.Errorf("%s: a job of a moment is charged %v", when, ran)
			}
		}
	}
	if s := job(k.t, k.c, k.runs).State; s != model.Running {
		k.t.Errorf("%s: the job with 30 minutes is %v", when, s)
	}
	if s := job(k.t, k.c, k.waits).State; s != model.Pending {
		k.t.Errorf("%s: the job that begins in 40 minutes is %v", when, s)
	}
}

// charged checks the record of the long job.
func (k *timed) charged() {
	k.t.Helper()
	cancel(k.t, k.c, k.waits)
	cancel(k.t, k.c, k.runs)
	var r *model.Record
	until(k.t, "the record of the long job is there", func() bool {
		r = lastRecords(k.t, k.c)[k.runs]
		return r != nil && r.End != 0
	})
	if ran := time.Duration(r.End-r.Start) * time.Millisecond; ran <= 0 || ran > time.Since(k.begun) {
		k.t.Errorf("the long job is charged %v; it ran for less than %v", ran, time.Since(k.begun))
	}
}

const clockConf = "SlurmdTimeout=10\nNodeHeartbeatInterval=1\n"

// TestClocksOfAll: every daemon's clock, gdbd's too, is set an hour forward, then back, then an hour back; the
// controllers are started anew meanwhile.
func TestClocksOfAll(t *testing.T) {
	bin, k := wrongClocks(t)
	dir := filepath.Join(t.TempDir(), "clocks")
	c, _ := mustUp(t, Options{Dir: dir, Bin: bin, Nodes: 2, CPUs: 4, MemMiB: 1000})
	addConf(t, c, clockConf)
	jobs := startTimed(t, c)
	for _, by := range []time.Duration{time.Hour, 0, -time.Hour, 0} {
		k.set(by)
		jobs.hold(fmt.Sprintf("all clocks are %v off", by), "n1", "n2")
		if by == 0 {
			continue
		}
		ctld := daemonOf(t, dir, RoleController, "")
		if err := ctld.signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		until(t, "the controller is dead", func() bool { _, runs := processOf(ctld.PID); return !runs })
		if _, _, err := tryUp(t, Options{Dir: dir, Bin: bin}); err != nil {
			t.Fatal(err)
		}
		jobs.hold(fmt.Sprintf("started anew with clocks %v off", by), "n1", "n2")
	}
	for _, n := range []string{"n1", "n2"} {
		if p := node(t, c, n).Problem; p != "" {
			t.Errorf("%s: %s", n, p)
		}
	}
	jobs.charged()
}

// TestClockOfLeader: the clock of the leader is set an hour forward or back. Another controller leads then, and says
// whose clock is wrong; no node is blamed. TestWrongClockLeads has one that leads all the same.
func TestClockOfLeader(t *testing.T) {
	bin, k := wrongClocks(t)
	dir := filepath.Join(t.TempDir(), "clocks")
	c, _ := mustUp(t, Options{Dir: dir, Bin: bin, Nodes: 2, CPUs: 4, MemMiB: 1000, Controllers: 3})
	addConf(t, c, clockConf)
	jobs := startTimed(t, c)
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		wrong := leader(t, dir)
		k.set(by, wrong.PID)
		until(t, "another controller leads", func() bool {
			d := daemon(t, dir, func(d *Daemon) bool { return d.Leader })
			return d.PID != 0 && d.PID != wrong.PID
		})
		jobs.hold(fmt.Sprintf("the leader's clock is %v off", by), "n1", "n2")
		until(t, "the log names the clock", func() bool {
			return strings.Contains(lines(t, wrong.Log), "this host's clock is ")
		})
		k.set(0, wrong.PID)
	}
	for _, n := range []string{"n1", "n2"} {
		if p := node(t, c, n).Problem; p != "" {
			t.Errorf("%s: %s", n, p)
		}
	}
	jobs.charged()
}

// TestWrongClockLeads: a controller whose clock is an hour off takes over from the other one that is up, and leads
// until it finds out. gdbd's clock is off the other way. No job is ended, started, or charged wrongly, and records have
// the cluster's time.
func TestWrongClockLeads(t *testing.T) {
	bin, k := wrongClocks(t)
	dir := filepath.Join(t.TempDir(), "clocks")
	c, _ := mustUp(t, Options{Dir: dir, Bin: bin, Nodes: 2, CPUs: 4, MemMiB: 1000, Controllers: 3})
	ready(t, c)
	addConf(t, c, clockConf)
	jobs := startTimed(t, c)
	gdbd := daemonOf(t, dir, RoleAccounting, "")
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		k.set(-by, gdbd.PID)
		old := leader(t, dir)
		var rest []Daemon
		for _, d := range status(t, dir).Daemons {
			if d.Role == RoleController && d.PID != old.PID {
				rest = append(rest, d)
			}
		}
		wrong, away := rest[0], daemonOf(t, dir, RoleController, rest[1].Name)
		kill(t, away)
		k.set(by, wrong.PID)
		until(t, wrong.Name+" leads", func() bool {
			cl := client.New(filepath.Join(c.Dir, "run"))
			defer cl.Close()
			err := cl.Call(proto.KindTakeover, &proto.TakeoverRequest{Name: wrong.Name}, &proto.TakeoverReply{})
			return err == nil && leader(t, dir).PID == wrong.PID
		})
		jobs.hold(fmt.Sprintf("the clock of %s is %v off, and it leads", wrong.Name, by), "n1", "n2")
		k.set(0, wrong.PID)
		if _, _, err := tryUp(t, Options{Dir: dir, Bin: bin}); err != nil {
			t.Fatal(err)
		}
		jobs.hold("all controllers are back", "n1", "n2")
	}
	jobs.charged()
	for _, r := range records(t, c) {
		at := time.UnixMilli(int64(r.Start))
		if r.Start != 0 && (at.Before(jobs.begun.Add(-time.Minute)) || at.After(time.Now().Add(time.Minute))) {
			t.Errorf("job %d is on record as begun at %v", r.Job, at)
		}
	}
}

// TestClockOfNode: a node whose clock is wrong is named and gets no jobs; what runs there goes on, and is charged what
// it ran.
func TestClockOfNode(t *testing.T) {
	bin, k := wrongClocks(t)
	dir := filepath.Join(t.TempDir(), "clocks")
	c, _ := mustUp(t, Options{Dir: dir, Bin: bin, Nodes: 3, CPUs: 4, MemMiB: 1000})
	addConf(t, c, clockConf)
	begun := time.Now()
	onN1 := func(sp *model.Spec) { sp.ReqNodes = []string{"n1"} }
	n1 := daemon(t, dir, func(d *Daemon) bool { return d.Role == RoleNode && d.Name == "n1" })

	// So little is not named, and is most of this job's time.
	const behind, length = 4 * time.Second, 6 * time.Second
	k.set(-behind, n1.PID, n1.Shim)
	short := submit(t, c, fmt.Sprintf("sleep %d\n", length/time.Second), onN1)
	untilState(t, c, short, model.Completed)
	if j := job(t, c, short); time.Duration(j.End.At-j.Run.Start)*time.Millisecond < length {
		t.Errorf("a job of %v is charged from %d to %d, with a clock %v behind", length, j.Run.Start, j.End.At, behind)
	}
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		mark := filepath.Join(t.TempDir(), "mark")
		id := submit(t, c, "until [ -e "+mark+" ]; do sleep 0.1; done\n", onN1)
		untilState(t, c, id, model.Running)
		k.set(by, n1.PID, n1.Shim)
		until(t, "n1's clock is named", func() bool { return strings.Contains(node(t, c, "n1").Problem, "Clock is 1h0m") })
		if err := os.WriteFile(mark, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		untilState(t, c, id, model.Completed)
		j := job(t, c, id)
		ran := time.Duration(j.End.At-j.Run.Start) * time.Millisecond
		if ran < 100*time.Millisecond || ran > time.Since(begun) {
			t.Errorf("with a clock %v off the job is charged %v", by, ran)
		}
		if p := node(t, c, "n2").Problem + node(t, c, "n3").Problem; p != "" {
			t.Errorf("n2 or n3 is blamed: %s", p)
		}
		k.set(0, n1.PID, n1.Shim)
		until(t, "n1 takes jobs again", func() bool { return node(t, c, "n1").Problem == "" })
	}
}

// TestRestoreByWrongClock: a snapshot is restored on a host whose clock is a day ahead. It is refused, because gdbd
// knows the cluster's time; what runs and waits is as it was after the restore with the right clock.
func TestRestoreByWrongClock(t *testing.T) {
	bin, _ := wrongClocks(t)
	dir := filepath.Join(t.TempDir(), "restored")
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 1, CPUs: 4, MemMiB: 1000, Bin: bin})
	jobs := startTimed(t, c)
	file := filepath.Join(t.TempDir(), "snapshot")
	if _, errs, err := commandAs(t, c, 0, "", "gcontrol", "snapshot", "save", file); err != nil {
		t.Fatal(err, errs)
	}
	kill(t, daemonOf(t, dir, RoleController, "ctl1"))
	own := clocks{t, t.TempDir()} // of gctld --restore alone
	restore := func(by time.Duration, options ...string) (string, error) {
		own.set(by)
		cmd := exec.Command(filepath.Join(bin, "gctld"), append([]string{"-f", c.Conf, "-N", "ctl1", "--replace",
			"--restore", file}, options...)...)
		cmd.Env = append(os.Environ(), clocksEnv+"="+own.dir)
		said, err := cmd.CombinedOutput()
		return string(said), err
	}
	const day = 24 * time.Hour
	if said, err := restore(day); err == nil || !strings.Contains(said, "this host's clock is ahead") ||
		!strings.Contains(said, "--trust-clock") {
		t.Fatalf("by a clock of tomorrow: %v\n%s", err, said)
	}
	if said, err := restore(0); err != nil || !strings.Contains(said, "ago by this host's clock") {
		t.Fatalf("%v\n%s", err, said)
	}
	mustUp(t, Options{Dir: dir, Bin: bin})
	jobs.hold("after the restore", "n1")
	kill(t, daemonOf(t, dir, RoleController, "ctl1"))
	if said, err := restore(day, "--trust-clock"); err != nil || !strings.Contains(said, "1-00:00:") {
		t.Fatalf("by a clock of tomorrow that is said to be right: %v\n%s", err, said)
	}
}
