package alarm

import (
	"slices"
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
}

// NewWatch knows of no trouble.
func NewWatch() *Watch {
	return &Watch{since: map[string]time.Time{}, turn: map[string]uint64{}, told: map[string]Trouble{}}
}

func (t *Trouble) key() string { return t.Event + " " + t.Daemon + t.What }

// Step takes what is wrong now, and gives the alerts of it.
func (w *Watch) Step(now time.Time, list []Trouble) []Alert {
	var out []Alert
	seen := map[string]bool{}
	for _, t := range list {
		key := t.key()
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
		if !seen[key] {
			ended = append(ended, key)
		}
	}
	slices.Sort(ended)
	for _, key := range ended {
		delete(w.since, key)
		delete(w.turn, key)
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
