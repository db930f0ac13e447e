package hardware

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/conf"
	"gbatch/noded/gpu"
)

// TestMerge: lines of gres.conf against detected GPUs, in every way in which they can differ.
func TestMerge(t *testing.T) {
	four := `{"dir":"dev","devices":[
		{"count":2,"name":"NVIDIA H100 80GB HBM3","cpus":"0-3","links":[]},
		{"count":2,"name":"NVIDIA H100 80GB HBM3","cpus":"4-7","links":[]}]}`
	four = strings.ReplaceAll(strings.ReplaceAll(four, `,"links":[]},`, `},`), `,"links":[]}`, `}`) // all linked alike
	mig := `{"dir":"dev","devices":[{"type":"a100"},{"type":"a100","mig":[
		{"profile":"1g.10gb","uuid":"MIG-1","gi":7,"caps":["/dev/null"]},{"profile":"1g.10gb","uuid":"MIG-2","gi":8,"caps":["/dev/zero"]},{"profile":"2g.20gb","uuid":"MIG-3","gi":3,"caps":["/dev/full"]}]}]}`
	dead := `{"dir":"dev","devices":[{"count":2,"type":"h100"},{"type":"h100","lost":true,"links":[0,0,-1,0]},` +
		`{"type":"h100"}]}`
	for _, tc := range []struct {
		name, fake, node, gres string
		units                  string // name:type:index=file@near
		problem, note          string
	}{
		{name: "no lines: all that is found", fake: four, node: "Gres=gpu:h100:4",
			units: "gpu:h100:0=nvidia0@0-3 gpu:h100:1=nvidia1@0-3 gpu:h100:2=nvidia2@4-7 gpu:h100:3=nvidia3@4-7"},
		{name: "fewer configured than found", fake: four, node: "Gres=gpu:h100:2",
			units: "gpu:h100:0=nvidia0@0-3 gpu:h100:1=nvidia1@0-3",
			note: "2 more gpu are on this node than the Gres of its NodeName line, which are not used: DEV/nvidia2 (h100), " +
				"DEV/nvidia3 (h100)"},
		{name: "lines that fit", fake: four, node: "Gres=gpu:h100:4",
			gres:  "Name=gpu Type=h100 File=DEV/nvidia[0-1] Cores=0-3\nName=gpu Type=h100 File=DEV/nvidia[2-3] Cores=4-7",
			units: "gpu:h100:0=nvidia0@0-3 gpu:h100:1=nvidia1@0-3 gpu:h100:2=nvidia2@4-7 gpu:h100:3=nvidia3@4-7"},
		{name: "the order of the lines", fake: four, node: "Gres=gpu:4",
			gres:  "Name=gpu File=DEV/nvidia[2-3]\nName=gpu File=DEV/nvidia[0-1]",
			units: "gpu:h100:0=nvidia2@4-7 gpu:h100:1=nvidia3@4-7 gpu:h100:2=nvidia0@0-3 gpu:h100:3=nvidia1@0-3"},
		{name: "found and in no line", fake: four, node: "Gres=gpu:3", gres: "Name=gpu File=DEV/nvidia[0-2]",
			units: "gpu:h100:0=nvidia0@0-3 gpu:h100:1=nvidia1@0-3 gpu:h100:2=nvidia2@4-7",
			note:  "1 detected gpu is not in gres.conf and not used: DEV/nvidia3 (h100)"},
		{name: "another type", fake: four, node: "Gres=gpu:a100:1", gres: "Name=gpu Type=a100 File=DEV/nvidia0",
			problem: "gres.conf:2: Name=gpu Type=a100 File=DEV/nvidia0: it is NVIDIA H100 80GB HBM3, which is type h100"},
		{name: "a part of the product's name", fake: four, node: "Gres=gpu:H100_80GB:2",
			gres:  "Name=gpu Type=H100_80GB File=DEV/nvidia[0-1]",
			units: "gpu:H100_80GB:0=nvidia0@0-3 gpu:H100_80GB:1=nvidia1@0-3", note: "2 detected gpus are not in gres.conf"},
		{name: "other cores", fake: four, node: "Gres=gpu:h100:1", gres: "Name=gpu Type=h100 File=DEV/nvidia2 Cores=0-3",
			problem: "gres.conf:2: Name=gpu Type=h100 File=DEV/nvidia2: Cores=0-3, and the driver says 4-7"},
		{name: "other links", fake: four, node: "Gres=gpu:h100:4",
			gres:    "Name=gpu Type=h100 File=DEV/nvidia0 Links=-1,4,0,0\nName=gpu Type=h100 File=DEV/nvidia[1-3]",
			units:   "gpu:h100:0=nvidia1@0-3 gpu:h100:1=nvidia2@4-7 gpu:h100:2=nvidia3@4-7",
			problem: "gres.conf:2: Name=gpu Type=h100 File=DEV/nvidia0: Links=-1,4,0,0, and the driver says -1,18,18,18"},
		{name: "peers that are linked", fake: four, node: "Gres=gpu:h100:4",
			gres:  "Name=gpu Type=h100 File=DEV/nvidia0 Links=1\nName=gpu Type=h100 File=DEV/nvidia[1-3]",
			units: "gpu:h100:0=nvidia0@0-3 gpu:h100:1=nvidia1@0-3 gpu:h100:2=nvidia2@4-7 gpu:h100:3=nvidia3@4-7"},
		{name: "a file that is none", fake: four, node: "Gres=gpu:h100:1", gres: "Name=gpu Type=h100 File=DEV/nvidia9",
			problem: "gres.conf:2: Name=gpu Type=h100 File=DEV/nvidia9: DEV/nvidia9 does not exist on this node"},
		{name: "a file that is no GPU", fake: four, node: "Gres=gpu:h100:1", gres: "Name=gpu Type=h100 File=/dev/null",
			problem: "gres.conf:2: Name=gpu Type=h100 File=/dev/null: the driver has no such device; it finds gpu:h100:4"},
		{name: "more than found", fake: four, node: "Gres=gpu:h100:5", gres: "Name=gpu Type=h100 Count=5",
			units:   "gpu:h100:0=nvidia0@0-3 gpu:h100:1=nvidia1@0-3 gpu:h100:2=nvidia2@4-7 gpu:h100:3=nvidia3@4-7",
			problem: "gres.conf:2: Name=gpu Type=h100: the driver finds only gpu:h100:4"},
		{name: "by UUID", fake: mig, node: "Gres=gpu:1", gres: "Name=gpu UniqueId=MIG-2",
			units: "gpu:1g.10gb:0=nvidia1,/dev/zero@", note: "MIG-1 (1g.10gb)"},
		{name: "another UUID", fake: mig, node: "Gres=gpu:1", gres: "Name=gpu UniqueId=MIG-9",
			problem: "UniqueId=MIG-9: the driver has no such device; it finds gpu:a100:1,gpu:1g.10gb:2,gpu:2g.20gb:1"},
		{name: "instances by type", fake: mig, node: "Gres=gpu:a100:1,gpu:1g.10gb:2,gpu:2g.20gb:1",
			units: "gpu:a100:0=nvidia0@ gpu:1g.10gb:1=nvidia1,/dev/null@ gpu:1g.10gb:2=nvidia1,/dev/zero@ " +
				"gpu:2g.20gb:3=nvidia1,/dev/full@"},
		{name: "instances as mig", fake: mig, node: "Gres=gpu:a100:1,mig:1g.10gb:2,mig:2g.20gb:1",
			units: "gpu:a100:0=nvidia0@ mig:1g.10gb:0=nvidia1,/dev/null@ mig:1g.10gb:1=nvidia1,/dev/zero@ " +
				"mig:2g.20gb:2=nvidia1,/dev/full@"},
		{name: "instances by their files", fake: mig, node: "Gres=gpu:1g.10gb:1",
			gres:  "Name=gpu Type=1g.10gb MultipleFiles=DEV/nvidia1,/dev/zero",
			units: "gpu:1g.10gb:0=nvidia1,/dev/zero@", note: "3 detected gpus"},
		{name: "instances beside whole GPUs of their product", fake: strings.ReplaceAll(mig, `[{"type":"a100"},`, `[`),
			node:  "Gres=gpu:a100:1,gpu:1g.10gb:1",
			units: "gpu:1g.10gb:1=nvidia0,/dev/null@", note: "MIG-2 (1g.10gb), MIG-3 (2g.20gb)"},
		{name: "instances with the product's name", fake: mig, node: "Gres=gpu:a100:1,gpu:a100_1g.10gb:2",
			units: "gpu:a100:0=nvidia0@ gpu:a100_1g.10gb:1=nvidia1,/dev/null@ gpu:a100_1g.10gb:2=nvidia1,/dev/zero@",
			note:  "MIG-3 (2g.20gb)"},
		{name: "MIG mode and nothing in it", fake: `{"devices":[{"type":"a100","migMode":true}]}`, node: "Gres=gpu:a100:1",
			note: "is in MIG mode, and no instances of it are known"},
		{name: "a GPU that was lost before", fake: dead, node: "Gres=gpu:h100:4",
			gres:  "Name=gpu Type=h100 File=DEV/nvidia[0-3] Cores=0-3",
			units: "gpu:h100:0=nvidia0@0-3 gpu:h100:1=nvidia1@0-3 gpu:h100:2=nvidia2@0-3 gpu:h100:3=nvidia3@0-3",
			note:  "DEV/nvidia2 (h100) can't be used: the GPU has fallen off the bus, or no longer answers"},
		{name: "its links", fake: dead, node: "Gres=gpu:h100:4", gres: "Name=gpu Type=h100 File=DEV/nvidia[0-1]\n" +
			"Name=gpu Type=h100 File=DEV/nvidia2 Links=18,18,-1,18\nName=gpu Type=h100 File=DEV/nvidia3 Links=18,18,18,-1",
			units: "gpu:h100:0=nvidia0@ gpu:h100:1=nvidia1@ gpu:h100:2=nvidia2@ gpu:h100:3=nvidia3@", note: "can't be used"},
		{name: "a driver in trouble", fake: `{"error":"it hangs"}`, node: "Gres=gpu:1",
			problem: "the GPUs of this node are not known: fake GPUs: it hangs"},
		{name: "lines of a node without a driver", fake: "nvidia", node: "Gres=gpu:1", gres: "Name=gpu File=/dev/null",
			problem: "AutoDetect=nvidia: no NVIDIA driver is loaded"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, err := filepath.EvalSymlinks(t.TempDir())
			must(t, err)
			detect := "AutoDetect=fake:" + filepath.Join(dir, "gpus.json")
			if tc.fake == "nvidia" {
				detect = "AutoDetect=nvidia"
			} else {
				must(t, os.WriteFile(filepath.Join(dir, "gpus.json"), []byte(tc.fake), 0o644))
				_, _ = gpu.Fake(filepath.Join(dir, "gpus.json")).Devices() // makes the files that the configuration names
			}
			dev := filepath.Join(dir, "dev")
			must(t, os.WriteFile(filepath.Join(dir, "gbatch.conf"),
				[]byte("ClusterName=test\nSlurmctldHost=c1\nGresTypes=gpu,mig\nNodeName=n1 CPUs=8 "+tc.node+
					"\nPartitionName=main Nodes=n1\n"), 0o644))
			must(t, os.WriteFile(filepath.Join(dir, "gres.conf"),
				[]byte(detect+"\n"+strings.ReplaceAll(tc.gres, "DEV", dev)+"\n"), 0o644))
			c, problems := conf.Load(dir)
			if c == nil {
				t.Fatal(problems)
			}
			f := findGres(&Look{Name: "n1", Config: c, KernelRoot: dir}, []int{0, 1, 2, 3, 4, 5, 6, 7}, 1)
			var units []string
			for _, u := range f.units {
				files := strings.ReplaceAll(strings.Join(u.Files, ","), dev+"/", "")
				units = append(units, fmt.Sprintf("%s:%s:%d=%s@%s", u.Name, u.Type, u.Index, files, u.Near))
			}
			if got := strings.Join(units, " "); got != tc.units {
				t.Errorf("units\n%s\nwant\n%s", got, tc.units)
			}
			for _, x := range []struct {
				what, want string
				got        []string
			}{{"problems", tc.problem, f.problems}, {"notes", tc.note, f.notes}} {
				text := strings.ReplaceAll(strings.Join(x.got, "\n"), dev, "DEV")
				if x.want == "" && text != "" || !strings.Contains(text, x.want) {
					t.Errorf("%s %q, want %q", x.what, text, x.want)
				}
			}
		})
	}
}

