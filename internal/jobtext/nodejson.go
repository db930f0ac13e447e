package jobtext

import (
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// nodeStatesJSON gives the base state and the flags, in capitals.
func nodeStatesJSON(n *proto.NodeInfo) []string {
	return strings.Split(strings.ToUpper(stateComplete(n)), "+")
}

func NodeJSON(j *slurmjson.Writer, i *proto.NodeInfo, cluster string) {
	n, d := i.Node, i.Node.Def
	j.Open("", '{')
	j.Str("name", d.Name)
	j.Str("hostname", d.Name)
	j.Str("address", nodeAddr(d))
	j.Str("cluster_name", cluster)
	j.Str("architecture", n.Arch)
	j.Str("operating_system", n.OS)
	j.Str("version", n.Version)
	words := nodeStatesJSON(i)
	if j.Old {
		j.Str("state", strings.ToLower(words[0]))
		j.List("state_flags", words[1:])
	} else {
		j.List("state", words)
	}
	if i.Resv != "" {
		j.Str("reservation", i.Resv)
	}
	j.Str("reason", n.Reason)
	j.Str("reason_set_by_user", n.ReasonBy)
	j.Time("reason_changed_at", n.ReasonAt)
	used := usedCPUs(n)
	j.Num("cpus", int64(d.CPUs))
	j.Num("effective_cpus", int64(d.JobCPUCount()))
	j.Num("boards", int64(max(1, d.Boards)))
	j.Num("sockets", int64(d.Sockets))
	j.Num("cores", int64(d.CoresPerSocket))
	j.Num("threads", int64(d.ThreadsPerCore))
	j.Num("alloc_cpus", used)
	j.Num("alloc_idle_cpus", int64(d.JobCPUCount())-used)
	j.Num("idle_cpus", int64(d.JobCPUCount())-used)
	j.Num("real_memory", d.MemMiB)
	j.Num("alloc_memory", n.UsedMem)
	if j.Old {
		j.Num("free_memory", max(0, i.FreeMemMiB))
	}
	j.Maybe("free_mem", max(0, i.FreeMemMiB), i.FreeMemMiB >= 0, false)
	j.Maybe("cpu_load", max(0, i.LoadMilli/10), i.LoadMilli >= 0, false)
	j.Num("temporary_disk", d.TmpMiB)
	j.Num("weight", int64(d.Weight))
	j.Words("features", d.Features...)
	j.Words("active_features", d.Features...)
	j.Str("gres", gresDefText(d.Gres))
	j.Str("gres_used", gresUsedText(n))
	j.List("partitions", i.Partitions)
	j.Time("boot_time", n.BootAt)
	j.Time("slurmd_start_time", n.UpSince)
	j.Time("last_busy", n.BusyAt)
	j.Str("comment", "")
	j.Close('}')
}

// SinfoJSON writes a node in one of its partitions as sinfo --json does.
func SinfoJSON(j *slurmjson.Writer, i *proto.NodeInfo, p *model.Partition, cluster string) {
	d := i.Node.Def
	r := NodeRow{part: p, nodes: []*proto.NodeInfo{i}}
	span := func(name string, v int64) {
		j.Open(name, '{')
		j.Num("minimum", v)
		j.Num("maximum", v)
		j.Close('}')
	}
	j.Open("", '{')
	j.Num("port", 0)
	j.Open("node", '{')
	j.List("state", nodeStatesJSON(i))
	j.Close('}')
	alloc, idle, other := r.counts()
	j.Open("nodes", '{')
	j.Num("allocated", int64(alloc))
	j.Num("idle", int64(idle))
	j.Num("other", int64(other))
	j.Num("total", 1)
	j.List("hostnames", []string{d.Name})
	j.List("addresses", []string{nodeAddr(d)})
	j.List("nodes", []string{d.Name})
	j.Close('}')
	ca, ci, co, ct := r.cpuCounts()
	j.Open("cpus", '{')
	j.Num("allocated", ca)
	j.Num("idle", ci)
	j.Num("other", co)
	j.Num("total", ct)
	j.Num("minimum", int64(d.CPUs))
	j.Num("maximum", int64(d.CPUs))
	j.Open("load", '{')
	j.Maybe("minimum", max(0, i.LoadMilli/10), i.LoadMilli >= 0, false)
	j.Maybe("maximum", max(0, i.LoadMilli/10), i.LoadMilli >= 0, false)
	j.Close('}')
	j.Close('}')
	span("sockets", int64(d.Sockets))
	span("cores", int64(d.CoresPerSocket))
	span("threads", int64(d.ThreadsPerCore))
	span("disk", d.TmpMiB)
	j.Open("memory", '{')
	j.Num("minimum", d.MemMiB)
	j.Num("maximum", d.MemMiB)
	j.Open("free", '{')
	j.Maybe("minimum", max(0, i.FreeMemMiB), i.FreeMemMiB >= 0, false)
	j.Maybe("maximum", max(0, i.FreeMemMiB), i.FreeMemMiB >= 0, false)
	j.Close('}')
	j.Num("allocated", i.Node.UsedMem)
	j.Close('}')
	span("weight", int64(d.Weight))
	j.Open("features", '{')
	j.Str("total", strings.Join(d.Features, ","))
	j.Str("active", strings.Join(d.Features, ","))
	j.Close('}')
	j.Open("gres", '{')
	j.Str("total", gresDefText(d.Gres))
	j.Str("used", gresUsedText(i.Node))
	j.Close('}')
	j.Str("cluster", cluster)
	j.Open("reason", '{')
	j.Str("description", i.Node.Reason)
	j.Str("user", i.Node.ReasonBy)
	j.Time("time", i.Node.ReasonAt)
	j.Close('}')
	j.Open("partition", '{')
	j.Str("name", p.Name)
	j.Str("cluster", cluster)
	j.Open("nodes", '{')
	j.Num("total", int64(len(p.Nodes)))
	j.Close('}')
	j.Open("maximums", '{')
	j.Maybe("time", (p.MaxTimeS+59)/60, p.MaxTimeS > 0 && p.MaxTimeS < model.Unlimited, p.MaxTimeS >= model.Unlimited)
	j.Close('}')
	j.Open("partition", '{')
	j.List("state", []string{p.State.String()})
	j.Close('}')
	j.Close('}')
	j.Close('}')
}
