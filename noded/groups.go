package noded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/cgroup"
	"gbatch/noded/hardware"
	"gbatch/noded/shim"
	"gbatch/noded/sitegroup"
)

// groups.go gives every attempt its control group, with limits from the configuration and the allocation. When the
// attempt has ended, it kills the remaining processes, reads the usage and removes the group. Without control groups,
// gshim finds the processes that a job left behind, and affinity pins cores.

// firstKill is how long a worker waits for processes to die before other workers take over.
const firstKill = 250 * time.Millisecond

// emptyWait is how long a group may stay busy after its last process before it is taken for one with processes left.
const emptyWait = 2 * time.Millisecond

type groups struct {
	root   *cgroup.Root
	conf   conf.Cgroup
	cpus   []int // the machine's, in the order of allocations
	mem    int64 // the node's, MiB
	virt   bool
	claims int              // CPUs that the node says it has
	site   *sitegroup.Store // of the programs before and after jobs
	link   *link            // set once gshim is known
	prefix string
	say    []string
	old    []string // groups that were there at the start
	units  *hardware.Table

	kept   atomic.Pointer[keptPart] // nil: nothing
	making sync.Mutex               // of jobs' groups by their steps
	doctor sync.Mutex               // of the group in which device rules are tried
	mu     sync.Mutex
	open   map[proto.Attempt]*cgroup.Group
}

// keptPart is the part of the node that jobs can't use.
type keptPart struct {
	cpus model.Bits
	mem  int64 // MiB
}

// keep sets the part of this node that the configuration keeps from jobs.
func (g *groups) keep(def *model.NodeDef) {
	var k *keptPart
	if def != nil && (!def.Kept.Empty() || def.KeptMemMiB > 0) {
		k = &keptPart{def.Kept, def.KeptMemMiB}
	}
	g.kept.Store(k)
}

// openGroups prepares the place of this gnoded's groups.
func openGroups(n *Noded) (*groups, error) {
	g := &groups{cpus: n.inv.CPUs, mem: n.inv.Hw.MemMiB, virt: n.opts.Virtual, claims: int(n.inv.Hw.CPUs),
		open: map[proto.Attempt]*cgroup.Group{}}
	if n.opts.Config != nil {
		g.conf = n.opts.Config.Cgroup
	}
	var err error
	g.prefix = cgroup.Place(n.opts.Name, n.opts.Spool)
	if g.root, err = cgroup.OpenPart(g.prefix, hostGroups(&g.conf)); err != nil {
		return nil, err
	}
	if g.old, err = g.root.List(); err != nil {
		return nil, err
	}
	g.site = sitegroup.New(g.prefix+".site", hostGroups(&g.conf))
	if why := g.root.Why(); why != "" {
		g.say = append(g.say, why)
	}
	g.units = hardware.NewTable(hardware.Units(n.opts.look(), n.inv), &g.conf)
	switch {
	case !g.conf.ConstrainDevices:
	case !g.root.Can().Devices && len(g.units.Devs) == 0 && g.units.Strict == nil: // there is nothing to enforce
	case !g.root.Can().Devices:
		g.say = append(g.say, "ConstrainDevices=yes can't be enforced: jobs can open the devices of others")
	default:
		g.say = append(g.say, g.units.Notable...)
	}
	return g, nil
}

// hostGroups are the host's control groups that cgroup.conf allows.
func hostGroups(c *conf.Cgroup) cgroup.Want {
	w := cgroup.Want{Below: c.Mountpoint}
	switch c.Plugin {
	case "cgroup/v1":
		w.Version = 1
	case "cgroup/v2":
		w.Version = 2
	case "disabled":
		w.Disabled = true
	}
	return w
}

// holdsDevices reports whether jobs can open no other units than their own.
func (g *groups) holdsDevices() bool { return g.conf.ConstrainDevices && g.root.Can().Devices }

// notes are sentences about what can't be enforced.
func (g *groups) notes() []string { return g.say }

func nameOf(key proto.Attempt) string { return fmt.Sprintf("job_%d.%d", key.Job, key.Attempt) }

// path is the path of an attempt's group, below the group of this machine's groups, as the kernel writes it.
func (g *groups) path(key proto.Attempt) string { return g.prefix + "/" + nameOf(key) }

