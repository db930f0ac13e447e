package rest

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"gbatch/internal/slurmjson"
)

// form.go is about the form of answers: JSON or YAML, compressed or not. What equal requests share is compressed once
// for all of them: a stream of gzip is put together of pieces that were compressed by themselves.

const (
	mimeJSON = "application/json"
	mimeYAML = "application/yaml"
)

func isYAML(kind string) bool {
	switch kind {
	case mimeYAML, "application/x-yaml", "text/yaml", "text/x-yaml":
		return true
	}
	return false
}

// form is what a client can read, and likes best.
type form struct{ yaml, gzip bool }

// stored is the size up to which a piece beside compressed ones is left as it is, in a block of its own.
const stored = 4096

// leastZip is the size from which an answer is compressed.
const leastZip = 2048

func formOf(r *http.Request) (f form) {
	for word := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		kind, _, _ := strings.Cut(word, ";")
		kind = strings.TrimSpace(kind)
		if kind == mimeJSON || kind == "*/*" || kind == "application/*" {
			break
		}
		if f.yaml = isYAML(kind); f.yaml {
			break
		}
	}
	for word := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, how, _ := strings.Cut(word, ";")
		if strings.TrimSpace(name) == "gzip" {
			how = strings.ReplaceAll(how, " ", "")
			f.gzip = !f.yaml && how != "q=0" && how != "q=0.0" && how != "q=0.00" && how != "q=0.000"
		}
	}
	return f
}

// piece is a part of an answer. A compressed one ends a byte, and begins with nothing behind it.
type piece struct {
	b      []byte
	zipped bool
	sum    uint32 // of the plain bytes of it and the compressed ones before it, where ends is set
	n      int64
	ends   bool
}

// parts are the bytes of an answer in pieces that need no copy, as long as none of them have left.
type parts struct {
	list  []piece
	own   int          // bytes of those that nobody shares
	start func() error // lets the answer leave; nil: it waits until it is whole
	to    *leaving     // nil: nothing has left
}

func (p *parts) Write(b []byte) (int, error) {
	if p.to == nil && p.start != nil && p.own+len(b) > mostWaits {
		if err := p.start(); err != nil {
			return 0, err
		}
	}
	if p.to != nil {
		p.to.add(&piece{b: b})
		return len(b), p.to.err
	}
	p.list, p.own = append(p.list, piece{b: bytes.Clone(b)}), p.own+len(b)
	return len(b), nil
}

// bytes gives how many there are.
func (p *parts) bytes() (n int) {
	for i := range p.list {
		n += len(p.list[i].b)
	}
	return n
}

// zipEnd is the size of what stands behind a list that was compressed by itself: its sum and length.
const zipEnd = 12

// shared adds what others share.
func (p *parts) shared(list [][]byte, zipped bool) {
	if !zipped {
		for _, b := range list {
			p.list = append(p.list, piece{b: b})
		}
		return
	}
	for i, b := range list {
		one := piece{b: b, zipped: true}
		if i == len(list)-1 && len(b) == zipEnd {
			one = piece{zipped: true, ends: true, sum: binary.LittleEndian.Uint32(b),
				n: int64(binary.LittleEndian.Uint64(b[4:]))}
		}
		p.list = append(p.list, one)
	}
}

// headers says what is sent.
func (f form) headers(h http.Header, zipped bool) {
	h.Set("Vary", "Accept, Accept-Encoding")
	h.Set("Content-Type", mimeJSON)
	if f.yaml {
		h.Set("Content-Type", mimeYAML)
	}
	if zipped {
		h.Set("Content-Encoding", "gzip")
	}
}

// encode gives the bytes that are sent of a whole answer, and their number, and sets the headers that say what they
// are.
func (f form) encode(h http.Header, p *parts) (list [][]byte, total int) {
	zipped := f.gzip && p.bytes() >= leastZip ||
		slices.ContainsFunc(p.list, func(x piece) bool { return x.zipped })
	f.headers(h, zipped)
	s := f.sink(zipped, func(b []byte) error {
		if f.yaml {
			b = bytes.Clone(b)
		}
		list, total = append(list, b), total+len(b)
		return nil
	})
	for i := range p.list {
		_ = s.add(&p.list[i]) // a slice takes everything
	}
	_ = s.end() // as above
	return list, total
}

// fast are compressors, which are costly to make.
var fast = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(io.Discard, flate.BestSpeed) // the level is a valid one
	return w
}}

// zipper compresses what it is given, and puts it in pieces that end with a byte.
type zipper struct {
	put func([]byte) error
	w   *flate.Writer
	out bytes.Buffer
	sum uint32
	n   int64

	apart bool // what came last was compressed by itself
}

