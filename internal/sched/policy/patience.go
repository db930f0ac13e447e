package policy

import (
	"cmp"

	"gbatch/internal/model"
)

// Who waits stands in a list of its partition by arrival. The work of a job that starts (its share times what is
// likely) is noted with the one before it there: all of those from the head to that one have been overtaken. What has
// overtaken a job is then the sum of the notes from it to the tail, and one walk gives it for everybody.

// enlist puts a job that begins to wait into its place.
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

// delist takes a job out that waits no more. What is noted with it counts for those before it.
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

// before gives who stands before a job that starts without having been in the list: an array's task stands where the
// array does.
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

// begins notes that a job that came after another starts.
func (q *part) begins(after *entry, work int64) {
	q.begun += work
	if after != nil {
		after.noted += work
	}
}

// ahead gives the work that there is at a moment to be done before that of a job that arrives: what is left of those
// that run, and all that wait. In shareUnit.
func (q *part) ahead(now model.Time) (left, waiting int64) {
	if !q.summed || q.summedAt != now { // jobs that arrive together share the sum
		q.left, q.summed, q.summedAt = 0, true, now
		for _, e := range q.running {
			if s := e.likely - int64(now-e.start)/1000; s > 0 {
				q.left += s * e.share
			}
		}
	}
	return q.left, q.waiting
}

// spent reports whether a job's patience has ended: others that came later have done more work than those who came
// before it since it came, by more than what everybody grants; or it has waited for too long, whatever has been done.
func (p *Policy) spent(e *entry, overtaken int64) bool {
	before := e.left + e.part.begun - e.begunAt - overtaken
	return overtaken/shareUnit >= p.opt.GrantS+before/shareUnit*p.opt.GrantPct/100 || e.until < p.now
}

// patience finds who of a queue goes first because his patience has ended: the one that has waited longest. It reports
// whether that is another than before. It costs a walk over who waits.
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
	q.first = first
	return true
}

func byArrival(a, b *entry) int {
	return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.id, b.id))
}

// overtaken adds what has gone before each that waits.
func (q *part) overtaken(out map[model.JobID]int64) {
	sum := int64(0)
	for e := q.tail; e != nil; e = e.prev {
		sum += e.noted
		out[e.id] = sum - e.base
	}
}

// overtaken gives what has gone before a job that waits.
func (e *entry) overtaken() int64 {
	sum := -e.base
	for at := e; at != nil; at = at.next {
		sum += at.noted
	}
	return sum
}

// Overdue names the jobs of a partition whose patience has ended, longest waiting first, as of the last Refresh.
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
