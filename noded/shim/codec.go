package shim

// codec.go encodes the parts of frames; wire.go has the frames.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

var errShort = errors.New("truncated")

type encoder struct{ b []byte }

func (e *encoder) u8(v byte)    { e.b = append(e.b, v) }
func (e *encoder) u64(v uint64) { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) i64(v int64)  { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) str(s string) { e.u64(uint64(len(s))); e.b = append(e.b, s...) }

func (e *encoder) bool(v bool) {
	if v {
		e.u8(1)
	} else {
		e.u8(0)
	}
}

func (e *encoder) strs(l []string) {
	e.u64(uint64(len(l)))
	for _, s := range l {
		e.str(s)
	}
}

// time keeps nanoseconds since 1970; the zero time is 0.
func (e *encoder) time(t time.Time) {
	if t.IsZero() {
		e.i64(0)
		return
	}
	e.i64(t.UnixNano())
}

func (e *encoder) key(k Key) {
	e.u64(uint64(k.JobID))
	e.u64(uint64(k.Attempt))
	e.i64(int64(k.Step))
	e.i64(int64(k.Task))
}

func (e *encoder) cgroup(c Cgroup) { e.strs(c.V1); e.str(c.V2) }

// decoder reads fields; after the first error everything is zero and err stays. A value that is out of range is zero
// and kept in bad, and reading goes on.
type decoder struct {
	b   []byte
	err error
	bad error
	old bool // a journal of protocol 1, whose keys have no task
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

func (d *decoder) wrong(err error) {
	if d.bad == nil {
		d.bad = err
	}
}

func (d *decoder) u8() byte {
	if len(d.b) == 0 {
		d.fail(errShort)
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) u64() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail(errShort)
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) i64() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail(errShort)
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) u32() uint32 {
	v := d.u64()
	if v > 1<<32-1 {
		d.wrong(fmt.Errorf("%d does not fit 32 bits", v))
		return 0
	}
	return uint32(v)
}

// num reads a number that must be within [lo, hi].
func (d *decoder) num(what string, lo, hi int64) int64 {
	v := d.i64()
	if v < lo || v > hi {
		d.wrong(fmt.Errorf("%s %d is not between %d and %d", what, v, lo, hi))
		return 0
	}
	return v
}

func (d *decoder) bool() bool {
	switch v := d.u8(); v {
	case 0:
	case 1:
		return true
	default:
		d.wrong(fmt.Errorf("%d is no truth value", v))
	}
	return false
}

func (d *decoder) str() string {
	n := d.u64()
	if n > MaxStringBytes {
		d.fail(fmt.Errorf("string of %d bytes, at most %d", n, MaxStringBytes))
		return ""
	}
	if n > uint64(len(d.b)) {
		d.fail(errShort)
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

// count reads the length of a list whose elements take at least one byte each.
func (d *decoder) count(what string, max int) int {
	n := d.u64()
	if n > uint64(max) {
		d.fail(fmt.Errorf("%d %s, at most %d", n, what, max))
		return 0
	}
	if n > uint64(len(d.b)) {
		d.fail(errShort)
		return 0
	}
	return int(n)
}

func (d *decoder) strs(what string, max int) []string {
	n := d.count(what, max)
	if n == 0 {
		return nil
	}
	out := make([]string, 0, min(n, 256))
	for range n {
		out = append(out, d.str())
		if d.err != nil {
			return nil
		}
	}
	return out
}

func (d *decoder) time() time.Time {
	v := d.i64()
	if v == 0 {
		return time.Time{}
	}
	return time.Unix(0, v)
}

func (d *decoder) key() Key {
	k := Key{JobID: d.u32(), Attempt: d.u32()}
	k.Step = int32(d.num("step", -1<<31, 1<<31-1))
	if !d.old {
		k.Task = int32(d.num("task", 0, 1<<31-1))
	}
	return k
}

func (d *decoder) cgroup() Cgroup {
	return Cgroup{V1: d.strs("cgroup directories", MaxCgroupDirs), V2: d.str()}
}

// end returns the error, if any, and refuses bytes that were not read.
func (d *decoder) end() error {
	if err := d.whole(); err != nil {
		return err
	}
	return d.bad
}

// whole is end for a reader that handles bad values itself.
func (d *decoder) whole() error {
	if d.err == nil && len(d.b) != 0 {
		d.err = fmt.Errorf("%d bytes too many", len(d.b))
	}
	return d.err
}
