// Package pool runs tasks on a few goroutines, which exist only while there is work: pool.go.
// gnoded has one pool for tasks of system calls and one for tasks that may have to wait. A task
// that panics ends alone, with a line in the log.
package pool
