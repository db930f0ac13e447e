package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	killTries   = 60
	killPause   = 200 * time.Microsecond
	killLast    = 100 * time.Millisecond // with the above: about 5 seconds in all
	freezeTries = 40                     // about a second
	freezeLast  = 50 * time.Millisecond
)

// trackDir is the directory that has all processes of the group: in v2 or in the freezer.
func (g *Group) trackDir() (string, error) {
	if g.v2 != "" {
		return g.v2, nil
	}
	if d := g.v1["freezer"]; d != "" {
		return d, nil
	}
	return "", ErrUnavailable
}

// Procs lists the pids in the group and below. An empty or removed group is no error.
func (g *Group) Procs() ([]int, error) {
	dir, err := g.trackDir()
	if err != nil {
		return nil, err
	}
	return readTree(dir)
}

// Empty reports whether the group has no processes.
func (g *Group) Empty() (bool, error) {
	if g.v2 != "" {
		b, err := os.ReadFile(filepath.Join(g.v2, "cgroup.events"))
		if err == nil {
			return !bytes.Contains(b, []byte("populated 1")), nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		return false, err
	}
	pids, err := g.Procs()
	return err == nil && len(pids) == 0, err
}

// Signal sends a signal to every process and returns their number. For SIGKILL use Kill, which no process escapes.
func (g *Group) Signal(sig syscall.Signal) (int, error) {
	pids, err := g.Procs()
	if err != nil {
		return 0, fmt.Errorf("signal group %s: %w", g.name, err)
	}
	n := 0
	for _, pid := range pids {
		switch err := unix.Kill(pid, sig); err {
		case nil:
			n++
		case unix.ESRCH:
		default:
			return n, fmt.Errorf("signal group %s: pid %d: %w", g.name, pid, err)
		}
	}
	return n, nil
}

// Kill ends all processes of the group with SIGKILL, frozen or not, and returns when the group is empty. After about
// five seconds, or when ctx ends, it gives up with an error that names a survivor: a process in an uninterruptible wait
// dies when that wait ends.
func (g *Group) Kill(ctx context.Context) error {
	if _, err := g.trackDir(); err != nil {
		return fmt.Errorf("kill group %s: %w", g.name, err)
	}
	if g.v2 != "" {
		err := writeFile(filepath.Join(g.v2, "cgroup.kill"), "1")
		switch {
		case err == nil:
			return g.awaitEmpty(ctx, func() error { return nil })
		case !isDir(g.v2):
			return nil
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("kill group %s: %w", g.name, err)
		}
	}
	return g.awaitEmpty(ctx, g.killRound) // before Linux 5.14, and v1
}

// awaitEmpty calls round until the group is empty.
func (g *Group) awaitEmpty(ctx context.Context, round func() error) error {
	pause := killPause
	for range killTries {
		if err := round(); err != nil {
			return fmt.Errorf("kill group %s: %w", g.name, err)
		}
		empty, err := g.Empty()
		if err != nil {
			return fmt.Errorf("kill group %s: %w", g.name, err)
		}
		if empty {
			return nil
		}
		if err := wait(ctx, pause); err != nil {
			return fmt.Errorf("kill group %s: %w", g.name, err)
		}
		pause = min(2*pause, killLast)
	}
	pids, err := g.Procs()
	if err == nil && len(pids) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("kill group %s: %w", g.name, err)
	}
	return fmt.Errorf("kill group %s: %d processes survive SIGKILL, the first is pid %d: it may hang in a device or on "+
		"a file server", g.name, len(pids), pids[0])
}

// killRound freezes the group if it can, so that no process forks meanwhile, sends SIGKILL to each, and thaws: only
// then does a frozen process of v1 die.
func (g *Group) killRound() error {
	if g.root.can.Freeze {
		if err := g.setFrozen(true); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	pids, err := g.Procs()
	for _, pid := range pids {
		if pid == os.Getpid() {
			continue // never gnoded itself, even if it was moved there
		}
		if kerr := unix.Kill(pid, unix.SIGKILL); kerr != nil && kerr != unix.ESRCH {
			err = errors.Join(err, fmt.Errorf("pid %d: %w", pid, kerr))
		}
	}
	if g.root.can.Freeze {
		if terr := g.setFrozen(false); terr != nil && !errors.Is(terr, fs.ErrNotExist) {
			err = errors.Join(err, terr)
		}
	}
	return err
}

func (g *Group) setFrozen(frozen bool) error {
	if g.v2 != "" {
		return writeFile(filepath.Join(g.v2, "cgroup.freeze"), map[bool]string{true: "1", false: "0"}[frozen])
	}
	return writeFile(filepath.Join(g.v1["freezer"], "freezer.state"),
		map[bool]string{true: "FROZEN", false: "THAWED"}[frozen])
}

// Freeze stops every process, without a signal, and returns when all have stopped.
func (g *Group) Freeze(ctx context.Context) error { return g.freeze(ctx, true) }

// Thaw continues them.
func (g *Group) Thaw(ctx context.Context) error { return g.freeze(ctx, false) }

func (g *Group) freeze(ctx context.Context, frozen bool) error {
	verb := map[bool]string{true: "freeze", false: "thaw"}[frozen]
	if !g.root.can.Freeze {
		return fmt.Errorf("%s group %s: %w", verb, g.name, ErrUnavailable)
	}
	if err := g.setFrozen(frozen); err != nil {
		return fmt.Errorf("%s group %s: %w", verb, g.name, err)
	}
	pause := killPause
	for range freezeTries {
		now, err := g.isFrozen()
		if err != nil {
			return fmt.Errorf("%s group %s: %w", verb, g.name, err)
		}
		if now == frozen {
			return nil
		}
		if err := wait(ctx, pause); err != nil {
			return fmt.Errorf("%s group %s: %w", verb, g.name, err)
		}
		pause = min(2*pause, freezeLast)
	}
	return fmt.Errorf("%s group %s: its processes don't follow; one may be in an uninterruptible wait", verb, g.name)
}

// Frozen reports whether every process is stopped by Freeze. A group that does not exist is not frozen.
func (g *Group) Frozen() (bool, error) {
	frozen, err := g.isFrozen()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return frozen, err
}

func (g *Group) isFrozen() (bool, error) {
	if g.v2 != "" {
		b, err := os.ReadFile(filepath.Join(g.v2, "cgroup.events"))
		return bytes.Contains(b, []byte("frozen 1")), err
	}
	b, err := os.ReadFile(filepath.Join(g.v1["freezer"], "freezer.state"))
	return strings.TrimSpace(string(b)) == "FROZEN", err
}

// readTree lists the processes in a directory and below. A directory that does not exist has none.
func readTree(dir string) ([]int, error) {
	pids, err := readProcs(dir)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return pids, err
	}
	for _, e := range entries {
		if e.IsDir() {
			below, err := readTree(filepath.Join(dir, e.Name()))
			if err != nil {
				return pids, err
			}
			pids = append(pids, below...)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

func readProcs(dir string) ([]int, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, f := range bytes.Fields(b) {
		// 0 is a process outside our pid namespace.
		if pid, err := strconv.Atoi(string(f)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
