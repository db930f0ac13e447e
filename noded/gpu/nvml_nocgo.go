//go:build !cgo || !linux

package gpu

import "time"

// query can't be done without cgo.
func query(string) ([]Device, error) { return nil, ErrNoCgo }

// monitor neither.
func monitor(string, time.Duration, <-chan struct{}, func([]sample) error) error { return ErrNoCgo }
