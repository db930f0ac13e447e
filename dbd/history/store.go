package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"gbatch/internal/boltcheck"
	"gbatch/internal/proto"
)

// The file:
//
//	meta/format
//	now                minute(8) part(2)        a part of a minute of the current hour, as it came
//	fine/<hour(8)>     kind(1) name             rows of minutes
//	coarse/<day(8)>    kind(1) name             rows of ten minutes
//
// Hours, days and minutes are numbered since 1970. The current hour is in memory too, by series; when it is over it is
// written as one bucket, its means are added to their day, and its minutes go.

const (
	// FileName is the file's in gdbd's directory.
	FileName = "history.db"
	format   = "gbatch history 1"

	minute = proto.HistoryFineS
	hourS  = 3600
	dayS   = 24 * hourS

	// MaxBytes bounds the file.
	MaxBytes = 2 << 30
	// maxSeries bounds the series of one hour. Jobs of a minute come and go; a cluster of 1,000 nodes has 20,000 others.
	maxSeries = 1 << 18
	// maxAsking bounds questions at the same time.
	maxAsking = 4
	// fewRows is the least of a job that is kept for long: a shorter one would be one point.
	fewRows = proto.HistoryCoarseS / minute
	// ahead is how far a sample may be ahead of this host's clock, minutes.
	ahead    = 10
	fillPart = 0.95
	lockWait = time.Second
)

var (
	keyMeta   = []byte("meta")
	keyFormat = []byte("format")
	keyNow    = []byte("now")
	keyFine   = []byte("fine")
	keyCoarse = []byte("coarse")
)

// Store is the open file.
type Store struct {
	path   string
	bolt   *bolt.DB
	log    *slog.Logger
	now    func() time.Time
	most   int64
	asking chan struct{}

	writing sync.Mutex   // held over a change of the file
	mu      sync.RWMutex // guards what follows, and that file and memory belong together
	hour    int64        // that is in memory
	head    map[string]*run
}

// Open opens the file, and makes it if there is none. One that is damaged is put aside.
func Open(path string, log *slog.Logger, now func() time.Time) (*Store, error) {
	return openBelow(path, log, now, MaxBytes)
}

// openBelow opens a file that is to stay below a number of bytes.
func openBelow(path string, log *slog.Logger, now func() time.Time, most int64) (*Store, error) {
	s := &Store{path: path, log: log, now: now, most: most, asking: make(chan struct{}, maxAsking)}
	err := s.open()
	if errors.Is(err, errDamaged) {
		log.Error("the history of samples is damaged; it is put aside, and a new one begins", "file", path, "err", err)
		if err = os.Rename(path, path+".damaged"); err == nil {
			err = s.open()
		}
	}
	return s, err
}

var errDamaged = errors.New("damaged")

func (s *Store) open() error {
	if info, err := os.Stat(s.path); err == nil && info.Size() > 0 {
		f, err := os.Open(s.path)
		if err != nil {
			return fmt.Errorf("opening the history of samples: %w", err)
		}
		_, err = boltcheck.File(f, nil)
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("%w: %w", errDamaged, err)
		}
	}
	b, err := bolt.Open(s.path, 0o600, &bolt.Options{Timeout: lockWait, NoFreelistSync: true,
		FreelistType: bolt.FreelistMapType, MaxSize: int(s.most)})
	if err != nil {
		return fmt.Errorf("opening the history of samples %s: %w", s.path, err)
	}
	b.AllocSize = int(min(int64(b.AllocSize), s.most/64)) // it grows by so much
	s.bolt, s.head, s.hour = b, map[string]*run{}, 0
	err = s.guard(func() error { return b.Update(s.begin) })
	if err == nil {
		err = s.guard(func() error { return b.View(s.recall) })
	}
	if err != nil {
		_ = b.Close() // the error says more
		return fmt.Errorf("reading the history of samples %s: %w", s.path, err)
	}
	return nil
}

// begin makes what the file needs.
func (s *Store) begin(tx *bolt.Tx) error {
	for _, name := range [][]byte{keyMeta, keyNow, keyFine, keyCoarse} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	meta := tx.Bucket(keyMeta)
	switch got := meta.Get(keyFormat); {
	case got == nil:
		return meta.Put(keyFormat, []byte(format))
	case string(got) != format:
		return fmt.Errorf("it has the format %q, this gdbd knows %q", got, format)
	}
	return nil
}

// recall puts the current hour's minutes into memory.
func (s *Store) recall(tx *bolt.Tx) error {
	return tx.Bucket(keyNow).ForEach(func(k, v []byte) error {
		var part proto.Samples
		if len(k) != 10 || proto.Decode(v, &part) != nil {
			return fmt.Errorf("%w: a minute can't be read", errDamaged)
		}
		at := int64(binary.BigEndian.Uint64(k))
		if hour := at * minute / hourS; hour > s.hour {
			s.hour = hour // the one before was written in the same transaction that began it
		}
		s.remember(at, part.List)
		return nil
	})
}

// remember adds samples of a minute to the current hour.
func (s *Store) remember(at int64, list []proto.Sample) {
	slot := at - s.hour*hourS/minute
	for i := range list {
		x := &list[i]
		key := nameOf(x.Of, x.Name)
		r := s.head[key]
		if r == nil {
			if len(s.head) >= maxSeries {
				continue
			}
			r = &run{}
			s.head[key] = r
		}
		r.add(slot, x.Values)
	}
}

// nameOf is the key of a series.
func nameOf(of proto.HistoryOf, name string) string { return string(rune(of)) + name }

// Close closes the file.
func (s *Store) Close() error { return s.bolt.Close() }

