package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// unpack.go writes the layers of an image below a directory. Layers are hostile: their names may have .., begin with /,
// or go through links that an earlier entry has made.

const (
	maxNamePath = 4096
	blockBytes  = 4096 // what an entry costs at least
	whiteout    = ".wh."
	opaque      = ".wh..wh..opq"
	maxDepth    = 256 // directories in a name
)

// errRoom says that an image is larger than there is room for.
var errRoom = errors.New("there is no room for the image")

// errHostile begins the errors of images that no builder makes.
var errHostile = errors.New("the image is damaged or hostile")

func hostile(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errHostile, fmt.Sprintf(format, args...))
}

// tree is a directory that is being filled.
type tree struct {
	root     int   // a descriptor of it
	bytes    int64 // as du counts them
	files    int64
	maxBytes int64
	maxFiles int64
	madeHere map[string]bool // by the present layer
}

// layer applies one layer.
func (t *tree) layer(r io.Reader) error {
	t.madeHere = map[string]bool{}
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return hostile("a layer can't be read: %v", err)
		}
		if err := t.entry(h, in); err != nil {
			return err
		}
	}
}

// charge counts what an entry takes.
func (t *tree) charge(bytes int64) error {
	t.files++
	t.bytes += (bytes+blockBytes-1)/blockBytes*blockBytes + blockBytes/8
	if t.files > t.maxFiles {
		return fmt.Errorf("%w: it has more than %d files", errRoom, t.maxFiles)
	}
	return t.room()
}

func (t *tree) room() error {
	if t.bytes > t.maxBytes {
		return fmt.Errorf("%w: it has more than %d bytes", errRoom, t.maxBytes)
	}
	return nil
}

// entry applies one entry of a layer.
func (t *tree) entry(h *tar.Header, content io.Reader) error {
	if len(h.Name) > maxNamePath || strings.IndexByte(h.Name, 0) >= 0 || strings.IndexByte(h.Linkname, 0) >= 0 ||
		strings.Count(h.Name, "/") > maxDepth {
		return hostile("an entry's name has %d bytes", len(h.Name))
	}
	name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
	if name == "" {
		return nil // the root itself
	}
	dir, base := path.Split(name)
	if h.Size < 0 || h.Size > t.maxBytes-t.bytes {
		return fmt.Errorf("%w: it has more than %d bytes", errRoom, t.maxBytes)
	}
	if err := t.charge(0); err != nil { // also for what is removed or left out: reading takes time
		return err
	}
	parent, err := t.open(dir)
	if err != nil {
		return err
	}
	defer unix.Close(parent) //nolint:errcheck // it was only a name
	switch {
	case base == opaque:
		return t.clear(parent, strings.TrimSuffix(dir, "/"))
	case strings.HasPrefix(base, whiteout):
		if base = base[len(whiteout):]; base == "" || base == "." || base == ".." {
			return hostile("the entry %q removes nothing", h.Name)
		}
		return t.remove(parent, base, 0)
	}
	t.madeHere[name] = true
	switch h.Typeflag {
	case tar.TypeDir:
		return t.directory(parent, base, h)
	case tar.TypeReg:
		return t.file(parent, base, h, content)
	case tar.TypeSymlink:
		if len(h.Linkname) >= maxNamePath || h.Linkname == "" {
			return hostile("the link %q leads to a name of %d bytes", h.Name, len(h.Linkname))
		}
		return t.replace(parent, base, func() error { return unix.Symlinkat(h.Linkname, parent, base) })
	case tar.TypeLink:
		return t.link(parent, base, h)
	}
	return nil // devices, FIFOs and what else there is: a container has its own
}

// open gives a descriptor of a directory, which it makes if need be. Links are resolved as in a process that has the
// image as its root.
func (t *tree) open(dir string) (int, error) {
	dir = strings.TrimSuffix(dir, "/")
	if dir == "" {
		return unix.FcntlInt(uintptr(t.root), unix.F_DUPFD_CLOEXEC, 0)
	}
	fd, err := t.below(dir, unix.O_DIRECTORY)
	if err == nil {
		return fd, nil
	}
	if err != unix.ENOENT {
		return -1, hostile("the directory %q: %v", dir, err)
	}
	up, base := path.Split(dir)
	parent, err := t.open(up)
	if err != nil {
		return -1, err
	}
	err = unix.Mkdirat(parent, base, 0o755)
	_ = unix.Close(parent) // it was only a name
	if err == unix.EEXIST {
		return -1, hostile("the directory %q is a link that leads nowhere", dir)
	}
	if err != nil {
		return -1, fmt.Errorf("make the directory %q: %w", dir, err)
	}
	if err := t.charge(0); err != nil {
		return -1, err
	}
	if fd, err = t.below(dir, unix.O_DIRECTORY); err != nil {
		return -1, hostile("the directory %q: %v", dir, err)
	}
	return fd, nil
}

// below opens a name below the root.
func (t *tree) below(name string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | flags,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV}
	for try := 0; ; try++ {
		fd, err := unix.Openat2(t.root, name, &how)
		if err != unix.EAGAIN && err != unix.EINTR || try > 16 {
			return fd, err
		}
	}
}

