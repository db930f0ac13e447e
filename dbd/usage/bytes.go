package usage

import (
	"encoding/binary"
	"errors"

	"gbatch/internal/model"
)

// format is the first byte of a sum.
const format = 1

var errSum = errors.New("a row of sums is damaged")

// Append writes a sum: numbers as varints, states and classes with their place.
func (s *Sum) Append(b []byte) []byte {
	b = append(b, format)
	for _, n := range []int64{s.Over, s.Began, s.WaitS} {
		b = binary.AppendVarint(b, n)
	}
	b = appendPlaces(b, s.Waits[:])
	b = appendPlaces(b, s.Ended[:])
	n := 0
	for _, t := range s.TRES {
		if t.Count != 0 {
			n++
		}
	}
	b = binary.AppendUvarint(b, uint64(n))
	for _, t := range s.TRES {
		if t.Count != 0 {
			b = appendText(b, t.TRES)
			b = binary.AppendVarint(b, t.Count)
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendPlaces(b []byte, list []int64) []byte {
	n := 0
	for _, x := range list {
		if x != 0 {
			n++
		}
	}
	b = binary.AppendUvarint(b, uint64(n))
	for i, x := range list {
		if x != 0 {
			b = binary.AppendVarint(append(b, byte(i)), x)
		}
	}
	return b
}

// reader reads what Append wrote. After an error it gives zeros.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) fail() { r.b, r.bad = nil, true }

func (r *reader) int() int64 {
	x, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return x
}

func (r *reader) count() int {
	x, n := binary.Uvarint(r.b)
	if n <= 0 || x > uint64(len(r.b)) {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return int(x)
}

func (r *reader) text() string {
	n := r.count()
	if n > len(r.b) {
		r.fail()
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *reader) places(list []int64) {
	for range r.count() {
		if len(r.b) == 0 || int(r.b[0]) >= len(list) {
			r.fail()
			return
		}
		i := r.b[0]
		r.b = r.b[1:]
		list[i] = r.int()
	}
}

// AddBytes adds what Append wrote.
func (s *Sum) AddBytes(b []byte) error {
	if len(b) == 0 || b[0] != format {
		return errSum
	}
	r := reader{b: b[1:]}
	var o Sum
	o.Over, o.Began, o.WaitS = r.int(), r.int(), r.int()
	r.places(o.Waits[:])
	r.places(o.Ended[:])
	n := r.count()
	if r.bad {
		return errSum
	}
	for range n {
		size := r.count()
		if size > len(r.b) {
			return errSum
		}
		name := r.b[:size]
		r.b = r.b[size:]
		count := r.int()
		if r.bad {
			return errSum
		}
		s.addNamed(name, count)
	}
	s.Add(&o, 1)
	return nil
}

// addNamed is add without a new text for a name that is known.
func (s *Sum) addNamed(name []byte, n int64) {
	for i := range s.TRES {
		if s.TRES[i].TRES == string(name) {
			s.TRES[i].Count += n
			return
		}
	}
	s.add(string(name), n)
}

// AppendOf writes properties.
func AppendOf(b []byte, o *Of) []byte {
	for _, s := range []string{o.Cluster, o.Account, o.User, o.QOS, o.Partition, o.WCKey, o.Resv} {
		b = appendText(b, s)
	}
	return binary.AppendVarint(b, int64(o.CPUs))
}

// ReadOf reads what AppendOf wrote.
func ReadOf(b []byte) (o Of, err error) {
	r := reader{b: b}
	for _, s := range []*string{&o.Cluster, &o.Account, &o.User, &o.QOS, &o.Partition, &o.WCKey, &o.Resv} {
		*s = r.text()
	}
	o.CPUs = int32(r.int())
	if r.bad {
		return Of{}, errSum
	}
	return o, nil
}

// Count gives the amount of one resource, times seconds.
func (s *Sum) Count(tres string) int64 { return model.CountTRES(s.TRES, tres) }
