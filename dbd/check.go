package dbd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
)

// This file reads a database file before bbolt maps it. bbolt trusts its pages: a torn or foreign one makes it panic in
// a goroutine of its own, or touch memory beyond the file, and neither can be caught. So every page that bbolt will
// follow is looked at first, with plain reads: it must be there, be what its parent says, and keep inside its bounds.
// The layout is bbolt's file format, version 2 (bbolt's internal/common: page.go, meta.go, bucket.go), in the byte order
// of the machine.

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
	// maxPageBytes bounds a page with its overflow: more than the largest row that fits a frame needs.
	maxPageBytes = 256 << 20
	// maxDepth bounds how deep pages nest: more than any tree of 2^48 entries and the buckets in it need.
	maxDepth = 64
)

var native = binary.NativeEndian

// checkFile looks at every page that is in use. It reads the whole file once.
func checkFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening the accounting database: %w", err)
	}
	err = walkFile(f)
	err = errors.Join(err, f.Close())
	if err == nil {
		return nil
	}
	return &DamagedError{path, err}
}

// walker visits the pages of one file.
type walker struct {
	file     *os.File
	pageSize int
	pages    uint64 // below this page number lies everything in use
	seen     []uint64
	buf      []byte
}

type pageToVisit struct {
	id    uint64
	depth int
}

func walkFile(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	m, err := readMeta(f, info.Size())
	if err != nil {
		return err
	}
	if int64(m.pages) > info.Size()/int64(m.pageSize) {
		return fmt.Errorf("it has %d bytes and should have at least %d", info.Size(), int64(m.pages)*int64(m.pageSize))
	}
	w := &walker{file: f, pageSize: m.pageSize, pages: m.pages, seen: make([]uint64, m.pages/64+1)}
	if m.freelist != noFreelist { // as bbolt's own tools leave it
		if _, err := w.read(m.freelist, freelistPage); err != nil {
			return fmt.Errorf("page %d: %w", m.freelist, err)
		}
	}
	todo := []pageToVisit{{m.root, 0}}
	for len(todo) > 0 {
		next := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if next.depth > maxDepth {
			return fmt.Errorf("page %d lies deeper than pages can nest", next.id)
		}
		children, err := w.visit(next.id)
		if err != nil {
			return fmt.Errorf("page %d: %w", next.id, err)
		}
		for _, id := range children {
			todo = append(todo, pageToVisit{id, next.depth + 1})
		}
	}
	return nil
}

const noFreelist = ^uint64(0)

type meta struct {
	pageSize              int
	root, freelist, pages uint64
	txid                  uint64
}

// readMeta gives the newer of the two whole meta pages, as bbolt does.
func readMeta(f *os.File, size int64) (meta, error) {
	const metaLen = 64
	var best meta
	found := false
	try := func(at int64) bool {
		b := make([]byte, pageHeader+metaLen)
		if _, err := f.ReadAt(b, at); err != nil {
			return false
		}
		b = b[pageHeader:]
		sum := fnv.New64a()
		sum.Write(b[:56])
		if native.Uint32(b) != boltMagic || native.Uint32(b[4:]) != boltVersion || native.Uint64(b[56:]) != sum.Sum64() {
			return false
		}
		m := meta{
			pageSize: int(native.Uint32(b[8:])), root: native.Uint64(b[16:]), freelist: native.Uint64(b[32:]),
			pages: native.Uint64(b[40:]), txid: native.Uint64(b[48:]),
		}
		if m.pageSize < minPageSize || m.pageSize > maxPageSize || m.pageSize&(m.pageSize-1) != 0 || m.pages > 1<<40 {
			return false
		}
		if !found || m.txid > best.txid {
			best, found = m, true
		}
		return true
	}
	if try(0) {
		try(int64(best.pageSize))
		return best, nil
	}
	for at := int64(minPageSize); at <= maxPageSize && at < size; at *= 2 {
		if try(at) && best.pageSize == int(at) {
			return best, nil
		}
	}
	return meta{}, errors.New("neither of its two head pages is whole")
}

// visit checks one page of a bucket with its overflow and gives the pages that it points to.
func (w *walker) visit(id uint64) ([]uint64, error) {
	page, err := w.read(id, branchPage|leafPage)
	if err != nil {
		return nil, err
	}
	return elements(page, false)
}

// read gives a page of one of some kinds with its overflow. It is valid until the next read.
func (w *walker) read(id uint64, kinds uint16) ([]byte, error) {
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
	if cap(w.buf) < n {
		w.buf = make([]byte, n)
	}
	w.buf = w.buf[:n]
	if _, err := w.file.ReadAt(w.buf, int64(id)*int64(w.pageSize)); err != nil {
		return nil, err
	}
	return w.buf, nil
}

// elements checks what lies in one page and gives the pages that it points to. An inline page is a small bucket inside
// its parent's value and holds no buckets itself.
func elements(page []byte, inline bool) (children []uint64, err error) {
	flags, count := native.Uint16(page[8:]), int(native.Uint16(page[10:]))
	if pageHeader+count*elementLen > len(page) {
		return nil, fmt.Errorf("its %d entries don't fit", count)
	}
	if flags != leafPage && (flags != branchPage || inline || count == 0) {
		return nil, fmt.Errorf("its kind is %#x", flags)
	}
	var last []byte
	for i := range count {
		at := pageHeader + i*elementLen
		e := page[at:]
		if flags == branchPage {
			key, err := within(page, at, native.Uint32(e), native.Uint32(e[4:]))
			if err != nil {
				return nil, err
			}
			if i > 0 && bytes.Compare(last, key) >= 0 {
				return nil, errors.New("its keys are out of order")
			}
			last = key
			children = append(children, native.Uint64(e[8:]))
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
		if i > 0 && bytes.Compare(last, key) >= 0 {
			return nil, errors.New("its keys are out of order")
		}
		last = key
		if native.Uint32(e)&bucketFlag == 0 {
			continue
		}
		if len(value) < bucketHeader || inline {
			return nil, errors.New("it holds a bucket that can't be one")
		}
		if root := native.Uint64(value); root != 0 {
			children = append(children, root)
			continue
		}
		if len(value) < bucketHeader+pageHeader {
			return nil, errors.New("it holds a bucket that can't be one")
		}
		if _, err := elements(value[bucketHeader:], true); err != nil {
			return nil, fmt.Errorf("a small bucket in it: %w", err)
		}
	}
	return children, nil
}

func within(page []byte, at int, pos, size uint32) ([]byte, error) {
	from := uint64(at) + uint64(pos)
	if to := from + uint64(size); to <= uint64(len(page)) {
		return page[from:to], nil
	}
	return nil, errors.New("an entry lies outside of it")
}
