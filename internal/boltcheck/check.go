package boltcheck

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

const (
	boltMagic    = 0xED0CDAED
	boltVersion  = 2
	pageHeader   = 16 // id(8) flags(2) count(2) overflow(4)
	elementLen   = 16 // branch: pos(4) ksize(4) pgid(8); leaf: flags(4) pos(4) ksize(4) vsize(4)
	bucketHeader = 16 // root(8) sequence(8)
	branchPage   = 1
	leafPage     = 2
	freelistPage = 16
	bucketFlag   = 1
	minPageSize  = 512
	maxPageSize  = 64 << 10
	// maxPageBytes bounds a page with its overflow. It is more than the largest row that fits a frame needs.
	maxPageBytes = 256 << 20
	// maxPages bounds the pages of a file that is shorter than it should be: a bit of memory for each.
	maxPages = 1 << 28
	// maxDepth bounds the depth of pages. It is more than a tree of 2^48 entries with its buckets needs.
	maxDepth = 64
)

var native = binary.NativeEndian

// Entry gets a key and its value in a bucket ("a/b" is bucket b in bucket a). Both slices are valid only during the
// call.
type Entry func(bucket string, key, value []byte) error

// File checks every page of f that is in use, and calls entry, unless it is nil, for all keys and values in order. It
// reads the file once. It does not mind a file shorter than Head.Size, as long as no page in use is missing; bbolt
// does.
func File(f *os.File, entry Entry) (Head, error) {
	info, err := f.Stat()
	if err != nil {
		return Head{}, err
	}
	return Reader(f, info.Size(), entry)
}

// Reader is File for the size bytes of f, which may be a part of another file.
func Reader(f io.ReaderAt, size int64, entry Entry) (Head, error) {
	m, err := readMeta(f, size)
	if err != nil {
		return Head{}, err
	}
	h := Head{Commits: m.txid, Size: int64(m.pages) * int64(m.pageSize), Lost: m.lost}
	if m.pages > maxPages && h.Size > size {
		return h, fmt.Errorf("it has %d bytes and should have at least %d", size, h.Size)
	}
	w := &walker{file: f, pageSize: m.pageSize, pages: m.pages, seen: make([]uint64, m.pages/64+1), entry: entry}
	if m.freelist != noFreelist { // bbolt's own tools leave a freelist
		if _, err := w.read(m.freelist, freelistPage, 0); err != nil {
			return h, fmt.Errorf("page %d: %w", m.freelist, err)
		}
	}
	_, err = w.visit(m.root, bounds{}, "", 0)
	return h, err
}

// Head is what the head page of a file says.
type Head struct {
	Commits uint64 // the number of its newest transaction; a new file has 1
	Size    int64  // bytes that the file has at least
	// Lost: one of the two head pages is damaged, and it may have been the newer one. What is there is then whole, but
	// the last transaction may be missing.
	Lost bool
}

// walker visits the pages of one file.
type walker struct {
	file     io.ReaderAt
	pageSize int
	pages    uint64 // all pages in use are below this number
	seen     []uint64
	bufs     [maxDepth + 1][]byte // a buffer for each depth
	lists    [maxDepth + 1][]element
	entry    Entry
}

const noFreelist = ^uint64(0)

type meta struct {
	pageSize              int
	root, freelist, pages uint64
	txid                  uint64
	lost                  bool
}

// readMeta gives the newer of the two meta pages that are intact, as bbolt does.
func readMeta(f io.ReaderAt, size int64) (meta, error) {
	first, ok := metaAt(f, 0)
	if ok {
		second, ok := metaAt(f, int64(first.pageSize))
		switch {
		case !ok:
			// Pages take turns. One that still has the number before the other's is the older.
			first.lost = second.txid+1 != first.txid
		case second.txid > first.txid:
			return second, nil
		}
		return first, nil
	}
	for at := int64(minPageSize); at <= maxPageSize && at < size; at *= 2 {
		if second, ok := metaAt(f, at); ok && second.pageSize == int(at) {
			second.lost = first.txid+1 != second.txid
			return second, nil
		}
	}
	return meta{}, errors.New("neither of its two head pages is whole")
}

