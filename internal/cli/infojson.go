package cli

import (
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// printJSON prints the nodes, an object for each, as "nodes"; readers of newer versions of sinfo find an object for each
// node and partition as "sinfo".
func (i *info) printJSON(t *infoTable, cluster string, now model.Time) error {
	j := i.jsonFrame("nodes", i.json)
	seen := map[string]bool{}
	for _, p := range t.parts {
		for _, name := range p.Nodes {
			if n := t.nodes[name]; n != nil && !seen[name] && i.pick(n) {
				seen[name] = true
				writeNodeJSON(j, n, cluster)
				j.flush(false)
			}
		}
	}
	if !j.old {
		j.close(']')
		j.open("sinfo", '[')
		for _, p := range t.parts {
			for _, name := range p.Nodes {
				if n := t.nodes[name]; n != nil && i.pick(n) {
					writeSinfoJSON(j, n, p, cluster)
					j.flush(false)
				}
			}
		}
	}
	return i.jsonFinish(j, cluster, now)
}

// nodeStatesJSON gives the base state and the flags, in capitals.
func nodeStatesJSON(n *proto.NodeInfo) []string {
	return strings.Split(strings.ToUpper(stateComplete(n)), "+")
}

func writeNodeJSON(j *jsonText, i *proto.NodeInfo, cluster string) {
	n, d := i.Node, i.Node.Def
	j.open("", '{')
	j.str("name", d.Name)
	j.str("hostname", d.Name)
	j.str("address", nodeAddr(d))
	j.str("cluster_name", cluster)
	j.str("architecture", n.Arch)
	j.str("operating_system", n.OS)
	j.str("version", n.Version)
	words := nodeStatesJSON(i)
	if j.old {
		j.str("state", strings.ToLower(words[0]))
		j.list("state_flags", words[1:])
	} else {
		j.list("state", words)
	}
	if i.Resv != "" {
		j.str("reservation", i.Resv)
	}
	j.str("reason", n.Reason)
	j.str("reason_set_by_user", n.ReasonBy)
	j.time("reason_changed_at", n.ReasonAt)
	used := usedCPUs(n)
	j.num("cpus", int64(d.CPUs))
	j.num("effective_cpus", int64(d.JobCPUCount()))
	j.num("boards", int64(max(1, d.Boards)))
	j.num("sockets", int64(d.Sockets))
	j.num("cores", int64(d.CoresPerSocket))
	j.num("threads", int64(d.ThreadsPerCore))
	j.num("alloc_cpus", used)
	j.num("alloc_idle_cpus", int64(d.JobCPUCount())-used)
	j.num("idle_cpus", int64(d.JobCPUCount())-used)
	j.num("real_memory", d.MemMiB)
	j.num("alloc_memory", n.UsedMem)
	if j.old {
		j.num("free_memory", max(0, i.FreeMemMiB))
	}
	j.maybe("free_mem", max(0, i.FreeMemMiB), i.FreeMemMiB >= 0, false)
	j.maybe("cpu_load", max(0, i.LoadMilli/10), i.LoadMilli >= 0, false)
	j.num("temporary_disk", d.TmpMiB)
	j.num("weight", int64(d.Weight))
	j.words("features", d.Features...)
	j.words("active_features", d.Features...)
	j.str("gres", gresDefText(d.Gres))
	j.str("gres_used", gresUsedText(n))
	j.list("partitions", i.Partitions)
	j.time("boot_time", n.BootAt)
	j.time("slurmd_start_time", n.UpSince)
	j.time("last_busy", n.BusyAt)
	j.str("comment", "")
	j.close('}')
}

// writeSinfoJSON writes a node in one of its partitions as sinfo --json does.
func writeSinfoJSON(j *jsonText, i *proto.NodeInfo, p *model.Partition, cluster string) {
	d := i.Node.Def
	r := infoRow{part: p, nodes: []*proto.NodeInfo{i}}
	span := func(name string, v int64) {
		j.open(name, '{')
		j.num("minimum", v)
		j.num("maximum", v)
		j.close('}')
	}
	j.open("", '{')
	j.num("port", 0)
	j.open("node", '{')
	j.list("state", nodeStatesJSON(i))
	j.close('}')
	alloc, idle, other := r.counts()
	j.open("nodes", '{')
	j.num("allocated", int64(alloc))
	j.num("idle", int64(idle))
	j.num("other", int64(other))
	j.num("total", 1)
	j.list("hostnames", []string{d.Name})
	j.list("addresses", []string{nodeAddr(d)})
	j.list("nodes", []string{d.Name})
	j.close('}')
	ca, ci, co, ct := r.cpuCounts()
	j.open("cpus", '{')
	j.num("allocated", ca)
	j.num("idle", ci)
	j.num("other", co)
	j.num("total", ct)
	j.num("minimum", int64(d.CPUs))
	j.num("maximum", int64(d.CPUs))
	j.open("load", '{')
	j.maybe("minimum", max(0, i.LoadMilli/10), i.LoadMilli >= 0, false)
	j.maybe("maximum", max(0, i.LoadMilli/10), i.LoadMilli >= 0, false)
	j.close('}')
	j.close('}')
	span("sockets", int64(d.Sockets))
	span("cores", int64(d.CoresPerSocket))
	span("threads", int64(d.ThreadsPerCore))
	span("disk", d.TmpMiB)
	j.open("memory", '{')
	j.num("minimum", d.MemMiB)
	j.num("maximum", d.MemMiB)
	j.open("free", '{')
	j.maybe("minimum", max(0, i.FreeMemMiB), i.FreeMemMiB >= 0, false)
	j.maybe("maximum", max(0, i.FreeMemMiB), i.FreeMemMiB >= 0, false)
	j.close('}')
	j.num("allocated", i.Node.UsedMem)
	j.close('}')
	span("weight", int64(d.Weight))
	j.open("features", '{')
	j.str("total", strings.Join(d.Features, ","))
	j.str("active", strings.Join(d.Features, ","))
	j.close('}')
	j.open("gres", '{')
	j.str("total", gresDefText(d.Gres))
	j.str("used", gresUsedText(i.Node))
	j.close('}')
	j.str("cluster", cluster)
	j.open("reason", '{')
	j.str("description", i.Node.Reason)
	j.str("user", i.Node.ReasonBy)
	j.time("time", i.Node.ReasonAt)
	j.close('}')
	j.open("partition", '{')
	j.str("name", p.Name)
	j.str("cluster", cluster)
	j.open("nodes", '{')
	j.num("total", int64(len(p.Nodes)))
	j.close('}')
	j.open("maximums", '{')
	j.maybe("time", (p.MaxTimeS+59)/60, p.MaxTimeS > 0 && p.MaxTimeS < model.Unlimited, p.MaxTimeS >= model.Unlimited)
	j.close('}')
	j.open("partition", '{')
	j.list("state", []string{p.State.String()})
	j.close('}')
	j.close('}')
	j.close('}')
}
