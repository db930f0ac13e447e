package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/version"
)

// nodes asks for nodes, all or the named ones.
func (c *control) nodes(names []string) (infos []*proto.NodeInfo, now model.Time, err error) {
	cl, err := c.ask()
	if err != nil {
		return nil, 0, err
	}
	err = cl.Stream(proto.KindNodes, &proto.NodesRequest{Names: names, Units: c.details > 0}, func(body []byte) error {
		var chunk proto.NodesChunk
		if err := proto.Decode(body, &chunk); err != nil {
			return err
		}
		infos, now = append(infos, chunk.Nodes...), chunk.Now
		return nil
	})
	return infos, now, err
}

func (c *control) showNodes(arg string) error {
	var names []string
	if arg != "" && !strings.EqualFold(arg, "ALL") {
		var err error
		if names, err = hostlist.Expand(arg); err != nil {
			return err
		}
	}
	infos, now, err := c.nodes(names)
	if code(err) == proto.CodeInvalidNode {
		fmt.Fprintf(c.Stdout, "Node %s not found\n", arg)
		return plain{fmt.Errorf("")}
	}
	if err != nil {
		return plain{fmt.Errorf("slurm_load_node error: %s", text(err))}
	}
	if c.json != "" {
		return c.nodesJSON(infos, now)
	}
	for _, i := range infos {
		c.print(showNode(i, c.times(), c.details > 0))
	}
	return nil
}

