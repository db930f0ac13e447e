package policy

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
)

// line is what a partition would do in order of arrival: EASY backfill over a pool as large as the partition, with the
// same arrivals. Jobs run there as long as they really do, once that is known, and until then as long as likely. Its
// longest wait is the measure of patience: a job that the default order keeps back for longer is owed a turn.
type line struct {
	free    amounts
	queue   []*guest // in order of arrival
	running []*guest
	living  map[model.JobID]*guest // those of jobs that have not really ended
	late    int                    // guests in the queue whose jobs have really ended
	next    model.Time             // the first end of running; 0: there is none
	peaks   []peak                 // waits that no later one exceeds, the longest first
	ends    []release              // for reuse
}

// guest is a job in a line. An array that waits is one guest of several tasks.
type guest struct {
	id     model.JobID
	since  model.Time
	old    bool    // it is from before the line began: how long it would have waited is not known
	need   amounts // of one task
	tasks  int64
	limitS int64
	planS  int64
	begun  model.Time // its job's real start; 0: it waits
	ranS   int64      // how long its job really ran; -1: not known
	start  model.Time // in the line; 0: it waits
	end    model.Time // expected
}

// peak is a wait in a line, seconds, and the moment at which it was seen.
type peak struct {
	at    model.Time
	waitS int64
}

// release is what a running guest gives back, by its limit.
type release struct {
	at   model.Time
	need amounts
}

// Bounds of a line.
const (
	lineDepth = 1000        // jobs that a pass tries behind the first
	maxLate   = 1 << 14     // guests whose jobs have really ended: beyond it, the line begins anew
	peakEvery = 3600 * 1000 // smaller peaks within this time, ms, are one
	slackS    = 60          // a guest that outlives its planned time gets at least this more
)

// planPct is the part of a job's likely time that it runs in the line, per cent, as long as it has not ended. The mean
// is above what most jobs take, and a line that is too slow promises too little.
const planPct = 80

func newLine(peaks []peak) *line {
	return &line{free: amounts{shareUnit, shareUnit, shareUnit, shareUnit}, living: map[model.JobID]*guest{}, peaks: peaks}
}

// arrive adds a job that waits, or that runs if it has begun.
func (l *line) arrive(g *guest, now model.Time) {
	l.to(now, false)                       // it takes no part in what happened before
	if old := l.living[g.id]; old != nil { // it has changed
		if old.start == 0 {
			old.need, old.limitS, old.planS, old.tasks = g.need, g.limitS, g.planS, g.tasks
		}
		return
	}
	l.living[g.id] = g
	if g.begun != 0 {
		l.start(g, g.begun, now)
		return
	}
	at := len(l.queue)
	for at > 0 && byGuest(l.queue[at-1], g) > 0 {
		at--
	}
	l.queue = slices.Insert(l.queue, at, g)
}

func byGuest(a, b *guest) int {
	return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.id, b.id))
}

// withdraw removes a job that does not wait any more and has not run.
func (l *line) withdraw(id model.JobID) {
	g := l.living[id]
	if g == nil {
		return
	}
	delete(l.living, id)
	if g.start == 0 {
		l.queue = slices.DeleteFunc(l.queue, func(x *guest) bool { return x == g })
	}
}

// begins notes that a job has really started.
func (l *line) begins(id model.JobID, at model.Time) {
	if g := l.living[id]; g != nil {
		g.begun = at
	}
}

// ended notes that a job has really ended, and after how many seconds.
func (l *line) ended(id model.JobID, ranS int64, now model.Time) {
	g := l.living[id]
	if g == nil {
		return
	}
	delete(l.living, id)
	g.ranS = max(1, ranS)
	switch {
	case g.start == 0:
		l.late++
	case g.end > now:
		g.end = max(now, g.start.Add(g.ranS))
		l.next = min(l.next, g.end)
	}
}

// start lets a guest run.
func (l *line) start(g *guest, at, now model.Time) {
	g.start = at
	l.free = l.free.less(g.need)
	switch {
	case g.ranS >= 0:
		g.end = at.Add(g.ranS)
	case g.begun != 0:
		g.end = max(now, at.Add(min(g.limitS, max(g.planS, int64(now-g.begun)/1000+1))))
	default:
		g.end = at.Add(g.planS)
	}
	l.running = append(l.running, g)
	if l.next == 0 || g.end < l.next {
		l.next = g.end
	}
}

