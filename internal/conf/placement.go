package conf

import (
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
)

// The scheduler's inputs besides nodes and partitions: licenses, the network, and the connections of units of nodes'
// resources.

// placement sets the cluster-wide part.
func (c *Config) placement(m *model.Config) {
	m.Params.LLN, m.Params.SwitchWaitS = c.Select.LLN, c.Scheduler.MaxSwitchWaitS
	m.Params.DefCPUPerGPU, m.Params.DefMemPerGPU = int32(c.JobDefaults.DefCPUPerGPU), c.JobDefaults.DefMemPerGPUMiB
	m.Params.GPUMemMarginMiB = c.GPUMemMarginMiB
	for _, l := range c.Licenses {
		m.Licenses = append(m.Licenses, model.LicenseCount{Name: l.Name, Count: l.Count})
	}
	if c.TopologyPlugin == topologyBlock && len(c.Topology.Blocks) > 0 {
		m.Blocks = &model.Blocks{Sizes: c.Topology.Sizes}
		for _, b := range c.Topology.Blocks {
			m.Blocks.List = append(m.Blocks.List, &model.Block{Name: b.Name, Nodes: b.Nodes})
		}
	}
	if c.TopologyPlugin != topologyTree {
		return
	}
	byName := make(map[string]*model.Switch, len(c.Topology.Switches))
	for _, s := range c.Topology.Switches {
		x := &model.Switch{Name: s.Name, Nodes: s.Nodes, Children: s.Children, Speed: s.LinkSpeed}
		m.Switches = append(m.Switches, x)
		byName[s.Name] = x
	}
	var level func(x *model.Switch, depth int) int32
	level = func(x *model.Switch, depth int) int32 {
		for _, child := range x.Children {
			if below := byName[child]; below != nil && depth < maxSwitchDepth {
				x.Level = max(x.Level, level(below, depth+1)+1)
			}
		}
		return x.Level
	}
	for _, x := range m.Switches {
		if x.Level == 0 {
			level(x, 0)
		}
	}
}

// maxSwitchDepth bounds the levels of the tree that are counted.
const maxSwitchDepth = 16

// profileMem gives the memory of a MIG profile such as 1g.10gb, MiB; 0 for other types.
func profileMem(typ string) int64 {
	slices, mem, ok := strings.Cut(strings.ToLower(typ), "g.")
	gb, isGB := strings.CutSuffix(mem, "gb")
	if _, err := strconv.Atoi(slices); !ok || !isGB || err != nil {
		return 0
	}
	n, err := strconv.ParseInt(gb, 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return n << 10
}

// unitOf is one unit of a resource in gres.conf.
type unitOf struct {
	rec *GresRecord
	def int // of the node's Gres, -1: none
	at  int // among the units of that
}

// connect adds gres.conf's data to a node's resources: the CPUs near each unit (Cores) and its links to other units.
func (c *Config) connect(d *model.NodeDef) {
	records, _ := c.Gres.For(d.Name)
	done := map[string]bool{}
	for i := range d.Gres {
		if name := d.Gres[i].Name; !done[name] && !isShared(name) {
			done[name] = true
			connectUnits(d, name, records)
		}
		if g := &d.Gres[i]; g.MemMiB == 0 {
			g.MemMiB = profileMem(g.Type)
		}
	}
}

// connectUnits pairs the units of one resource with the lines of gres.conf, type by type in order.
func connectUnits(d *model.NodeDef, name string, records []GresRecord) {
	var units []unitOf // in the order of the file, which is that of Links
	given := make([]int, len(d.Gres))
	known := false
	for i := range records {
		r := &records[i]
		if r.Name != name {
			continue
		}
		known = known || r.Cores != nil || r.MemMiB > 0 || len(r.Links.Counts)+len(r.Links.Peers) > 0
		for range min(r.Count, maxConnected) {
			u := unitOf{rec: r, def: -1}
			for k := range d.Gres {
				g := &d.Gres[k]
				if g.Name == name && (r.Type == "" || g.Type == "" || strings.EqualFold(r.Type, g.Type)) &&
					given[k] < int(g.Count) {
					u.def, u.at = k, given[k]
					given[k]++
					break
				}
			}
			units = append(units, u)
		}
	}
	for _, u := range units {
		if slices.Contains(u.rec.Flags, "explicit") { // of the whole resource, as in Slurm
			for k := range d.Gres {
				d.Gres[k].Explicit = d.Gres[k].Explicit || d.Gres[k].Name == name
			}
		}
		if u.def >= 0 && slices.Contains(u.rec.Flags, model.GresReserved) {
			g := &d.Gres[u.def]
			g.Off = g.Off.With(int(g.First) + u.at)
		}
	}
	if !known || len(units) > maxConnected {
		return
	}
	total := 0
	for k := range d.Gres {
		if d.Gres[k].Name == name {
			total = max(total, int(d.Gres[k].First+d.Gres[k].Count))
		}
	}
	index := func(u unitOf) int { return int(d.Gres[u.def].First) + u.at }
	for _, u := range units {
		if u.def < 0 {
			continue
		}
		g := &d.Gres[u.def]
		if u.rec.MemMiB > 0 {
			g.MemMiB = u.rec.MemMiB
		}
		if u.rec.Cores != nil && len(g.Near) == 0 {
			g.Near = make([]model.Bits, g.Count)
		}
		if u.rec.Cores != nil {
			g.Near[u.at] = cpusOf(d, u.rec.Cores)
		}
		row := make([]int32, total)
		linked := false
		link := func(to, n int) {
			if to < len(units) && units[to].def >= 0 && index(units[to]) != index(u) && n > 0 {
				row[index(units[to])], linked = int32(n), true
			}
		}
		for to, n := range u.rec.Links.Counts {
			link(to, n)
		}
		for _, to := range u.rec.Links.Peers {
			link(to, 1)
		}
		if linked {
			if len(g.Links) == 0 {
				g.Links = make([][]int32, g.Count)
			}
			g.Links[u.at] = row
		}
	}
}

// maxConnected bounds the units of one resource of a node whose connections are kept.
const maxConnected = 64

// cpusOf gives the CPUs of cores.
func cpusOf(d *model.NodeDef, cores []int) model.Bits {
	threads := max(1, int(d.ThreadsPerCore))
	var out model.Bits
	for _, core := range cores {
		for k := range threads {
			if cpu := core*threads + k; core >= 0 && cpu < int(d.CPUs) {
				out = out.With(cpu)
			}
		}
	}
	return out
}
