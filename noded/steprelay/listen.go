package steprelay

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/stepio"
	"gbatch/noded/gpuoom"
	"gbatch/noded/shim"
)

// ListenWord is the first argument of the process that passes on what tasks write to a pipe or a file of their own
// host: it puts labels before the lines, or its exit status says if a GPU had too little memory (noded/gpuoom).
const ListenWord = "step-listen"

// restFor is how long, after the last task's end, what the tasks left may still write.
const restFor = 50 * time.Millisecond

// Heard is one output: From is the end of the tasks' pipe, and what comes there goes to To. To is the user's, as the
// command has it: its flags are also others', and stay. Label stands before each line; "": nothing does.
type Heard struct {
	From, To *os.File
	Label    string
}

// SendHeard writes an order of a listening process on the socket whose other end is its standard input. ended is the
// pipe into which gshim writes the ends of so many tasks, a line each. gpu: they have GPUs.
func SendHeard(sock int, ended *os.File, tasks int, gpu bool, list []Heard) error {
	files := []*os.File{ended}
	text := fmt.Appendf(nil, "%d %d %t\n", tasks, len(list), gpu)
	for _, h := range list {
		files = append(files, h.From, h.To)
		text = fmt.Appendf(text, "%s\n", h.Label)
	}
	return SendLines(sock, string(text), files)
}

// Listen is the program. It returns the exit status.
func Listen(stderr io.Writer) int {
	IgnoreSignals()
	told := tasksOverSignal()
	o, fds, err := takeHeard(0)
	if err != nil {
		fmt.Fprintln(stderr, "gshim", ListenWord+":", err)
		return exitOrder
	}
	over := make(chan struct{})
	go func() { // it ends with the process
		none := func(*shim.EndWord) error { return nil }
		_ = hearEnds(os.NewFile(uintptr(fds[0]), "the tasks' ends"), o.tasks, told, func() { close(over) }, none) // no error
	}()
	seen := make([]gpuoom.Watch, len(o.labels))
	var all sync.WaitGroup
	for i, label := range o.labels {
		all.Go(func() { passOn(fds[1+2*i], fds[2+2*i], over, &seen[i], label) })
	}
	all.Wait()
	for i := range seen {
		if code := seen[i].Code(); code != 0 && o.gpu {
			return code
		}
	}
	return 0
}

// heardOrder is what SendHeard has written, without the files.
type heardOrder struct {
	tasks  int
	gpu    bool
	labels []string // one for each output
}

// takeHeard reads an order with its files: the pipe of the tasks' ends, and two descriptors for each output. Only what
// is read from here does not block.
func takeHeard(sock int) (o heardOrder, fds []int, err error) {
	lines, err := TakeLines(sock)
	if err != nil {
		return o, nil, err
	}
	n := 0
	o.gpu = true
	switch k, err := fmt.Sscan(lines[0], &o.tasks, &n, &o.gpu); {
	case k == 2 && n > 0 && len(lines) == 1: // of an earlier gnoded, which is about to be replaced
		o.labels = make([]string, n)
	case err != nil || n < 1 || len(lines) != 1+n:
		return o, nil, fmt.Errorf("the order %q of %d lines: %w", lines[0], len(lines), err)
	default:
		o.labels = lines[1:]
	}
	for len(fds) < 1+2*n {
		some, err := rights(sock)
		if err != nil {
			return o, nil, err
		}
		fds = append(fds, some...)
	}
	for i, fd := range fds {
		if i%2 == 1 {
			if err := unix.SetNonblock(fd, true); err != nil {
				return o, nil, os.NewSyscallError("fcntl", err)
			}
		}
	}
	return o, fds, nil
}

// passOn copies until the tasks' output has ended, or its reader has gone: then the tasks get SIGPIPE, as without this
// process. When the tasks are over, all that is in the pipe goes on, however slow its reader is.
func passOn(fd, to int, over <-chan struct{}, w *gpuoom.Watch, label string) {
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
	last, lines := lastBytes{file: from}, stepio.Labeller{Label: label}
	for {
		n, err := from.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) { // what is there after it was not looked at
			n, err = last.read(buf)
		}
		text := buf[:n]
		w.See(text)
		if label != "" {
			text = lines.Take(text, err != nil)
		}
		// A labelled file that is full loses text, as grun's own do: its tasks go on.
		if werr := writeAll(to, text); err != nil || werr != nil && (label == "" || errors.Is(werr, unix.EPIPE)) {
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
