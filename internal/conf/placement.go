package conf

import (
	"errors"
	"fmt"
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
	m.Params.RequeueDelayS = c.Scheduler.RequeueDelayS
	m.Params.DefCPUPerGPU, m.Params.DefMemPerGPU = int32(c.JobDefaults.DefCPUPerGPU), c.JobDefaults.DefMemPerGPUMiB
	m.Params.GPUMemMarginMiB = c.GPUMemMarginMiB
	for _, l := range c.Licenses {
		m.Licenses = append(m.Licenses, model.LicenseCount{Name: l.Name, Count: l.Count})
	}
	m.Params.TopoOptional, m.Params.Dragonfly = c.hasTopologyParam("TopoOptional"), c.hasTopologyParam("Dragonfly")
	c.networks(m)
}

// networks sets the topologies: those of topology.yaml, or that of topology.conf.
func (c *Config) networks(m *model.Config) {
	for i := range c.Topologies {
		t := &c.Topologies[i]
		x := &model.Topology{Name: t.Name, Default: t.Default}
		switch t.Kind {
		case topologyBlock:
			x.Blocks = t.modelBlocks()
		case topologyTree:
			x.Switches = t.modelSwitches()
		}
		m.Topologies = append(m.Topologies, x)
	}
	switch t := &c.Topology; {
	case len(c.Topologies) > 0:
	case c.TopologyPlugin == topologyBlock && len(t.Blocks) > 0:
		m.Blocks = t.modelBlocks()
	case c.TopologyPlugin == topologyTree:
		m.Switches = t.modelSwitches()
	}
}

func (t *Topology) modelBlocks() *model.Blocks {
	out := &model.Blocks{Sizes: t.Sizes}
	for _, b := range t.Blocks {
		out.List = append(out.List, &model.Block{Name: b.Name, Nodes: b.Nodes})
	}
	return out
}

func (t *Topology) modelSwitches() []*model.Switch {
	var out []*model.Switch
	byName := make(map[string]*model.Switch, len(t.Switches))
	for _, s := range t.Switches {
		x := &model.Switch{Name: s.Name, Nodes: s.Nodes, Children: s.Children, Speed: s.LinkSpeed}
		out = append(out, x)
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
	for _, x := range out {
		if x.Level == 0 {
			level(x, 0)
		}
	}
	return out
}

// maxSwitchDepth bounds the levels of the tree that are counted.
const maxSwitchDepth = 16

// misplaced is what is wrong with the name of a topology or of a unit in one, and the way out.
type misplaced struct{ text, hint string }

func (m *misplaced) Error() string { return m.text }

func hintOf(err error) string {
	var m *misplaced
	if errors.As(err, &m) {
		return m.hint
	}
	return ""
}

func topologyNames(nets []*model.Topology) (names []string) {
	for _, t := range nets {
		names = append(names, t.Name)
	}
	return names
}

// unknownTopology says that a name is no topology's; "" is the default one's.
func unknownTopology(nets []*model.Topology, name string) error {
	names := topologyNames(nets)
	if name == "" || slices.Contains(names, name) {
		return nil
	}
	if len(nets) == 1 && nets[0].Name == model.DefaultTopology {
		return &misplaced{"Topology=" + shown(name) + ": there is no " + TopologiesFile + " that defines topologies",
			"write one (man topology.yaml), or leave Topology= out"}
	}
	return &misplaced{"Topology=" + shown(name) + ": there is no such topology",
		"write one of " + strings.Join(names, ", ")}
}

// unitsOf checks a node's Topology=: TOPOLOGY:UNIT for each topology, where UNIT may follow the names above it.
func unitsOf(nets []*model.Topology, value string) error {
	if value == "" {
		return nil
	}
	seen := map[string]bool{}
	for w := range strings.SplitSeq(value, ",") {
		name, path, ok := strings.Cut(w, ":")
		if !ok || name == "" || path == "" {
			return &misplaced{"Topology=" + shown(value) + ": " + shown(w) + " is not TOPOLOGY:UNIT",
				"write Topology=" + nets[0].Name + ":UNIT"}
		}
		if err := unknownTopology(nets, name); err != nil {
			return err
		}
		if seen[name] {
			return &misplaced{"Topology=" + shown(value) + " names topology " + name + " twice",
				"a node is in one unit of each"}
		}
		seen[name] = true
		if err := unitAt(nets[slices.Index(topologyNames(nets), name)], path); err != nil {
			return err
		}
	}
	return nil
}

// unitAt checks the way to one unit of a topology.
func unitAt(t *model.Topology, path string) error {
	names := strings.Split(path, ":")
	unit := names[len(names)-1]
	more := "add it to topology.yaml, where it may have no nodes, and run gcontrol reconfigure"
	switch {
	case t.Flat():
		return &misplaced{"in topology " + t.Name + " all nodes are alike", "leave it out"}
	case t.Blocks != nil:
		var known []string
		for _, b := range t.Blocks.List {
			known = append(known, b.Name)
		}
		if len(names) == 1 && slices.Contains(known, unit) {
			return nil
		}
		if near := nearest(unit, known); near != "" && letters(near) != letters(unit) {
			more = "did you mean " + near + "?"
		}
		return &misplaced{"topology " + t.Name + " has no block " + shown(path), more}
	}
	byName := map[string]*model.Switch{}
	var leaves []string
	for _, s := range t.Switches {
		byName[s.Name] = s
		if len(s.Children) == 0 {
			leaves = append(leaves, s.Name)
		}
	}
	for i, name := range names {
		s := byName[name]
		switch {
		case s == nil:
			if near := nearest(name, leaves); near != "" && letters(near) != letters(name) {
				more = "did you mean " + near + "?"
			}
			return &misplaced{"topology " + t.Name + " has no switch " + shown(name), more}
		case i > 0 && !slices.Contains(byName[names[i-1]].Children, name):
			return &misplaced{"in topology " + t.Name + ", switch " + name + " is not right below " + names[i-1],
				"write the leaf switch alone"}
		}
	}
	if len(byName[unit].Children) > 0 {
		return &misplaced{"in topology " + t.Name + ", switch " + unit + " has switches below it", "name a leaf switch"}
	}
	return nil
}

// NodeTopology checks the Topology of a node that is set while the cluster runs.
func NodeTopology(cfg *model.Config, value string) error {
	if err := unitsOf(cfg.Networks(), value); err != nil {
		return fmt.Errorf("%w; %s", err, hintOf(err))
	}
	return nil
}

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
