package conf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
)

// spareKeys are the settings that gcontrol update changes while the cluster runs.
var spareKeys = []string{"SuspendExcNodes", "SuspendExcParts", "SuspendExcStates"}

// ChangeSpare gives a configuration with other SuspendExcNodes, SuspendExcParts or SuspendExcStates. A key that ends in
// + or - adds to its list or removes from it.
func ChangeSpare(cfg *model.Config, set []model.KV) (*model.Config, error) {
	n := *cfg
	rules := &n.Params.Power
	n.Show, rules.Set = slices.Clone(cfg.Show), slices.Clone(rules.Set)
	for _, kv := range set {
		word, op := kv.Key, byte('=')
		if last := len(word) - 1; last > 0 && (word[last] == '+' || word[last] == '-') {
			word, op = word[:last], word[last]
		}
		i := slices.IndexFunc(spareKeys, func(k string) bool { return strings.EqualFold(k, word) })
		if i < 0 {
			return nil, fmt.Errorf("%s: %s is none of %s", notSupported, shown(kv.Key), strings.Join(spareKeys, ", "))
		}
		key := spareKeys[i]
		list := map[string][]string{"SuspendExcNodes": spareText(rules.Spare), "SuspendExcParts": rules.SpareParts,
			"SuspendExcStates": rules.SpareStates}[key]
		text := kv.Value
		if op != '=' {
			var err error
			if text, err = otherSpare(key, list, op, kv.Value); err != nil {
				return nil, err
			}
		}
		c := Config{Power: *rules}
		at := slices.IndexFunc(powerSettings(), func(s setting) bool { return s.name == key })
		s := powerSettings()[at]
		if f := s.read(&c, text); f.bad() {
			return nil, fmt.Errorf("%s: %s", key, f.why)
		}
		if key == "SuspendExcNodes" {
			c.SuspendExcNodes = strings.Join(spareText(c.Power.Spare), ",")
		}
		*rules = c.Power
		if !slices.Contains(rules.Set, key) {
			rules.Set = append(rules.Set, key)
		}
		for i := range n.Show {
			if n.Show[i].Key == key {
				n.Show[i].Value = s.show(&c)
			}
		}
	}
	return &n, spareThere(&n)
}

// spareText gives the sets of SuspendExcNodes as they are written: those with a count, and then every node without.
func spareText(sets []model.PowerSpare) (out []string) {
	for i := range sets {
		if s := &sets[i]; s.Count > 0 {
			out = append(out, hostlist.CompressInOrder(s.Nodes)+":"+strconv.Itoa(int(s.Count)))
		} else {
			out = append(out, s.Nodes...)
		}
	}
	return out
}

// otherSpare gives a list after additions or removals.
func otherSpare(key string, list []string, op byte, value string) (string, error) {
	words := splitList(value)
	if key == "SuspendExcNodes" {
		sets, f := readSpareNodes(value)
		if f.bad() {
			return "", fmt.Errorf("%s: %s", key, f.why)
		}
		words = spareText(sets)
	}
	list = slices.Clone(list)
	for _, w := range words {
		at := slices.IndexFunc(list, func(x string) bool {
			return x == w || key == "SuspendExcStates" && strings.EqualFold(x, w)
		})
		switch {
		case op == '+' && at < 0:
			list = append(list, w)
		case op == '-' && at < 0:
			return "", fmt.Errorf("%s-=%s: %s is not in the list", key, shown(value), shown(w))
		case op == '-':
			list = slices.Delete(list, at, at+1)
		}
	}
	if key == "SuspendExcNodes" { // a count is of all nodes before it
		slices.SortStableFunc(list, func(a, b string) int { return strings.Count(b, ":") - strings.Count(a, ":") })
	}
	return strings.Join(list, ","), nil
}

// spareThere refuses nodes and partitions that there are not.
func spareThere(cfg *model.Config) error {
	known := map[string]bool{}
	for _, d := range slices.Concat(cfg.Nodes, cfg.Future) {
		known[d.Name] = true
	}
	for i := range cfg.Params.Power.Spare {
		for _, name := range cfg.Params.Power.Spare[i].Nodes {
			if !known[name] {
				return fmt.Errorf("SuspendExcNodes: there is no node %s", name)
			}
		}
	}
	for _, name := range cfg.Params.Power.SpareParts {
		if !slices.ContainsFunc(cfg.Partitions, func(p *model.Partition) bool { return p.Name == name }) {
			return fmt.Errorf("SuspendExcParts: there is no partition %s", shown(name))
		}
	}
	return nil
}

// KeepSpare keeps, where ReconfigFlags say so, what ChangeSpare has made of a configuration's settings, in the one that
// is read from the files. It says what the files undo.
func KeepSpare(old, files *model.Config) (undone []string) {
	keep := slices.Contains(files.Params.ReconfigFlags, KeepPowerSave)
	value := func(cfg *model.Config, key string) string {
		i := slices.IndexFunc(cfg.Show, func(kv model.KV) bool { return kv.Key == key })
		if i < 0 {
			return ""
		}
		return cfg.Show[i].Value
	}
	for _, key := range old.Params.Power.Set {
		was, is := value(old, key), value(files, key)
		if was == is {
			continue
		}
		if keep {
			text := was
			if text == orNull("") {
				text = ""
			}
			n, err := ChangeSpare(files, []model.KV{{Key: key, Value: text}})
			if err == nil {
				*files = *n
				continue
			}
			is += fmt.Sprintf(" again, as it can't be kept (%v)", err)
		} else {
			is += " again"
		}
		undone = append(undone, fmt.Sprintf("%s=%s, which was set by gcontrol, is %s", key, was, is))
	}
	return undone
}
