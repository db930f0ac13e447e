package certs

import (
	"strings"
	"testing"
)

// TestTokenFromInput: with --join - the token is a line of the standard input.
func TestTokenFromInput(t *testing.T) {
	for _, x := range []struct{ text, in, want, fault string }{
		{"TOKEN@host", "other@host\n", "TOKEN@host", ""},
		{"-", " TOKEN@host \nmore", "TOKEN@host", ""},
		{"-", "TOKEN@host", "TOKEN@host", ""},
		{"-", "\n", "", "no TOKEN@HOST"},
		{"-", "", "", "no TOKEN@HOST"},
	} {
		got, err := read(x.text, strings.NewReader(x.in))
		if got != x.want || (err == nil) != (x.fault == "") || err != nil && !strings.Contains(err.Error(), x.fault) {
			t.Errorf("--join %s with %q is %q, %v, want %q", x.text, x.in, got, err, x.want)
		}
	}
	if got, err := read("-", strings.NewReader(strings.Repeat("a", 1<<20))); err != nil || len(got) > maxJoin {
		t.Errorf("of a line without end %d bytes are read, %v", len(got), err)
	}
}
