package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// The limits of names.
const (
	maxNameBytes = 200
	maxDepth     = 8 // of a prefix
)

// Features are the abilities of a Root.
type Features struct {
	Track   bool // list and kill all of a job's processes; without it all others are false
	CPUs    bool // restrict to a CPU list
	Memory  bool // limit and measure memory
	Swap    bool // limit swap
	Pids    bool // limit the number of processes and threads
	Devices bool // allow and deny device files
	CPUTime bool // measure CPU time
	Freeze  bool // suspend

	CountsBelow bool // a group's OOMKills include those of the groups within it
}

// ErrUnavailable means that a group exists only by name, because the host's control groups can't be used.
var ErrUnavailable = errors.New("control groups can't be used here")

// Root has one gnoded's groups.
type Root struct {
	support  Support
	prefix   string
	can      Features
	why      string
	v1       map[string]string // controller -> our directory there, for the controllers in use
	v2       string            // our directory, or ""
	v2ctl    map[string]bool   // controllers that our v2 groups have
	ebpf     bool              // devices by a v2 program
	programs programs
	mems     string   // v1 cpuset: the memory nodes of every group
	sets     *cpusets // v1 cpuset: shared ones; nil without them, or if other controllers share that hierarchy
	balanced bool     // v1 cpuset: the kernel spreads load over all CPUs here, whatever the groups below say
	ticks    int64    // of the clock in cpuacct.stat, per second
}

// Want restricts the host's hierarchies that are used. The zero Want uses all.
type Want struct {
	Version   int    // 1 or 2: only hierarchies of that version; 0: both
	Below     string // only hierarchies mounted at this directory or below it; "": all
	Disabled  bool   // none at all
	TrackOnly bool   // only what finds and kills a group's processes, without limits
}

// narrow removes the hierarchies that are not wanted.
func (w Want) narrow(s Support) Support {
	if s.Mode == None {
		return s
	}
	if w.Disabled {
		return Support{Why: "CgroupPlugin=disabled"}
	}
	below := func(at string) bool {
		return w.Below == "" || at == w.Below || strings.HasPrefix(at, strings.TrimSuffix(w.Below, "/")+"/")
	}
	out := Support{v1: map[string]string{}}
	for c, at := range s.v1 {
		if w.Version != 2 && below(at) {
			out.v1[c] = at
		}
	}
	if w.Version != 1 && s.v2 != "" && below(s.v2) {
		out.v2, out.ctl = s.v2, s.ctl
	}
	if w.TrackOnly {
		out.ctl, out.unlimited = nil, true
		maps.DeleteFunc(out.v1, func(controller, _ string) bool { return controller != "freezer" })
	}
	out.setMode()
	if out.Mode == None {
		out.Why = "the host has " + s.Mode.String() + ", of which CgroupPlugin and CgroupMountpoint leave nothing"
	}
	return out
}

// Open prepares a prefix, such as gbatch/cluster-node: relative, of letters, digits and ._-, unique on this machine. A
// host without usable control groups is no error: then Mode is None and Why has the reason. Only a wrong prefix is an
// error.
func Open(prefix string) (*Root, error) { return OpenPart(prefix, Want{}) }

// OpenPart does the same with a part of the host's hierarchies.
func OpenPart(prefix string, w Want) (*Root, error) {
	if err := checkName(prefix, maxDepth); err != nil {
		return nil, fmt.Errorf("cgroup prefix: %w", err)
	}
	return open(prefix, w.narrow(Detect()), os.Geteuid()), nil
}

func open(prefix string, s Support, uid int) *Root {
	r := &Root{support: s, prefix: prefix, v1: map[string]string{}, v2ctl: map[string]bool{}, ticks: 100}
	if s.Mode == None {
		r.none(s.Why)
		return r
	}
	if uid != 0 {
		r.none(fmt.Sprintf("gnoded runs as uid %d, not as root", uid))
		return r
	}
	var problems []string
	note := func(err error) {
		if err != nil {
			problems = append(problems, err.Error())
		}
	}
	if s.v2 != "" {
		note(again(r.openV2))
	}
	// v1 has the controllers that v2 lacks.
	want := []string{"cpuset", "memory", "pids"}
	if r.v2 == "" {
		want = append(want, "freezer", "cpuacct")
	}
	for _, c := range want {
		if !r.v2ctl[c] && s.v1[c] != "" {
			note(again(func() error { return r.openV1(c) }))
		}
	}
	if r.v2 != "" && !s.unlimited {
		err := r.tryDeviceProgram()
		r.ebpf = err == nil
		if err != nil && s.v1["devices"] == "" {
			note(err)
		}
	}
	if !r.ebpf && s.v1["devices"] != "" {
		note(again(func() error { return r.openV1("devices") }))
	}
	note(r.shareCpusets())
	r.setFeatures()
	if !r.can.Track {
		r.none(strings.Join(problems, "; "))
		return r
	}
	r.setWhy(problems)
	return r
}

