package budget

import (
	"errors"
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
