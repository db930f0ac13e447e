package conf

import (
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/conf/topoyaml"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
)

// Topology is topology.conf, or one topology of topology.yaml: the tree of switches, where a leaf has nodes and another
// switch has switches, or the blocks.
type Topology struct {
	Name     string // "": topology.conf's
	Default  bool
	Kind     string   // of topology.yaml's: topology/flat, topology/tree or topology/block
	Switches []Switch // in the order of the file
	Blocks   []Switch // of topology/block, likewise
	Sizes    []int32  // BlockSizes
	File     string
	Line     int
}

// Switch is one switch of the tree.
type Switch struct {
	Name      string
	Nodes     []string // of a leaf
	Children  []string // switches, of another one
	LinkSpeed string
	File      string
	Line      int
}

const (
	topologyFlat  = "topology/flat"
	topologyTree  = "topology/tree"
	topologyBlock = "topology/block"
)

func readTopologyPlugin(c *Config, v string) fault {
	t, f := readWord(v, []string{"topology/flat", "topology/tree", "topology/default", "topology/none", "topology/block",
		"topology/3d_torus", "topology/hypercube"})
	switch t {
	case topologyTree, topologyBlock:
		c.TopologyPlugin = t
	case "":
		f.want = "topology/tree, topology/block or topology/flat"
	default:
		c.TopologyPlugin = topologyFlat
	}
	return f
}

func remarkTopologyPlugin(_ *Config, v string) (text, hint string) {
	if hasFold([]string{"topology/3d_torus", "topology/hypercube"}, v) {
		return "TopologyPlugin=" + v + " has no effect: all nodes are treated alike",
			"write TopologyPlugin=topology/tree with SwitchName lines, or topology/flat"
	}
	return "", ""
}

// topologyParams are the words of TopologyParam.
var topologyParams = []string{"BlockAsNodeRank", "Dragonfly", "RoutePart", "RouteTree", "SwitchAsNodeRank",
	"TopoMaxSizeUnroll", "TopoOptional"}

func readTopologyParam(c *Config, v string) (f fault) {
	for _, w := range splitList(v) {
		name, n, valued := strings.Cut(w, "=")
		if count, err := strconv.Atoi(n); valued && (!strings.EqualFold(name, "TopoMaxSizeUnroll") || err != nil ||
			count < -1) {
			return fault{shown(w) + " is not a parameter of topologies", "TopoOptional"}
		}
		if _, f := readWord(name, topologyParams); f.bad() {
			return f
		}
	}
	c.TopologyParam = splitList(v)
	return fault{}
}

func remarkTopologyParam(_ *Config, v string) (text, hint string) {
	switch name, _, _ := strings.Cut(strings.ToLower(v), "="); name {
	case "routetree", "routepart":
		return "TopologyParam=" + v + " has no effect: the controller talks to each node itself", "remove it"
	case "switchasnoderank", "blockasnoderank":
		return "TopologyParam=" + v + " has no effect: a job's nodes are in the order of the NodeName lines",
			"write these in the order of the switches"
	case "topomaxsizeunroll":
		return "TopologyParam=" + v + " has no effect: every number of nodes from the least to the most is tried",
			"remove it"
	}
	return "", ""
}

// hasTopologyParam reports whether TopologyParam has a word.
func (c *Config) hasTopologyParam(word string) bool { return hasFold(c.TopologyParam, word) }

var switchKeyNames = []string{"Switches", "LinkSpeed"}

// switchLine is a SwitchName or BlockName line.
type switchLine struct{ nodes, switches, speed string }

func switchKeys() []lineKey[switchLine] {
	return []lineKey[switchLine]{
		{name: "Nodes", read: func(s *switchLine, v string) fault { s.nodes = v; return fault{} }},
		{name: "Switches", read: func(s *switchLine, v string) fault { s.switches = v; return fault{} }},
		{name: "LinkSpeed", read: func(s *switchLine, v string) fault { s.speed = v; return fault{} }},
	}
}

// readTopology reads the lines of topology.conf, when all nodes are known.
func (l *loader) readTopology(lines []statement) {
	for _, s := range lines {
		head := s.pairs[0]
		switch kind := recordKey(head.key); {
		case kind == keySwitch || kind == keyBlock:
			l.switchLines = append(l.switchLines, s.pairs)
		case strings.EqualFold(head.key, "BlockSizes"):
			l.blockSizes(&l.cfg.Topology, head.key, head.value, head.at)
		default:
			hint := "write SwitchName=… Nodes=… or Switches=…"
			if near := nearest(head.key, []string{keySwitch, keyBlock}); near != "" {
				hint = "did you mean " + near + "?"
			}
			l.probs.errorf(head.at, hint, "unknown key %s in topology.conf", shown(head.key))
		}
	}
}

