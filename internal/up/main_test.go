package up

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// These tests run the real daemons: they are built once, as `make build` does but for NVML.

func TestMain(m *testing.M) {
	rc := m.Run()
	if dir := built.dir; dir != "" {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(rc)
}

var built struct {
	once sync.Once
	dir  string
	err  error
}

// programs gives the directory of the daemons' programs.
func programs(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if _, built.err = exec.LookPath("go"); built.err != nil {
			return
		}
		if built.dir, built.err = os.MkdirTemp("", "gbatch-up-bin-"); built.err != nil {
			return
		}
		if built.err = os.Chmod(built.dir, 0o755); built.err != nil { // another user runs them too
			return
		}
		cmd := exec.Command("go", "build", "-o", built.dir, "gbatch/cmd/gctld", "gbatch/cmd/gnoded", "gbatch/cmd/gdbd",
			"gbatch/cmd/gshim", "gbatch/cmd/gbatch", "gbatch/cmd/gcli")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if built.dir == "" {
		t.Skipf("skipped: the daemons can't be built without the go command: %v", built.err)
	}
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.dir
}

// said collects what is printed.
type said struct {
	mu sync.Mutex
	b  bytes.Buffer
	t  *testing.T
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.t.Logf("%s > %s", time.Now().Format("05.000"), bytes.TrimRight(p, "\n"))
	return s.b.Write(p)
}

func (s *said) has(t *testing.T, words ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range words {
		if !strings.Contains(s.b.String(), w) {
			t.Errorf("the output lacks %q:\n%s", w, s.b.String())
		}
	}
}

// tryUp brings a cluster up; the test's end takes it down.
func tryUp(t *testing.T, o Options) (*Cluster, *said, error) {
	t.Helper()
	o.Bin = cmp.Or(o.Bin, programs(t))
	out := &said{t: t}
	o.Out = out
	t.Cleanup(func() {
		if _, err := os.Stat(filepath.Join(o.Dir, "up.json")); err != nil {
			return
		}
		if err := Down(context.Background(), o.Dir, o.Bin, &said{t: t}); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	c, err := Up(t.Context(), o)
	return c, out, err
}

func mustUp(t *testing.T, o Options) (*Cluster, *said) {
	t.Helper()
	c, out, err := tryUp(t, o)
	if err != nil {
		t.Fatal(err)
	}
	return c, out
}

func down(t *testing.T, dir string) *said {
	t.Helper()
	out := &said{t: t}
	if err := Down(t.Context(), dir, programs(t), out); err != nil {
		t.Fatal(err)
	}
	return out
}

func status(t *testing.T, dir string) *Status {
	t.Helper()
	st, err := Look(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// typed runs lines of commands in a directory, and gives what they print. The names are those of commands of users.
func typed(t *testing.T, c *Cluster, work string, names ...string) func(line string) string {
	t.Helper()
	bin := t.TempDir()
	for _, name := range names {
		if err := os.Symlink(filepath.Join(programs(t), "gcli"), filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	path := bin + ":" + programs(t)
	return func(line string) string {
		t.Helper()
		words := strings.Fields(line)
		program := filepath.Join(bin, words[0])
		if words[0] == "gbatch" {
			program = filepath.Join(programs(t), words[0])
		}
		cmd := exec.CommandContext(t.Context(), program, words[1:]...)
		cmd.Env = append(os.Environ(), "GBATCH_CONF="+c.Conf, "PATH="+path+":"+os.Getenv("PATH"))
		cmd.Dir = work
		out, err := cmd.CombinedOutput()
		if err != nil && len(out) == 0 {
			t.Fatalf("%s: %v", line, err)
		}
		return string(out)
	}
}

// submit submits a script that prints nothing.
func submit(t *testing.T, c *Cluster, script string, change func(*model.Spec)) model.JobID {
	t.Helper()
	sp := specOf(t, change)
	cl := client.New(filepath.Join(c.Dir, "run"))
	defer cl.Close()
	var reply proto.SubmitReply
	rq := &proto.SubmitRequest{RequestID: strconv.FormatInt(time.Now().UnixNano(), 36), Spec: sp,
		Script: []byte("#!/bin/sh\n" + script), Env: []byte("PATH=/usr/bin:/bin\x00")}
	if err := cl.Call(proto.KindSubmit, rq, &reply); err != nil {
		t.Fatal(err)
	}
	return reply.Job
}

// specOf gives a small job.
func specOf(t *testing.T, change func(*model.Spec)) *model.Spec {
	t.Helper()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	sp := &model.Spec{Name: "test", UID: uint32(os.Getuid()), User: me.Username, WorkDir: t.TempDir(), StdOut: "/dev/null",
		Umask:    0o22,
		MinNodes: 1, MaxNodes: 1, LimitS: model.NotSet, Requeue: true, Command: "test.sh"}
	if change != nil {
		change(sp)
	}
	return sp
}

// job gives one job as the controller knows it.
func job(t *testing.T, c *Cluster, id model.JobID) *model.Job {
	t.Helper()
	cl := client.New(filepath.Join(c.Dir, "run"))
	defer cl.Close()
	var found *model.Job
	rq := &proto.JobsRequest{Filter: proto.JobFilter{Jobs: []model.JobRef{{Job: id, Task: model.NoTask}}}}
	err := cl.Stream(proto.KindJobs, rq, func(body []byte) error {
		var chunk proto.JobsChunk
		if err := proto.Decode(body, &chunk); err != nil {
			return err
		}
		for _, j := range chunk.Jobs {
			found = j
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	const patience = 30 * time.Second
	for end := time.Now().Add(patience); ; {
		begun := time.Now()
		if ok() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		// The pace of looking; a look that asks all daemons takes a third of a CPU at most.
		time.Sleep(min(max(10*time.Millisecond, 2*time.Since(begun)), 200*time.Millisecond))
	}
}

func untilState(t *testing.T, c *Cluster, id model.JobID, want model.JobState) {
	t.Helper()
	until(t, fmt.Sprintf("job %d is %v", id, want), func() bool {
		j := job(t, c, id)
		return j != nil && j.State == want
	})
}

// setConfig is gcontrol reconfigure.
func setConfig(t *testing.T, c *Cluster) {
	t.Helper()
	cl := client.New(filepath.Join(c.Dir, "run"))
	defer cl.Close()
	var reply proto.ReconfigureReply
	if err := cl.Call(proto.KindReconfigure, &proto.ReconfigureRequest{}, &reply); err != nil {
		t.Fatal(err)
	}
	if !reply.Applied {
		t.Fatalf("not reconfigured: %+v", reply.Problems)
	}
}
