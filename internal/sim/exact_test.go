package sim

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// traces gives a file of the real workloads, which the project does not ship.
func traces(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("GBATCH_TRACES")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "traces")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("skipped: the real workloads are not here (GBATCH_TRACES names their directory): %v", err)
	}
	return path
}

func TestFIFO(t *testing.T) {
	w, err := Open(traces(t, "KTH-SP2.sc15.swf.gz"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMachine(w, Size{})
	if err != nil {
		t.Fatal(err)
	}
	t0 := time.Now()
	o, err := Replay(context.Background(), Setup{Work: w, Machine: m, Scheduler: FIFO()})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s %v %d passes", o.Digest(), time.Since(t0), o.Passes)
}
