package dbd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/wire"
)

// t0 is the moment around which tests happen: noon of a day in the middle of a month.
var t0 = model.Time(time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC).UnixMilli())

const (
	second = model.Time(1000)
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
)

func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// openTest opens the database in dir with its writer running, until the test ends or stop is called.
func openTest(t testing.TB, dir string) (d *db, stop func()) {
	t.Helper()
	return openTestWith(t, dir, time.Now)
}

// openTestAt is openTest at a moment that stays.
func openTestAt(t testing.TB, dir string, at model.Time) (d *db, stop func()) {
	t.Helper()
	return openTestWith(t, dir, func() time.Time { return time.UnixMilli(int64(at)) })
}

func openTestWith(t testing.TB, dir string, now func() time.Time) (d *db, stop func()) {
	t.Helper()
	d, err := openDB(dir, testLog(t), now)
	if err != nil {
		t.Fatal(err)
	}
	return d, startTest(t, d)
}

func startTest(t testing.TB, d *db) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := d.run(ctx); err != nil {
			t.Errorf("writer: %v", err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// rec is a finished job of user 1000 that ran for an hour before t0, changed as said.
func rec(seq uint64, job model.JobID, change ...func(*model.Record)) *model.Record {
	r := &model.Record{
		Seq: seq, Job: job, Attempt: 1, Task: model.NoTask, Name: "train", User: "ann", Group: "lab", UID: 1000, GID: 100,
		Account: "physics", QOS: "normal", Partition: "gpu", State: model.Completed,
		Submit: t0 - 2*hour, Eligible: t0 - 2*hour, Start: t0 - hour, End: t0, LimitS: 7200, Nodes: "node[01-02]",
		NumNodes: 2,
		ReqCPUs:  8, AllocCPUs: 8, ReqMemMiB: 4096, AllocMemMiB: 8192,
		ReqGres:   []model.GresCount{{Name: "gpu", Type: "a100", Count: 2}},
		AllocGres: []model.GresCount{{Name: "gpu", Type: "a100", Count: 2}},
		WorkDir:   "/home/ann/project", Command: "/home/ann/project/train.sh",
		SubmitLine: "sbatch --gres=gpu:a100:1 -N2 train.sh",
		StdOut:     "/home/ann/project/slurm-%j.out",
	}
	for _, f := range change {
		f(r)
	}
	return r
}

func running(r *model.Record)    { r.State, r.End = model.Running, 0 }
func waiting(r *model.Record)    { r.State, r.Start, r.End, r.Nodes = model.Pending, 0, 0, "" }
func purged(r *model.Record)     { r.Purge = true }
func failed(r *model.Record)     { r.State = model.Failed }
func later(by model.Time) change { return func(r *model.Record) { shift(r, by) } }
func attempt(n uint32) change    { return func(r *model.Record) { r.Attempt = n } }
func user(uid uint32) change     { return func(r *model.Record) { r.UID = uid } }
func task(a model.JobID, i int32) change {
	return func(r *model.Record) { r.ArrayID, r.Task = a, i }
}

type change = func(*model.Record)

func shift(r *model.Record, by model.Time) {
	for _, t := range []*model.Time{&r.Submit, &r.Eligible, &r.Start, &r.End} {
		if *t != 0 {
			*t += by
		}
	}
}

func mustPut(t testing.TB, d *db, wantSeq uint64, records ...*model.Record) {
	t.Helper()
	seq, err := d.put(t.Context(), &proto.Put{Cluster: "c", Records: records})
	if err != nil {
		t.Fatal(err)
	}
	if seq != wantSeq {
		t.Fatalf("put acknowledged %d, not %d", seq, wantSeq)
	}
}

// ask gives the answer's records and fails on a chunk that breaks the limits.
func ask(t testing.TB, d *db, req *proto.AcctRequest) []*model.Record {
	t.Helper()
	out, err := tryAsk(t.Context(), d, req)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tryAsk(ctx context.Context, d *db, req *proto.AcctRequest) ([]*model.Record, error) {
	var out []*model.Record
	err := d.query(ctx, req, func(records [][]byte) error {
		if len(records) == 0 || len(records) > proto.ChunkJobs {
			return fmt.Errorf("a chunk of %d records", len(records))
		}
		for _, b := range records {
			r := new(model.Record)
			if err := wire.Unmarshal(b, r); err != nil {
				return err
			}
			out = append(out, r)
		}
		return nil
	})
	return out, err
}

// names writes records as "job.attempt:state ...".
func names(records []*model.Record) string {
	var b strings.Builder
	for i, r := range records {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d.%d:%s", r.Job, r.Attempt, r.State.Short())
	}
	return b.String()
}

func wantNames(t testing.TB, d *db, req *proto.AcctRequest, want string) {
	t.Helper()
	if got := names(ask(t, d, req)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	sane(t, d)
}

// sane checks that every index entry has its record, every record has its index entries, and each record is in one
// shelf only.
func sane(t testing.TB, d *db) {
	t.Helper()
	err := d.bolt.View(func(tx *bolt.Tx) error {
		where := map[ref]string{}
		for _, sh := range openShelves(tx).all {
			if sh.rec == nil {
				continue
			}
			want := map[*bolt.Bucket]map[string]bool{sh.end: {}, sh.user: {}, sh.array: {}}
			err := sh.rec.ForEach(func(k, v []byte) error {
				r, ok := lastRef(k)
				if other, twice := where[r]; twice || !ok {
					return fmt.Errorf("%v in %q and %q", r, other, sh.name)
				}
				where[r] = sh.name
				h, record, ok := parseRow(v, r)
				if !ok {
					return fmt.Errorf("row of %v is damaged", r)
				}
				var full model.Record
				if err := wire.Unmarshal(record, &full); err != nil {
					return err
				}
				if h != headOf(&full) {
					return fmt.Errorf("%v: head %+v of record %+v", r, h, full)
				}
				if name := shelfOf(&h); name != sh.name {
					return fmt.Errorf("%v lies in %q, not in %q", r, sh.name, name)
				}
				indexKeys(sh, &h, r, func(b *bolt.Bucket, key []byte) { want[b][string(key)] = true })
				return nil
			})
			if err != nil {
				return err
			}
			for b, keys := range want {
				err := b.ForEach(func(k, _ []byte) error {
					if !keys[string(k)] {
						return fmt.Errorf("shelf %q has an entry %x without a record", sh.name, k)
					}
					delete(keys, string(k))
					return nil
				})
				if err != nil {
					return err
				}
				if len(keys) > 0 {
					return fmt.Errorf("shelf %q lacks %d entries", sh.name, len(keys))
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestOpenMakesPrivateFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	d, _ := openTest(t, dir)
	for _, name := range []string{"", fileName, lockName} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", info.Name(), info.Mode())
		}
	}
	wantNames(t, d, &proto.AcctRequest{}, "")
}

func TestEmptyFileIsANewDatabase(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fileName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d, _ := openTest(t, dir)
	mustPut(t, d, 1, rec(1, 1))
}

func TestLeftoverOfACrashedCreationIsReplaced(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fileName+".new"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, _ := openTest(t, dir)
	mustPut(t, d, 1, rec(1, 1))
}

func TestInUse(t *testing.T) {
	dir := t.TempDir()
	_, stop := openTest(t, dir)
	_, err := openDB(dir, testLog(t), time.Now)
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), fmt.Sprint("pid ", os.Getpid())) ||
		!strings.Contains(err.Error(), dir) {
		t.Fatalf("got %v", err)
	}
	stop()
	_, _ = openTest(t, dir)
}

func TestFilesThatAreNoDatabase(t *testing.T) {
	foreign := func(path string) error {
		b, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true})
		if err != nil {
			return err
		}
		err = b.Update(func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte("logs")); return err })
		return errors.Join(err, b.Close())
	}
	newer := func(path string) error {
		b, err := bolt.Open(path, 0o600, nil)
		if err != nil {
			return err
		}
		err = b.Update(func(tx *bolt.Tx) error {
			m, err := tx.CreateBucket(keyMeta)
			if err != nil {
				return err
			}
			return m.Put(keyFormat, []byte("gbatch accounting 9"))
		})
		return errors.Join(err, b.Close())
	}
	bytesOf := func(b []byte) func(string) error {
		return func(path string) error { return os.WriteFile(path, b, 0o600) }
	}
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"text":      {bytesOf([]byte("hello, this is no database\n")), "is damaged (neither of its two head pages is whole)"},
		"zeros":     {bytesOf(make([]byte, 16384)), "mv "},
		"directory": {func(p string) error { return os.Mkdir(p, 0o700) }, "not a regular file"},
		"foreign":   {foreign, "no accounting database"},
		"newer":     {newer, "use the gdbd that wrote it"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := c.make(filepath.Join(dir, fileName)); err != nil {
				t.Fatal(err)
			}
			_, err := openDB(dir, testLog(t), time.Now)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), fileName) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			// A failed start leaves no lock behind.
			lock, err := lockDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			_ = lock.Close() // nothing in it
		})
	}
}