// again repeats open if another gnoded's Close interferes: that removes empty directories above its own.
func again(open func() error) error {
	const tries = 5
	var err error
	for range tries {
		if err = open(); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return err
}

// none makes a root without control groups.
func (r *Root) none(why string) {
	if why == "" {
		why = "no hierarchy lets us make groups"
	}
	r.support.Mode, r.support.Why, r.can = None, why, Features{}
	r.v1, r.v2 = map[string]string{}, ""
	r.why = "jobs can't be confined to their cores, memory and devices, and a process that leaves its job's session is " +
		"found by its environment only: " + why
}

func (r *Root) setFeatures() {
	has := func(c string) bool { return r.v2ctl[c] || r.v1[c] != "" }
	r.can = Features{CPUs: has("cpuset"), Memory: has("memory"), Pids: has("pids"), Devices: r.ebpf ||
		r.v1["devices"] != ""}
	r.can.Track = r.v2 != "" || r.v1["freezer"] != ""
	r.can.Freeze = exists(r.v2, "cgroup.freeze") || r.v1["freezer"] != ""
	r.can.CPUTime = exists(r.v2, "cpu.stat") || r.v1["cpuacct"] != ""
	if r.v2ctl["memory"] {
		r.can.CountsBelow = true
		r.can.Swap = exists(r.v2, "memory.swap.max")
	} else {
		r.can.Swap = exists(r.v1["memory"], "memory.memsw.limit_in_bytes")
	}
}

// setWhy makes one sentence of the missing features.
func (r *Root) setWhy(problems []string) {
	var missing []string
	for _, f := range []struct {
		have bool
		what string
	}{{r.can.CPUs, "cores"}, {r.can.Memory, "memory"}, {r.can.Swap || !r.can.Memory, "swap"},
		{r.can.Pids, "the number of processes"},
		{r.can.Devices, "devices"}, {r.can.Freeze, "suspension"}, {r.can.CPUTime, "CPU time (measured by process instead)"}} {
		if !f.have {
			missing = append(missing, f.what)
		}
	}
	if len(missing) == 0 {
		return
	}
	r.why = "control groups (" + r.support.Mode.String() + ") do not cover " + strings.Join(missing, ", ")
	if len(problems) > 0 {
		r.why += ": " + strings.Join(problems, "; ")
	}
}

// Mode is how the host's control groups are mounted; None if they can't be used.
func (r *Root) Mode() Mode { return r.support.Mode }

// Can returns the features that work.
func (r *Root) Can() Features { return r.can }

// Why names in one sentence the limits that can't be enforced; "" if all can.
func (r *Root) Why() string { return r.why }

// openV2 makes the prefix in v2 and enables v2's controllers for it.
func (r *Root) openV2() error {
	dir := filepath.Join(r.support.v2, r.prefix)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the cgroup %s: %w", dir, err)
	}
	r.v2 = dir
	var errs []error
	for _, c := range []string{"cpuset", "memory", "pids"} {
		if !slices.Contains(r.support.ctl, c) {
			continue
		}
		if err := r.switchOn(c); err != nil {
			errs = append(errs, err)
			continue
		}
		r.v2ctl[c] = true
	}
	return errors.Join(errs...)
}

// switchOn makes a controller available to our groups, from the root down. It is repeated if a group lacks it, because
// other programs (systemd, on a daemon-reload) disable controllers that they don't use.
func (r *Root) switchOn(controller string) error {
	at := r.support.v2
	for _, part := range append([]string{"."}, strings.Split(r.prefix, "/")...) {
		at = filepath.Join(at, part)
		if err := writeFile(filepath.Join(at, "cgroup.subtree_control"), "+"+controller); err != nil {
			if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EOPNOTSUPP) {
				return fmt.Errorf("the %s controller can't be used below %s, which has processes of its own: %w", controller, at,
					err)
			}
			return fmt.Errorf("switch on the %s controller: %w", controller, err)
		}
	}
	return nil
}

// openV1 makes the prefix in one v1 hierarchy.
func (r *Root) openV1(controller string) error {
	at := r.support.v1[controller]
	for part := range strings.SplitSeq(r.prefix, "/") {
		above := at
		at = filepath.Join(at, part)
		if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make the cgroup %s: %w", at, err)
		}
		switch controller {
		case "cpuset":
			// A new v1 cpuset is empty: until it is filled it can have no process and no directory below.
			if err := errors.Join(inherit(above, at, "cpuset.cpus"), inherit(above, at, "cpuset.mems")); err != nil {
				return err
			}
		case "memory":
			if err := useHierarchy(at); err != nil {
				return err
			}
		}
	}
	if controller == "cpuset" {
		b, err := os.ReadFile(filepath.Join(at, "cpuset.mems"))
		if err != nil {
			return fmt.Errorf("read the memory nodes: %w", err)
		}
		r.mems = strings.TrimSpace(string(b))
		b, err = os.ReadFile(filepath.Join(at, balanceFile)) // if it is missing, it is not written
		r.balanced = err == nil && strings.TrimSpace(string(b)) == "1"
	}
	r.v1[controller] = at
	return nil
}