// create makes an attempt's group and says how its process is started in it; pin has the CPUs for affinity if the group
// can't limit them. With reuse an existing group is complete and used as it is; otherwise an existing group was left by
// a killed gnoded.
func (g *groups) create(l *proto.Launch, reuse bool) (in shim.Cgroup, pin []int, err error) {
	limits, pin := g.limitsAndPin(&l.Alloc.Nodes[l.Node])
	key := proto.Attempt{Job: l.Job, Attempt: l.Attempt}
	group, err := g.root.Create(nameOf(key), limits)
	if errors.Is(err, fs.ErrExist) {
		if reuse {
			group, err = g.root.Reopen(nameOf(key), limits)
		} else if err = g.remove(key); err == nil {
			group, err = g.root.Create(nameOf(key), limits)
		}
	}
	if err != nil {
		return shim.Cgroup{}, nil, err
	}
	g.mu.Lock()
	g.open[key] = group
	g.mu.Unlock()
	in.V1, in.V2 = group.JoinDirs()
	return in, pin, nil
}

// limitsAndPin gives an allocation's limits, and the CPUs for affinity if a group can't limit them.
func (g *groups) limitsAndPin(here *model.NodeAlloc) (limits cgroup.Limits, pin []int) {
	limits = g.limits(here)
	if !g.root.Can().CPUs {
		pin, limits.CPUs = limits.CPUs, nil
		if g.virt { // several nodes stand in for one machine: pinning would put them all on its first cores
			pin = nil
		}
	}
	return limits, pin
}

// limits gives an allocation's limits.
func (g *groups) limits(here *model.NodeAlloc) cgroup.Limits {
	l := cgroup.Limits{SwapBytes: cgroup.Unlimited}
	if g.conf.ConstrainCores {
		l.CPUs = g.machineCPUs(here.CPUs)
	} else if k := g.kept.Load(); k != nil && !k.cpus.Empty() {
		l.CPUs = g.machineCPUs(model.UpTo(g.claims).Minus(k.cpus))
	}
	if g.holdsDevices() {
		l.Devices = g.units.Rules(here.Gres)
	}
	if g.conf.ConstrainSwapSpace && g.conf.MemorySwappiness >= 0 {
		n := int(g.conf.MemorySwappiness)
		l.Swappy = &n
	}
	if g.conf.ConstrainRAMSpace {
		l.MemBytes, l.SwapBytes = g.memory(here.MemMiB)
	}
	return l
}

// memory gives the limits of memory and swap, bytes, for an amount of allocated memory, MiB. 0 means that the cluster
// doesn't allocate memory: then the job is limited to its share of the node's memory.
func (g *groups) memory(alloc int64) (mem, swap int64) {
	const mib = 1 << 20
	c, node, kept := &g.conf, g.mem, int64(0)
	if k := g.kept.Load(); k != nil {
		node, kept = node-k.mem, k.mem
	}
	if alloc <= 0 {
		if node <= 0 || kept == 0 && c.MaxRAMPercent >= 100 && !(c.ConstrainSwapSpace && c.MaxSwapPercent < 100) {
			return 0, cgroup.Unlimited
		}
		mem, swap = int64(percent(node, c.MaxRAMPercent, 100, node)), int64(percent(node, c.MaxSwapPercent, 100, node))
	} else {
		mem = int64(percent(alloc, c.AllowedRAMSpacePct, c.MaxRAMPercent, node))
		swap = int64(percent(alloc, c.AllowedSwapSpacePct, c.MaxSwapPercent, node))
	}
	mem = max(mem, c.MinRAMSpaceMiB, 1)
	switch {
	case !c.ConstrainSwapSpace:
		return mem * mib, cgroup.Unlimited
	case c.RAMFollowsSwap:
		return (mem + swap) * mib, 0
	}
	return mem * mib, swap * mib
}

// percent gives a percentage of the allocated memory, at most a percentage of the node's memory, MiB.
func percent(alloc int64, of, most float64, node int64) float64 {
	want := float64(alloc) * of / 100
	if node > 0 && most > 0 {
		want = min(want, float64(node)*most/100)
	}
	return math.Ceil(want)
}

// machineCPUs translates an allocation's CPUs into the machine's; nil is no limit: the job has all of them, or the
// node is a virtual one that claims more than there are, so that its numbers mean nothing here.
func (g *groups) machineCPUs(alloc model.Bits) []int {
	if g.claims > len(g.cpus) {
		return nil
	}
	var out []int
	alloc.Each(func(i int) bool {
		if i < len(g.cpus) {
			out = append(out, g.cpus[i])
		}
		return true
	})
	if len(out) == len(g.cpus) {
		return nil
	}
	return out
}

// pinTo gives the machine's CPUs for CPUs of this node; nil where its numbers mean nothing here.
func (g *groups) pinTo(on model.Bits) []int {
	if g.claims > len(g.cpus) {
		return nil
	}
	var out []int
	on.Each(func(i int) bool {
		if i < len(g.cpus) {
			out = append(out, g.cpus[i])
		}
		return true
	})
	return out
}

