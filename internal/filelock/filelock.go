// Package filelock locks a file for one process, so that no two daemons work in one directory.
package filelock

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// patience is how long a lock is waited for: a program that the last holder was just starting when it ended has
	// its files, and with them its lock, until the exec.
	patience = time.Second
	pace     = 10 * time.Millisecond
)

// Take locks an open file, and waits for up to a second for a holder that ends. The lock ends with the file, so a
// killed process leaves none. It gives unix.EWOULDBLOCK if another process holds it.
func Take(f *os.File) error {
	for end := time.Now().Add(patience); ; time.Sleep(pace) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EWOULDBLOCK || time.Now().After(end) { //nolint:errorlint // a bare errno
			return err
		}
	}
}
