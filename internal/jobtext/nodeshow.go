package jobtext

import (
	"cmp"
	"fmt"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// GresOf gives what a node has of generic resources, as NodeName lines have it; "": nothing.
func GresOf(d *model.NodeDef) string { return gresDefText(d.Gres) }

// ShowNode gives a node as scontrol show node does.
func ShowNode(i *proto.NodeInfo, at *Times, details bool) *KeyValues {
	n, d := i.Node, i.Node.Def
	r := &KeyValues{}
	r.line(KV("NodeName", d.Name), KV("Arch", orNull(n.Arch)), KV("CoresPerSocket", d.CoresPerSocket))
	load := "N/A"
	if i.LoadMilli >= 0 {
		load = fmt.Sprintf("%.2f", float64(i.LoadMilli)/1000)
	}
	r.line(KV("CPUAlloc", usedCPUs(n)), KV("CPUEfctv", d.JobCPUCount()), KV("CPUTot", d.CPUs), KV("CPULoad", load))
	r.line(KV("AvailableFeatures", orNull(strings.Join(d.CanHave(), ","))))
	r.line(KV("ActiveFeatures", orNull(strings.Join(d.Features, ","))))
	r.line(KV("Gres", orNull(gresDefText(d.Gres))))
	if m := modelsText(n); m != "" {
		r.line(KV("GpuModels", m))
	}
	if details {
		r.line(KV("GresDrain", cmp.Or(gresDrainText(n), "N/A")))
		r.line(KV("GresUsed", orNull(gresUsedText(n))))
	}
	addr := d.Addr
	if addr == "" {
		addr = d.Name
	}
	version := n.Version
	if version == "" {
		version = "N/A"
	}
	r.line(KV("NodeAddr", addr), KV("NodeHostName", d.HostName()), KV("Version", version))
	r.line(KV("OS", orNull(n.OS)))
	free := "N/A"
	if i.FreeMemMiB >= 0 {
		free = fmt.Sprint(i.FreeMemMiB)
	}
	r.line(KV("RealMemory", d.MemMiB), KV("AllocMem", n.UsedMem), KV("FreeMem", free), KV("Sockets", d.Sockets),
		KV("Boards", max(1, d.Boards)))
	if kept := keptText(d); len(kept) > 0 {
		r.line(kept...)
	}
	r.given("CpuBind", d.CPUBind)
	r.line(KV("State", controlState(i)), KV("ThreadsPerCore", d.ThreadsPerCore), KV("TmpDisk", d.TmpMiB),
		KV("Weight", d.Weight), KV("Owner", "N/A"), KV("MCS_label", "N/A"))
	r.given("Topology", d.Topology)
	if len(i.Partitions) > 0 {
		r.line(KV("Partitions", strings.Join(i.Partitions, ",")))
	}
	r.line(KV("BootTime", at.Stamp(n.BootAt, "None")), KV("SlurmdStartTime", at.Stamp(n.UpSince, "None")))
	r.line(KV("LastBusyTime", at.Stamp(n.BusyAt, "Unknown")), KV("ResumeAfterTime", at.Stamp(n.ResumeAt, "None")))
	r.line(KV("CfgTRES", cfgTRES(n)))
	r.line(KV("AllocTRES", allocTRES(n)))
	r.line(KV("CapWatts", "n/a"))
	r.line(KV("CurrentWatts", 0), KV("AveWatts", 0))
	if i.Resv != "" {
		r.line(KV("ReservationName", i.Resv))
	}
	if n.Reason != "" {
		r.line(KV("Reason", fmt.Sprintf("%s [%s@%s]", n.Reason, n.ReasonBy, at.Stamp(n.ReasonAt, "Unknown"))))
	}
	if n.Comment != "" {
		r.line(KV("Comment", n.Comment))
	}
	if n.Extra != "" {
		r.line(KV("Extra", n.Extra))
	}
	for _, note := range i.Notes { // what the node can't enforce; Slurm has no such line
		r.line(KV("Note", note))
	}
	for _, o := range OutUnits(n, "") {
		r.line(KV("GresReason", fmt.Sprintf("%s:%d %s [%s@%s]", o.Name, o.Index, o.Reason, o.By, at.Stamp(o.At, "Unknown"))))
	}
	if details {
		for _, u := range unitLines(i) {
			r.line(u...)
		}
	}
	return r
}

// keptText gives the CPUs and the memory that jobs can't get.
func keptText(d *model.NodeDef) (words []string) {
	if !d.Kept.Empty() {
		words = append(words, KV("CoreSpecCount", keptCores(d)), KV("CPUSpecList", d.Kept.String()))
	}
	if d.KeptMemMiB > 0 {
		words = append(words, KV("MemSpecLimit", d.KeptMemMiB))
	}
	return words
}

// keptCores gives how many cores jobs can't get.
func keptCores(d *model.NodeDef) int {
	return d.Kept.Count() / max(1, int(d.CPUs)/int(max(1, d.Sockets*d.CoresPerSocket)))
}

// cfgTRES gives what jobs can have of a node.
func cfgTRES(n *model.Node) string {
	var all []model.GresCount
	for _, g := range n.Def.Gres {
		all = append(all, model.GresCount{Name: g.Name, Type: g.Type, Count: int64(g.Count)})
	}
	return nodeTres(int64(n.Def.JobCPUCount()), n.Def.MemMiB, all)
}

// allocTRES gives what jobs have of a node.
func allocTRES(n *model.Node) string {
	var have []model.GresCount
	for _, g := range n.Def.Gres {
		inUse := 0
		n.Used(g.Name).Each(func(k int) bool {
			if k >= int(g.First) && k < int(g.First+g.Count) {
				inUse++
			}
			return true
		})
		if inUse > 0 {
			have = append(have, model.GresCount{Name: g.Name, Type: g.Type, Count: int64(inUse)})
		}
	}
	used := usedCPUs(n)
	if used == 0 {
		return ""
	}
	return strings.Replace(nodeTres(used, n.UsedMem, have), fmt.Sprintf(",billing=%d", used), "", 1)
}
