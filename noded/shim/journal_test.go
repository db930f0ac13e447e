//go:build linux && (amd64 || arm64)

package shim

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestJournalShrinks: the file does not grow with the number of past launches.
func TestJournalShrinks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _, _, err := openJournal(path, "boot", testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	rewrites := 0
	for i := range uint32(20000) {
		k := Key{JobID: i}
		ev := Event{Kind: Exited, Key: k, Text: "some text to fill the file a little faster than reality does"}
		if err := j.add(&record{kind: recIntent, key: k}, &record{kind: recDone, event: ev},
			&record{kind: recAcked, keys: []Key{k}}); err != nil {
			t.Fatal(err)
		}
		if j.wantsRewrite() {
			rewrites++
			if err := j.rewrite("boot", []remembered{{key: k, event: ev}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	fi, err := os.Stat(path)
	if err != nil || fi.Size() > 2*compactBytes || rewrites == 0 {
		t.Errorf("%d bytes after %d rewrites (%v)", fi.Size(), rewrites, err)
	}
}

// TestNotAJournal: gshim sets a foreign file aside with a warning and starts.
func TestNotAJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	for _, text := range []string{"", "x", "this is something else entirely\n"} {
		write(t, path, text)
		j, _, known, err := openJournal(path, "boot", testLog(t))
		if err != nil || len(known) != 0 {
			t.Fatalf("%q: %v, %d launches", text, err, len(known))
		}
		if err := j.close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSlowClient: a client that does not read is disconnected, and its queue is bounded.
func TestSlowClient(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	c := newConn(near)
	ended := make(chan struct{})
	go func() { c.writeLoop(); close(ended) }()
	ev := Event{Kind: Exited, Text: string(make([]byte, 10000))}
	for range 2 * maxOutBytes / 10000 {
		c.events(0, []Event{ev})
	}
	<-ended
	if len(c.out) > maxOutBytes+20000 {
		t.Errorf("%d bytes kept", len(c.out))
	}
	if _, err := io.Copy(io.Discard, far); err != nil {
		t.Error(err)
	}
}

// frameRecord puts a payload into a record.
func frameRecord(payload []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(payload, castagnoli))
	return append(b, payload...)
}
