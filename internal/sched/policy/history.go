package policy

import (
	"math/bits"
	"slices"

	"gbatch/internal/model"
)

// Bounds of users' histories.
const (
	// Remembered is how many of a user's last jobs count.
	Remembered = 8
	// MaxUsers bounds the users that are remembered; beyond it, the half whose jobs ended longest ago is forgotten.
	MaxUsers = 1 << 16
	// MaxWorks bounds the kinds of users' jobs in the same way.
	MaxWorks = 1 << 16
)

// maxPlanS stands for the limit of jobs without one, seconds: a week.
const maxPlanS = 7 * 24 * 3600

// partUnit stands for a whole limit: parts of limits that jobs used are counted in units of 1/partUnit.
const partUnit = 1 << 16

// Nobody is the user of jobs whose users are not known: Linux's overflow ID, and a trace's jobs without a user.
const Nobody = 65534

// history has the parts of their limits that users' last jobs used.
type history struct {
	users map[uint32]*record
	works map[work]*record
	ended uint64
	kinds map[kind]*kindMean // of Nobody's jobs
	all   kindMean           // of the others'
}

// work is a kind of job of one user: people who submit the same thing again use the same size and limit.
type work struct {
	uid           uint32
	limitS, share int64
}

// kind groups jobs whose users are not known, by limit and share, each to a factor of two. There are a few hundred
// kinds at most.
type kind struct{ limit, share int }

func kindOf(limitS, share int64) kind {
	return kind{bits.Len64(uint64(limitS)), bits.Len64(uint64(share))}
}

// kindMean is the mean part of their limits that jobs of a kind used. The first kindRemembered jobs count equally, each
// later one weighs one kindRemembered-th.
type kindMean struct {
	mean int64 // of partUnit * kindFine
	n    int64
}

// kindRemembered is about how many jobs of a kind count: many, because they belong to different users.
const kindRemembered = 32

// safeTimes is how many times the longest of a user's last jobs counts as a safe planned time.
const safeTimes = 2

// kindFine makes the mean fine enough to move by a kindRemembered-th of the smallest part.
const kindFine = 256

func (m *kindMean) add(part int64) {
	m.n = min(m.n+1, kindRemembered)
	m.mean += (part*kindFine - m.mean) / m.n
}

// record is the history of one user, or of one kind of that user's jobs, a ring.
type record struct {
	parts [Remembered]uint32 // of partUnit
	n     uint8              // how many there are
	next  uint8              // index of the next part
	last  uint64             // history.ended when the last job was added
}

func newHistory() *history {
	return &history{users: map[uint32]*record{}, works: map[work]*record{}, kinds: map[kind]*kindMean{}}
}

// learn adds a job that has ended. A share of 0 is not known.
func (h *history) learn(uid uint32, usedS, limitS, share int64) {
	limitS = planLimit(limitS)
	part := partOfLimit(usedS, limitS)
	if uid == Nobody {
		k := kindOf(limitS, share)
		m := h.kinds[k]
		if m == nil {
			m = &kindMean{}
			h.kinds[k] = m
		}
		m.add(int64(part))
		return
	}
	h.ended++
	h.all.add(int64(part))
	remember(h.users, uid, MaxUsers).add(part, h.ended)
	if share > 0 {
		remember(h.works, work{uid, limitS, share}, MaxWorks).add(part, h.ended)
	}
}

// remember gives the record of a key and makes it where there is none. Of most records, it drops the half whose last
// jobs ended longest ago.
func remember[K comparable](all map[K]*record, key K, most int) *record {
	r := all[key]
	if r != nil {
		return r
	}
	if len(all) >= most {
		lasts := make([]uint64, 0, len(all))
		for _, r := range all {
			lasts = append(lasts, r.last)
		}
		slices.Sort(lasts)
		oldest := lasts[len(lasts)/2]
		for k, r := range all {
			if r.last < oldest {
				delete(all, k)
			}
		}
	}
	r = &record{}
	all[key] = r
	return r
}

