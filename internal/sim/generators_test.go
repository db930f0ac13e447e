package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// habits describes workloads of people who leave the time limit as it is, run the same programs again, and submit tiny
// jobs in bursts between jobs of up to the whole machine.
type habits struct {
	seed               uint64
	jobs, procs, users int
	load               float64
	rush               float64 // how much the pace of submissions varies: sigma of its logarithm
	periodS            float64 // how long a pace lasts, about
	wide               float64 // per cent of the programs that take a quarter of the machine to all of it
	size, spread       float64 // median part of the machine of the other programs, and sigma of its logarithm
}

// program is what a user runs again and again.
type program struct {
	procs  int
	meanS  float64
	sigma  float64
	limitS int64
}

// someLimits are limits that people choose who choose one, seconds.
var someLimits = []int64{300, 600, 900, 1200, 7200, 10800, 14400, 21600, 28800, 36000, 43200, 72000, 86400, 172800,
	259200}

// work makes the workload.
func (h *habits) work() *Workload {
	rng := rand.New(rand.NewPCG(h.seed, 77))
	weights, all := make([]float64, h.users), 0.0
	programs := make([][]program, h.users)
	for u := range weights {
		weights[u] = math.Exp(1.3 * rng.NormFloat64())
		all += weights[u]
		for range 1 + rng.IntN(4) {
			programs[u] = append(programs[u], h.program(rng))
		}
	}
	w := &Workload{Name: fmt.Sprint("habits ", h.seed), MaxProcs: h.procs}
	at, until, pace := 0.0, 0.0, 1.0
	for len(w.Jobs) < h.jobs {
		if at >= until {
			until = at + h.periodS*(0.5+rng.Float64())
			pace = math.Exp(h.rush * rng.NormFloat64())
		}
		at += rng.ExpFloat64() * 600 / (pace * hours(at))
		x, u := rng.Float64()*all, 0
		for x -= weights[u]; x > 0 && u < h.users-1; x -= weights[u] {
			u++
		}
		if rng.IntN(12) == 0 {
			programs[u][rng.IntN(len(programs[u]))] = h.program(rng)
		}
		p := &programs[u][rng.IntN(len(programs[u]))]
		n := 1
		if p.procs*20 < h.procs && rng.IntN(3) > 0 {
			n = min(400, 1+int(math.Exp(1.2+1.3*rng.NormFloat64())))
		}
		t := at
		for range n {
			run := int64(p.meanS * math.Exp(p.sigma*rng.NormFloat64()))
			if rng.IntN(12) == 0 { // it fails at once
				run = 1 + rng.Int64N(20)
			}
			w.add(Job{Submit: int64(t), Run: max(1, min(run, p.limitS)), Request: p.limitS, CPUs: int32(p.procs),
				User: fmt.Sprint("u", u)})
			t += rng.ExpFloat64() * 20
		}
	}
	w.stretch(h.load)
	return w
}

// hours gives the pace of submissions by the hour and the day of the week.
func hours(at float64) float64 {
	pace := 1 + 0.8*math.Sin((math.Mod(at/3600, 24)-8)/24*2*math.Pi)
	if math.Mod(at/86400, 7) >= 5 {
		pace *= 0.4
	}
	return pace
}

func (h *habits) program(rng *rand.Rand) program {
	z, sigma := rng.NormFloat64(), 2.9
	if z > 0 {
		sigma = 3.7
	}
	p := program{meanS: math.Exp(5.3 + sigma*z), sigma: 0.1 + 0.5*rng.Float64()}
	switch x := rng.IntN(100); {
	case x < 32:
		p.limitS = 86400
	case x < 46:
		p.limitS = 1800
	case x < 52:
		p.limitS = 3600
	default:
		p.limitS = someLimits[rng.IntN(len(someLimits))]
	}
	for p.limitS < 86400 && float64(p.limitS) < p.meanS*1.2 {
		if p.limitS = max(p.limitS*2, 1800); p.limitS > 43200 {
			p.limitS = 86400
		}
	}
	p.meanS = min(p.meanS, 0.95*float64(p.limitS))
	part := math.Exp(math.Log(h.size) + h.spread*rng.NormFloat64())
	switch x := rng.Float64() * 100; {
	case x < h.wide:
		part = []float64{1, 0.5, 0.25, 0.8}[rng.IntN(4)]
		if rng.IntN(4) > 0 {
			p.meanS = min(p.meanS, 3600)
		}
	case x < 35:
		part /= 30
	}
	n := math.Exp2(math.Round(math.Log2(part * float64(h.procs))))
	if part == 1 {
		n = float64(h.procs)
	}
	p.procs = int(max(1, min(n, float64(h.procs))))
	return p
}

// stretch moves the submissions so that the work is a part of what the machine can do until the last one, and numbers
// the jobs.
func (w *Workload) stretch(load float64) {
	w.sort()
	work := 0.0
	for i := range w.Jobs {
		work += float64(w.Jobs[i].Run) * float64(w.Jobs[i].CPUs)
	}
	first, last := w.span()
	by := work / float64(w.MaxProcs) / load / float64(last-first)
	for i := range w.Jobs {
		j := &w.Jobs[i]
		j.ID, j.Submit = int64(i+1), int64(float64(j.Submit-first)*by)
	}
}

