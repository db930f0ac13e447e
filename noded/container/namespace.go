package container

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// inNewNamespace runs fill in a new mount namespace, then hold with the namespace's file in the present one. The new
// namespace belongs to a thread that ends afterwards: no other goroutine ever runs in it.
func inNewNamespace(fill func() error, hold func(ns string) error) error {
	filled, tid, held := make(chan error, 1), make(chan int, 1), make(chan struct{})
	ended := make(chan struct{})
	go onThreadOfItsOwn(func() {
		defer close(ended)
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = fill()
		}
		filled <- err
		if err == nil {
			tid <- unix.Gettid()
			<-held
		}
	})
	err := <-filled
	if err == nil {
		err = hold(fmt.Sprintf("/proc/self/task/%d/ns/mnt", <-tid))
		close(held)
	}
	<-ended
	return err
}

// onThreadOfItsOwn runs f on a thread that ends with it: never on the first one, which can't end, and whose namespace
// is what /proc/self shows.
func onThreadOfItsOwn(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() { // while this thread is taken
		defer close(done)
		onThreadOfItsOwn(f)
	}()
	<-done
	runtime.UnlockOSThread()
}

// fill mounts a container's directories in the present namespace.
func (s *Store) fill(name string) error {
	how := uintptr(unix.MS_PRIVATE)
	if s.o.Shared {
		how = unix.MS_SLAVE
	}
	if err := unix.Mount("", "/", "", how|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("cut off the mounts: %w", err)
	}
	// All are opened first: a mount may hide the next one's source.
	var open []place
	defer func() {
		for _, p := range open {
			_ = unix.Close(p.fd) // it was only a name
		}
	}()
	take := func(from, at string) error {
		fd, err := unix.Open(from, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: from, Err: err}
		}
		open = append(open, place{at, fd})
		return nil
	}
	for i, dir := range s.o.Dirs {
		if err := take(s.source(name, i), dir); err != nil {
			return err
		}
	}
	for _, dir := range s.o.Keep {
		if !s.hides(dir) {
			continue
		}
		if err := take(dir, dir); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	for i, p := range open {
		mount := p.keep
		if i < len(s.o.Dirs) {
			mount = func() error { return s.mountOne(p) }
		}
		if err := mount(); err != nil {
			return fmt.Errorf("mount %s: %w", p.at, err)
		}
	}
	return nil
}

// place is a directory that is to be mounted.
type place struct {
	at string
	fd int // of what is mounted there
}

func (p place) source() string { return fmt.Sprintf("/proc/thread-self/fd/%d", p.fd) }

// mountOne mounts one directory of a container. Files there are no devices and change nobody's rights.
func (s *Store) mountOne(p place) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV
	if p.at == shm {
		return unix.Mount("tmpfs", p.at, "tmpfs", flags, fmt.Sprintf("mode=1777,size=%d", s.shmSize))
	}
	if err := unix.Mount(p.source(), p.at, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return unix.Mount("", p.at, "", unix.MS_REMOUNT|unix.MS_BIND|flags, "")
}

// hides reports whether a path is below one of the container's directories.
func (s *Store) hides(path string) bool {
	for _, d := range s.o.Dirs {
		if strings.HasPrefix(path, d+"/") {
			return true
		}
	}
	return false
}

// keep mounts a directory of the node at its own path, which a container's directory hides.
func (p place) keep() error {
	if err := os.MkdirAll(p.at, 0o755); err != nil {
		return err
	}
	return unix.Mount(p.source(), p.at, "", unix.MS_BIND, "")
}