// maxBlockSizes bounds the levels of blocks.
const maxBlockSizes = 16

// blockSizes reads BlockSizes: each a power of two larger than the first.
func (l *loader) blockSizes(t *Topology, key, value string, at pos) {
	var sizes []int32
	for _, w := range splitList(value) {
		n, err := strconv.ParseInt(w, 10, 32)
		ok := err == nil && n > 0 && len(sizes) < maxBlockSizes
		if k := len(sizes); ok && k > 0 {
			each := n / int64(sizes[0])
			ok = n > int64(sizes[k-1]) && n%int64(sizes[0]) == 0 && each&(each-1) == 0
		}
		if !ok {
			l.probs.errorf(at, "write the nodes of a block, then those of larger ones: 18,36,72",
				"%s=%s: %s is not a power of two times the first size, larger than the one before", key, shown(value),
				shown(w))
			return
		}
		sizes = append(sizes, int32(n))
	}
	t.Sizes = sizes
}

// takeBlocks makes the leaves of a topology its blocks.
func (l *loader) takeBlocks(t *Topology) {
	say := t.words()
	for _, s := range t.Switches {
		at := pos{s.File, s.Line}
		if s.Children != nil {
			l.probs.errorf(at, "write BlockName=... Nodes=... lines and BlockSizes=, or TopologyPlugin=topology/tree",
				"switch %s is above others, and TopologyPlugin=topology/block has only blocks of nodes", s.Name)
			continue
		}
		if len(t.Sizes) > 0 && len(s.Nodes) < int(t.Sizes[0]) {
			l.probs.warnf(at, "add nodes to it, or make "+say.sizes+" smaller",
				"block %s has %d nodes, and %s says that a block has %d: jobs of more nodes than it has don't fit in it",
				s.Name, len(s.Nodes), say.sizes, t.Sizes[0])
		}
		t.Blocks = append(t.Blocks, s)
	}
	t.Switches = nil
}

// words are the words of a file for its units.
type words struct{ unit, entry, children, sizes string }

func (t *Topology) words() words {
	switch {
	case t.Name == "":
		return words{"switch", "SwitchName line", "Switches", "BlockSizes"}
	case t.Kind == topologyBlock:
		return words{"block", "- block: entry", "children", "block_sizes"}
	}
	return words{"switch", "- switch: entry", "children", "block_sizes"}
}

// unitLine is a switch or a block as a file defines it.
type unitLine struct {
	name, nodes, children, speed string
	at, nodesAt, childrenAt      pos
}

// readSwitches turns the SwitchName lines of all files into a tree, or reads topology.yaml.
func (l *loader) readSwitches() {
	if l.yamlTopologies != nil {
		l.readTopologies()
		return
	}
	t := &l.cfg.Topology
	index := map[string]int{}
	for _, pairs := range l.switchLines {
		head := pairs[0]
		var line switchLine
		readKeys(l, switchKeys(), pairs[1:], &line, recordKey(head.key))
		names, f := readHosts(head.value)
		if f.bad() || len(names) != 1 {
			l.probs.errorf(head.at, "write one line per switch", "%s=%s is not one name", head.key, shown(head.value))
			continue
		}
		l.addUnit(t, index, &unitLine{names[0], line.nodes, line.switches, line.speed, head.at,
			placeOf(pairs, "Nodes", head), placeOf(pairs, "Switches", head)})
	}
	leafOf := l.checkTree(t, index)
	if len(t.Switches) > 0 {
		l.checkReach(t, leafOf)
	} else if l.cfg.TopologyPlugin != topologyFlat && len(l.switchLines) == 0 && !l.probs.hasErrors(TopologyFile) {
		line, what := keySwitch, "switches"
		if l.cfg.TopologyPlugin == topologyBlock {
			line, what = keyBlock, "blocks"
		}
		l.probs.warnf(l.where("TopologyPlugin"), "write "+line+" lines in topology.conf",
			"TopologyPlugin=%s has no effect without %s", l.cfg.TopologyPlugin, what)
	}
	if l.cfg.TopologyPlugin == topologyBlock {
		l.takeBlocks(t)
	}
}

