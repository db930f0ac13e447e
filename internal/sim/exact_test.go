package sim

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// traces gives the path of a real workload, which the project does not ship.
func traces(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("GBATCH_TRACES")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "traces")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		t.Skipf("skipped: the real workloads are not here (GBATCH_TRACES names their directory): %v", err)
	}
	return path
}

// published are the schedules that have to be met, from the traces' MANIFEST.md: job by job, which the digest says.
var published = []struct {
	log, scheduler, estimates string
	events                    Events
	wait, slowdown            float64
	longest                   int64
	digest                    string
}{
	{"KTH-SP2", "easy", "requested", Single, 6836.87, 92.5765, 262194, "0502a5909e58c872"},
	{"KTH-SP2", "easy", "actual", Single, 6327.68, 71.7224, 258803, "84a030a8a45ab843"},
	{"KTH-SP2", "easy-sjbf", "requested", Single, 5904.08, 69.4054, 284815, "1d4c87ae7f706095"},
	{"KTH-SP2", "fifo", "requested", Batch, 353776.41, 6814.9733, 946685, "1d777105b88d0d90"},
	{"KTH-SP2", "easy", "requested", Batch, 6834.59, 92.6877, 262194, "8d5bfe86a412f14f"},
	{"KTH-SP2", "conservative", "requested", Batch, 7316.24, 88.9666, 249058, "668899626d172024"},
	{"KTH-SP2", "wfp3", "requested", Batch, 5157.29, 54.3283, 337975, "a61432f3a36ec9a0"},
	{"CTC-SP2", "easy", "requested", Single, 14272.59, 49.5713, 303954, "61dcd199189e9093"},
	{"CTC-SP2", "easy-sjbf", "requested", Single, 11768.97, 30.0411, 364002, "2c515602cb38e029"},
	{"CTC-SP2", "easy", "requested", Batch, 13943.01, 48.8370, 303954, "534014af14f1efe0"},
	{"CTC-SP2", "conservative", "requested", Batch, 17578.67, 53.0520, 401293, "534bcc949c0ca590"},
	{"CTC-SP2", "wfp3", "requested", Batch, 13201.43, 32.5799, 538053, "6e7f92c45dc6cca4"},
}

// TestPublishedSchedules checks that the production scheduler gives exactly the published schedules of two real logs.
func TestPublishedSchedules(t *testing.T) {
	for _, p := range published {
		t.Run(fmt.Sprintf("%s/%s/%s/%s", p.log, p.scheduler, p.events, p.estimates), func(t *testing.T) {
			if p.log == "CTC-SP2" && testing.Short() {
				t.Skip("skipped in short mode")
			}
			w, err := Open(traces(t, p.log+".sc15.swf.gz"))
			if err != nil {
				t.Fatal(err)
			}
			if p.estimates == "actual" {
				w.TrueEstimates()
			}
			o := replayPool(t, w, p.scheduler, p.events, false)
			m := o.Measure()
			if m.Digest != p.digest || round(m.AvgWait, 2) != p.wait || round(m.AvgSlowdown, 4) != p.slowdown ||
				m.MaxWait != p.longest {
				t.Errorf("digest %s, wait %.2f, slowdown %.4f, longest %d; published are %s, %.2f, %.4f, %d", m.Digest, m.AvgWait,
					m.AvgSlowdown, m.MaxWait,
					p.digest, p.wait, p.slowdown, p.longest)
			}
			if p.scheduler == "easy" && p.events == Single && p.estimates == "requested" {
				jobByJob(t, o, traces(t, p.log+".sc15.easy-req.pyss.gz"))
			}
		})
	}
}

func round(v float64, digits int) float64 {
	f := math.Pow10(digits)
	return math.Round(v*f) / f
}

// replayPool runs a workload on its one pool of processors.
func replayPool(t testing.TB, w *Workload, scheduler string, ev Events, plain bool) *Outcome {
	t.Helper()
	m, err := NewMachine(w, Size{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewScheduler(scheduler, m)
	if err != nil {
		t.Fatal(err)
	}
	if plain {
		for _, n := range schedulers() {
			if n.name == scheduler {
				s.New = func() Planner { return &reference{back: n.backfill, score: n.score} }
			}
		}
	}
	o, err := Replay(context.Background(), Setup{Work: w, Machine: m, Scheduler: s, Events: ev})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// jobByJob compares every start with the list that the study published.
func jobByJob(t *testing.T, o *Outcome, path string) {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := plain(f)
	if err != nil {
		t.Fatal(err)
	}
	sc := bufio.NewScanner(r)
	i, wrong := 0, 0
	for sc.Scan() {
		if strings.HasPrefix(sc.Text(), ";") {
			continue
		}
		if i >= len(o.Start) {
			t.Fatalf("more than %d jobs are published", i)
		}
		if got := fmt.Sprintf("%d %d", o.Work.Jobs[i].ID, o.Start[i]); got != sc.Text() {
			if wrong++; wrong <= 5 {
				t.Errorf("job and start %s, published is %s", got, sc.Text())
			}
		}
		i++
	}
	if sc.Err() != nil || i != len(o.Start) {
		t.Errorf("%d of %d jobs are published (%v)", i, len(o.Start), sc.Err())
	}
}
