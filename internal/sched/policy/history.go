package policy

import (
	"math/bits"
	"slices"

	"gbatch/internal/model"
)

// Bounds of what is known of users.
const (
	// Remembered is how many of a user's last jobs count.
	Remembered = 8
	// MaxUsers bounds the users that are remembered; past it the half that ended jobs longest ago is forgotten.
	MaxUsers = 1 << 16
)

// maxPlanS is the limit that jobs without one are taken to have, seconds: a week.
const maxPlanS = 7 * 24 * 3600

// partUnit is all of a limit; the parts that jobs used are counted in it.
const partUnit = 1 << 16

// Nobody is the user of jobs whose users are not known: Linux's overflow ID, and a trace's jobs without a user.
const Nobody = 65534

// history is what parts of their limits users' last jobs have used.
type history struct {
	users map[uint32]*record
	ended uint64
	kinds map[kind]*kindMean // of Nobody's jobs
}

// kind is what jobs have in common whose users are not known: limit and share to a factor of two. There are a few
// hundred kinds at most.
type kind struct{ limit, share int }

func kindOf(limitS, share int64) kind {
	return kind{bits.Len64(uint64(limitS)), bits.Len64(uint64(share))}
}

// kindMean is the mean part that jobs of a kind have used: of the first kindRemembered all count alike, after that each
// weighs one kindRemembered-th.
type kindMean struct {
	mean int64 // of partUnit * kindFine
	n    int64
}

// kindRemembered is about how many jobs of a kind count: many, for they are different people's.
const kindRemembered = 32

// kindFine makes the mean fine enough to move by a kindRemembered-th of the smallest part.
const kindFine = 256

func (m *kindMean) add(part int64) {
	m.n = min(m.n+1, kindRemembered)
	m.mean += (part*kindFine - m.mean) / m.n
}

// record is one user's. It is a ring.
type record struct {
	parts [Remembered]uint32 // of partUnit
	n     uint8              // how many there are
	next  uint8              // where the next goes
	last  uint64             // history.ended at the last
}

func newHistory() *history {
	return &history{users: map[uint32]*record{}, kinds: map[kind]*kindMean{}}
}

// learn takes note of a job that has ended.
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

// planned gives what a job of the user is planned to take, seconds, from 1 to its limit: long is what most of the
// user's jobs stay below, the second largest of the parts, by which jobs are ordered and backlogs counted; likely is
// their mean, by which jobs overtake. Who has ended no job is planned with the limit. Of Nobody's jobs likely is the
// mean of those of their kind, and long is halfway from there to the limit.
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

// planLimit is a limit as plans take it.
func planLimit(limitS int64) int64 {
	if limitS >= model.Unlimited || limitS < 1 {
		return maxPlanS
	}
	return limitS
}
