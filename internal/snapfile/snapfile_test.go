package snapfile

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func write(t *testing.T, h Header, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, h)
	if err != nil {
		t.Fatal(err)
	}
	for part := content; len(part) > 0; part = part[min(len(part), 777):] {
		if _, err := w.Write(part[:min(len(part), 777)]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(b []byte) ([]byte, error) {
	r, err := NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// TestRoundTrip: what was written is read, whatever its size.
func TestRoundTrip(t *testing.T) {
	for _, size := range []int{0, 1, maxBlock - 1, maxBlock, maxBlock + 1, 3*maxBlock + 5} {
		content := bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7}, size/7+1)[:size]
		b := write(t, Header{Cluster: "c", Index: 7}, content)
		r, err := NewReader(bytes.NewReader(b))
		if err != nil || r.Header.Cluster != "c" || r.Header.Index != 7 {
			t.Fatalf("%d bytes: %+v, %v", size, r, err)
		}
		if n, err := r.Check(); err != nil || n != int64(len(b)) {
			t.Errorf("%d bytes: %d of %d checked: %v", size, n, len(b), err)
		}
		if got, err := read(b); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%d bytes: %d read: %v", size, len(got), err)
		}
	}
}

// TestDamageIsFound: each changed byte, each lost end and each addition is an error that says where.
func TestDamageIsFound(t *testing.T) {
	whole := write(t, Header{Cluster: "c"}, bytes.Repeat([]byte("facts "), 500))
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 0x40
		_, err := read(b)
		if err == nil {
			t.Fatalf("byte %d of %d was changed, and nothing is said", i, len(whole))
		}
		if _, err := read(whole[:i]); err == nil {
			t.Fatalf("the file ends after %d of %d bytes, and nothing is said", i, len(whole))
		}
	}
	_, err := read(append(bytes.Clone(whole), 'x'))
	if err == nil || !strings.Contains(err.Error(), "bytes follow after its end") {
		t.Errorf("a byte more: %v", err)
	}
	if _, err := read([]byte("PK\x03\x04")); !errors.Is(err, ErrNot) {
		t.Errorf("another file: %v", err)
	}
}

// FuzzReader: nothing that is read makes it panic or take much memory.
func FuzzReader(f *testing.F) {
	f.Add([]byte("gbatch-snapshot 1\n\x00\x00\x00\x02{}\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := read(b); err == nil && !bytes.HasPrefix(b, []byte(magic)) {
			t.Error("something else was read as a snapshot")
		}
	})
}
