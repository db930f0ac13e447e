package conf

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
)

// define.go reads definitions of partitions and nodes that operators give while the cluster runs, with the keys of the
// PartitionName and NodeName lines. The configuration that they change is the replicated one: files play no part.

// The flags of ReconfigFlags that say what reconfigure leaves of operators' changes.
const (
	KeepPartInfo  = "KeepPartInfo"
	KeepPartState = "KeepPartState"
	KeepPowerSave = "KeepPowerSaveSettings"
)

var reconfigFlags = []string{KeepPartInfo, KeepPartState, KeepPowerSave}

// unsetWords are the words with which a partition is shown that lacks a value, by key. They also remove the value.
var unsetWords = map[string][]string{"QOS": {"N/A"}, "DefaultTime": {"NONE"}, "OverTimeLimit": {"NONE"},
	"JobDefaults": {"(null)"}, "SelectTypeParameters": {"NONE"}, "Nodes": {"(null)"}, "Alternate": {"NONE"},
	"TRESBillingWeights": {"(null)"}, "Topology": {"(null)"}}

// shownOnly are the words of a shown partition that follow from others.
var shownOnly = []string{"TotalCPUs", "TotalNodes", "TRES"}

// DefinePartition gives the partition that results from changes of an existing one, or from the keys of a new one (old
// is nil). The names of keys may be shortened; a key that ends in + or -, or a value of Nodes that begins so, adds to a
// list or removes from it.
func DefinePartition(cfg *model.Config, old *model.Partition, name string, set []model.KV) (*model.Partition, error) {
	if strings.EqualFold(name, "DEFAULT") {
		return nil, errors.New("PartitionName cannot be \"DEFAULT\"")
	}
	if strings.Trim(name, nameLetters) != "" || name == "" || len(name) > 64 {
		return nil, fmt.Errorf("%s is not a valid partition name; use up to 64 letters, digits, - . and _", shown(name))
	}
	p, err := definer(cfg).partition(cfg, old, name, set)
	if err == nil {
		if bad := unknownTopology(cfg.Networks(), p.Topology); bad != nil {
			return nil, fmt.Errorf("%w; %s", bad, hintOf(bad))
		}
	}
	return p, err
}

func (l *loader) partition(cfg *model.Config, old *model.Partition, name string, set []model.KV) (*model.Partition,
	error) {
	p := newPartition()
	p.Name = name
	marks := model.Partition{Made: true}
	if old == nil {
		l.readShown(&p, clusterDefaults(cfg))
	} else {
		l.readShown(&p, old)
		marks.Set, marks.Made = slices.Clone(old.Set), old.Made
	}
	var given []string
	for _, kv := range set {
		key, err := l.setPartition(&p, kv)
		if err != nil {
			return nil, err
		}
		given = append(given, key)
		if !slices.Contains(marks.Set, key) {
			marks.Set = append(marks.Set, key)
		}
	}
	if err := l.fits(&p, given); err != nil {
		return nil, err
	}
	for _, list := range []*[]string{&p.AllowAccounts, &p.DenyAccounts} {
		for i, a := range *list {
			(*list)[i] = model.AccountName(a)
		}
	}
	if slices.Contains(given, "SelectTypeParameters") {
		unit := UnitCPU
		if cfg.Params.WholeCores {
			unit = UnitCore
		}
		if text, hint := p.unitFault(unit, cfg.Params.MemConsumed); text != "" {
			return nil, fmt.Errorf("partition %s: %s; %s", name, text, hint)
		}
	}
	future := map[string]bool{}
	for _, d := range cfg.Future {
		future[d.Name] = true
	}
	m := l.cfg.partitionModel(&p, future, l.cfg.index())
	m.Set, m.Made = marks.Set, marks.Made
	return m, nil
}

