//go:build linux && (amd64 || arm64)

package shim

// abandoned.go ends a gshim that nobody can reach any more: its socket was removed (with a cluster's directory, say),
// no connection is open and no job runs. It waits for the jobs that run.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	abandonedPace = time.Second // between two looks whether an abandoned gshim may end
	inotifyBuffer = 4096
)

// watchSocket asks the kernel for notice when a file in the directory is removed.
func watchSocket(dir string) (*os.File, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_DELETE|unix.IN_DELETE_SELF|unix.IN_MOVED_FROM); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", dir, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "inotify"), nil
}

func (s *server) abandonedLoop(ctx context.Context) {
	watch, err := watchSocket(s.dir)
	if err != nil {
		s.log.Info("if its directory is deleted, this gshim will have to be ended by hand", "err", err)
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = watch.Close() }) // ends the read
	defer stop()
	defer watch.Close()
	buf := make([]byte, inotifyBuffer)
	for s.socketThere() {
		if _, err := watch.Read(buf); err != nil {
			return
		}
	}
	s.log.Warn("the socket has been removed; gshim ends when nothing runs any more", "dir", s.dir)
	tick := time.NewTicker(abandonedPace)
	defer tick.Stop()
	for !s.endAbandoned() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// socketThere reports whether the socket can still be found under its name.
func (s *server) socketThere() bool {
	_, err := os.Lstat(filepath.Join(s.dir, socketFile))
	return !errors.Is(err, fs.ErrNotExist)
}

func (s *server) endAbandoned() bool {
	s.mu.Lock()
	over := len(s.conns) == 0 && s.idle() == nil && !s.paused
	s.closing = s.closing || over
	s.mu.Unlock()
	if over {
		s.stop()
	}
	return over
}
