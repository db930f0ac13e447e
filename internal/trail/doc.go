// Package trail has the names of events: of the lines in the controller's log, and of the entries
// of the audit trail in gdbd. They are fixed: scripts and log collectors look for them. gctld(8)
// has the same table, and a test compares them.
//
// It owns the names and what they mean. It doesn't own entries (model.Audit), who makes them
// (package state and ctld) and who keeps them (dbd).
//
// Files: trail.go (the table).
package trail