// addUnit adds a switch or a block to a topology.
func (l *loader) addUnit(t *Topology, index map[string]int, u *unitLine) {
	if first, twice := index[u.name]; twice {
		l.probs.errorf(u.at, "remove one of the lines", "%s %s is defined twice, first in line %d", t.words().unit, u.name,
			t.Switches[first].Line)
		return
	}
	s := Switch{Name: u.name, LinkSpeed: u.speed, File: u.at.file, Line: u.at.line}
	switch {
	case u.nodes != "" && u.children != "", u.nodes == "" && u.children == "" && t.Name == "":
		l.probs.errorf(u.at, "write either Nodes= or Switches=", "switch %s needs either nodes or switches", u.name)
		return
	case u.children != "":
		children, err := hostlist.Expand(u.children)
		if err != nil {
			l.probs.errorf(u.childrenAt, "write "+t.words().children+" as s[1-2]", "switch %s: %v", u.name, err)
			return
		}
		s.Children = children
	case u.nodes != "":
		s.Nodes = l.knownNodes(pair{"Nodes", u.nodes, u.nodesAt}, t.words().unit+" "+u.name)
	}
	index[s.Name] = len(t.Switches)
	t.Switches = append(t.Switches, s)
}

// joinParallel leaves out switches that join the same switches as an earlier one: an upper level of a fat tree, which
// is one switch as far as placing jobs goes. It reports whether there were any: then those above may be so, too.
func (l *loader) joinParallel(t *Topology, index map[string]int) bool {
	first, same := map[string]string{}, map[string]string{}
	kept := t.Switches[:0:0]
	for _, s := range t.Switches {
		below := slices.Sorted(slices.Values(s.Children))
		key := strings.Join(below, ",")
		if as := first[key]; key != "" && as != "" {
			l.probs.notef(pos{s.File, s.Line}, "remove it", "%s %s is above the same ones as %s, which stands for both",
				t.words().unit, s.Name, as)
			same[s.Name] = as
			continue
		}
		first[key] = s.Name
		kept = append(kept, s)
	}
	if len(same) == 0 {
		return false
	}
	clear(index)
	for i := range kept {
		s := &kept[i]
		index[s.Name] = i
		for k, child := range s.Children {
			if as := same[child]; as != "" {
				s.Children[k] = as
			}
		}
		slices.Sort(s.Children)
		s.Children = slices.Compact(s.Children)
	}
	t.Switches = kept
	return true
}

// checkTree checks that the switches form trees and that each node is on one leaf. It gives the leaf of each node.
func (l *loader) checkTree(t *Topology, index map[string]int) map[string]string {
	for l.joinParallel(t, index) { // from the bottom up
	}
	say := t.words()
	parent := map[string]string{}
	leafOf := map[string]string{}
	for _, s := range t.Switches {
		at := pos{s.File, s.Line}
		for _, child := range s.Children {
			if _, ok := index[child]; !ok {
				l.probs.errorf(at, "add a "+say.entry+" for it", "switch %s names switch %s, which isn't defined", s.Name, child)
			}
			if p, has := parent[child]; has {
				l.probs.errorf(at, "name it in one of them", "switch %s is below both %s and %s", child, p, s.Name)
			}
			parent[child] = s.Name
		}
		for _, n := range s.Nodes {
			if leaf, has := leafOf[n]; has && leaf != s.Name {
				l.probs.errorf(at, "name it in one of them", "node %s is on both %s %s and %s", n, say.unit, leaf, s.Name)
			}
			leafOf[n] = s.Name
		}
	}
	for _, s := range t.Switches {
		up := s.Name
		for steps := 0; up != ""; steps++ {
			up = parent[up]
			if up == s.Name {
				l.probs.errorf(pos{s.File, s.Line}, "remove one of the "+say.children, "switch %s is below itself", s.Name)
				break
			}
			if steps > len(t.Switches) {
				break // a circle that this switch isn't part of; reported for those that are
			}
		}
	}
	return leafOf
}

// checkReach tells of nodes that topology.conf leaves out.
func (l *loader) checkReach(t *Topology, leafOf map[string]string) {
	if l.cfg.TopologyPlugin == topologyFlat {
		s := t.Switches[0]
		l.probs.notef(pos{s.File, s.Line}, "write TopologyPlugin=topology/tree",
			"SwitchName lines have no effect with TopologyPlugin=%s", l.cfg.TopologyPlugin)
		return
	}
	var outside []string
	for i := range l.cfg.Nodes {
		if n := &l.cfg.Nodes[i]; leafOf[n.Name] == "" && n.Topology == "" {
			outside = append(outside, n.Name)
		}
	}
	if len(outside) > 0 {
		line, where := keySwitch, "on no switch"
		if l.cfg.TopologyPlugin == topologyBlock {
			line, where = keyBlock, "in no block"
		}
		l.probs.warnf(pos{t.Switches[0].File, t.Switches[0].Line}, "add them to a "+line+" line",
			"%s is %s: no job uses it together with other nodes", shownHosts(outside), where)
	}
}

