package hardware

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/conf"
	"gbatch/internal/jobenv"
	"gbatch/internal/model"
	"gbatch/noded/cgroup"
)

// units.go has the device files of each unit of a generic resource, and makes the device rules of a job or step: they
// deny the files of all units except its own. gnoded reads device numbers from the files when it starts.

const (
	maxUnits     = 4096 // of one node, shares counted one by one
	maxUnitFiles = 64   // of one unit
)

// Unit is one unit of a resource, by the index with which jobs get it.
type Unit struct {
	Name  string
	typ   string
	Index int
	Files []string // its device files; other units may share them (MIG instances of one GPU, shares)
	UUID  string   // GPU-... or MIG-...; "" if unknown
	flags []string // of its line in gres.conf
	Seen  int      // its GPU's place in the driver's list, from 1; 0: not detected
}

// Units gives the units with known device files: those found, and shares of GPUs, which have the leader's numbers
// (conf's connectUnits): type by type, in the order of gres.conf.
func Units(o *Look, inv *Inventory) []Unit {
	var out []Unit
	for i := range inv.Units {
		u := &inv.Units[i]
		x := Unit{Name: u.Name, typ: u.Type, Index: int(u.Index), Files: u.Files[:min(len(u.Files), maxUnitFiles)],
			UUID: u.UUID, flags: u.Flags}
		if u.Dev != nil {
			x.Seen = u.Dev.Index + 1
		}
		out = append(out, x)
	}
	for _, files := range inv.unused {
		out = append(out, Unit{Name: gpuName, Index: -1, Files: files})
	}
	if o.Config == nil {
		return out
	}
	var shares []Unit
	records, _ := o.Config.Gres.For(o.Name)
	for i := range records {
		if r := &records[i]; shared(r.Name) {
			for _, files := range unitFiles(r) {
				shares = append(shares, Unit{Name: r.Name, typ: r.Type, Files: files, flags: r.Flags})
			}
		}
	}
	return append(out, number(shares, o.nodeDef())...)
}

// unitFiles gives the files of each unit of a line of gres.conf.
func unitFiles(r *conf.GresRecord) [][]string {
	switch {
	case len(r.MultipleFiles) > 0:
		return [][]string{r.MultipleFiles[:min(len(r.MultipleFiles), maxUnitFiles)]}
	case len(r.Files) == 0:
		return nil
	}
	each := int(max(1, min(r.Count, maxUnits)/int64(len(r.Files)))) // shares of one file
	var out [][]string
	for i := range r.Files {
		for range each {
			out = append(out, r.Files[i:i+1])
		}
	}
	return out
}

// number gives units their indices. Units beyond the node's definition keep -1: they are denied to jobs.
func number(found []Unit, def *model.NodeDef) []Unit {
	found = found[:min(len(found), maxUnits)]
	next := map[string]int{}
	given := map[int]int32{}
	for i := range found {
		u := &found[i]
		if def == nil {
			u.Index = next[u.Name]
			next[u.Name]++
			continue
		}
		u.Index = -1
		for k := range def.Gres {
			g := &def.Gres[k]
			if g.Name == u.Name && (u.typ == "" || g.Type == "" || strings.EqualFold(u.typ, g.Type)) && given[k] < g.Count {
				u.Index = int(g.First + given[k])
				given[k]++
				break
			}
		}
	}
	return found
}

// Table is the units of a node with their device numbers.
type Table struct {
	Devs []cgroup.Device // all devices that a rule may deny
	file []string        // of each
	of   map[jobenv.Unit][]int
	UUID map[jobenv.Unit]string

	parent map[int]int     // the GPU, by the driver's count from 0, of each unit of mig
	firm   map[string]bool // resources whose units all are device files, so that the kernel can deny them

	control []string // files that belong to no unit
	devDir  string   // /dev, of which tests have their own

	Strict  []string // patterns of AllowedDevices and its file; nil: devices of no unit open
	Notable []string // sentences
}

// controlFiles belong to no unit: every job that uses a unit opens them, and other jobs may, without harm.
var controlFiles = []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-nvswitchctl",
	"nvidia-nvswitch*",
	"kfd", "davinci_manager", "devmm_svm", "hisi_hdc"}

func isControl(file string) bool {
	return slices.ContainsFunc(controlFiles, func(pattern string) bool {
		ok, err := path.Match(pattern, path.Base(file))
		return ok && err == nil
	})
}