// shareCpusets lets groups with the same CPUs share a cpuset, if that hierarchy has no other controller.
func (r *Root) shareCpusets() error {
	base := r.v1["cpuset"]
	for c, dir := range r.v1 {
		if dir == base && c != "cpuset" {
			return nil
		}
	}
	if base == "" {
		return nil
	}
	var err error
	r.sets, err = openCpusets(base, r.fillCpuset)
	return err
}

// balanceFile tells the kernel to balance load over the CPUs of a v1 cpuset. If a group above has it, it changes
// nothing, but for every cpuset with it the kernel computes its scheduling domains again when the set is filled and
// removed: this costs more than the rest of a job's group.
const balanceFile = "cpuset.sched_load_balance"

// inherit fills a cpuset file from the group above.
func inherit(above, at, file string) error {
	have, err := os.ReadFile(filepath.Join(at, file))
	if err == nil && len(strings.TrimSpace(string(have))) > 0 {
		return nil
	}
	v, err := os.ReadFile(filepath.Join(above, file))
	if err != nil {
		return fmt.Errorf("read the group above: %w", err)
	}
	return writeFile(filepath.Join(at, file), strings.TrimSpace(string(v)))
}

// useHierarchy makes a v1 memory group include the groups below it; newer kernels always do.
func useHierarchy(at string) error {
	file := filepath.Join(at, "memory.use_hierarchy")
	if b, err := os.ReadFile(file); errors.Is(err, fs.ErrNotExist) || strings.TrimSpace(string(b)) == "1" {
		return nil
	}
	return writeFile(file, "1")
}

// List gives the names of the existing groups, sorted.
func (r *Root) List() ([]string, error) {
	names := map[string]bool{}
	for _, dir := range r.dirs() {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("list groups: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() && e.Name() != probeName && !strings.HasPrefix(e.Name(), setPrefix) {
				names[e.Name()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// Contains reports whether a process is in one of the groups. It is false for a process that has ended.
func (r *Root) Contains(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		// hierarchy:controllers:path, seen from the root of our own namespace
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 && strings.Contains(f[2]+"/", "/"+r.prefix+"/") {
			return true
		}
	}
	return false
}

// dirs are our directories in all hierarchies in use; co-mounted controllers share one.
func (r *Root) dirs() []string {
	var out []string
	if r.v2 != "" {
		out = append(out, r.v2)
	}
	for _, c := range controllers {
		if d := r.v1[c]; d != "" && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// Close removes the prefix where it is empty. Existing groups keep it, and their device rules.
func (r *Root) Close() error {
	if err := r.programs.close(); err != nil {
		return err
	}
	if r.support.Mode == None {
		return nil
	}
	if r.sets != nil {
		names, err := r.List() // with a group there, gshim may be about to fork into a cpuset
		r.sets.closeAll(err == nil && len(names) == 0)
	}
	mounts := map[string]bool{r.support.v2: true}
	for _, m := range r.support.v1 {
		mounts[m] = true
	}
	for _, d := range r.dirs() {
		for at := d; !mounts[at] && at != "/"; at = filepath.Dir(at) {
			if err := unix.Rmdir(at); err != nil {
				if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.ENOENT) {
					break // in use, or removed by another
				}
				return fmt.Errorf("remove the cgroup %s: %w", at, err)
			}
		}
	}
	return nil
}

// checkName accepts only a plain relative path of at most depth parts.
func checkName(name string, depth int) error {
	if name == "" || len(name) > maxNameBytes {
		return fmt.Errorf("a name of %d bytes, expected 1 to %d", len(name), maxNameBytes)
	}
	parts := strings.Split(name, "/")
	if len(parts) > depth {
		return fmt.Errorf("%q has %d parts, at most %d", name, len(parts), depth)
	}
	for _, p := range parts {
		if p == "" || p[0] == '.' || strings.Contains(p, "cgroup.") {
			return fmt.Errorf("%q is not a usable name", name)
		}
		for _, c := range p {
			if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-", c)) {
				return fmt.Errorf("%q contains %q; letters, digits, dot, dash and underscore are usable", name, c)
			}
		}
	}
	return nil
}

func exists(dir, file string) bool {
	if dir == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(dir, file))
	return err == nil
}

// writeFile writes a control file with one write and without creating it. A signal interrupts some writes, such as
// those of v1's memory limits, and the Go runtime sends signals to its own threads: those writes are repeated.
func writeFile(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	for {
		if _, err = unix.Write(fd, []byte(value)); err != unix.EINTR {
			break
		}
	}
	_ = unix.Close(fd) // the kernel has answered the write already
	if err != nil {
		return fmt.Errorf("write %q to %s: %w", value, path, err)
	}
	return nil
}
