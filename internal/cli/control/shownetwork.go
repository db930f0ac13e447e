package control

import (
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/clustertext"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// clusterConfig asks for the configuration in effect.
func (c *control) clusterConfig(what string) (*proto.ConfigReply, error) {
	cl, err := c.ask()
	if err != nil {
		return nil, err
	}
	var reply proto.ConfigReply
	if err := cl.Call(proto.KindConfig, &proto.Empty{}, &reply); err != nil {
		return nil, plain{fmt.Errorf("%s error: %s", what, env.Text(err))}
	}
	return &reply, nil
}

// showLicenses shows all licenses, or the named one.
func (c *control) showLicenses(name string) error {
	reply, err := c.clusterConfig("slurm_load_licenses")
	if err != nil {
		return err
	}
	if c.json != "" {
		return c.licensesJSON(reply, name)
	}
	list := clustertext.LicensesOf(reply, name)
	for i := range list {
		l := &list[i]
		sep := "\n    "
		if c.oneLine {
			sep = " "
		}
		fmt.Fprintf(c.Stdout, "LicenseName=%s%sTotal=%d Used=%d Free=%d Reserved=0 Remote=no\n", l.Name, sep, l.Count, l.Used,
			l.Free())
	}
	switch {
	case len(list) == 0 && name != "":
		//nolint:revive,staticcheck // scontrol's words
		return plain{fmt.Errorf("License name %s not found in the configuration.", name)}
	case len(list) == 0:
		fmt.Fprintln(c.Stdout, "No licenses configured in Slurm.")
	}
	return nil
}

// showTopology shows the switches: all, the named one, or those above a node.
func (c *control) showTopology(name string) error {
	reply, err := c.clusterConfig("slurm_load_topo")
	if err != nil {
		return err
	}
	if b := reply.Config.Blocks; b != nil {
		return c.showBlocks(b, name)
	}
	tree := reply.Config.Switches
	if len(tree) == 0 {
		fmt.Fprintln(c.Stdout, "No topology information available")
		return nil
	}
	shown := 0
	for _, s := range slices.Backward(levels(tree)) {
		below := nodesBelow(tree, s)
		if name != "" && s.Name != name && !slices.Contains(below, name) {
			continue
		}
		shown++
		line := fmt.Sprintf("SwitchName=%s Level=%d LinkSpeed=%s Nodes=%s", s.Name, s.Level, orOne(s.Speed),
			hostlist.Compress(below))
		if len(s.Children) > 0 {
			line += " Switches=" + hostlist.Compress(s.Children)
		}
		fmt.Fprintln(c.Stdout, line)
	}
	if shown == 0 {
		//nolint:revive,staticcheck // scontrol's words
		return plain{fmt.Errorf("Topology information contains no switch or node named %s", name)}
	}
	return nil
}

// showBlocks shows the blocks: all, the named one, or those that a node is in.
func (c *control) showBlocks(t *model.Blocks, name string) error {
	shown := 0
	line := func(kind, block string, index, size int, nodes []string) {
		if name == "" || name == block || slices.Contains(nodes, name) {
			shown++
			fmt.Fprintf(c.Stdout, "%s=%s BlockIndex=%d Nodes=%s BlockSize=%d\n", kind, block, index, hostlist.Compress(nodes),
				size)
		}
	}
	for i, b := range t.List {
		size := len(b.Nodes)
		if len(t.Sizes) > 0 {
			size = int(t.Sizes[0])
		}
		line("BlockName", b.Name, i, size, b.Nodes)
	}
	index := len(t.List)
	for _, size := range t.Sizes[min(1, len(t.Sizes)):] {
		each := max(1, int(size/max(1, t.Sizes[0])))
		for i := 0; i < len(t.List); i += each {
			var names, nodes []string
			for _, b := range t.List[i:min(i+each, len(t.List))] {
				names, nodes = append(names, b.Name), append(nodes, b.Nodes...)
			}
			line("AggregatedBlock", hostlist.Compress(names), index, int(size), nodes)
			index++
		}
	}
	if shown == 0 {
		//nolint:revive,staticcheck // scontrol's words
		return plain{fmt.Errorf("Topology information contains no block or node named %s", name)}
	}
	return nil
}

func orOne(s string) string {
	if s == "" {
		return "1"
	}
	return s
}

// levels gives the switches, the highest first, so that backwards the leaves come first.
func levels(tree []*model.Switch) []*model.Switch {
	out := slices.Clone(tree)
	slices.Reverse(out)
	slices.SortStableFunc(out, func(a, b *model.Switch) int { return int(b.Level - a.Level) })
	return out
}

// nodesBelow gives all nodes under a switch, in order.
func nodesBelow(tree []*model.Switch, s *model.Switch) []string {
	out := slices.Clone(s.Nodes)
	for _, child := range s.Children {
		for _, x := range tree {
			if x.Name == child && x.Level < s.Level {
				out = append(out, nodesBelow(tree, x)...)
			}
		}
	}
	slices.SortFunc(out, strings.Compare)
	return out
}
