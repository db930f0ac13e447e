package policy

import (
	"math/rand/v2"
	"slices"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// TestLately: an old longest wait counts for 30 days.
func TestLately(t *testing.T) {
	l := newLine(nil)
	day := func(n int64) model.Time { return begin.Add(n * 86400) }
	for _, x := range []struct{ day, waitS int64 }{{0, 500}, {1, 900}, {2, 300}, {3, 100}, {40, 200}} {
		l.note(day(x.day), x.waitS)
	}
	if len(l.peaks) != 3 {
		t.Errorf("the peaks are %v, want 900, 300, 200", l.peaks)
	}
	for _, x := range []struct{ since, want int64 }{{0, 900}, {1, 900}, {2, 300}, {3, 200}, {41, 0}} {
		if got := l.longest(day(x.since)); got != x.want {
			t.Errorf("since day %d: %d s, want %d", x.since, got, x.want)
		}
	}
	for i := range int64(100_000) {
		l.note(begin.Add(i*60), 100_000-i)
	}
	if n := len(l.peaks); n > 100_000/60+2 {
		t.Errorf("%d peaks for 70 days of falling waits, want one an hour", n)
	}
}

// TestInOrderOfArrival: where all run times are known, the schedule in order of arrival is EASY's, found second by
// second.
func TestInOrderOfArrival(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 6))
		jobs := make([]*guest, 60)
		at := begin
		for i := range jobs {
			at = at.Add(rng.Int64N(12))
			g := &guest{id: model.JobID(i + 1), since: at, tasks: 1, ranS: 1 + rng.Int64N(40)}
			g.limitS = g.ranS + rng.Int64N(60)
			for k := range g.need {
				g.need[k] = rng.Int64N(shareUnit)
			}
			if rng.IntN(4) > 0 {
				g.need[0], g.need[1], g.need[2], g.need[3] = g.need[0]/4, g.need[1]/4, g.need[2]/4, 0
			}
			jobs[i] = g
		}
		l := newLine(nil)
		for i := 0; i < len(jobs); { // as Refresh sees it: now and then, several at a time
			arrived := false
			now := jobs[i].since
			for ; i < len(jobs) && jobs[i].since == now; i++ {
				g := *jobs[i]
				jobs[i] = &g
				l.arrive(&g, now)
				arrived = true
			}
			l.to(now, arrived)
		}
		l.to(at.Add(1e6), false)
		want := slowEASY(jobs)
		for i, g := range jobs {
			if g.start != want[i] {
				t.Fatalf("seed %d: job %d starts at second %d, want %d", seed, i, (g.start-begin)/1000, (want[i]-begin)/1000)
			}
		}
		if len(l.queue) > 0 || len(l.running) > 0 || l.free.share() != shareUnit {
			t.Fatalf("seed %d: %d wait and %d run at the end", seed, len(l.queue), len(l.running))
		}
	}
}

// slowEASY gives EASY's starts.
func slowEASY(jobs []*guest) []model.Time {
	starts := make([]model.Time, len(jobs))
	use := func(at, from model.Time, byLimit bool) amounts { // what is free
		free := amounts{shareUnit, shareUnit, shareUnit, shareUnit}
		for i, g := range jobs {
			s := g.ranS
			if byLimit {
				s = g.limitS
			}
			if starts[i] != 0 && starts[i] <= from && max(starts[i].Add(s), starts[i]) > at &&
				starts[i].Add(g.ranS) > from {
				free = free.less(g.need)
			}
		}
		return free
	}
	for now, left := begin, len(jobs); left > 0; now = now.Add(1) {
		head := -1
		var shadow model.Time
		var extra amounts
		for i, g := range jobs {
			if starts[i] != 0 || g.since > now || !g.need.fits(use(now, now, false)) && head >= 0 {
				continue
			}
			fits := g.need.fits(use(now, now, false))
			switch {
			case head < 0 && !fits:
				head = i
				for shadow = now.Add(1); !g.need.fits(use(shadow, now, true)); shadow = shadow.Add(1) {
				}
				extra = use(shadow, now, true).less(g.need)
				continue
			case head >= 0 && now.Add(g.limitS) > shadow:
				if !g.need.fits(extra) {
					continue
				}
				extra = extra.less(g.need)
			}
			starts[i] = now
			left--
		}
	}
	return starts
}

// TestLine: the schedule in order of arrival keeps only the jobs that there are, in any order of events, and arrays,
// held jobs and jobs that end before they would have started leave nothing behind.
func TestLine(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 4))
		c := newCluster(t, 64, Default())
		var waits, runs []model.JobID
		for step := range 300 {
			c.after(rng.Int64N(100))
			switch {
			case len(waits) > 0 && len(runs) < 16 && rng.IntN(2) == 0:
				i := rng.IntN(len(waits))
				c.start(waits[i])
				runs = append(runs, waits[i])
				waits = slices.Delete(waits, i, i+1)
			case len(runs) > 0 && rng.IntN(3) == 0:
				i := rng.IntN(len(runs))
				c.end(runs[i])
				runs = slices.Delete(runs, i, i+1)
			case len(waits) > 0 && rng.IntN(6) == 0: // it leaves
				i := rng.IntN(len(waits))
				c.apply(&state.Stop{Targets: []model.JobRef{{Job: waits[i], Task: model.NoTask}}, Event: model.EvCancel})
				waits = slices.Delete(waits, i, i+1)
			default:
				waits = append(waits, c.submit(uint32(rng.IntN(4)), int32(1+rng.IntN(4)), 60+rng.Int64N(20000)))
			}
			switch step {
			case 150:
				c.p.Reclassify() // rebuild counts everything again
			case 200:
				c.p.relay(c.p.parts["p"])
			}
			c.refresh()
			l := c.p.parts["p"].line
			if len(l.living) != len(waits)+len(runs) {
				t.Fatalf("seed %d: %d live, %d wait and %d run", seed, len(l.living), len(waits), len(runs))
			}
			late := 0
			free := amounts{shareUnit, shareUnit, shareUnit, shareUnit}
			for _, g := range l.running {
				free = free.less(g.need)
			}
			for _, g := range l.queue {
				if g.ranS >= 0 {
					late++
				}
			}
			if late != l.late || free != l.free || !slices.IsSortedFunc(l.queue, byGuest) {
				t.Fatalf("seed %d: %d are late, counted %d; free %v, counted %v", seed, late, l.late, free, l.free)
			}
		}
		c.now = c.now.Add(1e7)
		c.refresh()
		if l := c.p.parts["p"].line; len(l.queue) > 0 {
			t.Fatalf("seed %d: %d still wait there", seed, len(l.queue))
		}
	}
}
