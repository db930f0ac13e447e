package control

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// writeconfig.go is write config: the settings in effect, as a file that gbatch check reads.

// shownOnly are what show has of settings and partitions that no file has.
var shownOnly = []string{"ControlMachine", "TotalCPUs", "TotalNodes", "TRES", "PluginDir", "NodeSets"}

// writeConfig writes the settings in effect into a file, the name of which ends with the moment, as in scontrol.
func (c *control) writeConfig(words []string) error {
	if len(words) > 1 {
		return plain{fmt.Errorf("too many arguments for keyword:write; write config [FILE]")}
	}
	file := c.Getenv("SLURM_CONF_OUT")
	switch {
	case len(words) == 1:
		file = words[0]
	case file == "":
		if file = c.Getenv("GBATCH_CONF"); file == "" {
			file = c.Getenv("SLURM_CONF")
		}
		if file == "" {
			file = "/etc/gbatch/gbatch.conf"
		}
	}
	cl, err := c.ask()
	if err != nil {
		return err
	}
	var r proto.ConfigReply
	if err := cl.Call(proto.KindConfig, &proto.Empty{}, &r); err != nil {
		return plain{fmt.Errorf("slurm_load_ctl_conf error: %s", env.Text(err))}
	}
	file += "." + c.Stamp(r.Now, "Unknown")
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return plain{fmt.Errorf("Could not create file %s: %w", file, err)}
	}
	_, err = f.WriteString(configText(r.Config))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return plain{fmt.Errorf("file %s is not whole: %w", file, err)}
	}
	if !c.quiet {
		fmt.Fprintf(c.Stdout, "Slurm config saved to %s\n", file)
	}
	return nil
}

// configText writes a configuration: settings, nodes, partitions.
func configText(cfg *model.Config) string {
	var b strings.Builder
	b.WriteString("# Settings in effect, written by gcontrol write config; gbatch check reads this file.\n")
	for _, kv := range cfg.Show {
		if value, ok := setting(kv); ok {
			fmt.Fprintf(&b, "%s=%s\n", kv.Key, value)
		}
	}
	for _, d := range slices.Concat(cfg.Nodes, cfg.Future) {
		b.WriteString(nodeLine(d))
	}
	for _, p := range cfg.Partitions {
		fmt.Fprintf(&b, "PartitionName=%s", p.Name)
		for _, kv := range p.Show {
			if value, ok := setting(kv); ok && kv.Key != "PartitionName" {
				fmt.Fprintf(&b, " %s=%s", kv.Key, value)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// setting gives a value as files have it, without its unit; false: it is not set.
func setting(kv model.KV) (string, bool) {
	switch v := kv.Value; {
	case v == "" || v == "(null)" || v == "N/A" || slices.Contains(shownOnly, kv.Key),
		v == "NONE" && (kv.Key == "OverTimeLimit" || kv.Key == "DefaultTime" || kv.Key == "SelectTypeParameters"),
		v == "ALL" && kv.Key == "AllocNodes":
		return "", false
	default:
		for _, unit := range []string{" sec", " min", " hours", " percent", " usec"} {
			v = strings.TrimSuffix(v, unit)
		}
		if strings.ContainsAny(v, " \t#\"") {
			v = `"` + strings.ReplaceAll(v, `"`, `\"`) + `"`
		}
		return v, true
	}
}

func nodeLine(d *model.NodeDef) string {
	var b strings.Builder
	fmt.Fprintf(&b, "NodeName=%s CPUs=%d RealMemory=%d", d.Name, d.CPUs, d.MemMiB)
	if d.Sockets > 0 {
		fmt.Fprintf(&b, " Sockets=%d CoresPerSocket=%d ThreadsPerCore=%d", d.Sockets, d.CoresPerSocket, d.ThreadsPerCore)
	}
	if d.Addr != "" {
		fmt.Fprintf(&b, " NodeAddr=%s", d.Addr)
	}
	if d.Host != "" {
		fmt.Fprintf(&b, " NodeHostname=%s", d.Host)
	}
	if text := jobtext.GresOf(d); text != "" {
		fmt.Fprintf(&b, " Gres=%s", text)
	}
	if d.TmpMiB > 0 {
		fmt.Fprintf(&b, " TmpDisk=%d", d.TmpMiB)
	}
	if d.Weight > 1 {
		fmt.Fprintf(&b, " Weight=%d", d.Weight)
	}
	if len(d.Features) > 0 {
		fmt.Fprintf(&b, " Feature=%s", strings.Join(d.CanHave(), ","))
	}
	if d.Future {
		b.WriteString(" State=FUTURE")
	}
	b.WriteString("\n")
	return b.String()
}
