package conf

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
)

// Gres is gres.conf.
type Gres struct {
	AutoDetect string // nvml, nvidia, off, fake[:FILE]; "": not given
	Records    []GresRecord
}

// GresRecord is one line of gres.conf that names a resource, or that sets
// AutoDetect for some nodes (Name is empty then).
type GresRecord struct {
	NodeExpr      string // as written; "": every node
	Name, Type    string
	Files         []string // device files, expanded; one unit each, except of shared resources
	MultipleFiles []string // device files of one unit (MIG), including File's if both are given
	Count         int64    // 0 only in a record without Name
	MemMiB        int64    // memory of each unit, if it can't be detected; 0: not given
	Cores         []int    // cores near it; nil: all
	Links         Links
	Flags         []string
	Endpoints     []string // of remote GPUs, host:port: one for each, or one for all
	UniqueID      string   // UUID of the line's unit: GPU-... or MIG-......
	AutoDetect    string   // of these nodes; "": the global one
	File          string
	Line          int
}

// Links tells which other units of the same resource a unit is connected to.
// Slurm's form is one count per unit, -1 for itself; a list without -1 names
// the connected units. The zero Links says nothing.
type Links struct {
	Counts []int // by unit; -1 for itself
	Peers  []int // indexes of connected units
}

// Applies reports whether the record applies to a node.
func (g *GresRecord) Applies(node string) bool {
	if g.NodeExpr == "" {
		return true
	}
	ok, err := hostlist.Contains(g.NodeExpr, node)
	return err == nil && ok // an expression with an error isn't loaded
}

// For returns gres.conf's records for one node, in the order of the file, and its AutoDetect.
func (g *Gres) For(node string) (records []GresRecord, autoDetect string) {
	autoDetect = g.AutoDetect
	for _, r := range g.Records {
		if !r.Applies(node) {
			continue
		}
		if r.AutoDetect != "" {
			autoDetect = r.AutoDetect
		}
		if r.Name != "" {
			records = append(records, r)
		}
	}
	return records, autoDetect
}

// isShared reports whether a resource is shares of GPUs: Count is of all its files together.
func isShared(name string) bool { return model.IsShare(name) }

var gresKeyNames = []string{"AutoDetect", "Count", "Cores", "CPUs", "Endpoint", "File", "Flags", "Ignore", "Links",
	"Memory", "MultipleFiles", "Name", "NodeName", "Type", "UniqueId"}

var gresFlags = []string{
	"CountOnly", "one_sharing", "all_sharing", "explicit", "nvidia_gpu_env", "amd_gpu_env", "intel_gpu_env", "opencl_env",
	"no_gpu_env", "reserved",
}

var autoDetects = []string{"nvml", "nvidia", "rsmi", "oneapi", "nrt", "off", "fake"}

func readAutoDetect(v string) (string, fault) {
	const want = "nvml, nvidia, off or fake:FILE"
	kind, file, _ := strings.Cut(v, ":")
	word, f := readWord(kind, autoDetects)
	switch {
	case f.bad():
		return "", fault{f.why, want}
	case word == "rsmi" || word == "oneapi" || word == "nrt":
		return "", fault{"gnoded can't ask " + word +
			" for devices: give their files in gres.conf, Name=gpu File=/dev/dri/renderD[128-131]", "off"}
	case file != "" && word != "fake":
		return "", fault{shown(v) + ": only fake takes a file", want}
	case file != "":
		return word + ":" + file, fault{}
	}
	return word, fault{}
}

// gresLine is a line of gres.conf while it is read.
type gresLine struct {
	GresRecord
	hasCount bool
	links    []int
}

