package shim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// The files of a gshim in its directory.
const (
	socketFile  = "shim.sock"
	lockFile    = "shim.lock"  // held by gshim as long as it lives
	startFile   = "start.lock" // held by a client while it starts gshim
	journalFile = "shim.journal"
	logFile     = "shim.log"
)

const maxSocketPath = 107 // bytes of sun_path less its NUL

// peerError is a connection of another user.
type peerError struct{ uid int }

func (e *peerError) Error() string { return fmt.Sprintf("the peer is uid %d", e.uid) }

// withSocketPath calls f with a path of the socket that fits a socket address, however long the directory's own is.
func withSocketPath(dir string, f func(path string) error) error {
	path := filepath.Join(dir, socketFile)
	if len(path) <= maxSocketPath {
		return f(path)
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer unix.Close(fd)
	return f("/proc/self/fd/" + strconv.Itoa(fd) + "/" + socketFile)
}

// listen binds the socket. The caller holds the lock, so a socket file that is there is a dead gshim's.
func listen(dir string) (*net.UnixListener, error) {
	var l *net.UnixListener
	err := withSocketPath(dir, func(path string) error {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		var err error
		if l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}); err != nil {
			return err
		}
		l.SetUnlinkOnClose(false)
		return os.Chmod(path, 0o600)
	})
	if err != nil {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
		return nil, fmt.Errorf("listen in %s: %w", dir, err)
	}
	return l, nil
}

func dial(ctx context.Context, dir string) (*net.UnixConn, error) {
	var nc net.Conn
	err := withSocketPath(dir, func(path string) error {
		var d net.Dialer
		var err error
		nc, err = d.DialContext(ctx, "unix", path)
		return err
	})
	if err != nil {
		return nil, err
	}
	return nc.(*net.UnixConn), nil
}

// peerUID asks the kernel who is at the other end.
func peerUID(nc *net.UnixConn) (int, error) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) {
		cred,
			cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if cerr != nil {
		return 0, fmt.Errorf("peer credentials: %w", cerr)
	}
	return int(cred.Uid), nil
}

var errLocked = errors.New("locked by another process")

// takeLock creates and locks a file without waiting.
func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errLocked
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}
