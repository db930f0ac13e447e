package shim

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const maxLogBytes = 4 << 20 // the log and its predecessor (.old) have at most this each

// logWriter writes the log file and keeps standard output and error on it, where a crash of the Go runtime leaves
// its traces. slog writes from one goroutine at a time.
type logWriter struct {
	path string
	f    *os.File
	size int64
}

func openLog(path string) (*logWriter, error) {
	w := &logWriter{path: path}
	return w, w.open()
}

func (w *logWriter) open() error {
	f, err := os.OpenFile(w.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	fi, err := f.Stat()
	if err == nil {
		err = errors.Join(unix.Dup3(int(f.Fd()), 1, 0), unix.Dup3(int(f.Fd()), 2, 0))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("open the log %s: %w", w.path, err), f.Close())
	}
	if w.f != nil {
		_ = w.f.Close() // nothing is buffered
	}
	w.f, w.size = f, fi.Size()
	return nil
}

func (w *logWriter) Write(b []byte) (int, error) {
	if w.size > 0 && w.size+int64(len(b)) > maxLogBytes {
		if err := os.Rename(w.path, w.path+".old"); err == nil {
			if err := w.open(); err != nil {
				return 0, err
			}
		}
	}
	n, err := w.f.Write(b)
	w.size += int64(n)
	return n, err
}
