package policy

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
)

// enlist puts a new pending job into its place in its partition's list, which is in order of arrival.
func (q *part) enlist(e *entry) {
	at := q.tail
	for at != nil && byArrival(at, e) > 0 {
		at = at.prev
	}
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

// delist removes a job that is not pending any more.
func (q *part) delist(e *entry) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		q.head = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		q.tail = e.prev
	}
	e.prev, e.next = nil, nil
}

func byArrival(a, b *entry) int {
	return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.id, b.id))
}

// patience plays a partition's schedule in order of arrival up to now, and finds the job that goes first because it has
// waited for too long, measured by the longest wait there: of several the one that has waited longest. It reports
// whether that job has changed.
func (p *Policy) patience(q *part) bool {
	if q.line.late > maxLate {
		p.relay(q)
	}
	q.line.to(p.now, q.arrived)
	q.arrived = false
	q.boundMS = 1000 * max(p.opt.LeastS, q.line.longest(p.now.Add(-p.opt.LatelyS))*p.opt.LongestPct/100)
	var first *entry
	for e := q.head; e != nil && q.over(e, p.now); e = e.next {
		if !e.calm {
			first = e
			break
		}
	}
	if first == q.first {
		return false
	}
	if (first == nil) != (q.first == nil) || q.strict {
		p.round++
	}
	q.first, q.strict, q.guesses = first, false, nil
	return true
}

// over reports whether a pending job's patience has ended.
func (q *part) over(e *entry, now model.Time) bool { return int64(now-e.since) >= q.boundMS }

// relay begins a partition's schedule in order of arrival anew, with the jobs that there really are.
func (p *Policy) relay(q *part) {
	was := q.line
	q.line = newLine(was.peaks)
	list := make([]*guest, 0, len(was.living))
	for _, g := range was.living {
		g.start, g.end, g.old = 0, 0, true
		list = append(list, g)
	}
	slices.SortFunc(list, byGuest)
	for _, g := range list {
		q.line.arrive(g, p.now)
	}
	q.arrived = true
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

// Overdue gives the jobs of a partition whose patience has ended, the longest waiting first, as of the last Refresh.
func (p *Policy) Overdue(partition string) []model.JobID {
	q := p.parts[partition]
	if q == nil {
		return nil
	}
	var out []model.JobID
	for e := q.head; e != nil && q.over(e, p.now); e = e.next {
		out = append(out, e.id)
	}
	return out
}
