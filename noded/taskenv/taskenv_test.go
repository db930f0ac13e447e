package taskenv

import (
	"os"
	"slices"
	"testing"
)

// TestTake checks that a task gets what was sent, and nothing from a server that has ended.
func TestTake(t *testing.T) {
	for _, test := range []struct {
		name string
		send func(w *os.File)
		want []string
		bad  bool
	}{
		{"some", func(w *os.File) { _ = Send(w, []string{"A=1", "B=x y\nz"}) }, []string{"A=1", "B=x y\nz"}, false},
		{"none", func(w *os.File) { _ = Send(w, nil) }, nil, false},
		{"refused", func(w *os.File) { _ = Refuse(w) }, nil, true},
		{"ended", func(w *os.File) {}, nil, true},
		{"cut", func(w *os.File) { _, _ = w.Write([]byte{9, 0, 0, 0, 'A'}) }, nil, true},
		{"too much", func(w *os.File) { _, _ = w.Write([]byte{0, 0, 0, 0x7f}) }, nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			test.send(w)
			_ = w.Close()
			got, err := take(int(r.Fd()))
			if !test.bad && (err != nil || !slices.Equal(got, test.want)) || test.bad && err == nil {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	if err := Send(nil, []string{string(make([]byte, maxBytes+1))}); err == nil {
		t.Error("too much was sent")
	}
}

func TestMerge(t *testing.T) {
	got := merge([]string{"A=1", "B=2", "C=3"}, []string{"B=4", "D=5"})
	if want := []string{"A=1", "C=3", "B=4", "D=5"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
