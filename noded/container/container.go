package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Options say what containers have.
type Options struct {
	Base   string   // of this node alone; absolute; its parent must exist
	Dirs   []string // the directories that each container has for itself, absolute, none below another
	Shared bool     // what is mounted on the node later is seen in containers
	Keep   []string // directories of the node that are seen in containers even if they are below one of Dirs
}

// Store has a node's containers. Its methods may be called at the same time.
type Store struct {
	o       Options
	shmSize uint64 // bytes

	mu       sync.Mutex // of making and renaming
	cleaning sync.Mutex
}

const (
	nsfsMagic = 0x6e736673
	shm       = "/dev/shm"
)

// Open prepares the directory. Containers of an earlier Store are still there.
func Open(o Options) (*Store, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("jobs' own directories (JobContainerType=job_container/tmpfs) need gnoded to run as root")
	}
	s := &Store{o: o}
	// The name of a link, such as /var/tmp on some systems, would be mounted twice.
	var dirs []string
	for _, d := range o.Dirs {
		real, err := filepath.EvalSymlinks(d)
		if err != nil {
			return nil, fmt.Errorf("a directory that jobs are to have for themselves (Dirs in job_container.conf): %w", err)
		}
		if !slices.Contains(dirs, real) {
			dirs = append(dirs, real)
		}
	}
	s.o.Dirs = dirs
	base, err := filepath.EvalSymlinks(filepath.Dir(o.Base))
	if err != nil {
		return nil, fmt.Errorf("the place of jobs' own directories (BasePath in job_container.conf, AutoBasePath=yes makes "+
			"it): %w", err)
	}
	s.o.Base = filepath.Join(base, filepath.Base(o.Base))
	if err := OwnDir(s.o.Base); err != nil {
		return nil, fmt.Errorf("the place of jobs' own directories: %w", err)
	}
	if err := s.makePrivate(); err != nil {
		return nil, fmt.Errorf("mount %s: %w", s.o.Base, err)
	}
	for _, d := range []string{"jobs", "gone"} {
		if err := OwnDir(filepath.Join(s.o.Base, d)); err != nil {
			return nil, err
		}
	}
	var st unix.Statfs_t
	if unix.Statfs(shm, &st) == nil { // a node without has none
		s.shmSize = st.Blocks * uint64(st.Bsize)
	}
	return s, nil
}

// OwnDir makes a directory of root's that nobody else may enter. One that somebody else has made is refused.
func OwnDir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != 0 || st.Mode&0o022 != 0 {
		return fmt.Errorf("%s is not a directory that only root can write to", path)
	}
	return os.Chmod(path, 0o700)
}

