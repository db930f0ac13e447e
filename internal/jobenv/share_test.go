package jobenv

import (
	"testing"

	"gbatch/internal/model"
)

// shareAlloc is a job's part of a node with shares of a GPU.
func shareAlloc(name string, units int, gpu, of int32) *model.NodeAlloc {
	na := nodeAlloc("n1", 4, 1, 0)
	na.Gres = []model.GresAlloc{{Name: name, Type: "a100", Index: model.UpTo(units),
		Share: &model.GPUShare{GPU: gpu, Of: of}}}
	return &na
}

// TestShareEnvironment checks that a job with a share of a GPU sees that GPU, numbered by the GPUs that it may open,
// and the size of its share.
func TestShareEnvironment(t *testing.T) {
	held := &Units{Relative: map[string]bool{"gpu": true}}
	uuids := &Units{ByUUID: true, UUID: map[Unit]string{{"gpu", 3}: "GPU-3"}}
	for _, c := range []struct {
		what string
		seen *Units
		here *model.NodeAlloc
		want map[string]string // "": not set
	}{
		{"shard", nil, shareAlloc("shard", 2, 3, 4),
			map[string]string{"CUDA_VISIBLE_DEVICES": "3", "ROCR_VISIBLE_DEVICES": "3", "SLURM_SHARDS_ON_NODE": "2",
				"SLURM_JOB_GPUS":     "3",
				"SLURM_GPUS_ON_NODE": "", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": ""}},
		{"shard, devices held", held, shareAlloc("shard", 1, 3, 4),
			map[string]string{"CUDA_VISIBLE_DEVICES": "0", "SLURM_SHARDS_ON_NODE": "1", "SLURM_JOB_GPUS": "3"}},
		{"shard by UUID", uuids, shareAlloc("shard", 1, 3, 4),
			map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-3", "SLURM_JOB_GPUS": "3"}},
		{"gpuram", nil, shareAlloc("gpuram", 16, 3, 80), map[string]string{"CUDA_VISIBLE_DEVICES": "3",
			"SLURM_JOB_GPUS": "3", "GBATCH_GPURAM_MIB": "16384", "SLURM_SHARDS_ON_NODE": "",
			"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": ""}},
		{"mps", nil, shareAlloc("mps", 50, 3, 100),
			map[string]string{"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_GPUS": "3", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50",
				"CUDA_MPS_PIPE_DIRECTORY": "/run/nvidia-mps/1000/gpu3/pipe",
				"CUDA_MPS_LOG_DIRECTORY":  "/run/nvidia-mps/1000/gpu3/log", "SLURM_SHARDS_ON_NODE": ""}},
		{"mps of 200", nil, shareAlloc("mps", 50, 0, 200), map[string]string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"}},
		{"mps, a little", nil, shareAlloc("mps", 1, 0, 400), map[string]string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "1"}},
		{"mps by UUID", uuids, shareAlloc("mps", 10, 3, 100),
			map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-3", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10"}},
	} {
		l := launchOn(7, "j", *c.here)
		l.Spec.UID = 1000
		l.Spec.Gres = []model.GresReq{{Name: c.here.Gres[0].Name, Count: 1}}
		e := testEnv("n1")
		e.Units = c.seen
		e.Hidden = c.seen.HiddenOn(&model.NodeDef{Gres: []model.GresDef{{Name: "gpu", Count: 4}, {Name: "mps", Count: 100}}})
		env, err := e.Script(l,
			[]byte("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=99\x00SLURM_SHARDS_ON_NODE=9\x00CUDA_VISIBLE_DEVICES=7"))
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