// fits finds the partition's nodes and checks what has been given.
func (l *loader) fits(p *PartitionDef, given []string) error {
	l.probs.list = nil
	switch {
	case p.DefaultTimeS != model.NotSet && p.DefaultTimeS > p.MaxTimeS && slices.Contains(given, "DefaultTime"):
		return fmt.Errorf("partition %s: DefaultTime would be longer than MaxTime", p.Name)
	case p.MaxNodes > 0 && p.MinNodes > p.MaxNodes:
		return fmt.Errorf("partition %s: MinNodes=%d would be above MaxNodes=%d", p.Name, p.MinNodes, p.MaxNodes)
	}
	p.Nodes = l.partitionNodes(p, pos{})
	if slices.Contains(given, "Nodes") { // others may name nodes that are not there yet, or not any more
		return l.firstFault()
	}
	return nil
}

// Repartition gives those of the partitions that a change of nodes has changed: other nodes are meant by ALL or by the
// name of a set, or the nodes have other resources.
func Repartition(cfg *model.Config) (changed []*model.Partition, err error) {
	l := definer(cfg)
	for _, old := range cfg.Partitions {
		p, err := l.partition(cfg, old, old.Name, nil)
		if err != nil {
			return nil, err
		}
		if !slices.Equal(p.Nodes, old.Nodes) || !slices.Equal(p.Show, old.Show) {
			changed = append(changed, p)
		}
	}
	return changed, nil
}

// definer is a loader with the nodes of a replicated configuration.
func definer(cfg *model.Config) *loader {
	l := &loader{cfg: defaults(), probs: &problems{}, settings: mainSettings(), nodeKeys: nodeKeys(),
		partKeys: partitionKeys(), seen: map[string]pos{}, nodeIndex: map[string]int{}, partIndex: map[string]pos{}}
	l.cfg.AccountingStorageTRES = cfg.Params.TrackTRES
	for _, d := range slices.Concat(cfg.Nodes, cfg.Future) {
		l.nodeIndex[d.Name] = len(l.cfg.Nodes)
		n := NodeDef{Name: d.Name, CPUs: int64(d.CPUs), RealMemoryMiB: d.MemMiB, Features: d.Features,
			Sockets: int64(d.Sockets)}
		for _, g := range d.Gres {
			n.Gres = append(n.Gres, GresCount{Name: g.Name, Type: g.Type, Count: int64(g.Count)})
		}
		l.cfg.Nodes = append(l.cfg.Nodes, n)
	}
	for _, s := range cfg.Sets {
		set := model.NodeSet{Name: s.Name, Feature: s.Feature, Nodes: slices.Clone(s.Nodes)}
		for _, d := range slices.Concat(cfg.Nodes, cfg.Future) {
			if s.Feature != "" && slices.Contains(d.CanHave(), s.Feature) && !slices.Contains(set.Nodes, d.Name) {
				set.Nodes = append(set.Nodes, d.Name)
			}
		}
		l.cfg.NodeSets = append(l.cfg.NodeSets, set)
	}
	return l
}

// clusterDefaults is a partition that says nothing: what it has then is the cluster's.
func clusterDefaults(cfg *model.Config) *model.Partition {
	p := &model.Partition{}
	for _, kv := range cfg.Show {
		switch kv.Key {
		case "OverTimeLimit":
			kv.Value, _, _ = strings.Cut(kv.Value, " ")
		case "PreemptMode", "DisableRootJobs":
		case "JobDefaults":
			if kv.Value == "" {
				continue
			}
		default:
			continue
		}
		p.Show = append(p.Show, kv)
	}
	count := func(key string, n int64) {
		if n > 0 {
			p.Show = append(p.Show, model.KV{Key: key, Value: showInt(n)})
		}
	}
	count("DefMemPerCPU", cfg.Params.DefMemPerCPU)
	count("DefMemPerNode", cfg.Params.DefMemPerNode)
	count("MaxMemPerCPU", cfg.Params.MaxMemPerCPU)
	count("MaxMemPerNode", cfg.Params.MaxMemPerNode)
	return p
}

// readShown reads a partition from how it is shown. What can't be read was written by another version, and counts as
// not set.
func (l *loader) readShown(p *PartitionDef, m *model.Partition) {
	for _, kv := range m.Show {
		key := findKey(l.partKeys, kv.Key)
		if key == nil || key.read == nil || hasFold(shownOnly, kv.Key) || hasFold(unsetWords[key.name], kv.Value) {
			continue
		}
		before := *p
		if f := key.read(p, kv.Value); f.bad() {
			*p = before
		}
	}
	p.GpuIdlePolicy, p.Power = m.GPUIdle, m.Power
	if m.Expr != "" {
		p.NodesExpr = m.Expr
	}
}

