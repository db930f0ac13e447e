package ctld

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/sched"
	"gbatch/internal/state"
	"gbatch/internal/walltime"
)

// misfit says why a job can never run in a partition: its request, and the most that the partition has.
func misfit(v *state.View, sp *model.Spec, p *model.Partition, why sched.Impossible) error {
	cfg := v.Config()
	rq := sched.Resolve(sp, p, &cfg.Params)
	var cpus int32
	var mem int64
	for _, name := range p.Nodes {
		if def := v.NodeDef(name); def != nil {
			cpus, mem = max(cpus, def.CPUs), max(mem, def.MemMiB)
		}
	}
	cpus = p.CPUsOf(cpus)
	asked := int64(rq.CPUsFor(rq.PerNode, 0))
	switch why {
	case sched.TooManyCPUs:
		text := fmt.Sprintf("no node of partition %s %s", p.Name, proto.TooManyCPUs)
		if asked > int64(cpus) { // otherwise the reason is how the CPUs are spread over nodes
			text += fmt.Sprintf(": %d, and the most is %d; ask for fewer, or for more nodes", asked, cpus)
		} else if rq.GresBind == model.BindEnforced {
			text += " near the generic resources that it asks for (--gres-flags=enforce-binding)"
		}
		return refuse(proto.CodeNodeConfig, "%s", text)
	case sched.TooMuchMemory:
		text := fmt.Sprintf("no node of partition %s %s", p.Name, proto.TooMuchMemory)
		need := rq.MemPerNode
		if need <= 0 {
			need = rq.MemPerCPU * asked
		}
		if need > mem {
			text += fmt.Sprintf(": %s, and the most is %s", walltime.FormatMem(need), walltime.FormatMem(mem))
		}
		return refuse(proto.CodeNodeConfig, "%s", text)
	case sched.NoSuchGres:
		return refuse(proto.CodeNodeConfig,
			"no node of partition %s has the generic resources that the job needs on one node%s", p.Name, mostGres(v, sp, p))
	case sched.NoSuchFeature:
		if names := externalOf(v, sp, p); len(names) > 0 && !rq.External {
			return refuse(proto.CodeNodeConfig, "%s of partition %s: State=EXTERNAL, where another system runs what belongs "+
				"to the jobs, and only jobs with the flag EXTERNAL_JOB (REST) get such nodes; name others",
				hostlist.Compress(names), p.Name)
		}
		code := proto.CodeNodeConfig // the features are known, and no node has all
		if unknownFeature(cfg, sp.Features) {
			code = proto.CodeFeature
		}
		return refuse(code, "no node of partition %s has %s; see ginfo -o '%%n %%f %%d'", p.Name,
			featuresAsked(sp))
	case sched.NodesNotInPartition:
		var out []string
		for _, n := range sp.ReqNodes {
			if !slices.Contains(p.Nodes, n) {
				out = append(out, n)
			}
		}
		return refuse(proto.CodeNodeConfig, "--nodelist: partition %s does not have %s", p.Name, strings.Join(out, ", "))
	case sched.NoBlocks:
		n, nets := sp.Extra().Segment, cfg.Networks()
		if !slices.ContainsFunc(nets, func(t *model.Topology) bool { return t.Blocks != nil }) {
			return refuse(proto.CodeBadRequest, "--segment=%d: this cluster's network has no blocks "+
				"(TopologyPlugin=topology/block, man gbatch.conf); leave it out", n)
		}
		return refuse(proto.CodeBadRequest, "--segment=%d: jobs of partition %s are placed by topology %s, which has no "+
			"blocks; name a partition whose topology has (gcontrol show topology), or leave it out", n, p.Name,
			nets[cfg.NetworkOf(p)].Name)
	case sched.UnevenSegments:
		return refuse(proto.CodeNodeCount, "--segment=%d: %d nodes are no whole number of segments; ask for a multiple of "+
			"it (--nodes)", rq.Segment, rq.MinNodes)
	case sched.NoSuchLicense:
		return refuse(proto.CodeBadRequest, "Invalid license specification: %s; see gcontrol show licenses",
			ask.LicensesThere(cfg))
	case sched.OverMemLimit:
		return refuse(proto.CodeMemory, "the job asks for more memory than partition %s allows (MaxMemPerNode, MaxMemPerCPU)",
			p.Name)
	case sched.PartitionNodes:
		if p.MaxNodes == 0 || sp.MinNodes <= p.MaxNodes {
			return refuse(proto.CodeNodeCount, "--nodes=%d is less than partition %s allows (MinNodes=%d)",
				max(sp.MinNodes, sp.MaxNodes), p.Name, p.MinNodes)
		}
		return refuse(proto.CodeNodeCount, "--nodes=%d is more than partition %s allows (MaxNodes=%d)", sp.MinNodes, p.Name,
			p.MaxNodes)
	}
	text := fmt.Sprintf("partition %s has too few nodes that fit the job", p.Name)
	if rq.MinNodes > len(p.Nodes) && (sp.Tasks == 0 || int(sp.MinNodes) > len(p.Nodes)) {
		code, all := proto.CodeNodeCount, 0
		for _, name := range p.Nodes {
			if def := v.NodeDef(name); def != nil {
				all += int(def.CPUs)
			}
		}
		if rq.MinNodes > all && cfg.Params.EnforceLimits != "NO" { // more than would do with one CPU on each
			code = proto.CodeTooManyCPUs
		}
		return refuse(code, "%s: %d are needed, and it has %d", text, rq.MinNodes, len(p.Nodes))
	}
	if code, most := mostInAll(v, sp, &rq, p); most != "" {
		return refuse(code, "%s", most)
	}
	return refuse(proto.CodeNodeConfig, "%s", text)
}