// of gives an attempt's group, nil where there is none.
func (g *groups) of(key proto.Attempt) (*cgroup.Group, error) {
	if !g.root.Can().Track {
		return nil, nil
	}
	g.mu.Lock()
	group := g.open[key]
	g.mu.Unlock()
	if group != nil {
		return group, nil
	}
	group, err := g.root.Load(nameOf(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return group, err
}

// finish kills the remaining processes of an attempt, gives its usage, and removes its group. An error means that
// something is still there.
func (g *groups) finish(ctx context.Context, c *clearing) (usage, error) {
	group, err := g.of(c.key)
	if err != nil {
		return usage{}, err
	}
	if c.tries == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, firstKill)
		defer cancel()
	}
	if group == nil {
		return usage{}, g.killByShim(ctx, c)
	}
	use, err := g.empty(ctx, group)
	if err == nil {
		g.mu.Lock()
		delete(g.open, c.key)
		g.mu.Unlock()
	}
	return use, err
}

// empty kills the remaining processes in a group, removes it, and gives its usage.
func (g *groups) empty(ctx context.Context, group *cgroup.Group) (usage, error) {
	use := g.use(group)
	if err := g.removeEmpty(ctx, group); err != nil {
		if err := group.Kill(ctx); err != nil {
			return use, err
		}
		use = g.use(group).or(use)
		if err := group.Remove(ctx); err != nil {
			return use, err
		}
	}
	return use, nil
}

// removeEmpty removes a group without processes; the kernel refuses if there are any.
func (g *groups) removeEmpty(ctx context.Context, group *cgroup.Group) error {
	ctx, cancel := context.WithTimeout(ctx, emptyWait)
	defer cancel()
	return group.Remove(ctx)
}

// use reads a group's usage.
func (g *groups) use(group *cgroup.Group) usage {
	u, err := group.Usage()
	use := usage{known: err == nil, userMS: u.UserCPU.Milliseconds(), sysMS: u.SysCPU.Milliseconds(),
		peakKB: u.MemPeakBytes >> 10, oomKills: u.OOMKills}
	if use.oomKills > 0 {
		if limit, err := group.MemLimit(); err == nil { // else the sentence does without
			use.limitKB = limit >> 10
		}
	}
	return use
}

// or gives u, or an earlier reading if the group could not be read any more.
func (u usage) or(earlier usage) usage {
	if u.known {
		return u
	}
	return earlier
}

// killByShim kills the processes that a job without a group left behind. gshim knows the job until its end is
// acknowledged.
func (g *groups) killByShim(ctx context.Context, c *clearing) error {
	if c.ended == nil && c.began == 0 || c.ended != nil && c.ended.Kind != shim.Exited {
		return nil // it never ran
	}
	if _, err := g.link.signal(ctx, shimKey(c.key), unix.SIGKILL, shim.Tree); err != nil &&
		!errors.Is(err, shim.ErrUnknown) {
		return err
	}
	return nil
}

// survivors gives the remaining processes in an attempt's group.
func (g *groups) survivors(key proto.Attempt) []int {
	group, err := g.of(key)
	if group == nil || err != nil {
		return nil
	}
	pids, err := group.Procs()
	if err != nil {
		return nil // it has just gone
	}
	return pids
}

// stepSurvivors gives the remaining processes in a step's group.
func (g *groups) stepSurvivors(key proto.Attempt, step int32) []int {
	group, err := g.ofStep(key, step)
	if group == nil || err != nil {
		return nil
	}
	pids, err := group.Procs()
	if err != nil {
		return nil // it has just gone
	}
	return pids
}

// remove removes the group of an attempt that has not begun; nothing of it should run.
func (g *groups) remove(key proto.Attempt) error {
	group, err := g.of(key)
	if group == nil || err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), firstKill)
	defer cancel()
	if err := errors.Join(group.Kill(ctx), group.Remove(ctx)); err != nil {
		return err
	}
	g.mu.Lock()
	delete(g.open, key)
	g.mu.Unlock()
	return nil
}

// sweep empties and removes groups from before gnoded's start that no attempt in keep has: the spool and gshim were
// lost. It gives the groups that could not be removed.
func (g *groups) sweep(ctx context.Context, keep []proto.Attempt) error {
	mine := make(map[string]bool, len(keep))
	for _, key := range keep {
		mine[nameOf(key)] = true
	}
	var errs []error
	for _, name := range g.old {
		if mine[name] {
			continue
		}
		group, err := g.root.Load(name)
		if err == nil {
			err = errors.Join(group.Kill(ctx), group.Remove(ctx))
		}
		if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (g *groups) close() error { return errors.Join(g.site.Close(), g.root.Close()) }
