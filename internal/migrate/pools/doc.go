// Package pools reads what Kubernetes and its schedulers write about shared GPUs, in YAML, and says
// what it is in gbatch's words: settings of QOS, accounts, partitions and reservations, as an
// administrator would type them, and scripts of jobs.
//
//	pools.go   files, documents, and which kind of document is read by what
//	kinds.go   ComputePool, ElasticJob, Volcano's Queue, the queues in a ConfigMap
//	values.go  a document's values; those that nobody asked for are reported
//
// It asks no daemon and writes no file: cmd/gbatch does (gbatch import --pools, gcontrol import).
//
// Invariants:
//
//   - Every key of a document that is read is used, or is in the report.
//   - The same document gives the same steps. A step can be made again: cmd/gbatch makes what
//     lacks.
//   - Files, documents, entries and texts are bounded. Names are those that gbatch takes.
package pools
