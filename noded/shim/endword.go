//go:build linux && (amd64 || arm64)

package shim

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// endword.go is what gshim says of the end of a process to another process beside it. A step's relay passes it on to
// the step's command, for when gnoded is away.

// EndWord is how a task has ended.
type EndWord struct{ Task, Code, Signal int32 }

// String gives the line that gshim writes.
func (w *EndWord) String() string { return fmt.Sprintf("%d %d %d\n", w.Task, w.Code, w.Signal) }

// ParseEndWord reads such a line.
func ParseEndWord(line string) (w EndWord, err error) {
	if _, err = fmt.Sscanf(strings.TrimSuffix(line, "\n"), "%d %d %d", &w.Task, &w.Code, &w.Signal); err != nil {
		return EndWord{}, fmt.Errorf("the end of a task %q: %w", line, err)
	}
	return w, nil
}

// EndPipe makes a pipe for the ends of n tasks, and a file to write to for each. Writing never blocks: a pipe holds
// thousands of words.
func EndPipe(n int) (read *os.File, write []*os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, nil, os.NewSyscallError("pipe", err)
	}
	defer unix.Close(fds[1]) //nolint:errcheck // nothing was written
	read = os.NewFile(uintptr(fds[0]), "ends of tasks")
	for range n {
		fd, err := unix.FcntlInt(uintptr(fds[1]), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			for _, f := range append(write, read) {
				_ = f.Close() // nothing was written
			}
			return nil, nil, os.NewSyscallError("dup", err)
		}
		write = append(write, os.NewFile(uintptr(fd), "ends of tasks"))
	}
	return read, write, nil
}
