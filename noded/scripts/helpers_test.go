package scripts

import (
	"os"
	"testing"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
