package noded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/asuser"
)

// userfile.go writes lines for the user into a job's standard error file: why it was ended, that it ran out of memory.
// It also reads the end of a job's output, for itself and for the job's user.
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

// openRegular opens a user's file for reading; f is nil if it is no regular one.
func openRegular(path string) (f *os.File, st os.FileInfo, err error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f = os.NewFile(uintptr(fd), path)
	if st, err = f.Stat(); err == nil && st.Mode().IsRegular() {
		return f, st, nil
	}
	_ = f.Close() // nothing was written
	return nil, st, err
}

// tailOf reads the end of a regular file; of any other file it gives nothing.
func tailOf(path string, from, most int64) ([]byte, error) {
	f, st, err := openRegular(path)
	if f == nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.NewSectionReader(f, max(from, st.Size()-most), most))
}

// readTail reads the end of a file of a job's user for the leader. The job may have ended, so the order says whose it
// is: with this user's rights the leader could as well run a job here that reads it.
func (n *Noded) readTail(ask *proto.NodeAsk) *proto.NodeAnswer {
	t := ask.Tail
	end, err := asuser.Within(n.tellers, t.UID, tellTimeout, func() (*proto.TailEnd, error) {
		if err := asuser.Become(t.UID, t.GID, n.given(t.UID, t.Groups)); err != nil {
			return nil, err
		}
		return endOf(t.File, proto.MaxTail)
	})
	a := &proto.NodeAnswer{ID: ask.ID, Tail: end}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		a.Failed = "there is no file " + t.File
	case err != nil:
		a.Failed = err.Error()
	}
	return a
}

// endOf reads the end of a regular file. Files of /proc, of which nobody knows the size, are empty to it: with these
// rights they could be this daemon's.
func endOf(path string, most int64) (*proto.TailEnd, error) {
	f, st, err := openRegular(path)
	switch {
	case err != nil:
		return nil, err
	case f == nil:
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	defer f.Close()
	most = min(most, st.Size())
	text, err := io.ReadAll(io.NewSectionReader(f, st.Size()-most, most))
	if err != nil {
		return nil, err
	}
	return &proto.TailEnd{Text: text, Size: st.Size(), Written: model.Time(st.ModTime().UnixMilli())}, nil
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
