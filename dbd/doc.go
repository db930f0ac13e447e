// Package dbd is gdbd, the accounting daemon: it remembers every job, who ran it, on what, how it
// ended, and answers questions about them.
//
// It owns one bbolt file, acct.db. Controllers bring records (proto.Put) in the order of their
// outbox; each is whole and self-contained, keyed by job and attempt, and replaces the one before.
// They ask questions (proto.AcctRequest) for users. gdbd does not own the outbox (package ctld),
// who may see whose jobs (the controller decides, gdbd answers controllers only) or how answers
// look (internal/cli).
//
// Where things are: dbd.go is the daemon's life, start.go its beginning as a program, serve.go what
// it answers, ingest.go writes, query.go reads, filter.go says which records a question means,
// db.go opens and lays out the file, keys.go has its bytes, check.go looks at a file before it is
// trusted, purge.go forgets old months. DESIGN.md says why.
//
// Invariants:
//
//   - What has been acknowledged is on disk, and is there once: the last sequence of each
//     controller history is written in the transaction of the records it covers, and what comes
//     again is ignored.
//   - A record lies in exactly one shelf (live, or the month in which its job ended) and in that
//     shelf's indexes. TestAgainstNaive checks this after each of thousands of random batches.
//   - One goroutine writes. Readers never wait for it, nor it for them, and no transaction is open
//     while a client is slow to take its answer.
//   - A damaged file is said in a sentence, at the start or in the log; it makes nothing panic and
//     nothing wrong is answered from it.
//
// js1.go keeps summaries for jobstats, options.go says what a daemon is.
package dbd