// TestConnections: links and distances have the indexes that jobs get, whatever the order of the lines.
func TestConnections(t *testing.T) {
	f := &findings{}
	devices := []gpu.Device{
		{Index: 0, Links: []int{-1, 4, 0}, Near: []int{0, 10, 50}},
		{Index: 1, Links: []int{4, -1, 0}, Near: []int{10, 0, 50}},
		{Index: 2, Links: []int{0, 0, -1}, Near: []int{50, 50, 0}},
	}
	for i, d := range []int{2, 0, 1} {
		u := Found{Dev: &devices[d]}
		u.Name, u.MemMiB = gpuName, 100
		f.add(u, int32(i))
	}
	f.connect(4)
	g := f.gres[0]
	if len(f.gres) != 1 || g.MemMiB != 100 || !slices.Equal(g.Links[1], []int32{0, 0, 4}) ||
		!slices.Equal(g.Dist[0], []int32{0, 50, 50}) || !slices.Equal(g.Dist[2], []int32{50, 10, 0}) ||
		!slices.Equal(f.units[2].Links, []int32{0, 4, -1}) {
		t.Errorf("%+v\n%+v", f.gres, f.units)
	}
}

func TestReasonIsShort(t *testing.T) {
	f := &findings{}
	for i := range 100 {
		f.problem("gres.conf:%d: /dev/nvidia%d does not exist on this node", i, i)
	}
	if r := f.reason(); len(r) > maxReason+100 || !strings.Contains(r, "more like that (see gnoded -G)") {
		t.Errorf("%d bytes: %s", len(r), r)
	}
}

