// Package metrics gives Prometheus the cluster's numbers: under Slurm's own names
// (metrics/openmetrics of Slurm 25.11) at its paths, and all of them, with gbatch's own, at
// /metrics.
//
//	serve.go     the handler; equal scrapes share an answer for a second
//	metrics.go   one pass over the facts
//	names.go     the tables of names
//
// A scrape looks at one View and holds no lock, so it never makes the planner wait. Values are
// gauges, as Slurm's are. Names follow Slurm's, but for two slips of its: powering_up of the
// cluster stands for nodes that power up, and nodes in partitions have the same words as elsewhere.
// Series of users and accounts are bounded. A test reads every scrape strictly, and holds etc's
// rules and board, and queries of well-known boards, against the names.
//
//	sink.go    a scrape's families and samples
//	own.go     what a controller tells of itself; the use of GPUs; quotas
//	boards.go  names by which boards of other exporters ask; soperator.go those of soperator's
//	waits.go   histograms: how long jobs waited, and passes took
package metrics
