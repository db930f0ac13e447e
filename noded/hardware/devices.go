package hardware

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/conf"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/noded/gpu"
)

// devices.go finds a node's generic resources: GPUs from the driver; other resources, and GPUs without AutoDetect, from
// the files in gres.conf or the configured counts. merge.go compares the two. A contradiction is a problem, and the
// leader drains the node.

const (
	gpuName = model.GPUName
	migName = model.MIGName
)

// Detectable reports whether a driver can be asked for a resource.
func Detectable(name string) bool { return name == gpuName || name == migName }

// shared reports whether a resource is shares of other devices: its Count is of all its files together.
func shared(name string) bool { return model.IsShare(name) }

// finder looks for a node's resources.
type finder struct {
	findings
	o       *Look
	def     *model.NodeDef
	records []conf.GresRecord
	detect  string
	cpus    []int // the machine's CPUs in the node's order
	threads int   // per core

	listed  []gpu.Device // the driver's devices, in its order
	devices []Found      // the same, as units
	asked   bool         // the driver was asked and has answered, or has none
}

// findGres gives the resources found. cpus are the machine's CPUs in the order in which the node counts them, threads
// of a core in a row.
func findGres(o *Look, cpus []int, threads int) *finder {
	f := &finder{o: o, def: o.nodeDef(), cpus: cpus, threads: max(threads, 1)}
	if d := f.def; d != nil && d.ThreadsPerCore > 0 {
		f.threads = int(d.ThreadsPerCore)
	}
	if o.Config != nil {
		f.records, f.detect = o.Config.Gres.For(o.Name)
	}
	if o.Virtual && !strings.HasPrefix(f.detect, "fake:") {
		f.detect = "off" // this machine's GPUs are not the node's
	}
	f.ask()
	for _, name := range f.names() {
		var s stock
		lines, far := f.lines(name)
		switch {
		case Detectable(name) && f.mustMatch() && len(lines) > 0:
			s = f.merge(name, lines)
		case len(lines) > 0:
			s = f.configured(name, lines)
		case Detectable(name) && f.asked:
			s = stock{name: name, units: f.take(name)}
		default:
			s = f.claimed(name)
		}
		f.remote(&s, far)
		f.place(f.def, &s)
	}
	f.connect(len(cpus))
	return f
}

// mustMatch reports whether the lines of gres.conf must match the detected devices: if AutoDetect is set.
func (f *finder) mustMatch() bool { return f.detect != "" && f.detect != "off" && f.asked }

