package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// body.go reads what clients send: JSON or YAML, with numbers plain or as {"set", "infinite", "number"}, and lists of
// words also as one text with commas. Members that nothing here reads are named in the answer's warnings.

// maxDepth is how deep objects and lists may be in each other.
const maxDepth = 32

// body reads the request's body, an object.
func (q *request) body() (*object, error) {
	kind, _, err := mime.ParseMediaType(q.r.Header.Get("Content-Type"))
	inYAML := isYAML(kind)
	if kind != "" && kind != "application/json" && kind != "text/json" && !inYAML &&
		kind != "application/x-www-form-urlencoded" || err != nil && kind != "" {
		return nil, &fault{Number: 9204, Text: "Unable to parse content type",
			Detail: "the body has to be application/json or application/yaml, not " + strconv.Quote(kind),
			Status: http.StatusUnsupportedMediaType}
	}
	if err := q.s.flows(q.ctx, q.who, int(min(q.r.ContentLength, maxBody))); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(http.MaxBytesReader(q.w, q.r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, &fault{Number: 9205, Text: "Data is too large",
			Detail: fmt.Sprintf("a body has at most %d bytes", maxBody), Status: http.StatusRequestEntityTooLarge}
	case err != nil:
		return nil, badBody("the body did not arrive: " + err.Error())
	}
	if q.r.ContentLength < 0 { // only now it is known
		if err := q.s.flows(q.ctx, q.who, len(text)); err != nil {
			return nil, err
		}
	}
	if inYAML {
		tree, err := readYAML(text)
		if err != nil {
			return nil, badBody(err.Error())
		}
		return &object{m: tree, read: map[string]bool{}}, nil
	}
	if err := tooMuch(text); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var tree map[string]any
	if err := d.Decode(&tree); err != nil {
		return nil, badBody(err.Error())
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, badBody("there is something behind its object")
	}
	if tree == nil {
		return nil, badBody("it is no object")
	}
	return &object{m: tree, read: map[string]bool{}}, nil
}

func badBody(why string) error {
	return &fault{Number: errParse, Detail: "the request's body can't be read: " + why, Status: http.StatusBadRequest}
}

// What values of a body take in memory, bytes, about: an object with a member, and any other value or member.
const (
	objectCost = 350
	valueCost  = 64
	freeCost   = 1 << 20 // that much any body may take
	costFactor = 8       // and as many times its size
)

// tooMuch refuses what would take a stack as deep as it wishes, or many times its size in memory: short values without
// end.
func tooMuch(text []byte) error {
	depth, cost, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return badBody(fmt.Sprintf("its objects are more than %d deep", maxDepth))
			}
			cost += valueCost
			if c == '{' {
				cost += objectCost
			}
		case c == '}' || c == ']':
			depth--
		case c == ',':
			cost += valueCost
		}
	}
	if cost > freeCost+costFactor*len(text) {
		return badBody(fmt.Sprintf("its %d bytes are so many short values that they would take %d in memory", len(text),
			cost))
	}
	return nil
}

// done gives the first error, and warns of members that were not read.
func (q *request) done(o *object) error {
	if o.err != nil {
		return o.err
	}
	names := o.unread()
	for i, name := range names {
		if i == maxOdd {
			q.warn(fmt.Sprintf("and %d more members were ignored", len(names)-maxOdd))
			break
		}
		q.warn(name + " is not supported here and was ignored")
	}
	return nil
}

// maxYAML bounds such a body, bytes: its parser needs up to yamlFactor times that.
const (
	maxYAML    = 512 << 10
	yamlFactor = 100
)

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
