package budget

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// TestNobodyTakesAll: one user gets their part; when several have theirs, the next one still finds something.
func TestNobodyTakesAll(t *testing.T) {
	b := New[uint32](1000, 250, Root)
	fill := func(uid uint32) (n int64) {
		for b.Take(uid, 1) == nil {
			n++
		}
		return n
	}
	if n := fill(1); n != 250 {
		t.Errorf("one user gets %d of 1000, want a quarter", n)
	}
	var over *Over
	if err := b.Take(1, 1); !errors.As(err, &over) || !over.Own || over.Has != 250 {
		t.Errorf("beyond the part: %v", err)
	}
	for uid := uint32(2); uid < 8; uid++ {
		if n := fill(uid); n == 0 {
			t.Errorf("user %d finds nothing beside the others", uid)
		}
	}
	if err := b.Take(8, 1000); !errors.As(err, &over) {
		t.Errorf("more than all: %v", err)
	}
	if err := b.Take(0, 1); err != nil {
		t.Errorf("root: %v", err)
	}
}

// TestGivenBack: what is given back is there again, and nobody who has nothing is remembered.
func TestGivenBack(t *testing.T) {
	b := New[string](100, 50, nil)
	for range 10 {
		if err := b.Take("n1", 50); err != nil {
			t.Fatal(err)
		}
		if err := b.Take("n1", 1); err == nil {
			t.Fatal("more than the part")
		}
		b.Give("n1", 20)
		b.Give("n1", 30)
	}
	if own, all := b.Used("n1"); own != 0 || all != 0 || len(b.by) != 0 {
		t.Errorf("%d and %d are in use, %d are remembered", own, all, len(b.by))
	}
}

// TestGrowing: a length that is only claimed takes no memory, and what is refused is not read.
func TestGrowing(t *testing.T) {
	taken := int64(0)
	take := func(n int64) error {
		if taken+n > 1<<20 {
			return &Over{}
		}
		taken += n
		return nil
	}
	if _, err := ReadGrowing(strings.NewReader("abc"), nil, 1<<30, take); err != io.ErrUnexpectedEOF || taken > 64<<10 {
		t.Errorf("three bytes of a claimed GiB took %d bytes: %v", taken, err)
	}
	taken = 0
	text := strings.Repeat("0123456789", 100000)
	if got, err := ReadGrowing(strings.NewReader(text), nil, len(text), take); err != nil || string(got) != text ||
		taken != int64(len(text)) {
		t.Errorf("%d of %d bytes, %d taken: %v", len(got), len(text), taken, err)
	}
	var over *Over
	if _, err := ReadGrowing(strings.NewReader(text+text), nil, 2*len(text), take); !errors.As(err, &over) {
		t.Errorf("beyond the budget: %v", err)
	}
}