// lublin makes a workload after the model of Lublin and Feitelson, JPDC 2003, simplified. limits is "exact", "round"
// (from a few round values) or "equal" (two days for all); without users, nobody is known.
func lublin(seed uint64, jobs, procs, users int, load float64, limits string) *Workload {
	rng := rand.New(rand.NewPCG(seed, 99))
	w := &Workload{Name: fmt.Sprint("lublin ", seed, " ", limits), MaxProcs: procs}
	at := 0.0
	for len(w.Jobs) < jobs {
		at += rng.ExpFloat64() * 600 / hours(at)
		size := 1
		if rng.Float64() > 0.24 {
			x := 0.8 + rng.Float64()*3.7
			if rng.Float64() > 0.86 {
				x = 4.5 + rng.Float64()*(math.Log2(float64(procs))-4.5)
			}
			if rng.Float64() < 0.75 {
				x = math.Round(x)
			}
			size = max(1, min(int(math.Exp2(x)), procs))
		}
		run := math.Exp(gammaOf(rng, 312, 0.03))
		if rng.Float64() < 0.78-0.69*float64(size)/float64(procs) {
			run = math.Exp(gammaOf(rng, 4.2, 0.94))
		}
		j := Job{Submit: int64(at), Run: int64(max(1, min(run, 2*86400))), CPUs: int32(size)}
		j.Request = j.Run
		switch limits {
		case "round":
			wish := int64(float64(j.Run) * math.Exp(0.7*math.Abs(rng.NormFloat64())))
			list := []int64{300, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800}
			i, _ := slices.BinarySearch(list, wish)
			j.Request = list[min(i, len(list)-1)]
		case "equal":
			j.Request = 2 * 86400
		}
		if users > 0 {
			j.User = fmt.Sprint("u", int(float64(users)*math.Pow(rng.Float64(), 3)))
		}
		w.add(j)
	}
	w.stretch(load)
	return w
}

// gammaOf draws from a gamma distribution. Source: Marsaglia, Tsang: A simple method for generating gamma variables,
// ACM TOMS 26(3), 2000.
func gammaOf(rng *rand.Rand, shape, scale float64) float64 {
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := rng.NormFloat64()
		v := math.Pow(1+c*x, 3)
		if v > 0 && math.Log(rng.Float64()) < 0.5*x*x+d-d*v+d*math.Log(v) {
			return d * v * scale
		}
	}
}

// TestHabits checks that the generated workloads are like the log that they stand for, and equal for equal seeds.
func TestHabits(t *testing.T) {
	var day, half, hour, short, use, long, runs []float64
	for seed := range uint64(12) {
		h := habits{seed: seed, jobs: 8000, procs: 80640, users: 300, load: 0.71, rush: 0.5, periodS: 4 * 86400, wide: 1,
			size: 0.006, spread: 1.3}
		w := h.work()
		if seed == 0 && !slices.Equal(w.Jobs, h.work().Jobs) {
			t.Fatal("equal seeds give different jobs")
		}
		n := map[string]float64{}
		most := int32(0)
		var run []int64
		for i := range w.Jobs {
			j := &w.Jobs[i]
			most = max(most, j.CPUs)
			run = append(run, j.Run)
			count := func(what string, is bool) {
				if is {
					n[what] += 1 / float64(len(w.Jobs))
				}
			}
			count("day", j.Request == 86400)
			count("half", j.Request == 1800)
			count("hour", j.Request == 3600)
			count("short", j.Run < 4)
			count("long", j.Run > 16920)
			count("use", float64(j.Run) < 0.02*float64(j.Request))
		}
		slices.Sort(run)
		runs = append(runs, float64(run[len(run)/2]))
		day, half, hour = append(day, n["day"]), append(half, n["half"]), append(hour, n["hour"])
		short, long, use = append(short, n["short"]), append(long, n["long"]), append(use, n["use"])
		if int(most)*8 < w.MaxProcs {
			t.Errorf("seed %d: the largest job has %d of %d processors", seed, most, w.MaxProcs)
		}
	}
	mean := func(x []float64) float64 {
		sum := 0.0
		for _, v := range x {
			sum += v
		}
		return sum / float64(len(x))
	}
	for _, x := range []struct {
		what     string
		is       []float64
		low, top float64
	}{
		{"jobs with the limit of a day", day, 0.30, 0.42},
		{"jobs with half an hour", half, 0.09, 0.16},
		{"jobs with an hour", hour, 0.03, 0.08},
		{"jobs below 4 s", short, 0.07, 0.15},
		{"jobs above 4.7 h", long, 0.06, 0.14},
		{"jobs that use less than 2 % of their limit", use, 0.5, 0.7},
		{"median run time, s", runs, 100, 250},
	} {
		if m := mean(x.is); m < x.low || m > x.top {
			t.Errorf("%s: %.3g on average, want %g to %g", x.what, m, x.low, x.top)
		}
	}
}
