package store

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// plant.go makes a directory from which a controller goes on with a state that somebody has saved: a snapshot with it
// and an empty log after it. Term and index are above all that nodes and other controllers may have seen, so this
// controller's log is better than any other, and nodes obey its leader.

// Planting is a state for a directory.
type Planting struct {
	Dir   string // made if missing
	Peers []Peer // all voters

	// The state is as of this entry and term; the first leader after it has a greater term.
	Index, Term uint64
	Write       func(io.Writer) error // as Machine.Freeze gives it

	// Replace moves a state that is there into a folder "replaced-TIME" in Dir, where it stays. Without it, a state is
	// an error (ErrOccupied).
	Replace bool
	Logger  *slog.Logger // nil: nothing is logged
}

// ErrOccupied says that a directory has a state.
var ErrOccupied = errors.New("there is a cluster's state already")

const plantingDir = "planting" // the new state, until it is whole

// Plant carries it out. It gives the folder with the state that was there, "" if there was none. If it fails, or the
// host crashes, the old state is in its place or, complete, in that folder.
func Plant(p Planting) (aside string, err error) {
	if p.Logger == nil {
		p.Logger = slog.New(slog.DiscardHandler)
	}
	lg := newLogger(p.Logger)
	if err := makeDir(p.Dir); err != nil {
		return "", err
	}
	path := filepath.Join(p.Dir, logFileName)
	_, err = lockAndCheck(path)
	var busy *busyError
	if errors.As(err, &busy) {
		return "", err
	}
	occupied, err := hasState(p.Dir)
	if err != nil {
		return "", err
	}
	if occupied && !p.Replace {
		return "", fmt.Errorf("%s: %w", p.Dir, ErrOccupied)
	}
	fresh := filepath.Join(p.Dir, plantingDir)
	if err := os.RemoveAll(fresh); err != nil {
		return "", err
	}
	if err := p.make(fresh, lg); err != nil {
		return "", errors.Join(fmt.Errorf("writing the state into %s: %w", fresh, err), os.RemoveAll(fresh))
	}
	if occupied {
		aside = filepath.Join(p.Dir, "replaced-"+time.Now().UTC().Format(asideTime))
		if err := moveTo(p.Dir, aside, logFileName, snapshotsDir); err != nil {
			return "", fmt.Errorf("moving the state that is there aside: %w", err)
		}
	} else if err := os.RemoveAll(filepath.Join(p.Dir, snapshotsDir)); err != nil { // it is empty
		return "", err
	}
	for _, name := range []string{snapshotsDir, logFileName} { // the log last: without it nothing starts
		if err := os.Rename(filepath.Join(fresh, name), filepath.Join(p.Dir, name)); err != nil {
			return aside, err
		}
	}
	return aside, errors.Join(os.RemoveAll(fresh), syncDir(p.Dir))
}

// hasState reports whether a directory has a log or a snapshot.
func hasState(dir string) (bool, error) {
	if info, err := os.Stat(filepath.Join(dir, logFileName)); err == nil && info.Size() > 0 {
		return true, nil
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	es, err := os.ReadDir(filepath.Join(dir, snapshotsDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	return len(es) > 0, nil
}

// make writes snapshot and log.
func (p *Planting) make(dir string, lg hclog.Logger) (err error) {
	if err := makeDir(dir); err != nil {
		return err
	}
	path := filepath.Join(dir, logFileName)
	if err := createLog(path, votes{term: p.Term}, false); err != nil {
		return err
	}
	snaps, err := raft.NewFileSnapshotStoreWithLogger(dir, snapshotsKept, lg)
	if err != nil {
		return err
	}
	f, err := lockAndCheck(path)
	if err != nil {
		return err
	}
	l, err := openLog(path, f, p.Logger, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	voters := Options{Peers: p.Peers}.voters()
	_, trans := raft.NewInmemTransport("") // only for the form of addresses
	sealed := &sealedSnapshots{snaps, dir, l}
	sink, err := sealed.Create(raft.SnapshotVersionMax, p.Index, p.Term, voters, p.Index, trans)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(sink, snapshotBuffer)
	if err := p.Write(w); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := w.Flush(); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Kept is a snapshot in a controller's directory.
type Kept struct {
	Index, Term uint64
	At          time.Time
	io.ReadCloser
}

// OpenKept checks a snapshot in a controller's directory, by its own path (snapshots/TERM-INDEX-TIME), and opens it.
func OpenKept(dir string) (*Kept, error) {
	if _, err := checkSnapshot(dir); err != nil {
		return nil, fmt.Errorf("the snapshot %s is damaged: %w", dir, err)
	}
	b, err := readLimited(filepath.Join(dir, metaFile), maxMetaBytes)
	if err != nil {
		return nil, err
	}
	var meta raft.SnapshotMeta
	if err := json.Unmarshal(b, &meta); err != nil {
		return nil, err
	}
	info, err := os.Stat(filepath.Join(dir, metaFile))
	if err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(dir, stateFile))
	if err != nil {
		return nil, err
	}
	return &Kept{meta.Index, meta.Term, info.ModTime(), f}, nil
}

type dialer = func(addr string, timeout time.Duration) (net.Conn, error)

// Living asks another controller what it has. It reports whether that one runs and has a cluster's state.
func Living(ctx context.Context, dial dialer, p Peer) (bool, error) {
	st, err := askOver(ctx, dial, p)
	return err == nil && st.LastIndex > 0 && !st.Joining, err
}
