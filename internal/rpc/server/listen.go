package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/filelock"
	"gbatch/internal/rpc"
)

// A daemon's unix socket. Three things can be at its path when a daemon starts: nothing, the socket of a daemon that
// was killed, or that of a live daemon. A lock on PATH.lock, held while the listener is open, tells the last two apart
// without a race between two daemons that start at the same time. The new socket is made under another name, gets its
// mode, and is renamed over the old one, so commands always find a socket that they may use.

const (
	listenBacklog = 4096 // connections not yet accepted; the kernel caps it at net.core.somaxconn
	aliveTimeout  = time.Second
)

// ListenUnix listens on a unix socket at path with the given permissions (0666 for one that all users may talk to). A
// missing directory is made with mode 0755. The socket of a dead daemon is replaced; that of a live one, and a file
// that is no socket, are errors. Paths over the 107 bytes of a socket address work. Close removes the socket.
func ListenUnix(path string, mode fs.FileMode) (net.Listener, error) {
	l, err := listenUnix(path, mode)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	return l, nil
}

type unixListener struct {
	*net.UnixListener
	path string
	id   fs.FileInfo // of the socket as made
	lock *os.File

	once     sync.Once
	closeErr error
}

func listenUnix(path string, mode fs.FileMode) (_ *unixListener, err error) {
	if err := makeDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	fresh := path + ".new"
	addr, release, err := rpc.SocketAddr(fresh)
	if err != nil {
		return nil, err
	}
	defer release()
	lock, err := lockSocket(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.Close())
		}
	}()
	if err := checkUnused(path); err != nil {
		return nil, err
	}
	f, err := bindAndRename(fresh, addr, path, mode)
	if err != nil {
		return nil, err
	}
	id, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	ln, err := net.FileListener(f)
	// FileListener has its own copy of the descriptor.
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	ul, ok := ln.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("a unix socket came back as %T", ln), ln.Close())
	}
	ul.SetUnlinkOnClose(false) // Close removes it, under its real name
	return &unixListener{UnixListener: ul, path: path, id: id, lock: lock}, nil
}

func makeDir(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, 0o755) // whatever the umask
}

// LockOf gives the file whose lock says that a daemon listens at path.
func LockOf(path string) string { return path + ".lock" }

// lockSocket takes the lock that a live daemon on path holds.
func lockSocket(path string) (*os.File, error) {
	lock, err := os.OpenFile(LockOf(path), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.Take(lock); err != nil {
		// The lock is not held, so closing the file can't release it.
		_ = lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, inUse(path)
		}
		return nil, os.NewSyscallError("flock", err)
	}
	return lock, nil
}

func inUse(path string) error {
	return fmt.Errorf("%s is in use by another daemon; stop that one or use another path: %w", path, unix.EADDRINUSE)
}

// checkUnused looks for a live server that doesn't know the lock, and for a file that isn't ours to remove.
func checkUnused(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is no socket (%s); remove it or use another path", path, st.Mode())
	}
	c, err := rpc.DialUnix(path, aliveTimeout)
	if err == nil {
		return errors.Join(inUse(path), c.Close())
	}
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// bindAndRename makes the listening socket at fresh (addr is a short name for it) and renames it to path.
func bindAndRename(fresh, addr, path string, mode fs.FileMode) (_ *os.File, err error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	// A crash may have left one; with the lock held no daemon uses it.
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: addr}); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	if err := os.Chmod(fresh, mode); err != nil {
		return nil, err
	}
	if err := unix.Listen(fd, listenBacklog); err != nil {
		return nil, os.NewSyscallError("listen", err)
	}
	return f, os.Rename(fresh, path)
}

// Addr gives the path as requested.
func (l *unixListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close stops listening, removes the socket unless another has taken its place, and gives up the lock. The lock file
// stays: removing it could let two daemons lock two files of the same name.
func (l *unixListener) Close() error {
	l.once.Do(func() {
		l.closeErr = l.UnixListener.Close()
		if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.id) {
			l.closeErr = errors.Join(l.closeErr, os.Remove(l.path))
		}
		l.closeErr = errors.Join(l.closeErr, l.lock.Close())
	})
	return l.closeErr
}