// replace makes something; what is there already is removed.
func (t *tree) replace(parent int, base string, make func() error) error {
	err := make()
	if err == unix.EEXIST {
		if err = t.remove(parent, base, 0); err == nil {
			err = make()
		}
	}
	if err != nil && !errors.Is(err, errHostile) {
		return fmt.Errorf("make %q: %w", base, err)
	}
	return err
}

func (t *tree) directory(parent int, base string, h *tar.Header) error {
	mode := uint32(h.Mode)&0o1777 | 0o700
	err := unix.Mkdirat(parent, base, mode)
	if err == unix.EEXIST {
		var st unix.Stat_t
		err = unix.Fstatat(parent, base, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			err = t.replace(parent, base, func() error { return unix.Mkdirat(parent, base, mode) })
		}
	}
	if err != nil {
		return fmt.Errorf("make the directory %q: %w", h.Name, err)
	}
	fd, err := unix.Openat(parent, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the directory %q: %w", h.Name, err)
	}
	return errors.Join(unix.Fchmod(fd, mode), unix.Close(fd)) // whatever the umask
}

func (t *tree) file(parent int, base string, h *tar.Header, content io.Reader) error {
	if err := t.charge(h.Size); err != nil {
		return err
	}
	fd := -1
	err := t.replace(parent, base, func() (err error) {
		fd, err = unix.Openat(parent, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	n, err := io.CopyN(fdWriter(fd), content, h.Size)
	if err != nil {
		err = fmt.Errorf("write %q (%d of %d bytes): %w", h.Name, n, h.Size, err)
	}
	at := unix.NsecToTimespec(bounded(h.ModTime))
	return errors.Join(err, unix.Fchmod(fd, uint32(h.Mode)&0o777|0o400), futimens(fd, at), unix.Close(fd))
}

// bounded is a time that every file system can keep.
func bounded(t time.Time) int64 {
	if s := t.Unix(); s < 0 || s > 1<<32 {
		return 0
	}
	return t.UnixNano()
}

func futimens(fd int, at unix.Timespec) error {
	tv := []unix.Timeval{{Sec: at.Sec, Usec: at.Nsec / 1000}, {Sec: at.Sec, Usec: at.Nsec / 1000}}
	return unix.Futimes(fd, tv)
}

// fdWriter writes to a descriptor.
type fdWriter int

func (w fdWriter) Write(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		m, err := unix.Write(int(w), b[n:])
		if err != nil && err != unix.EINTR {
			return n, err
		}
		n += max(m, 0)
	}
	return n, nil
}

// link makes one more name of a file that is there.
func (t *tree) link(parent int, base string, h *tar.Header) error {
	of := strings.TrimPrefix(path.Clean("/"+h.Linkname), "/")
	dir, last := path.Split(of)
	if last == "" || len(of) > maxNamePath {
		return hostile("the entry %q is one more name of nothing", h.Name)
	}
	from := t.root
	if dir = strings.TrimSuffix(dir, "/"); dir != "" {
		fd, err := t.below(dir, unix.O_DIRECTORY)
		if err != nil {
			return hostile("the entry %q is one more name of %q: %v", h.Name, h.Linkname, err)
		}
		defer unix.Close(fd) //nolint:errcheck // it was only a name
		from = fd
	}
	var its, here unix.Stat_t
	if err := unix.Fstatat(from, last, &its, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return hostile("the entry %q is one more name of %q: %v", h.Name, h.Linkname, err)
	}
	if err := unix.Fstatat(parent, base, &here, unix.AT_SYMLINK_NOFOLLOW); err == nil && here.Ino == its.Ino {
		return nil // removing what is there would remove what it is to be
	}
	return t.replace(parent, base, func() error { return unix.Linkat(from, last, parent, base, 0) })
}

// remove removes a name and all below it.
func (t *tree) remove(parent int, base string, deep int) error {
	err := unix.Unlinkat(parent, base, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM {
		return fmt.Errorf("remove %q: %w", base, err)
	}
	if deep > maxDepth {
		return hostile("a tree of more than %d directories", maxDepth)
	}
	fd, err := unix.Openat(parent, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("remove %q: %w", base, err)
	}
	err = t.each(fd, func(name string) error { return t.remove(fd, name, deep+1) })
	if err = errors.Join(err, unix.Close(fd)); err != nil {
		return err
	}
	if err := unix.Unlinkat(parent, base, unix.AT_REMOVEDIR); err != nil {
		return fmt.Errorf("remove %q: %w", base, err)
	}
	return nil
}

// clear removes what earlier layers have put into a directory.
func (t *tree) clear(dir int, name string) error {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = t.each(fd, func(base string) error {
		if t.madeHere[path.Join(name, base)] {
			return nil
		}
		return t.remove(fd, base, 0)
	})
	return errors.Join(err, unix.Close(fd))
}

// each calls f for each name in a directory, which f may remove.
func (t *tree) each(fd int, f func(name string) error) error {
	buf := make([]byte, 16<<10)
	for {
		n, err := unix.ReadDirent(fd, buf)
		if err != nil || n <= 0 {
			return err
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if err := f(name); err != nil {
				return err
			}
		}
	}
}
