package noded

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/filelock"
	"gbatch/internal/proto"
	"gbatch/internal/wire"
	"gbatch/noded/shim"
)

// spool.go is the node's memory: an append-only journal of which attempts it has taken on and which reports the leader
// has not acknowledged. gnoded can be killed at any moment and loses nothing that it has acted on or acknowledged.
//
// The file is a line with the format's version and then records: uint32 length of the payload, uint32 CRC-32C of it,
// both little endian, and the payload, a kind byte and a msgpack record. A record that is cut off or has a wrong
// checksum ends the journal: what follows was never acknowledged. What records mean is memory.go's; replay at start and
// add while running both go through it, and compact writes back just what it keeps.
//
// Where the journal can't be written (a full disk, or one that has turned read-only) the node's jobs go on, and their
// ends are told from memory. No job starts, and the leader keeps the node drained with the reason, until the journal is
// whole again. If gnoded ends before, the next one reads what is there, begins with a broken journal too if it can't
// write either, and asks gshim for what happened since.

const (
	spoolFile  = "journal"
	spoolMagic = "gbatch node spool 1\n"
	recordHead = 8
	// maxRecord is the longest payload that is added, in bytes. A launch has up to 65,536 groups of at most 5 bytes.
	maxRecord = 1 << 20
	// maxRead is the longest that is read: compacting makes one record of a launch and of what later ones added to it.
	maxRead = 4 << 20
	// compactAt is the size from which the journal is rewritten when less than a quarter of it is still needed, bytes.
	compactAt = 1 << 20
)

// spool is the open journal. It is used by one goroutine.
type spool struct {
	dir  string
	f    *os.File
	lock *os.File
	size int64
	buf  []byte // records not yet written
	sync bool   // one of them must be on disk before anybody is told
	mem  memory
	log  *slog.Logger

	// broken says why what was added is not on disk; nil: it is. mend ends it.
	broken error

	compactFrom int64 // size from which compacting is worth a try, bytes
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// openSpool reads the journal in dir, or starts one, and locks it against any other gnoded.
func openSpool(dir string, log *slog.Logger) (*spool, error) {
	lock, _, err := openForUse(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	s := &spool{dir: dir, lock: lock, log: log, mem: newMemory(), compactFrom: compactAt}
	if err = filelock.Take(lock); err != nil {
		// Closing what was only opened cannot lose anything.
		_ = lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another gnoded uses the spool %s; stop it, or give this one its own --spool", dir)
		}
		return nil, fmt.Errorf("spool %s: lock: %w", dir, err)
	}
	if err := s.load(); err != nil {
		_ = lock.Close() // the same
		return nil, err
	}
	return s, nil
}

func (s *spool) path() string { return filepath.Join(s.dir, spoolFile) }

// openForUse opens a file of the spool, which is made if it is not there. On a file system that has turned read-only a
// file that is there can still be read; shut says why it can't be written.
func openForUse(path string) (f *os.File, shut, err error) {
	f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EROFS) {
		shut = err
		f, err = os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	return f, shut, err
}

func (s *spool) load() error {
	f, shut, err := openForUse(s.path())
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	s.f = f
	good, why, err := s.replay(bufio.NewReaderSize(f, 64<<10))
	if err == nil && why != nil && shut == nil {
		if err = s.cutTail(good, why); good > 0 && outOfSpace(err) {
			shut, err = err, nil // the journal that mend writes has no such end
		}
	}
	if err == nil && shut != nil && good > 0 {
		s.breaks("write", shut)
		s.size = good
		return nil
	}
	if err == nil {
		_, err = f.Seek(good, io.SeekStart)
	}
	if err == nil && good == 0 {
		_, err = f.WriteString(spoolMagic)
		good = int64(len(spoolMagic))
	}
	if err == nil && good == int64(len(spoolMagic)) {
		err = syncDir(s.dir)
	}
	if err != nil {
		// The error at hand says what is wrong; nothing was written.
		_ = f.Close()
		return fmt.Errorf("spool %s: %w", s.path(), err)
	}
	s.size = good
	return nil
}

// outOfSpace reports whether an error is a full disk's, or that of one which has turned read-only.
func outOfSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EROFS)
}

