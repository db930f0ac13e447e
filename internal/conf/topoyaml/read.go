package topoyaml

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Kind is the kind of a topology.
type Kind uint8

// The kinds.
const (
	None Kind = iota
	Flat
	Tree
	Block
)

// Topology is one entry of the file.
type Topology struct {
	Name      string
	Line      int
	Default   bool
	Kind      Kind
	Sizes     string // block_sizes, separated by commas
	SizesLine int
	Units     []Unit // switches or blocks, in order
}

// Unit is a switch or a block.
type Unit struct {
	Name                          string
	Nodes, Children               string // lists of hosts
	Line, NodesLine, ChildrenLine int
}

// Limits of what is read.
const (
	MaxTopologies = 64
	MaxUnits      = 1 << 16
)

const example = "write - topology: NAME, with tree:, block: or flat: true below it (man topology.yaml)"

// Parse reads the file's text. With a fault, the list is incomplete.
func Parse(text []byte) ([]Topology, []Fault) {
	r := &reader{}
	d := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, []Fault{{0, "it has no topology", example}}
	} else if err != nil {
		return nil, []Fault{notYAML(err)}
	}
	if err := d.Decode(&more); err == nil {
		return nil, []Fault{{more.Line, "there is a second document", "remove the line --- and what follows it"}}
	} else if !errors.Is(err, io.EOF) {
		return nil, []Fault{notYAML(err)}
	}
	if len(doc.Content) != 1 || !r.is(doc.Content[0], yaml.SequenceNode, "the file", example) {
		return nil, append(r.faults, Fault{0, "it has no topology", example})[:1]
	}
	list := doc.Content[0].Content
	if len(list) == 0 {
		r.fault(doc.Content[0].Line, example, "it has no topology")
	}
	if len(list) > MaxTopologies {
		r.fault(list[MaxTopologies].Line, "", "more than %d topologies", MaxTopologies)
		return nil, r.faults
	}
	var out []Topology
	for _, n := range list {
		out = append(out, r.topology(n))
	}
	return out, r.faults
}

// notYAML gives the line of what the library says: "yaml: line 3: did not find expected key".
func notYAML(err error) Fault {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	f := Fault{Hint: "mend it, and try again with gbatch check"}
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		number, why, _ := strings.Cut(rest, ": ")
		if line, err := strconv.Atoi(number); err == nil {
			f.Line, text = line, why
		}
	}
	f.Text = "it is not YAML: " + text
	return f
}

func (r *reader) topology(n *yaml.Node) Topology {
	t := Topology{Line: n.Line}
	kinds, flat, before := 0, true, len(r.faults)
	lines := r.attributes(n, "a topology", example, []attribute{
		{"topology", func(v *yaml.Node) { t.Name = r.text(v, "topology", "write - topology: NAME") }},
		{"cluster_default", func(v *yaml.Node) { t.Default = r.yes(v, "cluster_default") }},
		{"tree", func(v *yaml.Node) { kinds++; t.Kind = Tree; r.tree(v, &t) }},
		{"block", func(v *yaml.Node) { kinds++; t.Kind = Block; r.block(v, &t) }},
		{"flat", func(v *yaml.Node) {
			if flat = r.yes(v, "flat"); flat {
				kinds++
				t.Kind = Flat
			}
		}},
		{"ring", func(v *yaml.Node) { r.other(v, "ring") }},
		{"torus3d", func(v *yaml.Node) { r.other(v, "torus3d") }},
	})
	_, ring := lines["ring"]
	_, torus := lines["torus3d"]
	switch {
	case n.Kind != yaml.MappingNode:
	case t.Name == "" || strings.Trim(t.Name, letters) != "" || len(t.Name) > 64:
		r.fault(n.Line, "write - topology: NAME, of up to 64 letters, digits, - . and _", "%s is not a topology's name",
			shown(t.Name))
	case ring || torus || kinds == 0 && len(r.faults) > before: // said already
	case kinds == 0 && !flat:
		r.fault(lines["flat"], "write flat: true, or tree: or block: in its place", "topology %s: flat: false says no kind",
			t.Name)
	case kinds != 1:
		r.fault(n.Line, "write one of tree:, block: and flat: true", "topology %s has %s", t.Name,
			map[bool]string{true: "no kind", false: "several kinds"}[kinds == 0])
	}
	return t
}

// letters are those of a name: a node's Topology=A:x,B:y is cut at : and ,.
const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._"

func (r *reader) other(n *yaml.Node, kind string) {
	r.fault(n.Line, "write flat: true, or describe the network as tree: or block:",
		"topologies of the kind %s are not known here", kind)
}

func (r *reader) tree(n *yaml.Node, t *Topology) {
	const hint = "write switches: and a list of - switch: NAME"
	lines := r.attributes(n, "tree", hint, []attribute{
		{"switches", func(v *yaml.Node) { r.units(v, t, "switch", hint) }},
	})
	if n.Kind == yaml.MappingNode && lines["switches"] == 0 {
		r.fault(n.Line, hint, "tree has no switches")
	}
}

func (r *reader) block(n *yaml.Node, t *Topology) {
	const hint = "write blocks: and a list of - block: NAME"
	lines := r.attributes(n, "block", hint, []attribute{
		{"block_sizes", func(v *yaml.Node) {
			t.SizesLine = v.Line
			t.Sizes = r.texts(v, "block_sizes", "write block_sizes: [4, 16]")
		}},
		{"blocks", func(v *yaml.Node) { r.units(v, t, "block", hint) }},
	})
	if n.Kind == yaml.MappingNode && lines["blocks"] == 0 {
		r.fault(n.Line, hint, "block has no blocks")
	}
}

// units reads the switches or blocks of a topology.
func (r *reader) units(n *yaml.Node, t *Topology, kind, hint string) {
	if !r.is(n, yaml.SequenceNode, map[string]string{"switch": "switches", "block": "blocks"}[kind], hint) {
		return
	}
	if len(n.Content) > MaxUnits {
		r.fault(n.Line, "", "more than %d of them", MaxUnits)
		return
	}
	for _, e := range n.Content {
		u := Unit{Line: e.Line}
		list := []attribute{
			{kind, func(v *yaml.Node) { u.Name = r.text(v, kind, "write - "+kind+": NAME") }},
			{"nodes", func(v *yaml.Node) { u.NodesLine, u.Nodes = v.Line, r.texts(v, "nodes", "write nodes: n[1-4]") }},
		}
		if kind == "switch" {
			list = append(list, attribute{"children", func(v *yaml.Node) {
				u.ChildrenLine, u.Children = v.Line, r.texts(v, "children", "write children: s[1-4]")
			}})
		}
		r.attributes(e, "a "+kind, "write - "+kind+": NAME", list)
		switch {
		case e.Kind != yaml.MappingNode:
		case u.Name == "" || len(u.Name) > 64 || strings.ContainsAny(u.Name, ":,[] \t\n"):
			r.fault(e.Line, "write - "+kind+": NAME, of up to 64 letters", "%s is not a %s's name", shown(u.Name), kind)
		case u.Nodes != "" && u.Children != "":
			r.fault(e.Line, "write either nodes: or children:", "switch %s has both nodes and children", u.Name)
		default:
			t.Units = append(t.Units, u)
		}
	}
}