// readTopologies reads the topologies of topology.yaml, when all nodes and partitions are known.
func (l *loader) readTopologies() {
	file := l.yamlFile
	if at, given := l.seen["TopologyPlugin"]; given {
		l.probs.notef(at, "remove it", "TopologyPlugin has no effect: %s says of what kind each topology is", TopologiesFile)
	}
	if len(l.switchLines) > 0 {
		l.probs.notef(l.switchLines[0][0].at, "remove them", "SwitchName lines have no effect: there is a %s", TopologiesFile)
	}
	kinds := map[topoyaml.Kind]string{topoyaml.Flat: topologyFlat, topoyaml.Tree: topologyTree,
		topoyaml.Block: topologyBlock}
	first := map[string]int{}
	byDefault := 0
	for i := range l.yamlTopologies {
		y := &l.yamlTopologies[i]
		t := Topology{Name: y.Name, Kind: kinds[y.Kind], File: file, Line: y.Line}
		at := pos{file, y.Line}
		switch {
		case first[t.Name] > 0:
			l.probs.errorf(at, "give each its own name", "topology %s is defined twice, first in line %d", t.Name,
				first[t.Name])
			continue
		case y.Default && byDefault > 0:
			l.probs.notef(at, "remove its cluster_default",
				"topology %s is not the default one: the first with cluster_default is, that of line %d", t.Name, byDefault)
		case y.Default:
			t.Default, byDefault = true, y.Line
		}
		first[t.Name] = y.Line
		if y.Sizes != "" {
			l.blockSizes(&t, "block_sizes", y.Sizes, pos{file, y.SizesLine})
		}
		index := map[string]int{}
		for _, u := range y.Units {
			l.addUnit(&t, index, &unitLine{name: u.Name, nodes: u.Nodes, children: u.Children, at: pos{file, u.Line},
				nodesAt: pos{file, u.NodesLine}, childrenAt: pos{file, u.ChildrenLine}})
		}
		l.checkUse(&t, y.Default && t.Default || byDefault == 0 && i == 0, l.checkTree(&t, index))
		if t.Kind == topologyBlock {
			l.takeBlocks(&t)
		}
		l.cfg.Topologies = append(l.cfg.Topologies, t)
	}
	if list := l.cfg.Topologies; len(list) > 0 {
		if byDefault == 0 {
			list[0].Default = true
		}
		for i := range list {
			if list[i].Default {
				l.cfg.TopologyPlugin = list[i].Kind
			}
		}
	}
}

// checkUse tells of nodes that a topology leaves out though a partition places jobs on them by it.
func (l *loader) checkUse(t *Topology, byDefault bool, leafOf map[string]string) {
	if t.Kind == topologyFlat {
		return
	}
	seen := map[string]bool{}
	var outside []string
	for i := range l.cfg.Partitions {
		p := &l.cfg.Partitions[i]
		if p.Topology != t.Name && (p.Topology != "" || !byDefault) {
			continue
		}
		for _, name := range p.Nodes {
			if leafOf[name] == "" && !seen[name] && l.cfg.Nodes[l.nodeIndex[name]].Topology == "" {
				outside = append(outside, name)
			}
			seen[name] = true
		}
	}
	if len(outside) > 0 {
		l.probs.warnf(pos{t.File, t.Line}, "add it to one, or give its partitions another Topology=",
			"%s is in no %s of topology %s: no job uses it together with other nodes", shownHosts(outside),
			map[bool]string{true: "block", false: "switch"}[t.Kind == topologyBlock], t.Name)
	}
}

// checkPlaces checks what partitions and nodes say of topologies, when these are known.
func (l *loader) checkPlaces() {
	var m model.Config
	l.cfg.networks(&m)
	nets := m.Networks()
	for i := range l.cfg.Partitions {
		p := &l.cfg.Partitions[i]
		if err := unknownTopology(nets, p.Topology); err != nil && !l.probs.hasErrors(TopologiesFile) {
			l.probs.errorf(pos{p.File, p.Line}, hintOf(err), "partition %s: %v", p.Name, err)
		}
	}
	told := map[string]bool{}
	for i := range l.cfg.Nodes {
		n := &l.cfg.Nodes[i]
		if n.Topology == "" || told[n.Topology] {
			continue
		}
		told[n.Topology] = true
		if err := unitsOf(nets, n.Topology); err != nil && !l.probs.hasErrors(TopologiesFile) {
			l.probs.errorf(pos{n.File, n.Line}, hintOf(err), "node %s: %v", n.Name, err)
		}
	}
}

// Path returns the switches above a node, from its leaf to the root; nil for a node on no switch.
func (t *Topology) Path(node string) []string {
	i := slices.IndexFunc(t.Switches, func(s Switch) bool { return slices.Contains(s.Nodes, node) })
	var path []string
	for i >= 0 && len(path) <= len(t.Switches) {
		name := t.Switches[i].Name
		path = append(path, name)
		i = slices.IndexFunc(t.Switches, func(s Switch) bool { return slices.Contains(s.Children, name) })
	}
	return path
}