// NewTable reads the units' device numbers.
func NewTable(units []Unit, c *conf.Cgroup) *Table {
	t := &Table{of: map[jobenv.Unit][]int{}, UUID: map[jobenv.Unit]string{}, parent: map[int]int{},
		firm: map[string]bool{}, devDir: "/dev"}
	open := t.readAllowed(c)
	at := map[cgroup.Device]int{}
	for _, u := range units {
		if model.IsRemote(u.Name, u.typ) {
			continue // it has no device
		}
		key := jobenv.Unit{Resource: u.Name, Index: u.Index}
		if u.Index >= 0 && u.UUID != "" {
			t.UUID[key] = u.UUID
		}
		if u.Name == migName && u.Index >= 0 && u.Seen > 0 {
			t.parent[u.Index] = u.Seen - 1
		}
		real := 0
		for _, f := range u.Files {
			if isControl(f) {
				if !slices.Contains(t.control, f) {
					t.control = append(t.control, f)
				}
				continue
			}
			d, ok, err := DeviceOf(f)
			switch {
			case err != nil: // findGres reports missing files
				continue
			case !ok:
				t.Notable = append(t.Notable,
					fmt.Sprintf("%s %s is not a device file: the kernel can't keep it for the jobs that have it", u.Name, f))
				continue
			}
			if cgroup.IsBase(d) { // programs don't run without it: never denied
				t.Notable = append(t.Notable,
					fmt.Sprintf("%s %s is device %d:%d, which every program needs: it stays open to all jobs", u.Name, f,
						d.Major, d.Minor))
				continue
			}
			if open[d] {
				continue
			}
			real++
			n, known := at[d]
			if !known {
				n = len(t.Devs)
				at[d] = n
				t.Devs, t.file = append(t.Devs, d), append(t.file, f)
			}
			t.of[key] = append(t.of[key], n)
		}
		if firm, seen := t.firm[u.Name]; !seen || firm {
			t.firm[u.Name] = real > 0
		}
	}
	return t
}

// DeviceOf reads the number of a device file; ok tells whether the file is a device.
func DeviceOf(file string) (d cgroup.Device, ok bool, err error) {
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		return d, false, &fs.PathError{Op: "stat", Path: file, Err: err}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFBLK:
		d.Block = true
	case unix.S_IFCHR:
	default:
		return d, false, nil
	}
	d.Major, d.Minor = int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	return d, true, nil
}

// Rules gives the devices that a job or step with these units may open; nil: all.
func (t *Table) Rules(mine []model.GresAlloc) *cgroup.Devices {
	if t == nil || len(t.Devs) == 0 && t.Strict == nil {
		return nil
	}
	held := t.Held(mine)
	if t.Strict != nil {
		return &cgroup.Devices{Allow: t.allowed(held)}
	}
	var deny []cgroup.Device
	for n, d := range t.Devs {
		if !held[n] {
			deny = append(deny, d)
		}
	}
	if deny == nil {
		return nil
	}
	return &cgroup.Devices{Deny: deny}
}

// Files gives the device files of these units, and the control files: those that gres.conf names, and the drivers' in
// /dev, which come with their first use.
func (t *Table) Files(mine []model.GresAlloc) []string {
	if t == nil {
		return nil
	}
	var out []string
	for n, held := range t.Held(mine) {
		if held {
			out = append(out, t.file[n])
		}
	}
	if len(out) == 0 {
		return nil
	}
	out = append(out, t.control...)
	for _, pattern := range controlFiles {
		files, _ := filepath.Glob(filepath.Join(t.devDir, pattern)) // the patterns are right
		for _, f := range files {
			if _, ok, err := DeviceOf(f); ok && err == nil && !slices.Contains(out, f) {
				out = append(out, f)
			}
		}
	}
	return out
}

// Held tells for each device whether it belongs to these units.
func (t *Table) Held(mine []model.GresAlloc) []bool {
	held := make([]bool, len(t.Devs))
	hold := func(key jobenv.Unit) bool {
		for _, n := range t.of[key] {
			held[n] = true
		}
		return len(t.of[key]) > 0
	}
	for i := range mine {
		if s := mine[i].Share; s != nil && hold(jobenv.Unit{Resource: model.GPUName, Index: int(s.GPU)}) {
			continue // shares of a GPU are used through it
		}
		mine[i].Index.Each(func(k int) bool { hold(jobenv.Unit{Resource: mine[i].Name, Index: k}); return true })
	}
	return held
}
