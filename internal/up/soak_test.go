package up

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// TestSoak: real daemons are killed at random while jobs are submitted and run, for as long as $GBATCH_SOAK says (`make
// soak`). Every job number that was printed is accounted exactly once, and no job runs twice.
func TestSoak(t *testing.T) {
	limit, err := time.ParseDuration(os.Getenv("GBATCH_SOAK"))
	if err != nil {
		t.Skip("skipped: takes as long as $GBATCH_SOAK says, such as 10m; `make soak` sets it")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	dir := filepath.Join(t.TempDir(), "soak")
	ran := filepath.Join(t.TempDir(), "ran")
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 2, CPUs: 16, MemMiB: 16000, Controllers: 3})
	setQuiet(t, c)

	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	var mu sync.Mutex
	ids := map[model.JobID]int{} // how often each was given out
	var submitters sync.WaitGroup
	for range 2 {
		submitters.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				script := []string{"true", "exit 3", "sleep 0.2", "kill -9 $$"}[n%4]
				id := soakSubmit(t, c, fmt.Sprintf("echo $SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0} >> %s\n%s\n", ran, script))
				mu.Lock()
				ids[id]++
				mu.Unlock()
			}
		})
	}
	kills := map[string]int{}
	for ctx.Err() == nil {
		pause(ctx, time.Duration(200+dice.IntN(1500))*time.Millisecond)
		st := status(t, dir)
		d := st.Daemons[dice.IntN(len(st.Daemons))]
		pid, what := d.PID, d.Role
		if d.Shim != 0 && dice.IntN(4) == 0 {
			pid, what = d.Shim, "gshim"
		}
		if p, ok := processOf(pid); ok {
			kills[what]++
			if err := p.signal(syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
		pause(ctx, time.Duration(dice.IntN(500))*time.Millisecond)
		if _, _, err := tryUp(t, Options{Dir: dir}); err != nil {
			t.Fatalf("after the end of %s %s: %v", what, d.Name, err)
		}
	}
	submitters.Wait()
	t.Logf("%d jobs; killed: %v", len(ids), kills)
	for id, n := range ids {
		if n != 1 {
			t.Errorf("job number %d was given out %d times", id, n)
		}
	}
	soakCheck(t, c, ids, ran)
}

// setQuiet keeps finished jobs out of the controllers' memory after a while, as in a cluster that runs for long.
func setQuiet(t *testing.T, c *Cluster) {
	t.Helper()
	f, err := os.OpenFile(c.Conf, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("MinJobAge=30\nMaxJobCount=1000000\nKillWait=2\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	setConfig(t, c)
}

// soakSubmit submits until it is sure of the job's number: repeated with the same RequestID that is the same job.
func soakSubmit(t *testing.T, c *Cluster, script string) model.JobID {
	me, err := user.Current()
	if err != nil {
		t.Error(err)
		return 0
	}
	sp := &model.Spec{Name: "soak", UID: uint32(os.Getuid()), User: me.Username, WorkDir: "/tmp", StdOut: "/dev/null",
		Umask:    0o22,
		MinNodes: 1, MaxNodes: 1, LimitS: model.NotSet, MemPerNode: 100, Requeue: true, Command: "soak.sh"}
	rq := &proto.SubmitRequest{RequestID: strconv.FormatUint(rand.Uint64(), 36), Spec: sp,
		Script: []byte("#!/bin/sh\n" + script), Env: []byte("PATH=/usr/bin:/bin\x00")}
	for begin := time.Now(); ; {
		cl := client.New(filepath.Join(c.Dir, "run"))
		var reply proto.SubmitReply
		err := cl.Call(proto.KindSubmit, rq, &reply)
		cl.Close()
		if err == nil {
			return reply.Job
		}
		var answered *rpc.Error
		if errors.As(err, &answered) && answered.Code != proto.CodeNoController && answered.Code != proto.CodeNotLeader &&
			answered.Code != proto.CodeUnknown {
			t.Errorf("a submission is refused: %v", err)
			return 0
		}
		if time.Since(begin) > time.Minute {
			t.Errorf("no submission for a minute: %v", err)
			return 0
		}
	}
}

// soakCheck waits until accounting knows how every job ended.
func soakCheck(t *testing.T, c *Cluster, ids map[model.JobID]int, ran string) {
	t.Helper()
	var records []*model.Record
	open := 0
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(200 * time.Millisecond) { // the pace of looking
		cl := client.New(filepath.Join(c.Dir, "run"))
		records = nil
		err := cl.Stream(proto.KindAcct, &proto.AcctRequest{Duplicates: true}, func(body []byte) error {
			var chunk proto.RecordsChunk
			err := proto.Decode(body, &chunk)
			records = append(records, chunk.Records...)
			return err
		})
		cl.Close()
		open = 0
		last := map[model.JobID]*model.Record{}
		for _, r := range records {
			if last[r.Job] == nil || r.Attempt >= last[r.Job].Attempt {
				last[r.Job] = r
			}
		}
		for id := range ids {
			if r := last[id]; r == nil || !r.State.Finished() {
				open++
			}
		}
		if err == nil && open == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d jobs are not accounted for (%v)", open, len(ids), err)
		}
	}
	seen := map[string]int{}
	for _, r := range records {
		seen[fmt.Sprint(r.Job, " ", r.Attempt)]++
		if ids[r.Job] == 0 {
			t.Errorf("a record of job %d, which nobody submitted", r.Job)
		}
	}
	for key, n := range seen {
		if n != 1 {
			t.Errorf("%d records of job and attempt %s", n, key)
		}
	}
	b, err := os.ReadFile(ran)
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for line := range strings.Lines(string(b)) {
		times[strings.TrimSpace(line)]++
	}
	for key, n := range times {
		if n != 1 {
			t.Errorf("job and restart %s ran %d times", key, n)
		}
	}
	states := map[string]int{}
	for _, r := range records {
		states[r.State.String()]++
	}
	t.Logf("%d records, %d scripts ran; %v", len(records), len(times), states)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
