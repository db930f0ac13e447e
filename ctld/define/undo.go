package define

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/conf"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
)

// Undo completes a configuration that was read from the files with what stays of operators' changes: dynamic nodes, and
// what ReconfigFlags keep. It gives a sentence for each change that the files undo.
func Undo(old, files *model.Config) (undone []string, err error) {
	if undone, err = keepNodes(old, files); err != nil {
		return nil, err
	}
	if err := keepFuture(old, files); err != nil {
		return nil, err
	}
	parts, err := keepParts(old, files)
	if err != nil {
		return nil, err
	}
	undone = append(append(undone, parts...), conf.KeepSpare(old, files)...)
	for _, d := range old.Nodes {
		i := slices.IndexFunc(files.Nodes, func(n *model.NodeDef) bool { return n.Name == d.Name })
		if i < 0 || d.Made {
			continue
		}
		for _, key := range d.Set {
			if key == stateKey {
				continue
			}
			if was, is := nodeValue(d, key), nodeValue(files.Nodes[i], key); was != is {
				undone = append(undone, fmt.Sprintf("node %s: %s=%s, which was set by gcontrol, is %s=%s again", d.Name, key,
					was, key, is))
			}
		}
	}
	return undone, nil
}

// keepNodes adds the dynamic nodes that no file defines now, and their places in partitions.
func keepNodes(old, files *model.Config) (undone []string, err error) {
	more := false
	for _, d := range old.Nodes {
		if d.Made && !slices.ContainsFunc(slices.Concat(files.Nodes, files.Future),
			func(n *model.NodeDef) bool { return n.Name == d.Name }) {
			files.Nodes, more = append(files.Nodes, d), true
			if err := conf.NodeTopology(files, d.Topology); err != nil {
				undone = append(undone, fmt.Sprintf("node %s: Topology=%s has no place any more: %v", d.Name, d.Topology, err))
			}
		}
	}
	if !more {
		return nil, nil
	}
	parts, err := conf.Repartition(files)
	for _, p := range parts {
		put(files, p)
	}
	return undone, err
}

func put(cfg *model.Config, p *model.Partition) {
	if i := slices.IndexFunc(cfg.Partitions, func(o *model.Partition) bool { return o.Name == p.Name }); i >= 0 {
		cfg.Partitions[i] = p
	} else {
		cfg.Partitions = append(cfg.Partitions, p)
	}
}

// keepParts keeps of operators' partitions what ReconfigFlags say.
func keepParts(old, files *model.Config) (undone []string, err error) {
	info := slices.Contains(files.Params.ReconfigFlags, conf.KeepPartInfo)
	states := slices.Contains(files.Params.ReconfigFlags, conf.KeepPartState)
	for _, p := range old.Partitions {
		i := slices.IndexFunc(files.Partitions, func(o *model.Partition) bool { return o.Name == p.Name })
		var set []model.KV
		switch {
		case i < 0 && p.Made && info:
			put(files, p)
			continue
		case i < 0 && p.Made:
			undone = append(undone,
				fmt.Sprintf("partition %s, which was created by gcontrol, is in no file: it goes", p.Name))
			continue
		case i < 0:
			continue
		}
		for _, key := range p.Set {
			was, is := partValue(p, key), partValue(files.Partitions[i], key)
			switch {
			case was == is:
			case info, states && key == "State":
				set = append(set, model.KV{Key: key, Value: was})
			default:
				undone = append(undone, fmt.Sprintf("partition %s: %s=%s, which was set by gcontrol, is %s=%s again",
					p.Name, key, was, key, is))
			}
		}
		if len(set) > 0 {
			kept, err := conf.DefinePartition(files, files.Partitions[i], p.Name, set)
			if err != nil {
				return nil, fmt.Errorf("partition %s: what was set by gcontrol does not fit what the file says: %w",
					p.Name, err)
			}
			files.Partitions[i] = kept
		}
	}
	return undone, nil
}

// partValue gives a setting of a partition as it is shown.
func partValue(p *model.Partition, key string) string {
	switch {
	case strings.EqualFold(key, "Nodes"):
		return hostlist.CompressInOrder(p.Nodes)
	case strings.EqualFold(key, "Shared"):
		key = "OverSubscribe"
	case strings.EqualFold(key, "Priority"):
		key = "PriorityTier"
	}
	for _, kv := range p.Show {
		if strings.EqualFold(kv.Key, key) {
			return kv.Value
		}
	}
	return ""
}

func nodeValue(d *model.NodeDef, key string) string {
	switch key {
	case "AvailableFeatures", "Features":
		return strings.Join(d.CanHave(), ",")
	case "ActiveFeatures":
		return strings.Join(d.Features, ",")
	case "Weight":
		return fmt.Sprint(d.Weight)
	case "Topology":
		return d.Topology
	case "CpuBind":
		return cmp.Or(d.CPUBind, "off")
	case "NodeAddr":
		return d.Addr
	case "NodeHostName":
		return d.Host
	}
	var out []string
	for _, g := range d.Gres {
		out = append(out, fmt.Sprintf("%s:%d", model.TypedName(g.Name, g.Type), g.Count))
	}
	return strings.Join(out, ",")
}
