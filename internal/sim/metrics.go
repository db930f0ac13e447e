package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// boundS is the tau of the bounded slowdown, seconds: shorter jobs count as this long.
const boundS = 10

// Metrics are the results of a workload's jobs. Waits are seconds, shares from 0 to 1. Only jobs that ran count.
type Metrics struct {
	Scheduler string `json:"scheduler"`
	Policy    string `json:"policy"` // the scheduler in words
	Events    string `json:"events"`
	Estimates string `json:"estimates"`
	Machine   string `json:"machine"`

	Jobs        int     `json:"jobs"`
	Refused     int     `json:"refused"`
	AvgWait     float64 `json:"avg_wait_s"`
	WaitP50     int64   `json:"wait_p50_s"`
	WaitP90     int64   `json:"wait_p90_s"`
	WaitP99     int64   `json:"wait_p99_s"`
	MaxWait     int64   `json:"max_wait_s"`
	AvgSlowdown float64 `json:"avg_bounded_slowdown"`
	SlowdownP50 float64 `json:"bounded_slowdown_p50"`
	SlowdownP90 float64 `json:"bounded_slowdown_p90"`
	SlowdownP99 float64 `json:"bounded_slowdown_p99"`
	// work that came to its end over units there are, from the first submission to the last end
	Utilization float64 `json:"utilization"`
	Fairness    float64 `json:"fairness"` // Jain's index over the users' mean bounded slowdown: 1 is equal
	MakespanS   int64   `json:"makespan_s"`
	Passes      int     `json:"passes"`
	Digest      string  `json:"digest"`

	GPU   *GPUUse     `json:"gpu,omitempty"`
	Users []UserLine  `json:"users"`
	Sizes []SizeLine  `json:"sizes"`
	Left  []LeftLine  `json:"left_out,omitempty"`
	Notes []string    `json:"notes,omitempty"`
	Hours float64     `json:"unit_hours"` // of all jobs: processors, or GPUs where the machine has any
	Unit  string      `json:"unit"`
	Total int         `json:"units"`
	Shake *ShakeLines `json:"shake,omitempty"`

	Elastic   *ElasticUse `json:"elastic,omitempty"`
	Preempted *Preempted  `json:"preempted,omitempty"` // where the configuration has jobs ended or suspended for others
}

// ShakeLines says how the submissions were shifted.
type ShakeLines struct {
	Seed    uint64 `json:"seed"`
	Seconds int64  `json:"seconds"`
}

// UserLine is one user; users with the most unit-hours come first.
type UserLine struct {
	User        string  `json:"user"`
	Jobs        int     `json:"jobs"`
	Hours       float64 `json:"unit_hours"`
	AvgWait     float64 `json:"avg_wait_s"`
	AvgSlowdown float64 `json:"avg_bounded_slowdown"`
}

// SizeLine is the jobs of one class of size.
type SizeLine struct {
	Size        string  `json:"size"`
	Jobs        int     `json:"jobs"`
	Hours       float64 `json:"unit_hours"`
	AvgWait     float64 `json:"avg_wait_s"`
	WaitP90     int64   `json:"wait_p90_s"`
	AvgSlowdown float64 `json:"avg_bounded_slowdown"`
}

// LeftLine counts jobs that are no part of the result.
type LeftLine struct {
	Why  string `json:"why"`
	Jobs int    `json:"jobs"`
}

// maxUsers is how many users are listed.
const maxUsers = 10

// tally adds up waits and slowdowns.
type tally struct {
	jobs     int
	wait     float64
	slowdown float64
	unitS    float64
	waits    []int64
}

func (t *tally) add(wait int64, slow, unitS float64) {
	t.jobs++
	t.wait += float64(wait)
	t.slowdown += slow
	t.unitS += unitS
}

