package noded

import (
	"slices"
	"testing"

	"gbatch/internal/model"
	"gbatch/noded/cgroup"
	"gbatch/noded/gpu"
)

// shareAlloc is a job's part of a node with shares of a GPU.
func shareAlloc(name string, units int, gpu, of int32) *model.NodeAlloc {
	na := nodeAlloc("n1", 4, 1, 0)
	na.Gres = []model.GresAlloc{{Name: name, Type: "a100", Index: model.UpTo(units), Share: &model.GPUShare{GPU: gpu, Of: of}}}
	return &na
}

// TestShareEnvironment: a job that shares a GPU sees that GPU, as whoever may open nothing else or all of them counts it,
// and how much of it is its own.
func TestShareEnvironment(t *testing.T) {
	held := &visibility{relative: map[string]bool{"gpu": true}}
	uuids := &visibility{uuids: true, uuid: map[unitKey]string{{"gpu", 3}: "GPU-3"}}
	for _, c := range []struct {
		what string
		seen *visibility
		here *model.NodeAlloc
		want map[string]string // "": not set
	}{
		{"shard", nil, shareAlloc("shard", 2, 3, 4), map[string]string{"CUDA_VISIBLE_DEVICES": "3", "ROCR_VISIBLE_DEVICES": "3", "SLURM_SHARDS_ON_NODE": "2", "SLURM_JOB_GPUS": "3",
			"SLURM_GPUS_ON_NODE": "", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": ""}},
		{"shard, devices held", held, shareAlloc("shard", 1, 3, 4), map[string]string{"CUDA_VISIBLE_DEVICES": "0", "SLURM_SHARDS_ON_NODE": "1", "SLURM_JOB_GPUS": "3"}},
		{"shard by UUID", uuids, shareAlloc("shard", 1, 3, 4), map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-3", "SLURM_JOB_GPUS": "3"}},
		{"mps", nil, shareAlloc("mps", 50, 3, 100), map[string]string{"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_GPUS": "3", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50",
			"CUDA_MPS_PIPE_DIRECTORY": "/run/nvidia-mps/1000/gpu3/pipe", "CUDA_MPS_LOG_DIRECTORY": "/run/nvidia-mps/1000/gpu3/log", "SLURM_SHARDS_ON_NODE": ""}},
		{"mps of 200", nil, shareAlloc("mps", 50, 0, 200), map[string]string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"}},
		{"mps, a little", nil, shareAlloc("mps", 1, 0, 400), map[string]string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "1"}},
		{"mps by UUID", uuids, shareAlloc("mps", 10, 3, 100), map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-3", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10"}},
	} {
		l := launchOn(7, "j", *c.here)
		l.Spec.UID = 1000
		l.Spec.Gres = []model.GresReq{{Name: c.here.Gres[0].Name, Count: 1}}
		e := testEnv("n1")
		e.seen = c.seen
		e.hidden = c.seen.hiddenOn(&model.NodeDef{Gres: []model.GresDef{{Name: "gpu", Count: 4}, {Name: "mps", Count: 100}}})
		env, err := e.build(l, []byte("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=99\x00SLURM_SHARDS_ON_NODE=9\x00CUDA_VISIBLE_DEVICES=7"))
		if err != nil {
			t.Fatal(err)
		}
		got := asMap(t, env)
		for name, want := range c.want {
			if value, set := got[name]; value != want || set != (want != "") {
				t.Errorf("%s: %s=%q, want %q", c.what, name, value, want)
			}
		}
	}
}

// TestShareDevices: shares open their GPU's device file, whether gres.conf names files for them or the driver knows the GPUs.
func TestShareDevices(t *testing.T) {
	dev := func(n int64) cgroup.Device { return cgroup.Device{Major: 195, Minor: n} }
	table := &unitTable{devs: []cgroup.Device{dev(0), dev(1)}, of: map[unitKey][]int{{"gpu", 0}: {0}, {"gpu", 1}: {1}}}
	rules := table.rules(shareAlloc("shard", 2, 1, 4).Gres)
	if rules == nil || !slices.Equal(rules.Deny, []cgroup.Device{dev(0)}) {
		t.Errorf("%+v", rules)
	}
	table.of = map[unitKey][]int{{"shard", 0}: {1}, {"shard", 1}: {1}} // no line for gpu
	if rules = table.rules(shareAlloc("shard", 2, 1, 4).Gres); rules == nil || !slices.Equal(rules.Deny, []cgroup.Device{dev(0)}) {
		t.Errorf("%+v", rules)
	}
}

// TestMIGUnits: each instance that was found is a unit of its profile, with its GPU's file and those that grant its use.
func TestMIGUnits(t *testing.T) {
	d := &gpu.Device{Path: "/dev/nvidia0", UUID: "GPU-0", Type: "a100", MIG: []gpu.Instance{
		{Profile: "1g.10gb", UUID: "MIG-a", Caps: []string{"/dev/nvidia-caps/nvidia-cap3", "/dev/nvidia-caps/nvidia-cap4"}},
		{Profile: "3g.40gb", UUID: "MIG-b", Caps: []string{"/dev/nvidia-caps/nvidia-cap12"}}}}
	def := &model.NodeDef{Gres: []model.GresDef{{Name: "gpu", Type: "1g.10gb", Count: 1}, {Name: "mig", Type: "3g.40gb", Count: 1}}}
	f := &finder{o: &Options{}, def: def, asked: true}
	f.detected(d)
	for _, name := range f.names() {
		f.place(def, &stock{name: name, units: f.take(name)})
	}
	units := ruleUnits(&Options{}, &inventory{units: f.units})
	if len(units) != 2 || units[0].name != "gpu" || units[0].typ != "1g.10gb" || units[0].index != 0 || units[0].uuid != "MIG-a" ||
		!slices.Equal(units[0].files, []string{"/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap3", "/dev/nvidia-caps/nvidia-cap4"}) ||
		units[1].name != "mig" || units[1].index != 0 || units[1].typ != "3g.40gb" {
		t.Errorf("%+v", units)
	}
	seen := &visibility{uuid: map[unitKey]string{{"mig", 0}: "MIG-b"}, relative: map[string]bool{"mig": true}}
	var v vars
	seen.show(&v, "mig", model.UpTo(1), model.UpTo(1))
	if !slices.Contains(v, "CUDA_VISIBLE_DEVICES=MIG-b") {
		t.Errorf("%q", v)
	}
}