// TestKernelUnits: AutoDetect=nvidia, without the library: types, files, cores and distances are /proc's and sysfs's,
// and one GPU that has left the bus is broken.
func TestKernelUnits(t *testing.T) {
	dir := t.TempDir()
	put := func(path, text string) {
		t.Helper()
		path = filepath.Join(dir, path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o644))
	}
	for i, at := range []string{"pci0000:15/0000:15:01.0/0000:16:00.0", "pci0000:15/0000:15:01.0/0000:16:01.0",
		"pci0000:97/0000:97:01.0"} {
		address := fmt.Sprintf("0000:%d7:00.0", i+1)
		put("proc/driver/nvidia/gpus/"+address+"/information",
			fmt.Sprintf("Model: \t NVIDIA L40S\nGPU UUID: \t GPU-%d\nBus Location: \t %s\nDevice Minor: \t %d\n", i, address, i))
		if i == 2 {
			continue // it has left
		}
		put("sys/devices/"+at+"/"+address+"/local_cpulist", "0-3\n")
		link := filepath.Join(dir, "sys/bus/pci/devices", address)
		must(t, os.MkdirAll(filepath.Dir(link), 0o755))
		must(t, os.Symlink(filepath.Join(dir, "sys/devices", at, address), link))
	}
	put("gbatch.conf", "ClusterName=test\nSlurmctldHost=c1\nGresTypes=gpu\nNodeName=n1 CPUs=8 Gres=gpu:l40s:3\n"+
		"PartitionName=main Nodes=n1\n")
	put("gres.conf", "AutoDetect=nvidia\nName=gpu Type=l40s File=/dev/nvidia[0-2]\n")
	c, problems := conf.Load(dir)
	if c == nil {
		t.Fatal(problems)
	}
	f := findGres(&Look{Name: "n1", Config: c, KernelRoot: dir}, []int{0, 1, 2, 3, 4, 5, 6, 7}, 1)
	if len(f.problems) > 0 || len(f.units) != 3 || len(f.notes) != 1 ||
		f.notes[0] != "/dev/nvidia2 (l40s) can't be used: the GPU at 0000:37:00.0 has left the bus" {
		t.Fatalf("%q %q %+v", f.problems, f.notes, f.units)
	}
	if u := &f.units[1]; u.UUID != "GPU-1" || u.Files[0] != "/dev/nvidia1" || u.Near.String() != "0-3" ||
		u.PCI != "0000:27:00.0" || u.Type != "l40s" || u.Index != 1 {
		t.Errorf("%+v", u)
	}
}
