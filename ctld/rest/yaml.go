package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// yaml.go reads a body in YAML into what the same in JSON would be.

// maxYAML bounds such a body: its parser needs many times that.
const maxYAML = 8 << 20

// readYAML reads one document, an object.
func readYAML(text []byte) (map[string]any, error) {
	if len(text) > maxYAML {
		return nil, fmt.Errorf("YAML of more than %d bytes; send JSON", maxYAML)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, err
	}
	if root.Kind != yaml.DocumentNode || len(root.Content) != 1 {
		return nil, errors.New("it is no object")
	}
	v, err := plainYAML(root.Content[0], 0)
	if err != nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("it is no object")
	}
	return m, nil
}

func plainYAML(n *yaml.Node, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("its objects are more than %d deep", maxDepth)
	}
	switch n.Kind {
	case yaml.MappingNode:
		out := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			if k.Kind != yaml.ScalarNode || k.Tag == "!!merge" {
				return nil, fmt.Errorf("line %d: a name is expected", k.Line)
			}
			v, err := plainYAML(n.Content[i+1], depth+1)
			if err != nil {
				return nil, err
			}
			out[k.Value] = v
		}
		return out, nil
	case yaml.SequenceNode:
		out := make([]any, 0, len(n.Content))
		for _, e := range n.Content {
			v, err := plainYAML(e, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case yaml.ScalarNode:
		return scalarYAML(n)
	}
	return nil, fmt.Errorf("line %d: aliases (*name) are not read; write it out", n.Line)
}

func scalarYAML(n *yaml.Node) (any, error) {
	switch n.ShortTag() {
	case "!!null":
		return nil, nil //nolint:nilnil // it is the value
	case "!!bool":
		var v bool
		err := n.Decode(&v)
		return v, err
	case "!!int":
		var v int64
		if err := n.Decode(&v); err != nil {
			return nil, fmt.Errorf("line %d: the number is too large", n.Line)
		}
		return json.Number(strconv.FormatInt(v, 10)), nil
	case "!!float":
		var v float64
		if err := n.Decode(&v); err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
			return nil, fmt.Errorf("line %d: that is no number here", n.Line)
		}
		return json.Number(strconv.FormatFloat(v, 'g', -1, 64)), nil
	}
	return n.Value, nil
}