// TestDamage flips, zeroes and cuts a database in many places: gdbd opens it or says what is wrong, never panics, and
// answers only with records that were stored.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	d, stop := openTest(t, dir)
	var batch []*model.Record
	stored := map[string]bool{}
	for i := range 400 {
		r := rec(uint64(i+1), model.JobID(i+1), user(uint32(1000+i%7)), later(model.Time(i)*hour),
			task(model.JobID(i/10*10), int32(i%10)))
		if i%5 == 0 {
			running(r)
		}
		batch = append(batch, r)
		r.Cluster = "c"
		b, err := wire.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		stored[string(b)] = true
		if len(batch) == 40 {
			mustPut(t, d, r.Seq, batch...)
			batch = nil
		}
	}
	stop()
	whole, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	rng := newRand(t)
	opened, refused, short := 0, 0, 0
	for range 600 {
		b := bytes.Clone(whole)
		at := rng.IntN(len(b))
		switch rng.IntN(5) {
		case 0:
			b = b[:at]
		case 1:
			clear(b[at/4096*4096 : at/4096*4096+4096])
		case 2:
			copy(b[at/4096*4096:at/4096*4096+4096], b[rng.IntN(len(b)/4096)*4096:])
		case 3: // most harmful in the heads of pages
			at = at/4096*4096 + rng.IntN(64)
			b[at] ^= 1 << rng.IntN(8)
		default:
			b[at] ^= 1 << rng.IntN(8)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, fileName), b, 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := openDB(dir, slog.New(slog.DiscardHandler), time.Now)
		if err != nil {
			if !strings.Contains(err.Error(), fileName) && len(b) > 0 {
				t.Fatalf("unclear: %v", err)
			}
			refused++
			continue
		}
		opened++
		n := 0
		err = d.query(t.Context(), &proto.AcctRequest{}, func(records [][]byte) error {
			for _, r := range records {
				if !stored[string(r)] {
					return errors.New("a record that was never stored")
				}
				n++
			}
			return nil
		})
		if err != nil && !strings.Contains(err.Error(), "damaged") {
			t.Fatal(err)
		}
		if n < len(stored) {
			short++
		}
		_ = d.Close() // what it says about a damaged file doesn't matter
	}
	t.Logf("%d damaged files: %d refused, %d opened, %d of these with records missing", opened+refused, refused, opened,
		short)
	if refused == 0 || opened == 0 {
		t.Error("the test damages too much or too little")
	}
}

