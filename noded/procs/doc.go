// Package procs reads /proc for the samples of jobs: what some processes use (reader.go), and which
// processes are a job's on hosts without control groups (tree.go). It keeps buffers and what was
// seen last; when to look, and what becomes of it, is noded's.
package procs
