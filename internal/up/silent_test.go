package up

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// TestLateResult: a job ends while its node is silent, and the node is given up. When the node is back, the records of
// that attempt say how it ended, in the queue and in accounting; the attempt that has begun elsewhere is not touched,
// and what the node's own launcher killed stays NODE_FAIL and says so.
func TestLateResult(t *testing.T) {
	t.Parallel()
	dir, work := filepath.Join(t.TempDir(), "late"), t.TempDir()
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 2, CPUs: 4, MemMiB: 1000})
	addConf(t, c, fenceConf)
	leased(t, c, "n1", 3)
	tellShim(t, dir, "n1")
	ended, end := filepath.Join(work, "ended"), filepath.Join(work, "end")
	wait := func(code int) string {
		return fmt.Sprintf("[ ${SLURM_RESTART_COUNT:-0} = 0 ] || exec sleep 600\nuntil [ -e %s ]; do sleep 0.02; done\n"+
			"echo $SLURM_JOB_ID >>%s\nexit %d\n", end, ended, code)
	}
	on := func(requeue bool) func(sp *model.Spec) {
		return func(sp *model.Spec) { sp.Requeue, sp.NoRequeue, sp.ExcNodes = requeue, !requeue, []string{"n2"} }
	}
	stays, again := submit(t, c, wait(7), on(false)), submit(t, c, wait(8), nil)
	killed := submit(t, c, "sleep 600\n", on(false))
	for _, id := range []model.JobID{stays, again, killed} {
		untilState(t, c, id, model.Running)
	}
	if n := job(t, c, again).Run.Alloc.NodeNames(); n[0] != "n1" {
		t.Fatalf("the job to requeue runs on %v", n)
	}
	n1 := gnodedOf(t, dir, "n1")
	if err := n1.signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n1.signal(syscall.SIGCONT) }) // it may have gone on
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "two jobs have ended", func() bool { return strings.Count(lines(t, ended), "\n") == 2 })
	untilState(t, c, stays, model.NodeFail)
	until(t, "the second attempt runs on n2", func() bool {
		j := job(t, c, again)
		return j.State == model.Running && j.Restarts == 1
	})
	gaveUp, before := job(t, c, stays).End.At, job(t, c, again)
	if err := n1.signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	untilState(t, c, stays, model.Failed)
	e := job(t, c, stays).End
	if e.Exit.Code != 7 || e.At >= gaveUp || !strings.Contains(e.Exit.Text, "known only after") {
		t.Errorf("the job that ended with 7 has the end %+v, was given up at %d", e, gaveUp)
	}
	if j := job(t, c, killed); j.State != model.NodeFail || j.End.At > gaveUp {
		t.Errorf("the job that was killed is %s, end %+v", j.State, j.End)
	}
	var first *model.Record
	until(t, "accounting has the true ends", func() bool {
		all := records(t, c)
		first = all[attemptOf{again, 1}]
		r := all[attemptOf{stays, 1}]
		return first != nil && first.State == model.Failed && r != nil && r.State == model.Failed && r.Exit.Code == 7
	})
	if first.Exit.Code != 8 || first.End >= gaveUp || first.FailedNode != "" {
		t.Errorf("the record of the first attempt has exit code %d, end %d, failed node %q", first.Exit.Code, first.End,
			first.FailedNode)
	}
	if j := job(t, c, again); j.State != model.Running || j.Attempt != before.Attempt || j.Run.Start != before.Run.Start {
		t.Errorf("the second attempt is %s since %d, attempt %d", j.State, j.Run.Start, j.Attempt)
	}
	cancel(t, c, again)
	untilState(t, c, again, model.Cancelled)
}

// TestNodeDaemonStopped: gnoded is stopped by SIGSTOP for longer than SlurmdTimeout, as by a virtual machine's pause,
// and continued. Its node is given up and its job runs elsewhere. When it answers again, the jobs that were given up
// are killed before the node gets work, an operator's resume lets it take jobs, and an order that waited in its socket
// is ignored.
func TestNodeDaemonStopped(t *testing.T) {
	t.Parallel()
	dir, work := filepath.Join(t.TempDir(), "stopped"), t.TempDir()
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 2, CPUs: 2, MemMiB: 1000})
	addConf(t, c, "SlurmdTimeout=2\nNodeHeartbeatInterval=1\nReturnToService=0\n")
	ledger := filepath.Join(work, "ledger")
	beat := fmt.Sprintf("while :; do echo $SLURMD_NODENAME ${SLURM_RESTART_COUNT:-0} >>%s; sleep 0.02; done\n", ledger)
	leased(t, c, "n1", 2)
	onN1 := func(sp *model.Spec) { sp.ReqNodes = []string{"n1"} }
	id := submit(t, c, beat, nil)
	until(t, "it runs on n1", func() bool { return strings.HasPrefix(lines(t, ledger), "n1 0\n") })

	n1 := gnodedOf(t, dir, "n1")
	if err := n1.signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n1.signal(syscall.SIGCONT) }) // it may have gone on
	held := submit(t, c, "echo ${SLURM_RESTART_COUNT:-0} >>"+filepath.Join(work, "held")+"\n", onN1)
	until(t, "n1 is given up", func() bool { return node(t, c, "n1").Link == model.LinkLost })
	until(t, "the job runs on n2", func() bool { return strings.Contains(lines(t, ledger), "n2 1\n") })
	if err := n1.signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	until(t, "n1 registers", func() bool { return node(t, c, "n1").Link == model.LinkUp })
	if n := node(t, c, "n1"); n.Admin != model.NodeDown {
		t.Errorf("n1 is %s after its return, with ReturnToService=0", n.BaseState())
	}
	resumeNode(t, c, "n1")
	// The job counts what is left of the attempt that was given up: it must find nothing, at no moment.
	check := submit(t, c, fmt.Sprintf("cp %s %[1]s.then; for i in $(seq 20); do sleep 0.02; done; cp %[1]s %[1]s.now\n",
		ledger), onN1)
	untilState(t, c, check, model.Completed)
	then, now := lines(t, ledger+".then"), lines(t, ledger+".now")
	if a, b := strings.Count(then, "n1 0\n"), strings.Count(now, "n1 0\n"); a != b {
		t.Errorf("the attempt that was given up wrote %d lines before n1 got other work, and %d more beside it", a, b-a)
	}
	if strings.Contains(now, "n1 1\n") || strings.Count(now, "n2 1\n") <= strings.Count(then, "n2 1\n") {
		t.Error("the job's second attempt should run on n2, and on n2 only")
	}
	untilState(t, c, held, model.Completed)
	if got := lines(t, filepath.Join(work, "held")); got != "1\n" {
		t.Errorf("the job that was ordered while gnoded was stopped ran as attempts %q, not as the second only", got)
	}
	cancel(t, c, id)
	untilState(t, c, id, model.Cancelled)
}