// replay folds every whole record. good is the length of the journal up to the last of them; why tells what is wrong
// with the byte after it, nil at a clean end.
func (s *spool) replay(r *bufio.Reader) (good int64, why, err error) {
	head := make([]byte, len(spoolMagic))
	switch n, err := io.ReadFull(r, head); {
	case n == 0 && err == io.EOF:
		return 0, nil, nil
	case string(head[:n]) == spoolMagic[:n] && n < len(head):
		return 0, errors.New("it stops inside its first line"), nil
	case string(head) != spoolMagic:
		return 0, nil, fmt.Errorf(
			"it begins with %q and not with %q: it is not a node spool, or another version of gbatch wrote it; "+
				"install that version, or move the file away (its records of running jobs are then lost)", head[:n], spoolMagic)
	}
	good = int64(len(spoolMagic))
	var payload []byte
	for {
		payload, why = readRecord(r, payload)
		if why == io.EOF {
			return good, nil, nil
		}
		if why != nil {
			return good, why, nil
		}
		kind := recordKind(payload[0])
		rec := newRecord(kind)
		if rec == nil {
			return good, nil, fmt.Errorf(
				"the record at byte %d is of kind %d, which a later version of gbatch wrote; install that version", good, kind)
		}
		if err := wire.Unmarshal(payload[1:], rec); err != nil {
			return good, fmt.Errorf("the record at byte %d: %w", good, err), nil
		}
		s.mem.fold(kind, rec)
		good += recordHead + int64(len(payload))
	}
}

