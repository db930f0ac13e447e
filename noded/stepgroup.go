package noded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/cgroup"
	"gbatch/noded/procs"
	"gbatch/noded/shim"
)

// stepgroup.go gives a job step its control group, within the job's: a part of the job's CPUs, memory and devices,
// held by the kernel like the job's own. How the launch of a step uses it is in DESIGN.md, "Groups of steps". A login
// of the job's user, by ssh for example, joins the job's own group (DESIGN.md, "Logins").

// adoptedPace is the time between two looks at a job that ends just when a login was put into it.
const adoptedPace = 100 * time.Millisecond

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

// onAdopt puts the process that has started a PAM helper into the job of a user that has begun here last.
func (l *loop) onAdopt(m msgAdopt) {
	var a *attempt
	asleep := model.JobID(0)
	for _, o := range l.attempts {
		switch {
		case o.rec == nil || o.rec.UID != m.uid || o.rec.Order == nil:
		case o.doomed() || o.phase != running && o.phase != ready:
		case o.chill.want != nil && o.chill.want.Frozen:
			asleep = o.key.Job
		case a == nil || a.rec.At < o.rec.At || a.rec.At == o.rec.At && a.key.Job < o.key.Job:
			a = o
		}
	}
	at := -1
	if a != nil {
		at = a.rec.Order.Alloc.Place(l.n.opts.Name)
	}
	switch {
	case at < 0 && asleep != 0:
		m.conn.refuse(&proto.StepEvent{Kind: proto.StepRefused,
			Text: fmt.Sprintf("your job %d on %s is suspended, and would stop the login too", asleep, l.n.opts.Name)})
		return
	case at < 0:
		m.conn.refuse(&proto.StepEvent{Kind: proto.StepRefused,
			Text: "you have no running job on " + l.n.opts.Name})
		return
	}
	key, job, log := a.key, a.rec.Order.Alloc.Nodes[at], l.log
	l.n.workers.Do(func(context.Context) {
		pid, held, err := l.n.groups.adopt(key, &job, m.asker)
		ev := &proto.StepEvent{Kind: proto.StepAdopted, Text: fmt.Sprintf("job %d", key.Job)}
		switch {
		case err != nil:
			ev.Kind, ev.Text = proto.StepRefused, fmt.Sprintf("your job %d can't take the login: %v", key.Job, err)
		case !held:
			ev.Text += ", which has no control group"
		}
		if err != nil {
			log.Warn("a login can't be put into a job", "job", key.Job, "uid", m.uid, "err", err)
		} else {
			log.Info("a login was put into a job", "job", key.Job, "uid", m.uid, "pid", pid, "confined", held)
		}
		l.n.inbox.post(msgAdopted{key})
		m.conn.send(ev)
	})
}

// onAdopted ends what was put into a job that had ended meanwhile.
func (l *loop) onAdopted(m msgAdopted) {
	switch a := l.attempts[m.key]; {
	case a != nil && a.phase < ending:
		return
	case a != nil && a.phase == ending: // its group is being removed, and may have been made anew beside that
		time.AfterFunc(adoptedPace, func() { l.n.inbox.post(m) })
		return
	}
	l.n.workers.Do(func(context.Context) {
		if err := l.n.groups.remove(m.key); err != nil {
			l.log.Error("a login of a job that has ended is left", "job", m.key.Job, "err", err)
		}
	})
}

// adopt moves the parent of a process into a job's group; held is false where there are no groups.
func (g *groups) adopt(key proto.Attempt, job *model.NodeAlloc, asker int) (pid int, held bool, err error) {
	var group *cgroup.Group
	if g.root.Can().Track {
		if group, err = g.jobGroup(key, job); err != nil {
			return 0, false, err
		}
	}
	pid, there := procs.Parent(asker) // it waits for the asker, so the number stays its own
	switch {
	case !there || pid <= 1:
		return 0, false, errors.New("the login has ended")
	case group == nil:
		return pid, false, nil
	}
	return pid, true, group.Take(pid)
}
