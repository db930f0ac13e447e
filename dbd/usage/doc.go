// Package usage sums what jobs used over time: the rows of gdbd's rollup, and what one record adds
// to them.
//
// A Sum is additive: gdbd adds a record's part when the job ends, and subtracts the part of the
// version that it replaces, so that rows are right at any moment. Times count in whole seconds, as
// in Slurm; all sums are exact integers, and no order of records changes them.
//
// It owns the arithmetic and the bytes of a Sum. It doesn't own buckets, windows of reports and who
// may see what (dbd).
//
// Files: usage.go (Sum, Of), spread.go (what a record adds), bytes.go.
package usage
