package model

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestBitsAgainstMap compares every method with the same operation on a map of ints.
func TestBitsAgainstMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	type set map[int]bool
	random := func() (Bits, set) {
		var b Bits
		m := set{}
		for range rng.IntN(12) {
			i := rng.IntN(200)
			b, m[i] = b.With(i), true
		}
		return b, m
	}
	members := func(m set) []int {
		out := []int{}
		for i := range m {
			out = append(out, i)
		}
		slices.Sort(out)
		return out
	}
	list := func(b Bits) []int {
		out := []int{}
		b.Each(func(i int) bool { out = append(out, i); return true })
		return out
	}
	for range 5000 {
		a, ma := random()
		b, mb := random()
		or, minus, overlap, contains := set{}, set{}, false, true
		for i := range ma {
			or[i] = true
			if !mb[i] {
				minus[i] = true
			}
		}
		for i := range mb {
			or[i] = true
			overlap = overlap || ma[i]
			contains = contains && ma[i]
		}
		largest := -1
		if l := members(ma); len(l) > 0 {
			largest = l[len(l)-1]
		}
		switch {
		case !slices.Equal(list(a), members(ma)):
			t.Fatalf("%s lists %v, wanted %v", a, list(a), members(ma))
		case a.Count() != len(ma), a.Empty() != (len(ma) == 0), a.Max() != largest:
			t.Fatalf("%s: count %d, empty %v, max %d", a, a.Count(), a.Empty(), a.Max())
		case !slices.Equal(list(a.Or(b)), members(or)):
			t.Fatalf("%s or %s = %s", a, b, a.Or(b))
		case !slices.Equal(list(a.Minus(b)), members(minus)):
			t.Fatalf("%s minus %s = %s", a, b, a.Minus(b))
		case a.Overlaps(b) != overlap, a.Contains(b) != contains:
			t.Fatalf("%s and %s: overlaps %v, contains %v", a, b, a.Overlaps(b), a.Contains(b))
		}
		for n := 1; n <= len(ma)+1; n++ {
			first := a.First(n)
			if n > len(ma) {
				if first != nil {
					t.Fatalf("%s: the first %d are %s", a, n, first)
				}
			} else if !slices.Equal(list(first), members(ma)[:n]) {
				t.Fatalf("%s: the first %d are %s", a, n, first)
			}
		}
		for i := range 70 {
			if a.Has(i) != ma[i] {
				t.Fatalf("%s has %d: %v", a, i, a.Has(i))
			}
		}
	}
}

func TestBitsText(t *testing.T) {
	for _, c := range []struct {
		b    Bits
		want string
	}{
		{nil, ""}, {UpTo(0), ""}, {UpTo(-3), ""}, {UpTo(1), "0"}, {UpTo(64), "0-63"}, {UpTo(65), "0-64"},
		{Bits(nil).With(7).With(3), "3,7"}, {UpTo(4).With(7), "0-3,7"}, {UpTo(130).Minus(UpTo(127)), "127-129"},
	} {
		if got := c.b.String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	if (Bits{}).Has(-1) || UpTo(3).Has(-1) {
		t.Error("a negative index is a member")
	}
}

// TestBitsImmutable: methods don't change their receiver.
func TestBitsImmutable(t *testing.T) {
	b := UpTo(70)
	want := b.String()
	b.With(100)
	b.Or(UpTo(128))
	b.Minus(UpTo(64))
	b.First(3)
	if got := b.String(); got != want || strings.Contains(got, "100") {
		t.Errorf("%s became %s", want, got)
	}
}
