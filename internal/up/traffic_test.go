package up

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// traffic_test.go is what users do while something fails: they submit, jobs run, they look. It measures for how long
// they notice.

// hosts gives, for each daemon with a socket, a directory with only that socket, as if each had a host of its own.
func hosts(t *testing.T, c *Cluster) map[string]string {
	t.Helper()
	out := map[string]string{}
	socks, err := client.Sockets(filepath.Join(c.Dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range socks {
		name := strings.TrimSuffix(filepath.Base(s), ".sock")
		dir := filepath.Join(t.TempDir(), name)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Symlink(s, filepath.Join(dir, name+".sock"))); err != nil {
			t.Fatal(err)
		}
		out[name] = dir
	}
	return out
}

// traffic is what users do meanwhile: submitters, who write down their jobs' starts, and readers.
type traffic struct {
	t      *testing.T
	ledger string
	stop   context.CancelFunc
	users  sync.WaitGroup

	mu      sync.Mutex
	submits []deed
	reads   []deed
	failed  []error
	calls   atomic.Int64
	pulse   pulse
}

// deed is one request that was answered.
type deed struct {
	begun, ended time.Time
	job          model.JobID
}

func newTraffic(t *testing.T, submitAt, readAt []string) *traffic {
	ctx, stop := context.WithCancel(context.Background())
	tr := &traffic{t: t, ledger: filepath.Join(t.TempDir(), "ledger"), stop: stop}
	t.Cleanup(func() { stop(); tr.users.Wait() })
	dir := t.TempDir()
	tr.users.Go(func() { tr.pulse.run(ctx, t, dir) })
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range submitAt {
		tr.users.Go(func() {
			for ctx.Err() == nil {
				sp := &model.Spec{Name: "failover", UID: uint32(os.Getuid()), User: me.Username, WorkDir: "/tmp",
					StdOut: "/dev/null", Umask: 0o22, MinNodes: 1, MaxNodes: 1, LimitS: model.NotSet, MemPerNode: 10,
					Requeue: true, Command: "failover.sh"}
				rq := &proto.SubmitRequest{RequestID: strconv.FormatUint(rand.Uint64(), 36), Spec: sp,
					Script: []byte("#!/bin/sh\necho $SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0} $(date +%s%N) >>" + tr.ledger + "\n"),
					Env:    []byte("PATH=/usr/bin:/bin\x00")}
				var reply proto.SubmitReply
				tr.call(dir, proto.KindSubmit, rq, &reply, &tr.submits, func() model.JobID { return reply.Job })
				pause(ctx, 50*time.Millisecond)
			}
		})
	}
	for _, dir := range readAt {
		tr.users.Go(func() {
			for ctx.Err() == nil {
				var reply proto.PartitionsReply
				tr.call(dir, proto.KindPartitions, &proto.Empty{}, &reply, &tr.reads, func() model.JobID { return 0 })
				pause(ctx, 20*time.Millisecond)
			}
		})
	}
	return tr
}

func (tr *traffic) call(dir string, kind uint16, rq, reply proto.Message, list *[]deed, job func() model.JobID) {
	d := deed{begun: time.Now()}
	cl := client.New(dir)
	err := cl.Call(kind, rq, reply)
	cl.Close()
	d.ended, d.job = time.Now(), job()
	tr.calls.Add(1)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if err != nil {
		tr.failed = append(tr.failed, fmt.Errorf("%s after %v: %w", filepath.Base(dir), d.ended.Sub(d.begun), err))
		return
	}
	*list = append(*list, d)
}

// after gives the end of the first request of a list that was begun after a moment.
func (tr *traffic) after(list *[]deed, moment time.Time) (time.Time, bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	var first time.Time
	for _, d := range *list {
		if d.begun.After(moment) && (first.IsZero() || d.ended.Before(first)) {
			first = d.ended
		}
	}
	return first, !first.IsZero()
}

// start gives the first start of a job that was submitted after a moment.
func (tr *traffic) start(moment time.Time) (time.Time, bool) {
	tr.mu.Lock()
	jobs := map[string]bool{}
	for _, d := range tr.submits {
		if d.begun.After(moment) {
			jobs[fmt.Sprint(d.job)] = true
		}
	}
	tr.mu.Unlock()
	var first time.Time
	for id, at := range tr.starts() {
		if jobs[id] && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first, !first.IsZero()
}

// starts gives the jobs that have started, by number, and checks that none has twice.
func (tr *traffic) starts() map[string]time.Time {
	tr.t.Helper()
	out := map[string]time.Time{}
	for line := range strings.Lines(lines(tr.t, tr.ledger)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			tr.t.Fatalf("the line %q of a job", line)
		}
		ns, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			tr.t.Fatal(err)
		}
		if _, twice := out[f[0]]; twice {
			tr.t.Errorf("job %s ran twice", f[0])
		}
		out[f[0]] = time.Unix(0, ns)
	}
	return out
}

