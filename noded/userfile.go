package noded

import (
	"errors"
	"io"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/noded/asuser"
)

// userfile.go writes lines for the user into a job's standard error file: why it was ended, that it ran out of memory.
// It also reads the end of a job's output.
//
// The file is the user's, so it is opened with the user's rights: a link in its place can't lead to a file that the
// user could not write. In Linux, rights belong to threads: the goroutine that takes the user's rights locks its thread
// and ends with it, so no other goroutine ever runs with these rights. A dead file server blocks only that thread.

const (
	tellTimeout = 2 * time.Second // for a file to be written or read, before the job's end goes on without it
	maxTellers  = 32              // most threads that may hang in users' file systems at once
)

// Why asUser gave up.
var (
	errCrowded = errors.New("too many reads and writes of users' files hang")
	errHangs   = errors.New("the user's file system hangs")
)

// tellUser adds a line to the job's standard error. It waits for at most tellTimeout.
func (n *Noded) tellUser(rec *launched, line string) {
	if rec == nil || rec.StdErr == "" {
		return
	}
	_, err := n.asUser(rec, func() ([]byte, error) { return nil, appendTo(rec.StdErr, line+"\n") })
	switch {
	case errors.Is(err, errCrowded):
		n.log.Warn("too many writes to users' files hang; a message for a user is lost", "job", rec.Job, "file", rec.StdErr,
			"line", line)
	case errors.Is(err, errHangs):
		n.log.Warn("the write to a user's file hangs; a message for the user may be lost", "job", rec.Job, "file", rec.StdErr)
	case err != nil:
		n.log.Info("a message for the user was not written", "job", rec.Job, "file", rec.StdErr, "err", err)
	}
}

// asUser calls f with the rights of a job's user, and waits for at most tellTimeout.
func (n *Noded) asUser(rec *launched, f func() ([]byte, error)) ([]byte, error) {
	return within(n, func() ([]byte, error) {
		if err := n.becomeUser(rec.UID, rec.GID, rec.Groups); err != nil {
			return nil, err
		}
		return f()
	})
}

// statWithin describes an open file of a user, whose server may not answer.
func (n *Noded) statWithin(f *os.File) (os.FileInfo, error) { return within(n, f.Stat) }

// within calls f, which touches a user's file, on a goroutine of its own, and waits for at most tellTimeout.
func within[T any](n *Noded, f func() (T, error)) (got T, err error) {
	select {
	case n.tellers <- struct{}{}:
	default:
		return got, errCrowded
	}
	type result struct {
		got T
		err error
	}
	done := make(chan result, 1)
	// The goroutine ends when f does; tellers counts it until then.
	go func() {
		var r result
		r.got, r.err = f()
		<-n.tellers
		done <- r
	}()
	late := time.NewTimer(tellTimeout)
	defer late.Stop()
	select {
	case r := <-done:
		return r.got, r.err
	case <-late.C:
		return got, errHangs
	}
}

// becomeUser gives a job's user's rights to the calling goroutine, which must end soon: its thread ends with it.
func (n *Noded) becomeUser(uid, gid uint32, groups []uint32) error {
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	if !n.root {
		return nil
	}
	return asuser.OnThread(uid, gid, n.given(uid, groups))
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

// makeFileAs makes a file as a job's user, or empties it. Where the file system hangs, or those of too many users
// do, it leaves the file to the next program that opens it.
func (n *Noded) makeFileAs(s *model.Spec, umask uint32, path string) error {
	_, err := within(n, func() (none struct{}, err error) {
		if err := n.becomeUser(s.UID, s.GID, s.Groups); err != nil {
			return none, err
		}
		mode := uint32(0o666)
		if unix.Unshare(unix.CLONE_FS) == nil { // else this daemon's umask counts too
			unix.Umask(int(umask))
		} else {
			mode &^= umask
		}
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC,
			mode)
		if err != nil {
			return none, &os.PathError{Op: "open", Path: path, Err: err}
		}
		return none, unix.Close(fd)
	})
	switch {
	case errors.Is(err, errCrowded), errors.Is(err, errHangs): // whoever opens it next waits for it
		return nil
	}
	return err
}
