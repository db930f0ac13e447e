package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// TestAdopt: a log that an earlier version wrote, with what old versions left before a snapshot, has the same entries,
// term and vote afterwards, and a checksum for each; a crash in the middle of the first attempt changes nothing.
func TestAdopt(t *testing.T) {
	const first, last = 100, 1300
	at := time.Unix(1_700_000_000, 123_456_789)
	var want []*raft.Log
	for i := uint64(first); i <= last; i++ {
		want = append(want, &raft.Log{Index: i, Term: 1 + i/500, Type: raft.LogCommand, Extensions: []byte{byte(i)},
			Data: fmt.Append(nil, "entry ", i), AppendedAt: at})
	}
	conf := map[string][]byte{"CurrentTerm": indexKey(7), "LastVoteTerm": indexKey(6), "LastVoteCand": []byte("ctl2")}
	for name, write := range map[string]func(*testing.T, string, []*raft.Log, map[string][]byte){
		"without checksums": writeUnsealed, "November 2026": writeFormer,
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), logFileName)
			write(t, path, want, conf)
			if err := os.WriteFile(path+adoptSuffix, []byte("half a file"), 0o600); err != nil {
				t.Fatal(err)
			}
			adopted(t, path, want, at)
		})
	}
}

// writeUnsealed writes a log as versions before checksums did.
func writeUnsealed(t *testing.T, path string, es []*raft.Log, conf map[string][]byte) {
	t.Helper()
	old, err := openBolt(path, false)
	if err != nil {
		t.Fatal(err)
	}
	stale := []*raft.Log{{Index: 3, Term: 1}, {Index: 4, Term: 1}}
	err = errors.Join(old.StoreLogs(stale), old.StoreLogs(es))
	for k, v := range conf {
		err = errors.Join(err, old.Set([]byte(k), v))
	}
	if err := errors.Join(err, old.Close()); err != nil {
		t.Fatal(err)
	}
}

// writeFormer writes a log in the format of formerLog.
func writeFormer(t *testing.T, path string, es []*raft.Log, conf map[string][]byte) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		logs, err := tx.CreateBucket([]byte(bucketLogs))
		if err != nil {
			return err
		}
		var sum uint32
		for _, e := range es {
			b := binary.BigEndian.AppendUint32(nil, sum)
			b = append(binary.AppendUvarint(b, e.Term), byte(e.Type))
			b = binary.AppendVarint(b, e.AppendedAt.UnixNano())
			b = append(binary.AppendUvarint(b, uint64(len(e.Extensions))), e.Extensions...)
			b = append(b, e.Data...)
			sum = formerSum(e.Index, b)
			b = append(binary.BigEndian.AppendUint32([]byte{formerMark, 1}, sum), b...)
			if err := logs.Put(indexKey(e.Index), b); err != nil {
				return err
			}
		}
		kept, err := tx.CreateBucket([]byte(bucketConf))
		if err != nil {
			return err
		}
		for k, v := range conf {
			err = errors.Join(err, kept.Put([]byte(k), v))
		}
		b := append([]byte{1}, indexKey(es[0].Index)...)
		b = append(append(b, indexKey(es[len(es)-1].Index)...), indexKey(0)...)
		b = append(b, make([]byte, 8)...)
		return errors.Join(err, kept.Put([]byte(formerSeal), binary.BigEndian.AppendUint32(b, crc(b))))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// adopted takes an old log over and checks what it has then.
func adopted(t *testing.T, path string, want []*raft.Log, at time.Time) {
	t.Helper()
	first, last := want[0].Index, want[len(want)-1].Index
	f, err := lockAndCheck(path)
	if err != nil || !f.old || f.seal.first != first || f.seal.last != last {
		t.Fatalf("the old log: %+v, %v", f, err)
	}
	if f, err = adopt(path, f, testLogger(t)); err != nil {
		t.Fatal(err)
	}
	if f.old || f.stale || f.seal.first != first || f.seal.last != last {
		t.Fatalf("the new log: %+v", f)
	}
	l, err := openLog(path, f, testLogger(t), nil)
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
