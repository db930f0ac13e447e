package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Dirs has the directories of the steps that run in containers: one for each, of the job's user. gnoded makes and
// removes them; nobody but root can rename or remove what is in Base.
type Dirs struct {
	Base string // a directory of root's, made when it is needed
	// Empty removes all that is in a directory of a user's (container.Empty): trees can be deeper than there are
	// descriptors.
	Empty func(ctx context.Context, dir string) error

	mu    sync.Mutex
	some  bool // there may be directories
	next  int
	clean sync.Mutex // one at a time removes files
}

const (
	stepDirs = "steps"
	goneDirs = "gone" // what is being removed
)

// Make gives the directory of a name, which it makes if it is not there.
func (d *Dirs) Make(name string, uid, gid uint32) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, dir := range []string{d.Base, filepath.Join(d.Base, stepDirs)} {
		if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("make the directory of containers: %w", err)
		}
	}
	d.some = true
	dir := filepath.Join(d.Base, stepDirs, name)
	switch err := os.Mkdir(dir, 0o700); {
	case errors.Is(err, fs.ErrExist):
		return dir, nil
	case err != nil:
		return "", fmt.Errorf("make the container's directory: %w", err)
	}
	if err := os.Lchown(dir, int(uid), int(gid)); err != nil {
		return "", errors.Join(err, os.Remove(dir))
	}
	return dir, nil
}

// All gives the directories that there are, by name.
func (d *Dirs) All() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.some {
		return nil
	}
	list, err := os.ReadDir(filepath.Join(d.Base, stepDirs))
	if err != nil {
		return nil // there are none
	}
	out := make(map[string]string, len(list))
	for _, e := range list {
		out[e.Name()] = filepath.Join(d.Base, stepDirs, e.Name())
	}
	return out
}

// Remove takes the directory of a name away, and reports whether it was there. Clean removes its files.
func (d *Dirs) Remove(name string) (bool, error) {
	return d.remove(func(n string) bool { return n == name })
}

// RemoveAll takes the directories whose names begin with a word away.
func (d *Dirs) RemoveAll(prefix string) (bool, error) {
	return d.remove(func(name string) bool { return strings.HasPrefix(name, prefix) })
}

// Sweep takes all directories away but those whose names begin with one of these words.
func (d *Dirs) Sweep(keep []string) error {
	d.mu.Lock()
	d.some = true // an earlier gnoded may have made them
	d.mu.Unlock()
	_, err := d.remove(func(name string) bool {
		return !slices.ContainsFunc(keep, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	})
	return err
}

func (d *Dirs) remove(goes func(name string) bool) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.some { // as on each node that runs no bundles, where every job's end comes here
		return false, nil
	}
	list, err := os.ReadDir(filepath.Join(d.Base, stepDirs))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(list) == 0 {
		d.some = false
		return false, nil
	}
	errs := []error{err}
	some := false
	for _, e := range list {
		if !goes(e.Name()) {
			continue
		}
		gone := filepath.Join(d.Base, goneDirs)
		if err := os.Mkdir(gone, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return some, err
		}
		d.next++
		to := filepath.Join(gone, strconv.Itoa(os.Getpid())+"-"+strconv.Itoa(d.next))
		errs = append(errs, os.Rename(filepath.Join(d.Base, stepDirs, e.Name()), to))
		some = true
	}
	return some, errors.Join(errs...)
}

// Clean removes the files of directories that were taken away, however many there are.
func (d *Dirs) Clean(ctx context.Context) error {
	d.clean.Lock()
	defer d.clean.Unlock()
	gone := filepath.Join(d.Base, goneDirs)
	list, err := os.ReadDir(gone)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range list {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		dir := filepath.Join(gone, e.Name())
		if err := d.Empty(ctx, dir); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, os.Remove(dir))
	}
	return errors.Join(errs...)
}
