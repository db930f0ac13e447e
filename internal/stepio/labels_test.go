package stepio

import (
	"strings"
	"testing"
)

func TestLabels(t *testing.T) {
	if got := LabelOf(3, 12); got != " 3: " {
		t.Errorf("%q", got)
	}
	l := Labeller{Label: "3: "}
	got := ""
	for _, piece := range []string{"a", "b\nc\n", "", "d"} {
		got += string(l.Take([]byte(piece), false))
	}
	if got != "3: ab\n3: c\n" {
		t.Errorf("%q", got)
	}
	if got := string(l.Take(nil, true)); got != "3: d\n" {
		t.Errorf("the rest: %q", got)
	}
	if got := string(l.Take(nil, true)); got != "" {
		t.Errorf("after it: %q", got)
	}
	if got := l.Take([]byte(strings.Repeat("x", maxHeldLine)), false); len(got) != len("3: \n")+maxHeldLine {
		t.Errorf("a line without end is held back: %d bytes came", len(got))
	}
}
