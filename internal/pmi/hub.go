package pmi

import (
	"encoding/binary"
	"fmt"
	"sync"

	"gbatch/internal/stepio"
)

// Hub is the step's side: it knows which tasks are in a fence, and ends the fence when all are.
type Hub struct {
	end  func(text string) // ends the step, and tells the user why; it must not wait for the hub
	note func(text string) // tells the user
	name func(rank int32) string

	mu      sync.Mutex
	size    int
	conns   map[Conn]*[]byte // the nodes' servers; pairs whose fence has not been told yet
	inFence []bool           // by rank
	waiting int
	someone int32  // a task that is gone, -1: none is
	pairs   []byte // of the fence
	total   int    // bytes of all pairs so far
	over    bool   // the step was ended
}

// NewHub makes the hub of a step of size tasks. name says which task a rank is, in words.
func NewHub(size int, name func(rank int32) string, end, note func(text string)) *Hub {
	return &Hub{end: end, note: note, name: name, size: size, conns: map[Conn]*[]byte{}, inFence: make([]bool, size),
		someone: -1}
}

// Talk serves a node's server until its connection ends.
func (h *Hub) Talk(c Conn) {
	h.mu.Lock()
	h.conns[c] = new([]byte)
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.conns, c)
		h.mu.Unlock()
	}()
	for {
		f, err := c.Read()
		if err != nil {
			return
		}
		h.take(c, f)
	}
}

func (h *Hub) take(c Conn, f stepio.Frame) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := f.Rank >= 0 && int(f.Rank) < h.size
	switch f.Stream {
	case streamPairs:
		if h.total += len(f.Data); h.total > 2*MaxSpace {
			h.fail(errFull.Error())
			return
		}
		p := h.conns[c]
		*p = append(*p, f.Data...)
	case streamArrive:
		h.arrive(c, f.Data)
	case streamGone:
		if known {
			h.left(f.Rank)
		}
	case streamAbort:
		if known {
			h.fail(h.name(f.Rank) + " aborted" + because(f.Data))
		}
	case streamNote:
		if known && !h.over {
			h.note(h.name(f.Rank) + because(f.Data))
		}
	}
}

func because(text []byte) string {
	if len(text) == 0 {
		return ""
	}
	return ": " + plainText(string(text))
}

// fail ends the step, once. The caller holds the lock.
func (h *Hub) fail(text string) {
	if !h.over {
		h.over = true
		h.end(text)
	}
}

// arrive puts tasks into the fence.
func (h *Hub) arrive(c Conn, list []byte) {
	for ; len(list) >= 4; list = list[4:] {
		if r := binary.LittleEndian.Uint32(list); int64(r) < int64(h.size) && !h.inFence[r] {
			h.inFence[r] = true
			h.waiting++
		}
	}
	p := h.conns[c]
	h.pairs = append(h.pairs, *p...)
	*p = nil
	if h.waiting == h.size {
		h.release()
		return
	}
	h.look()
}

// release ends the fence. A node's tasks are in no other one before they have left this one, so that each connection
// has one writer.
func (h *Hub) release() {
	pairs := h.pairs
	h.pairs, h.waiting = nil, 0
	clear(h.inFence)
	for c := range h.conns {
		go func() {
			if len(pairs) > 0 && c.Write(streamPairs, stepio.AllRanks, pairs) != nil {
				return // its reader sees it too
			}
			_ = c.Write(streamArrive, stepio.AllRanks, nil) // as above
		}()
	}
}

// left is a task whose connection is closed: it waits in no fence any more.
func (h *Hub) left(rank int32) {
	h.someone = rank
	h.look()
}

// Ended says that a task has ended, which its connection may not show: its children may have it too.
func (h *Hub) Ended(rank int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if rank >= 0 && int(rank) < h.size {
		h.left(rank)
	}
}

// look ends the step if some tasks wait for one that is gone.
func (h *Hub) look() {
	if h.waiting > 0 && h.someone >= 0 {
		h.fail(fmt.Sprintf("%s ended, and %d of %d tasks wait for it in a fence", h.name(h.someone), h.waiting, h.size))
	}
}
