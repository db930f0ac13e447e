package up

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// TestSoak: faults happen at random, one after the other, while jobs are submitted and run, for as long as $GBATCH_SOAK
// says (`make soak`), or in a short form that has each quick kind once. Daemons are killed, ended and stopped, some for
// longer than SlurmdTimeout; hosts drop off the network; disks hang, are full, lose everything, and return other bytes;
// a controller's clock is wrong; leadership and membership change. Every job number that was printed is one job, is
// accounted exactly once, no attempt runs twice, and no daemon needs much memory. The seed (GBATCH_SOAK_SEED repeats
// one) decides the order of the faults, and whom they hit.
func TestSoak(t *testing.T) {
	limit, err := time.ParseDuration(os.Getenv("GBATCH_SOAK"))
	long := err == nil
	seed := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv("GBATCH_SOAK_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("seed %d (GBATCH_SOAK_SEED=%[1]d repeats the order of the faults)", seed)
	k := &soak{stage: &stage{t: t}, dice: rand.New(rand.NewPCG(seed, 0)), long: long, peak: map[string]int{}}
	o := Options{Dir: filepath.Join(t.TempDir(), "soak"), Nodes: 2, CPUs: 16, MemMiB: 16000, Controllers: 3}
	if long {
		o.Bin, k.clocks = wrongClocks(t)
	}
	if os.Getuid() == 0 {
		k.a = mustUpApart(t, o)
		k.c, k.bin = k.a.Cluster, k.a.bin
	} else {
		k.c, _ = mustUp(t, o)
		k.bin = cmp.Or(o.Bin, programs(t))
	}
	ran := filepath.Join(t.TempDir(), "ran")
	k.book = newSoakBook(ran)
	if long {
		keepOnFailure(t, k.c.Dir, ran)
	}
	k.sockets, k.readAt = ready(t, k.c)
	setQuiet(t, k.c)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var submitters sync.WaitGroup
	defer submitters.Wait()
	defer stop()
	for range 2 {
		submitters.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				script := []string{"true", "exit 3", "sleep 0.2", "kill -9 $$"}[n%4]
				k.book.ack(t, soakSubmit(t, k.c, noteRun(ran)+script+"\n"))
				if !long {
					pause(ctx, 20*time.Millisecond)
				}
			}
		})
	}
	had := map[string]int{}
	begin := time.Now()
	for n := 0; ; n++ {
		kinds := k.picked()
		i := n
		if long {
			i = k.dice.IntN(len(kinds))
		}
		if t.Failed() || long && time.Since(begin) > limit || !long && n == len(kinds) {
			break
		}
		f := kinds[i]
		victim := f.of[k.dice.IntN(len(f.of))]
		lasts := k.lasts(f.brief)
		t.Logf("%v: %s of %s for %v", time.Since(begin).Round(time.Millisecond), f.name, victim, lasts)
		had[f.name]++
		k.inside = rand.New(rand.NewPCG(seed, uint64(n)+1))
		k.sizes() // before some of them end
		f.do(k, victim, lasts)
		k.healthy()
	}
	k.sizes()
	stop()
	submitters.Wait()
	t.Logf("%d jobs in %v; faults: %v; MiB of memory at most: %v", k.book.count(),
		time.Since(begin).Round(time.Second), had, k.peak)
	for role, mib := range k.peak {
		if mib > soakPeak {
			t.Errorf("a %s had %d MiB of memory, more than %d", role, mib, soakPeak)
		}
	}
	k.book.check(t, k.c)
}

// keepOnFailure copies logs and states of a running cluster, and more files, to a directory that stays if the test
// fails.
func keepOnFailure(t *testing.T, dir string, more ...string) {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		kept, err := os.MkdirTemp("/var/tmp", "gbatch-soak-")
		if err == nil {
			from := append(more, filepath.Join(dir, "log"), filepath.Join(dir, "state"))
			err = exec.Command("cp", append([]string{"-a", "-t", kept}, from...)...).Run()
		}
		t.Logf("logs and states are in %s (%v)", kept, err)
	})
}

// setQuiet keeps finished jobs out of the controllers' memory after a while, as in a cluster that runs for long.
func setQuiet(t *testing.T, c *Cluster) {
	t.Helper()
	f, err := os.OpenFile(c.Conf, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("MinJobAge=30\nMaxJobCount=1000000\nKillWait=2\nSlurmdTimeout=8\nNodeHeartbeatInterval=1\n")
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
		if time.Since(begin) > 3*time.Minute { // for a minute of them a restoration may read all records
			t.Errorf("no submission for three minutes: %v", err)
			return 0
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
