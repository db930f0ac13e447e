package cli

import (
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// infoJSON prints nodes as `sinfo --json` readers expect them: one object for each node.
func (e *Env) infoJSON(c *infoCall, infos []*proto.NodeInfo, now model.Time) error {
	j := e.jsonFrame("nodes", c.json)
	for _, i := range infos {
		n, d := i.Node, i.Node.Def
		j.open("", '{')
		j.str("name", d.Name)
		j.str("hostname", d.Name)
		addr := d.Addr
		if addr == "" {
			addr = d.Name
		}
		j.str("address", addr)
		j.str("architecture", n.Arch)
		j.str("operating_system", n.OS)
		j.str("version", n.Version)
		base, flags, _ := strings.Cut(strings.ReplaceAll(n.BaseState(), "*", ""), "+")
		words := []string{base}
		if flags != "" {
			words = append(words, strings.Split(flags, "+")...)
		}
		if n.Link != model.LinkUp {
			words = append(words, "NOT_RESPONDING")
		}
		if j.old {
			j.str("state", strings.ToLower(base))
			j.list("state_flags", words[1:])
		} else {
			j.list("state", words)
		}
		j.str("reason", n.Reason)
		j.str("reason_set_by_user", n.ReasonBy)
		j.time("reason_changed_at", n.ReasonAt)
		j.num("cpus", int64(d.CPUs))
		j.num("effective_cpus", int64(d.CPUs))
		j.num("boards", int64(max(1, d.Boards)))
		j.num("sockets", int64(d.Sockets))
		j.num("cores", int64(d.CoresPerSocket))
		j.num("threads", int64(d.ThreadsPerCore))
		j.num("alloc_cpus", int64(usedCPUs(n)))
		j.num("alloc_idle_cpus", int64(int(d.CPUs)-usedCPUs(n)))
		j.num("real_memory", d.MemMiB)
		j.num("alloc_memory", n.UsedMem)
		j.maybe("free_mem", max(0, i.FreeMemMiB), i.FreeMemMiB >= 0, false)
		j.maybe("cpu_load", max(0, i.LoadMilli/10), i.LoadMilli >= 0, false)
		j.num("temporary_disk", d.TmpMiB)
		j.num("weight", int64(d.Weight))
		j.list("features", d.Features)
		j.list("active_features", d.Features)
		j.str("gres", gresDefText(d.Gres))
		j.str("gres_used", gresUsedText(n))
		j.list("partitions", i.Partitions)
		j.time("boot_time", n.BootAt)
		j.time("slurmd_start_time", n.UpSince)
		j.time("last_busy", n.BusyAt)
		j.close('}')
		j.flush(false)
	}
	return e.jsonFinish(j, c.json, "", now)
}
