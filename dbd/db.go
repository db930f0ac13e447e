package dbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"gbatch/internal/become"
	"gbatch/internal/boltcheck"
	"gbatch/internal/filelock"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// This file owns the database file: making, locking, opening and closing it, and its shelves. A shelf is a bucket of
// records with their indexes: "live" has the records of unfinished jobs, "done/2026-11" the records of jobs that ended
// in that month, so that forgetting a month is one DeleteBucket. A record is in exactly one shelf.
//
//	meta/{format,begin,sight}         formatName; see missing.go and users.go
//	series/<cluster>\x00<instance(8)> number(2) last applied Seq(8), era(8) if not the first
//	live/{rec,end,user,array}         end stays empty
//	done/<month>/{rec,end,user,array}
//	steps/<month>                     of steps that ended in it (see steps.go)
//	missing                           records that should be here and are not (see missing.go)

const (
	fileName   = "acct.db"
	lockName   = "acct.lock"
	formatName = "gbatch accounting 1"
	liveShelf  = "" // as a shelf's name; months have theirs

	// maxSeries bounds how often clusters may start over; a ref has 16 bits for it.
	maxSeries = 1<<16 - 1
	// fillPercent suits keys that mostly grow.
	fillPercent = 0.9
	// A file of mapFrom bytes is mapped with mapAhead more.
	mapFrom  = 64 << 20
	mapAhead = 4 << 30
	// lockWait is how long to wait for bbolt's own lock once ours is taken: another program may read the file.
	lockWait = time.Second
)

var (
	keyMeta   = []byte("meta")
	keyFormat = []byte("format")
	keySeries = []byte("series")
	keyLive   = []byte("live")
	keyDone   = []byte("done")
	keyRec    = []byte("rec")
	keyEnd    = []byte("end")
	keyUser   = []byte("user")
	keyArray  = []byte("array")
)

// ErrInUse says that another gdbd has the directory.
var ErrInUse = errors.New("in use by another gdbd")

