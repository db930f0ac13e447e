// Package pool runs tasks on a few goroutines, which exist only while there is work: pool.go.
// gnoded has pools for what takes system calls and for what may have to wait.
package pool
