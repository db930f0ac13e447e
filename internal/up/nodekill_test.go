package up

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// TestNodeDaemonKilledUnder200Jobs: gnoded, a process as in production, is killed again and again while 200 jobs are
// launched, run and are reaped on its node. None is lost, none runs twice, and every exit code is right.
func TestNodeDaemonKilledUnder200Jobs(t *testing.T) {
	if os.Getenv("GBATCH_SOAK") == "" {
		t.Skip("skipped: it takes minutes on a busy machine; `make soak` runs it")
	}
	const jobs, least = 200, 6
	dir := filepath.Join(t.TempDir(), "kill")
	ran := filepath.Join(t.TempDir(), "ran")
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 1, CPUs: 64, MemMiB: 64000})
	ids := map[model.JobID]int{}
	for i := range jobs {
		ids[soakSubmit(t, c, fmt.Sprintf("echo $SLURM_JOB_ID >> %s\nsleep 0.%d\nexit %d\n", ran, i%5, i%7))] = i % 7
	}
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	kills := 0
	var last map[model.JobID]*model.Record
	for open := jobs; open > 0 || kills < least; {
		if ctx.Err() != nil {
			t.Fatalf("%d of %d jobs have no end after %d kills", open, jobs, kills)
		}
		for _, d := range status(t, dir).Daemons {
			if p, ok := processOf(d.PID); ok && d.Role == "gnoded" {
				kills++
				if err := p.signal(syscall.SIGKILL); err != nil {
					t.Error(err)
				}
				for alive := true; alive && ctx.Err() == nil; pause(ctx, 5*time.Millisecond) { // it dies in its own time
					_, alive = processOf(d.PID)
				}
			}
		}
		if _, _, err := tryUp(t, Options{Dir: dir}); err != nil {
			t.Fatalf("after the end of gnoded: %v", err)
		}
		pause(ctx, time.Duration(300+kills%5*200)*time.Millisecond)
		last, open = lastRecords(t, c), 0
		for id := range ids {
			if r := last[id]; r == nil || !r.State.Finished() {
				open++
			}
		}
	}
	t.Logf("gnoded was killed %d times", kills)
	for id, code := range ids {
		if r := last[id]; r.Exit.Code != int32(code) || r.Exit.Signal != 0 || r.Exit.Unknown || r.Restarts != 0 {
			t.Errorf("job %d: exit %+v after %d restarts, want code %d", id, r.Exit, r.Restarts, code)
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
	for id := range ids {
		if n := times[fmt.Sprint(id)]; n != 1 {
			t.Errorf("job %d ran %d times", id, n)
		}
	}
}

// lastRecords gives what accounting knows of each job's last attempt; nothing while it can't be asked.
func lastRecords(t *testing.T, c *Cluster) map[model.JobID]*model.Record {
	t.Helper()
	last := map[model.JobID]*model.Record{}
	for _, r := range records(t, c) {
		if last[r.Job] == nil || r.Attempt >= last[r.Job].Attempt {
			last[r.Job] = r
		}
	}
	return last
}

type attemptOf struct {
	job     model.JobID
	attempt uint32
}

// records gives what accounting knows of each attempt; nothing while it can't be asked.
func records(t *testing.T, c *Cluster) map[attemptOf]*model.Record {
	t.Helper()
	all := map[attemptOf]*model.Record{}
	cl := client.New(filepath.Join(c.Dir, "run"))
	defer cl.Close()
	err := cl.Stream(proto.KindAcct, &proto.AcctRequest{Duplicates: true}, func(body []byte) error {
		var chunk proto.RecordsChunk
		if err := proto.Decode(body, &chunk); err != nil {
			return err
		}
		for _, r := range chunk.Records {
			all[attemptOf{r.Job, r.Attempt}] = r
		}
		return nil
	})
	if err != nil {
		t.Logf("accounting: %v", err)
	}
	return all
}
