// Package archtest holds the tests that keep the tree in the shape that internal/DESIGN.md
// describes: which package may import which, what is pure, what stays out of the small binaries,
// what lies at the top, how long a file may grow.
//
// The rules are data in rules_test.go; tree_test.go reads the module's Go files in-process (a test
// that shells out to `go list` is cached by `go test` and misses changes) and check_test.go
// compares. testdata/wrong is a module that breaks every rule once, so that the tests also prove
// that a wrong arrow is caught.
package archtest
