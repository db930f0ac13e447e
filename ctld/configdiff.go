package ctld

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gbatch/internal/conf"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// configDiff lists the changes from the present configuration to a new one: settings by key, partitions and nodes by
// name.
func configDiff(old, new *model.Config) []proto.Change {
	out := diffKeys("", old.Show, new.Show, "")
	for i := range out {
		out[i].Effect = conf.EffectOf(out[i].Key).String()
	}
	if len(old.AtStart) > 0 { // otherwise it is from an older version, which did not keep it
		out = append(out, diffKeys("", old.AtStart, new.AtStart, conf.RestartNoded.String())...)
	}
	oldParts, newParts := map[string]*model.Partition{}, map[string]*model.Partition{}
	for _, p := range old.Partitions {
		oldParts[p.Name] = p
	}
	for _, p := range new.Partitions {
		newParts[p.Name] = p
		if have := oldParts[p.Name]; have == nil {
			out = append(out, proto.Change{Key: "PartitionName=" + p.Name, New: "Nodes=" + hostlist.Compress(p.Nodes),
				Effect: "a new partition"})
		} else {
			out = append(out, diffKeys("PartitionName="+p.Name+" ", have.Show, p.Show,
				"for jobs submitted and started from now on")...)
		}
	}
	for _, p := range old.Partitions {
		if newParts[p.Name] == nil {
			out = append(out, proto.Change{Key: "PartitionName=" + p.Name, Old: "Nodes=" + hostlist.Compress(p.Nodes),
				Effect: "the partition goes; its running jobs end there"})
		}
	}
	oldNodes, newNodes := map[string]*model.NodeDef{}, map[string]*model.NodeDef{}
	for _, n := range old.Nodes {
		oldNodes[n.Name] = n
	}
	var added, gone []string
	for _, n := range new.Nodes {
		newNodes[n.Name] = n
		if have := oldNodes[n.Name]; have == nil {
			added = append(added, n.Name)
		} else if a, b := nodeText(have), nodeText(n); a != b {
			out = append(out, proto.Change{Key: "NodeName=" + n.Name, Old: a, New: b, Effect: "for jobs started from now on"})
		}
	}
	for _, n := range old.Nodes {
		if newNodes[n.Name] == nil {
			gone = append(gone, n.Name)
		}
	}
	for _, n := range new.Future {
		if have := old.FutureNode(n.Name); have == nil || nodeText(have) != nodeText(n) {
			out = append(out, proto.Change{Key: "NodeName=" + n.Name, New: nodeText(n) + " State=FUTURE",
				Effect: "it may come: with its gnoded, or by gcontrol update NodeName=" + n.Name + " State=RESUME"})
		}
	}
	for _, n := range old.Future {
		if new.FutureNode(n.Name) == nil {
			out = append(out, proto.Change{Key: "NodeName=" + n.Name, Old: nodeText(n) + " State=FUTURE",
				Effect: "it is no longer one that may come"})
		}
	}
	if len(added) > 0 {
		out = append(out, proto.Change{Key: "NodeName=" + hostlist.Compress(added), New: fmt.Sprintf("%d nodes", len(added)),
			Effect: "usable once their gnoded has registered"})
	}
	if len(gone) > 0 {
		out = append(out, proto.Change{Key: "NodeName=" + hostlist.Compress(gone), Old: fmt.Sprintf("%d nodes", len(gone)),
			Effect: "they take no new job"})
	}
	out = append(out, topologyChanges(old, new)...)
	if a, b := strings.Join(old.Accounts, ","), strings.Join(new.Accounts, ","); a != b {
		out = append(out, proto.Change{Key: "Accounts", Old: a, New: b, Effect: "for jobs submitted from now on"})
	}
	return out
}

func count(n int, one, many string) string {
	if n != 1 {
		one = many
	}
	return fmt.Sprintf("%d %s", n, one)
}

// topologyChanges tells of topologies that differ.
func topologyChanges(old, new *model.Config) (out []proto.Change) {
	size := func(t *model.Topology) string {
		switch {
		case t == nil:
			return ""
		case t.Blocks != nil:
			return count(len(t.Blocks.List), "block", "blocks")
		case t.Flat() && len(old.Topologies)+len(new.Topologies) > 0:
			return "flat"
		}
		return count(len(t.Switches), "switch", "switches")
	}
	was, is := old.Networks(), new.Networks()
	named := func(nets []*model.Topology, name string) *model.Topology {
		if i := slices.IndexFunc(nets, func(t *model.Topology) bool { return t.Name == name }); i >= 0 {
			return nets[i]
		}
		return nil
	}
	key := "topology.conf"
	change := func(a, b *model.Topology, name string) {
		if len(old.Topologies)+len(new.Topologies) > 0 {
			key = "topology=" + name
		}
		out = append(out, proto.Change{Key: key, Old: size(a), New: size(b), Effect: "for jobs started from now on"})
	}
	for _, b := range is {
		if a := named(was, b.Name); a == nil || !reflect.DeepEqual(a, b) {
			change(a, b, b.Name)
		}
	}
	for _, a := range was {
		if named(is, a.Name) == nil {
			change(a, nil, a.Name)
		}
	}
	return out
}

