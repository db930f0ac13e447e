// Package rootfile opens, for daemons that run as root, what users may have prepared: a name in a
// world-writable directory, a program that a user has named. Such a name may be a link to anything,
// a FIFO whose open waits for ever, or a device whose open does something.
//
// What users' own rights decide about (output files, scripts of jobs) is opened by processes and
// threads that have these rights, and not here. A daemon's own files are in directories that only
// root can write to. internal/archtest has the list of both; everything else comes here.
package rootfile

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Readable opens a regular file that every user may read, or that is uid's own and which uid may read. What else the
// name stands for is never opened: the error is os.ErrPermission for a device, a FIFO, a directory, and others' files.
func Readable(path string, uid uint32) (*os.File, error) {
	at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(at) //nolint:errcheck // it was only a name
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	own := st.Uid == uid && st.Mode&0o400 != 0
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o004 == 0 && !own {
		return nil, &os.PathError{Op: "open", Path: path, Err: os.ErrPermission}
	}
	// The same file, whatever the name has become.
	const flags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", at), flags, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Writable reports why nothing could be made in a directory: it is none, or its file system is read-only. It makes
// nothing there. It may hang where the file system does.
func Writable(dir string) error {
	if err := unix.Access(dir+"/.", unix.W_OK); err != nil {
		return &os.PathError{Op: "write", Path: dir, Err: err}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		return &os.PathError{Op: "write", Path: dir, Err: unix.EROFS}
	}
	return nil
}
