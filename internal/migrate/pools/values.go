package pools

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/migrate"
)

// object is a mapping of a document. What is taken out of it is known; rest reports what is left.
type object struct {
	in   *reading
	path string // such as spec.quotas[1]
	m    map[string]any
}

// has reports whether there is a key.
func (o object) has(key string) bool { _, ok := o.m[key]; return ok }

func (o object) at(key string) string {
	if o.path == "" {
		return key
	}
	return o.path + "." + key
}

// wrong reports a value that is not of the kind that it should be.
func (o object) wrong(key, want string, v any) {
	o.in.add(migrate.Person, o.at(key), "'%.60v' is not %s: it is left out", v, want)
}

// object takes a mapping; there is an empty one where there is none.
func (o object) object(key string) object {
	v, ok := o.m[key]
	delete(o.m, key)
	m, is := v.(map[string]any)
	if ok && !is && v != nil {
		o.wrong(key, "a mapping", v)
	}
	if m == nil {
		m = map[string]any{}
	}
	return object{o.in, o.at(key), m}
}

// list takes a list of mappings.
func (o object) list(key string) []object {
	v, ok := o.m[key]
	delete(o.m, key)
	list, is := v.([]any)
	if ok && !is && v != nil {
		o.wrong(key, "a list", v)
	}
	var out []object
	for i, e := range list {
		at := fmt.Sprintf("%s[%d]", key, i)
		if i == maxEntries {
			o.in.add(migrate.Person, o.at(key), "it has more than %d entries: the others are left out", maxEntries)
			break
		}
		m, is := e.(map[string]any)
		if !is {
			o.wrong(at, "a mapping", e)
			continue
		}
		out = append(out, object{o.in, o.at(at), m})
	}
	return out
}

// words takes a list of texts.
func (o object) words(key string) (out []string) {
	v := o.m[key]
	delete(o.m, key)
	list, is := v.([]any)
	if !is && v != nil {
		o.wrong(key, "a list", v)
	}
	for i, e := range list {
		if i == maxEntries {
			break
		}
		out = append(out, fmt.Sprint(e))
	}
	return out
}

func (o object) text(key string) string {
	v, ok := o.m[key]
	delete(o.m, key)
	switch v := v.(type) {
	case nil:
		return ""
	case map[string]any, []any:
		if ok {
			o.wrong(key, "a text", v)
		}
		return ""
	default:
		return fmt.Sprint(v)
	}
}

// number takes a count from 0 on; -1: there is none.
func (o object) number(key string) int64 {
	text := o.text(key)
	if text == "" {
		return -1
	}
	n, err := strconv.ParseInt(strings.TrimSuffix(text, ".0"), 10, 64)
	if err != nil || n < 0 || n > maxCount {
		o.wrong(key, fmt.Sprintf("a number from 0 to %d", int64(maxCount)), text)
		return -1
	}
	return n
}

// units of Kubernetes' quantities.
var units = map[string]float64{"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50}

// quantity takes an amount as Kubernetes writes it: 512Gi, 500m, 4; 0: there is none.
func (o object) quantity(key string) float64 {
	text := o.text(key)
	if text == "" {
		return 0
	}
	digits := strings.TrimRight(text, "mkMGTPi")
	n, err := strconv.ParseFloat(digits, 64)
	unit, known := units[text[len(digits):]]
	if err != nil || !known || !(n >= 0 && n*unit <= maxCount*1024) {
		o.wrong(key, "an amount such as 4, 500m or 512Gi", text)
		return 0
	}
	return n * unit
}

// yes takes a boolean.
func (o object) yes(key string) (value, there bool) {
	v, ok := o.m[key]
	delete(o.m, key)
	b, is := v.(bool)
	if ok && !is {
		o.wrong(key, "true or false", v)
	}
	return b, is
}

// rest reports what nobody has taken.
func (o object) rest() {
	for _, key := range slices.Sorted(maps.Keys(o.m)) {
		o.in.add(migrate.Unsupported, o.at(key), "gbatch has nothing of the kind: it is left out")
	}
}