// setPartition carries out one word of a change, and gives the key's whole name.
func (l *loader) setPartition(p *PartitionDef, kv model.KV) (string, error) {
	word, op := kv.Key, ""
	if n := len(word) - 1; n > 0 && (word[n] == '+' || word[n] == '-') {
		word, op = word[:n], word[n:]
	}
	key, err := l.partitionKey(word)
	if err != nil {
		return "", err
	}
	value := kv.Value
	switch {
	case key.read == nil:
		return "", fmt.Errorf("%s %s", key.name, key.note)
	case insteadOf(key.name) != "" && !asksNothing(value):
		return "", fmt.Errorf("%s has no effect here: %s", key.name, insteadOf(key.name))
	case key.name == "AllocNodes" && value == "":
		value = "ALL"
	case hasFold(unsetWords[key.name], value), value == "" && unsetWords[key.name] != nil:
		unsetKey(p, key.name)
		return key.name, nil
	case key.name == "Nodes":
		p.NodesExpr, err = l.otherNodes(p, op, value)
		return key.name, err
	case op != "":
		if value, err = p.otherNames(key.name, op, value); err != nil {
			return "", err
		}
	}
	switch key.name { // one of each pair replaces the other
	case "DefMemPerCPU", "DefMemPerNode":
		p.Mem.DefPerCPUMiB, p.Mem.DefPerNodeMiB = 0, 0
	case "MaxMemPerCPU", "MaxMemPerNode":
		p.Mem.MaxPerCPUMiB, p.Mem.MaxPerNodeMiB = 0, 0
	}
	if f := key.read(p, value); f.bad() {
		text := fmt.Sprintf("%s: %s", key.name, f.why)
		if f.want != "" {
			text += "; write " + key.name + "=" + f.want
		}
		return "", errors.New(text)
	}
	return key.name, nil
}

// partitionKey finds a key by its name or the beginning of it.
func (l *loader) partitionKey(word string) (*lineKey[pd], error) {
	if key := findKey(l.partKeys, word); key != nil {
		return key, nil
	}
	var found []string
	for _, k := range l.partKeys {
		if len(word) >= 3 && len(word) < len(k.name) && strings.EqualFold(k.name[:len(word)], word) {
			found = append(found, k.name)
		}
	}
	switch {
	case len(found) == 1:
		return findKey(l.partKeys, found[0]), nil
	case len(found) > 1:
		return nil, fmt.Errorf("%s may be %s: write more of it", word, strings.Join(found, " or "))
	}
	if hasFold(shownOnly, word) {
		return nil, fmt.Errorf("%s follows from the partition's nodes and can't be set", word)
	}
	hint := ""
	if near := nearest(word, partitionKeyNames()); near != "" {
		hint = "; did you mean " + near + "?"
	}
	return nil, fmt.Errorf("%s: %s is not a setting of partitions%s", notSupported, shown(word), hint)
}

// notSupported begins the complaint about a key that partitions don't have, as in scontrol.
const notSupported = "Update of this parameter is not supported"

// unsetKey removes the value of a key of unsetWords.
func unsetKey(p *PartitionDef, key string) {
	switch key {
	case "QOS":
		p.QOS = ""
	case "DefaultTime":
		p.DefaultTimeS = model.NotSet
	case "OverTimeLimit":
		p.OverTimeLimitS = 0
	case "JobDefaults":
		p.JobDefaults = JobDefaults{}
	case "SelectTypeParameters":
		p.SelectTypeParameters = ""
	case "Nodes":
		p.NodesExpr = ""
	case "Alternate":
		p.Alternate = ""
	case "TRESBillingWeights":
		p.TRESBillingWeights = nil
	case "Topology":
		p.Topology = ""
	}
}

