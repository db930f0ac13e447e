package shim

// rights.go receives the open files of launches (SCM_RIGHTS), and closes them. They are users': to close one may take
// as long as its server, or who reads from it, likes. No order waits for that, and no other user's files.

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// maxRights is how many descriptors may have arrived without a frame that names them.
const maxRights = 64

// rightsReader reads a connection and keeps the descriptors that arrive with its bytes, in order. The kernel ends a
// read behind bytes that came with descriptors, so they are never more than those of the frames that are being read.
type rightsReader struct {
	nc  *net.UnixConn
	oob [256]byte
	fds []int
}

func (r *rightsReader) Read(p []byte) (int, error) {
	n, oobn, flags, _, err := r.nc.ReadMsgUnix(p, r.oob[:])
	if oobn > 0 {
		if perr := r.parse(r.oob[:oobn]); perr != nil {
			return 0, perr
		}
	}
	switch {
	case err != nil:
		return max(n, 0), err
	case flags&unix.MSG_CTRUNC != 0:
		return n, errors.New("more descriptors at once than are taken")
	case len(r.fds) > maxRights:
		return n, fmt.Errorf("%d descriptors that no order asks for", len(r.fds))
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

func (r *rightsReader) parse(oob []byte) error {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return err
	}
	for i := range msgs {
		if fds, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			r.fds = append(r.fds, fds...)
		}
	}
	return nil
}

// give returns the descriptors that an order names.
func (r *rightsReader) give(o *order) error {
	for i := range o.launch.Passed {
		if o.passed&(1<<i) == 0 {
			continue
		}
		if len(r.fds) == 0 {
			o.launch.closePassed()
			return fmt.Errorf("%v names descriptor %d and none came with it", o.launch.Key, i)
		}
		o.launch.Passed[i] = os.NewFile(uintptr(r.fds[0]), "passed")
		r.fds = r.fds[1:]
	}
	return nil
}

func (r *rightsReader) close() {
	for _, fd := range r.fds {
		_ = unix.Close(fd) // unused
	}
	r.fds = nil
}

// fdOf returns a file's descriptor, -1 if the file is closed. Unlike Fd it does not make the file blocking, which would
// hold for every process that has it open.
func fdOf(f *os.File) int {
	out := -1
	raw, err := f.SyscallConn()
	if err != nil || raw.Control(func(fd uintptr) { out = int(fd) }) != nil {
		return -1
	}
	return out
}

const (
	// maxClosers is how many goroutines close files of one user at once; one that hangs holds a thread.
	maxClosers = 8
	// maxUnclosed is how many launches of a user may have files that wait for them. Further launches of that user wait,
	// with their files, like others of more than the user's share: gnoded bounds how many files of a user are on the way.
	maxUnclosed = 64
)

// closers has the files that are being closed, by users. Its zero value is ready.
type closers struct {
	freed func(uid uint32) // is told that files of a user were closed; nil: nobody is

	mu    sync.Mutex
	users map[uint32]*closing
}

// closing are the files of one user.
type closing struct {
	hands int // goroutines that close them
	wait  [][PassedFiles]*os.File
}

// drop closes a launch's files.
func (c *closers) drop(uid uint32, files [PassedFiles]*os.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.users[uid]
	if u == nil {
		if c.users == nil {
			c.users = map[uint32]*closing{}
		}
		u = &closing{}
		c.users[uid] = u
	}
	u.wait = append(u.wait, files)
	if u.hands < maxClosers {
		u.hands++
		go c.work(uid, u) // it ends with the files
	}
}

func (c *closers) work(uid uint32, u *closing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(u.wait) > 0 {
		own := &Launch{Passed: u.wait[0]}
		u.wait[0] = [PassedFiles]*os.File{}
		u.wait = u.wait[1:]
		c.mu.Unlock()
		own.closePassed()
		if c.freed != nil {
			c.freed(uid)
		}
		c.mu.Lock()
	}
	if u.hands--; u.hands == 0 {
		delete(c.users, uid)
	}
}

// open gives a user whose files are being closed.
func (c *closers) open() (uid uint32, some bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid := range c.users {
		return uid, true
	}
	return 0, false
}

// late reports whether so many of a user's files hang that launches wait.
func (c *closers) late(uid uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.users[uid]
	return u != nil && len(u.wait) >= maxUnclosed
}

// dropPassed closes the files that came with an order.
func (s *server) dropPassed(l *Launch) {
	if l.Passed == [PassedFiles]*os.File{} {
		return
	}
	s.closers.drop(l.UID, l.Passed)
	l.Passed = [PassedFiles]*os.File{}
}

// closePassed closes the files that came with an order. Only the server calls it: a client keeps its own.
func (l *Launch) closePassed() {
	for i, f := range l.Passed {
		if f != nil {
			_ = f.Close() // the process has its own by now, or never will
			l.Passed[i] = nil
		}
	}
}
