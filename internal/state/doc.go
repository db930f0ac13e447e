// Package state holds the cluster's facts: the state machine that every controller replicates.
//
// Apply is the only writer and has no side effects: time and randomness arrive in the command, and
// it iterates no map and computes no float. So two replicas with the same log have equal states and
// write byte-identical snapshots. Stored values are immutable: Apply replaces records and never
// edits them. A View is therefore a cheap copy of copy-on-write trees (tidwall/btree), which
// readers use without a lock while Apply goes on.
//
// Read command.go (what can happen), state.go (what is stored and what is derived from it), then
// the file named after the verb: submit, start, report, stop, edit, deps, node, tick. index.go has
// the indexes that are derived from the records; valid.go refuses commands that Apply can't handle.
// purse.go ends jobs whose minutes have run out; age.go limits how many jobs gain priority by age.
// testdata/*.txt shows every behaviour. check.go states the invariants as code; tests run it after
// every Apply.
//
// It doesn't own: rights and validation of requests (ctld), the choice of jobs and nodes (sched),
// the log (store).
//
// Around jobs: ready.go (prologs, programs of the controller, failed launches), suspend.go,
// resize.go (running jobs give nodes up and get more), het.go (heterogeneous jobs), once.go (a
// request's change is made at most once), blob.go (scripts and environments, stored once, as equal
// texts are), power.go (nodes that are off), crontab.go (jobs that come back), trigger.go (what
// has happened, for programs), mail.go, edit.go.
// Counts for limits: tally.go (and of results and licenses), usage.go, decay.go, acctuse.go (and
// money of accounts), govern.go (which limits apply). Accounts, reservations, units: accounts.go,
// rename.go (users), check_accounts.go, reservation.go (they begin, repeat and end), units.go and
// share.go (GPUs). Certificates: cert.go (tokens for them, and which count no more). Reading and
// keeping: view.go, snapshot.go, saved.go (dumps, and what a restored snapshot does not know),
// outbox.go, trail.go (what has changed). Definitions that change at run time: edit.go.
// stop.go, start.go, submit.go, report.go, deps.go, node.go and tick.go are the verbs from above.
package state
