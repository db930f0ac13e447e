package alarm

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Trouble is something that is wrong now.
type Trouble struct {
	Alert
	Over  string        // the event of its end
	After time.Duration // it counts when it has lasted so long
	Turn  uint64        // with another one it has begun anew, unless it was told
	What  string        // tells apart those of one event that somebody may have
}

// Watch knows which troubles there are, and which were told.
type Watch struct {
	since map[string]time.Time
	turn  map[string]uint64
	told  map[string]Trouble

	// kept are those that a former leader told and that this one has not seen yet: until settled it may just not know.
	kept    map[string]bool
	settled time.Time
}

// NewWatch begins with what a former leader has told; nil: nothing. Until settled, such a trouble is not over because
// it is not seen.
func NewWatch(told []Trouble, settled time.Time) *Watch {
	w := &Watch{since: map[string]time.Time{}, turn: map[string]uint64{}, told: map[string]Trouble{},
		kept: map[string]bool{}, settled: settled}
	for _, t := range told {
		key := t.key()
		w.told[key], w.kept[key], w.since[key] = t, true, time.Time{}
	}
	return w
}

// Telling gives what was told and is not over, in some order that stays.
func (w *Watch) Telling() []Trouble {
	return slices.SortedFunc(maps.Values(w.told), func(a, b Trouble) int { return strings.Compare(a.key(), b.key()) })
}

func (t *Trouble) key() string { return t.Event + " " + t.Daemon + t.What }

// Step takes what is wrong now, and gives the alerts of it.
func (w *Watch) Step(now time.Time, list []Trouble) []Alert {
	var out []Alert
	seen := map[string]bool{}
	for _, t := range list {
		key := t.key()
		if w.kept[key] {
			delete(w.kept, key)
			w.turn[key] = t.Turn
		}
		if _, ok := w.since[key]; !ok || w.turn[key] != t.Turn {
			if _, told := w.told[key]; told {
				continue // it is over, and perhaps begins anew
			}
			w.since[key], w.turn[key] = now, t.Turn
		}
		seen[key] = true
		if _, told := w.told[key]; !told && now.Sub(w.since[key]) >= t.After {
			w.told[key] = t
			out = append(out, t.Alert)
		}
	}
	var ended []string
	for key := range w.since {
		if !seen[key] && !(w.kept[key] && now.Before(w.settled)) {
			ended = append(ended, key)
		}
	}
	slices.Sort(ended)
	for _, key := range ended {
		delete(w.since, key)
		delete(w.turn, key)
		delete(w.kept, key)
		if t, told := w.told[key]; told {
			delete(w.told, key)
			out = append(out, Alert{Event: t.Over, Level: "info", Daemon: t.Daemon})
		}
	}
	return out
}

// Told reports whether a trouble was told that is not over.
func (w *Watch) Told(event, daemon string) bool {
	_, ok := w.told[event+" "+daemon]
	return ok
}