// Measure computes the results of the jobs.
//
// Sources: bounded slowdown: Feitelson, Rudolph, Schwiegelshohn, Sevcik, Wong: Theory and practice in parallel job
// scheduling, JSSPP 1997; fairness: Jain, Chiu, Hawe: A quantitative measure of fairness and discrimination for
// resource allocation in shared computer systems, DEC-TR-301, 1984.
func (o *Outcome) Measure() *Metrics {
	m := &Metrics{Scheduler: o.Scheduler.Name, Policy: o.Scheduler.Text, Events: o.Events.String(),
		Machine: o.Machine.Text, Passes: o.Passes, Digest: o.Digest(), GPU: o.GPU, Preempted: o.Cut, Elastic: o.Elastic,
		Notes: o.Work.Notes}
	cpus, gpus := o.Machine.units()
	m.Unit, m.Total = "processor", cpus
	switch {
	case gpus > 0:
		m.Unit, m.Total = "GPU", gpus
	case o.Work.GPUProcs:
		m.Unit, m.Machine = "GPU", strings.Replace(m.Machine, "processors", "GPUs", 1)
	}
	var all tally
	users := map[string]*tally{}
	sizes := map[int]*tally{}
	waits := make([]int64, 0, len(o.Start))
	slows := make([]float64, 0, len(o.Start))
	last := int64(math.MinInt64)
	for i := range o.Work.Jobs {
		j := &o.Work.Jobs[i]
		if o.Start[i] == NoStart {
			m.Refused++
			continue
		}
		wait := o.End[i] - j.Submit - j.Run // also what it was suspended, and what it did in vain
		slow := Slowdown(wait, j.Run)
		units := o.unitsOf(j)
		work := float64(units) * float64(j.Run)
		all.add(wait, slow, work)
		waits, slows = append(waits, wait), append(slows, slow)
		m.MaxWait = max(m.MaxWait, wait)
		last = max(last, o.End[i])
		tallyOf(users, j.User).add(wait, slow, work)
		s := tallyOf(sizes, sizeClass(units))
		s.add(wait, slow, work)
		s.waits = append(s.waits, wait)
	}
	m.Jobs = all.jobs
	for _, l := range append(slices.Clone(o.Work.Left), o.Refused...) {
		m.Left = append(m.Left, LeftLine(l))
	}
	if all.jobs == 0 {
		return m
	}
	m.AvgWait, m.AvgSlowdown = all.wait/float64(all.jobs), all.slowdown/float64(all.jobs)
	slices.Sort(waits)
	slices.Sort(slows)
	m.WaitP50, m.WaitP90, m.WaitP99 = rank(waits, 50), rank(waits, 90), rank(waits, 99)
	m.SlowdownP50, m.SlowdownP90, m.SlowdownP99 = rank(slows, 50), rank(slows, 90), rank(slows, 99)
	first, _ := o.Work.span()
	m.MakespanS = last - first
	m.Hours = all.unitS / 3600
	if m.Total > 0 && m.MakespanS > 0 {
		m.Utilization = all.unitS / float64(m.Total) / float64(m.MakespanS)
	}
	if m.GPU != nil {
		m.GPU.Allocated = m.Utilization
	}
	m.users(users)
	m.sizes(sizes)
	return m
}

// unitsOf counts a job's units of utilization: GPUs or processors.
func (o *Outcome) unitsOf(j *Job) int64 {
	if o.byGPU {
		return int64(j.GPUs)
	}
	return int64(max(j.CPUs, j.GPUs))
}

// Slowdown gives the bounded slowdown of a job that waited and ran so many seconds.
func Slowdown(wait, run int64) float64 {
	return math.Max(1, float64(wait+run)/float64(max(run, boundS)))
}

// rank gives the percentile: the smallest value v such that at least percent of all values are at most v.
func rank[T cmp.Ordered](sorted []T, percent int) T {
	n := len(sorted)
	return sorted[max(0, (n*percent+99)/100-1)]
}

func tallyOf[K comparable](all map[K]*tally, k K) *tally {
	t := all[k]
	if t == nil {
		t = &tally{}
		all[k] = t
	}
	return t
}

// users fills in the fairness and the heaviest users. Jobs without a user count for neither.
func (m *Metrics) users(all map[string]*tally) {
	m.Users = []UserLine{}
	sum, squares, n := 0.0, 0.0, 0
	for user, t := range all {
		if user != "" {
			m.Users = append(m.Users, UserLine{user, t.jobs, t.unitS / 3600, t.wait / float64(t.jobs),
				t.slowdown / float64(t.jobs)})
		}
	}
	slices.SortFunc(m.Users, func(a,
		b UserLine) int {
		return cmp.Or(cmp.Compare(b.Hours, a.Hours), cmp.Compare(a.User, b.User))
	})
	for _, u := range m.Users { // in an order that is always the same: sums of floats depend on it
		sum += u.AvgSlowdown
		squares += u.AvgSlowdown * u.AvgSlowdown
		n++
	}
	if squares > 0 {
		m.Fairness = sum * sum / (float64(n) * squares)
	}
	m.Users = m.Users[:min(len(m.Users), maxUsers)]
}

// noUnits is the class of jobs that hold nothing of what is counted: jobs without GPUs on a machine of GPUs.
const noUnits = "none"

// sizeClass gives the power of two up to which a job's units count: 1, 2, 3-4, 5-8, ...; -1 for none.
func sizeClass(units int64) int {
	if units == 0 {
		return -1
	}
	c := 0
	for int64(1)<<c < units {
		c++
	}
	return c
}

// maxClass is beyond the class of the largest job.
const maxClass = 40

func classNames() []string {
	out := make([]string, maxClass)
	for c := range out {
		out[c] = className(c)
	}
	return out
}

func className(c int) string {
	switch c {
	case -1:
		return noUnits
	case 0:
		return "1"
	case 1:
		return "2"
	}
	return fmt.Sprintf("%d-%d", 1<<(c-1)+1, 1<<c)
}

func (m *Metrics) sizes(all map[int]*tally) {
	m.Sizes = []SizeLine{}
	for c := -1; c < maxClass; c++ {
		if t := all[c]; t != nil {
			slices.Sort(t.waits)
			n := float64(t.jobs)
			m.Sizes = append(m.Sizes, SizeLine{className(c), t.jobs, t.unitS / 3600, t.wait / n, rank(t.waits, 90),
				t.slowdown / n})
		}
	}
}

// String names the way.
func (e Events) String() string {
	if e == Single {
		return "single"
	}
	return "batch"
}

// ParseEvents reads a way's name.
func ParseEvents(s string) (Events, error) {
	switch s {
	case "batch":
		return Batch, nil
	case "single":
		return Single, nil
	}
	return 0, fmt.Errorf("--events %s: batch (one pass per second) or single (one pass per event)", s)
}