// DamagedError says that the database file can't be trusted. Its text tells the operator what to do.
type DamagedError struct {
	Path string
	Err  error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("the accounting database %s is damaged (%v). Put a backup in its place, or begin an empty one:"+
		" mv %s %s.damaged; then start gdbd again. The controller still has every record that gdbd has not"+
		" acknowledged and sends them again, as it does those of jobs that have not ended; older ones come "+
		"from a backup only",
		e.Path, e.Err, e.Path, e.Path)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// db is the open database. Reading is safe from any goroutine; writing goes through the one writer (see ingest.go).
type db struct {
	bolt      *bolt.DB
	path      string
	lock      *os.File
	log       *slog.Logger
	now       func() time.Time // this host's
	cluster   func() time.Time // the cluster's; as now where no leader can tell it
	puts      chan *pending
	keep      int // months of finished records to keep; 0: all
	keepOther Keep
	querying  chan struct{} // a slot for each query that scans
	held      atomic.Int64  // hits of answers being read

	damaged atomic.Uint64 // number of damaged rows that queries have left out

	sight atomic.Pointer[proto.Sight] // who may see what; nil: not known
	other string                      // address of another gdbd, which may have what is missing here; "": there is none
	want  func(error)                 // asks for its database; nil: no longer
	lag   atomic.Pointer[BehindError]

	heard  atomic.Bool               // a controller has brought or asked for records, or there are some
	isLost atomic.Pointer[LostError] // it is not the database that acknowledged records; see missing.go
}

// openDB opens the database in dir and creates both if they are missing.
func openDB(dir string, log *slog.Logger, now func() time.Time) (*db, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the database directory: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	b, err := openFile(dir, log)
	if err != nil {
		_ = lock.Close() // nothing important was written to it
		return nil, err
	}
	d := &db{
		bolt: b, path: filepath.Join(dir, fileName), lock: lock, log: log, now: now, cluster: now,
		puts: make(chan *pending, maxWaitingPuts), querying: make(chan struct{}, maxQueries),
	}
	if err := d.loadSight(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Close closes the file. No query or write may be in progress.
func (d *db) Close() error {
	err := d.bolt.Close()
	return errors.Join(err, d.lock.Close())
}

// lockDir locks dir for this process. The lock ends with the file descriptor, so a killed gdbd leaves none.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of the database directory: %w", err)
	}
	if err := filelock.Take(f); err != nil {
		who := make([]byte, 20)
		n, _ := f.Read(who) // the pid is optional in the error's sentence
		_ = f.Close()       // only read from
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		pid := ""
		if s := strings.TrimSpace(string(who[:n])); s != "" {
			pid = " (pid " + s + ")"
		}
		return nil, fmt.Errorf("the database directory %s is %w%s; stop that one or give this one another directory with "+
			"--dir",
			dir, ErrInUse, pid)
	}
	_ = become.OwnAs(path, filepath.Join(dir, fileName)) // without it only root could start gdbd, which then says so
	if err := f.Truncate(0); err == nil {
		_, _ = fmt.Fprintf(f, "%d\n", os.Getpid()) // a courtesy, see above
	}
	return f, nil
}

func openFile(dir string, log *slog.Logger) (*bolt.DB, error) {
	path := filepath.Join(dir, fileName)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() == 0:
		if err := create(path); err != nil {
			return nil, fmt.Errorf("making the accounting database %s: %w", path, err)
		}
	case err != nil:
		return nil, fmt.Errorf("looking at the accounting database: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("the accounting database %s is not a regular file", path)
	default:
		head, err := checkFile(path)
		if err != nil {
			return nil, err
		}
		if head.Lost {
			log.Error("one of the two head pages of the accounting database is damaged; if it was the newer one, the last "+
				"transaction before the end of gdbd is missing, and the controller sends those records again as far as it keeps "+
				"them; look after the disk", "file", path)
		}
	}
	b, err := openBolt(path)
	if err != nil {
		return nil, err
	}
	if err := checkFormat(b, path); err != nil {
		_ = b.Close() // nothing was written
		return nil, err
	}
	return b, nil
}

// checkFile checks the whole file before bbolt trusts it.
func checkFile(path string) (boltcheck.Head, error) {
	f, err := os.Open(path)
	if err != nil {
		return boltcheck.Head{}, fmt.Errorf("opening the accounting database: %w", err)
	}
	head, err := boltcheck.File(f, nil)
	if info, e := f.Stat(); err == nil && e == nil && info.Size() < head.Size {
		err = fmt.Errorf("it has %d bytes and should have at least %d", info.Size(), head.Size)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return head, &DamagedError{path, err}
	}
	return head, nil
}

// create makes an empty database under another name first, so that a crash leaves a complete database or none.
func create(path string) error {
	fresh := path + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	b, err := openBolt(fresh)
	if err != nil {
		return err
	}
	err = b.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{keyMeta, keySeries, keyLive, keyDone} {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		return tx.Bucket(keyMeta).Put(keyFormat, []byte(formatName))
	})
	if err = errors.Join(err, b.Close()); err != nil {
		return err
	}
	return swap(fresh, path)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// openBolt opens a file that has passed checkFile. Damage that checkFile missed gives an error here, not a panic.
func openBolt(path string) (b *bolt.DB, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			b, err = nil, &DamagedError{path, fmt.Errorf("%v", p)}
		}
	}()
	b, err = bolt.Open(path, 0o600, &bolt.Options{
		Timeout: lockWait, NoFreelistSync: true, FreelistType: bolt.FreelistMapType, InitialMmapSize: mapped(path),
	})
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("the accounting database %s is %w or a tool that reads it", path, ErrInUse)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum),
		errors.Is(err, berrors.ErrVersionMismatch):
		return nil, &DamagedError{path, err}
	case err != nil:
		return nil, fmt.Errorf("opening the accounting database %s: %w", path, err)
	}
	return b, nil
}

// mapped is how much of the address space a file gets. When it grows beyond it, writing waits for the end of all
// reading, and making a backup of a large file reads for long.
func mapped(path string) int {
	info, err := os.Stat(path)
	if err != nil || info.Size() < mapFrom {
		return 0
	}
	return int(info.Size() + mapAhead)
}

func checkFormat(b *bolt.DB, path string) error {
	return guard(func() error {
		return b.View(func(tx *bolt.Tx) error {
			meta := tx.Bucket(keyMeta)
			if meta == nil {
				return fmt.Errorf("%s is a bbolt file but no accounting database; give gdbd another directory with --dir", path)
			}
			if got := string(meta.Get(keyFormat)); got != formatName {
				return fmt.Errorf("%s has the format %q, this gdbd knows %q; use the gdbd that wrote it or a later one",
					path, got, formatName)
			}
			for _, name := range [][]byte{keySeries, keyLive, keyDone} {
				if tx.Bucket(name) == nil {
					return &DamagedError{path, fmt.Errorf("its bucket %q is missing", name)}
				}
			}
			return nil
		})
	})
}

