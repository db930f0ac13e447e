package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"gbatch/internal/boltcheck"
)

// written makes the directory of a single voter with two snapshots and entries before, between and after them, and
// gives it with the state that is in it.
func written(t *testing.T, perPart int) (dir string, want []byte) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "state")
	g := newGroup(t, 1, Options{TrailingLogs: 5})
	m := g.start(g.peers[0], dir)
	g.leader()
	n := 0
	for part := range 4 {
		for range perPart {
			propose(t, m.Store, fmt.Sprintf("command %d: %s", n, strings.Repeat("x", n%100)))
			n++
		}
		if part < 3 {
			if err := m.Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
	}
	want = m.machine.snapshot()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, want
}

func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "state")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// reopen starts a single voter on a directory and gives its state, or Open's error.
func reopen(t *testing.T, dir string) ([]byte, error) {
	t.Helper()
	m := newLedger()
	s, err := Open(Options{ID: "c1", Dir: dir, Peers: []Peer{{"c1", "mem"}}, Net: NewMemNet(), Machine: m,
		Logger: testLogger(t)})
	if err != nil {
		return nil, err
	}
	await(t, "the voter to lead", func() bool { return s.IsLeader() && s.Barrier(short(t)) == nil })
	return m.snapshot(), s.Close()
}

func flip(t *testing.T, path string, at int64) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= byte(1 + rand.IntN(255))
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// rewrite changes a file wherever it has some text: one of the places is in use, others may be left from before.
func rewrite(t *testing.T, path, text string, change func(b []byte, at int)) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := bytes.Index(b, []byte(text)); at >= 0; at = bytes.Index(b, []byte(text)) {
		change(b, at)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestNoSilentGap: whatever byte of the log or of a snapshot changes, a voter alone has all its state, or refuses with
// a sentence.
func TestNoSilentGap(t *testing.T) {
	base, want := written(t, 60)
	whole, refused := 0, 0
	for i := range 100 {
		dir := copyOf(t, base)
		files := []string{filepath.Join(dir, logFileName)}
		if i%4 == 3 {
			files, _ = filepath.Glob(filepath.Join(dir, snapshotsDir, "*", "*")) // the pattern is fine
		}
		path := files[rand.IntN(len(files))]
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		at := rand.Int64N(info.Size())
		if i%4 == 0 {
			at = rand.Int64N(2 * 4096 / 32) // the head pages, mostly zeros otherwise
		}
		flip(t, path, at)
		got, err := reopen(t, dir)
		switch {
		case err == nil && bytes.Equal(got, want):
			whole++
		case err == nil:
			t.Errorf("byte %d of %s changed: the state differs and nobody says so", at, path)
		case !strings.Contains(err.Error(), "mv "+dir+" "):
			t.Errorf("byte %d of %s changed: %v", at, path, err)
		default:
			refused++
		}
		_ = os.RemoveAll(dir) // the test's folder goes anyway
	}
	t.Logf("%d whole, %d refused", whole, refused)
	if whole == 0 || refused == 0 {
		t.Error("the test damages too much or too little")
	}
}

// TestSaysWhatIsDamaged: the sentence for a log that is damaged in each of these ways, on a voter alone.
func TestSaysWhatIsDamaged(t *testing.T) {
	base, want := written(t, 60)
	change := func(f func(*bbolt.Tx) error) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			db, err := bbolt.Open(filepath.Join(dir, logFileName), 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(db.Update(f), db.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
	logs := func(tx *bbolt.Tx) *bbolt.Bucket { return tx.Bucket([]byte(bucketLogs)) }
	resize := func(f func(int64) int64) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, logFileName)
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, f(info.Size())); err != nil {
				t.Fatal(err)
			}
		}
	}
	newest := func(t *testing.T, dir string, back int) string {
		names, err := filepath.Glob(filepath.Join(dir, snapshotsDir, "*"))
		if err != nil || len(names) != 2 {
			t.Fatal(names, err)
		}
		return names[len(names)-1-back]
	}
	for name, c := range map[string]struct {
		damage func(*testing.T, string)
		want   string // of the error; "": all state is there
	}{
		"nothing":               {func(*testing.T, string) {}, ""},
		"a quarter of the file": {resize(func(n int64) int64 { return n / 4 }), "is damaged: page"},
		"an odd length":         {resize(func(n int64) int64 { return n + 100 }), ""},
		"the unused end":        {func(t *testing.T, dir string) { cutUnused(t, filepath.Join(dir, logFileName)) }, ""},
		"a page of zeros": {func(t *testing.T, dir string) {
			rewrite(t, filepath.Join(dir, logFileName), "command 200: ", func(b []byte, at int) {
				clear(b[at/4096*4096 : at/4096*4096+4096])
			})
		}, "is damaged: page"},
		"an entry gone": {change(func(tx *bbolt.Tx) error { return logs(tx).Delete(indexKey(200)) }),
			"entries 200 to 200 are missing"},
		"the last entry gone": {change(func(tx *bbolt.Tx) error {
			k, _ := logs(tx).Cursor().Last() // the seal
			return logs(tx).Delete(indexKey(binary.BigEndian.Uint64(before(logs(tx), k))))
		}), "and should have"},
		"the seal gone": {change(func(tx *bbolt.Tx) error { return logs(tx).Delete(indexKey(sealIndex)) }),
			"its seal is missing"},
		"a byte of the seal": {change(func(tx *bbolt.Tx) error {
			v, at := sealIn(tx)
			v[at+8]++ // its first index
			return logs(tx).Put(indexKey(sealIndex), v)
		}), "its seal is damaged"},
		"all entries gone": {change(func(tx *bbolt.Tx) error {
			seal := append([]byte{}, logs(tx).Get(indexKey(sealIndex))...)
			if err := tx.DeleteBucket([]byte(bucketLogs)); err != nil {
				return err
			}
			b, err := tx.CreateBucket([]byte(bucketLogs))
			return errors.Join(err, b.Put(indexKey(sealIndex), seal))
		}), "it has no entries and should have"},
		"two entries exchanged": {change(func(tx *bbolt.Tx) error {
			v := append([]byte{}, logs(tx).Get(indexKey(200))...)
			return logs(tx).Put(indexKey(201), v)
		}), "entry 201: its checksum is wrong"},
		"an entry of another history": {change(func(tx *bbolt.Tx) error {
			e, _ := witnessed(0, &raft.Log{Index: 200, Term: 2, Data: []byte("foreign")})
			return logs(tx).Put(indexKey(200), stored(t, e))
		}), "entry 200 does not follow on entry 199"},
		"the vote": {change(func(tx *bbolt.Tx) error {
			v, at := sealIn(tx)
			v[at+44]++ // the term of the last one
			return logs(tx).Put(indexKey(sealIndex), v)
		}), "its seal is damaged"},
		"what it has joined": {change(func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(bucketConf)).Put(keyJoining, []byte("12345"))
		}), `the checksum of "gbatch.joining"`},
		"the log gone": {func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, logFileName)); err != nil {
				t.Fatal(err)
			}
		}, "is missing, though there are snapshots"},
		"the newest snapshot torn": {func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(newest(t, dir, 0), stateFile), 100); err != nil {
				t.Fatal(err)
			}
		}, ""},
		"the newest snapshot gone": {func(t *testing.T, dir string) {
			if err := os.RemoveAll(newest(t, dir, 0)); err != nil {
				t.Fatal(err)
			}
		}, ""},
		"a number in its meta.json": {func(t *testing.T, dir string) {
			path := filepath.Join(newest(t, dir, 0), metaFile)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b = bytes.Replace(b, []byte(`"Suffrage":0`), []byte(`"Suffrage":1`), 1)
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}, ""},
		"both snapshots": {func(t *testing.T, dir string) {
			flip(t, filepath.Join(newest(t, dir, 0), stateFile), 50)
			flip(t, filepath.Join(newest(t, dir, 1), stateFile), 50)
		}, "and the raft log begins at entry"},
		"both snapshots gone": {func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, snapshotsDir)); err != nil {
				t.Fatal(err)
			}
		}, "the snapshot that entry"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			dir := copyOf(t, base)
			c.damage(t, dir)
			for range 2 { // the same at the second start
				got, err := reopen(t, dir)
				switch {
				case c.want == "" && err != nil:
					t.Error(err)
				case c.want == "" && !bytes.Equal(got, want):
					t.Error("the state differs")
				case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
					t.Errorf("want %q, got %v", c.want, err)
				case c.want != "":
					t.Log(err)
				}
			}
		})
	}
}

