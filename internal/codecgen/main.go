// Command codecgen writes the msgpack codecs of one package's structs.
//
//	//go:generate go run gbatch/internal/codecgen
//
//	// Job is one job.
//	//
//	//gbatch:codec
//	type Job struct { ... }
//
// For every struct with the //gbatch:codec line it writes, into codec_gen.go, EncodeMsgpack and DecodeMsgpack.
//
// The format is an array of the fields in the order of declaration. A decoder takes the fields it knows, skips what
// follows and leaves what is missing zero, so records written before a field existed and after both load. Therefore
// fields are append-only: never reorder, remove or retype one. To retire a field rename it to `_`: its slot is then
// written as nil and skipped. Equal values give equal bytes: map keys are sorted, nil and empty slices and maps are the
// same (decoded as nil), integers take their shortest form. Unexported fields are encoded too.
//
// Field types: bool, integers, float64, string, []byte, [N]byte, slices, arrays, maps with string keys, pointers to
// codec structs and scalars, codec structs, and types named after any of these, here or in another package of the
// module. A named type with hand-written EncodeMsgpack and DecodeMsgpack is used through those. Tags:
//
//	codec:"-"                    not encoded; zero after decoding
//	codec:"int|uint|string"      what a type from outside the module really is (time.Duration)
//
// Refused, with the file and line: embedded fields, interfaces, channels, functions, other map keys, types that contain
// themselves (hostile input could nest them without end), structs without the directive.
//
// Decoding hostile input gives an error: it allocates no more than in proportion to the bytes received.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// outputName is the file that codecgen owns in a package.
const outputName = "codec_gen.go"

func main() {
	dir := flag.String("dir", ".", "directory of the package")
	flag.Parse()
	if err := run(*dir); err != nil {
		fmt.Fprintf(os.Stderr, "codecgen: %v\n", err)
		os.Exit(1)
	}
}

// run writes dir/codec_gen.go unless it is already right.
func run(dir string) error {
	src, err := generate(dir)
	if err != nil {
		return err
	}
	out := filepath.Join(dir, outputName)
	old, err := os.ReadFile(out)
	if err == nil && string(old) == string(src) {
		return nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	// Written whole and renamed: a build running beside us never sees half a file.
	tmp := out + ".tmp"
	if err := os.WriteFile(tmp, src, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, out)
}
