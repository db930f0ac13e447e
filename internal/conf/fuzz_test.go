package conf

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// FuzzLoad feeds text to all four files at once. The limits hold, nothing panics, and there is a Config exactly if
// there are no errors.
func FuzzLoad(f *testing.F) {
	for _, dir := range []string{"samples", "ten", "full"} {
		var parts []string
		for _, name := range []string{MainFile, GresFile, CgroupFile, TopologyFile} {
			text, err := os.ReadFile("testdata/" + dir + "/" + name)
			if err != nil && name == MainFile {
				text, err = os.ReadFile("testdata/" + dir + "/" + SlurmFile)
			}
			if err != nil {
				text = nil
			}
			parts = append(parts, string(text))
		}
		f.Add(parts[0], parts[1], parts[2], parts[3])
	}
	f.Add(base, "", "", "")
	f.Add(base+"NodeName=x[1-9] Gres=gpu:a:2K GresTypes=gpu", "Name=gpu Count=2K", "AllowedRAMSpace=1e9",
		"SwitchName=a Switches=a")
	f.Add(base+"A=\\\n\\\\\n\"#\" = \n Include ", "Links=-1", "", "BlockName=")
	f.Add(base+"TRESBillingWeights=Mem=9999999999.999999K PartitionName=p TRESBillingWeights=Mem=-.1K,cpu=1P", "", "", "")
	f.Fuzz(func(t *testing.T, main, gres, cgroup, topology string) {
		if len(main)+len(gres)+len(cgroup)+len(topology) > 1<<16 {
			return
		}
		for _, name := range []string{MainFile, SlurmFile} {
			fsys := fstest.MapFS{name: {Data: []byte(main)}, GresFile: {Data: []byte(gres)}, CgroupFile: {Data: []byte(cgroup)},
				TopologyFile: {Data: []byte(topology)}}
			c, problems := LoadFS(fsys, name)
			if (c == nil) != HasErrors(problems) {
				t.Fatalf("config %v with %s", c != nil, lines(problems))
			}
			if len(problems) > MaxProblems+1 {
				t.Fatalf("%d problems", len(problems))
			}
			for _, p := range problems {
				if s := p.String(); strings.Contains(s, "\n") || len(s) > 2000 {
					t.Fatalf("a problem of %d bytes: %q", len(s), s)
				}
			}
			if c == nil {
				continue
			}
			if m := c.Model(); len(m.Nodes) > len(c.Nodes) || len(m.Partitions) != len(c.Partitions) {
				t.Fatalf("%d nodes, %d partitions replicated", len(m.Nodes), len(m.Partitions))
			}
			for _, n := range c.Nodes {
				if n.CPUs < 1 || n.CPUs > 65533 || n.Sockets < 1 {
					t.Fatalf("%+v", n)
				}
			}
		}
	})
}

// bigConfig has n nodes in groups of a hundred, one line per group or per node.
func bigConfig(n int, oneByOne bool) fstest.MapFS {
	var b strings.Builder
	b.WriteString("ClusterName=big\nSlurmctldHost=c\nGresTypes=gpu\nTopologyPlugin=topology/tree\nNodeName=DEFAULT " +
		"Sockets=2 CoresPerSocket=64 ThreadsPerCore=2 RealMemory=1000000 Gres=gpu:a100:8\n")
	var topology strings.Builder
	for g := range n / 100 {
		first, last := g*100+1, g*100+100
		if oneByOne {
			for i := first; i <= last; i++ {
				fmt.Fprintf(&b, "NodeName=n%05d NodeAddr=10.%d.%d.%d Features=rack%d,a100\n", i, g/100, g%100, i%100, g)
			}
		} else {
			fmt.Fprintf(&b, "NodeName=n[%05d-%05d] Features=rack%d,a100\n", first, last, g)
		}
		fmt.Fprintf(&topology, "SwitchName=s%d Nodes=n[%05d-%05d]\n", g, first, last)
		fmt.Fprintf(&b, "PartitionName=p%d Nodes=n[%05d-%05d]\n", g, first, last)
	}
	fmt.Fprintf(&topology, "SwitchName=top Switches=s[0-%d]\n", n/100-1)
	b.WriteString("PartitionName=all Nodes=ALL Default=YES MaxTime=7-0\n")
	var gres strings.Builder
	for i := range 8 {
		fmt.Fprintf(&gres, "Name=gpu Type=a100 File=/dev/nvidia%d Cores=%d-%d\n", i, i*16, i*16+15)
	}
	return fstest.MapFS{MainFile: {Data: []byte(b.String())}, GresFile: {Data: []byte(gres.String())},
		TopologyFile: {Data: []byte(topology.String())}}
}

func benchmarkLoad(b *testing.B, oneByOne bool) {
	fsys := bigConfig(10_000, oneByOne)
	b.ReportAllocs()
	for b.Loop() {
		if c, problems := LoadFS(fsys, MainFile); c == nil || len(problems) > 0 || len(c.Nodes) != 10_000 {
			b.Fatal(lines(problems))
		}
	}
}

func BenchmarkLoad10000Nodes(b *testing.B)         { benchmarkLoad(b, false) }
func BenchmarkLoad10000NodesOneByOne(b *testing.B) { benchmarkLoad(b, true) }

func BenchmarkModel10000Nodes(b *testing.B) {
	c, _ := LoadFS(bigConfig(10_000, false), MainFile)
	b.ReportAllocs()
	for b.Loop() {
		c.Model()
	}
}
