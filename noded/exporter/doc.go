// Package exporter tells others what a node's GPUs do and whose they are: at an address of the
// node's own, as metrics for Prometheus, and in files that say which jobs have which GPU.
//
// It owns the names of the series (text.go: those of NVIDIA's DCGM exporter, of jobstats'
// exporters, and plain ones), the port (serve.go) and the files (mapping.go, in the form that
// dcgm-exporter's --hpc-job-mapping-dir reads). It does not own what is measured: gnoded gives a
// Snapshot, which nothing is measured for.
//
// # Invariants
//
//   - A scrape waits for no driver and no disk; at most four are answered at the same time.
//   - What is not known has no series.
//   - Files change only when jobs do, and each at once. Those of other names are left alone.
package exporter