// restarts says which daemons have to be restarted, and where, for changes to take effect: one sentence for each kind
// of daemon.
func restarts(v *state.View, controllers []Peer, changes []proto.Change) []string {
	keys := map[conf.Effect][]string{}
	for _, e := range []conf.Effect{conf.RestartCtld, conf.RestartNoded, conf.RestartDbd} {
		for i := range changes {
			if s := changes[i].Effect; s == e.String() || s == conf.RestartAll.String() {
				keys[e] = append(keys[e], changes[i].Key)
			}
		}
	}
	var names []string
	for _, p := range controllers {
		names = append(names, p.Name)
	}
	var nodes []string
	v.Nodes(func(n *model.Node) bool {
		nodes = append(nodes, n.Def.Name)
		return true
	})
	var out []string
	say := func(e conf.Effect, daemon, where string) {
		if len(keys[e]) > 0 && where != "" {
			out = append(out, fmt.Sprintf("restart %s on %s: until then %s stays as it was there", daemon, where,
				strings.Join(keys[e], ", ")))
		}
	}
	say(conf.RestartCtld, "gctld", hostlist.Compress(names))
	say(conf.RestartNoded, "gnoded (jobs go on)", hostlist.Compress(nodes))
	say(conf.RestartDbd, "gdbd", "its host")
	return out
}

// diffKeys compares two lists of settings.
func diffKeys(prefix string, old, new []model.KV, effect string) []proto.Change {
	was := make(map[string]string, len(old))
	for _, kv := range old {
		was[kv.Key] = kv.Value
	}
	var out []proto.Change
	for _, kv := range new {
		if have, ok := was[kv.Key]; !ok || have != kv.Value {
			out = append(out, proto.Change{Key: prefix + kv.Key, Old: have, New: kv.Value, Effect: effect})
		}
		delete(was, kv.Key)
	}
	for _, kv := range old {
		if v, left := was[kv.Key]; left {
			out = append(out, proto.Change{Key: prefix + kv.Key, Old: v, Effect: effect})
		}
	}
	return out
}

// nodeText gives a node's definition in one line.
func nodeText(n *model.NodeDef) string {
	var b strings.Builder
	fmt.Fprintf(&b, "CPUs=%d Sockets=%d CoresPerSocket=%d ThreadsPerCore=%d RealMemory=%d TmpDisk=%d Weight=%d",
		n.CPUs, n.Sockets,
		n.CoresPerSocket, n.ThreadsPerCore, n.MemMiB, n.TmpMiB, n.Weight)
	if !n.Kept.Empty() {
		b.WriteString(" CpuSpecList=" + n.Kept.String())
	}
	if n.KeptMemMiB > 0 {
		fmt.Fprintf(&b, " MemSpecLimit=%d", n.KeptMemMiB)
	}
	for _, kv := range [...]struct{ key, value string }{
		{"NodeAddr", n.Addr}, {"NodeHostname", n.Host}, {"Features", strings.Join(n.Features, ",")},
		{"AvailableFeatures", strings.Join(n.Available, ",")}, {"CpuBind", n.CPUBind}, {"Topology", n.Topology},
		{"Reason", n.Reason},
	} {
		if kv.value != "" {
			b.WriteString(" " + kv.key + "=" + kv.value)
		}
	}
	if n.Boards > 1 {
		fmt.Fprintf(&b, " Boards=%d", n.Boards)
	}
	if n.Admin != model.NodeUp {
		b.WriteString(" State=" + [...]string{"UP", "DRAIN", "DOWN"}[min(n.Admin, model.NodeDown)])
	}
	if n.Cloud {
		b.WriteString(" State=CLOUD")
	}
	if n.External {
		b.WriteString(" State=EXTERNAL")
	}
	if n.Virtual {
		b.WriteString(" (hardware is not checked)")
	}
	for _, g := range n.Gres {
		fmt.Fprintf(&b, " Gres=%s:%d", model.TypedName(g.Name, g.Type), g.Count)
		gresText(&b, &g)
	}
	return b.String()
}

// gresText gives the settings of gres.conf for the units of a node.
func gresText(b *strings.Builder, g *model.GresDef) {
	if g.MemMiB > 0 {
		fmt.Fprintf(b, " Memory=%d", g.MemMiB)
	}
	for _, near := range g.Near {
		fmt.Fprintf(b, " CPUs=%s", near)
	}
	for _, links := range g.Links {
		fmt.Fprintf(b, " Links=%s", strings.Trim(strings.ReplaceAll(fmt.Sprint(links), " ", ","), "[]"))
	}
	for _, s := range g.Over {
		fmt.Fprintf(b, " gpu%d=%d", s.GPU, s.Count)
	}
	if g.OneSharing {
		b.WriteString(" Flags=one_sharing")
	}
	if g.NoConsume {
		b.WriteString(" no_consume")
	}
	if g.Explicit {
		b.WriteString(" Flags=explicit")
	}
	if !g.Off.Empty() {
		fmt.Fprintf(b, " Reserved=%s", g.Off)
	}
}
