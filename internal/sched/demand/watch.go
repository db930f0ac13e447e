package demand

import (
	"cmp"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Remembered is how many requests count: the last ones.
const Remembered = 4096

// mostNodes bounds the nodes for which one job counts: it counts once for each.
const mostNodes = 16

// maxNew bounds the jobs that are looked at in one Refresh: the last ones.
const maxNew = 4 * Remembered

// Watch follows the Views of one State and counts what jobs ask for when they come. It is derived from the facts and
// not part of them: a new leader begins with the jobs of its View. Not safe for concurrent use.
type Watch struct {
	wants  func(*state.View, *model.Job) (k Kind, nodes int)
	cursor state.Cursor
	last   model.JobID // jobs up to this number have been counted
	ring   []Kind
	next   int // place in ring of the next one, once it is full
	counts map[Kind]int64
	fresh  int // requests since the mix was made
	mix    *Mix
}

// NewWatch gives a watch; wants says what a job asks for on each of so many nodes.
func NewWatch(wants func(*state.View, *model.Job) (k Kind, nodes int)) *Watch {
	return &Watch{wants: wants, counts: map[Kind]int64{}}
}

// Mix gives the present mix; nil where too few jobs have asked for GPUs.
func (w *Watch) Mix() *Mix { return w.mix }

// Refresh brings the watch to a View. The mix is made anew when a quarter of what it counts is new.
func (w *Watch) Refresh(v *state.View) {
	changes, next, known := v.Changes(w.cursor)
	w.cursor = next
	var came []*model.Job
	if known {
		for _, c := range changes {
			if j := v.Job(c.Job); c.Job > w.last && j != nil {
				came = append(came, j)
			}
		}
	} else {
		v.Jobs(func(j *model.Job) bool {
			if j.ID > w.last {
				came = append(came, j)
			}
			return true
		})
	}
	if len(came) == 0 {
		return
	}
	slices.SortFunc(came, func(a, b *model.Job) int { return cmp.Compare(a.ID, b.ID) })
	for _, j := range came[max(0, len(came)-maxNew):] {
		if j.ID <= w.last {
			continue // several changes of one job
		}
		w.last = j.ID
		if k, nodes := w.wants(v, j); k.GPUs > 0 || k.Share != "" {
			for range min(nodes, mostNodes) {
				w.count(k)
			}
		}
	}
	if w.fresh >= max(Least, len(w.ring)/4) {
		w.mix, w.fresh = newMix(w.counts), 0
	}
}

func (w *Watch) count(k Kind) {
	w.fresh++
	w.counts[k]++
	if len(w.ring) < Remembered {
		w.ring = append(w.ring, k)
		return
	}
	old := w.ring[w.next]
	if w.counts[old]--; w.counts[old] == 0 {
		delete(w.counts, old)
	}
	w.ring[w.next] = k
	w.next = (w.next + 1) % Remembered
}
