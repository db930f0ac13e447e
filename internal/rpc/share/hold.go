package share

import (
	"bytes"
	"sync/atomic"

	"gbatch/internal/rpc"
)

// maxHeld bounds the parts that a Room holds, bytes.
const maxHeld = 64 << 20

// Room is memory for answers that are held until they are whole, for all of a daemon's requests.
type Room struct{ used atomic.Int64 }

// Held passes an answer on when it is whole, so that a request can be made again if the answer breaks off. An answer
// for which there is no room is passed on as it comes. It is for one goroutine.
type Held struct {
	Passed bool // something has been passed on: the request can't be made again

	room  *Room
	each  func(*rpc.Frame) error
	parts []rpc.Frame
	bytes int64
}

// Hold gives a holder that passes frames to each. The caller calls Drop at the end.
func (r *Room) Hold(each func(*rpc.Frame) error) *Held { return &Held{room: r, each: each} }

// Take takes the next frame.
func (h *Held) Take(f *rpc.Frame) error {
	if f.More() && !h.Passed {
		n := int64(len(f.Body))
		if h.room.used.Add(n) <= maxHeld {
			own := *f
			own.Body = bytes.Clone(f.Body)
			h.parts, h.bytes = append(h.parts, own), h.bytes+n
			return nil
		}
		h.room.used.Add(-n)
	}
	h.Passed = true
	for i := range h.parts {
		if err := h.each(&h.parts[i]); err != nil {
			return err
		}
	}
	h.Drop()
	return h.each(f)
}

// Drop forgets what is held: the answer has broken off, or nobody wants it.
func (h *Held) Drop() {
	h.room.used.Add(-h.bytes)
	h.parts, h.bytes = nil, 0
}
