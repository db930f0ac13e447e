package store

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// TestAdopt: a log that raft-boltdb wrote, with what old versions left before a snapshot, has the same entries, term
// and vote afterwards, and a checksum for each; a crash in the middle of the first attempt changes nothing.
func TestAdopt(t *testing.T) {
	path := filepath.Join(t.TempDir(), logFileName)
	old, err := raftboltdb.New(raftboltdb.Options{Path: path, MsgpackUseNewTimeFormat: true})
	if err != nil {
		t.Fatal(err)
	}
	const first, last = 100, 1300
	at := time.Unix(1_700_000_000, 123_456_789)
	var want []*raft.Log
	for i := uint64(first); i <= last; i++ {
		want = append(want, &raft.Log{Index: i, Term: 1 + i/500, Type: raft.LogCommand, Extensions: []byte{byte(i)},
			Data: fmt.Append(nil, "entry ", i), AppendedAt: at})
	}
	stale := []*raft.Log{{Index: 3, Term: 1}, {Index: 4, Term: 1}}
	for _, list := range [][]*raft.Log{stale, want} {
		if err := old.StoreLogs(list); err != nil {
			t.Fatal(err)
		}
	}
	for key, v := range map[string][]byte{"CurrentTerm": indexKey(7), "LastVoteTerm": indexKey(6),
		"LastVoteCand": []byte("ctl2")} {
		if err := old.Set([]byte(key), v); err != nil {
			t.Fatal(err)
		}
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+adoptSuffix, []byte("half a file"), 0o600); err != nil {
		t.Fatal(err)
	}

	f, err := lockAndCheck(path)
	if err != nil || !f.old || f.seal.first != first || f.seal.last != last {
		t.Fatalf("the old log: %+v, %v", f, err)
	}
	if f, err = adopt(path, f.seal.first, f.seal.last, testLogger(t)); err != nil {
		t.Fatal(err)
	}
	if f.old || f.stale || f.seal.first != first || f.seal.last != last {
		t.Fatalf("the new log: %+v", f)
	}
	l, err := openLog(path, f.seal, false, testLogger(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, w := range want {
		var e raft.Log
		if err := l.GetLog(w.Index, &e); err != nil {
			t.Fatal(err)
		}
		if e.Term != w.Term || e.Type != w.Type || !bytes.Equal(e.Data, w.Data) ||
			!bytes.Equal(e.Extensions, w.Extensions) || !e.AppendedAt.Equal(at) {
			t.Fatalf("entry %d is %+v, was %+v", w.Index, e, *w)
		}
	}
	if term, err := l.GetUint64([]byte("CurrentTerm")); err != nil || term != 7 {
		t.Errorf("the term is %d, %v", term, err)
	}
	if vote, err := l.Get([]byte("LastVoteCand")); err != nil || string(vote) != "ctl2" {
		t.Errorf("the vote is %q, %v", vote, err)
	}
	if left, err := filepath.Glob(path + ".*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
