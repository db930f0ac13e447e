package shim

// journal.go keeps the events of every launch in one append-only file until they are acknowledged.
//
// File: 8 bytes of magic, then records: length (4 bytes), CRC-32C of the payload (4 bytes), payload (one kind byte and
// fields as in wire.go). The first record names the boot; pids of another boot mean nothing.
//
// A written record survives any death of gshim. Intents and launched records need no more, because a crash of the
// machine ends the processes too. Ends are synced before they are reported. A torn or damaged tail is cut off with a
// warning. Its launches are not forgotten, because their intents are earlier in the file; their ends are unknown.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	journalMagic   = "GSHIMJ2\n"
	journalMagic1  = "GSHIMJ1\n" // of protocol 1: keys without a task
	recordHead     = 8
	maxRecordBytes = 4 << 20
	// the file is rewritten when it is larger than this and four times its size after the last rewrite
	compactBytes = 1 << 20
)

// Kinds of record. Append only.
const (
	recBoot     = 1 // boot id
	recIntent   = 2 // about to fork: key, cgroup
	recLaunched = 3 // Event of kind Launched
	recDone     = 4 // Event of kind Exited or LaunchFailed
	recAcked    = 5 // keys that are forgotten
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record is one journal entry.
type record struct {
	kind   byte
	boot   string
	key    Key
	cgroup Cgroup
	event  Event
	keys   []Key
}

func (r *record) encode(b []byte) []byte {
	at := len(b)
	e := encoder{b: append(b, make([]byte, recordHead)...)}
	e.u8(r.kind)
	switch r.kind {
	case recBoot:
		e.str(r.boot)
	case recIntent:
		e.key(r.key)
		e.cgroup(r.cgroup)
	case recLaunched, recDone:
		e.event(&r.event)
	case recAcked:
		e.u64(uint64(len(r.keys)))
		for _, k := range r.keys {
			e.key(k)
		}
	}
	payload := e.b[at+recordHead:]
	binary.LittleEndian.PutUint32(e.b[at:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(e.b[at+4:], crc32.Checksum(payload, castagnoli))
	return e.b
}

func decodeRecord(payload []byte, old bool) (record, error) {
	d := decoder{b: payload, old: old}
	r := record{kind: d.u8()}
	switch r.kind {
	case recBoot:
		r.boot = d.str()
	case recIntent:
		r.key = d.key()
		r.cgroup = d.cgroup()
	case recLaunched, recDone:
		r.event = d.event()
		if done := r.event.Done(); d.err == nil && done != (r.kind == recDone) {
			d.fail(fmt.Errorf("event %v in a record of kind %d", r.event.Kind, r.kind))
		}
	case recAcked:
		for range d.count("keys", MaxAckKeys) {
			r.keys = append(r.keys, d.key())
		}
	default:
		d.fail(fmt.Errorf("unknown record kind %d", r.kind))
	}
	return r, d.end()
}

// nextRecord takes one record off b. n is its length in the file.
func nextRecord(b []byte, old bool) (r record, n int, err error) {
	if len(b) < recordHead {
		return r, 0, errShort
	}
	size := binary.LittleEndian.Uint32(b)
	if size == 0 || size > maxRecordBytes {
		return r, 0, fmt.Errorf("record of %d bytes, expected 1 to %d", size, maxRecordBytes)
	}
	if uint64(len(b)-recordHead) < uint64(size) {
		return r, 0, errShort
	}
	payload := b[recordHead : recordHead+int(size)]
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(b[4:]) {
		return r, 0, errors.New("checksum does not match")
	}
	r, err = decodeRecord(payload, old)
	return r, recordHead + int(size), err
}

// remembered is what a journal has about one launch.
type remembered struct {
	key    Key
	cgroup Cgroup
	event  Event // Kind 0: only the intent is known
}

// replay reads a journal's bytes. good is the length of the intact part; why says what is wrong after it, if anything.
func replay(b []byte) (boot string, known []remembered, good int, why error) {
	if len(b) == 0 {
		return "", nil, 0, nil
	}
	old := bytes.HasPrefix(b, []byte(journalMagic1))
	if !old && !bytes.HasPrefix(b, []byte(journalMagic)) {
		return "", nil, 0, errors.New("the file does not begin like a gshim journal")
	}
	index := map[Key]int{}
	gone := 0
	at := func(k Key) *remembered {
		i, ok := index[k]
		if !ok {
			i = len(known)
			index[k] = i
			known = append(known, remembered{key: k})
		}
		return &known[i]
	}
	good = len(journalMagic)
	for good < len(b) {
		r, n, err := nextRecord(b[good:], old)
		if err != nil {
			why = err
			break
		}
		good += n
		switch r.kind {
		case recBoot:
			boot = r.boot
		case recIntent:
			at(r.key).cgroup = r.cgroup
		case recLaunched, recDone:
			at(r.event.Key).event = r.event
		case recAcked:
			for _, k := range r.keys {
				if _, ok := index[k]; ok {
					delete(index, k)
					gone++
				}
			}
		}
	}
	if gone > 0 {
		// A key may have been used again after its acknowledgement: keep only the entry that the index points to.
		i := -1
		known = slices.DeleteFunc(known, func(r remembered) bool {
			i++
			j, ok := index[r.key]
			return !ok || j != i
		})
	}
	return boot, known, good, why
}

// journal is the open file. Its methods are for one caller at a time (the server's journal lock).
type journal struct {
	path string
	log  *slog.Logger
	f    *os.File
	size int64 // of the sound part, where the next record goes
	base int64 // size after the last rewrite
	buf  []byte
	bad  error // the last write failed and could not be undone: rewrite before anything else
}

// openJournal reads the journal and rewrites it without forgotten launches.
func openJournal(path, boot string, log *slog.Logger) (*journal, string, []remembered, error) {
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil, fmt.Errorf("journal: %w", err)
	}
	oldBoot, known, good, why := replay(b)
	if why != nil {
		log.Warn("the journal's tail is damaged and was cut off; launches it spoke of are looked for by their processes",
			"path", path, "offset", good, "cut_bytes", len(b)-good, "why", why)
	}
	j := &journal{path: path, log: log}
	if err := j.rewrite(boot, known); err != nil {
		return nil, "", nil, err
	}
	return j, oldBoot, known, nil
}

// image returns a whole journal of these launches.
func image(boot string, known []remembered) []byte {
	b := append([]byte(nil), journalMagic...)
	b = (&record{kind: recBoot, boot: boot}).encode(b)
	for i := range known {
		k := &known[i]
		b = (&record{kind: recIntent, key: k.key, cgroup: k.cgroup}).encode(b)
		switch {
		case k.event.Done():
			b = (&record{kind: recDone, event: k.event}).encode(b)
		case k.event.Kind != 0:
			ev := k.event
			ev.Kind = Launched
			b = (&record{kind: recLaunched, event: ev}).encode(b)
		}
	}
	return b
}

// rewrite replaces the file by a journal of these launches.
func (j *journal) rewrite(boot string, known []remembered) error {
	b := image(boot, known)
	temp := j.path + ".new"
	f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("rewrite journal: %w", err)
	}
	if err := writeDurably(f, temp, j.path, b); err != nil {
		return fmt.Errorf("rewrite journal: %w", errors.Join(err, f.Close()))
	}
	if j.f != nil {
		if err := j.f.Close(); err != nil {
			j.log.Warn("closing the old journal", "path", j.path, "err", err)
		}
	}
	j.f, j.size, j.base, j.bad = f, int64(len(b)), int64(len(b)), nil
	return nil
}

func writeDurably(f *os.File, temp, path string, b []byte) error {
	if _, err := f.Write(b); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// add appends records with one write, without sync. After an error none of them is in the file.
func (j *journal) add(records ...*record) error {
	if j.bad != nil {
		return j.bad
	}
	j.buf = j.buf[:0]
	for _, r := range records {
		j.buf = r.encode(j.buf)
	}
	n, err := j.f.WriteAt(j.buf, j.size)
	if err != nil {
		if n > 0 {
			if terr := j.f.Truncate(j.size); terr != nil {
				j.bad = fmt.Errorf("write journal %s: %w", j.path, errors.Join(err, terr))
			}
		}
		return fmt.Errorf("write journal %s: %w", j.path, err)
	}
	j.size += int64(n)
	return nil
}

// sync makes everything added durable.
func (j *journal) sync() error {
	if err := unix.Fdatasync(int(j.f.Fd())); err != nil {
		return fmt.Errorf("sync journal %s: %w", j.path, err)
	}
	return nil
}

// wantsRewrite reports whether most of the file is about forgotten launches.
func (j *journal) wantsRewrite() bool {
	return j.bad != nil || j.size > compactBytes && j.size > 4*j.base
}

func (j *journal) close() error { return j.f.Close() }