func newZipper(put func([]byte) error) *zipper {
	z := &zipper{put: put, w: fast.Get().(*flate.Writer)} //nolint:forcetypeassert // it holds nothing else
	z.w.Reset(&z.out)
	return z
}

func (z *zipper) free() { fast.Put(z.w) }

func (z *zipper) Write(b []byte) (int, error) {
	z.sum, z.n = crc32.Update(z.sum, crc32.IEEETable, b), z.n+int64(len(b))
	if z.apart {
		z.w.Reset(&z.out)
		z.apart = false
	}
	_, err := z.w.Write(b)
	if err == nil {
		err = z.w.Flush()
	}
	if err == nil {
		err = z.put(bytes.Clone(z.out.Bytes()))
	}
	z.out.Reset()
	return len(b), err
}

// end puts the sum and the length of everything.
func (z *zipper) end() error {
	b := binary.LittleEndian.AppendUint32(nil, z.sum)
	return z.put(binary.LittleEndian.AppendUint64(b, uint64(z.n)))
}

// sink makes the bytes that are sent of an answer's pieces.
type sink struct {
	put  func([]byte) error
	yaml io.Writer // nil: JSON
	z    *zipper   // nil: not compressed
	sum  uint32    // of all plain bytes
	n    int64
	err  error
}

type passOn func([]byte) error

func (p passOn) Write(b []byte) (int, error) { return len(b), p(b) }

// sink makes what put gets of an answer's pieces. Where it is YAML, what put gets is the sink's own when put returns.
func (f form) sink(zipped bool, put func([]byte) error) *sink {
	s := &sink{put: put}
	switch {
	case f.yaml:
		s.yaml = slurmjson.YAML(passOn(put))
	case zipped:
		s.z = newZipper(put)
		s.err = put([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}) // gzip, deflate, no name, no time, any system
	}
	return s
}

// add makes the next piece.
func (s *sink) add(x *piece) error {
	switch {
	case s.err != nil:
	case s.yaml != nil:
		_, s.err = s.yaml.Write(x.b)
	case s.z == nil:
		s.err = s.put(x.b)
	case x.ends:
		s.plain(x.sum, x.n)
	case x.zipped:
		s.err = s.put(x.b)
	case len(x.b) <= stored: // a compressor that begins anew costs more
		s.plain(crc32.ChecksumIEEE(x.b), int64(len(x.b)))
		head := binary.LittleEndian.AppendUint16([]byte{0}, uint16(len(x.b)))
		if s.err = s.put(binary.LittleEndian.AppendUint16(head, ^uint16(len(x.b)))); s.err == nil {
			s.err = s.put(x.b)
		}
	default:
		s.z.w.Reset(&s.z.out) // what comes may stand behind what it does not know
		s.z.sum, s.z.n = 0, 0
		_, s.err = s.z.Write(x.b)
		s.plain(s.z.sum, s.z.n)
	}
	return s.err
}

// plain counts plain bytes.
func (s *sink) plain(sum uint32, n int64) { s.sum, s.n = joinSums(s.sum, sum, n), s.n+n }

// end makes what stands behind all pieces.
func (s *sink) end() error {
	if s.z == nil {
		return s.err
	}
	s.z.free()
	if s.err == nil {
		end := []byte{1, 0, 0, 0xff, 0xff} // the last block, empty
		end = binary.LittleEndian.AppendUint32(end, s.sum)
		s.err = s.put(binary.LittleEndian.AppendUint32(end, uint32(s.n)))
	}
	return s.err
}

// zeroBits has what each bit of a CRC-32 sum becomes after 8, 16, 32, ... zero bits (polynomials over GF(2)): each
// matrix is the square of the one before.
var zeroBits = sync.OnceValue(func() *[64][32]uint32 {
	all := new([64][32]uint32)
	var m [32]uint32 // after one zero bit
	m[0] = crc32.IEEE
	for i := 1; i < 32; i++ {
		m[i] = 1 << (i - 1)
	}
	for k := range 3 + len(all) {
		if k >= 3 {
			all[k-3] = m
		}
		before := m
		for i := range m {
			m[i] = through(&before, before[i])
		}
	}
	return all
})

// through gives what a sum becomes by a matrix.
func through(m *[32]uint32, v uint32) (out uint32) {
	for i := 0; v != 0; i, v = i+1, v>>1 {
		if v&1 != 0 {
			out ^= m[i]
		}
	}
	return out
}

// joinSums gives CRC-32 of two texts, one behind the other, of their sums and the length of the second: the first sum
// goes through as many zero bytes.
func joinSums(first, second uint32, n int64) uint32 {
	all := zeroBits()
	for k := 0; n > 0; k, n = k+1, n>>1 {
		if n&1 != 0 {
			first = through(&all[k], first)
		}
	}
	return first ^ second
}
