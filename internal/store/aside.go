package store

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// aside.go keeps damaged files for people to look at: nothing here reads them again, so they go when the disk has no
// room for them beside the state.

const (
	asidePrefix = "damaged-"
	asideTime   = "20060102T150405.000Z"

	damagedKept = 2 // folders with damaged files, at most
)

// moveTo moves files of dir, as far as they are there, into a folder in it.
func moveTo(dir, aside string, names ...string) error {
	for _, n := range names {
		to := filepath.Join(aside, n)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(dir, n), to); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return syncDir(dir)
}

// moveAside moves files of dir into a new folder "damaged-<time>" in it, which it gives. Of older ones damagedKept - 1
// stay, if the disk has room for twice what was moved.
func moveAside(log *slog.Logger, dir string, names ...string) (string, error) {
	aside := filepath.Join(dir, asidePrefix+time.Now().UTC().Format(asideTime))
	if err := moveTo(dir, aside, names...); err != nil {
		return "", err
	}
	kept, err := asides(dir)
	if err != nil {
		return "", err
	}
	need := 2 * sizeOf(aside)
	for len(kept) > 1 && (len(kept) > damagedKept || freeOf(dir) < need) {
		if err := removeAside(log, kept[0]); err != nil {
			return "", err
		}
		kept = kept[1:]
	}
	return aside, nil
}

// makeRoom removes all folders with damaged files of a disk that is full.
func makeRoom(log *slog.Logger, dir string) {
	kept, err := asides(dir)
	for _, aside := range kept {
		err = errors.Join(err, removeAside(log, aside))
	}
	if err != nil {
		log.Warn("can't remove damaged files to make room", "error", err)
	}
}

// asides lists the folders with damaged files, the oldest first.
func asides(dir string) ([]string, error) {
	es, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	es = slices.DeleteFunc(es, func(e os.DirEntry) bool { return !strings.HasPrefix(e.Name(), asidePrefix) })
	var out []string
	for _, e := range es {
		out = append(out, filepath.Join(dir, e.Name()))
	}
	return out, nil
}

func removeAside(log *slog.Logger, aside string) error {
	log.Info("removing damaged files that were kept, for want of room or since newer ones are kept", "folder", aside,
		"bytes", sizeOf(aside))
	return os.RemoveAll(aside)
}

// sizeOf gives the bytes of the files below a folder, as far as they can be seen.
func sizeOf(dir string) int64 {
	var n int64
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error { // what can't be seen isn't counted
		if err != nil {
			return nil
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

// freeOf gives the bytes that are free on a folder's disk; a lot where nobody knows. Tests replace it.
var freeOf = func(dir string) int64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 1 << 62
	}
	return int64(st.Bavail) * st.Bsize
}
