package crash

import (
	"strings"
	"testing"
)

func boom(list []int, i int) int { return list[i] }

// TestRecovered: the line names the function that crashed, and has no line breaks; without a panic there is no error.
func TestRecovered(t *testing.T) {
	try := func(f func()) (err error) {
		defer func() { err = Recovered(recover()) }()
		f()
		return nil
	}
	err := try(func() { boom(nil, 3) })
	if err == nil || !strings.Contains(err.Error(), "index out of range") || strings.Contains(err.Error(), "\n") ||
		!strings.Contains(strings.SplitN(err.Error(), "<", 2)[0], "crash.boom") {
		t.Errorf("%v", err)
	}
	if err := try(func() { panic("a\nb " + strings.Repeat("x", 1<<20)) }); len(err.Error()) > 4096 ||
		!strings.Contains(err.Error(), "a b") {
		t.Errorf("%.100v", err)
	}
	if err := try(func() {}); err != nil {
		t.Error(err)
	}
}
