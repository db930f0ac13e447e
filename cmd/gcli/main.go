// Command gcli is every user command of gbatch: gsubmit, gqueue and the rest, and their Slurm names. The name it is
// called by says which; internal/cli has the commands.
package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"

	"gbatch/internal/cli"
	"gbatch/internal/cli/env"
)

func main() {
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	dir, err := os.Getwd()
	if err != nil {
		dir = "/" // gone: what needs it says so
	}
	stat, err := os.Stdout.Stat()
	e := &env.Env{Program: filepath.Base(os.Args[0]), Args: os.Args[1:], Stdin: os.Stdin, Stdout: out, Stderr: os.Stderr,
		Lookup: os.LookupEnv, Environ: os.Environ(), Dir: dir, TTY: err == nil && stat.Mode()&os.ModeCharDevice != 0}
	rc := cli.Main(e)
	if err := out.Flush(); err != nil && rc == 0 {
		fmt.Fprintf(os.Stderr, "%s: error: can't write the output: %v\n", e.Program, err)
		rc = 1
	}
	os.Exit(rc)
}
