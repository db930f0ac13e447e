package sched

import (
	"bufio"
	"compress/gzip"
	"container/heap"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// traceJob is one line of a log in the Standard Workload Format.
type traceJob struct {
	line             int
	id               string
	submit, run, req int64 // seconds
	procs            int32
	user             string
	start            int64
	job              model.JobID
}

// tracesDir gives the folder with the real logs, or skips the test.
func tracesDir(t testing.TB) string {
	dir := os.Getenv("GBATCH_TRACES")
	if dir == "" {
		dir = "../../../shared/traces"
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("the real logs are not here (%v); set GBATCH_TRACES to the folder that has them", err)
	}
	return dir
}

func readTrace(t testing.TB, name string) (jobs []*traceJob, procs int32) {
	f, err := os.Open(filepath.Join(tracesDir(t), name))
	if err != nil {
		t.Skipf("the log is not here: %v", err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	sc := bufio.NewScanner(z)
	for sc.Scan() {
		if rest, ok := strings.CutPrefix(sc.Text(), "; MaxProcs:"); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(rest))
			procs = int32(n)
		}
		if strings.HasPrefix(sc.Text(), ";") {
			continue
		}
		w := strings.Fields(sc.Text())
		if len(w) < 18 {
			continue
		}
		num := func(i int) int64 { x, _ := strconv.ParseFloat(w[i], 64); return int64(x) }
		j := &traceJob{line: len(jobs), id: w[0], submit: num(1), run: num(3), req: num(8), procs: int32(num(4)), user: w[11]}
		if j.procs <= 0 {
			j.procs = int32(num(7))
		}
		j.run = min(j.run, j.req)
		jobs = append(jobs, j)
	}
	slices.SortStableFunc(jobs, func(a, b *traceJob) int { return int(a.submit - b.submit) })
	return jobs, procs
}

// finish is a job's end to come.
type finish struct {
	at, seq int64
	j       *traceJob
}

type finishes []finish

func (h finishes) Len() int { return len(h) }
func (h finishes) Less(a, b int) bool {
	return h[a].at < h[b].at || h[a].at == h[b].at && h[a].seq < h[b].seq
}
func (h finishes) Swap(a, b int) { h[a], h[b] = h[b], h[a] }
func (h *finishes) Push(x any)   { *h = append(*h, x.(finish)) }
func (h *finishes) Pop() any     { x := (*h)[len(*h)-1]; *h = (*h)[:len(*h)-1]; return x }

// replay runs a log through the production state machine and planner on a single pool of processors, by the rules of
// the traces' MANIFEST.md: one pass per instant, or (single) one per event.
type replay struct {
	t      testing.TB
	st     *state.State
	pl     *Planner
	policy Policy
	ends   finishes
	byID   map[model.JobID]*traceJob
	now    int64
	passes int
	seq    int64
}

func newReplay(t testing.TB, procs int32, pol Policy) *replay {
	r := &replay{t: t, st: state.New(), pl: NewPlanner(), policy: pol, byID: map[model.JobID]*traceJob{}}
	cfg := &model.Config{Cluster: "trace", Params: model.Params{MinJobAgeS: 1},
		Nodes:      []*model.NodeDef{{Name: "pool", CPUs: procs, ThreadsPerCore: 1, MemMiB: 1}},
		Partitions: []*model.Partition{{Name: "p", Nodes: []string{"pool"}}}}
	r.apply(&state.SetConfig{Config: cfg})
	r.apply(&state.Join{Node: "pool", BootID: "b"})
	return r
}

func (r *replay) time() model.Time { return epoch.Add(r.now) }

func (r *replay) apply(b state.Body) state.Result {
	return r.st.Apply(state.Command{At: r.time(), Body: b})
}

func (r *replay) submit(j *traceJob) {
	j.job = r.apply(&state.Submit{Priority: 1, Spec: &model.Spec{Name: j.id, User: j.user, Partitions: []string{"p"}, MinNodes: 1, MaxNodes: 1, Tasks: j.procs, LimitS: j.req}}).Job
	r.byID[j.job] = j
}

func (r *replay) end(j *traceJob) {
	r.apply(&state.Reports{Reports: []state.Report{{Kind: state.Ended, Job: j.job, Attempt: 1, At: r.time()}}})
}

func (r *replay) pass() {
	for {
		r.passes++
		plan := r.pl.Plan(r.st.Peek(), r.time(), r.policy)
		if len(plan.Starts) == 0 {
			return
		}
		res := r.apply(&state.Starts{Plan: plan})
		for i, s := range plan.Starts {
			if res.Each[i] != state.OK {
				r.t.Fatalf("at %d: start of job %d: %s", r.now, s.Job, res.Each[i])
			}
			j := r.byID[s.Job]
			j.start = r.now
			r.seq++
			heap.Push(&r.ends, finish{r.now + j.run, r.seq, j})
		}
		if len(plan.Starts) < DefaultMaxStarts {
			return
		}
	}
}

func (r *replay) run(jobs []*traceJob, single bool) {
	last := int64(0)
	for k := 0; k < len(jobs) || len(r.ends) > 0; {
		r.now = int64(1) << 60
		if len(r.ends) > 0 {
			r.now = r.ends[0].at
		}
		if k < len(jobs) {
			r.now = min(r.now, jobs[k].submit)
		}
		if w := r.pl.Wake(); w != 0 && r.policy.Backfill.Keep {
			r.now = min(r.now, max(last, int64(w-epoch)/1000))
		}
		last = r.now
		if last, ok := r.lastEvent(); ok {
			r.apply(&state.Trim{Seq: last})
		}
		r.apply(&state.Tick{})
		if !single {
			for len(r.ends) > 0 && r.ends[0].at == r.now {
				r.end(heap.Pop(&r.ends).(finish).j)
			}
			for ; k < len(jobs) && jobs[k].submit == r.now; k++ {
				r.submit(jobs[k])
			}
			r.pass()
			continue
		}
		var over []*traceJob
		for len(r.ends) > 0 && r.ends[0].at == r.now {
			f := heap.Pop(&r.ends).(finish)
			if over = append(over, f.j); f.j.run == f.j.req {
				r.end(f.j)
			}
		}
		for ; k < len(jobs) && jobs[k].submit == r.now; k++ {
			r.submit(jobs[k])
			r.pass()
		}
		for _, j := range over {
			if j.run != j.req {
				r.end(j)
			}
			r.pass()
		}
	}
}

func (r *replay) lastEvent() (last uint64, ok bool) {
	if r.st.Peek().OutboxLen() < 256 {
		return 0, false
	}
	r.st.Peek().Outbox(0, func(seq uint64, _ *model.Job, _ *model.Step) bool { last = seq; return true })
	return last, true
}

func digest(jobs []*traceJob) string {
	h := sha256.New()
	for _, j := range jobs {
		fmt.Fprintf(h, "%s %d\n", j.id, j.start)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// TestPublishedSchedules replays two real logs and compares every job's start, by digest, with published schedules and
// with those of an independent simulator (MANIFEST.md beside the logs).
func TestPublishedSchedules(t *testing.T) {
	easy := Backfill{On: true, Reserve: 1}
	sjbf := Backfill{On: true, Reserve: 1, ShortestFirst: true}
	all := Backfill{On: true, Reserve: -1, Keep: true}
	for _, c := range []struct {
		log, name string
		single    bool
		actual    bool
		backfill  Backfill
		want      string
		long      bool
	}{
		{"KTH-SP2", "easy", true, false, easy, "0502a5909e58c872", false},
		{"KTH-SP2", "easy-actual", true, true, easy, "84a030a8a45ab843", false},
		{"KTH-SP2", "easy-sjbf", true, false, sjbf, "1d4c87ae7f706095", false},
		{"KTH-SP2", "fcfs", false, false, Backfill{}, "1d777105b88d0d90", false},
		{"KTH-SP2", "easy", false, false, easy, "8d5bfe86a412f14f", false},
		{"KTH-SP2", "conservative", false, false, all, "668899626d172024", true},
		{"CTC-SP2", "conservative", false, false, all, "534bcc949c0ca590", true},
		{"CTC-SP2", "easy", true, false, easy, "61dcd199189e9093", true},
		{"CTC-SP2", "easy-sjbf", true, false, sjbf, "2c515602cb38e029", true},
		{"CTC-SP2", "easy", false, false, easy, "534014af14f1efe0", true},
	} {
		events := "batch"
		if c.single {
			events = "single"
		}
		t.Run(c.log+"/"+events+"/"+c.name, func(t *testing.T) {
			if c.long && testing.Short() {
				t.Skip("it takes seconds: not with -short")
			}
			jobs, procs := readTrace(t, c.log+".sc15.swf.gz")
			if c.actual {
				for _, j := range jobs {
					j.req = j.run
				}
			}
			begin := time.Now()
			r := newReplay(t, procs, Policy{Backfill: c.backfill})
			r.run(jobs, c.single)
			t.Logf("%d jobs on %d processors, %d passes in %v", len(jobs), procs, r.passes, time.Since(begin).Round(time.Millisecond))
			if got := digest(jobs); got != c.want {
				t.Errorf("digest %s, published %s", got, c.want)
			}
		})
	}
}
