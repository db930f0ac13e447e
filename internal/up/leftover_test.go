package up

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/cgroup"
)

// TestEldestLauncher: what gshim has forked for a job, and has not executed its program yet, is not taken for gshim.
func TestEldestLauncher(t *testing.T) {
	dir := t.TempDir()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", "exec 3<&0; (read x <&3) & (read x <&3) & wait", "-dir", dir)
	cmd.Args[0], cmd.Stdin = "gshim", r
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = w.Close(), r.Close() // its children read the end, and it ends with them
		_ = cmd.Wait()
	})
	until(t, "three processes look like gshim", func() bool {
		all, err := launchers()
		return err == nil && len(all[dir]) == 3
	})
	for range 20 { // they come in any order
		all, err := launchers()
		if err != nil {
			t.Fatal(err)
		}
		if p := eldest(all[dir]); p.PID != cmd.Process.Pid {
			t.Fatalf("%d is taken for gshim, which is %d", p.PID, cmd.Process.Pid)
		}
	}
	if p := eldest(nil); p != (process{}) {
		t.Errorf("%v comes out of nothing", p)
	}
}

// TestDownLeavesNothing: `gbatch down` ends all processes of jobs: steps, the commands that run them, processes in
// sessions of their own, also of a script that has ended, those without an environment, and a prolog.
func TestDownLeavesNothing(t *testing.T) {
	dir, work := filepath.Join(t.TempDir(), "leftover"), t.TempDir()
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 2, CPUs: 8, MemMiB: 8000})
	prolog := filepath.Join(work, "prolog")
	if err := os.WriteFile(prolog,
		[]byte("#!/bin/sh\ntest -e "+work+"/slow || exit 0\ntouch "+work+"/in.prolog\nsleep 91951\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	grun := filepath.Join(work, "grun")
	if err := os.Symlink(filepath.Join(programs(t), "gcli"), grun); err != nil {
		t.Fatal(err)
	}
	addConf(t, c, "Prolog="+prolog+"\nKillWait=60\n")
	env := "export GBATCH_CONF=" + filepath.Join(dir, "gbatch.conf") + "\ncd " + work + "\n"
	deaf := `trap "" TERM INT HUP; `
	for i, script := range []string{
		fmt.Sprintf("for i in 1 2 3; do ./grun --overlap -n1 sh -c '%s touch in.0.'$i'; while :; do sleep 91951; "+
			"done' & done; wait\n", deaf),
		deaf + "setsid sh -c 'touch in.1; exec sleep 91951' </dev/null >/dev/null 2>&1 &\nwhile :; do sleep 91951; done\n",
		"setsid env -i sh -c 'trap \"\" TERM; touch " + work +
			"/in.2; while :; do /bin/sleep 91951; done' </dev/null >/dev/null 2>&1 &\nsleep 91951\n",
		"./grun -N2 -n2 sh -c '" + deaf + "touch in.3.$SLURM_PROCID; while :; do sleep 91951; done'\n",
	} {
		submit(t, c, env+script, func(sp *model.Spec) {
			if i == 3 {
				sp.MinNodes, sp.MaxNodes = 2, 2
			}
		})
	}
	for _, name := range []string{"in.0.1", "in.0.2", "in.0.3", "in.1", "in.2", "in.3.0", "in.3.1"} {
		until(t, name, func() bool { return exists(filepath.Join(work, name)) })
	}
	// One is suspended with its step; others are cancelled while their steps are being made.
	frozen := submit(t, c, env+"./grun --overlap -n1 sh -c 'touch in.4; while :; do sleep 91951; done' & wait\n", nil)
	until(t, "the step to suspend runs", func() bool { return exists(filepath.Join(work, "in.4")) })
	untilState(t, c, frozen, model.Running) // its processes run before the controller knows
	suspend(t, c, frozen)
	untilState(t, c, frozen, model.Suspended)
	for i := range 24 { // the moments of a script's first milliseconds
		many := submit(t, c, env+"./grun --overlap -n1 sleep 91951\n", nil)
		time.Sleep(time.Duration(i%12) * 3 * time.Millisecond)
		cancel(t, c, many)
	}
	if err := os.WriteFile(filepath.Join(work, "slow"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	submit(t, c, "true\n", nil)
	until(t, "the prolog runs", func() bool { return exists(filepath.Join(work, "in.prolog")) })
	down(t, dir)
	var groups []string
	for _, n := range []string{"n1", "n2"} {
		groups = append(groups, cgroup.Place(n, filepath.Join(dir, "state", "node-"+n)))
	}
	left, err := layout(dir).leftovers(groups, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range left {
		t.Errorf("process %s of a job is left", p.text)
	}
	all, err := commands()
	if err != nil {
		t.Fatal(err)
	}
	for p, argv := range all {
		if line := strings.Join(argv, " "); strings.Contains(line, "91951") || strings.Contains(line, work) {
			t.Errorf("process %d (%s) is left", p.PID, line)
		}
	}
}

// suspend is gcontrol suspend.
func suspend(t *testing.T, c *Cluster, id model.JobID) {
	t.Helper()
	cl := client.New(filepath.Join(c.Dir, "run"))
	defer cl.Close()
	var reply proto.TargetsReply
	rq := &proto.UpdateJobRequest{Action: proto.ActSuspend, Targets: []model.JobRef{{Job: id, Task: model.NoTask}}}
	if err := cl.Call(proto.KindUpdateJob, rq, &reply); err != nil {
		t.Fatal(err)
	}
	if err := allOK(&reply, 1); err != nil {
		t.Fatal(err)
	}
}
