package devcluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"gbatch/internal/devcluster"
	"gbatch/internal/golden"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

func TestMain(m *testing.M) {
	rc := m.Run()
	devcluster.RemoveBinaries()
	os.Exit(rc)
}

// TestScripts runs the sessions in testdata/script: commands as real processes against a cluster of their own each.
// Beside testscript's own words there are:
//
//	cluster [nodes=2] [cpus=4] [mem=4000] [gres=gpu:a100:4] [controllers=1] [dbd=no] [conf=FILE] [partitions=FILE]
//	    starts the session's cluster; GBATCH_CONF and PATH are set
//	jobid NAME           the number in the last command's output becomes $NAME
//	until JOB STATE      waits until the job (or JOB_TASK) is in a state, PD R CD F ...
//	until-output PATTERN COMMAND...   runs the command until its output matches
//	stop DAEMON, start DAEMON         a node's name, dbd, ctld-ctl1
func TestScripts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("not root: sessions that need another user's jobs skip those")
	}
	type key struct{}
	type tbKey struct{}
	cluster := func(ts *testscript.TestScript) *devcluster.Cluster {
		c, ok := ts.Value(key{}).(**devcluster.Cluster)
		if !ok || *c == nil {
			ts.Fatalf("the session has no cluster yet: begin with the word cluster")
		}
		return *c
	}
	testscript.Run(t, testscript.Params{
		Dir:           filepath.Join("testdata", "script"),
		UpdateScripts: golden.Rewriting(),
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Getuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %s", cond)
		},
		Setup: func(e *testscript.Env) error {
			tb, ok := e.T().(testing.TB)
			if !ok {
				return fmt.Errorf("testscript's T is no testing.TB any more")
			}
			e.Values[tbKey{}] = tb
			e.Values[key{}] = new(*devcluster.Cluster)
			e.Setenv("TZ", "UTC")
			e.Setenv("USER", "root")
			if err := os.Chmod(e.WorkDir, 0o755); err != nil {
				return err
			}
			return os.Chmod(filepath.Dir(e.WorkDir), 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"cluster": func(ts *testscript.TestScript, _ bool, args []string) {
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
					case "controllers":
						o.Controllers = n
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
				tt := ts.Value(tbKey{}).(testing.TB)
				c := devcluster.Start(tt, o)
				*(ts.Value(key{}).(**devcluster.Cluster)) = c
				ts.Setenv("GBATCH_CONF", c.Conf)
				ts.Setenv("CLUSTER", c.Dir)
				ts.Setenv("PATH", devcluster.Commands(tt)+string(os.PathListSeparator)+os.Getenv("PATH"))
			},
			"jobid": func(ts *testscript.TestScript, _ bool, args []string) {
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
			},
			"until": func(ts *testscript.TestScript, _ bool, args []string) {
				if len(args) != 2 {
					ts.Fatalf("usage: until JOB STATE")
				}
				until(ts, cluster(ts), args[0], args[1])
			},
			"until-output": func(ts *testscript.TestScript, neg bool, args []string) {
				if len(args) < 2 {
					ts.Fatalf("usage: until-output PATTERN COMMAND...")
				}
				re, err := regexp.Compile(args[0])
				ts.Check(err)
				deadline := time.Now().Add(20 * time.Second)
				for {
					_ = ts.Exec(args[1], args[2:]...) // its exit code may be part of what is waited for
					if re.MatchString(ts.ReadFile("stdout")+ts.ReadFile("stderr")) != neg {
						return
					}
					if time.Now().After(deadline) {
						ts.Fatalf("waited 20 s for %q", args[0])
					}
					time.Sleep(30 * time.Millisecond) // the pace of looking
				}
			},
			"stop":  func(ts *testscript.TestScript, _ bool, args []string) { cluster(ts).StopDaemon(args[0]) },
			"start": func(ts *testscript.TestScript, _ bool, args []string) { cluster(ts).StartDaemon(args[0]) },
		},
	})
}

// until waits until a job is in a state.
func until(ts *testscript.TestScript, c *devcluster.Cluster, job, state string) {
	want, ok := model.ParseJobState(state)
	if !ok {
		ts.Fatalf("%s is no state", state)
	}
	idText, taskText, hasTask := strings.Cut(job, "_")
	id, err := strconv.Atoi(idText)
	if err != nil {
		ts.Fatalf("%s is no job", job)
	}
	ref := proto.JobRef{Job: model.JobID(id), Task: model.NoTask}
	if hasTask {
		n, err := strconv.Atoi(taskText)
		if err != nil {
			ts.Fatalf("%s is no task", job)
		}
		ref.Task = int32(n)
	}
	cl := c.Client()
	defer cl.Close()
	last := "unknown"
	deadline := time.Now().Add(30 * time.Second)
	for {
		all, n := true, 0
		err := cl.Stream(proto.KindJobs, &proto.JobsRequest{Filter: proto.JobFilter{Jobs: []proto.JobRef{ref}}}, func(body []byte) error {
			var chunk proto.JobsChunk
			if err := proto.Decode(body, &chunk); err != nil {
				return err
			}
			for _, j := range chunk.Jobs {
				n++
				all = all && j.State == want
				last = j.State.String() + " " + j.Reason.String() + " " + j.Why
			}
			return nil
		})
		if err == nil && n > 0 && all {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("waited 30 s for job %s to be %s; it is %s (%v)", job, want, last, err)
		}
		time.Sleep(10 * time.Millisecond) // the pace of looking
	}
}
