package become

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Places are what a daemon writes to. Empty paths are none.
type Places struct {
	Own    []string // directories for the daemon alone, which SlurmUser must own; what is missing is made with mode 0700
	Shared string   // the directory of sockets, which others may look into: made or given to SlurmUser,
	Locks  []string // and files there that an earlier start as root may have left, which are given to SlurmUser too
	Log    string   // the log's file: made or given to SlurmUser
}

// Daemon makes this process one of the user that SlurmUser names (a name or a number), if it is root's and SlurmUser is
// another one. The error says which directory SlurmUser can't use, and the command that mends it.
func Daemon(slurmUser string, p Places) error {
	if os.Geteuid() != 0 || slurmUser == "" || slurmUser == "root" || slurmUser == "0" {
		return nil
	}
	u, err := lookup(slurmUser)
	if err != nil {
		return err
	}
	if u.uid == 0 {
		return nil // another name of root
	}
	for _, dir := range p.Own {
		if err := u.own(dir); err != nil {
			return err
		}
	}
	if err := u.share(p.Shared); err != nil {
		return err
	}
	for _, path := range p.Locks {
		if err := u.take(path); err != nil {
			return err
		}
	}
	if err := u.log(p.Log); err != nil {
		return err
	}
	if err := u.become(); err != nil {
		return err
	}
	// The kernel's setting for programs that changed their user counts since then.
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}

// UID gives the id of the user that SlurmUser names, a name or a number.
func UID(slurmUser string) (uint32, error) {
	u, err := lookup(slurmUser)
	return uint32(u.uid), err
}

// Private keeps the memory of a daemon that root starts from debuggers, those of SlurmUser's other processes too, and
// out of core files: keys and users' scripts are in it. Programs that it starts are not concerned.
func Private() error {
	if os.Geteuid() != 0 {
		return nil // whoever runs daemons of their own may look into them
	}
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}

// OwnAs gives path to the owner of like, or of its directory if there is no like. Only root can; for others it does
// nothing. What root makes in a daemon's directories has to be the daemon's.
func OwnAs(path, like string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(like)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = os.Stat(filepath.Dir(like))
	}
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return os.Lchown(path, int(st.Uid), int(st.Gid))
	}
	return nil
}

type who struct {
	name     string
	uid, gid int
	groups   []int
}

func lookup(name string) (who, error) {
	u, err := user.Lookup(name)
	if err != nil {
		u, err = user.LookupId(name)
	}
	if err != nil {
		return who{}, fmt.Errorf("SlurmUser=%s is unknown on this host; create the user, or write SlurmUser=root", name)
	}
	w := who{name: u.Username}
	ids, err := u.GroupIds()
	if err != nil {
		return who{}, fmt.Errorf("the groups of SlurmUser=%s: %w", name, err)
	}
	for i, text := range append([]string{u.Uid, u.Gid}, ids...) {
		id, err := strconv.Atoi(text)
		switch {
		case err != nil:
			return who{}, fmt.Errorf("SlurmUser=%s has the id '%s', which is no number", name, text)
		case i == 0:
			w.uid = id
		case i == 1:
			w.gid = id
		default:
			w.groups = append(w.groups, id)
		}
	}
	return w, nil
}

// own makes sure that dir and what is in it belongs to the user.
func (w *who) own(dir string) error {
	if dir == "" {
		return nil
	}
	if err := w.makeDir(dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	paths := []string{dir}
	for _, e := range entries {
		paths = append(paths, filepath.Join(dir, e.Name()))
	}
	for _, path := range paths {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another daemon's temporary file
		}
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != w.uid {
			return fmt.Errorf("%s belongs to uid %d, and SlurmUser=%s runs this daemon; give it what is there: "+
				"chown -R %s: %s", path, st.Uid, w.name, w.name, dir)
		}
	}
	return w.reaches(dir)
}

// reaches reports a directory above dir that the user can't pass.
func (w *who) reaches(dir string) error {
	in := func(gid int) bool {
		for _, g := range append([]int{w.gid}, w.groups...) {
			if g == gid {
				return true
			}
		}
		return false
	}
	for at := filepath.Dir(dir); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		need := fs.FileMode(0o001)
		switch {
		case ok && int(st.Uid) == w.uid:
			need = 0o100
		case ok && in(int(st.Gid)):
			need = 0o010
		}
		if info.Mode().Perm()&need == 0 {
			return fmt.Errorf("SlurmUser=%s can't get to %s: %s has mode %04o; chmod o+x %s, or use another place", w.name,
				dir, at, info.Mode().Perm(), at)
		}
		if at == "/" || at == "." {
			return nil
		}
	}
}

// makeDir makes dir for the user, below directories of root.
func (w *who) makeDir(dir string, mode fs.FileMode) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) { // a daemon beside it made it just now
		return err
	}
	return errors.Join(os.Chmod(dir, mode), os.Lchown(dir, w.uid, w.gid))
}

// share gives the user a directory of root's in which others may look.
func (w *who) share(dir string) error {
	if dir == "" {
		return nil
	}
	if err := w.makeDir(dir, 0o755); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) == w.uid {
		return w.reaches(dir)
	}
	if st.Uid != 0 || !info.IsDir() {
		return fmt.Errorf("LocalSocketDir=%s belongs to uid %d, and SlurmUser=%s makes sockets there: chown %s: %s", dir,
			st.Uid, w.name, w.name, dir)
	}
	if err := os.Lchown(dir, w.uid, w.gid); err != nil {
		return err
	}
	return w.reaches(dir)
}

// take gives the user a regular file of root's, if it is there.
func (w *who) take(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	return w.give(fd, path)
}

// give gives the user an open regular file of root's.
func (w *who) give(fd int, path string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Uid != 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	if st.Nlink > 1 { // its other name may be a file of root's that is no log
		return fmt.Errorf("%s is a file with %d names, which is not given to SlurmUser=%s; remove this name", path, st.Nlink,
			w.name)
	}
	if err := unix.Fchown(fd, w.uid, w.gid); err != nil {
		return fmt.Errorf("giving %s to SlurmUser=%s: %w", path, w.name, err)
	}
	return nil
}

// log makes the log's file for the user, or gives it one of root's. Its directory stays as it is: what renames logs
// makes the new one (logrotate: create).
func (w *who) log(path string) error {
	if path == "" || strings.HasPrefix(path, "/dev/") {
		return nil
	}
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC,
		0o640)
	if err != nil {
		return fmt.Errorf("the log %s: %w", path, err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	return w.give(fd, path)
}

// become gives up root, of all threads, and asks the kernel whether it is gone.
func (w *who) become() error {
	if err := syscall.Setgroups(w.groups); err != nil {
		return fmt.Errorf("taking the groups of SlurmUser=%s: %w", w.name, err)
	}
	if err := syscall.Setresgid(w.gid, w.gid, w.gid); err != nil {
		return fmt.Errorf("taking the group of SlurmUser=%s: %w", w.name, err)
	}
	if err := syscall.Setresuid(w.uid, w.uid, w.uid); err != nil {
		return fmt.Errorf("becoming SlurmUser=%s: %w", w.name, err)
	}
	r, e, s := unix.Getresuid()
	if r != w.uid || e != w.uid || s != w.uid || syscall.Setuid(0) == nil {
		return fmt.Errorf("this daemon is to be SlurmUser=%s, and root is not gone (uids %d, %d, %d)", w.name, r, e, s)
	}
	// HOME and the like are root's: programs that the daemon starts would look there.
	return errors.Join(os.Setenv("USER", w.name), os.Setenv("LOGNAME", w.name), os.Unsetenv("HOME"))
}
