package steprelay

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/noded/shim"
)

// rest.go has the end of the tasks' output. It comes with the end of their pipes, which processes that outlive the
// tasks hold open. So these have a moment when the last task has ended, and then what is in the pipes is the rest.

// TasksOver is the signal by which gnoded says that all tasks have ended, for where the gshim that would say it has
// been replaced. A process of an earlier version does not heed it.
const TasksOver = unix.Signal(40)

// drainFor is how long after the last task's end what it has left may still write.
const drainFor = 2 * time.Second

// tasksOverSignal begins to wait for that signal.
func tasksOverSignal() <-chan os.Signal {
	told := make(chan os.Signal, 1)
	signal.Notify(told, TasksOver)
	return told
}

// hearEnds calls each for the ends of tasks that gshim writes, and over when all tasks have ended. If gshim is a new
// one, its pipe ends before; then told says so. The number of tasks is 0 if an earlier gnoded has not given it.
func hearEnds(f *os.File, tasks int, told <-chan os.Signal, over func(), each func(*shim.EndWord) error) error {
	lines := bufio.NewScanner(f)
	heard := 0
	for (heard == 0 || heard != tasks) && lines.Scan() {
		w, err := shim.ParseEndWord(lines.Text())
		if err != nil {
			break // gnoded will tell
		}
		heard++
		if err := each(&w); err != nil {
			return err
		}
	}
	if heard > 0 && heard == tasks {
		over()
		return nil
	}
	go func() { // it ends with the process
		<-told
		over()
	}()
	return nil
}

// rest is when reading ends.
type rest struct {
	patience time.Duration
	begun    chan struct{} // closed when all tasks have ended

	mu    sync.Mutex
	until time.Time // zero: tasks run
	files []*os.File
}

func newRest(patience time.Duration) *rest {
	return &rest{patience: patience, begun: make(chan struct{})}
}

// begin says that all tasks have ended.
func (r *rest) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.until.IsZero() {
		return
	}
	close(r.begun)
	r.until = time.Now().Add(r.patience)
	for _, f := range r.files {
		_ = f.SetReadDeadline(r.until) // it is closed
	}
}

// deadline bounds the next read of a file: by t, or by the end of what is waited for.
func (r *rest) deadline(f *os.File, t time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.until.IsZero() && (t.IsZero() || r.until.Before(t)) {
		t = r.until
	}
	return f.SetReadDeadline(t)
}

// over reports whether nothing more is waited for.
func (r *rest) over() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.until.IsZero() && !time.Now().Before(r.until)
}

// lastBytes reads what is in a pipe when nothing more is waited for, and not what is written later: a process that
// never stops writing holds nothing up.
type lastBytes struct {
	file  *os.File
	known bool
	left  int
}

// read is like a file's Read.
func (l *lastBytes) read(b []byte) (n int, err error) {
	c, err := l.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := c.Control(func(fd uintptr) {
		if !l.known {
			if l.left, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ); err != nil {
				return
			}
			l.known = true
		}
		if l.left <= 0 {
			err = io.EOF
			return
		}
		for {
			if n, err = unix.Read(int(fd), b[:min(len(b), l.left)]); err != unix.EINTR {
				break
			}
		}
		if n = max(n, 0); n == 0 && err == nil {
			err = io.EOF
		}
		l.left -= n
	})
	return n, errors.Join(cerr, err)
}
