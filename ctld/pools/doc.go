// Package pools sums up partitions for the people who share them: what each has, what of it is
// allocated, reserved, out of service or free, which accounts may have how much, and who waits.
//
// It owns that sum. It doesn't own limits (internal/state, internal/sched) or texts (ginfo).
//
//	pools.go    Of: the pools of a view
//	classes.go  whether a job is of high (online) or low (batch) priority
//
// It only reads facts: no clock, no socket, no lock.
package pools
