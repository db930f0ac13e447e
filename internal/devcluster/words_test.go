package devcluster_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"gbatch/internal/devcluster"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// The words that sessions have beside testscript's own:
//
//	cluster [nodes=2] [cpus=4] [mem=4000] [gres=gpu:a100:4] [gresconf=FILE] [controllers=1]
//	        [dbd=no] [conf=FILE] [node=FILE] [partitions=FILE] [networks=yes]
//	                     starts the session's cluster; GBATCH_CONF, CLUSTER (its directory) and PATH are set
//	rc N COMMAND...      runs a command whose exit code must be N
//	jobid NAME           the first number in the last command's output becomes $NAME
//	until JOB STATE      waits until the job (or JOB_TASK; an array: all of it) is in a state: PD R CD F ...
//	[!] until-output PATTERN COMMAND...   runs the command until its output matches (or doesn't)
//	until-file FILE      waits until a file is there
//	[!] nobody COMMAND...   runs a command as the user nobody; only behind [root]
//	daemon stop|start NAME  a node's name, dbd or ctld-ctl1; all is every one of them
//	daemon add NAME      starts a node that gbatch.conf has been given meanwhile
//	network hold|deliver NODE   keeps back all that passes between a node and the controllers, or lets it pass
//	leader NAME          the daemon that leads becomes $NAME
//	[!] gbatch ARGUMENT...  runs the command gbatch
//	registry             starts a registry of images; $IMAGE is the name of the one that it has
//
// $SAMPLES and $TEN are configurations of package conf's tests: Slurm's own, and one full of errors; $EXAMPLES has
// etc/examples.
//
// $ME, $MYUID, $MYGID and $MYGROUP are who runs the session: root or not.
//
// Jobs that must run until the session says so wait for a file: `wait-for go` in their script returns when
// $WORK/go is there, and gives up after a minute, so that a failed session leaves nothing behind.
func words() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"cluster":      startCluster,
		"rc":           wantCode,
		"jobid":        jobID,
		"until":        untilState,
		"until-output": untilOutput,
		"until-file":   untilFile,
		"nobody":       asNobody,
		"daemon":       oneDaemon,
		"leader":       leader,
		"network":      network,
		"gbatch":       runGbatch,
		"registry":     startRegistry,
	}
}

const (
	waitMost = 30 * time.Second
	nobody   = "65534"

	lookAt    = 10 * time.Millisecond // the pace of looking, not the thing waited for
	lookLeast = 200 * time.Millisecond
)

type (
	clusterKey struct{}
	testKey    struct{}
)

// waitForScript is put into each session's PATH for its jobs.
const waitForScript = `#!/bin/sh
i=0
while [ ! -e "$1" ] && [ $i -lt 300 ]; do
	if [ $i -lt 8 ]; then sleep 0.05; else sleep 0.2; fi
	i=$((i+1))
done
`

func setup(e *testscript.Env) error {
	tb, ok := e.T().(testing.TB)
	if !ok {
		return errors.New("testscript's T is no testing.TB any more")
	}
	e.Values[testKey{}] = tb
	e.Values[clusterKey{}] = new(*devcluster.Cluster)
	e.Setenv("TZ", "UTC")
	me, err := user.Current()
	if err != nil {
		return err
	}
	group, err := user.LookupGroupId(me.Gid)
	if err != nil {
		return err
	}
	e.Setenv("USER", me.Username)
	e.Setenv("ME", me.Username)
	e.Setenv("MYUID", me.Uid)
	e.Setenv("MYGID", me.Gid)
	e.Setenv("MYGROUP", group.Name)
	e.Setenv("HOME", "/")
	for name, dir := range map[string]string{"SAMPLES": "conf/testdata/samples", "TEN": "conf/testdata/ten",
		"SLURM":    "migrate/testdata",
		"EXAMPLES": "../etc/examples"} {
		full, err := filepath.Abs(filepath.Join("..", dir))
		if err != nil {
			return err
		}
		e.Setenv(name, full)
	}
	bin := filepath.Join(e.WorkDir, ".bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(bin, "wait-for"), []byte(waitForScript), 0o755); err != nil {
		return err
	}
	// Jobs of other users work here too.
	if err := os.Chmod(e.WorkDir, 0o755); err != nil {
		return err
	}
	return os.Chmod(filepath.Dir(e.WorkDir), 0o755)
}

