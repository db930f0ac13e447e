package noded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/cgroup"
	"gbatch/noded/shim"
)

// stepgroup.go gives a job step its control group, within the job's: a part of the job's CPUs, memory and devices,
// held by the kernel like the job's own. How the launch of a step uses it is in DESIGN.md, "Groups of steps".

// stepName is the name of a step's group within its job's.
func stepName(step int32) string { return fmt.Sprintf("step_%d", step) }

// createStep makes the group of a step and says how its tasks are started in it; pin has the CPUs for affinity if the
// group can't limit them. job is the job's part of this node, share the step's part of that: its CPUs, its memory (0:
// the job's) and its generic resources, of which it has no others than those named. The job's group is made where there
// is none, as on the nodes of a job that its batch script does not run on. With reuse a group that is there is complete
// (an earlier gnoded was killed between making it and hearing of its tasks), otherwise it is made anew.
func (g *groups) createStep(key proto.Attempt, step int32, job, share *model.NodeAlloc, reuse bool) (in shim.Cgroup,
	pin []int, err error) {
	limits, pin := g.limitsAndPin(share)
	if share.MemMiB <= 0 {
		limits.MemBytes, limits.SwapBytes = 0, cgroup.Unlimited
	}
	parent, err := g.jobGroup(key, job)
	if err != nil {
		return shim.Cgroup{}, nil, err
	}
	name := stepName(step)
	group, err := parent.Sub(name, limits)
	if errors.Is(err, fs.ErrExist) {
		if group, err = g.root.Reopen(path.Join(nameOf(key), name), limits); err == nil && !reuse {
			ctx, cancel := context.WithTimeout(context.Background(), firstKill)
			defer cancel()
			if err = errors.Join(group.Kill(ctx), group.Remove(ctx)); err == nil {
				group, err = parent.Sub(name, limits)
			}
		}
	}
	if err != nil {
		return shim.Cgroup{}, nil, err
	}
	in.V1, in.V2 = group.JoinDirs()
	return in, pin, nil
}

// jobGroup gives the group of a job, made if need be.
func (g *groups) jobGroup(key proto.Attempt, job *model.NodeAlloc) (*cgroup.Group, error) {
	g.making.Lock() // of two steps at once, one makes it
	defer g.making.Unlock()
	g.mu.Lock()
	group := g.open[key]
	g.mu.Unlock()
	if group != nil {
		return group, nil
	}
	limits, _ := g.limitsAndPin(job)
	group, err := g.root.Create(nameOf(key), limits)
	if errors.Is(err, fs.ErrExist) {
		group, err = g.root.Reopen(nameOf(key), limits)
	}
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	g.open[key] = group
	g.mu.Unlock()
	return group, nil
}

// ofStep gives a step's group, nil where there is none.
func (g *groups) ofStep(key proto.Attempt, step int32) (*cgroup.Group, error) {
	if !g.root.Can().Track {
		return nil, nil
	}
	group, err := g.root.Load(path.Join(nameOf(key), stepName(step)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return group, err
}

// finishStep ends what is left of a step, says what it used, and removes its group; the job's group stays. An error
// says that something is still there. Without a group it does nothing: gshim ends what it knows of (shim.Tree).
func (g *groups) finishStep(ctx context.Context, key proto.Attempt, step int32) (usage, error) {
	group, err := g.ofStep(key, step)
	if group == nil || err != nil {
		return usage{}, err
	}
	return g.empty(ctx, group)
}
