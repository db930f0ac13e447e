package client

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"gbatch/internal/plain"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// steps.go is a command's side of the conversation about a step, on a socket of the job's node.
//
//	command                    daemon
//	StepRequest         ->
//	                    <-     StepWaits*, then StepCreated or StepRefused
//	StepFiles and files ->
//	StepSignal*         ->
//	                    <-     StepStarted, StepExited for each task, StepLine; at the end StepDone

// ErrNoSteps says that the node is not this host, or runs no daemon.
var ErrNoSteps = errors.New("no daemon of that node is on this host")

// Steps is one conversation. One goroutine may read, any number write.
type Steps struct {
	fd  int
	wmu sync.Mutex
}

// DialSteps connects to the daemon of a node of this host whose sockets are in dir.
func DialSteps(dir, node string) (*Steps, error) {
	path := filepath.Join(dir, proto.StepSocket(node))
	name, release, err := rpc.SocketAddr(path)
	if err != nil {
		return nil, err
	}
	defer release()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		_ = unix.Close(fd) // it was never connected
		if err == unix.ENOENT || err == unix.ECONNREFUSED {
			return nil, fmt.Errorf("%w: %s: %w", ErrNoSteps, path, err)
		}
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return &Steps{fd: fd}, nil
}

// Close ends the conversation, and with it a running step. It wakes a reader.
func (s *Steps) Close() {
	_ = unix.Shutdown(s.fd, unix.SHUT_RDWR) // fails if the peer has gone already
}

// Free closes the descriptor, once no goroutine reads from it.
func (s *Steps) Free() { _ = unix.Close(s.fd) }

// Send writes one message, followed by open files.
func (s *Steps) Send(kind uint8, m proto.Message, files []int) error {
	b, err := proto.Append([]byte{kind, 0, 0, 0, 0}, m)
	if err != nil {
		return err
	}
	if len(b)-5 > proto.MaxStepFrame {
		return fmt.Errorf("the request has %d bytes, at most %d can be sent; is the environment that large?", len(b),
			proto.MaxStepFrame)
	}
	binary.LittleEndian.PutUint32(b[1:], uint32(len(b)-5))
	s.wmu.Lock()
	defer s.wmu.Unlock()
	for len(b) > 0 {
		n, err := unix.SendmsgN(s.fd, b, nil, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return os.NewSyscallError("write", err)
		}
		b = b[n:]
	}
	for len(files) > 0 {
		n := min(len(files), proto.MaxStepFDs)
		if err := s.sendFiles(files[:n]); err != nil {
			return err
		}
		files = files[n:]
	}
	return nil
}

func (s *Steps) sendFiles(files []int) error {
	for {
		_, err := unix.SendmsgN(s.fd, []byte{0}, unix.UnixRights(files...), nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		return os.NewSyscallError("sendmsg", err)
	}
}

// Read waits for the next event; io.EOF if the daemon has gone.
func (s *Steps) Read() (*proto.StepEvent, error) {
	head := make([]byte, 5)
	if err := s.full(head); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if head[0] != proto.StepFrameEvent || n > proto.MaxStepFrame {
		return nil, fmt.Errorf("the daemon sent a message of kind %d with %d bytes", head[0], n)
	}
	body := make([]byte, n)
	if err := s.full(body); err != nil {
		return nil, err
	}
	ev := new(proto.StepEvent)
	err := proto.Decode(body, ev)
	ev.Text = plain.Lines(ev.Text) // the rest becomes a step's environment
	return ev, err
}

func (s *Steps) full(b []byte) error {
	for len(b) > 0 {
		n, err := unix.Read(s.fd, b)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return os.NewSyscallError("read", err)
		case n == 0:
			return io.EOF
		}
		b = b[n:]
	}
	return nil
}