func FuzzRow(f *testing.F) {
	b, err := wire.Marshal(rec(1, 7))
	if err != nil {
		f.Fatal(err)
	}
	r := ref{1, 7, 1}
	h := headOf(rec(1, 7))
	row := newRow(&h, b)
	seal(row, r)
	f.Add(row, uint16(1), uint32(7), uint32(1))
	f.Fuzz(func(t *testing.T, row []byte, series uint16, job, attempt uint32) {
		r := ref{series, model.JobID(job), attempt}
		if h, record, ok := parseRow(row, r); ok {
			again := newRow(&h, record)
			seal(again, r)
			if !bytes.Equal(again[:rowBody-3], row[:rowBody-3]) && bytes.Equal(row[rowBody-3:rowBody], []byte{0, 0, 0}) {
				t.Errorf("%x\n%x", row, again)
			}
		}
		if got, ok := lastRef(r.append(row)); !ok || got != r {
			t.Errorf("%v became %v", r, got)
		}
		if key := r.append(nil); bytes.Compare(after(key), key) <= 0 && after(key) != nil {
			t.Errorf("after(%x) = %x", key, after(key))
		}
	})
}

func FuzzSpan(f *testing.F) {
	f.Add(int64(0), int64(0))
	f.Add(int64(t0), int64(t0+hour))
	f.Add(int64(0), int64(1)<<62)
	f.Fuzz(func(t *testing.T, submit, end int64) {
		h := headOf(&model.Record{Submit: model.Time(submit), End: model.Time(end), State: model.Failed})
		k := spanOf(h.submit, h.end)
		if k > maxSpan || h.end-h.submit >= spanMS(k) || h.end <= 0 {
			t.Errorf("span %d of %+v", k, h)
		}
		from, to, err := monthSpan(monthOf(h.end))
		if err != nil || h.end < from || h.end >= to {
			t.Errorf("month %s of %d: %d-%d %v", monthOf(h.end), h.end, from, to, err)
		}
	})
}
