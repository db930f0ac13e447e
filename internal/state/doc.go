// Package state holds the cluster's facts: the state machine that every controller replicates.
//
// Apply is the only writer and has no side effects: time and randomness arrive in the command, no
// map is iterated, no float computed, so that two replicas fed the same log hold equal states and
// write byte-identical snapshots. Stored values are immutable: Apply replaces records, never edits
// them. A View therefore is a cheap copy of copy-on-write trees (tidwall/btree) that readers use
// without a lock while Apply goes on.
//
// Read command.go (what can happen), state.go (what is stored and what is derived from it), then
// the file named after the verb: submit, start, report, stop, edit, deps, node, tick. index.go is
// what is derived from the records; valid.go refuses what Apply could not fold. purse.go ends jobs
// whose minutes have run out; age.go lets only so many gain priority by age. testdata/*.txt shows
// every behaviour. check.go states the invariants as code; tests run it after every Apply.
//
// It doesn't own: who may do what and validation of requests (ctld), which job starts where
// (sched), the log (store).
package state
