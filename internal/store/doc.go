// Package store replicates a state machine: commands go in, come out in one order on every
// controller, and survive crashes. It is the only importer of hashicorp/raft.
//
// It owns the raft log and the snapshots in Options.Dir, leadership, group commit (many commands
// share one log entry, propose.go) and the bytes of an entry (entry.go). It doesn't know what a
// command means: the consumer's Machine does. It holds no copy of the state: readers ask the
// machine.
//
// Invariants:
//   - A command for which Propose returned a result is on the disks of a majority and survives any
//     crash.
//   - Machine.Apply gets every committed entry once, in order, from one goroutine; the commands of
//     one ProposeBatch are together in one entry.
//   - What is on the disk is all there, or Open says what is missing: every entry, the log as a
//     whole and every snapshot have checksums.
//   - Everything is bounded: the queue, an entry, the entries in flight, the log (by snapshots).
//   - After Close no goroutine and no open file is left.
//
// DESIGN.md has the reasons for this design.
//
// Read store.go, fsm.go, propose.go, queue.go, entry.go; members.go has who the controllers are and
// changes it; join.go holds back voters without state;
// disk.go has the directory, logfile.go and logentry.go the log in it, adopt.go takes over older
// ones, diskcheck.go, logcheck.go and snapcheck.go the checks before it is used, aside.go the
// damaged files that are kept, plant.go puts a saved state there, leader.go the news that another
// voter leads, stall.go a leader whose disk hangs, pipeline.go a follower that refuses entries,
// term.go a voter whose disk is full,
// transport.go raft's connections over our ports, logger.go raft's messages in our log.
package store
