package noded

import (
	"bytes"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func openTest(t testing.TB, dir string) *spool {
	t.Helper()
	s, err := openSpool(dir, quiet())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// commit writes the batch.
func commit(t *testing.T, s *spool) {
	t.Helper()
	s.commit()
	must(t, s.broken)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// same compares two memories by what they encode to, whatever the order of maps.
func same(t testing.TB, got, want *memory) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("after opening again:\n%+v\nbefore:\n%+v", got, want)
	}
}

// A reopened spool has the same content, whatever was written and however often it was compacted.
func TestSpoolRemembers(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	rnd := rand.New(rand.NewPCG(1, 2))
	must(t, s.add(recOpened, &opened{Incarnation: 3, BootID: "b", Node: "n1"}, true))
	seq := uint64(0)
	var keys []proto.Attempt
	for i := range 30000 {
		switch n := rnd.IntN(10); {
		case n < 4 || len(keys) == 0:
			key := proto.Attempt{Job: model.JobID(i + 1), Attempt: 1}
			keys = append(keys, key)
			must(t, s.add(recLaunch,
				&launched{Job: key.Job, Attempt: 1, UID: 1000, Groups: []uint32{1, 2}, StdErr: "/home/user/slurm-1.out",
					At: model.Time(i)}, true))
		case n < 8:
			key := keys[rnd.IntN(len(keys))]
			seq++
			kind := proto.ReportStarted
			if n > 5 {
				kind = proto.ReportEnded
			}
			must(t, s.add(recReport, &proto.Report{Seq: seq, Kind: kind, Job: key.Job, Attempt: 1, At: 5}, n > 5))
		case n < 9:
			var seqs []uint64
			for q := range s.mem.reports {
				if seqs = append(seqs, q, q); len(seqs) > 20 {
					break
				}
			}
			must(t, s.add(recAcked, &ackedSeqs{Seqs: seqs}, false))
		default:
			at := rnd.IntN(len(keys))
			must(t, s.add(recDrop, &proto.Attempt{Job: keys[at].Job, Attempt: 1}, false))
			keys = append(keys[:at], keys[at+1:]...)
		}
		if rnd.IntN(20) == 0 {
			s.sync = false // the test's disk is not the point
			commit(t, s)
		}
	}
	must(t, s.add(recEpoch, &leaderEpoch{Epoch: 9, Instance: 8}, true))
	commit(t, s)
	st, err := os.Stat(s.path())
	must(t, err)
	if st.Size() != s.size {
		t.Errorf("size %d, file %d", s.size, st.Size())
	}
	must(t, s.close())
	again := openTest(t, dir)
	defer again.close()
	same(t, &again.mem, &s.mem)
}

func TestSpoolStaysSmall(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	defer s.close()
	largest := int64(0)
	for i := range 40000 {
		key := proto.Attempt{Job: model.JobID(i + 1), Attempt: 1}
		must(t, s.add(recLaunch, &launched{Job: key.Job, Attempt: 1, StdErr: strings.Repeat("x", 60)}, false))
		must(t, s.add(recReport, &proto.Report{Seq: uint64(i + 1), Kind: proto.ReportEnded, Job: key.Job, Attempt: 1}, false))
		must(t, s.add(recAcked, &ackedSeqs{Seqs: []uint64{uint64(i + 1)}}, false))
		commit(t, s)
		largest = max(largest, s.size)
	}
	if largest > compactAt+4096 {
		t.Errorf("the spool of jobs that are over grew to %d bytes", largest)
	}
	if len(s.mem.attempts) != 0 || len(s.mem.reports) != 0 {
		t.Errorf("%d attempts, %d reports are left", len(s.mem.attempts), len(s.mem.reports))
	}
}

// Whatever a power loss leaves of the last write, the whole records are kept and the spool works.
func TestSpoolTornTail(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	ends := map[int64]memory{s.size: clone(s.mem)}
	for i := range 5 {
		must(t, s.add(recLaunch, &launched{Job: model.JobID(i + 1), Attempt: 1, StdErr: "/x"}, true))
		commit(t, s)
		ends[s.size] = clone(s.mem)
	}
	must(t, s.close())
	whole, err := os.ReadFile(s.path())
	must(t, err)
	for cut := 0; cut <= len(whole); cut++ {
		for _, junk := range []string{"", "\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8\xf7\xf6",
			"junk that is no record, and long enough to look like one"} {
			must(t, os.WriteFile(s.path(), append(bytes.Clone(whole[:cut]), junk...), 0o600))
			again, err := openSpool(dir, quiet())
			if err != nil {
				if cut < len(spoolMagic) && junk != "" {
					continue // it is no spool
				}
				t.Fatalf("cut at %d + %q: %v", cut, junk, err)
			}
			want := memory{}
			for at := int64(cut); at >= 0; at-- {
				if m, ok := ends[at]; ok {
					want = m
					break
				}
			}
			if want.attempts == nil {
				want = newMemory()
			}
			if len(again.mem.attempts) != len(want.attempts) {
				t.Errorf("cut at %d + %q: %d attempts, want %d", cut, junk, len(again.mem.attempts), len(want.attempts))
			}
			must(t, again.add(recLaunch, &launched{Job: 77, Attempt: 1}, false))
			must(t, again.close())
			third := openTest(t, dir)
			if third.mem.attempts[proto.Attempt{Job: 77, Attempt: 1}] == nil {
				t.Errorf("cut at %d + %q: what was written afterwards is lost", cut, junk)
			}
			must(t, third.close())
		}
	}
}

func clone(m memory) memory {
	c := newMemory()
	for k, v := range m.attempts {
		c.attempts[k] = v
	}
	return c
}

func TestSpoolRefuses(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	if _, err := openSpool(dir, quiet()); err == nil || !strings.Contains(err.Error(), "another gnoded uses the spool") {
		t.Errorf("a second one: %v", err)
	}
	must(t, s.close())
	for name, content := range map[string]string{
		"it begins with":            "something else entirely, written by hand",
		"a later version of gbatch": spoolMagic + string(mustRecord(t, 99)),
	} {
		must(t, os.WriteFile(filepath.Join(dir, spoolFile), []byte(content), 0o600))
		if _, err := openSpool(dir, quiet()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func mustRecord(t testing.TB, kind recordKind) []byte {
	b, err := appendRecord(nil, kind, &proto.Attempt{Job: 1}, maxRecord)
	must(t, err)
	return b
}

func FuzzSpool(f *testing.F) {
	rec := mustRecord(f, recDrop)
	f.Add([]byte(spoolMagic))
	f.Add(append([]byte(spoolMagic), rec...))
	f.Add(append([]byte(spoolMagic), rec[:5]...))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, spoolFile), content, 0o600))
		s, err := openSpool(dir, quiet())
		if err != nil {
			return
		}
		before := s.mem
		must(t, s.close())
		again := openTest(t, dir)
		same(t, &again.mem, &before)
		must(t, again.close())
	})
}

