// Package taskenv is the first program of a task whose variables its node's PMIx server makes
// (noded/steppmix): it waits for them on descriptor 3, and becomes the task's own program. gshim
// starts it in place of that, with everything else that the task gets. The descriptor stays open as
// long as the task has processes, which tells the server that the task is there.
//
// It owns nothing else.
package taskenv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Word is the first argument that makes gshim's program run this one.
const Word = "task-env"

// FD is the descriptor of the connection.
const FD = 3

const (
	wait     = 2 * time.Minute // for the variables: a busy node loads a library, and connects to the step's command
	maxBytes = 1 << 20         // of all of them
	refused  = ^uint32(0)      // in place of their length: there are none, and the step's command says why
)

// Argv makes a program's arguments those of gshim's: path is the program's, argv its own.
func Argv(shim, path string, argv []string) []string {
	return append([]string{shim, Word, path}, argv...)
}

// Send gives a task its variables.
func Send(w io.Writer, env []string) error {
	text := strings.Join(env, "\x00")
	if len(text) > maxBytes {
		return fmt.Errorf("variables of %d bytes", len(text))
	}
	_, err := w.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

// Refuse tells a task that there are none.
func Refuse(w io.Writer) error {
	_, err := w.Write(binary.LittleEndian.AppendUint32(nil, refused))
	return err
}

var errRefused = errors.New("the step ends")

// take reads the variables.
func take(fd int) ([]string, error) {
	until := time.Now().Add(wait)
	head, err := read(fd, 4, until)
	if err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head)
	switch {
	case n == refused:
		_, _ = read(fd, 1, until) // the step is about to end
		return nil, errRefused
	case n > maxBytes:
		return nil, fmt.Errorf("variables of %d bytes", n)
	case n == 0:
		return nil, nil
	}
	text, err := read(fd, int(n), until)
	return strings.Split(string(text), "\x00"), err
}

// read reads n bytes.
func read(fd, n int, until time.Time) ([]byte, error) {
	b := make([]byte, 0, n)
	for len(b) < n {
		left := time.Until(until)
		if left <= 0 {
			return nil, fmt.Errorf("nothing came in %v", wait)
		}
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left/time.Millisecond)+1)
		if err == unix.EINTR || err == nil && ready == 0 {
			continue
		}
		if err != nil {
			return nil, os.NewSyscallError("poll", err)
		}
		got, err := unix.Read(fd, b[len(b):n])
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
		case err != nil:
			return nil, os.NewSyscallError("read", err)
		case got == 0:
			return nil, io.ErrUnexpectedEOF
		default:
			b = b[:len(b)+got]
		}
	}
	return b, nil
}

// Main becomes the program; it returns only if that can't be: the exit status. args are those after Word.
func Main(args []string, stderr io.Writer) int {
	if len(args) < 2 {
		_, _ = fmt.Fprintln(stderr, "gshim "+Word+": no program") // the exit status says it too
		return 2
	}
	more, err := take(FD)
	if err != nil {
		if !errors.Is(err, errRefused) {
			_, _ = fmt.Fprintf(stderr, "slurmstepd: error: the PMIx server of the step ended before the task began (%v)\n", err)
		}
		return 1
	}
	err = syscall.Exec(args[0], args[1:], merge(os.Environ(), more))
	why := err.Error()
	_, _ = fmt.Fprintf(stderr, "slurmstepd: error: execve(): %s: %s\n", args[1], strings.ToUpper(why[:1])+why[1:])
	if no, is := err.(syscall.Errno); is { //nolint:errorlint // exec's own
		return int(no & 0xff)
	}
	return 1
}

// merge puts variables over others.
func merge(env, over []string) []string {
	names := map[string]bool{}
	for _, e := range over {
		name, _, _ := strings.Cut(e, "=")
		names[name] = true
	}
	var out []string
	for _, e := range env {
		if name, _, _ := strings.Cut(e, "="); !names[name] {
			out = append(out, e)
		}
	}
	return append(out, over...)
}
