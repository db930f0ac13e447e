// Package inuse counts what the jobs of each association and QOS hold now and have used, which is
// what limits are compared with, for `gcontrol show assoc_mgr`.
//
// It owns that count. It doesn't own the limits (internal/state has the tallies by which jobs are
// held) or texts.
//
//	inuse.go  Of: the counts of a view; RunMins and Mins: parts of them, for gshare
//
// It only reads facts: no clock, no socket, no lock.
package inuse