// mostGres says, for the resources that the job asks for on one node, how many a single node has at most.
func mostGres(v *state.View, sp *model.Spec, p *model.Partition) string {
	for _, g := range sp.Gres {
		most := int32(0)
		for _, name := range p.Nodes {
			def := v.NodeDef(name)
			if def == nil {
				continue
			}
			has := int32(0)
			for _, d := range def.Gres {
				if d.Name == g.Name && model.TypeFits(g.Name, g.Type, d.Type) {
					has += d.Count - int32(d.Off.Count())
				}
			}
			most = max(most, has)
		}
		if g.Milli == 0 && (g.Per == model.PerNode || sp.MaxNodes == 1) && g.Count > most {
			name := g.Name
			if g.Type != "" {
				name += ":" + g.Type
			}
			return fmt.Sprintf(": %s:%d, and the most on one is %d%s", name, g.Count, most, remoteHint(v, p, &g))
		}
	}
	return ""
}

// remoteHint says how to ask for the remote GPUs of a partition, if a request without a type has not counted them.
func remoteHint(v *state.View, p *model.Partition, g *model.GresReq) string {
	if g.Name != model.GPUName || g.Type != "" {
		return ""
	}
	for _, name := range p.Nodes {
		if def := v.NodeDef(name); def != nil && slices.ContainsFunc(def.Gres,
			func(d model.GresDef) bool { return model.IsRemote(d.Name, d.Type) }) {
			return "; remote GPUs go only to jobs that ask for them: --gpus=" + model.RemoteType + ":N"
		}
	}
	return ""
}

