package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// sub.go makes groups within a job's group, for its steps. If the job's group enables v2 controllers for them, the
// kernel requires that it has no processes itself; those of the batch script are then moved aside, so only jobs with
// steps pay for this.

// ownPart is the group for a job's own processes. No step has this name.
const ownPart = "own"

// moveRounds limits how often moveAside reads the processes of a group that forks meanwhile.
const moveRounds = 100

// Sub makes a group within this one, for a step ("step_0"): a part of the job's resources. It has its own counters if
// the host has them, and its limits and devices hold in addition to the job's. fs.ErrExist if it exists, fs.ErrNotExist
// if the job's group does not.
func (g *Group) Sub(step string, l Limits) (*Group, error) {
	if err := checkName(step, 1); err != nil || step == ownPart {
		return nil, fmt.Errorf("create group in %s: %w", g.name,
			errors.Join(err, fmt.Errorf("%q can't be the name of a step", step)))
	}
	if err := l.check(); err != nil {
		return nil, fmt.Errorf("create group %s in %s: %w", step, g.name, err)
	}
	s := &Group{root: g.root, name: g.name + "/" + step, v1: map[string]string{}}
	for c, dir := range g.v1 {
		s.v1[c] = dir
	}
	if err := g.passOn(); err != nil {
		return nil, fmt.Errorf("create group %s in %s: %w", step, g.name, err)
	}
	above, err := g.forSteps(l)
	if err != nil {
		return nil, fmt.Errorf("create group %s in %s: %w", step, g.name, err)
	}
	if err := s.make(g.v2, func(c string) string { return above[c] }, step, l); err != nil {
		return nil, fmt.Errorf("create group %s in %s: %w", step, g.name, errors.Join(err, s.discard()))
	}
	return s, nil
}

// forSteps gives the v1 directories for a step's group. If the job has none in a hierarchy, it gets one now.
func (g *Group) forSteps(l Limits) (map[string]string, error) {
	above := make(map[string]string, len(controllers))
	for _, c := range controllers {
		base := g.root.v1[c]
		switch {
		case base == "" || !neededV1(c, l):
			continue
		case c == "cpuset" && g.root.sets != nil: // it lies beside the job's
			above[c] = base
			continue
		case g.v1[c] != "":
			above[c] = g.v1[c]
			continue
		}
		dir := filepath.Join(base, g.name)
		if err := unix.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, &fs.PathError{Op: "mkdir", Path: dir, Err: err}
		}
		if c == "cpuset" {
			if err := errors.Join(inherit(base, dir, "cpuset.cpus"), inherit(base, dir, "cpuset.mems")); err != nil {
				return nil, err
			}
		}
		above[c] = dir
	}
	return above, nil
}

// passOn makes this group's v2 controllers available below it, after its processes have been moved aside: with
// processes in it the kernel would refuse memory, and would accept cpuset and pids but make the groups below unusable.
func (g *Group) passOn() error {
	on := ""
	for _, c := range []string{"cpuset", "memory", "pids"} {
		if g.v2 != "" && g.root.v2ctl[c] {
			on += " +" + c
		}
	}
	if on == "" {
		return nil
	}
	if err := g.moveAside(); err != nil {
		return err
	}
	return writeFile(filepath.Join(g.v2, "cgroup.subtree_control"), on[1:])
}

// moveAside moves the group's own processes to a group below it.
func (g *Group) moveAside() error {
	for range moveRounds {
		pids, err := readProcs(g.v2)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := g.joinAside(pid); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("the processes in %s fork faster than they can be moved to %s below it", g.v2, ownPart)
}

// joinAside moves a process to the group for the job's own ones.
func (g *Group) joinAside(pid int) error {
	aside := filepath.Join(g.v2, ownPart)
	err := join(aside, pid)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := unix.Mkdir(aside, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return &fs.PathError{Op: "mkdir", Path: aside, Err: err}
	}
	return join(aside, pid)
}