// metaAt reads a meta page; ok is false if it is not intact.
func metaAt(f io.ReaderAt, at int64) (m meta, ok bool) {
	const metaLen = 64
	b := make([]byte, pageHeader+metaLen)
	if _, err := f.ReadAt(b, at); err != nil {
		return meta{}, false
	}
	b = b[pageHeader:]
	m = meta{
		pageSize: int(native.Uint32(b[8:])), root: native.Uint64(b[16:]), freelist: native.Uint64(b[32:]),
		pages: native.Uint64(b[40:]), txid: native.Uint64(b[48:]),
	}
	sum := fnv.New64a()
	sum.Write(b[:56])
	return m, native.Uint32(b) == boltMagic && native.Uint32(b[4:]) == boltVersion &&
		native.Uint64(b[56:]) == sum.Sum64() && m.pageSize >= minPageSize && m.pageSize <= maxPageSize &&
		m.pageSize&(m.pageSize-1) == 0 && m.pages <= 1<<40
}

// bounds limit a page's keys: from min on and below max; nil is no bound.
type bounds struct{ min, max []byte }

// check is bbolt's own rule: a page's first key may equal the last key before it, each further key must be greater.
func (b *bounds) check(i int, key []byte) error {
	if order := bytes.Compare(b.min, key); b.min != nil && (order > 0 || order == 0 && i > 0) {
		return errors.New("its keys are out of order")
	}
	if b.max != nil && bytes.Compare(key, b.max) >= 0 {
		return errors.New("its keys belong elsewhere")
	}
	return nil
}

