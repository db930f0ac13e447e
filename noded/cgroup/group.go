package cgroup

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
	"time"

	"golang.org/x/sys/unix"
)

// Limits are the limits of a group.
type Limits struct {
	CPUs      []int    // its processes run only on these; nil: all of the group above
	MemBytes  int64    // 0: no limit
	SwapBytes int64    // beyond MemBytes; Unlimited: no limit. Without MemBytes it has no effect
	Swappy    *int     // v1's memory.swappiness, 0 to 100; nil: the kernel's. v2 does not have it
	Pids      int64    // processes and threads; 0: no limit
	Devices   *Devices // nil: no control
}

// Unlimited is the SwapBytes of a job without a swap limit.
const Unlimited = -1

func (l *Limits) check() error {
	if l.MemBytes < 0 || l.SwapBytes < Unlimited || l.Pids < 0 {
		return fmt.Errorf("limits: memory %d, swap %d, processes %d: none may be negative", l.MemBytes, l.SwapBytes, l.Pids)
	}
	if l.CPUs != nil && len(l.CPUs) == 0 {
		return errors.New("limits: an empty list of CPUs; nil means all")
	}
	for _, c := range l.CPUs {
		if c < 0 {
			return fmt.Errorf("limits: CPU %d", c)
		}
	}
	if l.Devices != nil {
		return l.Devices.check()
	}
	return nil
}

// Group is one job's control group, or a part of one.
type Group struct {
	root *Root
	name string
	v2   string
	v1   map[string]string // controller -> the directory of its processes
	own  []string          // directories to remove, all hierarchies
}

// Create makes a group for a job ("job_17"). Limits that Can() denies are ignored. fs.ErrExist if the group exists.
func (r *Root) Create(job string, l Limits) (*Group, error) {
	if err := checkName(job, 1); err != nil {
		return nil, fmt.Errorf("create group: %w", err)
	}
	if err := l.check(); err != nil {
		return nil, fmt.Errorf("create group %s: %w", job, err)
	}
	g := &Group{root: r, name: job, v1: map[string]string{}}
	err := g.make(r.v2, func(c string) string { return r.v1[c] }, job, l)
	if err != nil {
		return nil, fmt.Errorf("create group %s: %w", job, errors.Join(err, g.discard()))
	}
	return g, nil
}

// make makes the directories below the group above and writes the limits.
func (g *Group) make(v2 string, v1 func(controller string) string, name string, l Limits) error {
	r := g.root
	if v2 != "" {
		dir := filepath.Join(v2, name)
		if err := g.mkdir(dir); err != nil {
			return err
		}
		g.v2 = dir
		if err := g.limitV2(l); err != nil {
			return err
		}
		if l.Devices != nil && r.ebpf {
			if err := r.programs.attach(l.Devices, dir); err != nil {
				return err
			}
		}
	}
	for _, c := range controllers {
		above := v1(c)
		if above == "" || !neededV1(c, l) {
			continue
		}
		if c == "cpuset" && r.sets != nil {
			dir, err := r.sets.take(l.CPUs)
			if err != nil {
				return err
			}
			g.v1[c] = dir
			continue
		}
		dir := filepath.Join(above, name)
		if !slices.Contains(g.own, dir) { // co-mounted controllers share a directory
			if err := g.mkdir(dir); err != nil {
				return err
			}
		}
		g.v1[c] = dir
		if err := limitV1(c, dir, r, l); err != nil {
			return err
		}
	}
	return nil
}

// neededV1 tells whether a job needs the hierarchy of this controller. If v2 does the work, Root has no v1 directory at
// all.
func neededV1(controller string, l Limits) bool {
	switch controller {
	case "cpuset":
		return l.CPUs != nil
	case "pids":
		return l.Pids > 0
	case "devices":
		return l.Devices != nil
	}
	return true // memory, cpuacct and freezer measure and track
}

