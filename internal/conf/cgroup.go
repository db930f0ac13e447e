package conf

import (
	"math"
	"strings"
)

// Cgroup is cgroup.conf. Without the file everything is constrained but swap;
// with it, what it doesn't mention isn't, as in Slurm.
type Cgroup struct {
	Plugin                 string // autodetect, cgroup/v1, cgroup/v2 or disabled
	Mountpoint             string
	ConstrainCores         bool
	ConstrainDevices       bool
	ConstrainRAMSpace      bool
	ConstrainSwapSpace     bool
	AllowedRAMSpacePct     float64 // of the allocated memory: the hard limit
	AllowedSwapSpacePct    float64 // of the allocated memory, on top
	MaxRAMPercent          float64 // of the node's memory
	MaxSwapPercent         float64 // of the node's memory
	MinRAMSpaceMiB         int64
	MemorySwappiness       int64 // -1: the kernel's
	SignalChildrenProcs    bool
	IgnoreSystemd          bool
	IgnoreSystemdOnFailure bool
	EnableControllers      bool
	SystemdTimeoutMS       int64
}

func defaultCgroup() Cgroup {
	return Cgroup{
		Plugin: "autodetect", Mountpoint: "/sys/fs/cgroup", ConstrainCores: true, ConstrainDevices: true, ConstrainRAMSpace: true,
		AllowedRAMSpacePct: 100, MaxRAMPercent: 100, MaxSwapPercent: 100, MinRAMSpaceMiB: 30, MemorySwappiness: -1, SystemdTimeoutMS: 1000,
	}
}

func cgroupKeys() []lineKey[Cgroup] {
	yes := func(name string, at func(*Cgroup) *bool) lineKey[Cgroup] {
		return lineKey[Cgroup]{name: name, read: func(c *Cgroup, v string) (f fault) { *at(c), f = readBool(v); return f }}
	}
	percent := func(name string, most float64, at func(*Cgroup) *float64) lineKey[Cgroup] {
		return lineKey[Cgroup]{name: name, read: func(c *Cgroup, v string) (f fault) { *at(c), f = readPercent(v, most); return f }}
	}
	inert := func(note string, names ...string) (out []lineKey[Cgroup]) {
		for _, n := range names {
			out = append(out, lineKey[Cgroup]{name: n, note: note})
		}
		return out
	}
	out := []lineKey[Cgroup]{
		{name: "CgroupPlugin", read: func(c *Cgroup, v string) (f fault) {
			c.Plugin, f = readWord(v, []string{"autodetect", "cgroup/v1", "cgroup/v2", "disabled"})
			return f
		}},
		{name: "CgroupMountpoint", read: func(c *Cgroup, v string) fault {
			if !strings.HasPrefix(v, "/") {
				return fault{shown(v) + " is not an absolute path", "/sys/fs/cgroup"}
			}
			c.Mountpoint = v
			return fault{}
		}},
		yes("ConstrainCores", func(c *Cgroup) *bool { return &c.ConstrainCores }),
		yes("ConstrainDevices", func(c *Cgroup) *bool { return &c.ConstrainDevices }),
		yes("ConstrainRAMSpace", func(c *Cgroup) *bool { return &c.ConstrainRAMSpace }),
		yes("ConstrainSwapSpace", func(c *Cgroup) *bool { return &c.ConstrainSwapSpace }),
		percent("AllowedRAMSpace", 10000, func(c *Cgroup) *float64 { return &c.AllowedRAMSpacePct }),
		percent("AllowedSwapSpace", 10000, func(c *Cgroup) *float64 { return &c.AllowedSwapSpacePct }),
		percent("MaxRAMPercent", 100, func(c *Cgroup) *float64 { return &c.MaxRAMPercent }),
		percent("MaxSwapPercent", 100, func(c *Cgroup) *float64 { return &c.MaxSwapPercent }),
		{name: "MinRAMSpace", read: func(c *Cgroup, v string) (f fault) { c.MinRAMSpaceMiB, f = readMem(v); return f }},
		{name: "MemorySwappiness", read: func(c *Cgroup, v string) (f fault) { c.MemorySwappiness, f = readInt(v, 0, 100); return f }},
		yes("SignalChildrenProcesses", func(c *Cgroup) *bool { return &c.SignalChildrenProcs }),
		yes("IgnoreSystemd", func(c *Cgroup) *bool { return &c.IgnoreSystemd }),
		yes("IgnoreSystemdOnFailure", func(c *Cgroup) *bool { return &c.IgnoreSystemdOnFailure }),
		yes("EnableControllers", func(c *Cgroup) *bool { return &c.EnableControllers }),
		{name: "SystemdTimeout", read: func(c *Cgroup, v string) (f fault) {
			c.SystemdTimeoutMS, f = readInt(v, 1, math.MaxInt32)
			return f
		}},
	}
	out = append(out, inert("is obsolete: cgroups are mounted by the system", "CgroupAutomount", "CgroupSlice")...)
	out = append(out, inert("is obsolete: release agents have been replaced by the daemon itself", "CgroupReleaseAgentDir", "CgroupReleaseAgent")...)
	out = append(out, inert("is obsolete: the devices that every job may use are fixed, the GPUs come from its allocation", "AllowedDevicesFile")...)
	out = append(out, inert("is obsolete: kernel memory isn't limited by itself", "ConstrainKmemSpace", "AllowedKmemSpace", "MaxKmemPercent", "MinKmemSpace")...)
	return append(out, inert("is obsolete: tasks are always bound to their cores by the job's cpuset", "TaskAffinity", "EnableExtraControllers")...)
}

func cgroupKeyNames() []string { return keyNames(cgroupKeys()) }

// readCgroup reads cgroup.conf.
func (l *loader) readCgroup(lines []statement) {
	c := defaultCgroup()
	c.ConstrainCores, c.ConstrainDevices, c.ConstrainRAMSpace = false, false, false
	var pairs []pair
	for _, s := range lines {
		pairs = append(pairs, s.pairs...)
	}
	readKeys(l, cgroupKeys(), pairs, &c, "cgroup.conf")
	if c.ConstrainSwapSpace && !c.ConstrainRAMSpace {
		l.probs.notef(placeOf(pairs, "ConstrainSwapSpace", pair{}), "write ConstrainRAMSpace=yes", "ConstrainSwapSpace=yes limits memory too: swap can't be limited alone")
		c.ConstrainRAMSpace, c.AllowedRAMSpacePct = true, 100
	}
	l.cfg.Cgroup = c
}
