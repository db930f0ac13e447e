// Package dbd is gdbd, the accounting daemon. It stores a record of every job (user, resources,
// result) and answers queries about them.
//
// It owns one bbolt file, acct.db. Controllers send records (proto.Put) in the order of their
// outbox; each record is complete in itself, keyed by job and attempt, and replaces the one before.
// Controllers pass on users' queries (proto.AcctRequest). gdbd does not own the outbox (package
// ctld), the right to see jobs (the controller decides; gdbd answers only controllers) or the form
// of answers (internal/cli).
//
// Where things are: dbd.go has New, Run and Close, start.go the program, serve.go the requests of
// controllers, users.go those of users that nodes and login hosts pass on; ingest.go writes:
// entry.go is a record on its way (and the end of those that nobody else ends), index.go the
// shelf that it comes into. query.go reads, filter.go matches records against a query, db.go
// opens the file and has its layout, keys.go its bytes, purge.go forgets old months. missing.go
// knows which records should be here and are not, follow.go what the other one of two gdbds has.
// save.go makes a backup, whose form is package backup's; admin.go is what administrators do
// (adminserve.go answers them), offline.go what they do while gdbd is stopped. DESIGN.md has the
// reasons.
//
// Invariants:
//
//   - Acknowledged records are on disk, each once: the last sequence number of each controller
//     history is written in the same transaction as its records, and repeated records are ignored.
//   - A record is in exactly one shelf (live, or the month in which its job ended) and in that
//     shelf's indexes. TestAgainstNaive checks this after each of thousands of random batches.
//   - One goroutine writes. Readers never wait for it, nor it for readers, and no transaction is
//     open while a slow client reads its answer.
//   - A damaged file is reported in a sentence, at the start or in the log. It causes neither a
//     panic nor a wrong answer.
//
// Package fresh lets answers have what was recorded a moment before. Package history keeps samples
// of usage over time, in a file of its own (serve.go passes them on). steps.go keeps what each
// step used at its end.
//
// import.go brings records of another batch system to a gdbd that runs, as a history of their own.
//
// Package jobstats makes the summaries for jobstats. rollup.go keeps sums of usage by hour, day
// and month (package usage), trail.go the audit trail and what it says of nodes, reservations and
// users' names;
// report.go and clusteruse.go answer questions about them, bill.go about costs.
package dbd