// visit checks a page of a bucket ("" is the root) and all pages below it, and gives the last key there.
func (w *walker) visit(id uint64, keys bounds, bucket string, depth int) (last []byte, err error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("page %d lies deeper than pages can nest", id)
	}
	page, err := w.read(id, branchPage|leafPage, depth)
	var list []element
	if err == nil {
		list, err = elements(w.lists[depth][:0], page, false)
		w.lists[depth] = list
	}
	for i := 0; i < len(list) && err == nil; i++ {
		err = keys.check(i, list[i].key)
		switch e := &list[i]; {
		case err != nil:
		case e.branch:
			below := bounds{e.key, keys.max}
			if i+1 < len(list) {
				below.max = list[i+1].key
			}
			if last, err = w.visit(e.page, below, bucket, depth+1); err != nil {
				return nil, err
			}
			keys.min = last
		default:
			keys.min, last = e.key, e.key
			switch {
			case e.page != 0:
				if _, err := w.visit(e.page, bounds{}, join(bucket, e.key), depth+1); err != nil {
					return nil, err
				}
			case w.entry != nil:
				err = w.tell(bucket, e)
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	return bytes.Clone(last), nil // the page's buffer is used again
}

// tell passes an entry on, or those of the small bucket that it holds.
func (w *walker) tell(bucket string, e *element) error {
	if !e.bucket {
		return w.entry(bucket, e.key, e.value)
	}
	list, err := elements(nil, e.value[bucketHeader:], true)
	for i := 0; i < len(list) && err == nil; i++ {
		err = w.entry(join(bucket, e.key), list[i].key, list[i].value)
	}
	return err
}

func join(bucket string, key []byte) string {
	if bucket == "" {
		return string(key)
	}
	return bucket + "/" + string(key)
}

// read gives a page of one of kinds, with its overflow. It is valid until the next read at that depth.
func (w *walker) read(id uint64, kinds uint16, depth int) ([]byte, error) {
	if id < 2 || id >= w.pages {
		return nil, fmt.Errorf("it is pointed to and lies outside of the file's %d pages", w.pages)
	}
	var head [pageHeader]byte
	if _, err := w.file.ReadAt(head[:], int64(id)*int64(w.pageSize)); err != nil {
		return nil, err
	}
	if got := native.Uint64(head[:]); got != id {
		return nil, fmt.Errorf("it says that it is page %d", got)
	}
	if flags := native.Uint16(head[8:]); flags&kinds == 0 || flags&(flags-1) != 0 {
		return nil, fmt.Errorf("its kind is %#x", flags)
	}
	overflow := uint64(native.Uint32(head[12:]))
	if id+overflow >= w.pages || (overflow+1)*uint64(w.pageSize) > maxPageBytes {
		return nil, fmt.Errorf("it goes on for %d pages", overflow)
	}
	for i := id; i <= id+overflow; i++ {
		if w.seen[i/64]&(1<<(i%64)) != 0 {
			return nil, fmt.Errorf("two places use it")
		}
		w.seen[i/64] |= 1 << (i % 64)
	}
	n := int(overflow+1) * w.pageSize
	buf := w.bufs[depth]
	if cap(buf) < n {
		buf = make([]byte, n)
		w.bufs[depth] = buf
	}
	buf = buf[:n]
	if _, err := w.file.ReadAt(buf, int64(id)*int64(w.pageSize)); err != nil {
		return nil, err
	}
	return buf, nil
}

// element is one entry of a page: a page below it in the bucket (branch), or a key with its value, which may be a
// bucket with a page of its own.
type element struct {
	key    []byte
	value  []byte
	page   uint64 // 0: none
	branch bool
	bucket bool // the value is a bucket
}

// elements checks that the entries of a page lie inside of it and appends them to list. An inline page is a small
// bucket inside its parent's value; it holds no buckets itself.
func elements(list []element, page []byte, inline bool) ([]element, error) {
	flags, count := native.Uint16(page[8:]), int(native.Uint16(page[10:]))
	if pageHeader+count*elementLen > len(page) {
		return nil, fmt.Errorf("its %d entries don't fit", count)
	}
	if flags != leafPage && (flags != branchPage || inline || count == 0) {
		return nil, fmt.Errorf("its kind is %#x", flags)
	}
	for i := range count {
		at := pageHeader + i*elementLen
		e := page[at:]
		if flags == branchPage {
			key, err := within(page, at, native.Uint32(e), native.Uint32(e[4:]))
			if err != nil {
				return nil, err
			}
			list = append(list, element{key: key, page: native.Uint64(e[8:]), branch: true})
			continue
		}
		pos, ksize, vsize := native.Uint32(e[4:]), native.Uint32(e[8:]), native.Uint32(e[12:])
		key, err := within(page, at, pos, ksize)
		if err != nil {
			return nil, err
		}
		value, err := within(page, at+int(ksize), pos, vsize)
		if err != nil {
			return nil, err
		}
		var below uint64
		if native.Uint32(e)&bucketFlag != 0 {
			if inline {
				return nil, errors.New("a small bucket holds another")
			}
			if below, err = bucketIn(value); err != nil {
				return nil, err
			}
		}
		list = append(list, element{key, value, below, false, native.Uint32(e)&bucketFlag != 0})
	}
	return list, nil
}

// bucketIn gives the page of the bucket in a value; a small bucket is in the value itself and has none.
func bucketIn(value []byte) (page uint64, err error) {
	if len(value) < bucketHeader {
		return 0, errors.New("it holds a bucket that can't be one")
	}
	if root := native.Uint64(value); root != 0 {
		return root, nil
	}
	if len(value) < bucketHeader+pageHeader {
		return 0, errors.New("it holds a bucket that can't be one")
	}
	list, err := elements(nil, value[bucketHeader:], true)
	if err != nil {
		return 0, fmt.Errorf("a small bucket in it: %w", err)
	}
	var keys bounds
	for i := range list {
		if err := keys.check(i, list[i].key); err != nil {
			return 0, fmt.Errorf("a small bucket in it: %w", err)
		}
		keys.min = list[i].key
	}
	return 0, nil
}

func within(page []byte, at int, pos, size uint32) ([]byte, error) {
	from := uint64(at) + uint64(pos)
	if to := from + uint64(size); to <= uint64(len(page)) {
		return page[from:to], nil
	}
	return nil, errors.New("an entry lies outside of it")
}
