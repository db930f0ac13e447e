// Package deadletter keeps accounting records that gdbd does not take: each in a file of its own,
// so that the others go on. A person reads the files, and removes them; until then gcontrol ping
// and AlertProgram name them.
//
// It owns the directory and its bounds. It does not own what a record is, or when one is given up
// (ctld/outbox.go).
package deadletter
