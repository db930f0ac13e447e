package receive

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// pieceBytes is the most that is in memory at once.
const pieceBytes = 1 << 20

// Main takes a file in and gives the exit code.
func Main(args []string, in io.Reader, stderr io.Writer) int {
	o, err := parse(args)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "gshim "+Word+":", err) // the exit status says it too
		return 2
	}
	signal.Ignore(unix.SIGXFSZ) // the write fails, which is told
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	t := &taking{Order: o}
	done := make(chan error, 1)
	go func() { done <- t.take(in) }()
	select {
	case err = <-done:
	case <-stopped:
		t.drop()
		return 1
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "%s: error: %s: %s: %v\n", o.Program, o.Node, o.Path, reason(err)) // as above
		return 1
	}
	return 0
}

// reason gives the cause of a file's error, without its name.
func reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	var l *os.LinkError
	if errors.As(err, &l) {
		return l.Err
	}
	return err
}

// taking is the transfer of one file.
type taking struct {
	Order
	own string // the file that is being written; "": there is none
}

// drop removes what has been written.
func (t *taking) drop() {
	if t.own != "" {
		_ = os.Remove(t.own) // it may be at its destination already
	}
}

// take reads the file and puts it to its place.
func (t *taking) take(in io.Reader) (err error) {
	if err := t.look(); err != nil {
		return err
	}
	var salt [8]byte
	if _, err := rand.Read(salt[:]); err != nil {
		return err
	}
	t.own = filepath.Join(filepath.Dir(t.Path), ".gbcast-"+hex.EncodeToString(salt[:]))
	defer func() {
		if err != nil {
			t.drop()
		}
	}()
	f, err := os.OpenFile(t.own, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		t.own = ""
		return err
	}
	if err := t.fill(f, in); err != nil {
		_ = f.Close() // that error is told
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return t.place()
}

// look refuses what can't end well, before the file comes.
func (t *taking) look() error {
	var st unix.Stat_t
	switch err := unix.Lstat(t.Path, &st); {
	case err != nil && err != unix.ENOENT:
		return err
	case err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return unix.EISDIR
	case err == nil && !t.Force && !t.fresh(&st):
		return unix.EEXIST
	}
	dir := filepath.Dir(t.Path)
	var room unix.Statfs_t
	if err := unix.Statfs(dir, &room); err != nil {
		return err
	}
	if has := room.Bavail * uint64(room.Bsize); t.Size > 0 && uint64(t.Size) > has {
		return fmt.Errorf("%w: the file has %d bytes, %s has room for %d", unix.ENOSPC, t.Size, dir, has)
	}
	return nil
}

// fresh reports whether a file of this user came into being during the transfer. Nodes that share a host (virtual ones)
// have one destination together, where the first that is done puts it.
func (t *taking) fresh(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFREG && int(st.Uid) == os.Geteuid() &&
		time.Unix(st.Ctim.Unix()).UnixMilli() >= t.Began
}

// fill writes the file with everything that belongs to it.
func (t *taking) fill(f *os.File, in io.Reader) error {
	fd := int(f.Fd())
	if t.Size > 0 { // quotas and limits are met now and not at the end
		switch err := unix.Fallocate(fd, 0, 0, t.Size); err {
		case nil, unix.EOPNOTSUPP, unix.ENOSYS, unix.EINVAL, unix.EINTR:
		default:
			return err
		}
	}
	n, err := io.CopyBuffer(f, onlyReader{io.LimitReader(in, t.Size)}, make([]byte, pieceBytes))
	if err != nil {
		return err
	}
	if n < t.Size {
		return fmt.Errorf("the transfer was cut off after %d of %d bytes", n, t.Size)
	}
	if n, err := in.Read(make([]byte, 1)); n > 0 || err == nil {
		return errors.New("the file has grown while it was sent")
	}
	if err := unix.Fchmod(fd, t.Mode); err != nil {
		return err
	}
	if !t.Keep {
		return nil
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, t.own, []unix.Timespec{unix.NsecToTimespec(t.ATime),
		unix.NsecToTimespec(t.MTime)}, unix.AT_SYMLINK_NOFOLLOW)
}

// onlyReader hides what else a reader can do, so that the buffer is used.
type onlyReader struct{ io.Reader }

// place gives the file its name.
func (t *taking) place() error {
	if t.Force {
		return os.Rename(t.own, t.Path)
	}
	err := unix.Renameat2(unix.AT_FDCWD, t.own, unix.AT_FDCWD, t.Path, unix.RENAME_NOREPLACE)
	if err == unix.EINVAL || err == unix.ENOSYS { // the file system has no such call
		if err = unix.Link(t.own, t.Path); err == nil {
			return os.Remove(t.own)
		}
	}
	if err == unix.EEXIST && t.same() {
		return os.Remove(t.own)
	}
	return err
}

// same reports whether the transfer to another node of this host has put the same file there.
func (t *taking) same() bool {
	there, err := os.OpenFile(t.Path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer there.Close() //nolint:errcheck // it was only read
	var st unix.Stat_t
	if unix.Fstat(int(there.Fd()), &st) != nil || !t.fresh(&st) || st.Size != t.Size {
		return false
	}
	own, err := os.Open(t.own)
	if err != nil {
		return false
	}
	defer own.Close() //nolint:errcheck // as above
	return equal(there, own)
}

// equal compares what is read.
func equal(a, b io.Reader) bool {
	pa, pb := make([]byte, pieceBytes), make([]byte, pieceBytes)
	for {
		na, ea := io.ReadFull(a, pa)
		nb, eb := io.ReadFull(b, pb)
		if !bytes.Equal(pa[:na], pb[:nb]) {
			return false
		}
		if ea != nil || eb != nil {
			end := func(err error) bool { return err == io.EOF || err == io.ErrUnexpectedEOF }
			return end(ea) && end(eb)
		}
	}
}
