package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"gbatch/internal/cli/env"
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

// object is an object of a body. The first value of a wrong type is kept as its error.
type object struct {
	path string
	m    map[string]any
	read map[string]bool
	err  error
	in   *object // has the error
}

func (o *object) top() *object {
	for o.in != nil {
		o = o.in
	}
	return o
}

// fail notes a value of a wrong type.
func (o *object) fail(name, want string, v any) {
	if top := o.top(); top.err == nil {
		top.err = &fault{Number: errConversion, Detail: fmt.Sprintf("%s%s: %s is expected, and not %s", o.path, name,
			want, brief(v)),
			Status: http.StatusBadRequest}
	}
}

// refuse notes a value that asks for what is not done here.
func (o *object) refuse(why string) {
	if top := o.top(); top.err == nil {
		top.err = unsupported(o.path + why)
	}
}

func brief(v any) string {
	text, err := json.Marshal(v)
	const most = 60
	if err != nil || len(text) > most {
		return fmt.Sprintf("a %T", v)
	}
	return string(text)
}

// value gives a member that is there and not null.
func (o *object) value(name string) (any, bool) {
	o.read[name] = true
	v, ok := o.m[name]
	return v, ok && v != nil
}

func (o *object) has(name string) bool {
	_, ok := o.value(name)
	return ok
}

// text gives a member as a text. Numbers are texts too: clients differ about ids.
func (o *object) text(name string) (string, bool) {
	v, ok := o.value(name)
	if !ok {
		return "", false
	}
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	}
	o.fail(name, "a text", v)
	return "", false
}

// str is text without whether it is there.
func (o *object) str(name string) string {
	s, _ := o.text(name)
	return s
}

// list gives a member as a list of texts.
func (o *object) list(name string) ([]string, bool) {
	v, ok := o.value(name)
	if !ok {
		return nil, false
	}
	switch v := v.(type) {
	case []any:
		var out []string
		for _, e := range v {
			switch e := e.(type) {
			case string:
				out = append(out, e)
			case json.Number:
				out = append(out, e.String())
			default:
				o.fail(name, "a list of texts", v)
				return nil, false
			}
		}
		return out, true
	case string:
		return env.SplitIDs(v), true
	}
	o.fail(name, "a list of texts", v)
	return nil, false
}

// listOf is list of an object that may be missing.
func (o *object) listOf(name string) ([]string, bool) {
	if o == nil {
		return nil, false
	}
	return o.list(name)
}

// number is a number that can be missing or without a limit.
type number struct {
	v        float64
	set      bool // it has a value
	infinite bool
	given    bool // the member is there; without a value it means: none
}

func (n *number) int() int64 { return int64(n.v) }

func (o *object) number(name string) number {
	v, ok := o.value(name)
	if !ok {
		return number{}
	}
	bad := func() number {
		o.fail(name, "a number", v)
		return number{}
	}
	plain := func(v any) (float64, bool) {
		switch v := v.(type) {
		case json.Number:
			f, err := v.Float64()
			return f, err == nil && math.Abs(f) < 1<<53
		case string:
			f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
			return f, err == nil && math.Abs(f) < 1<<53
		}
		return 0, false
	}
	switch x := v.(type) {
	case map[string]any:
		n := number{given: true}
		infinite, _ := x["infinite"].(bool)
		set, said := x["set"].(bool)
		if n.infinite = infinite; infinite {
			return n
		}
		if !said || set {
			f, ok := plain(x["number"])
			if !ok && x["number"] != nil {
				return bad()
			}
			n.v, n.set = f, ok
		}
		return n
	case string:
		switch strings.ToLower(x) {
		case "infinite", "unlimited", "-1":
			return number{given: true, infinite: true}
		case "":
			return number{given: true}
		}
	}
	f, ok := plain(v)
	if !ok {
		return bad()
	}
	return number{v: f, set: true, given: true}
}

// boolean gives a member that is true or false.
func (o *object) boolean(name string) (is, given bool) {
	v, ok := o.value(name)
	if !ok {
		return false, false
	}
	switch v := v.(type) {
	case bool:
		return v, true
	case json.Number:
		return v.String() != "0", true
	case string:
		switch strings.ToLower(v) {
		case "true", "yes", "1":
			return true, true
		case "false", "no", "0":
			return false, true
		}
	}
	o.fail(name, "true or false", v)
	return false, false
}

// object gives a member that is an object; nil: it is not there.
func (o *object) object(name string) *object {
	v, ok := o.value(name)
	if !ok {
		return nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		o.fail(name, "an object", v)
		return nil
	}
	return o.sub(name, name+".", m)
}

// objects gives a member that is a list of objects.
func (o *object) objects(name string) []*object {
	v, ok := o.value(name)
	if !ok {
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		o.fail(name, "a list", v)
		return nil
	}
	var out []*object
	for i, e := range list {
		m, ok := e.(map[string]any)
		if !ok {
			o.fail(name, "a list of objects", v)
			return nil
		}
		out = append(out, o.sub(name+strconv.Itoa(i), fmt.Sprintf("%s[%d].", name, i), m))
	}
	return out
}

// sub gives an object inside of this one: the same each time, so that it knows all that was read of it.
func (o *object) sub(key, path string, m map[string]any) *object {
	key = "\x00" + key
	if sub, ok := o.m[key].(*object); ok {
		return sub
	}
	sub := &object{path: o.path + path, m: m, read: map[string]bool{}, in: o}
	o.m[key] = sub // for unread
	return sub
}

// ignore marks members as read: they say nothing here.
func (o *object) ignore(names ...string) {
	for _, n := range names {
		o.read[n] = true
	}
}

// unread lists the members that nothing has read and that say something.
func (o *object) unread() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(o.m)) {
		v := o.m[name]
		if sub, ok := v.(*object); ok {
			out = append(out, sub.unread()...)
		} else if !o.read[name] && says(v) {
			out = append(out, o.path+name)
		}
	}
	return out
}

// says reports whether a value says anything: clients send whole structures whose members are mostly empty.
func says(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case string:
		return v != ""
	case bool:
		return v
	case json.Number:
		f, err := v.Float64()
		return err != nil || f != 0
	case []any:
		return len(v) > 0
	case map[string]any:
		if set, ok := v["set"].(bool); ok && !set {
			infinite, _ := v["infinite"].(bool)
			return infinite
		}
		for _, e := range v {
			if says(e) {
				return true
			}
		}
		return false
	}
	return true
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
