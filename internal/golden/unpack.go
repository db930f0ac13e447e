package golden

import (
	"compress/gzip"
	"io"
	"os"
	"testing"
)

// Unpack gives what a file of testdata that is packed with gzip holds: files that an earlier version of gbatch wrote.
func Unpack(t testing.TB, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return b
}
