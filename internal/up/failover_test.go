package up

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// failover_test.go takes the leader away in several ways while jobs are submitted and run, and measures for how long
// users notice.

// hosts gives, for each daemon with a socket, a directory with only that socket, as if each had a host of its own.
func hosts(t *testing.T, c *Cluster) map[string]string {
	t.Helper()
	out := map[string]string{}
	socks, err := client.Sockets(filepath.Join(c.Dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range socks {
		name := strings.TrimSuffix(filepath.Base(s), ".sock")
		dir := filepath.Join(t.TempDir(), name)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Symlink(s, filepath.Join(dir, name+".sock"))); err != nil {
			t.Fatal(err)
		}
		out[name] = dir
	}
	return out
}

// traffic is what users do meanwhile: submitters, who write down their jobs' starts, and readers.
type traffic struct {
	t      *testing.T
	ledger string
	stop   context.CancelFunc
	users  sync.WaitGroup

	mu      sync.Mutex
	submits []deed
	reads   []deed
	failed  []error
	calls   atomic.Int64
}

// deed is one request that was answered.
type deed struct {
	begun, ended time.Time
	job          model.JobID
}

func newTraffic(t *testing.T, submitAt, readAt []string) *traffic {
	ctx, stop := context.WithCancel(context.Background())
	tr := &traffic{t: t, ledger: filepath.Join(t.TempDir(), "ledger"), stop: stop}
	t.Cleanup(func() { stop(); tr.users.Wait() })
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range submitAt {
		tr.users.Go(func() {
			for ctx.Err() == nil {
				sp := &model.Spec{Name: "failover", UID: uint32(os.Getuid()), User: me.Username, WorkDir: "/tmp",
					StdOut: "/dev/null", Umask: 0o22, MinNodes: 1, MaxNodes: 1, LimitS: model.NotSet, MemPerNode: 10,
					Requeue: true, Command: "failover.sh"}
				rq := &proto.SubmitRequest{RequestID: strconv.FormatUint(rand.Uint64(), 36), Spec: sp,
					Script: []byte("#!/bin/sh\necho $SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0} $(date +%s%N) >>" + tr.ledger + "\n"),
					Env:    []byte("PATH=/usr/bin:/bin\x00")}
				var reply proto.SubmitReply
				tr.call(dir, proto.KindSubmit, rq, &reply, &tr.submits, func() model.JobID { return reply.Job })
				pause(ctx, 50*time.Millisecond)
			}
		})
	}
	for _, dir := range readAt {
		tr.users.Go(func() {
			for ctx.Err() == nil {
				var reply proto.PartitionsReply
				tr.call(dir, proto.KindPartitions, &proto.Empty{}, &reply, &tr.reads, func() model.JobID { return 0 })
				pause(ctx, 20*time.Millisecond)
			}
		})
	}
	return tr
}

func (tr *traffic) call(dir string, kind uint16, rq, reply proto.Message, list *[]deed, job func() model.JobID) {
	d := deed{begun: time.Now()}
	cl := client.New(dir)
	err := cl.Call(kind, rq, reply)
	cl.Close()
	d.ended, d.job = time.Now(), job()
	tr.calls.Add(1)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if err != nil {
		tr.failed = append(tr.failed, fmt.Errorf("%s after %v: %w", filepath.Base(dir), d.ended.Sub(d.begun), err))
		return
	}
	*list = append(*list, d)
}

// after gives the end of the first request of a list that was begun after a moment.
func (tr *traffic) after(list *[]deed, moment time.Time) (time.Time, bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	var first time.Time
	for _, d := range *list {
		if d.begun.After(moment) && (first.IsZero() || d.ended.Before(first)) {
			first = d.ended
		}
	}
	return first, !first.IsZero()
}

// start gives the first start of a job that was submitted after a moment.
func (tr *traffic) start(moment time.Time) (time.Time, bool) {
	tr.mu.Lock()
	jobs := map[string]bool{}
	for _, d := range tr.submits {
		if d.begun.After(moment) {
			jobs[fmt.Sprint(d.job)] = true
		}
	}
	tr.mu.Unlock()
	var first time.Time
	for line := range strings.Lines(lines(tr.t, tr.ledger)) {
		if f := strings.Fields(line); len(f) == 3 && jobs[f[0]] {
			ns, err := strconv.ParseInt(f[2], 10, 64)
			if err != nil {
				tr.t.Fatal(err)
			}
			if at := time.Unix(0, ns); first.IsZero() || at.Before(first) {
				first = at
			}
		}
	}
	return first, !first.IsZero()
}

// gaps is for how long users noticed a fault.
type gaps struct{ submit, start, read time.Duration }

// measure waits until everything goes on after a moment.
func (tr *traffic) measure(moment time.Time) gaps {
	tr.t.Helper()
	var g gaps
	for what, look := range map[string]func() (time.Duration, bool){
		"a submission": func() (time.Duration, bool) {
			at, ok := tr.after(&tr.submits, moment)
			g.submit = at.Sub(moment)
			return g.submit, ok
		},
		"a start": func() (time.Duration, bool) {
			at, ok := tr.start(moment)
			g.start = at.Sub(moment)
			return g.start, ok
		},
		"an answer through a node": func() (time.Duration, bool) {
			at, ok := tr.after(&tr.reads, moment)
			g.read = at.Sub(moment)
			return g.read, ok
		}} {
		until(tr.t, what, func() bool { _, ok := look(); return ok })
	}
	return g
}

// end stops the traffic and gives the failed calls, and checks that nothing ran twice.
func (tr *traffic) end() []error {
	tr.stop()
	tr.users.Wait()
	seen := map[string]bool{}
	for line := range strings.Lines(lines(tr.t, tr.ledger)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		if seen[f[0]] {
			tr.t.Errorf("job %s ran twice", f[0])
		}
		seen[f[0]] = true
	}
	return tr.failed
}

// leaderOf gives the controller that leads, as its name and process.
func leaderOf(t *testing.T, c *Cluster) (string, process) {
	t.Helper()
	var name string
	until(t, "a controller leads", func() bool {
		for _, d := range status(t, c.Dir).Daemons {
			if d.Leader {
				name = d.Name
			}
		}
		return name != ""
	})
	return name, daemonOf(t, c.Dir, RoleController, name)
}

// steady is a job that runs throughout, and must not notice anything.
func steady(t *testing.T, c *Cluster) (check func()) {
	t.Helper()
	id := submit(t, c, "sleep 3600\n", func(sp *model.Spec) { sp.MemPerNode = 10 })
	untilState(t, c, id, model.Running)
	return func() {
		t.Helper()
		if j := job(t, c, id); j.State != model.Running || j.Restarts != 0 {
			t.Errorf("the job that ran throughout is %v after %d restarts", j.State, j.Restarts)
		}
		cancel(t, c, id)
		untilState(t, c, id, model.Cancelled)
	}
}

func failoverCluster(t *testing.T) (c *Cluster, submitAt, readAt []string) {
	t.Helper()
	c, _ = mustUp(t, Options{Dir: filepath.Join(t.TempDir(), "failover"), Nodes: 2, CPUs: 16, MemMiB: 16000,
		Controllers: 3})
	until(t, "all controllers vote", func() bool { // before that none can follow a leader that is lost
		votes := 0
		for _, name := range []string{"ctl1", "ctl2", "ctl3"} {
			if strings.Contains(lines(t, filepath.Join(c.Dir, "log", "ctld-"+name+".log")), "from now on it votes") {
				votes++
			}
		}
		return votes >= 2 // the first had the state from the beginning
	})
	at := hosts(t, c)
	for name, dir := range at {
		if ofController := strings.HasPrefix(name, "ctld"); ofController {
			submitAt = append(submitAt, dir)
		} else {
			readAt = append(readAt, dir)
		}
	}
	slices.Sort(submitAt)
	return c, submitAt, readAt
}

// others leaves out the sockets of one controller: its users can do nothing while it is stopped.
func others(dirs []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(dirs), func(d string) bool { return strings.HasSuffix(d, "-"+name) })
}

