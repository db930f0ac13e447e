package steprelay

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/noded/gpuoom"
	"gbatch/noded/shim"
)

// ListenWord is the first argument of the process that only listens to what tasks with GPUs write to a pipe of their
// own host: it passes it on, and its exit status says if a GPU had too little memory (noded/gpuoom).
const ListenWord = "step-listen"

// restFor is how long, after the last task's end, what the tasks left may still write.
const restFor = 50 * time.Millisecond

// Heard is one output: From is the end of the tasks' pipe, and what comes there goes to To. To is the user's, as the
// command has it: its flags are also others', and stay.
type Heard struct{ From, To *os.File }

// SendHeard writes an order of a listening process on the socket whose other end is its standard input. ended is the
// pipe into which gshim writes the ends of so many tasks, a line each.
func SendHeard(sock int, ended *os.File, tasks int, list []Heard) error {
	files := []*os.File{ended}
	for _, h := range list {
		files = append(files, h.From, h.To)
	}
	return SendLines(sock, fmt.Sprintf("%d %d\n", tasks, len(list)), files)
}

// Listen is the program. It returns the exit status.
func Listen(stderr io.Writer) int {
	IgnoreSignals()
	told := tasksOverSignal()
	tasks, fds, err := takeHeard(0)
	if err != nil {
		fmt.Fprintln(stderr, "gshim", ListenWord+":", err)
		return exitOrder
	}
	over := make(chan struct{})
	go func() { // it ends with the process
		none := func(*shim.EndWord) error { return nil }
		_ = hearEnds(os.NewFile(uintptr(fds[0]), "the tasks' ends"), tasks, told, func() { close(over) }, none) // no error
	}()
	seen := make([]gpuoom.Watch, (len(fds)-1)/2)
	var all sync.WaitGroup
	for i := range seen {
		all.Go(func() { passOn(fds[1+2*i], fds[2+2*i], over, &seen[i]) })
	}
	all.Wait()
	for i := range seen {
		if code := seen[i].Code(); code != 0 {
			return code
		}
	}
	return 0
}

// takeHeard reads an order: how many tasks there are, the pipe of their ends, and two descriptors for each output. Only
// what is read from here does not block.
func takeHeard(sock int) (tasks int, fds []int, err error) {
	lines, err := TakeLines(sock)
	if err != nil {
		return 0, nil, err
	}
	n := 0
	if _, err := fmt.Sscan(lines[0], &tasks, &n); err != nil || n < 1 {
		return 0, nil, fmt.Errorf("the order %q: %w", lines[0], err)
	}
	for len(fds) < 1+2*n {
		some, err := rights(sock)
		if err != nil {
			return 0, nil, err
		}
		fds = append(fds, some...)
	}
	for i, fd := range fds {
		if i%2 == 1 {
			if err := unix.SetNonblock(fd, true); err != nil {
				return 0, nil, os.NewSyscallError("fcntl", err)
			}
		}
	}
	return tasks, fds, nil
}

// passOn copies until the tasks' output has ended, or its reader has gone: then the tasks get SIGPIPE, as without this
// process. When the tasks are over, all that is in the pipe goes on, however slow its reader is.
func passOn(fd, to int, over <-chan struct{}, w *gpuoom.Watch) {
	from := os.NewFile(uintptr(fd), "the tasks' output")
	done := make(chan struct{})
	defer close(done)
	defer from.Close() //nolint:errcheck // nobody reads on
	go func() {
		select {
		case <-over:
			_ = from.SetReadDeadline(time.Now().Add(restFor)) // it is closed
		case <-done:
		}
	}()
	buf := make([]byte, readBytes)
	last := lastBytes{file: from}
	for {
		n, err := from.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) { // what is there after it was not looked at
			n, err = last.read(buf)
		}
		w.See(buf[:n])
		if writeAll(to, buf[:n]) != nil || err != nil {
			return
		}
	}
}

// writeAll writes to a descriptor, whether it blocks or not.
func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1) // the next write tells
		case err != nil:
			return os.NewSyscallError("write", err)
		default:
			b = b[n:]
		}
	}
	return nil
}
