package rest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/walltime"
)

// object.go is an object of a body: its members by what they have to be, and which of them nothing has read.

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
			case bool:
				out = append(out, strconv.FormatBool(e))
			default:
				o.fail(name, "a list of texts", v)
				return nil, false
			}
		}
		return out, true
	case string:
		return env.SplitIDs(v), true
	case json.Number:
		return []string{v.String()}, true
	}
	o.fail(name, "a list of texts", v)
	return nil, false
}

// words gives a member as a list of texts that are what they are: a text alone is one, and {"NAME": "VALUE"} is
// NAME=VALUE, in order of names.
func (o *object) words(name string) ([]string, bool) {
	v, ok := o.value(name)
	switch v := v.(type) {
	case string:
		if v == "" {
			return nil, ok
		}
		return []string{v}, ok
	case map[string]any:
		in := o.sub(name, name+".", v)
		var out []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if strings.HasPrefix(key, "\x00") { // an object that was made of a member
				continue
			}
			text, given := in.text(key)
			if !given && in.top().err == nil {
				in.fail(key, "a text", nil)
			}
			out = append(out, key+"="+text)
		}
		return out, true
	}
	return o.list(name)
}

// span gives a member as a text; a list of one or two numbers is the least and the most.
func (o *object) span(name string) string {
	v, _ := o.value(name)
	list, is := v.([]any)
	if !is {
		return o.str(name)
	}
	ends, ok := o.list(name)
	for _, e := range ends {
		if _, err := strconv.ParseUint(e, 10, 31); err != nil {
			ok = false
		}
	}
	if !ok || len(ends) > 2 {
		o.fail(name, "a text, or a list of the least and the most", list)
		return ""
	}
	return strings.Join(ends, "-")
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
		infinite, ok := truth(x["infinite"])
		set, said := truth(x["set"])
		if !ok && x["infinite"] != nil || !said && x["set"] != nil {
			return bad()
		}
		if n.infinite = infinite; infinite {
			return n
		}
		if !said || set {
			f, ok := plain(x["number"])
			if !ok && (x["number"] != nil || set) {
				return bad()
			}
			n.v, n.set = f, ok
		}
		return n
	case string:
		switch strings.ToLower(x) {
		case "infinite", "infinity", "inf", "unlimited", "-1":
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

// count is number for what can't be below 0.
func (o *object) count(name string) number {
	n := o.number(name)
	if n.set && n.v < 0 {
		v, _ := o.value(name)
		o.fail(name, "a number from 0 on", v)
		return number{}
	}
	return n
}

// signed is number for what may be below 0: the text -1 is a number like others.
func (o *object) signed(name string) number {
	if v, _ := o.value(name); v == "-1" {
		return number{v: -1, set: true, given: true}
	}
	return o.number(name)
}

// moment is number for seconds since 1970, or a text that the commands take as a time to come, with the clock of this
// controller.
func (o *object) moment(name string) number {
	v, _ := o.value(name)
	text, is := v.(string)
	if _, err := strconv.ParseFloat(strings.TrimSpace(text), 64); !is || text == "" || err == nil {
		return o.count(name)
	}
	at, err := walltime.ParseDate(text, time.Now())
	if err != nil {
		o.fail(name, "a moment, in seconds since 1970 or as "+time.RFC3339[:len("2006-01-02T15:04:05")]+",", v)
		return number{}
	}
	return number{v: float64(at.Unix()), set: true, given: true}
}

// memory is count for MiB; a text may have a unit.
func (o *object) memory(name string) number {
	v, _ := o.value(name)
	if text, is := v.(string); is && text != "" {
		if mib, err := walltime.ParseMemMiB(text); err == nil {
			return number{v: float64(mib), set: true, given: true}
		}
	}
	return o.count(name)
}

// truth reads what means true or false; known: it means either.
func truth(v any) (is, known bool) {
	switch v := v.(type) {
	case bool:
		return v, true
	case json.Number:
		f, err := v.Float64()
		return f != 0, err == nil
	case string:
		switch strings.ToLower(v) {
		case "true", "t", "yes", "y", "on", "1":
			return true, true
		case "false", "f", "no", "n", "off", "0":
			return false, true
		}
	}
	return false, false
}

// boolean gives a member that is true or false.
func (o *object) boolean(name string) (is, given bool) {
	v, ok := o.value(name)
	if !ok {
		return false, false
	}
	if is, given = truth(v); !given {
		o.fail(name, "true or false", v)
	}
	return is, given
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
