package define

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/conf"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// Create gives the command that makes dynamic nodes: nodes that no file defines. They belong to the partitions whose
// Nodes are ALL, or name a set of nodes with one of their features.
func Create(v *state.View, names []string, set []model.KV) (*state.Define, error) {
	for _, name := range names {
		if v.Node(name) != nil || v.Config().FutureNode(name) != nil {
			return nil, refuse(proto.CodeInvalidNode, "%s is there already", name)
		}
	}
	made, err := conf.DefineNodes(v.Config(), hostlist.CompressInOrder(names), set)
	if err != nil {
		return nil, refuse(proto.CodeBadRequest, "%v", err)
	}
	if made[0].Future { // one line has one State
		return &state.Define{Create: true, Future: made}, nil
	}
	return withNodes(v.Config(), &state.Define{Create: true, Nodes: made})
}

// Delete gives the command that removes dynamic nodes.
func Delete(v *state.View, names []string) (*state.Define, error) {
	for _, name := range names {
		def := v.Config().FutureNode(name)
		if n := v.Node(name); n != nil {
			def = n.Def
		}
		switch {
		case def == nil:
			return nil, refuse(proto.CodeInvalidNode, "%s", name)
		case !def.Made:
			return nil, refuse(proto.CodeBadRequest, "node %s is in gbatch.conf: remove it there and run gcontrol "+
				"reconfigure; only nodes that gcontrol has created are deleted here", name)
		case def.Future:
			continue
		}
		if err := unused(v, name); err != nil {
			return nil, err
		}
	}
	return withNodes(v.Config(), &state.Define{DropNodes: names})
}

// withNodes adds the partitions that change with the nodes.
func withNodes(old *model.Config, cmd *state.Define) (*state.Define, error) {
	cfg := *old
	dropped := func(d *model.NodeDef) bool { return slices.Contains(cmd.DropNodes, d.Name) }
	cfg.Nodes = slices.DeleteFunc(slices.Clone(cfg.Nodes), dropped)
	cfg.Future = slices.DeleteFunc(slices.Clone(cfg.Future), dropped)
	for _, def := range cmd.Nodes {
		if i := slices.IndexFunc(cfg.Nodes, func(d *model.NodeDef) bool { return d.Name == def.Name }); i >= 0 {
			cfg.Nodes[i] = def
		} else {
			cfg.Nodes = append(cfg.Nodes, def)
		}
	}
	cfg.Future = slices.DeleteFunc(slices.Concat(cfg.Future, cmd.Future), func(d *model.NodeDef) bool {
		return slices.ContainsFunc(cmd.Nodes, func(n *model.NodeDef) bool { return n.Name == d.Name })
	})
	var err error
	if cmd.Parts, err = conf.Repartition(&cfg); err != nil {
		return nil, refuse(proto.CodeBadRequest, "%v", err)
	}
	if cmd.Create && len(cmd.Parts) > 0 { // only the nodes are new
		cmd.Create = false
	}
	return cmd, nil
}

// Defines reports whether a key of update node changes the node's definition.
func Defines(key string) bool { return canonical(key) != "" }

// canonical gives the whole name of a key, which may be shortened; "": it is none of these.
func canonical(key string) string {
	low := strings.ToLower(key)
	for _, k := range []struct {
		name  string
		least int
	}{{"AvailableFeatures", 2}, {"ActiveFeatures", 3}, {"Features", 4}, {"Weight", 1}, {"Gres", 1},
		{"Topology", 3}, {"CpuBind", 2}, {"NodeAddr", 5}, {"NodeHostName", 5}} {
		if len(low) >= k.least && strings.HasPrefix(strings.ToLower(k.name), low) {
			return k.name
		}
	}
	return ""
}

// Change gives the command that changes the definitions of nodes.
func Change(v *state.View, names []string, set []model.KV) (*state.Define, error) {
	cmd := &state.Define{}
	hosts := map[string][]string{} // by key
	for _, kv := range set {
		if key := canonical(kv.Key); key == "NodeAddr" || key == "NodeHostName" {
			list, err := hostsFor(names, key, kv.Value)
			if err != nil {
				return nil, err
			}
			hosts[key] = list
		}
	}
	for i, name := range names {
		old := v.NodeDef(name)
		if old == nil {
			return nil, refuse(proto.CodeInvalidNode, "%s", name)
		}
		def := *old
		def.Set = slices.Clone(old.Set)
		for _, kv := range set {
			key, value := canonical(kv.Key), kv.Value
			if list := hosts[key]; list != nil {
				value = list[i]
			}
			if err := changeNode(v, &def, key, value); err != nil {
				return nil, err
			}
			if !slices.Contains(def.Set, key) {
				def.Set = append(def.Set, key)
			}
		}
		cmd.Nodes = append(cmd.Nodes, &def)
	}
	return withNodes(v.Config(), cmd)
}

// hostsFor gives each node its host of a list: the first node the first one, and so on.
func hostsFor(names []string, key, list string) ([]string, error) {
	if list == "" {
		return nil, refuse(proto.CodeInvalidNode, "%s= names no host; write %s=%s", key, key,
			hostlist.CompressInOrder(names))
	}
	hosts, err := hostlist.Expand(list)
	if err != nil {
		return nil, refuse(proto.CodeBadRequest, "%s=%s: %v", key, list, err)
	}
	if len(hosts) != len(names) {
		return nil, refuse(proto.CodeInvalidNode, "%s=%s names %d hosts for the %d nodes %s; write one for each", key, list,
			len(hosts), len(names), hostlist.CompressInOrder(names))
	}
	return hosts, nil
}

