package rpc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// maxSocketPath is the longest path in a unix socket address, in bytes without the final zero (unix(7)).
const maxSocketPath = 107

// DialUnix connects to the daemon that listens on the unix socket at path. It starts no goroutine and sends nothing:
// the preface goes with the first request, which should follow within PrefaceTimeout. timeout bounds the wait for a
// daemon whose queue of connections is full; 0 means PrefaceTimeout. Requests are limited to MaxRequest, answers to
// MaxFrame.
//
// The error is a sentence for users; errors.Is finds fs.ErrNotExist, fs.ErrPermission, unix.ECONNREFUSED (no daemon
// listens on it any more) and os.ErrDeadlineExceeded.
func DialUnix(path string, timeout time.Duration) (*Conn, error) {
	if timeout <= 0 {
		timeout = PrefaceTimeout
	}
	fd, err := connectUnix(path, timeout)
	if err != nil {
		return nil, dialError(path, timeout, err)
	}
	return Client(&sock{fd: fd}, ConnOptions{Name: path, WriteLimit: MaxRequest}), nil
}

func connectUnix(path string, limit time.Duration) (int, error) {
	addr, release, err := SocketAddr(path)
	if err != nil {
		return -1, err
	}
	defer release()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	var t timeout
	t.setDeadline(time.Now().Add(limit))
	for {
		// SO_SNDTIMEO bounds connect on a unix socket.
		if err = t.apply(fd, unix.SO_SNDTIMEO); err != nil {
			break
		}
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: addr})
		if err != unix.EINTR && err != unix.EAGAIN {
			err = os.NewSyscallError("connect", err)
			break
		}
	}
	if err == nil {
		t.setDeadline(time.Time{})
		err = t.apply(fd, unix.SO_SNDTIMEO)
	}
	if err != nil {
		// Nothing was sent on it.
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func dialError(path string, timeout time.Duration, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("no gbatch daemon on this host: there is no socket %s: %w", path, err)
	case errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("the gbatch daemon of this host is not running: nothing listens on %s: %w", path, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("may not connect to the gbatch daemon at %s: %w", path, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the gbatch daemon at %s did not take the connection in %v: %w", path, timeout, err)
	}
	return fmt.Errorf("connecting to the gbatch daemon at %s: %w", path, err)
}

// SocketAddr gives the address to bind or connect a unix socket at path. If the path exceeds the 107 bytes of an
// address, the address is relative to its directory, which stays open until release is called.
func SocketAddr(path string) (addr string, release func(), err error) {
	if path == "" {
		return "", nil, errors.New("the path of a socket is empty")
	}
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	addr = "/proc/self/fd/" + strconv.Itoa(fd) + "/" + base
	// An O_PATH descriptor has nothing to lose on close.
	release = func() { _ = unix.Close(fd) }
	if len(addr) > maxSocketPath {
		release()
		return "", nil, fmt.Errorf("the name of the socket %s is %d bytes long; at most %d fit, use a shorter one",
			path, len(base), maxSocketPath-len(addr)+len(base))
	}
	return addr, release, nil
}
