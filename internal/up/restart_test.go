package up

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
)

// TestRestartWithManyJobs: a controller that is killed with many jobs of scripts and environments of their own has all
// of them again, and gives the next number. With $GBATCH_RESTART jobs (100,000 is the goal's number: under 3 s) it
// prints how long three restarts took, from the start of the process to the first answer as the leader.
func TestRestartWithManyJobs(t *testing.T) {
	t.Parallel()
	jobs, err := strconv.Atoi(os.Getenv("GBATCH_RESTART"))
	measuring := err == nil
	if !measuring {
		jobs = 1500
	}
	dir := filepath.Join(t.TempDir(), "many")
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 1, CPUs: 2, MemMiB: 500, Controllers: 1})
	addConf(t, c, "MaxJobCount=1000000\n")
	setConfig(t, c)
	last := submitMany(t, c, jobs)
	for range 3 {
		p := daemonOf(t, dir, RoleController, "ctl1")
		if err := p.signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		gone([]process{p}, 10*time.Second)
		answered := make(chan time.Time, 1)
		go func() { answered <- firstAnswer(dir) }()
		begin := time.Now()
		mustUp(t, Options{Dir: dir})
		at := <-answered
		if at.IsZero() {
			t.Fatal("no controller answers")
		}
		if measuring {
			fmt.Printf("%d jobs: the first answer after %.2f s; %.2f s of CPU by now\n", jobs, at.Sub(begin).Seconds(),
				cpuOf(t, daemonOf(t, dir, RoleController, "ctl1")).Seconds())
		}
		if n := countJobs(t, c); n != jobs {
			t.Fatalf("%d of %d jobs are there after a restart", n, jobs)
		}
	}
	if next := submitMany(t, c, 1); next != last+1 {
		t.Errorf("the job after %d is %d", last, next)
	}
}

// cpuOf is the CPU time of a process.
func cpuOf(t *testing.T, p process) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	user, err1 := strconv.Atoi(f[11])
	system, err2 := strconv.Atoi(f[12])
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond // in ticks of a hundredth of a second
}

// submitMany submits held jobs, each with a script and an environment of its own, and gives the highest number.
func submitMany(t *testing.T, c *Cluster, n int) model.JobID {
	t.Helper()
	var next atomic.Int64
	var mu sync.Mutex
	var last model.JobID
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			cl := client.New(filepath.Join(c.Dir, "run"))
			defer cl.Close()
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				rq := &proto.SubmitRequest{RequestID: fmt.Sprint(time.Now().UnixNano(), "-", i), Spec: &model.Spec{
					Name: fmt.Sprint("train-", i), WorkDir: "/tmp", StdOut: "/dev/null",
					Umask: 0o22, MinNodes: 1, MaxNodes: 1, LimitS: 3600, Command: fmt.Sprintf("run-%d.sh", i), HoldReq: true},
					Script: fmt.Appendf(nil, "#!/bin/sh\n# %d\n%s", i, strings.Repeat("python train.py --epochs 10\n", 20)),
					Env:    fmt.Appendf(nil, "PATH=/usr/bin:/bin\x00RUN=%d\x00%s\x00", i, "LONG="+strings.Repeat("x", 1000))}
				var reply proto.SubmitReply
				if err := cl.Call(proto.KindSubmit, rq, &reply); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				last = max(last, reply.Job)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return last
}

// firstAnswer gives the moment at which a controller answers as the leader; zero: none did for a minute.
func firstAnswer(dir string) time.Time {
	cl := client.New(filepath.Join(dir, "run"))
	defer cl.Close()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var reply proto.PingReply
		if cl.Call(proto.KindPing, &proto.Empty{}, &reply) == nil && reply.Leader != "" {
			return time.Now()
		}
	}
	return time.Time{}
}

func countJobs(t *testing.T, c *Cluster) (n int) {
	t.Helper()
	cl := client.New(filepath.Join(c.Dir, "run"))
	defer cl.Close()
	if err := cl.Stream(proto.KindJobs, &proto.JobsRequest{}, func(part []byte) error {
		var chunk proto.JobsChunk
		if err := proto.Decode(part, &chunk); err != nil {
			return err
		}
		n += len(chunk.Jobs)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}