// errPanic marks a panic that guard caught.
var errPanic = errors.New("internal error")

// guard turns a panic of f into an error: bbolt panics on invalid pages, and reading a mapped page that the disk can't
// read raises a fault.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v\n%s", errPanic, p, debug.Stack())
		}
	}()
	return f()
}

// view runs f in a short read transaction.
func (d *db) view(f func(tx *bolt.Tx) error) error {
	err := guard(func() error { return d.bolt.View(f) })
	if errors.Is(err, errPanic) {
		d.log.Error("reading the accounting database failed", "file", d.path, "err", err)
		return fmt.Errorf("the accounting database %s can't be read: its disk or the file is damaged (gdbd's log says more)",
			d.path)
	}
	return err
}

// shelf is an open shelf in one transaction. Its buckets are nil until it gets its first record.
type shelf struct {
	name                  string
	rec, end, user, array *bolt.Bucket
	js1                   *bolt.Bucket // nil while it has no summary
}

func openShelf(name string, b *bolt.Bucket) *shelf {
	s := &shelf{name: name}
	if b != nil {
		s.rec, s.end, s.user, s.array = b.Bucket(keyRec), b.Bucket(keyEnd), b.Bucket(keyUser), b.Bucket(keyArray)
		s.js1 = b.Bucket(keyJS1)
	}
	return s
}

func (s *shelf) index(name []byte) *bolt.Bucket {
	switch name[0] {
	case 'r':
		return s.rec
	case 'e':
		return s.end
	case 'u':
		return s.user
	}
	return s.array
}

// shelves are all shelves in one transaction, the live one first, then the months from the latest back.
type shelves struct {
	all   []*shelf
	spans map[*bolt.Bucket]map[uint16][2]model.JobID
}

func openShelves(tx *bolt.Tx) *shelves {
	s := &shelves{all: []*shelf{openShelf(liveShelf, tx.Bucket(keyLive))}}
	done := tx.Bucket(keyDone)
	c := done.Cursor()
	for name, _ := c.Last(); name != nil; name, _ = c.Prev() {
		s.all = append(s.all, openShelf(string(name), done.Bucket(name)))
	}
	return s
}

func (s *shelves) get(name string) *shelf {
	for _, sh := range s.all {
		if sh.name == name {
			return sh
		}
	}
	return nil
}

// find gives r's row and shelf; nil if there is none.
func (s *shelves) find(r ref) (row []byte, in *shelf) {
	key := r.append(nil)
	for _, sh := range s.all {
		if !s.mayHold(sh.rec, r.series, r.job) {
			continue
		}
		if row := sh.rec.Get(key); row != nil {
			return row, sh
		}
	}
	return nil, nil
}

// mayHold reports whether job is between the first and the last job of series in b, whose keys begin with both. Most
// months have only other jobs, and after the first time this answer is free.
func (s *shelves) mayHold(b *bolt.Bucket, series uint16, job model.JobID) bool {
	if b == nil {
		return false
	}
	if s.spans == nil {
		s.spans = map[*bolt.Bucket]map[uint16][2]model.JobID{}
	}
	bySeries := s.spans[b]
	if bySeries == nil {
		bySeries = map[uint16][2]model.JobID{}
		s.spans[b] = bySeries
	}
	span, known := bySeries[series]
	if !known {
		span = jobSpan(b, series)
		bySeries[series] = span
	}
	return span[0] <= job && job <= span[1]
}

// jobSpan gives the first and last job of series in b; without jobs the first is above the last.
func jobSpan(b *bolt.Bucket, series uint16) [2]model.JobID {
	none := [2]model.JobID{1, 0}
	c := b.Cursor()
	prefix := binary.BigEndian.AppendUint16(nil, series)
	first, _ := c.Seek(prefix)
	if len(first) < 6 || binary.BigEndian.Uint16(first) != series {
		return none
	}
	lo := model.JobID(binary.BigEndian.Uint32(first[2:]))
	var last []byte
	if next := after(prefix); next == nil {
		last, _ = c.Last()
	} else if last, _ = c.Seek(next); last != nil {
		last, _ = c.Prev()
	} else {
		last, _ = c.Last()
	}
	if len(last) < 6 {
		return none
	}
	return [2]model.JobID{lo, model.JobID(binary.BigEndian.Uint32(last[2:]))}
}