// makePrivate makes Base a mount of its own with private propagation, unless an earlier Store did.
func (s *Store) makePrivate() error {
	is, err := mounted(s.o.Base)
	if err != nil || is {
		return err
	}
	if err := unix.Mount(s.o.Base, s.o.Base, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return unix.Mount("", s.o.Base, "", unix.MS_PRIVATE, "")
}

// mounted reports whether something is mounted at path.
func mounted(path string) (bool, error) {
	table, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return false, err
	}
	escaped := strings.NewReplacer("\\", `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(path)
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 4 && f[4] == escaped {
			return true, nil
		}
	}
	return false, nil
}

func (s *Store) dir(name string) string { return filepath.Join(s.o.Base, "jobs", name) }

// Make gives the file of a container's mount namespace, which it makes if there is none.
func (s *Store) Make(name string) (string, error) {
	if name == "" || strings.ContainsAny(name, "/") || name[0] == '.' {
		return "", fmt.Errorf("%q can't be a container's name", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	file := filepath.Join(s.dir(name), "ns")
	if isNamespace(file) {
		return file, nil
	}
	if err := s.discard(name); err != nil { // an earlier Store did not get further
		return "", err
	}
	if err := s.make(name, file); err != nil {
		return "", fmt.Errorf("make the job's own directories: %w", errors.Join(err, s.discard(name)))
	}
	return file, nil
}

// MakeWith gives the file of a container's mount namespace that somebody else fills: fill runs in the new namespace, on
// a thread of its own that ends afterwards, with the container's directory, of which only root sees anything. What is
// there already is not made again. Of two calls for one name at the same time, one fails.
func (s *Store) MakeWith(name string, fill func(dir string) error) (string, error) {
	if name == "" || strings.ContainsAny(name, "/") || name[0] == '.' {
		return "", fmt.Errorf("%q can't be a container's name", name)
	}
	dir := s.dir(name)
	file := filepath.Join(dir, "ns")
	s.mu.Lock()
	if isNamespace(file) {
		s.mu.Unlock()
		return file, nil
	}
	err := s.discard(name)
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	s.mu.Unlock()
	if err != nil {
		return "", err
	}
	if err = os.WriteFile(file, nil, 0o600); err == nil {
		err = inNewNamespace(func() error { return fill(dir) }, func(ns string) error {
			return unix.Mount(ns, file, "", unix.MS_BIND, "")
		})
	}
	if err != nil {
		return "", errors.Join(err, s.Remove(name))
	}
	return file, nil
}

// Dir is the directory of a container that MakeWith has made.
func (s *Store) Dir(name string) string { return s.dir(name) }

// Names gives the containers.
func (s *Store) Names() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.o.Base, "jobs"))
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// In runs f in a container's mount namespace, on a thread of its own that ends afterwards.
func In(file string, f func() error) error {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: file, Err: err}
	}
	defer unix.Close(fd) //nolint:errcheck // it was only a name
	done := make(chan error, 1)
	go onThreadOfItsOwn(func() {
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNS)
		}
		if err == nil {
			err = f()
		}
		done <- err
	})
	return <-done
}

func isNamespace(file string) bool {
	var st unix.Statfs_t
	return unix.Statfs(file, &st) == nil && st.Type == nsfsMagic
}

// make makes a container's directories and its namespace.
func (s *Store) make(name, file string) error {
	dir := s.dir(name)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(filepath.Join(dir, "dirs"), 0o700)); err != nil {
		return err
	}
	for i := range s.o.Dirs {
		d := s.source(name, i)
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
		if err := os.Chmod(d, 0o777|os.ModeSticky); err != nil { // whatever the umask
			return err
		}
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return inNewNamespace(func() error { return s.fill(name) }, func(ns string) error {
		return unix.Mount(ns, file, "", unix.MS_BIND, "")
	})
}

func (s *Store) source(name string, i int) string {
	return filepath.Join(s.dir(name), "dirs", fmt.Sprint(i))
}

// Remove removes a container; its processes must have ended, or they keep what they have. What was in its directories
// is removed by Clean. One that does not exist is no error.
func (s *Store) Remove(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.discard(name)
}

// discard unmounts a container's namespace and puts its directory aside.
func (s *Store) discard(name string) error {
	dir := s.dir(name)
	file := filepath.Join(dir, "ns")
	for isNamespace(file) {
		if err := unix.Unmount(file, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return &fs.PathError{Op: "umount", Path: file, Err: err}
		}
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	aside, err := os.MkdirTemp(filepath.Join(s.o.Base, "gone"), name+".")
	if err != nil {
		return err
	}
	if err := unix.Rename(dir, aside); err != nil { // over the empty directory, which os.Rename refuses
		return &fs.PathError{Op: "rename", Path: dir, Err: err}
	}
	return nil
}

// Sweep removes all containers but those named.
func (s *Store) Sweep(keep []string) error {
	entries, err := os.ReadDir(filepath.Join(s.o.Base, "jobs"))
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !slices.Contains(keep, e.Name()) {
			errs = append(errs, s.Remove(e.Name()))
		}
	}
	return errors.Join(errs...)
}

// Clean removes what was put aside. It returns early if ctx ends, or if another Clean is at work.
func (s *Store) Clean(ctx context.Context) error {
	if !s.cleaning.TryLock() {
		return nil
	}
	defer s.cleaning.Unlock()
	return Empty(ctx, filepath.Join(s.o.Base, "gone"))
}

// Close unmounts Base if no container is left.
func (s *Store) Close() error {
	entries, err := os.ReadDir(filepath.Join(s.o.Base, "jobs"))
	if err != nil || len(entries) > 0 {
		return err
	}
	if err := unix.Unmount(s.o.Base, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && err != unix.EINVAL {
		return &fs.PathError{Op: "umount", Path: s.o.Base, Err: err}
	}
	return nil
}