func changeNode(v *state.View, def *model.NodeDef, key, value string) error {
	switch key {
	case "AvailableFeatures", "Features": // no plugin makes them active: all are
		list, err := features(value)
		def.Features, def.Available = list, nil
		return err
	case "ActiveFeatures":
		list, err := features(value)
		if err != nil {
			return err
		}
		can := def.CanHave()
		for _, f := range list {
			if !slices.Contains(can, f) {
				return refuse(proto.CodeBadRequest, "Active features not subset of available features: %s is not among "+
					"AvailableFeatures=%s of node %s", f, strings.Join(can, ","), def.Name)
			}
		}
		if def.Features = list; !slices.Equal(list, can) {
			def.Available = can
		} else {
			def.Available = nil
		}
	case "Weight":
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil || n < 0 {
			return refuse(proto.CodeBadRequest, "Weight value (%s) is not a whole number from 0 to %d", value, math.MaxInt32)
		}
		def.Weight = int32(n)
	case "Topology":
		if err := conf.NodeTopology(v.Config(), value); err != nil {
			return refuse(proto.CodeBadRequest, "%v", err)
		}
		def.Topology = value
	case "CpuBind":
		how, err := conf.NodeCPUBind(value)
		if err != nil {
			return refuse(proto.CodeBadRequest, "%v", err)
		}
		def.CPUBind = how
	case "NodeAddr", "NodeHostName":
		if len(value) > model.MaxName || strings.ContainsAny(value, " \t,[]") {
			return refuse(proto.CodeBadRequest, "%s=%s: write one host name or address", key, value)
		}
		if key == "NodeAddr" {
			def.Addr = value
		} else {
			def.Host = value
		}
	case "Gres":
		return changeGres(v.Node(def.Name), def, value)
	}
	return nil
}

// maxFeatures bounds the features of one node.
const maxFeatures = 256

func features(list string) ([]string, error) {
	var out []string
	for f := range strings.SplitSeq(list, ",") {
		if f = strings.TrimSpace(f); f == "" || slices.Contains(out, f) {
			continue
		}
		if strings.ContainsAny(f, "&|()[]*!=:\"' ") || len(f) > model.MaxName || len(out) >= maxFeatures {
			return nil, refuse(proto.CodeFeature, "%s: write names separated by commas, at most %d", f, maxFeatures)
		}
		out = append(out, f)
	}
	return out, nil
}

// changeGres sets the numbers of a node's resources. What has devices can only be taken away: its units are those that
// the node's gnoded has.
func changeGres(n *model.Node, def *model.NodeDef, value string) error {
	want, err := conf.NodeGres(value)
	if err != nil {
		return refuse(proto.CodeInvalidGres, "%v", err)
	}
	var out []model.GresDef
	taken := make([]bool, len(want))
	for _, g := range def.Gres {
		i := slices.IndexFunc(want, func(w conf.GresCount) bool {
			return strings.EqualFold(w.Name, g.Name) && (w.Type == "" || strings.EqualFold(w.Type, g.Type))
		})
		count := int64(0)
		devices := g.Name == "gpu" || len(g.Over) > 0 || len(g.Near)+len(g.Links) > 0
		switch {
		case i >= 0:
			count = want[i].Count
			if want[i].Type == "" && devices && count != 0 { // the sum of all types
				count -= others(def, &g)
			}
			taken[i] = true
		case devices:
			return refuse(proto.CodeInvalidGres, "node %s has %s:%d: name it too, or write %s:0 to take it away", def.Name,
				g.Name, g.Count, g.Name)
		}
		switch used := n.Used(g.Name); {
		case devices && count != 0 && count != int64(g.Count):
			return refuse(proto.CodeInvalidGres, "%s has devices: 0 takes all of node %s away, another number than %d needs "+
				"gbatch.conf, gres.conf and gcontrol reconfigure", g.Name, def.Name, g.Count)
		case used.Max() >= int(g.First)+int(count) && used.Max() < int(g.First+g.Count):
			return refuse(proto.CodeNodesBusy, "jobs hold %s of node %s", g.Name, def.Name)
		case count > 1<<30:
			return refuse(proto.CodeInvalidGres, "%s:%d is more than a node can have", g.Name, count)
		case count > 0:
			g.Count = int32(count)
			out = append(out, g)
		}
	}
	for i, w := range want {
		switch {
		case taken[i]:
		case strings.EqualFold(w.Name, "gpu"):
			return refuse(proto.CodeInvalidGres, "node %s has no %s; gbatch.conf, gres.conf and gcontrol reconfigure give "+
				"it some", def.Name, w)
		case w.Count > 0 && w.Count <= 1<<30:
			out = append(out, model.GresDef{Name: w.Name, Type: w.Type, Count: int32(w.Count)})
		}
	}
	first := map[string]int32{}
	for i := range out {
		out[i].First = first[out[i].Name]
		first[out[i].Name] += out[i].Count
	}
	def.Gres = out
	return nil
}

// others counts the units of the same name and another type.
func others(def *model.NodeDef, g *model.GresDef) (n int64) {
	for i := range def.Gres {
		if o := &def.Gres[i]; o.Name == g.Name && o.Type != g.Type {
			n += int64(o.Count)
		}
	}
	return n
}
