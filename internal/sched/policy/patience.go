package policy

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
)

// Each partition has a list of its pending jobs by arrival. When a job starts, its work (its share times its likely
// time) is noted at the job before it in the list: it has overtaken all jobs from the head to that one. So the work
// that has overtaken a job is the sum of the notes from that job to the tail, and one walk over the list gives it for
// all jobs.

// enlist puts a new pending job into its place in the list.
func (q *part) enlist(e *entry) {
	sum, at := int64(0), q.tail
	for ; at != nil && byArrival(at, e) > 0; at = at.prev {
		sum += at.noted
	}
	e.base = sum
	e.prev = at
	if at == nil {
		e.next, q.head = q.head, e
	} else {
		e.next, at.next = at.next, e
	}
	if e.next == nil {
		q.tail = e
	} else {
		e.next.prev = e
	}
}

// delist removes a job that is not pending any more. Its note moves to the job before it.
func (q *part) delist(e *entry) {
	if e.prev != nil {
		e.prev.noted += e.noted
		e.prev.next = e.next
	} else {
		q.head = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		q.tail = e.prev
	}
	e.prev, e.next, e.noted = nil, nil, 0
}

// before gives the job in the list before a job that starts without having been in it. An array's task takes the place
// of its array.
func (p *Policy) before(e *entry, array model.JobID) *entry {
	if a := p.jobs[array]; array != 0 && a != nil && a.start == 0 && a.part == e.part {
		return a.prev
	}
	at := e.part.tail
	for at != nil && byArrival(at, e) > 0 {
		at = at.prev
	}
	return at
}

// begins notes the work of a job that starts at the job before it, after; nil: there is none.
func (q *part) begins(after *entry, work int64) {
	q.begun += work
	if after != nil {
		after.noted += work
	}
}

// ahead gives the work ahead of a job that arrives at a moment: what is left of running jobs, and all of the pending
// ones. In shareUnit.
func (q *part) ahead(now model.Time) (left, waiting int64) {
	if !q.summed || q.summedAt != now { // jobs that arrive together share the sum
		q.left, q.summed, q.summedAt = 0, true, now
		for _, e := range q.running {
			if s := e.plan.likely - int64(now-e.start)/1000; s > 0 {
				q.left += s * e.share
			}
		}
	}
	return q.left, q.waiting
}

// spent reports whether a job's patience has ended. It has if later jobs have begun at least GrantS of work plus
// GrantPct of the work that earlier jobs have had since the job came, or if the job has waited too long.
func (p *Policy) spent(e *entry, overtaken int64) bool {
	before := e.left + e.part.begun - e.begunAt - overtaken
	return overtaken/shareUnit >= p.opt.GrantS+before/shareUnit*p.opt.GrantPct/100 || e.until < p.now
}

// patience finds the job of a queue that goes first because its patience has ended: of several the one that has waited
// longest. It reports whether that job has changed. It walks over all pending jobs.
func (p *Policy) patience(q *part) bool {
	var first *entry
	sum := int64(0)
	for e := q.tail; e != nil; e = e.prev {
		sum += e.noted
		e.over = e.over || p.spent(e, sum-e.base)
		if e.over && !e.calm {
			first = e
		}
	}
	if first == q.first {
		return false
	}
	if (first == nil) != (q.first == nil) {
		p.round++
	}
	q.first, q.strict, q.guesses = first, false, nil
	return true
}

// guess notes that a job has started while a job was out of patience: it may have overtaken that job because it was
// expected to end in time. guessS is that expectation, seconds.
func (e *entry) guess(guessS int64) {
	q := e.part
	if q.first == nil || q.strict || guessS >= planLimit(e.limitS) {
		return
	}
	e.guessS = guessS
	if q.first.id != e.id {
		q.guesses = append(q.guesses, e)
	}
}

// watch looks whether a job that has overtaken the first by a guess runs longer than guessed. Then nobody overtakes by
// a guess until the first has started, which happens within the longest time limit.
func (p *Policy) watch(q *part) {
	if q.strict {
		return
	}
	q.guesses = slices.DeleteFunc(q.guesses, func(e *entry) bool {
		if p.jobs[e.id] != e {
			return true // it has ended
		}
		if int64(p.now-e.start) >= 1000*e.guessS {
			q.strict = true
		}
		return false
	})
	if q.strict {
		q.guesses = nil
		p.round++
	}
}

func byArrival(a, b *entry) int {
	return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.id, b.id))
}

// overtaken adds to out the work that has overtaken each pending job.
func (q *part) overtaken(out map[model.JobID]int64) {
	sum := int64(0)
	for e := q.tail; e != nil; e = e.prev {
		sum += e.noted
		out[e.id] = sum - e.base
	}
}

// overtaken gives the work that has overtaken a pending job.
func (e *entry) overtaken() int64 {
	sum := -e.base
	for at := e; at != nil; at = at.next {
		sum += at.noted
	}
	return sum
}

// Overdue gives the jobs of a partition whose patience has ended, the longest waiting first, as of the last Refresh.
func (p *Policy) Overdue(partition string) []model.JobID {
	q := p.parts[partition]
	if q == nil {
		return nil
	}
	var out []model.JobID
	for e := q.head; e != nil; e = e.next {
		if e.over {
			out = append(out, e.id)
		}
	}
	return out
}
