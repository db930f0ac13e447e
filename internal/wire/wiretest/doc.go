// Package wiretest tests the Wire methods of a package (wiretest.go): every struct and field has
// its line, written values are read back, and hostile bytes can't make a reader allocate too much.
// fill.go makes messages of a fuzz target's bytes; meter.go bounds what its input may cost.
package wiretest
