package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"gbatch/internal/filelock"
)

// checkDisk checks log and snapshots before they are used. Damage that other voters can make good is moved aside, and
// the voter begins without anything; alone it is refused. A damaged snapshot is only moved aside if the older one and
// the log have all that was in it.
func checkDisk(o Options) (found, error) {
	path := filepath.Join(o.Dir, logFileName)
	good, bad, err := checkSnapshots(o.Dir)
	if err != nil {
		return found{}, fmt.Errorf("looking at the snapshots in %s: %w", o.Dir, err)
	}
	f, err := lockAndCheck(path)
	var busy *busyError
	if errors.As(err, &busy) {
		return found{}, err
	}
	var why error
	switch {
	case err != nil:
		why = fmt.Errorf("the raft log %s is damaged: %w", path, err)
	case f.fresh && len(good)+len(bad) > 0:
		why = fmt.Errorf("the raft log %s is missing, though there are snapshots", path)
	case f.fresh:
		return f, nil
	default:
		why = complete(&f, good, bad)
	}
	if why != nil {
		return recoverDisk(o, why, good)
	}
	for _, b := range bad {
		aside, err := moveAside(o.Logger, o.Dir, filepath.Join(snapshotsDir, b.name))
		if err != nil {
			return found{}, fmt.Errorf("moving a damaged snapshot aside: %w", err)
		}
		o.Logger.Warn("a snapshot was damaged; the older one and the log have all that was in it, nothing is lost",
			"snapshot", b.name, "error", b.err, "moved_to", aside)
	}
	return f, nil
}

// complete checks that the newest good snapshot and the log after it have everything that was ever complete. It notes
// in f what raft needs of the log.
func complete(f *found, good []uint64, bad []badSnapshot) error {
	var base uint64 // state from a snapshot
	if len(good) > 0 {
		base = good[0]
	}
	s := &f.seal
	need, why := s.snapshot, "is missing"
	for _, b := range bad {
		if b.index == 0 {
			return fmt.Errorf("snapshot %s is damaged (%w), and nobody knows what was in it", b.name, b.err)
		}
		if b.index >= need {
			need, why = b.index, fmt.Sprintf("is damaged (%v)", b.err)
		}
	}
	end := base
	switch {
	case s.last < s.first:
		need = max(need, s.last) // what went when a snapshot replaced it
	case s.last <= base:
	case s.first > base+1:
		if why == "is missing" {
			return fmt.Errorf("the snapshot that entry %d of the raft log follows is missing", s.first)
		}
		return fmt.Errorf("the snapshot of entry %d %s, and the raft log begins at entry %d", need, why, s.first)
	default:
		end = s.last
	}
	if end < need {
		return fmt.Errorf("the snapshot of entry %d %s, and without it there is only the state of entry %d", need, why, end)
	}
	if s.last >= s.first && s.last < base { // a crash came between a leader's snapshot and the removal of old entries
		s.first, s.sum, f.stale = s.last+1, 0, true
	}
	return nil
}

// recoverDisk moves everything aside if other voters have it, and refuses otherwise.
func recoverDisk(o Options, why error, good []uint64) (found, error) {
	if len(o.Peers) == 1 {
		have := "no snapshot is whole either"
		if len(good) > 0 {
			have = fmt.Sprintf("the snapshot of entry %d in %s is whole, but lacks what came later (gctld --restore with its "+
				"path and --replace goes on from there)", good[0], filepath.Join(o.Dir, snapshotsDir))
		}
		return found{}, fmt.Errorf("%w. No other controller has what was in it; %s. Restore a snapshot that was saved: "+
			"gctld --restore FILE --replace. Or begin without jobs and accounts: mv %s %s.damaged, then gctld --begin; ended "+
			"jobs stay in accounting", why, have, o.Dir, o.Dir)
	}
	aside, err := moveAside(o.Logger, o.Dir, logFileName, snapshotsDir)
	if err == nil {
		err = makeDir(filepath.Join(o.Dir, snapshotsDir))
	}
	if err != nil {
		return found{}, fmt.Errorf("%w; moving it aside: %w", why, err)
	}
	o.Logger.Error("this controller's state is damaged; it gets all of it from the other controllers", "error", why,
		"moved_to", aside)
	return found{fresh: true}, nil
}

// busyError says that the log can't be opened, by which nobody knows whether it is damaged: another process has it, or
// a newer version has written it.
type busyError struct{ error }

// lockAndCheck checks the log while no other process can have it open. Without a file, the log is fresh.
func lockAndCheck(path string) (found, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return found{fresh: true}, nil
	}
	if err != nil {
		return found{}, &busyError{fmt.Errorf("opening %s: %w", path, err)}
	}
	w, err := func() (*logWalk, error) {
		switch err := filelock.Take(f); {
		case errors.Is(err, syscall.EWOULDBLOCK):
			return nil, &busyError{inUse(path)}
		case err != nil:
			return nil, &busyError{fmt.Errorf("locking %s: %w", path, err)}
		}
		if info, err := f.Stat(); err == nil && info.Size() == 0 {
			return &logWalk{fresh: true}, nil // an old version was about to make it
		}
		return checkPages(f)
	}()
	if err = errors.Join(err, f.Close()); err != nil {
		return found{}, err
	}
	return checkLog(path, w)
}
