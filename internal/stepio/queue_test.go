package stepio

import (
	"bytes"
	"io"
	"os"
	"testing"
)

// TestQueue: what a reader does not take waits for it, up to a bound; all of it comes, and its end.
func TestQueue(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	q := NewQueue(in)
	text := bytes.Repeat([]byte("0123456789abcdef"), QueueBytes/16)
	if n, err := q.Write(text); err != nil || n != len(text) { // nobody reads
		t.Fatal(n, err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Write(text); err == nil {
		t.Error("something is queued after the end")
	}
	got, err := io.ReadAll(out)
	if err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d of %d bytes came: %v", len(got), len(text), err)
	}

	// A reader that has gone is told.
	if out, in, err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	q = NewQueue(in)
	for err == nil {
		_, err = q.Write(text)
	}
}