func cluster(ts *testscript.TestScript) *devcluster.Cluster {
	c, ok := ts.Value(clusterKey{}).(**devcluster.Cluster)
	if !ok || *c == nil {
		ts.Fatalf("the session has no cluster yet: begin with the word cluster")
	}
	return *c
}

func startCluster(ts *testscript.TestScript, _ bool, args []string) {
	o := devcluster.Options{}
	for _, a := range args {
		k, v, _ := strings.Cut(a, "=")
		n, _ := strconv.Atoi(v) // 0 for words: the default
		switch k {
		case "nodes":
			o.Nodes = n
		case "cpus":
			o.CPUs = n
		case "mem":
			o.MemMiB = n
		case "gres":
			o.Gres = v
		case "gresconf":
			o.GresConf = ts.ReadFile(v)
		case "controllers":
			o.Controllers = n
		case "real":
			o.Real = v == "yes"
		case "networks":
			o.Networks = v == "yes"
		case "samples":
			o.Samples = time.Duration(n) * time.Millisecond
		case "dbd":
			o.NoDbd = v == "no"
		case "conf":
			o.Conf = ts.ReadFile(v)
		case "node":
			o.NodeLine = ts.ReadFile(v)
		case "partitions":
			o.Partitions = ts.ReadFile(v)
		default:
			ts.Fatalf("cluster: unknown word %s", a)
		}
	}
	tb := ts.Value(testKey{}).(testing.TB)
	c := devcluster.Start(tb, o)
	*(ts.Value(clusterKey{}).(**devcluster.Cluster)) = c
	ts.Setenv("GBATCH_CONF", c.Conf)
	ts.Setenv("CLUSTER", c.Dir)
	list := string(os.PathListSeparator)
	ts.Setenv("PATH", devcluster.Commands(tb)+list+ts.MkAbs(".bin")+list+os.Getenv("PATH"))
}

func wantCode(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: rc N COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	switch err := ts.Exec(args[1], args[2:]...); {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func jobID(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: jobid NAME")
	}
	for _, w := range strings.Fields(ts.ReadFile("stdout")) {
		if _, err := strconv.Atoi(w); err == nil {
			ts.Setenv(args[0], w)
			return
		}
	}
	ts.Fatalf("no job id in %q", ts.ReadFile("stdout"))
}

func untilOutput(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: until-output PATTERN COMMAND...")
	}
	re, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	for deadline := time.Now().Add(waitMost); ; {
		begun := time.Now()
		_ = ts.Exec(args[1], args[2:]...) // its exit code may be part of what is waited for
		if re.MatchString(ts.ReadFile("stdout")+ts.ReadFile("stderr")) != neg {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("waited %v for %q", waitMost, args[0])
		}
		// Starting programs is most of what sessions cost: a wait takes a quarter of a CPU at most.
		time.Sleep(min(max(lookAt, 3*time.Since(begun)), lookLeast))
	}
}

func untilFile(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: until-file FILE")
	}
	path := ts.MkAbs(args[0])
	for deadline := time.Now().Add(waitMost); ; time.Sleep(lookAt) {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("waited %v for the file %s", waitMost, args[0])
		}
	}
}

func asNobody(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: nobody COMMAND...")
	}
	err := ts.Exec("setpriv",
		append([]string{"--reuid=" + nobody, "--regid=" + nobody, "--clear-groups", "--"}, args...)...)
	if neg != (err != nil) {
		ts.Fatalf("as nobody: %v", err)
	}
}

