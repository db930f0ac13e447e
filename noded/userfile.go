package noded

import (
	"errors"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/noded/asuser"
)

// userfile.go writes lines for the user into a job's standard error file: why it was ended, that it ran out of memory.
//
// The file is the user's, so it is opened with the user's rights: a link in its place can't lead to a file that the
// user could not write. In Linux, rights belong to threads: the goroutine that takes the user's rights locks its thread
// and ends with it, so no other goroutine ever runs with these rights. A dead file server blocks only that thread.

const (
	tellTimeout = 2 * time.Second // for the line to be written, before the job's end goes on without it
	maxTellers  = 32              // most threads that may hang in users' file systems at once
)

// tellUser adds a line to the job's standard error. It waits for at most tellTimeout.
func (n *Noded) tellUser(rec *launched, line string) {
	if rec == nil || rec.StdErr == "" {
		return
	}
	select {
	case n.tellers <- struct{}{}:
	default:
		n.log.Warn("too many writes to users' files hang; a message for a user is lost", "job", rec.Job, "file", rec.StdErr,
			"line", line)
		return
	}
	done := make(chan error, 1)
	// The goroutine ends when the write does; tellers counts it until then.
	go func() {
		err := n.appendAs(rec, line+"\n")
		<-n.tellers
		done <- err
	}()
	late := time.NewTimer(tellTimeout)
	defer late.Stop()
	select {
	case err := <-done:
		if err != nil {
			n.log.Info("a message for the user was not written", "job", rec.Job, "file", rec.StdErr, "err", err)
		}
	case <-late.C:
		n.log.Warn("the write to a user's file hangs; a message for the user may be lost", "job", rec.Job, "file", rec.StdErr)
	}
}

// appendAs opens the job's standard error as its user and appends text. It must run on a goroutine of its own.
func (n *Noded) appendAs(rec *launched, text string) error {
	if n.root {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := asuser.OnThread(rec.UID, rec.GID, n.given(rec.UID, rec.Groups)); err != nil {
			return err
		}
	}
	// No O_CREAT: gshim has created it, and a user who has removed it does not want it back. O_NONBLOCK: a FIFO without
	// a reader is an error and not a wait.
	fd, err := unix.Open(rec.StdErr, unix.O_WRONLY|unix.O_APPEND|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: rec.StdErr, Err: err}
	}
	_, err = unix.Write(fd, []byte(text))
	return errors.Join(err, unix.Close(fd))
}

// makeFileAs makes a file as a job's user, or empties it. If that hangs, it gives up after makeFileFor and leaves the
// file to the next program that opens it.
func (n *Noded) makeFileAs(s *model.Spec, umask uint32, path string) error {
	done := make(chan error, 1)
	go func() {
		if n.root {
			runtime.LockOSThread() // as in appendAs
			if err := asuser.OnThread(s.UID, s.GID, n.given(s.UID, s.Groups)); err != nil {
				done <- err
				return
			}
		}
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC,
			0o666&^umask)
		if err != nil {
			done <- &os.PathError{Op: "open", Path: path, Err: err}
			return
		}
		done <- unix.Close(fd)
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(makeFileFor):
		return nil
	}
}

// makeFileFor is how long a worker waits for a user's file system.
const makeFileFor = 5 * time.Second
