package up

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// failover_test.go stops the leader for longer than its nodes may be silent.

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
	submitAt, readAt = ready(t, c)
	return c, submitAt, readAt
}

// ready waits until all controllers vote, and gives the sockets of controllers and nodes, each as if on a host of its
// own.
func ready(t *testing.T, c *Cluster) (submitAt, readAt []string) {
	t.Helper()
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
	return submitAt, readAt
}

// others leaves out the sockets of one controller: its users can do nothing while it is stopped.
func others(dirs []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(dirs), func(d string) bool { return strings.HasSuffix(d, "-"+name) })
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

// TestStoppedLeader: the leader is stopped for longer than SlurmdTimeout, and goes on. Submissions through the other
// controllers, starts and what nodes pass on go to its successor; no node is given up; and the old leader does not
// answer from its old facts.
func TestStoppedLeader(t *testing.T) {
	t.Parallel()
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
	if most := limit(silent, tr.pulse.worst(moment)); max(g.submit, g.start, g.read) > most {
		t.Errorf("something took longer than %v", most) // without liveness: as long as it is stopped
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
		Jobs: []model.JobRef{{Job: id, Task: model.NoTask}}}})
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

// TestTerminatedWhileRequestsWait: requests wait at a controller for a leader, and the controller is started anew
// meanwhile. They are made when there is one: no command fails.
func TestTerminatedWhileRequestsWait(t *testing.T) {
	t.Parallel()
	c, submitAt, _ := failoverCluster(t)
	name, _ := leaderOf(t, c)
	var here process
	at := others(submitAt, name)[0]
	for _, d := range status(t, c.Dir).Daemons {
		p, ok := processOf(d.PID)
		switch {
		case !ok || d.Role != RoleController:
		case strings.HasSuffix(at, "-"+d.Name):
			here = p
		default:
			if err := p.signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	const calls = 8
	tr := newTraffic(t, slices.Repeat([]string{at}, calls/2), slices.Repeat([]string{at}, calls/2))
	begin := time.Now() // a request waits for 5 s; what has not come by then is only one that waits no more
	until(t, "requests wait", func() bool { return time.Since(begin) > time.Second })
	if err := here.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	until(t, "the controller has ended", func() bool { return !here.runs() })
	mustUp(t, Options{Dir: c.Dir})
	until(t, "jobs run", func() bool { _, ok := tr.start(time.Time{}); return ok })
	if failed := tr.end(); len(failed) > 0 {
		t.Errorf("%d of %d calls failed: %v", len(failed), tr.calls.Load(), failed[0])
	}
}