// Old is a job that ended before the first view.
type Old struct {
	UID           uint32
	UsedS, LimitS int64 // how long it ran, and its limit, seconds
}

// recall adds jobs that ended before all that are known, the oldest first. Of each user the last ones count. It ignores
// jobs of Nobody.
func (h *history) recall(list []Old) {
	parts := map[uint32][]uint32{}
	for _, o := range list {
		if o.UID == Nobody {
			continue
		}
		part := partOfLimit(o.UsedS, o.LimitS)
		parts[o.UID] = append(parts[o.UID], part)
		h.all.add(int64(part))
	}
	for _, o := range list { // in their order: map iteration would forget others each time
		if p := parts[o.UID]; p != nil {
			r := remember(h.users, o.UID, MaxUsers)
			r.before(p)
			delete(parts, o.UID)
		}
	}
}

// before adds the parts of jobs that ended before those of the record, the oldest first.
func (r *record) before(parts []uint32) {
	for i := range r.n {
		parts = append(parts, r.parts[(r.next+Remembered-r.n+i)%Remembered])
	}
	parts = parts[max(0, len(parts)-Remembered):]
	r.n = uint8(copy(r.parts[:], parts))
	r.next = r.n % Remembered
}

// partOfLimit gives the part of its limit that a job used, of partUnit.
func partOfLimit(usedS, limitS int64) uint32 {
	limitS = planLimit(limitS)
	return uint32(max(1, min(partUnit, (max(usedS, 0)*partUnit+limitS-1)/limitS)))
}

// add adds a part; at is history.ended.
func (r *record) add(part uint32, at uint64) {
	r.last = at
	r.parts[r.next] = part
	r.next = (r.next + 1) % Remembered
	r.n = min(r.n+1, Remembered)
}

// forecast has four planned times of a job, seconds, from 1 to its limit.
type forecast struct {
	long   int64 // most jobs stay below it: it orders the queue
	likely int64 // the mean: jobs overtake by it
	safe   int64 // hardly any job exceeds it: jobs overtake by it while a job is out of patience
	usual  int64 // likely or, for a new user, from the mean of all users: for the schedule in order of arrival
}

// planned gives the planned times of a user's job. They come from the parts of their limits that the user's last jobs
// of the same size and limit used, or if there are none, the user's last jobs: long from the second largest part,
// likely from the mean, and safe is safeTimes the largest. All are the limit if no job of the user has ended. For jobs
// of Nobody, likely is the mean of their kind, long is halfway between likely and the limit, and safe is the limit.
func (h *history) planned(uid uint32, limitS, share int64) forecast {
	limitS = planLimit(limitS)
	unknown := forecast{limitS, limitS, limitS, limitS}
	if uid == Nobody {
		m := h.kinds[kindOf(limitS, share)]
		if m == nil {
			return unknown
		}
		likely := max(1, over(limitS*m.mean/kindFine, partUnit))
		return forecast{(likely + limitS + 1) / 2, likely, limitS, likely}
	}
	r := h.works[work{uid, limitS, share}]
	if r == nil {
		r = h.users[uid]
	}
	if r == nil {
		if h.all.n > 0 {
			unknown.usual = max(1, over(limitS*h.all.mean/kindFine, partUnit))
		}
		return unknown
	}
	parts := r.parts
	p := parts[:r.n]
	slices.Sort(p)
	sum := int64(0)
	for _, x := range p {
		sum += int64(x)
	}
	likely := max(1, over(limitS*sum, partUnit*int64(len(p))))
	return forecast{max(1, over(limitS*int64(p[len(p)*3/4]), partUnit)), likely,
		min(limitS, max(1, over(limitS*int64(p[len(p)-1]), partUnit))*safeTimes), likely}
}

// over divides and rounds up.
func over(a, b int64) int64 { return (a + b - 1) / b }

// planLimit gives the limit that plans use.
func planLimit(limitS int64) int64 {
	if limitS >= model.Unlimited || limitS < 1 {
		return maxPlanS
	}
	return limitS
}
