package conf

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/golden"
	"gbatch/internal/hostlist"
)

// report writes a configuration as a person would want to review it.
func report(c *Config, problems []Problem) []byte {
	wd, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	var b strings.Builder
	for _, p := range problems {
		fmt.Fprintln(&b, p)
	}
	if c == nil {
		b.WriteString("refused\n")
		return []byte(b.String())
	}
	b.WriteString("\n")
	for _, kv := range c.KeyValues() {
		fmt.Fprintf(&b, "%-23s = %s\n", kv.Key, kv.Value)
	}
	order, lines := (&loader{cfg: c}).nodeLines()
	for _, at := range order {
		var names []string
		for _, n := range lines[at] {
			names = append(names, n.Name)
		}
		n := *lines[at][0]
		fmt.Fprintf(&b, "\nNodeName=%s", hostlist.Compress(names))
		for _, f := range nodeFields(&n) {
			fmt.Fprintf(&b, " %s=%s", f.key, f.value)
		}
		fmt.Fprintf(&b, " Addr=%s Reason=%q", n.Addr, n.Reason)
		records, auto := c.Gres.For(n.Name)
		for _, r := range records {
			fmt.Fprintf(&b, "\n   %s", r.String())
		}
		fmt.Fprintf(&b, "\n   AutoDetect=%q Switches=%v\n", auto, c.Topology.Path(n.Name))
	}
	for i := range c.Partitions {
		fmt.Fprintf(&b, "\nPartitionName=%s", c.Partitions[i].Name)
		for _, kv := range c.PartitionKeyValues(&c.Partitions[i]) {
			fmt.Fprintf(&b, " %s=%s", kv.Key, kv.Value)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "\n%+v\n%+v\n%+v\n", c.Cgroup, c.Enforce, c.Scheduler)
	return []byte(strings.ReplaceAll(b.String(), wd+"/", "/.../"))
}

// TestSamples: configurations of Slurm load unchanged, with one note per oddity.
func TestSamples(t *testing.T) {
	c, problems := Load("testdata/samples")
	golden.Compare(t, "testdata/samples.txt", report(c, problems))
	for _, p := range problems {
		if p.Severity != Note {
			t.Errorf("more than a note: %s", p)
		}
	}
}

// TestTenErrors: all errors in all files are reported at once.
func TestTenErrors(t *testing.T) {
	c, problems := Load("testdata/ten")
	golden.Compare(t, "testdata/ten.txt", report(c, problems))
}

// TestFull has every kind of line.
func TestFull(t *testing.T) {
	c, problems := Load("testdata/full")
	golden.Compare(t, "testdata/full.txt", report(c, problems))
}

// TestKeyTable lists every key with its status, so that a change of one is
// seen.
func TestKeyTable(t *testing.T) {
	var b strings.Builder
	seen := map[string]bool{}
	words := [...]string{Effective: "effective", Unused: "unused", Accepted: "accepted", Obsolete: "obsolete"}
	list := slices.Clone(mainSettings().list)
	slices.SortFunc(list, func(a, b setting) int { return byName(a.name, b.name) })
	for _, k := range list {
		if lower := strings.ToLower(k.name); seen[lower] {
			t.Errorf("%s stands twice in the table", k.name)
		} else {
			seen[lower] = true
		}
		if k.status <= Unused {
			fmt.Fprintf(&b, "%-32s %s %s\n", k.name, words[k.status], k.effect)
		} else {
			fmt.Fprintf(&b, "%-32s %s %s\n", k.name, words[k.status], k.note)
		}
	}
	golden.Compare(t, "testdata/keys.txt", []byte(b.String()))
}