// readRecord reads one payload into buf's memory; io.EOF at a clean end.
func readRecord(r io.Reader, buf []byte) ([]byte, error) {
	var head [recordHead]byte
	if n, err := io.ReadFull(r, head[:]); err != nil {
		if n == 0 && err == io.EOF {
			return nil, io.EOF
		}
		return nil, errors.New("a record stops inside its head")
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n < 1 || n > maxRead {
		return nil, fmt.Errorf("a record of %d bytes, the limit is %d", n, maxRead)
	}
	if cap(buf) < int(n) {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(r, buf); err != nil {
		return nil, errors.New("a record stops before its end")
	}
	if crc32.Checksum(buf, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return nil, errors.New("a record does not match its checksum")
	}
	return buf, nil
}

// cutTail ends the journal at good and keeps the rest in a file beside it for inspection: after a power loss it is half
// of the last write, anything else deserves a look.
func (s *spool) cutTail(good int64, why error) error {
	const maxKept = 8 << 20 // bytes of the tail that are kept
	kept := filepath.Join(s.dir, spoolFile+".tail")
	tail, err := io.ReadAll(io.NewSectionReader(s.f, good, maxKept))
	if err != nil {
		return err
	}
	if err := os.WriteFile(kept, tail, 0o600); err != nil {
		return fmt.Errorf("keep the damaged end: %w", err)
	}
	s.log.Warn("the end of the spool was damaged and is cut off", "file", s.path(), "at", good, "bytes", len(tail), "why",
		why, "kept", kept)
	if err := s.f.Truncate(good); err != nil {
		return err
	}
	return s.f.Sync()
}

// itemError says that one record can't be kept, since it is too large. The spool is as it was before, and works on.
type itemError struct{ err error }

func (e *itemError) Error() string { return e.err.Error() }
func (e *itemError) Unwrap() error { return e.err }

// tooLarge reports whether an error of the spool is one of a record only.
func tooLarge(err error) bool {
	var e *itemError
	return errors.As(err, &e)
}

// add appends a record to the current batch; commit writes it. durable asks for an fsync before commit returns. The
// error is an itemError: nothing was added.
func (s *spool) add(kind recordKind, rec wire.Coder, durable bool) error {
	buf, err := appendRecord(s.buf, kind, rec, maxRecord)
	if err != nil {
		return err
	}
	s.buf = buf
	s.sync = s.sync || durable
	s.mem.fold(kind, rec)
	return nil
}

func appendRecord(buf []byte, kind recordKind, rec wire.Coder, limit int) ([]byte, error) {
	body, err := wire.Marshal(rec)
	if err != nil {
		return buf, &itemError{fmt.Errorf("spool: encode: %w", err)}
	}
	if len(body)+1 > limit {
		return buf, &itemError{fmt.Errorf("spool: a record of %d bytes is over the limit of %d", len(body), limit)}
	}
	at := len(buf)
	buf = append(buf, 0, 0, 0, 0, 0, 0, 0, 0, byte(kind))
	buf = append(buf, body...)
	payload := buf[at+recordHead:]
	binary.LittleEndian.PutUint32(buf[at:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(buf[at+4:], crc32.Checksum(payload, castagnoli))
	return buf, nil
}

// write gives the batch to the kernel: it survives this process, but not a crash of the machine. After a failure the
// content on disk is not known, and the spool is broken: it lives in memory alone until mend has written all of it.
func (s *spool) write() {
	if len(s.buf) > 0 && s.broken == nil {
		_, err := s.f.Write(s.buf)
		s.breaks("write", err)
		s.size += int64(len(s.buf))
	}
	s.buf = s.buf[:0]
}

func (s *spool) breaks(what string, err error) {
	if err != nil {
		s.broken = fmt.Errorf("%s the spool: %w", what, err)
	}
}

// commit writes the batch, with one fsync if any of it was durable.
func (s *spool) commit() {
	s.write()
	if s.sync && s.broken == nil {
		s.breaks("sync", unix.Fdatasync(int(s.f.Fd())))
	}
	s.sync = false
	if s.size >= s.compactFrom && s.broken == nil {
		s.breaks("compact", s.compact())
	}
}

// compact rewrites the journal with what is still needed, if that is less than a quarter of it.
func (s *spool) compact() error {
	live, err := s.live()
	if err != nil { // the journal as it is has everything
		s.log.Error("the spool can't be compacted, and grows", "err", err)
		s.compactFrom = 2 * s.size
		return nil
	}
	s.compactFrom = max(compactAt, 4*int64(len(live)))
	if s.size < s.compactFrom {
		return nil
	}
	return s.rewrite(live)
}

// mend tries to make a broken spool whole: a new journal has all that is in memory.
func (s *spool) mend() error {
	live, err := s.live()
	if err == nil {
		err = s.rewrite(live)
	}
	if err == nil {
		s.broken, s.buf, s.sync = nil, s.buf[:0], false // memory has what waits in buf too
	}
	return err
}

// rewrite replaces the journal.
func (s *spool) rewrite(content []byte) error {
	f, err := replaceFile(s.path(), content)
	if err != nil {
		return err
	}
	// The old file has no name any more.
	_ = s.f.Close()
	s.f, s.size = f, int64(len(content))
	return nil
}

// live encodes what the journal has to say.
func (s *spool) live() ([]byte, error) {
	out := []byte(spoolMagic)
	var err error
	put := func(kind recordKind, rec wire.Coder) {
		if err == nil {
			out, err = appendRecord(out, kind, rec, maxRead)
		}
	}
	put(recOpened, &s.mem.opened)
	put(recEpoch, &s.mem.epoch)
	for _, k := range s.mem.attempts {
		if k.launched != nil {
			put(recLaunch, k.launched)
			if k.nextStep > 0 {
				put(recStepOver, &stepOver{Job: k.launched.Job, Attempt: k.launched.Attempt, ID: k.nextStep - 1})
			}
			if k.shell {
				put(recStepOver, &stepOver{Job: k.launched.Job, Attempt: k.launched.Attempt, ID: proto.StepInteractive})
			}
			for _, s := range k.steps {
				put(recStep, s)
			}
		}
		for _, r := range k.reports {
			put(recReport, r)
		}
	}
	return out, err
}

// close lets the journal go. What was committed stays; the error says if it could not be.
func (s *spool) close() error {
	s.commit()
	if s.broken != nil && s.mend() != nil {
		s.broken = fmt.Errorf("what happened since is not on disk: %w", s.broken)
	}
	return errors.Join(s.broken, s.f.Close(), s.lock.Close())
}

// replaceFile replaces the file at path by content, atomically, and returns it open at its end.
func replaceFile(path string, content []byte) (*os.File, error) {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		_ = f.Close() // err is what went wrong
		return nil, err
	}
	return f, nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}

// spoolPace is the time between two tries to write a broken spool anew.
const spoolPace = 2 * time.Second

// msgMendSpool says that it is time for the next try.
type msgMendSpool struct{}

// noteSpool says once that the spool has broken, and begins to mend it.
func (l *loop) noteSpool() {
	if l.spool.broken == nil || l.n.spoolBroken.Load() != nil {
		return
	}
	why := l.spool.broken.Error()
	l.log.Error("no job starts here until the spool can be written; those that are here go on", "spool", l.spool.dir,
		"err", why)
	l.n.spoolBroken.Store(&why)
	l.n.beatNow()
	l.laterMend()
}

func (l *loop) laterMend() {
	time.AfterFunc(spoolPace, func() { l.n.inbox.post(msgMendSpool{}) })
}

func (l *loop) onMendSpool() {
	if l.spool.mend() != nil {
		l.laterMend()
		return
	}
	l.log.Info("the spool can be written again, and has everything", "spool", l.spool.dir)
	l.n.spoolBroken.Store(nil)
	l.n.beatNow()
}

// notOrdered is what an order comes to that is not on disk: it does not go out, as if gshim had refused it.
func notOrdered(o *shim.Launch, why error) []shim.Event {
	return []shim.Event{{Kind: shim.LaunchFailed, Key: o.Key, Stage: shim.StageJournal, Text: why.Error(),
		Ended: time.Now()}}
}
