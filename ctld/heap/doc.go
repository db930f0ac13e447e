// Package heap decides when the collector of a controller runs.
//
// It owns GOGC of the process while Tune runs. It doesn't own a limit of the memory.
//
//	heap.go  Tune
package heap
