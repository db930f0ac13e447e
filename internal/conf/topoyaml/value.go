package topoyaml

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"gbatch/internal/suggest"
)

// Fault is what is wrong at a line.
type Fault struct {
	Line       int
	Text, Hint string
}

// MaxFaults bounds the faults that are told of.
const MaxFaults = 100

// maxShown is how much of a value a fault repeats.
const maxShown = 80

func shown(v string) string {
	if len(v) > maxShown {
		v = strings.ToValidUTF8(v[:maxShown], "") + "..."
	}
	return strconv.Quote(v)
}

// reader collects faults.
type reader struct{ faults []Fault }

func (r *reader) fault(line int, hint, format string, a ...any) {
	if len(r.faults) < MaxFaults {
		r.faults = append(r.faults, Fault{line, fmt.Sprintf(format, a...), hint})
	}
}

// is reports whether a value has the kind that it must have.
func (r *reader) is(n *yaml.Node, kind yaml.Kind, what, hint string) bool {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		r.fault(n.Line, "write the values out", "%s: anchors and aliases are not read here", what)
		return false
	}
	if n.Kind != kind {
		r.fault(n.Line, hint, "%s is not %s", what, kinds[kind])
		return false
	}
	return true
}

var kinds = map[yaml.Kind]string{yaml.SequenceNode: "a list", yaml.MappingNode: "a set of attributes",
	yaml.ScalarNode: "one value"}

// attribute is one attribute that may stand at a place.
type attribute struct {
	name string
	read func(n *yaml.Node)
}

// attributes reads the attributes of one place, and gives the lines of those that it found.
func (r *reader) attributes(n *yaml.Node, what, hint string, known []attribute) map[string]int {
	lines := map[string]int{}
	if !r.is(n, yaml.MappingNode, what, hint) {
		return lines
	}
next:
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if line, twice := lines[key.Value]; twice {
			r.fault(key.Line, "remove one of them", "%s has %s twice, first in line %d", what, shown(key.Value), line)
			continue
		}
		lines[key.Value] = key.Line
		for _, a := range known {
			if a.name == key.Value {
				a.read(value)
				continue next
			}
		}
		names := make([]string, len(known))
		for k, a := range known {
			names[k] = a.name
		}
		hint := "it has " + strings.Join(names, ", ")
		if near := suggest.Nearest(key.Value, names); len(near) > 0 {
			hint = "did you mean " + near[0] + "?"
		}
		r.fault(key.Line, hint, "%s has no attribute %s", what, shown(key.Value))
	}
	return lines
}

// text reads one value. What is empty or null is "".
func (r *reader) text(n *yaml.Node, what, hint string) string {
	if !r.is(n, yaml.ScalarNode, what, hint) || n.Tag == "!!null" {
		return ""
	}
	return strings.TrimSpace(n.Value)
}

// texts reads a list of hosts: one value, or several in a list.
func (r *reader) texts(n *yaml.Node, what, hint string) string {
	if n.Kind != yaml.SequenceNode {
		return r.text(n, what, hint)
	}
	var out []string
	for _, e := range n.Content {
		if v := r.text(e, what, hint); v != "" {
			out = append(out, v)
		}
	}
	return strings.Join(out, ",")
}

func (r *reader) yes(n *yaml.Node, what string) bool {
	switch v := r.text(n, what, "write true or false"); strings.ToLower(v) {
	case "true", "yes":
		return true
	case "false", "no", "":
	default:
		r.fault(n.Line, "write true or false", "%s: %s is neither true nor false", what, shown(v))
	}
	return false
}
