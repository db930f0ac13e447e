package up

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/conf/locate"
)

// layout is where things lie below DIR, which is absolute.
type layout string

func (l layout) at(elem ...string) string {
	return filepath.Join(append([]string{string(l)}, elem...)...)
}

func (l layout) conf() string { return l.at("gbatch.conf") }
func (l layout) book() string { return l.at("up.json") }
func (l layout) lock() string { return l.at("up.lock") }
func (l layout) pki() string  { return l.at("pki") }
func (l layout) run() string  { return l.at("run") }

// DirOf gives the directory of the trial cluster that a command means without being told: the one that GBATCH_CONF
// names, if `gbatch up` made it on this machine, otherwise the default one.
func DirOf(getenv func(string) string) string {
	if path := getenv(locate.EnvConf); path != "" {
		dir := path
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			dir = filepath.Dir(path)
		}
		if _, err := os.Stat(layout(dir).book()); err == nil {
			return dir
		}
	}
	return locate.UpDir(getenv)
}

// directories makes those that are missing. Commands of other users must reach the configuration and the sockets, and
// nobody else the daemons' state.
func (l layout) directories() error {
	for _, d := range []struct {
		path string
		mode fs.FileMode
	}{{l.at(), 0o755}, {l.run(), 0o755}, {l.at("log"), 0o755}, {l.at("state"), 0o755}} {
		if err := os.MkdirAll(d.path, d.mode); err != nil {
			return err
		}
	}
	return nil
}

// empty reports whether DIR holds nothing of anybody's yet.
func (l layout) empty() (bool, error) {
	entries, err := os.ReadDir(string(l))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if e.Name() != filepath.Base(l.lock()) && !isTemp(e.Name()) {
			return false, nil
		}
	}
	return true, nil
}

const tempMark = ".up-new-"

func isTemp(name string) bool { return len(name) > len(tempMark) && name[:len(tempMark)] == tempMark }

// write replaces a file as a whole and has it on the disk when it returns.
func write(path string, data []byte, mode fs.FileMode) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, tempMark+"*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, werr := f.Write(data)
	if err := errors.Join(werr, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// hold takes DIR for this process until release is called. It waits a moment for another one that only looks.
func (l layout) hold() (release func(), err error) { return l.holdWithin(holdPatience) }

// holdWithin is hold for who can wait longer, for another one that works on DIR.
func (l layout) holdWithin(limit time.Duration) (release func(), err error) {
	for end := time.Now().Add(limit); ; time.Sleep(goneEvery) {
		release, err := l.tryHold()
		if !errors.Is(err, errHeld) || time.Now().After(end) {
			return release, err
		}
	}
}

const holdPatience = time.Second

var errHeld = errors.New("another `gbatch up` or `gbatch down` works on it just now; wait until it is done")

func (l layout) tryHold() (release func(), err error) {
	f, err := os.OpenFile(l.lock(), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close() // nothing was written
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w", l, errHeld)
		}
		return nil, fmt.Errorf("lock %s: %w", l.lock(), err)
	}
	return func() { _ = f.Close() }, nil // the lock goes with it
}
