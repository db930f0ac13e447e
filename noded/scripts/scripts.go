package scripts

import (
	"container/list"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"gbatch/internal/blob"
	"gbatch/internal/model"
)

// scripts.go keeps the batch scripts: one file for each content and user, shared by all its jobs, since making a
// directory and a file costs more than anything else that gnoded does for a small job. An unused script stays for a
// while, within limits.
//
// The file belongs to its user, and no other user can read it. The user can change it, and that would change the script
// of the user's other jobs; so a changed file stays with the jobs that run it, and the next job gets a new one.

const (
	fileName = "slurm_script" // what $0 ends in, as under Slurm
	maxBytes = 64 << 20
	// Unused scripts are kept up to these limits.
	idleFiles = 256
	idleBytes = 16 << 20
)

// Store has the script files of one gnoded. Each has its own directory in Dir.
type Store struct {
	Dir  string
	root bool

	mu      sync.Mutex
	files   map[string]*script // by directory name
	current map[string]string  // content and user -> directory name
	idle    *list.List         // of *script without users, longest idle first
	bytes   int64              // of the idle ones
	made    uint64             // counts replacements
}

// script is one file.
type script struct {
	name  string
	of    string // key in current
	users int
	size  int64
	ctime unix.Timespec
	inode uint64
	idle  *list.Element
}

func New(dir string, root bool) *Store {
	return &Store{Dir: dir, root: root, files: map[string]*script{}, current: map[string]string{}, idle: list.New()}
}

// Path is the path of a script.
func (s *Store) Path(name string) string { return filepath.Join(s.Dir, name, fileName) }

// Take gives the name of a file with b's content that uid can read and run; the caller releases it.
func (s *Store) Take(b *model.Blob, uid, gid uint32) (string, error) {
	if b.Size <= 0 && len(b.Data) == 0 {
		return "", errors.New("the script is empty")
	}
	key := b.Key
	if key == "" {
		key = blob.Key(b.Data)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of := fmt.Sprintf("%.24s-%d", key, uid)
	if f := s.files[s.current[of]]; f != nil && s.unchanged(f) {
		s.use(f)
		return f.name, nil
	}
	content, err := blob.Open(b, maxBytes)
	if err != nil {
		return "", err
	}
	if len(content) == 0 {
		return "", errors.New("the script is empty")
	}
	name := of
	for s.files[name] != nil { // a changed file is in use
		s.made++
		name = fmt.Sprintf("%s.%d", of, s.made)
	}
	f := &script{name: name, of: of, users: 1}
	if err := s.write(f, content, uid, gid); err != nil {
		return "", errors.Join(err, s.remove(name))
	}
	s.files[name], s.current[of] = f, name
	return name, nil
}

func (s *Store) use(f *script) {
	f.users++
	if f.idle != nil {
		s.idle.Remove(f.idle)
		f.idle = nil
		s.bytes -= f.size
	}
}

func (s *Store) write(f *script, content []byte, uid, gid uint32) error {
	dir := filepath.Join(s.Dir, f.name)
	err := os.Mkdir(dir, 0o711)
	if errors.Is(err, fs.ErrExist) { // left by a gnoded that was killed
		if err = s.remove(f.name); err == nil {
			err = os.Mkdir(dir, 0o711)
		}
	}
	if err != nil {
		return err
	}
	fd, err := unix.Open(s.Path(f.name), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o500)
	if err != nil {
		return &fs.PathError{Op: "create", Path: s.Path(f.name), Err: err}
	}
	for rest := content; len(rest) > 0 && err == nil; {
		var n int
		n, err = unix.Write(fd, rest)
		rest = rest[max(n, 0):]
	}
	if err == nil && s.root {
		err = unix.Fchown(fd, int(uid), int(gid))
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	f.size, f.ctime, f.inode = st.Size, st.Ctim, st.Ino
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		return &fs.PathError{Op: "write", Path: s.Path(f.name), Err: err}
	}
	return nil
}

// unchanged reports whether a file is as it was written.
func (s *Store) unchanged(f *script) bool {
	var st unix.Stat_t
	return unix.Lstat(s.Path(f.name), &st) == nil && st.Ino == f.inode && st.Ctim == f.ctime && st.Size == f.size
}

// Adopt counts a user of a file that an earlier gnoded wrote; false if it is not there.
func (s *Store) Adopt(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.files[name]; f != nil {
		s.use(f)
		return true
	}
	var st unix.Stat_t
	if name == "" || filepath.Base(name) != name || unix.Lstat(s.Path(name), &st) != nil {
		return false
	}
	// Only jobs that have the file use it. A new job gets a new file, since the user may have changed this one
	// meanwhile.
	s.files[name] = &script{name: name, users: 1, size: st.Size, ctime: st.Ctim, inode: st.Ino}
	return true
}

// InUse is the number of takes without a release.
func (s *Store) InUse() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.files {
		n += f.users
	}
	return n
}

// Release releases a file. Files beyond the limits are removed.
func (s *Store) Release(name string) error {
	if name == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[name]
	if f == nil {
		return nil
	}
	if f.users--; f.users > 0 {
		return nil
	}
	if f.of == "" || s.current[f.of] != name {
		delete(s.files, name)
		return s.remove(name)
	}
	f.idle = s.idle.PushBack(f)
	s.bytes += f.size
	var errs []error
	for s.idle.Len() > idleFiles || s.bytes > idleBytes {
		oldest, ok := s.idle.Remove(s.idle.Front()).(*script)
		if !ok {
			break // only scripts are in it
		}
		s.bytes -= oldest.size
		delete(s.files, oldest.name)
		delete(s.current, oldest.of)
		errs = append(errs, s.remove(oldest.name))
	}
	return errors.Join(errs...)
}

func (s *Store) remove(name string) error {
	if err := unix.Unlink(s.Path(name)); err != nil && err != unix.ENOENT && err != unix.ENOTDIR {
		return &fs.PathError{Op: "remove", Path: s.Path(name), Err: err}
	}
	return os.RemoveAll(filepath.Join(s.Dir, name))
}

// Sweep removes files that are neither taken nor adopted.
func (s *Store) Sweep() error {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, e := range entries {
		if s.files[e.Name()] == nil {
			errs = append(errs, os.RemoveAll(filepath.Join(s.Dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}
