package noded

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/conf"
	"gbatch/internal/jobenv"
	"gbatch/internal/model"
	"gbatch/noded/cgroup"
)

// units.go knows the device files behind each unit of a generic resource, and makes the device rules of a job or
// step: every unit's files are denied but those of the units that it was given. Numbers are read from the files when
// gnoded starts.

const (
	maxUnits     = 4096 // of one node, shares counted one by one
	maxUnitFiles = 64   // of one unit
)

// unit is one unit of a resource, by the number under which jobs are given it.
type unit struct {
	name  string
	typ   string
	index int
	files []string // its device files; others may have them too (MIG instances of one GPU, shares)
	uuid  string   // GPU-... or MIG-...; "" if unknown
	flags []string // of its line in gres.conf
	seen  int      // its GPU's place in the driver's list, from 1; 0: not detected
}

// ruleUnits gives the units whose device files are known: what was found, and shares of GPUs, which are numbered as
// the leader does (conf's connectUnits): type by type, in the order of gres.conf.
func ruleUnits(o *Options, inv *inventory) []unit {
	var out []unit
	for i := range inv.units {
		u := &inv.units[i]
		x := unit{name: u.Name, typ: u.Type, index: int(u.Index), files: u.Files[:min(len(u.Files), maxUnitFiles)],
			uuid: u.UUID, flags: u.Flags}
		if u.dev != nil {
			x.seen = u.dev.Index + 1
		}
		out = append(out, x)
	}
	for _, files := range inv.unused {
		out = append(out, unit{name: gpuName, index: -1, files: files})
	}
	if o.Config == nil {
		return out
	}
	var shares []unit
	records, _ := o.Config.Gres.For(o.Name)
	for i := range records {
		if r := &records[i]; shared(r.Name) {
			for _, files := range unitFiles(r) {
				shares = append(shares, unit{name: r.Name, typ: r.Type, files: files, flags: r.Flags})
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

// number gives units their indices. Those that the node's definition has no room for keep -1: jobs are denied them.
func number(found []unit, def *model.NodeDef) []unit {
	found = found[:min(len(found), maxUnits)]
	next := map[string]int{}
	given := map[int]int32{}
	for i := range found {
		u := &found[i]
		if def == nil {
			u.index = next[u.name]
			next[u.name]++
			continue
		}
		u.index = -1
		for k := range def.Gres {
			g := &def.Gres[k]
			if g.Name == u.name && (u.typ == "" || g.Type == "" || strings.EqualFold(u.typ, g.Type)) && given[k] < g.Count {
				u.index = int(g.First + given[k])
				given[k]++
				break
			}
		}
	}
	return found
}

// unitTable is the units of a node with their device numbers.
type unitTable struct {
	devs []cgroup.Device // all that some job may not open
	of   map[jobenv.Unit][]int
	uuid map[jobenv.Unit]string

	parent map[int]int     // the GPU, by the driver's count from 0, of each unit of mig
	firm   map[string]bool // resources each unit of which is a device file, so that the kernel can hold jobs to theirs

	strict  []string // patterns of AllowedDevices and its file; nil: what is no unit's opens
	notable []string // sentences
}

// controlFiles are opened by every job that uses any unit, and by others without harm: they are nobody's.
var controlFiles = []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-nvswitchctl",
	"nvidia-nvswitch*",
	"kfd", "davinci_manager", "devmm_svm", "hisi_hdc"}

func isControl(file string) bool {
	return slices.ContainsFunc(controlFiles, func(pattern string) bool {
		ok, err := path.Match(pattern, path.Base(file))
		return ok && err == nil
	})
}

// newUnitTable reads the units' device numbers.
func newUnitTable(units []unit, c *conf.Cgroup) *unitTable {
	t := &unitTable{of: map[jobenv.Unit][]int{}, uuid: map[jobenv.Unit]string{}, parent: map[int]int{},
		firm: map[string]bool{}}
	open := t.readAllowed(c)
	at := map[cgroup.Device]int{}
	for _, u := range units {
		key := jobenv.Unit{Resource: u.name, Index: u.index}
		if u.index >= 0 && u.uuid != "" {
			t.uuid[key] = u.uuid
		}
		if u.name == migName && u.index >= 0 && u.seen > 0 {
			t.parent[u.index] = u.seen - 1
		}
		real := 0
		for _, f := range u.files {
			if isControl(f) {
				continue
			}
			d, ok, err := deviceOf(f)
			switch {
			case err != nil: // findGres says what is missing
				continue
			case !ok:
				t.notable = append(t.notable,
					fmt.Sprintf("%s %s is not a device file: the kernel can't keep it for the jobs that have it", u.name, f))
				continue
			}
			if cgroup.IsBase(d) { // without it nothing runs: it is never kept from a job
				t.notable = append(t.notable,
					fmt.Sprintf("%s %s is device %d:%d, which every program needs: it stays open to all jobs", u.name, f,
						d.Major, d.Minor))
				continue
			}
			if open[d] {
				continue
			}
			real++
			n, known := at[d]
			if !known {
				n = len(t.devs)
				at[d] = n
				t.devs = append(t.devs, d)
			}
			t.of[key] = append(t.of[key], n)
		}
		if firm, seen := t.firm[u.name]; !seen || firm {
			t.firm[u.name] = real > 0
		}
	}
	return t
}

// deviceOf reads the number of a device file; ok says whether it is one.
func deviceOf(file string) (d cgroup.Device, ok bool, err error) {
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

// rules are what a job or step with these units may open; nil: everything.
func (t *unitTable) rules(mine []model.GresAlloc) *cgroup.Devices {
	if t == nil || len(t.devs) == 0 && t.strict == nil {
		return nil
	}
	held := t.held(mine)
	if t.strict != nil {
		return &cgroup.Devices{Allow: t.allowed(held)}
	}
	var deny []cgroup.Device
	for n, d := range t.devs {
		if !held[n] {
			deny = append(deny, d)
		}
	}
	if deny == nil {
		return nil
	}
	return &cgroup.Devices{Deny: deny}
}

// held tells of each device whether it is of these units.
func (t *unitTable) held(mine []model.GresAlloc) []bool {
	held := make([]bool, len(t.devs))
	hold := func(key jobenv.Unit) bool {
		for _, n := range t.of[key] {
			held[n] = true
		}
		return len(t.of[key]) > 0
	}
	for i := range mine {
		if s := mine[i].Share; s != nil && hold(jobenv.Unit{Resource: "gpu", Index: int(s.GPU)}) {
			continue // shares of a GPU are used through it
		}
		mine[i].Index.Each(func(k int) bool { hold(jobenv.Unit{Resource: mine[i].Name, Index: k}); return true })
	}
	return held
}
