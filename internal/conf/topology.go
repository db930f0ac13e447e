package conf

import (
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/hostlist"
)

// Topology is topology.conf: the tree of switches. A leaf has nodes, another
// switch has switches.
type Topology struct {
	Switches []Switch // in the order of the file
	Blocks   []Switch // of topology/block, likewise
	Sizes    []int32  // BlockSizes
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
	switch strings.ToLower(v) {
	case "topology/3d_torus", "topology/hypercube":
		return "TopologyPlugin=" + v + " has no effect: all nodes are treated alike",
			"write TopologyPlugin=topology/tree with SwitchName lines, or topology/flat"
	}
	return "", ""
}

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
			l.blockSizes(head)
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
func (l *loader) blockSizes(head pair) {
	var sizes []int32
	for _, w := range splitList(head.value) {
		n, err := strconv.ParseInt(w, 10, 32)
		ok := err == nil && n > 0 && len(sizes) < maxBlockSizes
		if k := len(sizes); ok && k > 0 {
			each := n / int64(sizes[0])
			ok = n > int64(sizes[k-1]) && n%int64(sizes[0]) == 0 && each&(each-1) == 0
		}
		if !ok {
			l.probs.errorf(head.at, "write the nodes of a block, then those of larger ones: BlockSizes=18,36,72",
				"BlockSizes=%s: %s is not a power of two times the first size, larger than the one before", shown(head.value),
				shown(w))
			return
		}
		sizes = append(sizes, int32(n))
	}
	l.cfg.Topology.Sizes = sizes
}

// takeBlocks makes the leaves of topology.conf the blocks of topology/block.
func (l *loader) takeBlocks() {
	t := &l.cfg.Topology
	if l.cfg.TopologyPlugin != topologyBlock {
		return
	}
	for _, s := range t.Switches {
		at := pos{s.File, s.Line}
		if s.Nodes == nil {
			l.probs.errorf(at, "write BlockName=... Nodes=... lines and BlockSizes=, or TopologyPlugin=topology/tree",
				"switch %s is above others, and TopologyPlugin=topology/block has only blocks of nodes", s.Name)
			continue
		}
		if len(t.Sizes) > 0 && len(s.Nodes) < int(t.Sizes[0]) {
			l.probs.warnf(at, "add nodes to it, or make BlockSizes smaller",
				"block %s has %d nodes, and BlockSizes says that a block has %d: jobs of more nodes than it has don't fit in it",
				s.Name, len(s.Nodes), t.Sizes[0])
		}
		t.Blocks = append(t.Blocks, s)
	}
	t.Switches = nil
}

// readSwitches turns the SwitchName lines of all files into a tree.
func (l *loader) readSwitches() {
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
		if first, twice := index[names[0]]; twice {
			l.probs.errorf(head.at, "remove one of the lines", "switch %s is defined twice, first in line %d", names[0],
				t.Switches[first].Line)
			continue
		}
		s := Switch{Name: names[0], LinkSpeed: line.speed, File: head.at.file, Line: head.at.line}
		switch {
		case (line.nodes == "") == (line.switches == ""):
			l.probs.errorf(head.at, "write either Nodes= or Switches=", "switch %s needs either nodes or switches",
				s.Name)
			continue
		case line.nodes != "":
			s.Nodes = l.knownNodes(pair{"Nodes", line.nodes, placeOf(pairs, "Nodes", head)}, "switch "+s.Name)
		default:
			children, err := hostlist.Expand(line.switches)
			if err != nil {
				l.probs.errorf(placeOf(pairs, "Switches", head), "write Switches=s[1-2]", "switch %s: %v", s.Name, err)
				continue
			}
			s.Children = children
		}
		index[s.Name] = len(t.Switches)
		t.Switches = append(t.Switches, s)
	}
	l.checkSwitches(index)
	l.takeBlocks()
}

// checkSwitches checks that the switches form trees and that each node is on one leaf.
func (l *loader) checkSwitches(index map[string]int) {
	t := &l.cfg.Topology
	parent := map[string]string{}
	leafOf := map[string]string{}
	for _, s := range t.Switches {
		at := pos{s.File, s.Line}
		for _, child := range s.Children {
			if _, ok := index[child]; !ok {
				l.probs.errorf(at, "add a SwitchName line for it", "switch %s names switch %s, which isn't defined", s.Name, child)
			}
			if p, has := parent[child]; has {
				l.probs.errorf(at, "name it in one of them", "switch %s is below both %s and %s", child, p, s.Name)
			}
			parent[child] = s.Name
		}
		for _, n := range s.Nodes {
			if leaf, has := leafOf[n]; has && leaf != s.Name {
				l.probs.errorf(at, "name it in one of them", "node %s is on both switch %s and %s", n, leaf, s.Name)
			}
			leafOf[n] = s.Name
		}
	}
	for _, s := range t.Switches {
		up := s.Name
		for steps := 0; up != ""; steps++ {
			up = parent[up]
			if up == s.Name {
				l.probs.errorf(pos{s.File, s.Line}, "remove one of the Switches", "switch %s is below itself", s.Name)
				break
			}
			if steps > len(t.Switches) {
				break // a circle that this switch isn't part of; reported for those that are
			}
		}
	}
	if len(t.Switches) == 0 {
		if l.cfg.TopologyPlugin != topologyFlat && len(l.switchLines) == 0 && !l.probs.hasErrors(TopologyFile) {
			line, what := keySwitch, "switches"
			if l.cfg.TopologyPlugin == topologyBlock {
				line, what = keyBlock, "blocks"
			}
			l.probs.warnf(l.where("TopologyPlugin"), "write "+line+" lines in topology.conf",
				"TopologyPlugin=%s has no effect without %s", l.cfg.TopologyPlugin, what)
		}
		return
	}
	if l.cfg.TopologyPlugin == topologyFlat {
		s := t.Switches[0]
		l.probs.notef(pos{s.File, s.Line}, "write TopologyPlugin=topology/tree",
			"SwitchName lines have no effect with TopologyPlugin=%s", l.cfg.TopologyPlugin)
		return
	}
	var outside []string
	for _, n := range l.cfg.Nodes {
		if leafOf[n.Name] == "" {
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