// TestStoppedLeader: the leader is stopped for longer than SlurmdTimeout, and goes on. Submissions through the other
// controllers, starts and what nodes pass on go to its successor; no node is given up; and the old leader does not
// answer from its old facts.
func TestStoppedLeader(t *testing.T) {
	c, submitAt, readAt := failoverCluster(t)
	addConf(t, c, "SlurmdTimeout=8\nNodeHeartbeatInterval=1\n")
	untouched := steady(t, c)
	name, leader := leaderOf(t, c)
	tr := newTraffic(t, others(submitAt, name), readAt)
	until(t, "jobs run", func() bool { _, ok := tr.start(time.Time{}); return ok })
	if err := leader.signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = leader.signal(syscall.SIGCONT) }) // it may have gone on
	moment := time.Now()
	g := tr.measure(moment)
	t.Logf("submissions go on after %v, starts after %v, nodes' answers after %v", g.submit, g.start, g.read)
	if limit := 15 * time.Second; max(g.submit, g.start, g.read) > limit { // without liveness: as long as it is stopped
		t.Errorf("something took longer than %v", limit)
	}
	until(t, "SlurmdTimeout has passed", func() bool { return time.Since(moment) > 12*time.Second })
	for _, n := range []string{"n1", "n2"} {
		if link := node(t, c, n).Link; link != model.LinkUp {
			t.Errorf("node %s is given up: %v", n, link)
		}
	}
	if failed := tr.end(); len(failed) > 0 {
		t.Errorf("%d of %d calls failed: %v", len(failed), tr.calls.Load(), failed[0])
	}
	// The first thing that the old leader is asked about is a job that it has never heard of.
	id := tr.submits[len(tr.submits)-1].job
	at := ""
	for _, dir := range submitAt {
		if strings.HasSuffix(dir, "-"+name) {
			at = dir
		}
	}
	asked := make(chan error, 1)
	conn, err := rpc.DialUnix(filepath.Join(at, filepath.Base(at)+".sock"), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	body, err := proto.Encode(&proto.JobsRequest{Filter: proto.JobFilter{
		Jobs: []proto.JobRef{{Job: id, Task: model.NoTask}}}})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		found := false
		err := conn.Stream(context.Background(), proto.KindJobs, body, func(f *rpc.Frame) error {
			var chunk proto.JobsChunk
			err := proto.Decode(f.Body, &chunk)
			found = found || len(chunk.Jobs) > 0
			return err
		})
		if err == nil && !found {
			err = errors.New("it does not know the job")
		}
		asked <- err
	}()
	if err := leader.signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-asked; err != nil {
		t.Errorf("the old leader, asked about a job of its successor: %v", err)
	}
	untouched()
}

