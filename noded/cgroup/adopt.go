package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// adopt.go deals with the processes of one user in a group that has others' too.

// Adopt moves the processes of another group that run as a user into this one, until none is left there. If this group
// has steps, they join what the job runs beside them. If it is removed meanwhile, what is left stays where it is.
func (g *Group) Adopt(from *Group, uid uint32) error {
	for range moveRounds {
		pids, err := from.procsOf(uid)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			switch err := g.take(pid); {
			case gone(err):
				return nil
			case err != nil:
				return fmt.Errorf("move process %d from group %s to %s: %w", pid, from.name, g.name, err)
			}
		}
	}
	return fmt.Errorf("the processes in %s fork faster than they can be moved to %s", from.name, g.name)
}

// Take moves one process into the group, with what it will start.
func (g *Group) Take(pid int) error {
	if err := g.take(pid); err != nil {
		return fmt.Errorf("move process %d to group %s: %w", pid, g.name, err)
	}
	return nil
}

// take moves a process into the group: first to where the group's end finds it, so that nothing else of the group has a
// process that nobody kills. One that has ended since needs no moving.
func (g *Group) take(pid int) error {
	track, err := g.trackDir()
	if err != nil {
		return err
	}
	err = join(track, pid)
	if track == g.v2 && (errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EOPNOTSUPP)) {
		err = g.joinAside(pid) // it has controllers for its steps, and no processes itself
	}
	if err != nil {
		return err
	}
	v1, _ := g.JoinDirs()
	for _, dir := range v1 {
		if err := join(dir, pid); err != nil && !gone(err) { // while the group is removed, which kills the process
			return err
		}
	}
	return nil
}

func join(dir string, pid int) error {
	err := writeFile(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid))
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// gone tells from an error that a group's directory does not exist any more.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// KillOf ends the group's processes that run as a user, with SIGKILL, and returns when none is left.
func (g *Group) KillOf(ctx context.Context, uid uint32) error {
	pause := killPause
	for range killTries {
		pids, err := g.procsOf(uid)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
				return fmt.Errorf("kill process %d of group %s: %w", pid, g.name, err)
			}
		}
		if err := wait(ctx, pause); err != nil {
			return fmt.Errorf("kill the processes of uid %d in group %s: %w", uid, g.name, err)
		}
		pause = min(2*pause, killLast)
	}
	return fmt.Errorf("processes of uid %d in group %s survive SIGKILL", uid, g.name)
}

// RemoveIfEmpty removes the group unless something is in it, without waiting. It reports whether the group is gone.
func (g *Group) RemoveIfEmpty() bool {
	for _, base := range g.root.dirs() {
		if err := unix.Rmdir(filepath.Join(base, g.name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

// procsOf lists the group's processes of which one of the four user ids is that user's: also those of a set-uid
// program that the user has started.
func (g *Group) procsOf(uid uint32) ([]int, error) {
	pids, err := g.Procs()
	if err != nil {
		return nil, err
	}
	want := strconv.FormatUint(uint64(uid), 10)
	out := pids[:0]
	for _, pid := range pids {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue // it has just ended
		}
		if hasUID(string(status), want) {
			out = append(out, pid)
		}
	}
	return out, nil
}

// hasUID tells whether a process, by its /proc/PID/status, has a user id, and is more than a body that nobody has
// waited for.
func hasUID(status, want string) bool {
	for line := range strings.Lines(status) {
		name, rest, _ := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		switch {
		case name == "State" && len(fields) > 0 && (fields[0] == "Z" || fields[0] == "X"):
			return false
		case name != "Uid":
			continue
		}
		for _, f := range fields {
			if f == want {
				return true
			}
		}
		return false
	}
	return false
}