func gresKeys() []lineKey[gresLine] {
	cores := func(name string) lineKey[gresLine] {
		return lineKey[gresLine]{name: name, read: func(g *gresLine, v string) fault {
			list, err := hostlist.ParseIndexes(v)
			if err != nil {
				return fault{shown(v) + " is not a list of cores", "0-15"}
			}
			g.Cores = list
			return fault{}
		}}
	}
	files := func(name string, at func(*gresLine) *[]string) lineKey[gresLine] {
		return lineKey[gresLine]{name: name, read: func(g *gresLine, v string) fault {
			list, err := hostlist.Expand(v)
			if err != nil {
				return fault{listError(err), "/dev/nvidia[0-7]"}
			}
			for _, p := range list {
				if !strings.HasPrefix(p, "/") {
					return fault{shown(p) + " is not an absolute path", "/dev/nvidia[0-7]"}
				}
			}
			*at(g) = list
			return fault{}
		}}
	}
	return []lineKey[gresLine]{
		{name: "NodeName", read: func(g *gresLine, v string) fault {
			if _, err := hostlist.Count(v); err != nil {
				return fault{listError(err), "n[1-4]"}
			}
			g.NodeExpr = v
			return fault{}
		}},
		{name: "AutoDetect", read: func(g *gresLine, v string) (f fault) { g.AutoDetect, f = readAutoDetect(v); return f }},
		{name: "Name", read: func(g *gresLine, v string) fault {
			if v == "" || strings.ContainsAny(v, ":,=/") {
				return fault{shown(v) + " is not a valid resource name", "gpu"}
			}
			g.Name = v
			return fault{}
		}},
		{name: "Type", read: func(g *gresLine, v string) fault {
			if strings.ContainsAny(v, ":,= ") {
				return fault{shown(v) + " is not a valid type name", "a100"}
			}
			g.Type = v
			return fault{}
		}},
		{name: "UniqueId", read: func(g *gresLine, v string) fault {
			if v == "" || strings.ContainsAny(v, ", ") {
				return fault{shown(v) + " is not the UUID of one device", "GPU-2ab4a9e8-8d8f-4b5c-9f4c-0b8f2e6c1d3a"}
			}
			g.UniqueID = v
			return fault{}
		}},
		{name: "Count", read: func(g *gresLine, v string) (f fault) {
			g.Count,
				f = readQuantity(v)
			g.hasCount = true
			return f
		}},
		cores("Cores"), cores("CPUs"),
		files("File", func(g *gresLine) *[]string { return &g.Files }),
		files("MultipleFiles", func(g *gresLine) *[]string { return &g.MultipleFiles }),
		{name: "Endpoint", read: func(g *gresLine, v string) (f fault) { g.Endpoints, f = readEndpoints(v); return f }},
		{name: "Memory", read: func(g *gresLine, v string) (f fault) { g.MemMiB, f = readMem(v); return f }},
		{name: "Flags", read: func(g *gresLine, v string) (f fault) { g.Flags, f = readWords(v, gresFlags); return f }},
		{name: "Links", read: func(g *gresLine, v string) fault {
			for _, item := range splitList(v) {
				n, err := strconv.Atoi(item)
				if err != nil || n < -1 || n > 1024 {
					return fault{shown(v) + " is not a list of numbers", "-1,4,4,4"}
				}
				g.links = append(g.links, n)
			}
			return fault{}
		}},
		{name: "Ignore", note: "has no effect: leave the resource out of the node's Gres instead"},
	}
}

// readGres reads the lines of gres.conf.
func (l *loader) readGres(lines []statement) {
	for _, s := range lines {
		var g gresLine
		g.File, g.Line = s.at.file, s.at.line
		given := readKeys(l, gresKeys(), s.pairs, &g, "gres.conf")
		if file, ok := strings.CutPrefix(g.AutoDetect, "fake:"); ok && !filepath.IsAbs(file) && filepath.IsAbs(s.at.file) {
			// also where this file is included by one elsewhere
			g.AutoDetect = "fake:" + filepath.Join(filepath.Dir(s.at.file), file)
		}
		if given["CPUs"] {
			l.probs.notef(placeOf(s.pairs, "CPUs", s.pairs[0]), "write Cores=", "CPUs in gres.conf is the old name of Cores")
		}
		switch {
		case g.Name == "" && given["AutoDetect"] && len(given) == 1:
			if l.cfg.Gres.AutoDetect != "" && l.cfg.Gres.AutoDetect != g.AutoDetect {
				l.probs.warnf(s.at, "keep one of the lines", "AutoDetect is set twice; the last one is used")
			}
			l.cfg.Gres.AutoDetect = g.AutoDetect
			continue
		case g.Name == "" && given["NodeName"] && len(given) == 1:
			l.probs.notef(s.at, "write NodeName="+g.NodeExpr+" in front of Name= on each line that is meant for it",
				"NodeName on a line of its own has no effect: the lines below it are for every node")
			continue
		case g.Name == "" && given["Name"]:
			continue // reported already
		case g.Name == "" && !given["AutoDetect"]:
			l.probs.errorf(s.at, "write Name=gpu in front", "the line names no resource")
			continue
		}
		l.checkGresLine(&g, given, s)
		l.cfg.Gres.Records = append(l.cfg.Gres.Records, g.GresRecord)
	}
}

func (l *loader) checkGresLine(g *gresLine, given map[string]bool, s statement) {
	at := func(key string) pos { return placeOf(s.pairs, key, s.pairs[0]) }
	if g.Name == "" {
		return
	}
	for _, list := range [][]string{g.Files, g.MultipleFiles} {
		for _, f := range list {
			if isBaseDevice(f) {
				l.probs.warnf(at("File"), "name the unit's own device file, or leave File out",
					"%s is a device that every program needs: it stays open to all jobs, "+
						"so the kernel can't keep this unit for the jobs that have it", f)
			}
		}
	}
	l.checkEndpoints(g, at)
	g.Count = model.ShareUnits(g.Name, g.Count, false)
	units := int64(max(len(g.Files), len(g.Endpoints)))
	if len(g.MultipleFiles) > 0 {
		units = 1
		if len(g.Files) > 1 {
			l.probs.errorf(at("MultipleFiles"), "write one line for each instance, with the file of its GPU",
				"MultipleFiles is for one unit, but File names %d", len(g.Files))
		}
		g.MultipleFiles = append(g.Files, g.MultipleFiles...) // a MIG instance: its GPU's file and its own
		g.Files = nil
	}
	switch {
	case len(g.Endpoints) > 0 && g.hasCount && (len(g.Endpoints) == 1 || g.Count == units):
	case len(g.Endpoints) > 0 && g.hasCount:
		l.probs.errorf(at("Count"), "write one endpoint for each GPU, or one for all", "Count=%d but Endpoint names %d",
			g.Count, units)
	case !g.hasCount:
		g.Count = max(units, 1)
	case g.Count == 0:
		l.probs.errorf(at("Count"), "remove the line", "Count=0 gives the node no units")
	case isShared(g.Name) && units > 0 && g.Count%units != 0:
		l.probs.errorf(at("Count"), "", "Count=%d can't be divided evenly over %d files", g.Count, units)
	case !isShared(g.Name) && units > 0 && g.Count != units:
		l.probs.errorf(at("Count"), "remove Count", "Count=%d but File names %d", g.Count, units)
	}
	if slices.Contains(g.Flags, "one_sharing") && slices.Contains(g.Flags, "all_sharing") {
		l.probs.errorf(at("Flags"), "keep one of them", "one_sharing and all_sharing exclude each other")
	}
	if slices.Contains(g.Flags, "CountOnly") {
		l.probs.notef(at("Flags"), "leave it out",
			"Flags=CountOnly has no effect: units without File are only counted")
	}
	if len(g.links) > 0 {
		l.readLinks(g, at("Links"))
	}
}