// guard turns a panic about a page that the disk can't read into an error.
func (s *Store) guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("the history of samples can't be used", "file", s.path, "err", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("the history of samples %s can't be read: its disk or the file is damaged", s.path)
		}
	}()
	return f()
}

// BadError says what is wrong with samples or a question.
type BadError struct{ Text string }

func (e *BadError) Error() string { return e.Text }

// Put keeps a part of a minute. When it returns nil, it is on disk.
func (s *Store) Put(p *proto.Samples) error {
	at := p.At.Seconds()/minute - 1 // what ends at 10:05 is of minute 10:04
	switch now := s.now().Unix() / minute; {
	case p.Part < 0 || p.Part >= proto.MaxSampleParts:
		return &BadError{fmt.Sprintf("samples of part %d; there are at most %d", p.Part, proto.MaxSampleParts)}
	case at > now+ahead || at < now-dayS/minute:
		return &BadError{fmt.Sprintf("samples of %s: this host's clock is elsewhere", time.Unix(at*minute, 0).UTC())}
	}
	for i := range p.List {
		x := &p.List[i]
		if n := len(x.Of.Fields()); n == 0 || len(x.Values) == 0 || len(x.Values) > proto.MaxHistoryFields {
			return &BadError{fmt.Sprintf("a sample of kind %d with %d values", x.Of, len(x.Values))}
		}
	}
	body, err := proto.Encode(p)
	if err != nil {
		return err
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	hour := at * minute / hourS
	if hour < s.hour {
		return nil // the hour is over; nobody waits for it
	}
	turns := hour > s.hour
	if turns { // readers see file and memory change together
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	write := func(tx *bolt.Tx) error {
		if turns {
			if err := s.seal(tx, hour); err != nil {
				return err
			}
		}
		key := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint64(nil, uint64(at)), uint16(p.Part))
		return tx.Bucket(keyNow).Put(key, body)
	}
	err = s.guard(func() error {
		err := s.bolt.Update(write)
		for left := true; left && errors.Is(err, berrors.ErrMaxSizeReached); {
			if left, err = s.dropOldest(err); left {
				err = s.bolt.Update(write)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	if turns {
		s.hour, s.head = hour, make(map[string]*run, len(s.head))
	} else {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	s.remember(at, p.List)
	return nil
}

// dropOldest makes room: it forgets the oldest day of means or, without one, the oldest hour. Where nothing is left the
// error is full.
func (s *Store) dropOldest(full error) (left bool, err error) {
	err = s.bolt.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{keyCoarse, keyFine} {
			b := tx.Bucket(name)
			if k, _ := b.Cursor().First(); k != nil {
				left = true
				return forget(b, 0, true)
			}
		}
		return fmt.Errorf("the history of samples %s is full: %w", s.path, full)
	})
	return left, err
}

// seal writes the hour that is over, forgets its minutes, and what is too old.
func (s *Store) seal(tx *bolt.Tx, next int64) error {
	if len(s.head) > 0 {
		fine, err := tx.Bucket(keyFine).CreateBucketIfNotExists(number(s.hour))
		if err != nil {
			return err
		}
		day := s.hour * hourS / dayS
		coarse, err := tx.Bucket(keyCoarse).CreateBucketIfNotExists(number(day))
		if err != nil {
			return err
		}
		fine.FillPercent, coarse.FillPercent = fillPart, fillPart
		first := (s.hour*hourS - day*dayS) / proto.HistoryCoarseS
		for key, r := range s.head {
			if err := fine.Put([]byte(key), r.bytes); err != nil {
				return err
			}
			if long := condense(coarse.Get([]byte(key)), key, r.bytes, first); long != nil {
				if err := coarse.Put([]byte(key), long); err != nil {
					return err
				}
			}
		}
	}
	if err := tx.DeleteBucket(keyNow); err != nil {
		return err
	}
	if _, err := tx.CreateBucket(keyNow); err != nil {
		return err
	}
	if err := forget(tx.Bucket(keyFine), next-proto.HistoryFineFor/hourS, false); err != nil {
		return err
	}
	used := tx.Size() - int64(s.bolt.Stats().FreePageN+s.bolt.Stats().PendingPageN)*int64(s.bolt.Info().PageSize)
	return forget(tx.Bucket(keyCoarse), (next*hourS-proto.HistoryLongFor)/dayS, used > s.most-s.most/8)
}

// forget removes buckets before a number, and the oldest one if asked.
func forget(of *bolt.Bucket, before int64, oldest bool) error {
	var gone [][]byte
	c := of.Cursor()
	for k, _ := c.First(); k != nil && (oldest || int64(binary.BigEndian.Uint64(k)) < before); k, _ = c.Next() {
		gone, oldest = append(gone, append([]byte(nil), k...)), false
	}
	for _, k := range gone {
		if err := of.DeleteBucket(k); err != nil {
			return err
		}
	}
	return nil
}

// condense appends the means of an hour's rows to a day's; nil: nothing changes.
func condense(have []byte, key string, hour []byte, first int64) []byte {
	of := proto.HistoryOf(key[0])
	var long run
	read(have, func(r row) { long.add(r.slot, r.values) })
	if of == proto.HistoryJob && have == nil {
		n := 0
		if read(hour, func(row) { n++ }); n < fewRows {
			return nil
		}
	}
	m, slot := newMeans(of), int64(-1)
	values := make([]int64, len(of.Fields()))
	end := func() {
		if m.any {
			m.take(values)
			long.add(first+slot, values)
		}
	}
	read(hour, func(r row) {
		if at := r.slot / fewRows; at != slot {
			end()
			slot = at
		}
		m.add(r.values)
	})
	end()
	return long.bytes
}

func number(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