// gaps is for how long users noticed a fault.
type gaps struct{ submit, start, read time.Duration }

// measure waits until everything goes on after a moment.
func (tr *traffic) measure(moment time.Time) gaps {
	tr.t.Helper()
	var g gaps
	for what, look := range map[string]func() (time.Duration, bool){
		"a submission": func() (time.Duration, bool) {
			at, ok := tr.after(&tr.submits, moment)
			g.submit = at.Sub(moment)
			return g.submit, ok
		},
		"a start": func() (time.Duration, bool) {
			at, ok := tr.start(moment)
			g.start = at.Sub(moment)
			return g.start, ok
		},
		"an answer through a node": func() (time.Duration, bool) {
			at, ok := tr.after(&tr.reads, moment)
			g.read = at.Sub(moment)
			return g.read, ok
		}} {
		until(tr.t, what, func() bool { _, ok := look(); return ok })
	}
	return g
}

// end stops the traffic, waits until every job that was acknowledged has run, and gives the failed calls. No job runs
// twice; one that nobody was told of runs only where a submission failed.
func (tr *traffic) end() []error {
	tr.t.Helper()
	tr.stop()
	tr.users.Wait()
	until(tr.t, "every job that was acknowledged has run", func() bool {
		ran := tr.starts()
		return !slices.ContainsFunc(tr.submits, func(d deed) bool { return ran[fmt.Sprint(d.job)].IsZero() })
	})
	acknowledged := map[string]bool{}
	for _, d := range tr.submits {
		id := fmt.Sprint(d.job)
		if acknowledged[id] {
			tr.t.Errorf("job number %s was given out twice", id)
		}
		acknowledged[id] = true
	}
	unknown := 0
	for id := range tr.starts() {
		if !acknowledged[id] {
			unknown++
		}
	}
	if unknown > len(tr.failed) {
		tr.t.Errorf("%d jobs ran that nobody was told of, and %d calls failed", unknown, len(tr.failed))
	}
	return tr.failed
}

// silences gives the longest times between two answers, and between two starts of jobs, from a moment on.
func (tr *traffic) silences(from time.Time) gaps {
	tr.t.Helper()
	to := time.Now()
	longest := func(ends []time.Time) (most time.Duration) {
		ends = append(ends, from, to)
		slices.SortFunc(ends, time.Time.Compare)
		for i := 1; i < len(ends); i++ {
			if !ends[i-1].Before(from) {
				most = max(most, ends[i].Sub(ends[i-1]))
			}
		}
		return most
	}
	of := func(list *[]deed) time.Duration {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		var ends []time.Time
		for _, d := range *list {
			ends = append(ends, d.ended)
		}
		return longest(ends)
	}
	var starts []time.Time
	for _, at := range tr.starts() {
		starts = append(starts, at)
	}
	return gaps{of(&tr.submits), longest(starts), of(&tr.reads)}
}
