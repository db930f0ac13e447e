package box

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// points.go makes what is mounted on, in a namespace whose root is the image and in which nothing else is mounted yet:
// whatever links the image has, they lead to the image.

func (f *filling) points() error {
	for i := range f.trees {
		t := &f.trees[i]
		if strings.HasPrefix(t.at, "/dev/") {
			continue // in the new /dev
		}
		if err := f.point(t.at, t.dir, true); err != nil {
			return fmt.Errorf("make %s in the container: %w", t.at, err)
		}
	}
	if home := f.o.User.Home; isHome(home) && len(home) < unix.PathMax {
		if err := f.point(filepath.Clean(home), true, true); err != nil {
			return fmt.Errorf("make %s in the container: %w", home, err)
		}
	}
	return f.addUser()
}

// point makes a directory or an empty file to mount on, and those above it. What is there stays.
func (f *filling) point(at string, dir, root bool) error {
	if _, err := os.Stat(at); err == nil {
		return nil
	}
	words := strings.Split(strings.Trim(at, "/"), "/")
	path := ""
	for i, w := range words {
		path += "/" + w
		last := i == len(words)-1
		if last && !dir {
			break
		}
		err := unix.Mkdir(path, 0o755)
		if err == unix.EEXIST {
			if _, serr := os.Stat(path); serr == nil {
				continue
			} else if !root {
				return serr
			}
			// a link that leads nowhere
			if err = unix.Unlink(path); err == nil {
				err = unix.Mkdir(path, 0o755)
			}
		}
		if err != nil {
			return &os.PathError{Op: "mkdir", Path: path, Err: err}
		}
		f.give(path, root)
	}
	if dir {
		return nil
	}
	fd, err := unix.Open(at, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err == unix.EEXIST && root { // a link that leads nowhere
		if err = unix.Unlink(at); err == nil {
			fd, err = unix.Open(at, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
		}
	}
	if err != nil {
		return &os.PathError{Op: "create", Path: at, Err: err}
	}
	f.give(at, root)
	return unix.Close(fd)
}

// give makes something the user's, like the rest of the image.
func (f *filling) give(path string, root bool) {
	if root {
		_ = unix.Lchown(path, int(f.o.User.UID), int(f.o.User.GID)) // it would be root's, which does no harm
	}
}

// fillDev makes what is mounted on in the new /dev, and the links that programs expect.
func (f *filling) fillDev() error {
	for _, t := range f.trees {
		if !strings.HasPrefix(t.at, "/dev/") || t.mine {
			continue
		}
		if err := f.point(t.at, t.dir, false); err != nil {
			return fmt.Errorf("make %s in the container: %w", t.at, err)
		}
	}
	for _, l := range [][2]string{{"/proc/self/fd", "/dev/fd"}, {"/proc/self/fd/0", "/dev/stdin"},
		{"/proc/self/fd/1", "/dev/stdout"}, {"/proc/self/fd/2", "/dev/stderr"}} {
		if err := unix.Symlink(l[0], l[1]); err != nil {
			return &os.PathError{Op: "link", Path: l[1], Err: err}
		}
	}
	// It finds the terminals beside it; the one among them is closed to users.
	if err := unix.Mknod("/dev/ptmx", unix.S_IFCHR|0o666, int(unix.Mkdev(5, 2))); err != nil {
		return &os.PathError{Op: "mknod", Path: "/dev/ptmx", Err: err}
	}
	return os.Chmod("/dev/ptmx", 0o666) // whatever the umask
}

const maxPasswd = 1 << 20 // bytes of an image's passwd or group

// addUser adds the user and the group to the image's lists, if they are not there.
func (f *filling) addUser() error {
	u := &f.o.User
	uid, gid := strconv.FormatUint(uint64(u.UID), 10), strconv.FormatUint(uint64(u.GID), 10)
	name, home := f.o.Name, u.Home
	if name == "" || strings.ContainsAny(name+home, ":\n") {
		return nil
	}
	shell := "/bin/sh"
	if _, err := os.Stat("/bin/bash"); err == nil {
		shell = "/bin/bash"
	}
	if err := f.addLine("/etc/passwd", 2, uid, strings.Join([]string{name, "x", uid, gid, name, home, shell},
		":")); err != nil {
		return err
	}
	return f.addLine("/etc/group", 2, gid, strings.Join([]string{name, "x", gid, ""}, ":"))
}

// addLine adds a line to a file of the image unless one has the value in a field. What is no file of a few kilobytes
// stays as it is.
func (f *filling) addLine(path string, field int, value, line string) error {
	if err := f.point("/etc", true, true); err != nil {
		return err
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o644)
	if err != nil {
		if err == unix.ELOOP || err == unix.EISDIR || err == unix.ENOTDIR {
			return nil // the image has something else there
		}
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close() //nolint:errcheck // a user's name that is missing does little harm
	st, err := file.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Size() > maxPasswd {
		return err
	}
	in, ends := bufio.NewScanner(io.LimitReader(file, maxPasswd)), true
	for in.Scan() {
		if words := strings.Split(in.Text(), ":"); len(words) > field && words[field] == value {
			return nil
		}
	}
	if st.Size() > 0 {
		last := make([]byte, 1)
		_, err = file.ReadAt(last, st.Size()-1)
		ends = last[0] == '\n'
	}
	if !ends {
		line = "\n" + line
	}
	_, werr := file.WriteAt([]byte(line+"\n"), st.Size())
	f.give(path, st.Size() == 0)
	return errors.Join(err, werr)
}
