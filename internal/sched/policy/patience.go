package policy

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
)

// patienceS gives how long a job that arrives now lets others go first, seconds: what everybody has, and a part of the
// time that the work ahead of it takes, that of running jobs by what is planned of it. That part is below one, so that
// a queue of jobs that others overtake can't become the reason for being overtaken longer.
func (p *Policy) patienceS(q *part) int64 {
	work := q.waiting
	for _, e := range q.running {
		if left := e.planS - int64(p.now-e.start)/1000; left > 0 {
			work += left * e.share
		}
	}
	return p.opt.PatienceS + work/shareUnit*p.opt.BacklogPct/100
}

// patience finds who of a queue goes first because his patience has ended: the one that has waited longest. It reports
// whether that is another than before.
func (p *Policy) patience(q *part) bool {
	for len(q.due) > 0 && (q.due[0].gone || q.due[0].until < p.now) {
		if e := q.due.pop(); !e.gone && e.start == 0 {
			i, _ := slices.BinarySearchFunc(q.over, e, byArrival)
			q.over = slices.Insert(q.over, i, e)
		}
	}
	q.over = slices.DeleteFunc(q.over, func(e *entry) bool { return e.gone })
	var first *entry
	for _, e := range q.over {
		if !e.calm {
			first = e
			break
		}
	}
	if first == q.first {
		return false
	}
	if (first == nil) != (q.first == nil) {
		p.round++
	}
	q.first = first
	return true
}

func byArrival(a, b *entry) int {
	return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.id, b.id))
}

// dueHeap has the job whose patience ends first on top.
type dueHeap []*entry

func (h dueHeap) before(i, k int) bool {
	return cmp.Or(cmp.Compare(h[i].until, h[k].until), cmp.Compare(h[i].id, h[k].id)) < 0
}

func (h dueHeap) sort() {
	slices.SortFunc(h, func(a, b *entry) int { return cmp.Or(cmp.Compare(a.until, b.until), cmp.Compare(a.id, b.id)) })
}

func (h *dueHeap) push(e *entry) {
	*h = append(*h, e)
	x := *h
	for i := len(x) - 1; i > 0 && x.before(i, (i-1)/2); i = (i - 1) / 2 {
		x[i], x[(i-1)/2] = x[(i-1)/2], x[i]
	}
}

func (h *dueHeap) pop() *entry {
	x := *h
	top, n := x[0], len(x)-1
	x[0], x[n] = x[n], nil
	x = x[:n]
	*h = x
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			return top
		}
		if c+1 < n && x.before(c+1, c) {
			c++
		}
		if !x.before(c, i) {
			return top
		}
		x[i], x[c] = x[c], x[i]
		i = c
	}
}

// Overdue names the jobs of a partition whose patience has ended, longest waiting first, as of the last Refresh.
func (p *Policy) Overdue(partition string) []model.JobID {
	q := p.parts[partition]
	if q == nil {
		return nil
	}
	var out []model.JobID
	for _, e := range q.over {
		out = append(out, e.id)
	}
	return out
}

// PatienceEnds gives the moment at which a waiting job's patience ends, or 0 where it is not known to wait.
func (p *Policy) PatienceEnds(id model.JobID) model.Time {
	if e := p.jobs[id]; e != nil && e.start == 0 {
		return e.until
	}
	return 0
}
