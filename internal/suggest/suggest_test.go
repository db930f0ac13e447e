package suggest

import (
	"slices"
	"strings"
	"testing"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"time", "time", 0}, {"TIME", "time", 0},
		{"tiem", "time", 1}, {"itme", "time", 1}, {"tme", "time", 1}, {"timee", "time", 1}, {"tine", "time", 1},
		{"SBTACH", "SBATCH", 1}, {"SBATC", "SBATCH", 1}, {"ca", "abc", 3}, {"kitten", "sitting", 3},
		{"größe", "grösse", 2}, {"é", "e", 1},
		{strings.Repeat("a", MaxRunes), strings.Repeat("a", MaxRunes), 0},
		{strings.Repeat("a", MaxRunes+1), "a", MaxRunes + 1},
	} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
		if got := Distance(c.b, c.a); got != c.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", c.b, c.a, got, c.want)
		}
	}
}

func TestNearest(t *testing.T) {
	options := []string{"time", "time-min", "tmp", "nodes", "nodelist", "no-kill", "ntasks", "partition", "gpus",
		"gpus-per-node", "mem", "mem-per-cpu"}
	for _, c := range []struct {
		word string
		want []string
	}{
		{"tiem", []string{"time"}},
		{"node", []string{"nodes", "nodelist"}},
		{"parition", []string{"partition"}},
		{"gpus-per-nodes", []string{"gpus-per-node", "gpus"}},
		{"gpu", []string{"gpus", "gpus-per-node"}},
		{"MEM", []string{"mem", "mem-per-cpu"}},
		{"x", nil},
		{"", nil},
		{"zzzzzz", nil},
		{strings.Repeat("mem", 100), nil},
	} {
		if got := Nearest(c.word, options); !slices.Equal(got, c.want) {
			t.Errorf("Nearest(%q) = %q, want %q", c.word, got, c.want)
		}
	}
	if got := Nearest("ab", []string{"ab", "ab", "ac", "ad", "ae"}); !slices.Equal(got, []string{"ab", "ac", "ad"}) {
		t.Errorf("limit and duplicates: %q", got)
	}
}

func TestQuestion(t *testing.T) {
	for _, c := range []struct {
		near []string
		want string
	}{
		{nil, ""},
		{[]string{"a"}, "did you mean --a?"},
		{[]string{"a", "b"}, "did you mean --a or --b?"},
		{[]string{"a", "b", "c"}, "did you mean --a, --b or --c?"},
	} {
		if got := Question("--", c.near); got != c.want {
			t.Errorf("%q: %q, want %q", c.near, got, c.want)
		}
	}
}

func FuzzDistance(f *testing.F) {
	f.Add("time", "tiem")
	f.Add("", "\xff\xfe")
	f.Fuzz(func(t *testing.T, a, b string) {
		d := Distance(a, b)
		if d != Distance(b, a) {
			t.Fatalf("not symmetric for %q, %q", a, b)
		}
		if d < 0 || d > MaxRunes+1 {
			t.Fatalf("distance %d of %q, %q", d, a, b)
		}
		if got := Nearest(a, []string{b}); len(got) > 1 {
			t.Fatalf("%q", got)
		}
	})
}

func BenchmarkNearest(b *testing.B) {
	names := make([]string, 130)
	for i := range names {
		names[i] = strings.Repeat(string(rune('a'+i%26)), 4+i%12)
	}
	for b.Loop() {
		Nearest("gpus-per-nodes", names)
	}
}