func oneDaemon(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: daemon stop|start|add|reboot|powerloss|kill-shim|upgrade-shim NAME")
	}
	c := cluster(ts)
	names := args[1:]
	if args[1] == "all" {
		names = c.Daemons()
	}
	for _, name := range names {
		switch args[0] {
		case "stop":
			c.StopDaemon(name)
		case "start":
			c.StartDaemon(name)
		case "add":
			c.AddNode(name)
		case "reboot":
			c.Reboot(name, false)
		case "powerloss":
			c.Reboot(name, true)
		case "kill-shim":
			c.KillShim(name)
		case "upgrade-shim":
			c.UpgradeShim(name)
		default:
			ts.Fatalf("usage: daemon stop|start|add|reboot|powerloss|kill-shim|upgrade-shim NAME")
		}
	}
}

func runGbatch(ts *testscript.TestScript, neg bool, args []string) {
	tb := ts.Value(testKey{}).(testing.TB)
	if err := ts.Exec(devcluster.Gbatch(tb), args...); neg != (err != nil) {
		ts.Fatalf("gbatch: %v", err)
	}
}

func network(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 || args[0] != "hold" && args[0] != "deliver" {
		ts.Fatalf("usage: network hold|deliver NODE")
	}
	cluster(ts).HoldNetwork(args[1], args[0] == "hold")
}

// leader waits until a controller leads.
func leader(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: leader NAME")
	}
	c := cluster(ts)
	c.Wait("a controller to lead", func() error {
		cl := c.Client()
		defer cl.Close()
		var p proto.PingReply
		if err := cl.Call(proto.KindPing, &proto.Empty{}, &p); err != nil {
			return err
		}
		for _, ctl := range p.Controllers {
			if ctl.Leader && ctl.Up {
				ts.Setenv(args[0], "ctld-"+ctl.Name)
				return nil
			}
		}
		return errors.New("none leads")
	})
}

func untilState(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: until JOB STATE")
	}
	ref, err := reference(args[0])
	ts.Check(err)
	want, ok := model.ParseJobState(args[1])
	if !ok {
		ts.Fatalf("%s is no state", args[1])
	}
	cl := cluster(ts).Client()
	defer cl.Close()
	for deadline := time.Now().Add(waitMost); ; time.Sleep(lookAt) {
		all, last := true, ""
		err := cl.Stream(proto.KindJobs, &proto.JobsRequest{Filter: proto.JobFilter{Jobs: []model.JobRef{ref}}},
			func(body []byte) error {
				var chunk proto.JobsChunk
				if err := proto.Decode(body, &chunk); err != nil {
					return err
				}
				for _, j := range chunk.Jobs {
					all = all && j.State == want
					last += fmt.Sprintf("%s %s %s\n", j.State, j.Reason, j.Why)
				}
				return nil
			})
		if err == nil && last != "" && all {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("waited %v for job %s to be %s; it is %s (%v)", waitMost, args[0], want, last, err)
		}
	}
}

func reference(job string) (model.JobRef, error) {
	if id, part, ok := strings.Cut(job, "+"); ok {
		ref, err := reference(id)
		n, perr := strconv.Atoi(part)
		ref.Het = 1 + int32(n)
		return ref, errors.Join(err, perr)
	}
	idText, taskText, hasTask := strings.Cut(job, "_")
	id, err := strconv.ParseUint(idText, 10, 32)
	if err != nil {
		return model.JobRef{}, fmt.Errorf("%q is no job", job)
	}
	ref := model.JobRef{Job: model.JobID(id), Task: model.NoTask}
	if hasTask {
		n, err := strconv.ParseInt(taskText, 10, 32)
		if err != nil {
			return ref, fmt.Errorf("%q is no task", job)
		}
		ref.Task = int32(n)
	}
	return ref, nil
}