func TestReadRecordLimits(t *testing.T) {
	for _, head := range []string{"\x00\x00\x00\x00\x00\x00\x00\x00", "\xff\xff\xff\xff\x00\x00\x00\x00", "\x01"} {
		if _, err := readRecord(strings.NewReader(head), nil); err == nil || err == io.EOF {
			t.Errorf("%q: %v", head, err)
		}
	}
}

// TestSpoolBroken: what is added while the journal can't be written is in memory, and on disk once that can be done.
func TestSpoolBroken(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	add := func(id model.JobID) {
		t.Helper()
		must(t, s.add(recLaunch, &launched{Job: id, Attempt: 1, UID: 7}, true))
		s.commit()
	}
	add(1)
	must(t, s.broken)
	must(t, s.f.Close()) // writing fails from here
	add(2)
	if s.broken == nil {
		t.Fatal("a write to a closed file went well")
	}
	add(3)
	must(t, os.Mkdir(filepath.Join(dir, spoolFile+".new"), 0o700))
	if s.mend() == nil || s.broken == nil {
		t.Fatal("it was mended over a directory")
	}
	must(t, os.Remove(filepath.Join(dir, spoolFile+".new")))
	must(t, s.add(recLaunch, &launched{Job: 4, Attempt: 1, UID: 7}, true)) // in the batch that mends
	must(t, s.mend())
	commit(t, s)
	add(5)
	must(t, s.broken)
	mem := s.mem
	must(t, s.close())
	again := openTest(t, dir)
	defer func() { must(t, again.close()) }()
	same(t, &again.mem, &mem)
	if len(again.mem.attempts) != 5 {
		t.Errorf("%d attempts of 5", len(again.mem.attempts))
	}
}