// mostInAll names a resource of which the job asks for more than the partition has, in all or on as many nodes as the
// job may have.
func mostInAll(v *state.View, sp *model.Spec, rq *sched.Request, p *model.Partition) (proto.Code, string) {
	nodes := len(p.Nodes)
	if sp.MaxNodes > 0 {
		nodes = min(nodes, int(sp.MaxNodes))
	}
	if p.MaxNodes > 0 {
		nodes = min(nodes, int(p.MaxNodes))
	}
	where := fmt.Sprintf("partition %s has", p.Name)
	if nodes < len(p.Nodes) {
		where = fmt.Sprintf("%d nodes of partition %s have at most", nodes, p.Name)
	}
	tasks := max(1, int64(sp.Tasks), int64(sp.MinNodes)*int64(max(1, sp.TasksPerNode)))
	largest := func(of func(*model.NodeDef) int64) int64 {
		var list []int64
		for _, name := range p.Nodes {
			if def := v.NodeDef(name); def != nil {
				list = append(list, of(def))
			}
		}
		slices.SortFunc(list, func(a, b int64) int { return cmp.Compare(b, a) })
		sum := int64(0)
		for _, n := range list[:min(nodes, len(list))] {
			sum += n
		}
		return sum
	}
	for _, g := range sp.Gres {
		need := int64(g.Count)
		switch {
		case g.Milli > 0:
			continue
		case g.Per == model.PerTask:
			need *= tasks
		case g.Per == model.PerNode:
			need *= int64(max(1, sp.MinNodes))
		}
		has := largest(func(def *model.NodeDef) (n int64) {
			for i := range def.Gres {
				if d := &def.Gres[i]; d.Name == g.Name && model.TypeFits(g.Name, g.Type, d.Type) {
					n += int64(d.Count) - int64(d.Off.Count())
				}
			}
			return n
		})
		if need > has {
			name := g.Name
			if g.Type != "" {
				name += ":" + g.Type
			}
			return proto.CodeNodeConfig, fmt.Sprintf("the job asks for %s:%d in all, and %s %d%s", name, need, where, has,
				remoteHint(v, p, &g))
		}
	}
	need := tasks * int64(max(1, rq.CPUsPerTask))
	if has := largest(func(def *model.NodeDef) int64 { return int64(def.CPUs) }); need > has {
		return proto.CodeTooManyCPUs, fmt.Sprintf("the job asks for %d CPUs in all, and %s %d", need, where, has)
	}
	return 0, ""
}

// unknownFeature says whether a request names a feature that no node of the cluster has.
func unknownFeature(cfg *model.Config, text string) bool {
	asked, err := model.ParseFeatures(text)
	if err != nil || text == "" {
		return err != nil
	}
	var unknown func(f *model.Feature) bool
	unknown = func(f *model.Feature) bool {
		if f == nil || f.Op != 0 {
			return f != nil && slices.ContainsFunc(f.Of, unknown)
		}
		return !slices.ContainsFunc(cfg.Nodes, func(n *model.NodeDef) bool { return slices.Contains(n.Features, f.Name) })
	}
	return unknown(asked.Each) || slices.ContainsFunc(asked.Same, unknown) ||
		slices.ContainsFunc(asked.Counts, func(c model.FeatureCount) bool { return unknown(&c.Feature) })
}

// externalOf gives the nodes without a daemon among those that a job names, or all of a partition's if it has no
// others.
func externalOf(v *state.View, sp *model.Spec, p *model.Partition) (out []string) {
	list := sp.ReqNodes
	if len(list) == 0 {
		list = p.Nodes
	}
	for _, name := range list {
		if def := v.NodeDef(name); def != nil && def.External {
			out = append(out, name)
		}
	}
	if len(sp.ReqNodes) == 0 && len(out) < len(p.Nodes) {
		return nil
	}
	return out
}

// featuresAsked names the requests behind NoSuchFeature: features, and other fixed properties of nodes.
func featuresAsked(sp *model.Spec) string {
	var out []string
	if sp.Features != "" {
		out = append(out, fmt.Sprintf("the features that the job needs (--constraint='%s')", sp.Features))
	}
	if sp.TmpMiB > 0 {
		out = append(out, fmt.Sprintf("%s (%s)", proto.NoSuchTmp, walltime.FormatMem(sp.TmpMiB)))
	}
	if m := sp.Extra(); m.Sockets > 0 || m.CoresPerSocket > 0 || m.ThreadsPerCore > 0 {
		out = append(out, proto.NoSuchCores)
	}
	if len(out) == 0 {
		return "the features that the job needs"
	}
	return strings.Join(out, " and ")
}
