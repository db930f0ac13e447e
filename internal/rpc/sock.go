package rpc

import (
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// sock is a connected unix socket without package net and without the runtime's poller: reads and writes block in the
// kernel, deadlines are SO_RCVTIMEO and SO_SNDTIMEO. Commands that run for 2 ms use it; the poller alone would cost
// them 40 µs.
//
// A deadline applies to calls that start after it was set. Close wakes blocked calls.
type sock struct {
	fd     int
	closed atomic.Bool
	inUse  sync.RWMutex // read-held by every call on fd, so that Close cannot free the number under one

	rd, wr timeout
}

type timeout struct {
	deadline atomic.Int64 // Unix nanoseconds; 0 is none
	set      atomic.Bool  // the socket option is not zero
}

func (t *timeout) setDeadline(at time.Time) {
	if at.IsZero() {
		t.deadline.Store(0)
		return
	}
	t.deadline.Store(at.UnixNano())
}

// apply brings the socket option in line with the deadline before a call.
func (t *timeout) apply(fd, option int) error {
	at := t.deadline.Load()
	if at == 0 && !t.set.Load() {
		return nil
	}
	var tv unix.Timeval
	if at != 0 {
		left := at - time.Now().UnixNano()
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		tv = unix.NsecToTimeval(max(left, int64(time.Microsecond))) // all zeros would mean no timeout
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, option, &tv); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	t.set.Store(at != 0)
	return nil
}

func (s *sock) SetReadDeadline(t time.Time) error  { s.rd.setDeadline(t); return nil }
func (s *sock) SetWriteDeadline(t time.Time) error { s.wr.setDeadline(t); return nil }

func (s *sock) Read(p []byte) (int, error) {
	s.inUse.RLock()
	defer s.inUse.RUnlock()
	for {
		if s.closed.Load() {
			return 0, os.ErrClosed
		}
		if err := s.rd.apply(s.fd, unix.SO_RCVTIMEO); err != nil {
			return 0, err
		}
		n, err := unix.Read(s.fd, p)
		switch {
		case err == unix.EINTR || err == unix.EAGAIN: // a signal, or the timeout: apply decides
			continue
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0 && len(p) > 0 && s.closed.Load():
			return 0, os.ErrClosed
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

func (s *sock) Write(p []byte) (int, error) {
	s.inUse.RLock()
	defer s.inUse.RUnlock()
	done := 0
	for done < len(p) {
		if s.closed.Load() {
			return done, os.ErrClosed
		}
		if err := s.wr.apply(s.fd, unix.SO_SNDTIMEO); err != nil {
			return done, err
		}
		n, err := unix.SendmsgN(s.fd, p[done:], nil, nil, unix.MSG_NOSIGNAL)
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
			continue
		case err != nil:
			return done, os.NewSyscallError("write", err)
		}
		done += n
	}
	return done, nil
}

// Close wakes every call on the socket, waits until they have left it, and frees it.
func (s *sock) Close() error {
	if s.closed.Swap(true) {
		return os.ErrClosed
	}
	// It fails if the peer has gone already; then no call is blocked.
	_ = unix.Shutdown(s.fd, unix.SHUT_RDWR)
	s.inUse.Lock()
	defer s.inUse.Unlock()
	return os.NewSyscallError("close", unix.Close(s.fd))
}
