package conf

import (
	"path"
	"strings"
)

// Cgroup is cgroup.conf. Without the file everything except swap is constrained; with it, only what it mentions, as in
// Slurm.
type Cgroup struct {
	Plugin              string // autodetect, cgroup/v1, cgroup/v2 or disabled
	Mountpoint          string // only hierarchies mounted there or below count; "": all
	ConstrainCores      bool
	ConstrainDevices    bool
	ConstrainRAMSpace   bool
	ConstrainSwapSpace  bool
	AllowedRAMSpacePct  float64 // of the allocated memory: the hard limit
	AllowedSwapSpacePct float64 // of the allocated memory, on top
	MaxRAMPercent       float64 // of the node's memory
	MaxSwapPercent      float64 // of the node's memory
	MinRAMSpaceMiB      int64
	MemorySwappiness    int64 // of v1, where swap is constrained; -1: the kernel's
	// ConstrainSwapSpace without ConstrainRAMSpace: the limit of memory and swap together is that of memory too
	RAMFollowsSwap bool
	// paths and patterns, separated by commas: jobs can open only these, the devices that every program needs and their
	// own units; "": everything except other jobs' units
	AllowedDevices     string
	AllowedDevicesFile string // likewise, one per line; by itself it does not deny other devices
}

func defaultCgroup() Cgroup {
	return Cgroup{
		Plugin: "autodetect", ConstrainCores: true, ConstrainDevices: true, ConstrainRAMSpace: true,
		AllowedRAMSpacePct: 100, MaxRAMPercent: 100, MaxSwapPercent: 100, MinRAMSpaceMiB: 30, MemorySwappiness: -1,
	}
}

func cgroupKeys() []lineKey[Cgroup] {
	yes := func(name string, at func(*Cgroup) *bool) lineKey[Cgroup] {
		return lineKey[Cgroup]{name: name, read: func(c *Cgroup, v string) (f fault) { *at(c), f = readBool(v); return f }}
	}
	percent := func(name string, most float64, at func(*Cgroup) *float64) lineKey[Cgroup] {
		return lineKey[Cgroup]{name: name,
			read: func(c *Cgroup, v string) (f fault) { *at(c), f = readPercent(v, most); return f }}
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
		{name: "MemorySwappiness",
			read: func(c *Cgroup, v string) (f fault) { c.MemorySwappiness, f = readInt(v, 0, 100); return f }},
		{name: "AllowedDevices", read: func(c *Cgroup, v string) fault {
			for _, p := range splitList(v) {
				if _, err := path.Match(p, "/"); err != nil || !strings.HasPrefix(p, "/") {
					return fault{shown(p) + " is not the absolute path of a device file or a pattern of such",
						"/dev/fuse,/dev/infiniband/*"}
				}
			}
			c.AllowedDevices = v
			return fault{}
		}},
		{name: "AllowedDevicesFile", read: func(c *Cgroup, v string) fault {
			if !strings.HasPrefix(v, "/") {
				return fault{shown(v) + " is not an absolute path", "/etc/gbatch/cgroup_allowed_devices_file.conf"}
			}
			c.AllowedDevicesFile = v
			return fault{}
		}},
	}
	out = append(out, inert("is obsolete: cgroups are mounted by the system", "CgroupAutomount", "CgroupSlice")...)
	out = append(out, inert("is obsolete: release agents have been replaced by the daemon itself", "CgroupReleaseAgentDir",
		"CgroupReleaseAgent")...)
	out = append(out, inert("has no effect: gnoded makes its groups itself and never asks systemd", "IgnoreSystemd",
		"IgnoreSystemdOnFailure", "EnableControllers", "SystemdTimeout")...)
	out = append(out, inert(
		"has no effect: a signal for a whole step reaches all its processes, one for its tasks the tasks",
		"SignalChildrenProcesses")...)
	out = append(out, inert("is obsolete: kernel memory isn't limited by itself", "ConstrainKmemSpace", "AllowedKmemSpace",
		"MaxKmemPercent", "MinKmemSpace")...)
	return append(out, inert("is obsolete: tasks are always bound to their cores by the job's cpuset", "TaskAffinity",
		"EnableExtraControllers")...)
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
		l.probs.notef(placeOf(pairs, "ConstrainSwapSpace", pair{}), "write ConstrainRAMSpace=yes",
			"ConstrainSwapSpace=yes limits memory too: swap can't be limited alone")
		c.ConstrainRAMSpace, c.AllowedRAMSpacePct, c.RAMFollowsSwap = true, 100, true
	}
	if c.AllowedDevices != "" && !c.ConstrainDevices {
		l.probs.warnf(placeOf(pairs, "AllowedDevices", pair{}), "write ConstrainDevices=yes",
			"AllowedDevices has no effect without ConstrainDevices=yes")
	}
	if c.AllowedDevicesFile != "" && c.AllowedDevices == "" {
		l.probs.notef(placeOf(pairs, "AllowedDevicesFile", pair{}), "write AllowedDevices= to deny what is not listed",
			"AllowedDevicesFile changes nothing by itself: as in Slurm, jobs are denied the devices of generic resources that "+
				"aren't theirs, and no others")
	}
	l.cfg.Cgroup = c
}