// TestPlannedHandOver: leadership moves by gcontrol takeover and by SIGTERM of the leader, while users submit through
// all controllers. No call fails.
func TestPlannedHandOver(t *testing.T) {
	c, submitAt, readAt := failoverCluster(t)
	untouched := steady(t, c)
	name, _ := leaderOf(t, c)
	tr := newTraffic(t, slices.Concat(submitAt, submitAt), readAt)
	until(t, "jobs run", func() bool { _, ok := tr.start(time.Time{}); return ok })
	moment := time.Now()
	next := takeover(t, c, name)
	g := tr.measure(moment)
	t.Logf("takeover: submissions go on after %v, starts after %v, nodes' answers after %v", g.submit, g.start, g.read)
	if next == name {
		t.Errorf("%s still leads", next)
	}
	if failed := tr.end(); len(failed) > 0 {
		t.Errorf("takeover: %d of %d calls failed: %v", len(failed), tr.calls.Load(), failed[0])
	}

	name, leader := leaderOf(t, c)
	tr = newTraffic(t, slices.Concat(others(submitAt, name), others(submitAt, name)), readAt)
	until(t, "jobs run", func() bool { _, ok := tr.start(time.Time{}); return ok })
	if err := leader.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	g = tr.measure(time.Now())
	t.Logf("SIGTERM: submissions go on after %v, starts after %v, nodes' answers after %v", g.submit, g.start, g.read)
	if failed := tr.end(); len(failed) > 0 {
		t.Errorf("SIGTERM: %d of %d calls failed: %v", len(failed), tr.calls.Load(), failed[0])
	}
	untouched()
}

