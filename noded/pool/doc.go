// Package pool runs tasks on a few goroutines, which exist only while there is work: pool.go.
// gnoded has one pool for tasks of system calls and one for tasks that may have to wait. Where
// users decide how long that is, each has a part of the goroutines, and whoever waits for a task
// can end it. A task that panics ends alone, with a line in the log.
package pool
