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
	ended uint64
	kinds map[kind]*kindMean // of Nobody's jobs
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

// kindFine makes the mean fine enough to move by a kindRemembered-th of the smallest part.
const kindFine = 256

func (m *kindMean) add(part int64) {
	m.n = min(m.n+1, kindRemembered)
	m.mean += (part*kindFine - m.mean) / m.n
}

// record is the history of one user, a ring.
type record struct {
	parts [Remembered]uint32 // of partUnit
	n     uint8              // how many there are
	next  uint8              // index of the next part
	last  uint64             // history.ended when the last job was added
}

func newHistory() *history {
	return &history{users: map[uint32]*record{}, kinds: map[kind]*kindMean{}}
}

// learn adds a job that has ended.
func (h *history) learn(uid uint32, usedS, limitS, share int64) {
	limitS = planLimit(limitS)
	part := uint32(max(1, min(partUnit, (max(usedS, 0)*partUnit+limitS-1)/limitS)))
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
	r := h.users[uid]
	if r == nil {
		if len(h.users) >= MaxUsers {
			h.forget()
		}
		r = &record{}
		h.users[uid] = r
	}
	h.ended++
	r.last = h.ended
	r.parts[r.next] = part
	r.next = (r.next + 1) % Remembered
	r.n = min(r.n+1, Remembered)
}

// forget drops the half of the users whose last jobs ended longest ago.
func (h *history) forget() {
	lasts := make([]uint64, 0, len(h.users))
	for _, r := range h.users {
		lasts = append(lasts, r.last)
	}
	slices.Sort(lasts)
	oldest := lasts[len(lasts)/2]
	for uid, r := range h.users {
		if r.last < oldest {
			delete(h.users, uid)
		}
	}
}

// planned gives two planned times of a user's job, seconds, from 1 to its limit. long comes from the second largest
// part of the user's last jobs: most jobs stay below it, and it orders the queue and counts the backlog. likely comes
// from the mean part: jobs overtake by it. Both are the limit if no job of the user has ended. For jobs of Nobody,
// likely is the mean of their kind, and long is halfway between likely and the limit.
func (h *history) planned(uid uint32, limitS, share int64) (long, likely int64) {
	limitS = planLimit(limitS)
	if uid == Nobody {
		m := h.kinds[kindOf(limitS, share)]
		if m == nil {
			return limitS, limitS
		}
		likely = max(1, over(limitS*m.mean/kindFine, partUnit))
		return (likely + limitS + 1) / 2, likely
	}
	r := h.users[uid]
	if r == nil {
		return limitS, limitS
	}
	parts := r.parts
	p := parts[:r.n]
	slices.Sort(p)
	sum := int64(0)
	for _, x := range p {
		sum += int64(x)
	}
	return max(1, over(limitS*int64(p[len(p)*3/4]), partUnit)), max(1, over(limitS*sum, partUnit*int64(len(p))))
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