// takeover is gcontrol takeover.
func takeover(t *testing.T, c *Cluster, from string) (leader string) {
	t.Helper()
	cl := client.New(filepath.Join(c.Dir, "run"))
	defer cl.Close()
	var reply proto.TakeoverReply
	until(t, "a controller can take over", func() bool {
		err := cl.Call(proto.KindTakeover, &proto.TakeoverRequest{From: from}, &reply)
		if err != nil && !strings.Contains(err.Error(), "has no state yet") { // the cluster has just begun
			t.Fatal(err)
		}
		return err == nil
	})
	return reply.Leader
}

// TestFailover prints, after $GBATCH_FAILOVER rounds of each fault, for how long users notice it: median and maximum
// until submissions, starts of jobs and answers through nodes' daemons go on.
func TestFailover(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("GBATCH_FAILOVER"))
	if err != nil {
		t.Skip("skipped: measures as many rounds of each fault as $GBATCH_FAILOVER says")
	}
	only := os.Getenv("GBATCH_FAILOVER_ONLY")
	c, submitAt, readAt := failoverCluster(t)
	untouched := steady(t, c)
	stopped := func(p process) error {
		err := p.signal(syscall.SIGSTOP)
		t.Cleanup(func() { _ = p.signal(syscall.SIGCONT) }) // it may have ended
		return err
	}
	for _, fault := range []struct {
		name  string
		hit   func(name string, p process) error
		mend  func(p process) error
		calls bool // through all controllers, and none may fail
	}{
		{"kill -9", func(_ string, p process) error { return p.signal(syscall.SIGKILL) }, nil, false},
		{"SIGSTOP", func(_ string, p process) error { return stopped(p) },
			func(p process) error { return p.signal(syscall.SIGCONT) }, false},
		{"SIGTERM", func(_ string, p process) error { return p.signal(syscall.SIGTERM) }, nil, false},
		{"takeover", func(name string, _ process) error { takeover(t, c, name); return nil }, nil, true},
	} {
		if only != "" && only != fault.name {
			continue
		}
		var all []gaps
		failures, calls := 0, int64(0)
		for range rounds {
			for _, dir := range submitAt { // the cluster is ready before a controller that was killed is back
				until(t, "it answers", func() bool {
					cl := client.New(dir)
					defer cl.Close()
					return cl.Call(proto.KindPing, &proto.Empty{}, &proto.PingReply{}) == nil
				})
			}
			name, p := leaderOf(t, c)
			at := submitAt
			if !fault.calls {
				at = others(submitAt, name)
			}
			tr := newTraffic(t, slices.Concat(at, at, at)[:6], readAt)
			until(t, "jobs run", func() bool { _, ok := tr.start(time.Time{}); return ok })
			moment := time.Now()
			if err := fault.hit(name, p); err != nil {
				t.Fatal(err)
			}
			all = append(all, tr.measure(moment))
			if fault.mend != nil {
				if err := fault.mend(p); err != nil {
					t.Fatal(err)
				}
			}
			failed := tr.end()
			failures, calls = failures+len(failed), calls+tr.calls.Load()
			if len(failed) > 0 {
				t.Logf("%s: a call failed: %v", fault.name, failed[0])
			}
			if _, _, err := tryUp(t, Options{Dir: c.Dir}); err != nil {
				t.Fatal(err)
			}
		}
		line := fmt.Sprintf("%-9s %2d rounds, %d of %d calls failed; median / max:", fault.name, rounds, failures, calls)
		for i, what := range []string{"submits", "starts", "login"} {
			var ds []time.Duration
			for _, g := range all {
				ds = append(ds, []time.Duration{g.submit, g.start, g.read}[i])
			}
			slices.Sort(ds)
			line += fmt.Sprintf(" %s %.2f / %.2f s", what, ds[len(ds)/2].Seconds(), ds[len(ds)-1].Seconds())
		}
		t.Log(line)
		fmt.Println(line)
	}
	untouched()
}
