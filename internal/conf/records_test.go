package conf

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/price"
)

func TestNodes(t *testing.T) {
	c := mustLoad(t, `GresTypes=gpu,mps,bandwidth
NodeName=a CPUs=8
NodeName=b CPUs=8 CoresPerSocket=2 ThreadsPerCore=2
NodeName=c Sockets=2 CoresPerSocket=4 ThreadsPerCore=2
NodeName=d Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 CPUs=8
NodeName=e Boards=2 SocketsPerBoard=2 CoresPerSocket=4
NodeName=f Procs=4 RealMemory=4G TmpDisk=10000
NodeName=g[1-3] NodeHostname=h[1-3] NodeAddr=10.0.0.[1-3] Port=[7001-7003] Feature=x,y
NodeName=v[1-2] NodeAddr=127.0.0.1 Virtual=YES Gres=gpu:a100:4,gpu:h100:2,mps:400,bandwidth:lustre:no_consume:4K,gpu:l4
NodeName=s[1-2] Gres=gpu:a100:2(S:0-1)
NodeName=DEFAULT Weight=5
NodeName=w1
NodeName=w2 weight=7
DownNodes=a,b State=FAIL Reason="broken fan"
`)
	hw := func(name string) [5]int64 {
		n, ok := c.Node(name)
		if !ok {
			t.Fatalf("no node %s", name)
		}
		return [5]int64{n.CPUs, n.Boards, n.Sockets, n.CoresPerSocket, n.ThreadsPerCore}
	}
	for name, want := range map[string][5]int64{
		"a": {8, 1, 8, 1, 1}, "b": {8, 1, 2, 2, 2}, "c": {16, 1, 2, 4, 2}, "d": {8, 1, 2, 4, 2}, "e": {16, 2, 4, 4, 1},
		"f": {4, 1, 4, 1, 1},
	} {
		if got := hw(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	f, _ := c.Node("f")
	if f.RealMemoryMiB != 4096 || f.TmpDiskMiB != 10000 {
		t.Errorf("f: %+v", f)
	}
	g, _ := c.Node("g2")
	if g.Hostname != "h2" || g.Addr != "10.0.0.2" || g.Port != 7002 || !slices.Equal(g.Features, []string{"x", "y"}) {
		t.Errorf("g2: %+v", g)
	}
	v, _ := c.Node("v2")
	want := []GresCount{{"gpu", "a100", 4, false}, {"gpu", "h100", 2, false}, {"mps", "", 400, false},
		{"bandwidth", "lustre", 4 << 10, true}, {"gpu", "l4", 1, false}}
	if !slices.Equal(v.Gres, want) || !v.Virtual || v.Addr != "127.0.0.1" || v.Hostname != "v2" {
		t.Errorf("v2: %+v", v)
	}
	if s, _ := c.Node("s1"); !slices.Equal(s.Gres, []GresCount{{"gpu", "a100", 2, false}}) {
		t.Errorf("s1: %+v", s.Gres)
	}
	for name, weight := range map[string]int64{"a": 1, "w1": 5, "w2": 7} {
		if n, _ := c.Node(name); n.Weight != weight {
			t.Errorf("%s: weight %d", name, n.Weight)
		}
	}
	a, _ := c.Node("a")
	if a.State != "FAIL" || a.Reason != "broken fan" || a.Admin() != model.NodeDrain || v.Admin() != model.NodeUp {
		t.Errorf("a: %+v", a)
	}
}

func TestPartitions(t *testing.T) {
	c := mustLoad(t, `NodeName=x1 Features=big
DefMemPerCPU=1000 MaxMemPerNode=4000 DisableRootJobs=YES
NodeSet=bigs Feature=big Nodes=n1
PartitionName=DEFAULT MaxTime=1-0 Hidden=YES
PartitionName=a,b Nodes=bigs,n[1-2] AllowGroups=g1,g2 DenyAccounts=x State=DRAIN
PartitionName=DEFAULT Hidden=NO
PartitionName=c Nodes="" MaxTime=UNLIMITED DefaultTime=0:30 MaxNodes=UNLIMITED MinNodes=2 AllowAccounts=ALL DefMemPerNode=2G DisableRootJobs=NO
PartitionName=d Nodes=ALL MaxTime=INFINITE DefaultTime=UNLIMITED TRESBillingWeights="CPU=1.5,Mem=.25G,GRES/gpu:a100=-2,license/x=3K" OverTimeLimit=2
`)
	a, _ := c.Partition("a")
	b, ok := c.Partition("b")
	if !ok || !slices.Equal(a.Nodes, []string{"n1", "x1", "n2"}) || !slices.Equal(a.Nodes, b.Nodes) {
		t.Errorf("nodes %v, %v", a.Nodes, b.Nodes)
	}
	if !a.Hidden || a.MaxTimeS != 86400 || a.State != "DRAIN" || !slices.Equal(a.AllowGroups, []string{"g1", "g2"}) ||
		!slices.Equal(a.DenyAccounts, []string{"x"}) || !a.DisableRootJobs {
		t.Errorf("a: %+v", a)
	}
	if a.Mem != (MemLimits{DefPerCPUMiB: 1000, MaxPerNodeMiB: 4000}) {
		t.Errorf("a: %+v", a.Mem)
	}
	p, _ := c.Partition("c")
	if p.Hidden || len(p.Nodes) != 0 || p.MaxTimeS != model.Unlimited || p.DefaultTimeS != 30 || p.MaxNodes != 0 ||
		p.MinNodes != 2 || p.AllowAccounts != nil || p.DisableRootJobs {
		t.Errorf("c: %+v", p)
	}
	if p.Mem != (MemLimits{DefPerNodeMiB: 2048, MaxPerNodeMiB: 4000}) {
		t.Errorf("c: %+v", p.Mem)
	}
	d, _ := c.Partition("d")
	weights := []model.TRESWeight{{TRES: "cpu", Micros: 1_500_000, Per: 1}, {TRES: "mem", Micros: 250_000, Per: 1024},
		{TRES: "gres/gpu:a100", Micros: -2_000_000, Per: 1}, {TRES: "license/x", Micros: 3_000_000, Per: 1024}}
	if !slices.Equal(d.TRESBillingWeights, weights) || d.DefaultTimeS != model.Unlimited || d.OverTimeLimitS != 120 ||
		len(d.Nodes) != 5 {
		t.Errorf("d: %+v", d)
	}
	if got := showTRESWeights(d.TRESBillingWeights); got != "cpu=1.5,mem=0.25G,gres/gpu:a100=-2,license/x=3K" {
		t.Errorf("weights: %s", got)
	}
}

func TestGres(t *testing.T) {
	const nodes = "GresTypes=gpu,mps\nNodeName=g[1-2] Sockets=2 CoresPerSocket=4 Gres=gpu:a100:4,mps:400\n"
	c := mustLoad(t, nodes, GresFile, `AutoDetect=nvml
NodeName=g1 AutoDetect=off Name=gpu Type=a100 File=/dev/nvidia[0-1] Cores=0-3 Flags=nvidia_gpu_env
NodeName=g1 Name=gpu Type=a100 Count=2 File=/dev/nvidia2,/dev/nvidia3 Cores=4-7
NodeName=g2 Name=gpu Type=a100 File=/dev/nvidia0 Links=-1,2,0,0
NodeName=g2 Name=gpu Type=a100 File=/dev/nvidia1 Links=0
NodeName=g2 Name=gpu Type=a100 MultipleFiles=/dev/nvidia2,/dev/nvidia-caps/nvidia-cap[1-2]
NodeName=g2 Name=gpu Type=a100 File=/dev/nvidia3
Name=mps Count=400 File=/dev/nvidia[0-3]
`)
	g1, auto := c.Gres.For("g1")
	if auto != "off" || len(g1) != 3 {
		t.Fatalf("g1: %s %v", auto, g1)
	}
	if !slices.Equal(g1[1].Files, []string{"/dev/nvidia2", "/dev/nvidia3"}) || g1[1].Count != 2 ||
		!slices.Equal(g1[1].Cores, []int{4, 5, 6, 7}) || g1[2].Count != 400 {
		t.Errorf("g1: %+v", g1)
	}
	g2, auto := c.Gres.For("g2")
	if auto != "nvml" || len(g2) != 5 {
		t.Fatalf("g2: %s %v", auto, g2)
	}
	if !slices.Equal(g2[0].Links.Counts, []int{-1, 2, 0, 0}) || !slices.Equal(g2[1].Links.Peers, []int{0}) ||
		g2[2].Count != 1 || len(g2[2].MultipleFiles) != 3 {
		t.Errorf("g2: %+v", g2)
	}
	if r, auto := c.Gres.For("n1"); len(r) != 1 || auto != "nvml" { // the mps line has no NodeName
		t.Errorf("n1: %s %+v", auto, r)
	}

	for line, want := range map[string]string{
		"Name=gpu File=/dev/nvidia[0-1] Count=3":   "gres.conf:1: Count=3 but File names 2; remove Count",
		"Name=mps File=/dev/nvidia[0-2] Count=400": "gres.conf:1: Count=400 can't be divided evenly over 3 files",
		"Name=gpu File=nvidia0": `gres.conf:1: File: "nvidia0" is not an absolute path; write ` +
			`File=/dev/nvidia[0-7]`,
		"Name=gpu File=/dev/nvidia[0": `gres.conf:1: File: "/dev/nvidia[0" at character 12: "[" is never ` +
			`closed; write File=/dev/nvidia[0-7]`,
		"Name=fpga Count=1": `gres.conf:1: resource "fpga" is not in GresTypes; write ` +
			`GresTypes=gpu,mps,fpga`,
		"NodeName=g[1-3] Name=gpu Type=a100 Count=4": "gres.conf:1: gres.conf names g3, which no NodeName line " +
			"defines; add a NodeName line for it",
		"NodeName=g1 Name=gpu Type=a100 Count=2": "gbatch.conf:6: g1: Gres=gpu:a100:4, but gres.conf gives " +
			"only 2; write :2, or add to gres.conf",
		"NodeName=g[1-2] Name=gpu Count=5": "gbatch.conf:6: warning: g[1-2]: Gres=gpu:a100:4, but " +
			"gres.conf gives 5; the rest isn't used; write :5, or remove from gres.conf",
		"NodeName=g1 Name=gpu Type=a100 Count=4 Cores=8": "gres.conf:1: Cores=8: node g1 has 8 cores; write cores from " +
			"0 to 7",
		"NodeName=g1 Name=gpu Type=a100 Count=4 Links=-1,-1": "gres.conf:1: Links has -1 2 times; write one number per " +
			"device, -1 for the device itself",
		"NodeName=g1 Name=gpu File=/dev/nvidia[0-3] Links=1": "gres.conf:1: Links is for one device, but File names 4; " +
			"write one line per device",
		"Cores=0-3": "gres.conf:1: the line names no resource; write Name=gpu in front",
		"NodeName=g[1-2] Name=gpu File=/dev/nvidia[0-2]\nName=gpu File=/dev/nvidia2": "gres.conf:2: File=/dev/nvidia2 " +
			"already belongs to gpu in line 1; name each device once",
		"NodeName=g[1-2] Name=gpu File=/dev/nvidia[0-2] UniqueId=GPU-1\nNodeName=g[1-2] Name=gpu File=/dev/nvidia3 " +
			"UniqueId=GPU-1": "gres.conf:2: UniqueId=GPU-1 already belongs to gpu in line 1; name each device once",
		"NodeName=g1 Name=gpu File=/dev/nvidia0 Links=-1,4\nNodeName=g1 Name=gpu File=/dev/nvidia[1-3]": "gres.conf:1: " +
			"Links has 2 numbers, but node g1 has 4 devices; write one number per device, -1 for the device itself",
		"AutoDetect=rsmi": `gres.conf:1: AutoDetect: gnoded can't ask rsmi for devices: give their files in gres.conf, ` +
			`Name=gpu File=/dev/dri/renderD[128-131]; write AutoDetect=off`,
		"AutoDetect=magic": `gres.conf:1: AutoDetect: "magic" is not a known value; write AutoDetect=nvml, nvidia, off or ` +
			`fake:FILE`,
		"AutoDetect=nvml:/x": `gres.conf:1: AutoDetect: "nvml:/x": only fake takes a file; write AutoDetect=nvml, ` +
			`nvidia, off or fake:FILE`,
		"AutoDetect=fake:/x": "",
		"Name=gpu Typ=a100":  `gres.conf:1: unknown key "Typ" in gres.conf; did you mean Type?`,
		"NodeName=n1 Name=gpu Count=1": "gres.conf:1: note: n1: gres.conf gives gpu:1, which Gres on the NodeName line " +
			"doesn't name: no job can ask for it; write Gres=gpu:1 there",
		"Name=gpu Type=a100 Count=4 Endpoint=a:1": "gres.conf:1: Endpoint is for remote GPUs; write Name=gpu Type=remote",
		"Name=gpu Type=remote Endpoint=a:1 File=/dev/nvidia0": "gres.conf:1: a remote GPU has no device file here; leave " +
			"it out",
		"Name=gpu Type=remote Endpoint=a:1,b:2 Count=3": "gres.conf:1: Count=3 but Endpoint names 2; write one endpoint " +
			"for each GPU, or one for all",
		"Name=gpu Type=remote Endpoint=a":       `gres.conf:1: Endpoint: "a" is not host:port; write Endpoint=gpusrv[1-4]:50051`,
		"Name=gpu Type=remote Endpoint=a:70000": `gres.conf:1: Endpoint: "a:70000" is not host:port; write Endpoint=gpusrv[1-4]:50051`,
		"NodeName=n1 Name=gpu Type=remote Count=2": "gres.conf:1: remote GPUs without Endpoint: jobs could not " +
			"find them; write Endpoint=host:port, or GresHelper= in gbatch.conf",
	} {
		_, problems := LoadFS(files(nodes, GresFile, line), MainFile)
		got := ""
		if len(problems) > 0 {
			got = problems[0].String()
		}
		if got != want {
			t.Errorf("%q\n got %s\nwant %s", line, lines(problems), want)
		}
	}
}

func TestCgroup(t *testing.T) {
	if c := mustLoad(t, ""); !c.Cgroup.ConstrainCores || !c.Cgroup.ConstrainDevices || !c.Cgroup.ConstrainRAMSpace ||
		c.Cgroup.ConstrainSwapSpace {
		t.Errorf("without cgroup.conf: %+v", c.Cgroup)
	}
	c := mustLoad(t, "", CgroupFile, "constraincores=yes AllowedRAMSpace=101.5%\nMinRAMSpace=64\nMemorySwappiness=10")
	want := defaultCgroup()
	want.ConstrainDevices, want.ConstrainRAMSpace = false, false
	want.AllowedRAMSpacePct, want.MinRAMSpaceMiB, want.MemorySwappiness = 101.5, 64, 10
	if c.Cgroup != want {
		t.Errorf("%+v", c.Cgroup)
	}
	for line, want := range map[string]string{
		"AllowedRAMSpace=-1": `cgroup.conf:1: AllowedRAMSpace: "-1" is not a percentage from 0 to 10000; write ` +
			`AllowedRAMSpace=a number such as 100 or 95.5`,
		"AllowedRAMSpace=NaN": `cgroup.conf:1: AllowedRAMSpace: "NaN" is not a percentage from 0 to 10000; write ` +
			`AllowedRAMSpace=a number such as 100 or 95.5`,
		"CgroupPlugin=cgroup/v3": `cgroup.conf:1: CgroupPlugin: "cgroup/v3" is not a known value; write ` +
			`CgroupPlugin=cgroup/v1`,
		"ConstrainKmemSpace=no": `cgroup.conf:1: note: ConstrainKmemSpace in cgroup.conf is obsolete: kernel memory isn't ` +
			`limited by itself; remove it`,
	} {
		_, problems := LoadFS(files("", CgroupFile, line), MainFile)
		if got := lines(problems); got != want {
			t.Errorf("%q\n got %s\nwant %s", line, got, want)
		}
	}
}

func TestTopology(t *testing.T) {
	c := mustLoad(t, "TopologyPlugin=topology/tree", TopologyFile, `SwitchName=s0 Nodes=n[1-2]
SwitchName=s1 Nodes=n[3-4] LinkSpeed=100
SwitchName=top Switches=s[0-1]
`)
	if got := c.Topology.Path("n3"); !slices.Equal(got, []string{"s1", "top"}) {
		t.Errorf("path of n3: %v", got)
	}
	if got := c.Topology.Path("zz"); got != nil {
		t.Errorf("path of zz: %v", got)
	}
	// A fat tree: switches side by side are one.
	c, problems := LoadFS(files("TopologyPlugin=topology/tree", TopologyFile, "SwitchName=root Switches=t[0-1],u\n"+
		"SwitchName=s0 Nodes=n[1-2]\nSwitchName=s1 Nodes=n3\nSwitchName=u Nodes=n4\nSwitchName=t0 Switches=s[0-1]\n"+
		"SwitchName=t1 Switches=s1,s0\n"), MainFile)
	const same = "topology.conf:6: note: switch t1 is above the same ones as t0, which stands for both; remove it"
	if c == nil || lines(problems) != same {
		t.Fatalf("a fat tree\n got %s\nwant %s", lines(problems), same)
	}
	if got := c.Topology.Path("n3"); len(c.Topology.Switches) != 5 || !slices.Equal(got, []string{"s1", "t0", "root"}) {
		t.Errorf("path of n3 in a fat tree: %v, %d switches", got, len(c.Topology.Switches))
	}
	// With a level of cores, each above one switch of every pod.
	c, problems = LoadFS(files("TopologyPlugin=topology/tree", TopologyFile, "SwitchName=c0 Switches=p0a0,p1a0\n"+
		"SwitchName=c1 Switches=p0a1,p1a1\nSwitchName=p0a0 Switches=s0,s1\nSwitchName=p0a1 Switches=s0,s1\n"+
		"SwitchName=p1a0 Switches=s2\nSwitchName=p1a1 Switches=s2\nSwitchName=s0 Nodes=n1\nSwitchName=s1 Nodes=n2\n"+
		"SwitchName=s2 Nodes=n[3-4]\n"), MainFile)
	if c == nil || len(c.Topology.Switches) != 6 || !slices.Equal(c.Topology.Path("n3"), []string{"s2", "p1a0", "c0"}) {
		t.Fatalf("a fat tree of three levels: %s", lines(problems))
	}
	c = mustLoad(t, "TopologyPlugin=topology/block", TopologyFile,
		"BlockName=b0 Nodes=n[1-2]\nBlockName=b1 Nodes=n[3-4]\nBlockSizes=2\n")
	if m := c.Model().Blocks; m == nil || len(m.List) != 2 || m.Sizes[0] != 2 ||
		m.List[1].Name != "b1" || !slices.Equal(m.List[1].Nodes, []string{"n3", "n4"}) {
		t.Errorf("blocks: %+v", m)
	}
	for text, want := range map[string]string{
		"SwitchName=a Switches=b\nSwitchName=b Switches=a": "topology.conf:1: switch a is below " +
			"itself; remove one of the Switches",
		"SwitchName=a Switches=a": "topology.conf:1: switch a is below " +
			"itself; remove one of the Switches",
		"SwitchName=a Nodes=n[1-9]": "topology.conf:1: switch a names " +
			"n[5-9], which no NodeName line defines; add a NodeName line for it",
		"SwitchName=a Nodes=n[1-4]\nSwitchName=a Nodes=n1": "topology.conf:2: switch a is " +
			"defined twice, first in line 1; remove one of the lines",
		"SwitchName=a Nodes=n[1-4]\nSwitchName=b Nodes=n1": "topology.conf:2: node n1 is on " +
			"both switch a and b; name it in one of them",
		"SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[3-4]\nSwitchName=c Switches=a\nSwitchName=d " +
			"Switches=a,b": "topology.conf:4: switch a is below both c and d; name it in one of them",
		"SwitchName=a Switches=zz": "topology.conf:1: switch a names switch zz, which isn't defined; add a " +
			"SwitchName line for it",
		"SwitchName=a": "topology.conf:1: switch a needs either nodes or switches; write either " +
			"Nodes= or Switches=",
		"SwitchName=a Nodes=n[1-3]": "topology.conf:1: warning: n4 is on no switch: no job uses it together with " +
			"other nodes; add them to a SwitchName line",
		"Switch=a": `topology.conf:1: unknown key "Switch" in topology.conf; ` +
			`did you mean SwitchName?`,
		"SwitchName=a[1-2] Nodes=n[1-4]": `topology.conf:1: SwitchName="a[1-2]" is not one name; write one line per switch`,
	} {
		_, problems := LoadFS(files("TopologyPlugin=topology/tree", TopologyFile, text), MainFile)
		if len(problems) == 0 || problems[0].String() != want {
			t.Errorf("%q\n got %s\nwant %s", text, lines(problems), want)
		}
	}
}

const twoTopologies = `# a tree and blocks of the same nodes
- topology: fabric
  cluster_default: true
  tree:
    switches:
      - switch: top
        children: s[0-1]
      - switch: s0
        nodes: n[1-2]
      - switch: s1
        nodes: n[3-4]
- topology: nvl
  cluster_default: False
  block:
    block_sizes:
      - 2
      - 4
    blocks:
      - {block: b0, nodes: "n1,n3"}
      - block: b1
        nodes: [n2, n4]
- topology: none
  flat: true
`

// TestTopologies: topology.yaml has several topologies, of which partitions and nodes name some.
func TestTopologies(t *testing.T) {
	with := "PartitionName=b Nodes=ALL Topology=nvl\nPartitionName=f Nodes=ALL Topology=none"
	c := mustLoad(t, with, TopologiesFile, twoTopologies, TopologyFile, "SwitchName=x Nodes=n9")
	m := c.Model()
	if c.TopologyPlugin != topologyTree || len(m.Topologies) != 3 || m.Switches != nil || m.Blocks != nil {
		t.Fatalf("%s: %+v", c.TopologyPlugin, m)
	}
	for i, want := range []int{0, 1, 2} {
		if got := m.NetworkOf(m.Partitions[i]); got != want {
			t.Errorf("partition %s: topology %d", m.Partitions[i].Name, got)
		}
	}
	if top := m.Topologies[0].Switches[0]; top.Level != 1 || !slices.Equal(top.Children, []string{"s0", "s1"}) {
		t.Errorf("%+v", top)
	}
	if b := m.Topologies[1].Blocks; !slices.Equal(b.Sizes, []int32{2, 4}) ||
		!slices.Equal(b.List[1].Nodes, []string{"n2", "n4"}) {
		t.Errorf("%+v", b)
	}
	_, problems := LoadFS(files(with+"\nTopologyPlugin=topology/tree", TopologiesFile, twoTopologies, TopologyFile, "x"),
		MainFile)
	want := "gbatch.conf:7: note: TopologyPlugin has no effect: topology.yaml says of what kind each topology is; " +
		"remove it\n" +
		"topology.conf: note: it is ignored: there is a topology.yaml, which counts; remove one of the two"
	if lines(problems) != want {
		t.Errorf("got %s\nwant %s", lines(problems), want)
	}
	for _, x := range []struct{ main, yaml, want string }{
		{"PartitionName=b Nodes=ALL Topology=nvlink", twoTopologies, `gbatch.conf:5: partition b: Topology="nvlink": ` +
			`there is ` +
			`no such topology; write one of fabric, nvl, none`},
		{"NodeName=m1 Topology=nvl:b2", twoTopologies, `gbatch.conf:5: node m1: topology nvl has no block "b2"; add it to ` +
			`topology.yaml, where it may have no nodes, and run gcontrol reconfigure`},
		{"NodeName=m1 Topology=fabric:s1:s0", twoTopologies, `gbatch.conf:5: node m1: in topology fabric, switch s0 is not ` +
			`right below s1; write the leaf switch alone`},
		{"NodeName=m1 Topology=fabric:top", twoTopologies, `gbatch.conf:5: node m1: in topology fabric, switch top has ` +
			`switches below it; name a leaf switch`},
		{"NodeName=m1 Topology=s1", twoTopologies, `gbatch.conf:5: node m1: Topology="s1": "s1" is not TOPOLOGY:UNIT; ` +
			`write ` +
			`Topology=fabric:UNIT`},
		{"NodeName=m1 Topology=none:x", twoTopologies, `gbatch.conf:5: node m1: in topology none all nodes are alike; ` +
			`leave ` +
			`it out`},
		{"NodeName=m1 Topology=fabric:top:s1,nvl:b0", twoTopologies, ""},
		{"", "- topology: a\n  block:\n    block_sizes: [2, 6]\n    blocks:\n    - {block: x, nodes: ALL}\n",
			`topology.yaml:3: block_sizes="2,6": "6" is not a power of two times the first size, larger than the one before; ` +
				`write the nodes of a block, then those of larger ones: 18,36,72`},
		{"", "- topology: a\n  tree:\n    switches:\n    - switch: x\n      nodes: n[1-3]\n",
			`topology.yaml:1: warning: n4 is in no switch of topology a: no job uses it together with other nodes; add it ` +
				`to one, or give its partitions another Topology=`},
		{"", "- topology: a\n  tree:\n    switches:\n    - switch: x\n      nodes: n[1-5]\n",
			`topology.yaml:5: switch x names n5, which no NodeName line defines; add a NodeName line for it`},
		{"", "- topology: a\n  flat: true\n- topology: a\n  flat: true\n",
			`topology.yaml:3: topology a is defined twice, first in line 1; give each its own name`},
		{"", "- topology: a\n  tree: [\n", "topology.yaml:2: it is not YAML: did not find expected node content; mend it, " +
			"and try again with gbatch check"},
	} {
		_, problems := LoadFS(files(x.main, TopologiesFile, x.yaml), MainFile)
		if got := lines(problems); got != x.want {
			t.Errorf("%q\n got %s\nwant %s", x.main+x.yaml, got, x.want)
		}
	}
	_, problems = LoadFS(files("PartitionName=b Nodes=ALL Topology=a"), MainFile)
	if got, want := lines(problems), `gbatch.conf:5: partition b: Topology="a": there is no topology.yaml that defines `+
		`topologies; write one (man topology.yaml), or leave Topology= out`; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// TestMovedNode: a node with Topology= is where that says, in the topologies that it names.
func TestMovedNode(t *testing.T) {
	m := mustLoad(t, "NodeName=m1 Topology=nvl:b0\nNodeName=m2 Topology=fabric:top:s1,nvl:b1", TopologiesFile,
		twoTopologies).Model()
	m.Nodes[0].Topology = "nvl:b1" // n1, by an operator
	nets := m.Networks()
	if got := nets[0].Switches[2].Nodes; !slices.Equal(got, []string{"n3", "n4", "m2"}) {
		t.Errorf("s1: %v", got)
	}
	for i, want := range [][]string{{"n3", "m1"}, {"n2", "n4", "n1", "m2"}} {
		if got := nets[1].Blocks.List[i].Nodes; !slices.Equal(got, want) {
			t.Errorf("block %d: %v", i, got)
		}
	}
	if got := m.Topologies[1].Blocks.List[0].Nodes; !slices.Equal(got, []string{"n1", "n3"}) {
		t.Errorf("the file's block has changed: %v", got)
	}
	if err := NodeTopology(m, "nvl:b9"); err == nil {
		t.Error("block b9 is none")
	}
}

func TestTopologyParam(t *testing.T) {
	for value, want := range map[string]string{
		"TopoOptional,Dragonfly": "",
		"RouteTree": "gbatch.conf:5: note: TopologyParam=RouteTree has no effect: the controller talks to " +
			"each node itself; remove it",
		"TopoMaxSizeUnroll=8": "gbatch.conf:5: note: TopologyParam=TopoMaxSizeUnroll=8 has no effect: every number of " +
			"nodes from the " +
			"least to the most is tried; remove it",
		"SwitchAsNodeRank": "gbatch.conf:5: note: TopologyParam=SwitchAsNodeRank has no effect: a job's nodes are in " +
			"the order of " +
			"the NodeName lines; write these in the order of the switches",
		"TopoOptional=1": `gbatch.conf:5: TopologyParam: "TopoOptional=1" is not a parameter of topologies; write ` +
			`TopologyParam=TopoOptional`,
		"TopoOption": `gbatch.conf:5: TopologyParam: "TopoOption" is not a known value; write TopologyParam=TopoOptional`,
	} {
		_, problems := LoadFS(files("TopologyParam="+value), MainFile)
		if got := lines(problems); got != want {
			t.Errorf("%s\n got %s\nwant %s", value, got, want)
		}
	}
	if m := mustLoad(t, "TopologyParam=topooptional").Model(); !m.Params.TopoOptional || m.Params.Dragonfly {
		t.Error("TopoOptional is lost")
	}
}

func TestControllers(t *testing.T) {
	c := mustLoad(t, "SlurmctldPort=7000\nSlurmctldHost=b(10.0.0.2:7001)\nSlurmctldHost=c.example.org(::1)\n"+
		"AccountingStorageHost=acct AccountingStoragePort=7009")
	want := []Controller{{"ctl", "ctl:7000"}, {"b", "10.0.0.2:7001"}, {"c.example.org", "[::1]:7000"}}
	if !slices.Equal(c.Controllers, want) || c.DbdAddr != "acct:7009" {
		t.Errorf("%v, %s", c.Controllers, c.DbdAddr)
	}
	for name, addr := range map[string]string{"ctl": "ctl:7000", "CTL.example.org": "ctl:7000", "c": "[::1]:7000",
		"zz": "", "10.0.0.9": ""} {
		if ctl, ok := c.Controller(name); ctl.Addr != addr || ok != (addr != "") {
			t.Errorf("Controller(%s) = %v, %v", name, ctl, ok)
		}
	}
	old := strings.Replace(base, "SlurmctldHost=ctl", "ControlMachine=old ControlAddr=10.1.1.1\nBackupController=spare", 1)
	c, problems := LoadFS(map2fs(old), MainFile)
	if c == nil || !slices.Equal(c.Controllers, []Controller{{"old", "10.1.1.1:6817"}, {"spare", "spare:6817"}}) {
		t.Errorf("old keys: %s", lines(problems))
	}
	c, problems = LoadFS(map2fs(strings.Replace(base, "SlurmctldHost=ctl\n", "", 1)), MainFile)
	if c != nil || lines(problems) != "gbatch.conf: no SlurmctldHost: the cluster has no controller; write "+
		"SlurmctldHost=name or SlurmctldHost=name(address)" {
		t.Errorf("none: %s", lines(problems))
	}
}

func TestScheduler(t *testing.T) {
	c := mustLoad(t, "SchedulerParameters=bf_interval=60,defer,max_script_size=1000000\nbf_window=2880\nbf_continue=no\n"+
		"default_queue_depth=50")
	s := c.Scheduler
	if s.Backfill.IntervalS != 60 || !s.Defer || s.MaxScriptBytes != 1_000_000 || s.Backfill.WindowMin != 2880 ||
		s.Backfill.Continue || s.QueueDepth != 50 || s.Backfill.MaxJobTest != 500 {
		t.Errorf("%+v", s)
	}
	if v, ok := s.Param("BF_Window"); v != "2880" || !ok {
		t.Errorf("Param: %q, %v", v, ok)
	}
	c = mustLoad(t, "SchedulerParameters=defer SchedulerType=sched/builtin\nSchedulerParameters=bf_interval=5")
	if s := c.Scheduler; s.Defer || s.Backfill.IntervalS != 5 || s.Type != "sched/builtin" || len(s.Params) != 1 {
		t.Errorf("the later line counts: %+v", s)
	}
	c = mustLoad(t, "SelectType=select/linear")
	if c.Select.Unit != UnitNode || c.Select.Memory || !c.Model().Params.WholeNodes {
		t.Errorf("linear: %+v", c.Select)
	}
	if c = mustLoad(t, "SelectType=select/linear\nSelectTypeParameters=CR_Memory"); !c.Select.Memory {
		t.Errorf("linear, CR_Memory: %+v", c.Select)
	}
	c = mustLoad(t, "SelectType=select/cons_tres\nSelectTypeParameters=cr_cpu")
	if c.Select.Unit != UnitCPU || c.Select.Memory {
		t.Errorf("cr_cpu: %+v", c.Select)
	}
}

func TestEnforce(t *testing.T) {
	for in, want := range map[string]Enforce{
		"associations": {Associations: true}, "limits": {Associations: true, Limits: true},
		"safe":        {Associations: true, Limits: true, Safe: true},
		"qos,nosteps": {Associations: true, QOS: true, NoSteps: true},
		"all":         {Associations: true, Limits: true, QOS: true, Safe: true, WCKeys: true},
		"none":        {}, "0": {}, "1": {Associations: true}, "2": {Associations: true, Limits: true},
	} {
		if got, f := readEnforce(in); got != want || f.bad() {
			t.Errorf("%s: %+v, %v", in, got, f)
		}
	}
}

// TestModel: the replicated configuration equals the one in the files.
func TestModel(t *testing.T) {
	c := mustLoad(t, `GresTypes=gpu,mps Accounts=a,b DefaultAccount=a AccountingStorageEnforce=associations KillWait=7 MaxJobCount=99
SchedulerParameters=max_script_size=1234,default_queue_depth=17
NodeName=g1 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 Gres=gpu:a100:4,mps:100,gpu:h100:2 RealMemory=1000 Features=x Weight=3 TmpDisk=5 Virtual=1
NodeName=fut State=FUTURE
PartitionName=p Nodes=g1,fut MaxTime=60 State=DOWN MaxNodes=2 AllowAccounts=a OverSubscribe=EXCLUSIVE
`)
	m := c.Model()
	params := model.Params{
		KillWaitS: 7, MinJobAgeS: 300, NodeTimeoutS: 30, HeartbeatS: 10, MaxJobs: 99, MaxArraySize: 1001, JobRequeue: true,
		MemConsumed: true,
		CyclicCores: true, RequeueDelayS: 120,
		WholeCores: true, EnforceLimits: "NO", QueueDepth: 17, NeedAccount: true, MaxScript: 1234, MaxStored: 1 << 30,
		DefaultAccount: "a",
		SwitchWaitS:    300, GPUMemMarginMiB: 2000, MailProg: "/bin/mail",
		Priority: model.Priority{Multifactor: true, HalfLifeS: 604800, CalcPeriodS: 300, MaxAgeS: 604800,
			ResetPeriod: "NONE"}, Preempt: model.Preempt{Mode: "OFF", SliceS: 30, StopGraceS: 2},
		Backfill: model.Backfill{On: true, IntervalS: 30, ResolutionS: 60, MaxArrayResv: 20, MinIntervalUS: 2},
		Rules: model.NodeRules{Contain: true, UnkillableS: 60, BatchStartS: 10, HealthStates: []string{"ANY"},
			LaunchRetries: 3, LaunchBackoffS: 10, LaunchDrain: 3,
			MPI:      "none",
			MaxSteps: 40000, MaxTasks: 512, SampleS: 30, KillWaitS: 7, HeartbeatS: 10, GPUSampleS: 5, GPUForeign: "avoid",
			GPUForeignPct: 20,
			MIGProgram:    "/usr/bin/nvidia-smi", RebootS: 60, GresHelperS: 10},
		Ship:    model.ShipRules{MaxWaiting: 10_000, KeepRecords: 100_000, KeepBytes: 64 << 20, KeepS: 86400},
		Alerts:  model.AlertRules{LostS: 10, PassS: 60, RecordsPct: 50, DiskFreePct: 5, DiskSlowMS: 1000, CertDays: 30},
		Power:   model.PowerRules{SuspendS: -1, SuspendTimeoutS: 30, ResumeTimeoutS: 60, SuspendRate: 60, ResumeRate: 300},
		Price:   price.Table{Currency: "$", WarnPct: 80},
		Elastic: model.ElasticRules{GraceS: 30, PauseS: 60}, Cache: model.GPUCache{Tags: 2, TimeS: 3600}, ExpediteHoldS: 600,
		JobEvents: model.JobEvents{LimitS: 60, Parallel: 4},
	}
	if !reflect.DeepEqual(m.Params, params) {
		t.Errorf("params\n got %+v\nwant %+v", m.Params, params)
	}
	if m.Cluster != "t" || !slices.Equal(m.Accounts, []string{"a", "b"}) || m.Hash != c.Hash || len(m.Nodes) != 5 {
		t.Errorf("%+v", m)
	}
	g := &model.NodeDef{
		Name: "g1", Addr: "g1", CPUs: 16, Boards: 1, Sockets: 2, CoresPerSocket: 4, ThreadsPerCore: 2, MemMiB: 1000,
		TmpMiB: 5, Features: []string{"x"}, Weight: 3, Virtual: true,
		Gres: []model.GresDef{{Name: "gpu", Type: "a100", First: 0, Count: 4},
			{Name: "mps", Type: "a100", First: 0, Count: 68,
				Over: []model.Share{{GPU: 0, Count: 17}, {GPU: 1, Count: 17}, {GPU: 2, Count: 17}, {GPU: 3, Count: 17}}},
			{Name: "mps", Type: "h100", First: 68, Count: 32, Over: []model.Share{{GPU: 4, Count: 16}, {GPU: 5, Count: 16}}},
			{Name: "gpu", Type: "h100", First: 4, Count: 2}},
	}
	if got := m.Nodes[4]; !reflect.DeepEqual(got, g) {
		t.Errorf("g1\n got %+v\nwant %+v", got, g)
	}
	p := m.Partitions[1]
	if p.Name != "p" || !slices.Equal(p.Nodes, []string{"g1"}) || p.MaxTimeS != 3600 || p.DefTimeS != model.NotSet ||
		p.State != model.PartDown || p.MaxNodes != 2 || p.OverSubscribe != "EXCLUSIVE" {
		t.Errorf("p: %+v", p)
	}
	if m.Partitions[0].MaxTimeS != model.Unlimited {
		t.Errorf("main: %+v", m.Partitions[0])
	}
}

func TestExpandPath(t *testing.T) {
	if got := ExpandPath("/x/%n/%h/100%%", "node1", "host.example.org"); got != "/x/node1/host/100%" {
		t.Error(got)
	}
}

// TestGresReserved: units of lines with Flags=reserved are known, and not given to jobs.
func TestGresReserved(t *testing.T) {
	c := mustLoad(t, "GresTypes=gpu\nNodeName=g1 CPUs=8 Gres=gpu:t4:1,gpu:a100:3\n", GresFile,
		"NodeName=g1 Name=gpu Type=t4 File=/dev/nvidia0\nNodeName=g1 Name=gpu Type=a100 File=/dev/nvidia[1-2]\nNodeName=g1 "+
			"Name=gpu Type=a100 File=/dev/nvidia3 Flags=reserved\n")
	for _, n := range c.Model().Nodes {
		if n.Name == "g1" && (n.Gres[1].Off.String() != "3" || !n.Gres[0].Off.Empty()) {
			t.Errorf("%+v", n.Gres)
		}
	}
}