func (g *Group) mkdir(dir string) error {
	if err := unix.Mkdir(dir, 0o755); err != nil {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	g.own = append(g.own, dir)
	return nil
}

// discard removes the directories that make has made before it failed. No process is there yet.
func (g *Group) discard() error {
	var errs []error
	for _, d := range slices.Backward(g.own) {
		if err := unix.Rmdir(d); err != nil {
			errs = append(errs, &fs.PathError{Op: "rmdir", Path: d, Err: err})
		}
	}
	return errors.Join(errs...)
}

func (g *Group) limitV2(l Limits) error {
	ctl := g.root.v2ctl
	set := func(controller, file, value string) error {
		err := writeFile(filepath.Join(g.v2, file), value)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// The controller has been disabled since Open.
		if err := g.root.switchOn(controller); err != nil {
			return err
		}
		return writeFile(filepath.Join(g.v2, file), value)
	}
	if ctl["cpuset"] && l.CPUs != nil {
		if err := set("cpuset", "cpuset.cpus", cpuList(l.CPUs)); err != nil {
			return err
		}
	}
	if ctl["memory"] && l.MemBytes > 0 {
		if err := set("memory", "memory.max", strconv.FormatInt(l.MemBytes, 10)); err != nil {
			return err
		}
		if g.root.can.Swap && l.SwapBytes != Unlimited {
			if err := set("memory", "memory.swap.max", strconv.FormatInt(l.SwapBytes, 10)); err != nil {
				return err
			}
		}
	}
	if ctl["pids"] && l.Pids > 0 {
		return set("pids", "pids.max", strconv.FormatInt(l.Pids, 10))
	}
	return nil
}

func limitV1(controller, dir string, r *Root, l Limits) error {
	put := func(file, value string) error { return writeFile(filepath.Join(dir, file), value) }
	switch controller {
	case "cpuset":
		return r.fillCpuset(dir, cpuList(l.CPUs))
	case "memory":
		if l.Swappy != nil {
			if err := put("memory.swappiness", strconv.Itoa(*l.Swappy)); err != nil {
				return err
			}
		}
		if l.MemBytes == 0 {
			return nil
		}
		if err := put("memory.limit_in_bytes", strconv.FormatInt(l.MemBytes, 10)); err != nil {
			return err
		}
		if r.can.Swap && l.SwapBytes != Unlimited {
			return put("memory.memsw.limit_in_bytes", strconv.FormatInt(l.MemBytes+l.SwapBytes, 10))
		}
	case "pids":
		return put("pids.max", strconv.FormatInt(l.Pids, 10))
	case "devices":
		return l.Devices.write(dir)
	}
	return nil
}

// fillCpuset gives a v1 cpuset its CPUs, in the kernel's notation, and its memory nodes.
func (r *Root) fillCpuset(dir, cpus string) error {
	put := func(file, value string) error { return writeFile(filepath.Join(dir, file), value) }
	if r.balanced { // before the CPUs: an empty set has no domain
		if err := put(balanceFile, "0"); err != nil {
			return err
		}
	}
	return errors.Join(put("cpuset.cpus", cpus), put("cpuset.mems", r.mems))
}

// cpuList is the kernel's notation, such as 0-3,8.
func cpuList(cpus []int) string {
	sorted := slices.Clone(cpus)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	var b strings.Builder
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(sorted[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(sorted[j]))
		}
		i = j + 1
	}
	return b.String()
}

// Load finds an existing group by its name, as Create and Sub made it (a Sub's name is "job_17/step_0").
// fs.ErrNotExist if there is none.
func (r *Root) Load(name string) (*Group, error) {
	if err := checkName(name, 2); err != nil {
		return nil, fmt.Errorf("load group: %w", err)
	}
	g := &Group{root: r, name: name, v1: map[string]string{}}
	if r.support.Mode == None {
		return g, nil
	}
	if r.v2 != "" {
		if dir := filepath.Join(r.v2, name); isDir(dir) {
			g.v2, g.own = dir, append(g.own, dir)
		}
	}
	for _, c := range controllers {
		base := r.v1[c]
		if base == "" {
			continue
		}
		dir := filepath.Join(base, name)
		if isDir(dir) {
			g.v1[c] = dir
			if !slices.Contains(g.own, dir) {
				g.own = append(g.own, dir)
			}
		} else if job := filepath.Dir(name); job != "." && isDir(filepath.Join(base, job)) {
			g.v1[c] = filepath.Join(base, job)
		}
	}
	if len(g.own) == 0 {
		return nil, fmt.Errorf("load group %s: %w", name, fs.ErrNotExist)
	}
	return g, nil
}

// Reopen finds a group as Load does, with the cpuset of its limits, for processes that are yet to start in it.
func (r *Root) Reopen(name string, l Limits) (*Group, error) {
	g, err := r.Load(name)
	if err != nil || r.sets == nil || l.CPUs == nil {
		return g, err
	}
	dir, err := r.sets.take(l.CPUs)
	if err != nil {
		return nil, fmt.Errorf("load group %s: %w", name, err)
	}
	g.v1["cpuset"] = dir
	return g, nil
}

func isDir(dir string) bool {
	var st unix.Stat_t
	return unix.Stat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// Name is the name the group was created under.
func (g *Group) Name() string { return g.name }

// JoinDirs are the directories in which gshim starts a process of the group: gshim's Cgroup. Both are empty if control
// groups can't be used.
func (g *Group) JoinDirs() (v1 []string, v2 string) {
	for _, c := range controllers {
		if d := g.v1[c]; d != "" && !slices.Contains(v1, d) {
			v1 = append(v1, d)
		}
	}
	return v1, g.v2
}

const (
	removeTries = 40 // a cgroup stays busy for a moment after its last process has been reaped
	removePause = 200 * time.Microsecond
	removeLast  = 50 * time.Millisecond
)

// Remove removes the group and everything below it. It waits a moment for processes that are just ending; an error
// names the directory and the processes still in it. A group that no longer exists is no error.
func (g *Group) Remove(ctx context.Context) error {
	var errs []error
	for _, base := range slices.Backward(g.root.dirs()) { // a step may have made some that Create did not
		if err := removeTree(ctx, filepath.Join(base, g.name)); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove group %s: %w", g.name, err)
	}
	return nil
}

func removeTree(ctx context.Context, dir string) error {
	err := unix.Rmdir(dir)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if subs, err := os.ReadDir(dir); err == nil {
		for _, s := range subs {
			if s.IsDir() {
				if err := removeTree(ctx, filepath.Join(dir, s.Name())); err != nil {
					return err
				}
			}
		}
	}
	pause := removePause
	for range removeTries {
		err = unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) {
			break
		}
		if werr := wait(ctx, pause); werr != nil {
			break
		}
		pause = min(2*pause, removeLast)
	}
	pids, perr := readProcs(dir)
	if perr == nil && len(pids) > 0 {
		return fmt.Errorf("rmdir %s: %w: %d processes are in it, the first is pid %d", dir, err, len(pids), pids[0])
	}
	return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
}

// wait pauses, unless ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
