package model

import (
	"strings"

	"gbatch/internal/wire"
)

// GresUnit is one unit of a generic resource that a node has found: a GPU, a MIG instance or another device.
type GresUnit struct {
	Name    string
	Type    string
	Index   int32    // number that jobs get, from 0 over all types of the name
	UUID    string   // GPU-... or MIG-...; "" if unknown
	Product string   // as the driver names it; ""
	Files   []string // its device files: its own file first, then files that jobs need with it
	Minor   int32    // minor number of the first file; -1 if unknown
	PCI     string   // "0000:17:00.0"; ""
	NUMA    int32    // -1 if unknown
	Near    Bits     // CPUs near it, by the node's numbers; empty: all are near
	Links   []int32  // connections to each unit of the name by index, -1 for itself; empty if unknown
	MemMiB  int64    // 0 if unknown
	Profile string   // profile of a MIG instance, "1g.10gb"
	Parent  string   // UUID of a MIG instance's GPU
	Flags   []string // flags of its line in gres.conf

	Endpoint string // of a remote GPU: host:port; "" for all others
}

func (x *GresUnit) Wire(c *wire.C) {
	wire.Text(c, &x.Name, MaxName)
	wire.Text(c, &x.Type, MaxName)
	wire.Int(c, &x.Index)
	wire.Text(c, &x.UUID, MaxName)
	wire.Text(c, &x.Product, MaxName)
	wire.Texts(c, &x.Files, MaxList, MaxText)
	wire.Int(c, &x.Minor)
	wire.Text(c, &x.PCI, MaxName)
	wire.Int(c, &x.NUMA)
	wire.Ints(c, &x.Near, MaxFew)
	wire.Ints(c, &x.Links, MaxFew)
	wire.Int(c, &x.MemMiB)
	wire.Text(c, &x.Profile, MaxName)
	wire.Text(c, &x.Parent, MaxName)
	wire.Texts(c, &x.Flags, MaxList, MaxName)
	wire.Text(c, &x.Endpoint, MaxText)
}

// Path gives its device file, or "".
func (u *GresUnit) Path() string {
	if len(u.Files) == 0 {
		return ""
	}
	return u.Files[0]
}

// GresReserved is the flag of units that jobs never get.
const GresReserved = "reserved"

// WithFound gives a node's definition, completed with what the node has found where the configuration says nothing: the
// CPUs near each unit, its connections, its distances to other units, its memory. It returns d itself if there is
// nothing to add.
func (d *NodeDef) WithFound(found []GresDef) *NodeDef {
	var out *NodeDef
	for i := range d.Gres {
		g := &d.Gres[i]
		var add GresDef
		for k := range g.Count {
			f, at := findUnit(found, g.Name, g.First+k)
			if f == nil {
				add = GresDef{} // units are missing, so the rest is not used either
				break
			}
			if at < len(f.Near) {
				add.Near = append(add.Near, f.Near[at])
			}
			if at < len(f.Links) {
				add.Links = append(add.Links, f.Links[at])
			}
			if at < len(f.Dist) {
				add.Dist = append(add.Dist, f.Dist[at])
			}
			if add.MemMiB == 0 || f.MemMiB < add.MemMiB {
				add.MemMiB = f.MemMiB
			}
		}
		c := *g
		if len(g.Near) == 0 && len(add.Near) == int(g.Count) {
			c.Near = add.Near
		}
		if !d.linked(g.Name) && len(add.Links) == int(g.Count) {
			c.Links = add.Links
		}
		if len(g.Dist) == 0 && len(add.Dist) == int(g.Count) {
			c.Dist = add.Dist
		}
		if g.MemMiB == 0 {
			c.MemMiB = add.MemMiB
		}
		if len(c.Near) == len(g.Near) && len(c.Links) == len(g.Links) && len(c.Dist) == len(g.Dist) && c.MemMiB == g.MemMiB {
			continue
		}
		if out == nil {
			n := *d
			n.Gres = append([]GresDef(nil), d.Gres...)
			out = &n
		}
		out.Gres[i] = c
	}
	if out == nil {
		return d
	}
	return out
}

// linked reports whether the configuration has connections of a resource's units.
func (d *NodeDef) linked(name string) bool {
	for i := range d.Gres {
		if d.Gres[i].Name == name && len(d.Gres[i].Links) > 0 {
			return true
		}
	}
	return false
}

func findUnit(found []GresDef, name string, index int32) (*GresDef, int) {
	for i := range found {
		if f := &found[i]; f.Name == name && f.First <= index && index < f.First+f.Count {
			return f, int(index - f.First)
		}
	}
	return nil, 0
}

// TypedName gives a resource's name in requests: gpu:h100.
func TypedName(name, typ string) string {
	if typ == "" {
		return name
	}
	return strings.Join([]string{name, typ}, ":")
}

// RemoteType is the type of remote GPUs: units of gpu without a device file, which servers at endpoints lend.
const RemoteType = "remote"

// IsRemote reports whether units of a resource and a type are remote GPUs.
func IsRemote(name, typ string) bool { return name == GPUName && strings.EqualFold(typ, RemoteType) }

// TypeFits reports whether a request for a resource, by type or for any ("" is wanted), takes units of a type. Remote
// GPUs go only to requests for them: a program that expects a GPU on its node can't use one.
func TypeFits(name, wanted, typ string) bool {
	if wanted == "" {
		return !IsRemote(name, typ)
	}
	return strings.EqualFold(wanted, typ)
}

// BaseDevice is a character device that every program may need: a job is never kept from it, and no unit of a resource
// can be one.
type BaseDevice struct {
	Path         string
	Major, Minor int64 // Minor -1: all of that major
}

// BaseDevices are those of every machine.
func BaseDevices() []BaseDevice {
	return []BaseDevice{
		{"/dev/null", 1, 3}, {"/dev/zero", 1, 5}, {"/dev/full", 1, 7}, {"/dev/random", 1, 8}, {"/dev/urandom", 1, 9},
		{"/dev/tty", 5, 0}, {"/dev/console", 5, 1}, {"/dev/ptmx", 5, 2}, {"/dev/pts/*", 136, -1},
		{"/dev/fuse", 10, 229},
	}
}

// Is reports whether it is the character device of a number.
func (d BaseDevice) Is(major, minor int64) bool {
	return d.Major == major && (d.Minor < 0 || d.Minor == minor)
}
