// Package history keeps what was measured over time: of each GPU, node, running job, partition,
// account and QOS, and of the cluster.
//
// It owns one bbolt file, history.db, which is no part of backups: nothing that counts is in it.
// The leader sends samples once a minute (proto.Samples); what they mean says proto.HistoryOf. It
// does not own who may see what: package dbd passes on for whom a question is.
//
// Files: store.go (the file, the current hour, writing), row.go (the bytes of a series), ask.go
// (reading).
//
// # Invariants
//
//   - A minute is on disk, synced, before its sender is answered: kill -9 loses the minutes that
//     were on their way. Sent again, a part of a minute takes its own place.
//   - Minutes are kept for a day, means of ten minutes for thirty days, and the file stays below
//     its limit, whatever comes: the oldest days go first, then the oldest hours. A bucket is an
//     hour or a day, so that forgetting one is one DeleteBucket.
//   - Writing here has its own file, lock and turn: records never wait for it.
//   - A damaged file is put aside, and a new one begins.
package history
