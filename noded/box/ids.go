package box

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ids.go shows an image's files, which belong to nobody, as a user's: a mount that maps ids takes its map from a user
// namespace. The namespace needs a process only while it is made.

// stored is whose the files of images are in the cache.
const stored = 65534

// maxSpaces bounds the user namespaces that are kept, one for each user.
const maxSpaces = 256

type ids struct {
	mu   sync.Mutex
	open map[[2]uint32]int // descriptors of user namespaces
}

// of gives a descriptor of a user namespace that maps stored to a user; it stays the receiver's.
func (i *ids) of(uid, gid uint32) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	key := [2]uint32{uid, gid}
	if fd, ok := i.open[key]; ok {
		return fd, nil
	}
	if len(i.open) >= maxSpaces {
		i.drop()
	}
	fd, err := newSpace(uid, gid)
	if err != nil {
		return -1, err
	}
	if i.open == nil {
		i.open = map[[2]uint32]int{}
	}
	i.open[key] = fd
	return fd, nil
}

func (i *ids) drop() {
	for _, fd := range i.open {
		_ = unix.Close(fd) // it was only a name
	}
	i.open = nil
}

func (i *ids) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.drop()
}

// newSpace makes a user namespace. Its process is stopped before it runs anything, and ends at once.
func newSpace(uid, gid uint32) (int, error) {
	type answer struct {
		fd  int
		err error
	}
	done := make(chan answer, 1)
	go func() {
		runtime.LockOSThread() // the tracer is a thread; it ends with the goroutine
		cmd := exec.Command("/proc/self/exe")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, Ptrace: true, Pdeathsig: syscall.SIGKILL,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: stored, HostID: int(uid), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: stored, HostID: int(gid), Size: 1}}}
		if err := cmd.Start(); err != nil {
			done <- answer{-1, fmt.Errorf("make a user namespace: %w", err)}
			return
		}
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			err = &os.PathError{Op: "open", Path: "a user namespace", Err: err}
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		done <- answer{fd, err}
	}()
	a := <-done
	return a.fd, a.err
}
