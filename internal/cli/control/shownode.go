package control

import (
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/hostlist"
	"gbatch/internal/jobtext"
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
	rq := &proto.NodesRequest{Names: names, Units: c.details > 0, Future: c.future}
	err = cl.Stream(proto.KindNodes, rq, func(body []byte) error {
		var chunk proto.NodesChunk
		if err := cl.Decode(body, &chunk); err != nil {
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
	if env.Code(err) == proto.CodeInvalidNode && c.json == "" {
		return c.knownNodes(names)
	}
	if err != nil {
		return plain{fmt.Errorf("slurm_load_node error: %s", env.Text(err))}
	}
	if c.json != "" {
		return c.nodesJSON(infos, now)
	}
	c.sayRecords(now, len(infos))
	for _, i := range infos {
		c.print(jobtext.ShowNode(i, c.Clock(), c.details > 0))
	}
	return nil
}

// knownNodes prints those of some nodes that there are, and says of each other one that it was not found.
func (c *control) knownNodes(names []string) error {
	infos, _, err := c.nodes(nil)
	if err != nil {
		return plain{fmt.Errorf("slurm_load_node error: %s", env.Text(err))}
	}
	for _, name := range names {
		if i := slices.IndexFunc(infos, func(n *proto.NodeInfo) bool { return n.Node.Def.Name == name }); i >= 0 {
			c.print(jobtext.ShowNode(infos[i], c.Clock(), c.details > 0))
		} else {
			fmt.Fprintf(c.Stdout, "Node %s not found\n", name)
		}
	}
	return plain{fmt.Errorf("")}
}

// addresses prints the addresses of nodes.
func (c *control) addresses(words []string) error {
	if len(words) != 1 {
		return fmt.Errorf("getaddrs takes one list of nodes, as in getaddrs n[1-4]")
	}
	return c.eachNode(words[0], func(d *model.NodeDef) { fmt.Fprintf(c.Stdout, "%s: %s\n", d.Name, jobtext.NodeAddr(d)) })
}

// aliases prints the names of nodes on one line: of all, or of those that a host's name says.
func (c *control) aliases(hosts string) error {
	var names []string
	asked := env.SplitList(hosts)
	err := c.eachNode("", func(d *model.NodeDef) {
		if len(asked) == 0 || slices.Contains(asked, d.HostName()) || slices.Contains(asked, d.Name) {
			names = append(names, d.Name)
		}
	})
	if err == nil && len(names) > 0 {
		fmt.Fprintln(c.Stdout, strings.Join(names, " "))
	}
	return err
}

// eachNode calls f for the nodes of a list, or for all.
func (c *control) eachNode(list string, f func(*model.NodeDef)) error {
	names, err := hostlist.Expand(list)
	if err != nil {
		return err
	}
	infos, _, err := c.nodes(names)
	if err != nil {
		return plain{fmt.Errorf("slurm_load_node error: %s", env.Text(err))}
	}
	for _, i := range infos {
		f(i.Node.Def)
	}
	return nil
}

func (c *control) showPartitions(arg string) error {
	cl, err := c.ask()
	if err != nil {
		return err
	}
	var reply proto.PartitionsReply
	if err := cl.Call(proto.KindPartitions, &proto.Empty{}, &reply); err != nil {
		return plain{fmt.Errorf("slurm_load_partitions error: %s", env.Text(err))}
	}
	var shown []*model.Partition
	wanted := env.SplitList(arg)
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
	c.sayRecords(reply.Now, len(shown))
	for _, p := range shown {
		c.print(jobtext.ShowPartition(p))
	}
	return nil
}

// cgroupSettings gives what nodes have of cgroup.conf, as Slurm prints it.
func cgroupSettings(cfg *model.Config) (out []model.KV) {
	for _, k := range cfg.AtStart {
		name, ok := strings.CutPrefix(k.Key, "cgroup.conf ")
		if !ok {
			continue
		}
		value := k.Value
		switch {
		case value == "":
			value = "(null)"
		case value == "-1":
			value = "(default)"
		case value == "Yes" || value == "No":
			value = strings.ToLower(value)
		case name == "MinRAMSpace":
			value += "MB"
		}
		out = append(out, model.KV{Key: name, Value: value})
	}
	slices.SortFunc(out, func(a, b model.KV) int { return strings.Compare(a.Key, b.Key) })
	return out
}

func (c *control) showConfig() error {
	cl, err := c.ask()
	if err != nil {
		return err
	}
	var reply proto.ConfigReply
	if err := cl.Call(proto.KindConfig, &proto.Empty{}, &reply); err != nil {
		return plain{fmt.Errorf("slurm_load_ctl_conf error: %s", env.Text(err))}
	}
	fmt.Fprintf(c.Stdout, "Configuration data as of %s\n", c.Stamp(reply.Now, "Unknown"))
	list := append(slices.Clip(reply.Config.Show), model.KV{Key: "BOOT_TIME", Value: c.Stamp(reply.BootAt, "Unknown")},
		model.KV{Key: "SLURM_VERSION", Value: version.Slurm})
	if c.SlurmName() {
		list = withSlurmKeys(list)
	}
	slices.SortStableFunc(list,
		func(a, b model.KV) int { return strings.Compare(strings.ToLower(a.Key), strings.ToLower(b.Key)) })
	for _, k := range list {
		fmt.Fprintf(c.Stdout, "%-23s = %s\n", k.Key, k.Value)
	}
	fmt.Fprintf(c.Stdout, "\nCgroup Support Configuration:\n")
	for _, k := range cgroupSettings(reply.Config) {
		fmt.Fprintf(c.Stdout, "%-23s = %s\n", k.Key, k.Value)
	}
	if c.SlurmName() {
		fmt.Fprintf(c.Stdout, "\nMPI Plugins Configuration:\n")
		for _, k := range keysOf(pmixKeys) {
			fmt.Fprintf(c.Stdout, "%-23s = %s\n", k.Key, k.Value)
		}
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
