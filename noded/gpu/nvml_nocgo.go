//go:build !cgo || !linux

package gpu

// query can't be done without cgo.
func query(string) ([]Device, error) { return nil, ErrNoCgo }
