package present

import (
	"slices"
	"strconv"
	"testing"
	"time"
)

// TestWords has lines for two jobs: each comes once, in order, also when it is asked for before it is there.
func TestWords(t *testing.T) {
	var w Words
	now := time.Unix(1_700_000_000, 0)
	if lines, last, more := w.Since(1, 0); len(lines) != 0 || last != 0 || more == nil {
		t.Fatalf("nothing was said: %q, %d", lines, last)
	}
	_, _, more := w.Since(1, 0)
	if !w.Say(1, "a", now) || !w.Say(2, "other", now) || !w.Say(1, "b", now) {
		t.Fatal("a line was not taken")
	}
	<-more
	lines, last, _ := w.Since(1, 0)
	if !slices.Equal(lines, []string{"a", "b"}) {
		t.Errorf("job 1 hears %q", lines)
	}
	if again, same, _ := w.Since(1, last); len(again) != 0 || same != last {
		t.Errorf("job 1 hears %q again", again)
	}
	if lines, _, _ := w.Since(2, 0); !slices.Equal(lines, []string{"other"}) {
		t.Errorf("job 2 hears %q", lines)
	}
	for i := range mostWords {
		if !w.Say(3, strconv.Itoa(i), now) {
			t.Fatalf("line %d was not taken", i)
		}
	}
	if w.Say(3, "more", now) {
		t.Error("more lines wait than may")
	}
	if !w.Say(3, "later", now.Add(2*wordsFor)) {
		t.Error("lines that nobody asks for are kept for ever")
	}
	if lines, _, _ := w.Since(3, 0); !slices.Equal(lines, []string{"later"}) {
		t.Errorf("job 3 hears %q", lines)
	}
}
