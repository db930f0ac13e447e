package hardware

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"gbatch/internal/conf"
	"gbatch/internal/jobenv"
	"gbatch/internal/model"
	"gbatch/noded/cgroup"
	"gbatch/noded/gpu"
)

// TestShareDevices: shares open their GPU's device file, whether gres.conf names files for them or the driver knows
// the GPUs.
func TestShareDevices(t *testing.T) {
	shards := []model.GresAlloc{{Name: "shard", Type: "a100", Index: model.UpTo(2), Share: &model.GPUShare{GPU: 1, Of: 4}}}
	dev := func(n int64) cgroup.Device { return cgroup.Device{Major: 195, Minor: n} }
	table := &Table{Devs: []cgroup.Device{dev(0), dev(1)},
		of: map[jobenv.Unit][]int{{Resource: "gpu", Index: 0}: {0}, {Resource: "gpu", Index: 1}: {1}}}
	rules := table.Rules(shards)
	if rules == nil || !slices.Equal(rules.Deny, []cgroup.Device{dev(0)}) {
		t.Errorf("%+v", rules)
	}
	// no line for gpu
	table.of = map[jobenv.Unit][]int{{Resource: "shard", Index: 0}: {1}, {Resource: "shard", Index: 1}: {1}}
	if rules = table.Rules(shards); rules == nil || !slices.Equal(rules.Deny, []cgroup.Device{dev(0)}) {
		t.Errorf("%+v", rules)
	}
}

// TestFiles: a container needs the driver's control files beside its GPUs', though gres.conf does not name them; a job
// without GPUs needs neither.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"nvidia0", "nvidiactl", "nvidia-uvm", "other"} {
		if err := unix.Mknod(filepath.Join(dir, name), unix.S_IFCHR|0o666, int(unix.Mkdev(195, uint32(i)))); err != nil {
			t.Skipf("device files need root: %v", err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("kfd"), nil, 0o644); err != nil { // no device
		t.Fatal(err)
	}
	table := NewTable([]Unit{{Name: "gpu", Index: 0, Files: []string{at("nvidia0")}}}, &conf.Cgroup{})
	table.devDir = dir
	got := table.Files([]model.GresAlloc{{Name: "gpu", Index: model.UpTo(1)}})
	if !slices.Equal(got, []string{at("nvidia0"), at("nvidiactl"), at("nvidia-uvm")}) {
		t.Errorf("%v", got)
	}
	if got := table.Files(nil); got != nil {
		t.Errorf("without GPUs: %v", got)
	}
}

// TestMIGUnits: each detected instance is a unit of its profile, with its GPU's file and the files that allow its use.
func TestMIGUnits(t *testing.T) {
	d := &gpu.Device{Path: "/dev/nvidia0", UUID: "GPU-0", Type: "a100", MIG: []gpu.Instance{
		{Profile: "1g.10gb", UUID: "MIG-a", Caps: []string{"/dev/nvidia-caps/nvidia-cap3", "/dev/nvidia-caps/nvidia-cap4"}},
		{Profile: "3g.40gb", UUID: "MIG-b", Caps: []string{"/dev/nvidia-caps/nvidia-cap12"}}}}
	def := &model.NodeDef{
		Gres: []model.GresDef{{Name: "gpu", Type: "1g.10gb", Count: 1}, {Name: "mig", Type: "3g.40gb", Count: 1}}}
	f := &finder{o: &Look{}, def: def, asked: true}
	f.detected(d)
	for _, name := range f.names() {
		f.place(def, &stock{name: name, units: f.take(name)})
	}
	units := Units(&Look{}, &Inventory{Units: f.units})
	if len(units) != 2 || units[0].Name != "gpu" || units[0].typ != "1g.10gb" || units[0].Index != 0 ||
		units[0].UUID != "MIG-a" ||
		!slices.Equal(units[0].Files,
			[]string{"/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap3", "/dev/nvidia-caps/nvidia-cap4"}) ||
		units[1].Name != "mig" || units[1].Index != 0 || units[1].typ != "3g.40gb" {
		t.Errorf("%+v", units)
	}
	seen := &jobenv.Units{UUID: map[jobenv.Unit]string{{Resource: "mig", Index: 0}: "MIG-b"},
		Relative: map[string]bool{"mig": true}}
	var v jobenv.Vars
	env := jobenv.Node{Units: seen}
	one := &model.NodeAlloc{Gres: []model.GresAlloc{{Name: "mig", Index: model.UpTo(1)}}}
	env.ShowUnits(&v, one, one)
	if !slices.Contains(v, "CUDA_VISIBLE_DEVICES=MIG-b") {
		t.Errorf("%q", v)
	}
}
