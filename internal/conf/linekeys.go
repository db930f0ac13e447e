package conf

import (
	"slices"
	"strings"
)

// The keys of lines that define something: NodeName, PartitionName, NodeSet,
// SwitchName, and the lines of gres.conf and cgroup.conf.

// lineKey is a key of a NodeName, PartitionName or similar line. T is what the
// line defines.
type lineKey[T any] struct {
	name string
	note string // without read: why it has no effect
	lost bool
	read func(d *T, v string) fault
}

func findKey[T any](keys []lineKey[T], name string) *lineKey[T] {
	for i := range keys {
		if strings.EqualFold(keys[i].name, name) {
			return &keys[i]
		}
	}
	return nil
}

func keyNames[T any](keys []lineKey[T]) []string {
	out := make([]string, len(keys))
	for i := range keys {
		out[i] = keys[i].name
	}
	return out
}

// overlay puts the pairs of a line over defaults: a key of the line replaces
// the default of the same name.
func overlay(defaults, line []pair) []pair {
	out := make([]pair, 0, len(defaults)+len(line))
	for _, d := range defaults {
		if !slices.ContainsFunc(line, func(p pair) bool {
			return strings.EqualFold(p.key, d.key) || excludes(p.key, d.key)
		}) {
			out = append(out, d)
		}
	}
	return append(out, line...)
}

// excludes reports whether a line may have only one of two keys, so that its own replaces a default of the other.
func excludes(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	for _, pair := range [][2]string{{"defmempercpu", "defmempernode"}, {"maxmempercpu", "maxmempernode"}} {
		if a == pair[0] && b == pair[1] || a == pair[1] && b == pair[0] {
			return true
		}
	}
	return false
}

// readKeys reads the keys of a line into the value that the line defines, and returns the keys that were given.
func readKeys[T any](l *loader, keys []lineKey[T], pairs []pair, d *T, kind string) map[string]bool {
	seen := map[string]bool{}
	for _, p := range pairs {
		k := findKey(keys, p.key)
		if k == nil {
			hint := "remove it"
			if near := nearest(p.key, keyNames(keys)); near != "" {
				hint = "did you mean " + near + "?"
			} else if l.settings.byName[strings.ToLower(p.key)] != nil {
				hint = "put it on a line of its own"
			}
			l.probs.errorf(p.at, hint, "unknown key %s %s", shown(p.key), inOrOn(kind))
			continue
		}
		if seen[k.name] {
			l.probs.warnf(p.at, "keep one of them", "%s is set twice %s; the last one is used", k.name, inOrOn(kind))
		}
		seen[k.name] = true
		if k.read == nil {
			sev := Note
			if k.lost {
				sev = Warning
			}
			l.probs.add(p.at, sev, "remove it", "%s %s %s", k.name, inOrOn(kind), k.note)
			continue
		}
		before := *d
		if f := k.read(d, p.value); f.bad() {
			*d = before // so that nothing else seems wrong
			hint := ""
			if f.want != "" {
				hint = "write " + k.name + "=" + f.want
			}
			l.probs.errorf(p.at, hint, "%s: %s", k.name, f.why)
		} else if instead := insteadOf(k.name); (kind == keyNode || kind == keyPartition) && instead != "" &&
			!asksNothing(p.value) {
			l.probs.warnf(p.at, instead, "%s", k.name+" "+inOrOn(kind)+hasNoEffect)
		}
	}
	return seen
}

// inOrOn names the place of keys of a kind: a kind of line, or a file.
func inOrOn(kind string) string {
	if strings.HasSuffix(kind, ".conf") {
		return "in " + kind
	}
	return "on a " + kind + " line"
}
