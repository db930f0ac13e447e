package history

import (
	"encoding/binary"

	"gbatch/internal/proto"
)

// A series' bytes are the number of its fields, and then rows: the distance of the row's slot to the one before
// (uvarint), and of each value to the one before (zigzag). What does not change costs a byte.

// row is one sample, or the mean of several.
type row struct {
	slot   int64
	values []int64
}

// run is the series of the current hour as it grows. The last row can be replaced.
type run struct {
	bytes      []byte
	tail       int // where the last row begins
	slot, from int64
	last, prev []int64 // values of the last row, and of the one before
}

// add appends a row, or replaces the last one of the same slot. Older rows are left out.
func (r *run) add(slot int64, values []int64) {
	n := len(values)
	if r.bytes == nil {
		r.bytes = append(make([]byte, 0, 64), byte(n))
		both := make([]int64, 2*n)
		r.last, r.prev, r.tail, r.slot, r.from = both[:n:n], both[n:], 1, -1, -1
	}
	switch n = len(r.last); {
	case slot < r.slot:
		return
	case slot == r.slot:
		r.bytes = r.bytes[:r.tail]
	default:
		r.from, r.slot, r.tail = r.slot, slot, len(r.bytes)
		copy(r.prev, r.last)
	}
	r.bytes = binary.AppendUvarint(r.bytes, uint64(slot-r.from-1))
	for i := range n {
		v := int64(-1) // a field that a sender does not know yet
		if i < len(values) {
			v = values[i]
		}
		r.bytes = binary.AppendVarint(r.bytes, v-r.prev[i])
		r.last[i] = v
	}
}

// read calls each with the rows of a series' bytes; values are valid until it returns. Bytes that make no sense end it.
func read(b []byte, each func(row)) {
	if len(b) == 0 || int(b[0]) > proto.MaxHistoryFields {
		return
	}
	r := row{slot: -1, values: make([]int64, b[0])}
	for b = b[1:]; len(b) > 0; {
		d, n := binary.Uvarint(b)
		if n <= 0 || d > maxSlot {
			return
		}
		r.slot, b = r.slot+int64(d)+1, b[n:]
		for i := range r.values {
			v, n := binary.Varint(b)
			if n <= 0 {
				return
			}
			r.values[i], b = r.values[i]+v, b[n:]
		}
		each(r)
	}
}

// maxSlot is more than the slots of an hour or a day.
const maxSlot = 1 << 12

// means sums rows up.
type means struct {
	fields []proto.HistoryField
	sum    []int64
	count  []int64
	any    bool
}

func newMeans(of proto.HistoryOf) *means {
	f := of.Fields()
	return &means{fields: f, sum: make([]int64, len(f)), count: make([]int64, len(f))}
}

func (m *means) add(values []int64) {
	m.any = true
	for i := range m.fields {
		switch {
		case i >= len(values) || values[i] < 0:
		case m.fields[i].Last:
			m.sum[i], m.count[i] = values[i], 1
		default:
			m.sum[i], m.count[i] = m.sum[i]+values[i], m.count[i]+1
		}
	}
}

// take gives the means of n fields into to, and begins anew.
func (m *means) take(to []int64) {
	for i := range to {
		to[i] = -1
		if m.count[i] > 0 {
			to[i] = (m.sum[i] + m.count[i]/2) / m.count[i]
		}
		m.sum[i], m.count[i] = 0, 0
	}
	clear(m.sum)
	clear(m.count)
	m.any = false
}
