package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"gbatch/internal/golden"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"gbatch": main}) }

// TestScripts runs the sessions in testdata: subcommands that need no cluster, and their output.
//
//	go test ./cmd/gbatch -run TestScripts/sim -rewrite    puts what was printed into the sessions' cmp files
func TestScripts(t *testing.T) {
	data, err := filepath.Abs(filepath.Join("..", "..", "internal", "sim", "testdata"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: golden.Rewriting(),
		Setup: func(e *testscript.Env) error {
			e.Setenv("DATA", data)
			e.Setenv("TZ", "UTC")
			return os.Chmod(e.WorkDir, 0o755)
		},
	})
}
