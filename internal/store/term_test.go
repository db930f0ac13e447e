package store

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"gbatch/internal/boltcheck"
)

// opened opens a log, and closes it at the test's end.
func opened(t *testing.T, path string) *logFile {
	t.Helper()
	f, err := lockAndCheck(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := openLog(path, f, testLogger(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // a test may have closed it
	return l
}

// again opens a log as after a crash.
func again(t *testing.T, l *logFile) *logFile {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return opened(t, filepath.Join(l.dir, logFileName))
}

// commits is how often a log has been written to.
func commits(t *testing.T, l *logFile) uint64 {
	t.Helper()
	f, err := os.Open(filepath.Join(l.dir, logFileName))
	if err != nil {
		t.Fatal(err)
	}
	head, err := boltcheck.File(f, func(string, []byte, []byte) error { return nil })
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return uint64(head.Commits)
}

// tell does what raft does when it sees a term, and with a candidate what it does when it votes.
func tell(t *testing.T, l *logFile, term uint64, candidate string) {
	t.Helper()
	err := l.SetUint64([]byte(keyTerm), term)
	if candidate != "" {
		err = errors.Join(err, l.SetUint64([]byte(keyVoteTerm), term), l.Set([]byte(keyCandidate), []byte(candidate)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func wantVotes(t *testing.T, l *logFile, want votes) {
	t.Helper()
	if got, err := votesIn(l); err != nil || got != want {
		t.Errorf("term and vote are %+v (%v), want %+v", got, err, want)
	}
}

// TestTermAndVote: a vote is one write, its term included. A term without one is none, and goes to the disk with the
// next entry. After a crash the log has the vote of the highest term in which one was given.
func TestTermAndVote(t *testing.T) {
	path := filepath.Join(t.TempDir(), logFileName)
	if err := createLog(path, votes{}, false); err != nil {
		t.Fatal(err)
	}
	l := opened(t, path)
	wantVotes(t, l, votes{})
	before := commits(t, l)
	tell(t, l, 4, "")
	wantVotes(t, l, votes{term: 4})
	if n := commits(t, l); n != before {
		t.Errorf("a term was written %d times", n-before)
	}
	tell(t, l, 5, "ctl2")
	if n := commits(t, l); n != before+1 {
		t.Errorf("a vote and its term were %d writes", n-before)
	}
	l = again(t, l)
	wantVotes(t, l, votes{5, 5, "ctl2"})

	tell(t, l, 9, "") // forgotten by a crash, as nothing follows
	l = again(t, l)
	wantVotes(t, l, votes{5, 5, "ctl2"})

	tell(t, l, 9, "")
	if err := l.StoreLog(&raft.Log{Index: 1, Term: 9, Data: []byte("entry")}); err != nil {
		t.Fatal(err)
	}
	l = again(t, l)
	wantVotes(t, l, votes{9, 5, "ctl2"})
	tell(t, l, 10, "")
	if err := l.snapshotDone(1); err != nil {
		t.Fatal(err)
	}
	wantVotes(t, again(t, l), votes{10, 5, "ctl2"})
}

// TestVoteThatCannotBeWritten: raft is told so, and does not find a vote that it did not give. Terms need no disk.
func TestVoteThatCannotBeWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), logFileName)
	if err := createLog(path, votes{}, false); err != nil {
		t.Fatal(err)
	}
	l := opened(t, path)
	tell(t, l, 5, "ctl2")
	if err := l.Close(); err != nil { // now all writes fail
		t.Fatal(err)
	}
	tell(t, l, 6, "")
	if err := l.SetUint64([]byte(keyVoteTerm), 6); err != nil {
		t.Fatal(err)
	}
	if err := l.Set([]byte(keyCandidate), []byte("ctl3")); err == nil {
		t.Error("a vote was taken that could not be written")
	}
	wantVotes(t, l, votes{6, 5, "ctl2"})
	if err := l.Set([]byte(keyCandidate), make([]byte, maxCandidate+1)); err == nil {
		t.Error("a candidate without a bound was taken")
	}
	if err := l.SetUint64([]byte("another"), 1); err == nil {
		t.Error("a number that is not kept was taken")
	}
}

// TestLogOfNewerVersion: it is refused and stays, also where other controllers could replace it: all of them may have
// gone back to this version.
func TestLogOfNewerVersion(t *testing.T) {
	dir := t.TempDir()
	err := errors.Join(makeDir(filepath.Join(dir, snapshotsDir)),
		createLog(filepath.Join(dir, logFileName), votes{term: 3}, false))
	if err != nil {
		t.Fatal(err)
	}
	l := opened(t, filepath.Join(dir, logFileName))
	e := l.seal.entry()
	e.Data[0] = sealFormat + 1
	e.Data = binary.BigEndian.AppendUint32(e.Data[:len(e.Data)-4], crc(e.Data[:len(e.Data)-4]))
	if err := errors.Join(l.db.StoreLogs([]*raft.Log{e}), l.Close()); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		_, err := checkDisk(Options{Dir: dir, Peers: make([]Peer, n+1), Logger: testLogger(t)})
		if err == nil || !strings.Contains(err.Error(), "written by a newer version of gctld; this one knows 3. Start that") {
			t.Errorf("%d controllers: %v", n+1, err)
		}
		if _, err := os.Stat(filepath.Join(dir, logFileName)); err != nil {
			t.Errorf("%d controllers: the log has gone: %v", n+1, err)
		}
	}
}

// TestVotesApart: a log of the format before, which had term and vote beside the entries, keeps both, and they move
// into the seal with the next write.
func TestVotesApart(t *testing.T) {
	path := filepath.Join(t.TempDir(), logFileName)
	db, err := openBolt(path, false)
	if err != nil {
		t.Fatal(err)
	}
	e, sum := witnessed(0, &raft.Log{Index: 1, Term: 7, Data: []byte("entry")})
	b := []byte{sealFormatApart}
	for _, n := range []uint64{1, 1, 0} { // first, last, snapshot
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = binary.BigEndian.AppendUint32(b, sum)
	b = binary.BigEndian.AppendUint32(b, crc(b))
	err = db.StoreLogs([]*raft.Log{e, {Index: sealIndex, Data: b}})
	for k, v := range map[string][]byte{keyTerm: indexKey(8), keyVoteTerm: indexKey(7), keyCandidate: []byte("ctl2")} {
		err = errors.Join(err, db.Set([]byte(k), sumPair([]byte(k), v)))
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	l := opened(t, path)
	wantVotes(t, l, votes{8, 7, "ctl2"})
	if err := l.StoreLog(&raft.Log{Index: 2, Term: 8}); err != nil {
		t.Fatal(err)
	}
	wantVotes(t, again(t, l), votes{8, 7, "ctl2"})
}