// otherNodes gives Nodes= after a change: a whole list, or additions and removals such as +n3 and -n[1-2].
func (l *loader) otherNodes(p *PartitionDef, op, value string) (string, error) {
	if op == "" && !strings.HasPrefix(value, "+") && !strings.HasPrefix(value, "-") {
		return value, nil
	}
	names := l.partitionNodes(p, pos{})
	l.probs.list = nil // of nodes that it named before and that are gone
	for i, part := range splitHosts(value) {
		switch {
		case strings.HasPrefix(part, "+"), strings.HasPrefix(part, "-"):
			op, part = part[:1], part[1:]
		case op == "":
			return "", fmt.Errorf("in Nodes=%s: write + or - before each part, or before none", value)
		}
		one := PartitionDef{Name: p.Name, NodesExpr: part}
		for _, name := range l.partitionNodes(&one, pos{}) {
			at := slices.Index(names, name)
			switch {
			case op == "+" && at < 0:
				names = append(names, name)
			case op == "-" && at < 0:
				return "", fmt.Errorf("in Nodes=%s: node %s is not in partition %s", value, name, p.Name)
			case op == "-":
				names = slices.Delete(names, at, at+1)
			}
		}
		if i > 4096 {
			return "", fmt.Errorf("in Nodes=%s: too many parts", shown(value))
		}
	}
	return hostlist.CompressInOrder(names), l.firstFault()
}

// splitHosts cuts a list of hosts at the commas outside of brackets.
func splitHosts(list string) []string {
	var out []string
	depth, from := 0, 0
	for i, c := range list {
		switch {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == ',' && depth <= 0:
			out, from = append(out, list[from:i]), i+1
		}
	}
	return append(out, list[from:])
}

// otherNames gives a list of names after additions or removals.
func (p *PartitionDef) otherNames(key, op, value string) (string, error) {
	lists := map[string][]string{"AllowAccounts": p.AllowAccounts, "DenyAccounts": p.DenyAccounts,
		"AllowGroups": p.AllowGroups, "AllowQos": p.AllowQOS, "DenyQos": p.DenyQOS, "AllocNodes": p.AllocNodes}
	list, is := lists[key]
	if !is {
		return "", fmt.Errorf("%s%s=: it is no list; write the whole value after =", key, op)
	}
	list = slices.Clone(list)
	for _, name := range splitList(value) {
		at := slices.Index(list, name)
		switch {
		case op == "+" && at < 0:
			list = append(list, name)
		case op == "-" && at < 0:
			return "", fmt.Errorf("%s-=%s: %s is not in the list", key, value, shown(name))
		case op == "-":
			list = slices.Delete(list, at, at+1)
		}
	}
	return strings.Join(list, ","), nil
}

// firstFault gives the first problem that was found, as an error.
func (l *loader) firstFault() error {
	for _, p := range l.probs.list {
		if p.Severity == Note {
			continue
		}
		if p.Hint != "" {
			return fmt.Errorf("%s; %s", p.Text, p.Hint)
		}
		return errors.New(p.Text)
	}
	return nil
}

// DefineNodes gives the nodes that a list of names and keys of a NodeName line define; with State=FUTURE they are none
// yet (NodeDef.Future).
func DefineNodes(cfg *model.Config, names string, set []model.KV) ([]*model.NodeDef, error) {
	l := definer(cfg)
	have := len(l.cfg.Nodes)
	line := []pair{{key: "NodeName", value: names}}
	for _, kv := range set {
		line = append(line, pair{key: kv.Key, value: kv.Value})
	}
	l.readNodeLine(line)
	if err := l.firstFault(); err != nil {
		return nil, err
	}
	var out []*model.NodeDef
	for i := range l.cfg.Nodes[have:] {
		n := l.cfg.nodeModel(&l.cfg.Nodes[have+i])
		n.Made = true
		if err := NodeTopology(cfg, n.Topology); err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

// NodeGres reads a node's resources as the Gres= of a node line names them.
func NodeGres(text string) ([]GresCount, error) {
	list, f := readNodeGres(text)
	if f.bad() {
		return nil, fmt.Errorf("Gres: %s", f.why)
	}
	return list, nil
}