// showNode gives a node as scontrol show node does.
func showNode(i *proto.NodeInfo, at *moments, details bool) *record {
	n, d := i.Node, i.Node.Def
	r := &record{}
	r.line(kv("NodeName", d.Name), kv("Arch", orNull(n.Arch)), kv("CoresPerSocket", d.CoresPerSocket))
	load := "N/A"
	if i.LoadMilli >= 0 {
		load = fmt.Sprintf("%.2f", float64(i.LoadMilli)/1000)
	}
	used := n.UsedCPUs.Count()
	if n.Exclusive != 0 {
		used = d.JobCPUCount()
	}
	r.line(kv("CPUAlloc", used), kv("CPUEfctv", d.JobCPUCount()), kv("CPUTot", d.CPUs), kv("CPULoad", load))
	r.line(kv("AvailableFeatures", orNull(strings.Join(d.Features, ","))))
	r.line(kv("ActiveFeatures", orNull(strings.Join(d.Features, ","))))
	r.line(kv("Gres", orNull(gresDefText(d.Gres))))
	if details {
		r.line(kv("GresDrain", cmp.Or(gresDrainText(n), "N/A")))
		r.line(kv("GresUsed", orNull(gresUsedText(n))))
	}
	addr := d.Addr
	if addr == "" {
		addr = d.Name
	}
	version := n.Version
	if version == "" {
		version = "N/A"
	}
	r.line(kv("NodeAddr", addr), kv("NodeHostName", addr), kv("Version", version))
	r.line(kv("OS", orNull(n.OS)))
	free := "N/A"
	if i.FreeMemMiB >= 0 {
		free = fmt.Sprint(i.FreeMemMiB)
	}
	r.line(kv("RealMemory", d.MemMiB), kv("AllocMem", n.UsedMem), kv("FreeMem", free), kv("Sockets", d.Sockets), kv("Boards", max(1, d.Boards)))
	if kept := keptText(d); len(kept) > 0 {
		r.line(kept...)
	}
	r.line(kv("State", controlState(i)), kv("ThreadsPerCore", d.ThreadsPerCore), kv("TmpDisk", d.TmpMiB), kv("Weight", d.Weight), kv("Owner", "N/A"), kv("MCS_label", "N/A"))
	if len(i.Partitions) > 0 {
		r.line(kv("Partitions", strings.Join(i.Partitions, ",")))
	}
	r.line(kv("BootTime", at.stamp(n.BootAt, "None")), kv("SlurmdStartTime", at.stamp(n.UpSince, "None")))
	r.line(kv("LastBusyTime", at.stamp(n.BusyAt, "Unknown")), kv("ResumeAfterTime", "None"))
	var all, have []model.GresCount
	for _, g := range d.Gres {
		all = append(all, model.GresCount{Name: g.Name, Type: g.Type, Count: int64(g.Count)})
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
	r.line(kv("CfgTRES", nodeTres(int64(d.JobCPUCount()), d.MemMiB, all)))
	alloc := ""
	if used > 0 {
		alloc = nodeTres(int64(used), n.UsedMem, have)
	}
	r.line(kv("AllocTRES", alloc))
	r.line(kv("CapWatts", "n/a"))
	r.line(kv("CurrentWatts", 0), kv("AveWatts", 0))
	if i.Resv != "" {
		r.line(kv("ReservationName", i.Resv))
	}
	if n.Reason != "" {
		r.line(kv("Reason", fmt.Sprintf("%s [%s@%s]", n.Reason, n.ReasonBy, at.stamp(n.ReasonAt, "Unknown"))))
	}
	for _, note := range i.Notes { // what the node can't enforce; Slurm has no such line
		r.line(kv("Note", note))
	}
	for _, o := range outUnits(n, "") {
		r.line(kv("GresReason", fmt.Sprintf("%s:%d %s [%s@%s]", o.Name, o.Index, o.Reason, o.By, at.stamp(o.At, "Unknown"))))
	}
	if details {
		for _, u := range unitLines(i) {
			r.line(u...)
		}
	}
	return r
}

func nodeTres(cpus, mem int64, gres []model.GresCount) string {
	return strings.Replace(tres(cpus, mem, 1, gres), ",node=1", "", 1)
}

// gresDefText gives a node's generic resources: gpu:a100:8.
func gresDefText(list []model.GresDef) string {
	var out []string
	for _, g := range list {
		s := g.Name
		if g.Type != "" {
			s += ":" + g.Type
		}
		if g.NoConsume {
			s += ":no_consume"
		}
		out = append(out, fmt.Sprintf("%s:%d", s, g.Count))
	}
	return strings.Join(out, ",")
}

// gresUsedText gives what is in use of them: gpu:a100:3(IDX:0-2).
func gresUsedText(n *model.Node) string {
	var out []string
	for _, g := range n.Def.Gres {
		if g.NoConsume {
			out = append(out, model.TypedName(g.Name, g.Type)+":0")
			continue
		}
		used := n.Used(g.Name)
		mine := used.Minus(model.UpTo(int(g.First)))
		mine = mine.Minus(mine.Minus(model.UpTo(int(g.First + g.Count))))
		s := g.Name
		if g.Type != "" {
			s += ":" + g.Type
		}
		if len(g.Over) > 0 {
			out = append(out, fmt.Sprintf("%s:%d(%s)", s, mine.Count(), shareUse(n, &g)))
			continue
		}
		idx := mine.String()
		if idx == "" {
			idx = "N/A"
		}
		out = append(out, fmt.Sprintf("%s:%d(IDX:%s)", s, mine.Count(), idx))
	}
	return strings.Join(out, ",")
}

// shareUse gives what is in use of each GPU's shares, as Slurm shows it: 2/8,0/8.
func shareUse(n *model.Node, g *model.GresDef) string {
	var out []string
	for _, s := range g.Over {
		used := int32(0)
		if x := n.SharesOf(s.GPU); x != nil && x.Name == g.Name {
			used = x.Count
		}
		out = append(out, fmt.Sprintf("%d/%d", used, s.Count))
	}
	return strings.Join(out, ",")
}

func (c *control) showPartitions(arg string) error {
	cl, err := c.ask()
	if err != nil {
		return err
	}
	var reply proto.PartitionsReply
	if err := cl.Call(proto.KindPartitions, &proto.Empty{}, &reply); err != nil {
		return plain{fmt.Errorf("slurm_load_partitions error: %s", text(err))}
	}
	var shown []*model.Partition
	wanted := splitList(arg)
	for _, p := range reply.Partitions {
		if len(wanted) == 0 || slices.Contains(wanted, p.Name) {
			shown = append(shown, p)
		}
	}
	switch {
	case len(shown) == 0 && arg != "":
		fmt.Fprintf(c.Stdout, "Partition %s not found\n", arg)
		return plain{fmt.Errorf("")}
	case c.json != "":
		return c.partitionsJSON(shown, &reply)
	}
	for _, p := range shown {
		c.print(showPartition(p))
	}
	return nil
}

// partitionBreaks says which keys end a line in scontrol's layout.
func partitionBreaks(key string) bool {
	switch key {
	case "AllowQos", "DenyQos", "QoS", "Hidden", "MaxCPUsPerSocket", "Nodes", "OverSubscribe", "PreemptMode", "SelectTypeParameters",
		"JobDefaults", "MaxMemPerCPU", "MaxMemPerNode", "TRES":
		return true
	}
	return false
}

// showPartition gives a partition as scontrol show partition does.
func showPartition(p *model.Partition) *record {
	r := &record{}
	r.line(kv("PartitionName", p.Name))
	var words []string
	for _, k := range p.Show {
		v := k.Value
		if v == "" {
			v = "(null)"
		}
		words = append(words, k.Key+"="+v)
		if partitionBreaks(k.Key) {
			r.line(words...)
			words = nil
		}
	}
	if len(words) > 0 {
		r.line(words...)
	}
	return r
}

func (c *control) showConfig() error {
	cl, err := c.ask()
	if err != nil {
		return err
	}
	var reply proto.ConfigReply
	if err := cl.Call(proto.KindConfig, &proto.Empty{}, &reply); err != nil {
		return plain{fmt.Errorf("slurm_load_ctl_conf error: %s", text(err))}
	}
	fmt.Fprintf(c.Stdout, "Configuration data as of %s\n", c.stamp(reply.Now, "Unknown"))
	list := append(slices.Clip(reply.Config.Show), model.KV{Key: "BOOT_TIME", Value: c.stamp(reply.BootAt, "Unknown")}, model.KV{Key: "SLURM_VERSION", Value: version.Slurm})
	slices.SortStableFunc(list, func(a, b model.KV) int { return strings.Compare(strings.ToLower(a.Key), strings.ToLower(b.Key)) })
	for _, k := range list {
		fmt.Fprintf(c.Stdout, "%-23s = %s\n", k.Key, k.Value)
	}
	if len(reply.Paths) > 0 {
		fmt.Fprintf(c.Stdout, "\nLocal settings of the controller that answered\n")
		for _, k := range reply.Paths {
			fmt.Fprintf(c.Stdout, "%-23s = %s\n", k.Key, k.Value)
		}
	}
	fmt.Fprintln(c.Stdout)
	return c.ping(nil)
}

// keptText tells what is kept from jobs.
func keptText(d *model.NodeDef) (words []string) {
	if n := d.Kept.Count(); n > 0 {
		threads := max(1, int(d.CPUs)/int(max(1, d.Sockets*d.CoresPerSocket)))
		words = append(words, kv("CoreSpecCount", n/threads), kv("CPUSpecList", d.Kept.String()))
	}
	if d.KeptMemMiB > 0 {
		words = append(words, kv("MemSpecLimit", d.KeptMemMiB))
	}
	return words
}
