// Package procs reads /proc for the samples of jobs: the usage of processes (reader.go), and the
// processes of a job on hosts without control groups (tree.go). It keeps buffers and the last
// values; noded decides when to sample, and uses the results.
package procs