// before gives the key before another one.
func before(b *bbolt.Bucket, k []byte) []byte {
	c := b.Cursor()
	c.Seek(k)
	k, _ = c.Prev()
	return k
}

func indexKey(i uint64) []byte { return binary.BigEndian.AppendUint64(nil, i) }

// stored gives an entry's bytes as raft-boltdb writes them.
func stored(t *testing.T, e *raft.Log) (v []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "one")
	b, err := openBolt(path, false)
	if err == nil {
		err = errors.Join(b.StoreLog(e), b.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		v = append(v, tx.Bucket([]byte(bucketLogs)).Get(indexKey(e.Index))...)
		return nil
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return v
}

// cutUnused removes pages at the end of the file that nothing uses; it makes some first.
func cutUnused(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := len(b) - 4096; n > len(b)/2; n -= 4096 {
		if err := os.Truncate(path, int64(n)); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = boltcheck.File(f, nil)
		_ = f.Close() // it was only read
		if err != nil {
			b = b[:n+4096]
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
}

// TestDamageIsFetchedAgain: with other voters, one with a damaged log or without a log gets all of it from them.
func TestDamageIsFetchedAgain(t *testing.T) {
	base := t.TempDir()
	g := newGroup(t, 3, Options{Logger: testLogger(t), TrailingLogs: 5})
	g.startAll(base)
	n := 0
	for range 100 {
		g.proposeSomewhere(fmt.Sprint("command ", n))
		n++
	}
	for name, damage := range map[string]func(path string){
		"an entry": func(path string) {
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			err = db.Update(func(tx *bbolt.Tx) error {
				b := tx.Bucket([]byte(bucketLogs))
				k := append([]byte{}, before(b, indexKey(sealIndex))...)
				v := append([]byte{}, b.Get(k)...)
				v[len(v)-1] ^= 1
				return b.Put(k, v)
			})
			if err := errors.Join(err, db.Close()); err != nil {
				t.Fatal(err)
			}
		},
		"the end": func(path string) {
			if err := os.Truncate(path, 2*4096+100); err != nil {
				t.Fatal(err)
			}
		},
		"the head": func(path string) { flip(t, path, 30); flip(t, path, 4096+30) },
	} {
		m := g.members["c2"]
		if err := errors.Join(m.Snapshot(), m.Close()); err != nil {
			t.Fatal(err)
		}
		delete(g.members, "c2")
		dir := filepath.Join(base, "c2")
		damage(filepath.Join(dir, logFileName))
		g.start(m.peer, dir)
		g.proposeSomewhere(fmt.Sprint("after ", name))
		n++
		g.agree(n)
		g.joined()
	}
	aside, err := filepath.Glob(filepath.Join(base, "c2", "damaged-*", logFileName))
	if err != nil || len(aside) != damagedKept {
		t.Errorf("damaged logs that are kept: %v, %v", aside, err)
	}
}

// sealIn gives a copy of the seal as it is stored, and where it begins in it.
func sealIn(tx *bbolt.Tx) (v []byte, at int) {
	v = append(v, tx.Bucket([]byte(bucketLogs)).Get(indexKey(sealIndex))...)
	at = bytes.IndexByte(v, sealFormat)
	for ; v[at+1] != 0; at++ { // the first index, which is small
	}
	return v, at
}

// TestCrashBetweenSealAndRemoval: entries that the seal doesn't count any more, since a crash came before they were
// removed, are gone after the next start, and the log goes on.
func TestCrashBetweenSealAndRemoval(t *testing.T) {
	path := filepath.Join(t.TempDir(), logFileName)
	if err := createLog(path, votes{}, false); err != nil {
		t.Fatal(err)
	}
	l := opened(t, path)
	const n, first, last = 1000, 301, 700
	for i := uint64(1); i <= n; i++ {
		if err := l.StoreLog(&raft.Log{Index: i, Term: 1, Data: fmt.Append(nil, "entry ", i)}); err != nil {
			t.Fatal(err)
		}
	}
	s := seal{first: first, last: last}
	var err error
	if _, s.sum, err = l.read(last, new(raft.Log)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.store(s), l.Close()); err != nil { // the crash
		t.Fatal(err)
	}
	l = opened(t, path)
	for i := uint64(1); i <= n; i++ {
		err := l.db.GetLog(i, new(raft.Log))
		if counted := i >= first && i <= last; counted && err != nil || !counted && !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("entry %d: %v", i, err)
		}
	}
	if err := errors.Join(l.StoreLog(&raft.Log{Index: last + 1, Term: 2}), l.Close()); err != nil {
		t.Fatal(err)
	}
	if f, err := lockAndCheck(path); err != nil || f.stale || f.seal.first != first || f.seal.last != last+1 {
		t.Errorf("in the end: %+v, %v", f, err)
	}
}

// TestDamageWhileRunning: a read that meets damage is an error that says so, and the owner is told.
func TestDamageWhileRunning(t *testing.T) {
	path := filepath.Join(t.TempDir(), logFileName)
	if err := createLog(path, votes{}, false); err != nil {
		t.Fatal(err)
	}
	var told error
	l, err := openLog(path, found{seal: seal{first: 1}}, testLogger(t), func(err error) { told = err })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.StoreLog(&raft.Log{Index: 1, Term: 1, Data: bytes.Repeat([]byte("find me "), 100)}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; ; at += 8 { // everywhere
		i := bytes.Index(b[at:], []byte("find me "))
		if i < 0 {
			break
		}
		at += i
		if _, err := f.WriteAt([]byte("fond"), int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.GetLog(1, &raft.Log{}); !errors.Is(err, errDamaged) || told == nil ||
		!strings.Contains(err.Error(), "entry 1 of the raft log is damaged: its checksum is wrong") {
		t.Errorf("read: %v, told: %v", err, told)
	}
	// The file shrinks under the mapping: no SIGBUS.
	if err := errors.Join(f.Truncate(8192), f.Close()); err != nil {
		t.Fatal(err)
	}
	if err := l.GetLog(1, &raft.Log{}); !errors.Is(err, errDamaged) {
		t.Errorf("after a truncation: %v", err)
	}
}
