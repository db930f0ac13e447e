package migrate

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"gbatch/internal/conf"
)

// yamlTopology is one entry of topology.yaml.
type yamlTopology struct {
	Name    string `yaml:"topology"`
	Default bool   `yaml:"cluster_default"`
	Tree    *struct {
		Switches []struct {
			Name     string `yaml:"switch"`
			Children string `yaml:"children"`
			Nodes    string `yaml:"nodes"`
		} `yaml:"switches"`
	} `yaml:"tree"`
	Block *struct {
		Sizes  []int `yaml:"block_sizes"`
		Blocks []struct {
			Name  string `yaml:"block"`
			Nodes string `yaml:"nodes"`
		} `yaml:"blocks"`
	} `yaml:"block"`
	Flat yaml.Node `yaml:"flat"`
	Ring yaml.Node `yaml:"ring"`
}

// topologyYAML makes a topology.conf of the default topology of a topology.yaml that can't be used as it is, and gives
// lines for our main file.
func (c *carry) topologyYAML(file string, data []byte, out map[string]string) (more []string) {
	var list []yamlTopology
	if err := yaml.Unmarshal(data, &list); err != nil {
		c.r.Add(Person, file, 0, "", "it can't be read: %v", err)
		return nil
	}
	chosen := -1
	for i := range list {
		if chosen < 0 || list[i].Default && !list[chosen].Default {
			chosen = i
		}
	}
	for i := range list {
		t := &list[i]
		if i != chosen {
			c.r.Add(Unsupported, file, 0, "topology "+t.Name, "only the default one, %s, is carried over: the file has faults",
				list[chosen].Name)
			continue
		}
		if _, has := out[conf.TopologyFile]; has {
			c.r.Add(Ignored, file, 0, "topology "+t.Name, "there is a topology.conf")
			continue
		}
		var b strings.Builder
		plugin := "topology/flat"
		switch {
		case t.Tree != nil:
			plugin = "topology/tree"
			for _, s := range t.Tree.Switches {
				b.WriteString("SwitchName=" + quoted(s.Name))
				if s.Children != "" {
					b.WriteString(" Switches=" + quoted(s.Children))
				}
				if s.Nodes != "" {
					b.WriteString(" Nodes=" + quoted(s.Nodes))
				}
				b.WriteByte('\n')
			}
		case t.Block != nil:
			plugin = "topology/block"
			for _, s := range t.Block.Blocks {
				b.WriteString("BlockName=" + quoted(s.Name) + " Nodes=" + quoted(s.Nodes) + "\n")
			}
			if len(t.Block.Sizes) > 0 {
				var sizes []string
				for _, n := range t.Block.Sizes {
					sizes = append(sizes, strconv.Itoa(n))
				}
				b.WriteString("BlockSizes=" + strings.Join(sizes, ",") + "\n")
			}
		case !t.Ring.IsZero():
			c.r.Add(Unsupported, file, 0, "topology "+t.Name, "rings aren't known: all nodes are treated alike")
			continue
		}
		if b.Len() > 0 {
			out[conf.TopologyFile] = "# from topology.yaml\n" + strings.ReplaceAll(b.String(), "\r", "")
		}
		c.r.Add(Translated, file, 0, "topology "+t.Name, "%s in %s", plugin, conf.TopologyFile)
		if !c.settings["topologyplugin"] {
			more = append(more, "TopologyPlugin="+plugin)
		}
	}
	return more
}