func lines(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b[:bytes.LastIndexByte(b, '\n')+1])
}

// addConf adds lines to gbatch.conf and has them taken over.
func addConf(t *testing.T, c *Cluster, text string) {
	t.Helper()
	path := filepath.Join(c.Dir, "gbatch.conf")
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(old)) {
		key, _, _ := strings.Cut(line, "=")
		if key == "" || !strings.Contains("\n"+text, "\n"+key+"=") {
			b.WriteString(line)
		}
	}
	if err := os.WriteFile(path, []byte(b.String()+text), 0o644); err != nil {
		t.Fatal(err)
	}
	setConfig(t, c)
}

// leased waits until a node counts by a SlurmdTimeout, and the controller knows: before, it counts by the old one.
func leased(t *testing.T, c *Cluster, name string, limitS int) {
	t.Helper()
	facts, want := filepath.Join(c.Dir, "state", "node-"+name, "fence.json"), fmt.Sprintf("\"LimitMS\": %d", limitS*1000)
	until(t, "the node has the new SlurmdTimeout", func() bool { return strings.Contains(lines(t, facts), want) })
	for range 2 { // the heartbeat that says so is the next, or the one after
		seen := nodeInfo(t, c, name).SeenAt
		until(t, "the node is heard", func() bool { return nodeInfo(t, c, name).SeenAt > seen })
	}
}

// gnodedOf gives the process of a node's daemon.
func gnodedOf(t *testing.T, dir, name string) process {
	t.Helper()
	return daemonOf(t, dir, RoleNode, name)
}

// daemonOf gives the process of a daemon; "" is any of its role.
func daemonOf(t *testing.T, dir, role, name string) process {
	t.Helper()
	for _, d := range status(t, dir).Daemons {
		if p, ok := processOf(d.PID); ok && d.Role == role && (name == "" || d.Name == name) {
			return p
		}
	}
	t.Fatalf("%s of %s does not run", role, name)
	return process{}
}

// node gives one node as the controller knows it.
func node(t *testing.T, c *Cluster, name string) *model.Node {
	t.Helper()
	return nodeInfo(t, c, name).Node
}

func nodeInfo(t *testing.T, c *Cluster, name string) *proto.NodeInfo {
	t.Helper()
	cl := client.New(filepath.Join(c.Dir, "run"))
	defer cl.Close()
	var found *proto.NodeInfo
	err := cl.Stream(proto.KindNodes, &proto.NodesRequest{}, func(body []byte) error {
		var chunk proto.NodesChunk
		if err := proto.Decode(body, &chunk); err != nil {
			return err
		}
		for i := range chunk.Nodes {
			if chunk.Nodes[i].Node.Def.Name == name {
				found = chunk.Nodes[i]
			}
		}
		return nil
	})
	if err != nil || found == nil {
		t.Fatalf("node %s: %v", name, err)
	}
	return found
}

// resumeNode is gcontrol update nodename= state=resume.
func resumeNode(t *testing.T, c *Cluster, name string) {
	t.Helper()
	setNode(t, c, name, "resume")
}

// setNode is gcontrol update nodename= state= reason=.
func setNode(t *testing.T, c *Cluster, name, state string) {
	t.Helper()
	set := []model.KV{{Key: "state", Value: state}}
	if state != "resume" {
		set = append(set, model.KV{Key: "reason", Value: "tested"})
	}
	cl := client.New(filepath.Join(c.Dir, "run"))
	defer cl.Close()
	if err := cl.Call(proto.KindUpdateNode,
		&proto.UpdateNodeRequest{Names: []string{name}, Set: set}, &proto.Empty{}); err != nil {
		t.Fatal(err)
	}
}

// cancel is gcancel.
func cancel(t *testing.T, c *Cluster, id model.JobID) {
	t.Helper()
	cl := client.New(filepath.Join(c.Dir, "run"))
	defer cl.Close()
	var reply proto.TargetsReply
	if err := cl.Call(proto.KindCancel, &proto.CancelRequest{Targets: []model.JobRef{{Job: id, Task: model.NoTask}}},
		&reply); err != nil {
		t.Fatal(err)
	}
}
