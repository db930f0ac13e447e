package deadletter

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestBoxIsBounded: what is kept is bounded in number and bytes, survives, and a person makes room by removing files.
func TestBoxIsBounded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dead")
	b := &Box{Dir: dir}
	if n, _, err := b.Look(); n != 0 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if err := b.Put("large", make([]byte, MaxBytes+1)); !errors.Is(err, ErrFull) {
		t.Errorf("a record of %d bytes: %v", MaxBytes+1, err)
	}
	for i := range MaxLetters {
		if err := b.Put(fmt.Sprint(i), []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Put("more", nil); !errors.Is(err, ErrFull) {
		t.Errorf("one more: %v", err)
	}
	if n, bytes, err := (&Box{Dir: dir}).Look(); n != MaxLetters || bytes != 2*MaxLetters || err != nil {
		t.Errorf("%d with %d bytes, %v", n, bytes, err)
	}
	if err := os.Remove(filepath.Join(dir, "7.json")); err != nil {
		t.Fatal(err)
	}
	if err := b.Put("more", nil); err != nil {
		t.Error(err)
	}
}
