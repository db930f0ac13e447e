package sim

import (
	"slices"

	"gbatch/internal/model"
)

// ending is a running job's end.
type ending struct {
	at      int64 // seconds
	seq     int64 // of its start: the order of jobs that end in one second
	job     int32 // place in the workload
	attempt uint32
	id      model.JobID
	killed  bool  // for others, before its time
	slept   int64 // seconds that it was suspended
	since   int64 // second of the last suspension
}

// endHeap is a binary heap of running jobs, the one that ends first on top.
type endHeap struct{ list []ending }

func (h *endHeap) len() int     { return len(h.list) }
func (h *endHeap) min() *ending { return &h.list[0] }

func (h *endHeap) less(i, k int) bool {
	a, b := &h.list[i], &h.list[k]
	if a.at != b.at {
		return a.at < b.at
	}
	return a.seq < b.seq
}

func (h *endHeap) push(e ending) {
	h.list = append(h.list, e)
	i := len(h.list) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !h.less(i, up) {
			break
		}
		h.list[i], h.list[up] = h.list[up], h.list[i]
		i = up
	}
}

func (h *endHeap) pop() ending {
	top := h.list[0]
	last := len(h.list) - 1
	h.list[0] = h.list[last]
	h.list = h.list[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			break
		}
		if c+1 < last && h.less(c+1, c) {
			c++
		}
		if !h.less(c, i) {
			break
		}
		h.list[i], h.list[c] = h.list[c], h.list[i]
		i = c
	}
	return top
}

// take removes a job's end.
func (h *endHeap) take(id model.JobID) (ending, bool) {
	i := slices.IndexFunc(h.list, func(e ending) bool { return e.id == id })
	if i < 0 {
		return ending{}, false
	}
	found, rest := h.list[i], slices.Delete(slices.Clone(h.list), i, i+1)
	h.list = h.list[:0]
	for _, e := range rest {
		h.push(e)
	}
	return found, true
}
