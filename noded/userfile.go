package noded

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/noded/asuser"
)

// userfile.go writes lines for the user into a job's standard error file: why it was ended, that it ran out of memory.
// It also reads the end of a job's output.
//
// The file is the user's, so it is opened with the user's rights (package asuser): a link in its place can't lead to a
// file that the user could not write. A dead file server blocks one of a bounded number of threads.

const (
	tellTimeout = 2 * time.Second // for a file to be written or read, before the job's end goes on without it
	maxTellers  = 32              // most threads that may hang in users' file systems at once
	eachTellers = 8               // and of these in one user's
)

// tellUser adds a line to the job's standard error. It waits for at most tellTimeout.
func (n *Noded) tellUser(rec *launched, line string) {
	if rec == nil || rec.StdErr == "" {
		return
	}
	_, err := n.asUser(rec, func() ([]byte, error) { return nil, appendTo(rec.StdErr, line+"\n") })
	switch {
	case errors.Is(err, asuser.ErrCrowded):
		n.log.Warn("too many writes to users' files hang; a message for a user is lost", "job", rec.Job, "file", rec.StdErr,
			"line", line)
	case errors.Is(err, asuser.ErrHangs):
		n.log.Warn("the write to a user's file hangs; a message for the user may be lost", "job", rec.Job, "file", rec.StdErr)
	case err != nil:
		n.log.Info("a message for the user was not written", "job", rec.Job, "file", rec.StdErr, "err", err)
	}
}

// asUser calls f with the rights of a job's user, and waits for at most tellTimeout.
func (n *Noded) asUser(rec *launched, f func() ([]byte, error)) ([]byte, error) {
	return asuser.Within(n.tellers, rec.UID, tellTimeout, func() ([]byte, error) {
		if err := asuser.Become(rec.UID, rec.GID, n.given(rec.UID, rec.Groups)); err != nil {
			return nil, err
		}
		return f()
	})
}

// statWithin describes an open file of a user, whose server may not answer.
func (n *Noded) statWithin(uid uint32, f *os.File) (os.FileInfo, error) {
	return asuser.Within(n.tellers, uid, tellTimeout, f.Stat)
}

// appendTo appends text to a file.
func appendTo(path, text string) error {
	// No O_CREAT: gshim has created it, and a user who has removed it does not want it back. O_NONBLOCK: a FIFO without
	// a reader is an error and not a wait.
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_APPEND|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	_, err = unix.Write(fd, []byte(text))
	return errors.Join(err, unix.Close(fd))
}

// tailOf reads the end of a regular file; of any other file it gives nothing.
func tailOf(path string, from, most int64) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, max(from, st.Size()-most), most))
}

// openFileAs opens a file for output as a job's user, and makes it if it is not there.
func (n *Noded) openFileAs(s *model.Spec, umask uint32, path string, flags int) (*os.File, error) {
	return asuser.Within(n.tellers, s.UID, tellTimeout, func() (*os.File, error) {
		return n.openAsUser(s, umask, path, flags)
	})
}

// openAsUser is openFileAs on a goroutine that ends with it.
func (n *Noded) openAsUser(s *model.Spec, umask uint32, path string, flags int) (*os.File, error) {
	if err := asuser.Become(s.UID, s.GID, n.given(s.UID, s.Groups)); err != nil {
		return nil, err
	}
	mode := uint32(0o666)
	if unix.Unshare(unix.CLONE_FS) == nil { // else this daemon's umask counts too
		unix.Umask(int(umask))
	} else {
		mode &^= umask
	}
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC|flags, mode)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// makeFileAs makes a file as a job's user, or empties it. Where the file system hangs, or those of too many users
// do, it leaves the file to the next program that opens it.
func (n *Noded) makeFileAs(s *model.Spec, umask uint32, path string) error {
	_, err := asuser.Within(n.tellers, s.UID, tellTimeout, func() (none struct{}, err error) {
		f, err := n.openAsUser(s, umask, path, unix.O_TRUNC)
		if err != nil {
			return none, err
		}
		return none, f.Close()
	})
	switch {
	case errors.Is(err, asuser.ErrCrowded), errors.Is(err, asuser.ErrHangs): // whoever opens it next waits for it
		return nil
	}
	return err
}
