package model

import (
	"errors"
	"strings"
	"testing"
)

func TestParseFeatures(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"a", "a"}, {" a & b ", "a&b"}, {"a|b", "a|b"}, {"a|b&c", "a|b&c"}, {"a&b|c", "a&b|c"}, {"a|(b&c)", "a|(b&c)"},
		{"!a", "!a"}, {"!(a|b)&c", "!(a|b)&c"}, {"!!a", "!!a"}, {"[r1|r2]", "[r1|r2]"}, {"ib&[r1|r2&x]", "ib&[r1|(r2&x)]"},
		{"[r1|r2]&[x|y]", "[(r1&x)|(r1&y)|(r2&x)|(r2&y)]"}, {"a*2&b*1", "a*2&b*1"}, {"[a*2&b*4]", "a*2&b*4"},
		{"ib&(a|b)*3", "ib&(a|b)*3"},
		{"(a|b)&c*2", "(a|b)&c*2"}, {"a|b&c*2", "(a|b)&c*2"}, {"((a))", "a"}, {"", ""}, {"  ", ""},
		{"a.b-c_1:d=e", "a.b-c_1:d=e"}, {"a,b", "a&b"},
	} {
		f, err := ParseFeatures(c.in)
		if err != nil || f.String() != c.want {
			t.Errorf("%q: %q, %v; want %q", c.in, f.String(), err, c.want)
		}
	}
	long := strings.Repeat("a|b&", MaxFeatureNames/2-1) + "a|b" // each sign is a level
	if f, err := ParseFeatures(long); err != nil || f.String() != long {
		t.Errorf("%v, %v; want %s", f, err, long)
	}
	for _, c := range []struct {
		in  string
		pos int
		why string
	}{
		{"a&", 3, "missing at the end"}, {"&a", 1, "missing before"}, {"a,", 3, "missing at the end"},
		{"a b", 3, "& or | is missing"},
		{"(a", 1, "never closed"},
		{"a&[b|c", 3, "never closed"}, {"a)", 2, "closes nothing"}, {"a*0", 2, "after *"}, {"a*x", 2, "after *"},
		{"[a|b]|c", 7, "joined with &"},
		{"c|[a|b]", 3, "joined with &"}, {"[a*2|b]", 6, "count too"}, {"[a|b*2]", 4, "counts are joined"},
		{"[a*2&b]", 6, "count too"}, {"([a|b])", 2, "brackets"},
		{"[[a]]", 2, "brackets"}, {"(a*2)", 3, "behind the parenthesis"}, {"a!b", 2, "& or |"},
		{strings.Repeat("!", 40) + "a", 18, "levels"},
		{strings.Repeat("a&", 70) + "a", 129, "more than 64"},
	} {
		_, err := ParseFeatures(c.in)
		var fe *FeatureError
		if !errors.As(err, &fe) || fe.Pos != c.pos || !strings.Contains(fe.Why, c.why) {
			t.Errorf("%q: %v; want position %d, %q", c.in, err, c.pos, c.why)
		}
	}
}

// FuzzParseFeatures: a parsed expression prints as text that parses to the same.
func FuzzParseFeatures(f *testing.F) {
	for _, s := range []string{"a", "a&b|c", "[a|b&c]&d", "a*2&(b|!c)*3", "!(a&b)", "[a*2&b*1]&[x|y]&z", "((", "a**"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		x, err := ParseFeatures(s)
		// a product of brackets has more names than there may be
		if err != nil || x == nil || len(x.Same) > 1 && len(x.Same)*len(s) > 256 {
			return
		}
		y, err := ParseFeatures(x.String())
		if err != nil {
			t.Fatalf("%q prints as %q, which is refused: %v", s, x, err)
		}
		for _, have := range [][]string{nil, {"a"}, {"a", "b"}, {"b", "c"}, {"x", "d", "a"}} {
			if x.Each.Met(have) != y.Each.Met(have) {
				t.Fatalf("%q and %q differ with %v", s, x, have)
			}
		}
		if x.String() != y.String() {
			t.Fatalf("%q prints as %q, and that as %q", s, x, y)
		}
	})
}