// readEndpoints reads host:port,host:port; hosts may be a host list, or addresses.
func readEndpoints(v string) ([]string, fault) {
	const want = "gpusrv[1-4]:50051"
	list := splitList(v)
	if !strings.Contains(v, "::") { // an IPv6 address is in brackets, too
		var err error
		if list, err = hostlist.Expand(v); err != nil {
			return nil, fault{listError(err), want}
		}
	}
	for _, at := range list {
		host, port, err := net.SplitHostPort(at)
		n, bad := strconv.Atoi(port)
		if err != nil || bad != nil || host == "" || n < 1 || n > 65535 || len(at) > maxEndpoint ||
			strings.ContainsAny(host, " =/@\"'") {
			return nil, fault{shown(at) + " is not host:port", want}
		}
	}
	if len(list) > maxGresUnits {
		return nil, fault{fmt.Sprintf("names %d, at most %d units can be on a line", len(list), maxGresUnits), want}
	}
	return list, fault{}
}

// maxEndpoint bounds one endpoint, bytes.
const maxEndpoint = 255

// checkEndpoints checks what belongs to remote GPUs, and what can't.
func (l *loader) checkEndpoints(g *gresLine, at func(string) pos) {
	remote := model.IsRemote(g.Name, g.Type)
	switch {
	case !remote && len(g.Endpoints) > 0:
		l.probs.errorf(at("Endpoint"), "write Name=gpu Type="+model.RemoteType, "Endpoint is for remote GPUs")
	case remote && len(g.Files)+len(g.MultipleFiles) > 0:
		l.probs.errorf(at("File"), "leave it out", "a remote GPU has no device file here")
	case remote && (g.UniqueID != "" || len(g.links) > 0):
		l.probs.errorf(at("Type"), "leave UniqueId and Links out", "a remote GPU is no device of this node")
	}
}

// isBaseDevice reports whether a file is a device that every program needs, which gnoded always allows: by its number
// if it is on this machine, otherwise by its name.
func isBaseDevice(file string) bool {
	var st unix.Stat_t
	here := unix.Stat(file, &st) == nil
	if here && st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return false
	}
	return slices.ContainsFunc(model.BaseDevices(), func(b model.BaseDevice) bool {
		if here {
			return b.Is(int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev)))
		}
		return b.Path == file
	})
}

// readLinks reads Links, either counts or peers.
func (l *loader) readLinks(g *gresLine, at pos) {
	if len(g.Files) > 1 {
		l.probs.errorf(at, "write one line per device", "Links is for one device, but File names %d", len(g.Files))
		return
	}
	selves := 0
	for _, n := range g.links {
		if n == -1 {
			selves++
		}
	}
	switch {
	case selves == 1:
		g.Links.Counts = g.links
	case selves > 1:
		l.probs.errorf(at, "write one number per device, -1 for the device itself", "Links has -1 %d times", selves)
	default:
		g.Links.Peers = g.links
		l.probs.notef(at, "write one number of connections per device, -1 for itself, such as -1,4,4,4",
			"Links without -1 is read as the list of devices that this one is connected to; in Slurm it is the number of "+
				"connections to each device in turn")
	}
}

func readGresTypes(c *Config, v string) fault {
	c.GresTypes = nil
	for _, name := range splitList(v) {
		if strings.ContainsAny(name, ":=/ ") {
			return fault{shown(name) + " is not a valid resource name", "gpu,mps"}
		}
		c.GresTypes = append(c.GresTypes, name)
	}
	return fault{}
}

func remarkGresTypes(_ *Config, v string) (text, hint string) {
	if v == "mig" {
		return "GresTypes=mig: in Slurm a MIG instance is a gpu whose type is its profile; here gpu:1g.5gb and mig:1g.5gb " +
				"both name it, whichever the node line has",
			"write Gres=gpu:1g.5gb:7 on the node line if Slurm reads it too"
	}
	return "", ""
}