// to plays the line up to a moment. arrived: jobs have come since the last time.
func (l *line) to(now model.Time, arrived bool) {
	for l.next != 0 && l.next <= now {
		at, next, freed := l.next, model.Time(0), false
		l.running = slices.DeleteFunc(l.running, func(g *guest) bool {
			if g.end <= at && g.ranS < 0 && g.begun != 0 && int64(now-g.begun)/1000 >= g.planS && at < g.start.Add(g.limitS) {
				// its job really runs for longer than planned
				g.end = max(at+1000, g.start.Add(min(g.limitS, max(g.planS*5/4, int64(now-g.begun)/1000)+slackS)))
			}
			if g.end <= at {
				l.free, freed = l.free.more(g.need), true
				return true
			}
			if next == 0 || g.end < next {
				next = g.end
			}
			return false
		})
		if l.next = next; freed {
			l.pass(at, now)
		}
	}
	if arrived {
		l.pass(now, now)
	}
	if len(l.queue) > 0 && !l.queue[0].old {
		l.note(now, int64(now-l.queue[0].since)/1000)
	}
}

// begin starts the first task of a waiting guest; it reports whether it was the last.
func (l *line) begin(g *guest, at, now model.Time) bool {
	if !g.old {
		l.note(at, int64(at-g.since)/1000)
	}
	if g.tasks <= 1 {
		if g.ranS >= 0 {
			l.late--
		}
		l.start(g, at, now)
		return true
	}
	one := *g
	one.tasks = 1
	g.tasks--
	l.start(&one, at, now)
	return false
}

// pass starts what EASY backfill starts at a moment.
func (l *line) pass(at, now model.Time) {
	k := 0
	for k < len(l.queue) && l.queue[k].need.fits(l.free) {
		if l.begin(l.queue[k], at, now) {
			k++
		}
	}
	l.queue = slices.Delete(l.queue, 0, k)
	if len(l.queue) < 2 {
		return
	}
	var shadow model.Time
	var extra amounts
	known := false
	last := min(len(l.queue), 1+lineDepth)
	kept := l.queue[:1]
	for _, g := range l.queue[1:last] {
		gone := false
		for !gone && g.need.fits(l.free) {
			if !known {
				known = true
				shadow, extra = l.reserve(l.queue[0].need, at)
			}
			if at.Add(g.limitS) > shadow {
				if !g.need.fits(extra) {
					break
				}
				extra = extra.less(g.need)
			}
			gone = l.begin(g, at, now)
		}
		if !gone {
			kept = append(kept, g)
		}
	}
	l.queue = slices.Delete(l.queue, len(kept), last)
}

// reserve gives the moment at which the first guest of the queue can start by the limits of those that run, and what is
// free beside it then.
func (l *line) reserve(need amounts, now model.Time) (at model.Time, extra amounts) {
	l.ends = l.ends[:0]
	for _, g := range l.running {
		l.ends = append(l.ends, release{max(now+1000, g.start.Add(g.limitS)), g.need})
	}
	slices.SortFunc(l.ends, func(a, b release) int { return cmp.Compare(a.at, b.at) })
	at, extra = now, l.free
	for i := 0; i < len(l.ends) && (!need.fits(extra) || l.ends[i].at == at); i++ {
		at, extra = l.ends[i].at, extra.more(l.ends[i].need)
	}
	return at, extra.less(need)
}

// note remembers a wait. Of the peaks, only those stay that no later one exceeds.
func (l *line) note(at model.Time, waitS int64) {
	n := len(l.peaks)
	for n > 0 && l.peaks[n-1].waitS <= waitS {
		n--
	}
	if n > 0 && at-l.peaks[n-1].at < peakEvery && n == len(l.peaks) {
		return
	}
	l.peaks = append(l.peaks[:n], peak{at, waitS})
}

// longest gives the longest wait since a moment, seconds.
func (l *line) longest(since model.Time) int64 {
	n := 0
	for n < len(l.peaks) && l.peaks[n].at < since {
		n++
	}
	if l.peaks = l.peaks[n:]; len(l.peaks) == 0 {
		return 0
	}
	return l.peaks[0].waitS
}