// names gives the resources that may be here, in the order of the node's line, then of gres.conf.
func (f *finder) names() []string {
	var out []string
	add := func(name string) {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	if f.def != nil {
		for i := range f.def.Gres {
			add(f.def.Gres[i].Name)
		}
	}
	for i := range f.records {
		add(f.records[i].Name)
	}
	if len(f.devices) > 0 {
		add(gpuName)
	}
	return out
}

// lines gives gres.conf's lines of a resource, one unit each if they name files, reserved ones included; and those of
// remote GPUs.
func (f *finder) lines(name string) (here, far []*conf.GresRecord) {
	for i := range f.records {
		switch r := &f.records[i]; {
		case r.Name != name:
		case model.IsRemote(r.Name, r.Type):
			far = append(far, r)
		default:
			here = append(here, r)
		}
	}
	return here, far
}

// remote adds the remote GPUs of lines, which no driver knows.
func (f *finder) remote(s *stock, lines []*conf.GresRecord) {
	for _, r := range lines {
		for i := range min(r.Count, maxFound) {
			u := Found{line: r, GresUnit: model.GresUnit{Name: r.Name, Type: r.Type, Minor: -1, NUMA: -1, MemMiB: r.MemMiB,
				Flags: r.Flags}}
			if len(r.Cores) > 0 {
				u.Near = f.coresToCPUs(r.Cores)
			}
			if k := min(int(i), len(r.Endpoints)-1); k >= 0 {
				u.Endpoint = r.Endpoints[k]
			}
			s.units = append(s.units, u)
		}
	}
}

// written counts gres.conf's lines of a resource that is in the node.
func (f *finder) written(name string) int {
	here, _ := f.lines(name)
	return len(here)
}

// ask detects the devices.
func (f *finder) ask() {
	kind, file, _ := strings.Cut(f.detect, ":")
	switch kind {
	case "", "nvml":
		f.source = f.o.GPUs
	case "nvidia":
		f.source = gpu.Kernel("/")
		if f.o.KernelRoot != "" {
			f.source = gpu.Kernel(f.o.KernelRoot)
		}
	case "fake":
		if file != "" {
			f.source = gpu.Fake(besideConfig(f.o, file))
		}
	case "off":
	default:
		f.problem("AutoDetect=%s: this version can't look for such devices; write their lines with File= in gres.conf "+
			"and AutoDetect=off", f.detect)
	}
	if f.source == nil {
		return
	}
	devices, err := f.source.Devices()
	if err != nil && kind == "" && !errors.Is(err, gpu.ErrNoDriver) { // AutoDetect unset: use the kernel
		if known, kerr := gpu.Kernel("/").Devices(); kerr == nil && len(known) > 0 {
			f.note("NVML can't be asked (%v): the GPUs are known from /proc/driver/nvidia, without readings and links", err)
			f.source, devices, err = gpu.Kernel("/"), known, nil
		}
	}
	switch {
	case errors.Is(err, gpu.ErrNoDriver):
		f.source = nil
		f.asked = true
		if kind != "" && f.written(gpuName)+f.written(migName) > 0 {
			f.problem("AutoDetect=%s: %v", kind, err)
		} else if kind != "" && wantsGPUs(f.def) {
			f.note("AutoDetect=%s: %v", kind, err)
		}
		return
	case err != nil && kind == "" && !wantsGPUs(f.def):
		f.source = nil
		return
	case err != nil:
		f.source = nil
		f.asked = true
		f.problem("the GPUs of this node are not known: %v", err)
		return
	}
	f.asked, f.listed = true, devices
	for i := range devices {
		f.detected(&devices[i])
	}
}

// besideConfig makes a path absolute: a relative one is relative to the configuration's directory.
func besideConfig(o *Look, path string) string {
	if filepath.IsAbs(path) || o.ConfigPath == "" {
		return path
	}
	return filepath.Join(filepath.Dir(o.ConfigPath), path)
}

// detected makes units of a device: itself, or its instances.
func (f *finder) detected(d *gpu.Device) {
	u := Found{Dev: d,
		GresUnit: model.GresUnit{Name: gpuName, Type: d.Type, UUID: d.UUID, Product: d.Name, Minor: int32(d.Minor),
			PCI:  d.PCIBusID,
			NUMA: int32(d.NUMANode), MemMiB: d.MemMiB, Near: f.near(d.CPUAffinity)}}
	if d.Path != "" {
		u.Files = []string{d.Path}
	}
	if d.Fault != "" {
		f.note("%s can't be used: %s", u.text(), d.Fault)
	}
	if d.MIG == nil {
		f.devices = append(f.devices, u)
		return
	}
	if len(d.MIG) == 0 {
		f.note("GPU %s (%s) is in MIG mode, and no instances of it are known: no job can use it; drain the node, and "+
			"gcontrol mig apply makes some or switches the mode off", d.UUID, d.Path)
	}
	for i := range d.MIG {
		in := &d.MIG[i]
		m := u
		m.Inst, m.Type, m.UUID, m.Profile, m.Parent, m.MemMiB = in, in.Profile, in.UUID, in.Profile, d.UUID, in.MemMiB
		m.Files = append(slices.Clone(u.Files), in.Caps...)
		if f.named(migName, in.Profile) {
			m.Name = migName
		}
		f.devices = append(f.devices, m)
	}
}

// named reports whether the configuration uses a name for such an instance.
func (f *finder) named(name, typ string) bool {
	if f.def != nil {
		for i := range f.def.Gres {
			if g := &f.def.Gres[i]; g.Name == name && (g.Type == "" || strings.Contains(flatName(typ), flatName(g.Type))) {
				return true
			}
		}
	}
	return f.written(name) > 0
}

// near converts CPUs from the kernel's notation to the node's numbers.
func (f *finder) near(list string) model.Bits {
	if list == "" {
		return nil
	}
	machine, err := hostlist.ParseIndexes(list)
	if err != nil {
		return nil
	}
	var out model.Bits
	for i, cpu := range f.cpus {
		if slices.Contains(machine, cpu) {
			out = out.With(i)
		}
	}
	return out
}

// coresToCPUs gives the CPUs of cores.
func (f *finder) coresToCPUs(cores []int) model.Bits {
	var out model.Bits
	for _, core := range cores {
		for k := range f.threads {
			out = out.With(core*f.threads + k)
		}
	}
	return out
}

// take gives the detected units of a name that no line has.
func (f *finder) take(name string) []Found {
	var out []Found
	for _, u := range f.devices {
		if u.Name == name {
			out = append(out, u)
		}
	}
	return out
}

// configured gives the units of lines whose files exist, with the driver's data about a file, if any.
func (f *finder) configured(name string, lines []*conf.GresRecord) stock {
	s := stock{name: name}
	for _, r := range lines {
		missing := 0
		for _, path := range slices.Concat(r.Files, r.MultipleFiles) {
			if why := unusable(path); why != "" {
				missing++
				f.problem("%s: %s: %s", place(r), name, why)
			}
		}
		switch {
		case shared(name):
			if missing == 0 {
				s.count, s.typ = s.count+r.Count, r.Type
			}
		case len(r.MultipleFiles) > 0:
			if missing == 0 {
				s.units = append(s.units, f.fromLine(r, r.MultipleFiles))
			}
		case len(r.Files) > 0:
			for _, path := range r.Files {
				if unusable(path) == "" {
					s.units = append(s.units, f.fromLine(r, []string{path}))
				}
			}
		case r.Count <= maxFound-int64(len(s.units)) && Detectable(name):
			for range r.Count {
				s.units = append(s.units, f.fromLine(r, nil))
			}
		default:
			s.count, s.typ = s.count+r.Count, r.Type
		}
	}
	return s
}

// place gives the file and number of a line.
func place(r *conf.GresRecord) string { return fmt.Sprintf("%s:%d", filepath.Base(r.File), r.Line) }

// unusable tells why a device file can't be given to jobs, or "".
func unusable(path string) string {
	switch _, err := os.Stat(path); {
	case err == nil:
		return ""
	case errors.Is(err, fs.ErrNotExist):
		return path + " does not exist on this node"
	default:
		return err.Error()
	}
}

// fromLine makes a unit of a line of gres.conf.
func (f *finder) fromLine(r *conf.GresRecord, files []string) Found {
	u := Found{line: r, GresUnit: model.GresUnit{Name: r.Name, Type: r.Type, Files: files, Minor: -1, NUMA: -1,
		UUID: r.UniqueID, Flags: r.Flags}}
	if len(r.Cores) > 0 {
		u.Near = f.coresToCPUs(r.Cores)
	}
	if len(files) > 0 {
		var st unix.Stat_t
		if err := unix.Stat(files[0], &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR {
			u.Minor = int32(unix.Minor(st.Rdev))
		}
	}
	if f.detect == "off" {
		return u
	}
	for i := range f.devices {
		if d := &f.devices[i]; d.Name == r.Name && d.isAt(files) {
			u.Dev, u.Inst = d.Dev, d.Inst
			u.Product, u.PCI, u.NUMA, u.MemMiB, u.Profile, u.Parent = d.Product, d.PCI, d.NUMA, d.MemMiB, d.Profile, d.Parent
			if u.UUID == "" {
				u.UUID = d.UUID
			}
			if u.Near.Empty() {
				u.Near = d.Near
			}
		}
	}
	return u
}

// isAt reports whether a detected unit is the one of these device files.
func (u *Found) isAt(files []string) bool {
	switch {
	case len(files) == 0 || len(u.Files) == 0:
		return false
	case u.Inst == nil:
		return slices.Contains(files, u.Files[0])
	}
	// An instance: by its cap devices. The GPU's own file goes with all of its instances.
	caps := u.Files[1:]
	return len(caps) > 0 && !slices.ContainsFunc(caps, func(c string) bool { return !slices.Contains(files, c) })
}

// claimed gives a resource that only the node's line describes.
func (f *finder) claimed(name string) stock {
	s := stock{name: name}
	if f.def == nil || Detectable(name) && !strings.HasPrefix(f.detect, "fake") {
		return s
	}
	// fake: GPUs that are only in the configuration. Resources without files are as configured.
	for _, g := range f.def.Gres {
		if g.Name == name && !model.IsRemote(g.Name, g.Type) {
			f.count(model.GresDef{Name: g.Name, Type: g.Type, First: g.First, Count: g.Count})
		}
	}
	return s
}

// wantsGPUs reports whether the node's line says that it has GPUs.
func wantsGPUs(def *model.NodeDef) bool {
	return def != nil && slices.ContainsFunc(def.Gres, func(g model.GresDef) bool {
		return g.Name == gpuName && g.Count > 0 && !model.IsRemote(g.Name, g.Type)
	})
}
