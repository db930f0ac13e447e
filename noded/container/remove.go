package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// maxDeep is how deep removing goes; what is deeper is moved up first.
	maxDeep = 64
	// atOnce is how many names of a directory are read at once.
	atOnce = 1024
)

// Empty removes everything in a directory. Trees of users are hostile: links aren't followed, other file systems aren't
// entered, and the depth of a tree costs no descriptors.
func Empty(ctx context.Context, dir string) error {
	top, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer top.Close() //nolint:errcheck // it was only read
	var st unix.Stat_t
	if err := unix.Fstat(int(top.Fd()), &st); err != nil {
		return err
	}
	r := &remover{ctx: ctx, top: top, dev: st.Dev}
	for r.again = true; r.again; {
		r.again = false
		if _, err := top.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if err := r.all(top, 0); err != nil {
			return err
		}
	}
	return nil
}

type remover struct {
	ctx   context.Context
	top   *os.File
	dev   uint64
	again bool // something was moved to the top
}

// all removes what is in dir, which is deep directories below the top.
func (r *remover) all(dir *os.File, deep int) error {
	var errs []error
	for {
		names, err := dir.Readdirnames(atOnce)
		for _, name := range names {
			if r.ctx.Err() != nil {
				return r.ctx.Err()
			}
			if err := r.one(dir, name, deep); err != nil {
				errs = append(errs, err)
			}
		}
		if errors.Is(err, io.EOF) || len(names) == 0 {
			return errors.Join(errs...)
		}
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		if len(errs) > maxDeep {
			return errors.Join(errs...)
		}
	}
}

// one removes a name in dir.
func (r *remover) one(dir *os.File, name string, deep int) error {
	at := int(dir.Fd())
	err := unix.Unlinkat(at, name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM {
		return &os.PathError{Op: "remove", Path: name, Err: err}
	}
	if err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR); err == nil || err == unix.ENOENT {
		return nil
	}
	if deep >= maxDeep {
		r.again = true
		return unix.Renameat(at, name, int(r.top.Fd()), fmt.Sprintf("deep.%016x", rand.Uint64()))
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	sub := os.NewFile(uintptr(fd), name)
	defer sub.Close() //nolint:errcheck // it was only read
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Dev != r.dev {
		return fmt.Errorf("%s is on another file system", name)
	}
	if err := r.all(sub, deep+1); err != nil {
		return err
	}
	if err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR); err != nil && err != unix.ENOENT {
		return &os.PathError{Op: "rmdir", Path: name, Err: err}
	}
	return nil
}
