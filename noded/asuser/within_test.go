package asuser

import (
	"errors"
	"testing"
	"time"
)

// TestHangingFilesAreBounded: each call whose file hangs keeps one place, and no more than a user's, or all.
func TestHangingFilesAreBounded(t *testing.T) {
	p := NewPlaces(3, 2)
	never, begun := make(chan struct{}), make(chan struct{}, 9)
	hang := func() (int, error) { begun <- struct{}{}; <-never; return 7, nil }
	quick := func() (int, error) { return 7, nil }
	for i, want := range []struct {
		uid uint32
		err error
	}{{1, ErrHangs}, {1, ErrHangs}, {1, ErrCrowded}, {2, ErrHangs}, {3, ErrCrowded}} {
		if _, err := Within(p, want.uid, time.Millisecond, hang); !errors.Is(err, want.err) {
			t.Errorf("call %d, of user %d: %v, want %v", i, want.uid, err, want.err)
		}
	}
	if n := len(begun); n != 3 {
		t.Errorf("%d goroutines hang, there are 3 places", n)
	}
	close(never)
	for p.free() != 3 {
		time.Sleep(time.Millisecond)
	}
	if got, err := Within(p, 1, time.Minute, quick); got != 7 || err != nil {
		t.Errorf("%d, %v, after the files have come back", got, err)
	}
	if len(p.of) != 0 {
		t.Errorf("users without calls are kept: %v", p.of)
	}
}

func (p *Places) free() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all - p.taken
}
