package hardware

import (
	"slices"
	"strings"
	"testing"

	"gbatch/internal/jobenv"
	"gbatch/internal/model"
)

func TestHowUnitsAreNamed(t *testing.T) {
	four := "Name=gpu File=/dev/nvidia[0-7]"
	all := func(list string) string {
		return "CUDA_VISIBLE_DEVICES=" + list + " GPU_DEVICE_ORDINAL=" + list + " ROCR_VISIBLE_DEVICES=" + list +
			" ZE_AFFINITY_MASK=" + list
	}
	for _, tc := range []struct {
		name, gres, style string
		firm              bool // the kernel holds jobs to their units
		uuids             map[jobenv.Unit]string
		mine, open        []model.GresAlloc
		want              string
	}{
		{name: "nothing", firm: true},
		{name: "global while every unit opens", mine: []model.GresAlloc{gres("gpu", "", 1, 3)}, want: all("1,3")},
		{name: "from 0 among those that open", firm: true, mine: []model.GresAlloc{gres("gpu", "", 1, 3)}, want: all("0,1")},
		{name: "types are counted together", firm: true,
			mine: []model.GresAlloc{gres("gpu", "t4", 5), gres("gpu", "a100", 0, 2)}, want: all("0,1,2")},
		{name: "a task that sees a part of its step's", firm: true, mine: []model.GresAlloc{gres("gpu", "", 3)},
			open: []model.GresAlloc{gres("gpu", "", 1, 3, 6)}, want: all("1")},
		{name: "by UUID", firm: true, style: "uuid",
			uuids: map[jobenv.Unit]string{{Resource: "gpu", Index: 1}: "GPU-1", {Resource: "gpu", Index: 3}: "GPU-3"},
			mine:  []model.GresAlloc{gres("gpu", "", 1, 3)},
			want: "CUDA_VISIBLE_DEVICES=GPU-1,GPU-3 GPU_DEVICE_ORDINAL=0,1 ROCR_VISIBLE_DEVICES=GPU-1,GPU-3 " +
				"ZE_AFFINITY_MASK=0,1"},
		{name: "by UUID where one is not known", firm: true, style: "uuid",
			uuids: map[jobenv.Unit]string{{Resource: "gpu", Index: 1}: "GPU-1"}, mine: []model.GresAlloc{gres("gpu", "", 1, 3)},
			want: all("0,1")},
		{name: "a UUID that nobody asked for", firm: true,
			uuids: map[jobenv.Unit]string{{Resource: "gpu", Index: 1}: "GPU-1"}, mine: []model.GresAlloc{gres("gpu", "", 1)},
			want: all("0")},
		{name: "MIG always by UUID", firm: true, gres: four + " Flags=nvidia_gpu_env",
			uuids: map[jobenv.Unit]string{{Resource: "gpu", Index: 0}: "MIG-a", {Resource: "gpu", Index: 1}: "MIG-b"},
			mine:  []model.GresAlloc{gres("gpu", "1g.10gb", 1)},
			want:  "CUDA_VISIBLE_DEVICES=MIG-b"},
		{name: "NVIDIA's only", gres: four + " Flags=nvidia_gpu_env", mine: []model.GresAlloc{gres("gpu", "", 2)},
			want: "CUDA_VISIBLE_DEVICES=2"},
		{name: "AMD and OpenCL", gres: four + " Flags=amd_gpu_env,opencl_env", mine: []model.GresAlloc{gres("gpu", "", 2)},
			want: "GPU_DEVICE_ORDINAL=2 ROCR_VISIBLE_DEVICES=2"},
		{name: "Intel's", gres: four + " Flags=intel_gpu_env", mine: []model.GresAlloc{gres("gpu", "", 2)},
			want: "ZE_AFFINITY_MASK=2"},
		{name: "none", gres: four + " Flags=no_gpu_env", mine: []model.GresAlloc{gres("gpu", "", 2)}},
		{name: "asked of NVIDIA's driver", gres: "AutoDetect=nvml", mine: []model.GresAlloc{gres("gpu", "", 2)},
			want: "CUDA_VISIBLE_DEVICES=2"},
		{name: "asked of the driver, and said otherwise", gres: "AutoDetect=nvml\n" + four + " Flags=opencl_env",
			mine: []model.GresAlloc{gres("gpu", "", 2)}, want: "GPU_DEVICE_ORDINAL=2"},
		{name: "Ascend", firm: true, mine: []model.GresAlloc{gres("npu", "910b", 4, 6)},
			want: "ASCEND_RT_VISIBLE_DEVICES=0,1"},
		{name: "no runtime counts these", firm: true, mine: []model.GresAlloc{gres("nic", "", 0)}},
		{name: "GPUs and NPUs", mine: []model.GresAlloc{gres("gpu", "", 0), gres("npu", "", 1)},
			want: "ASCEND_RT_VISIBLE_DEVICES=1 " + all("0")},
	} {
		style := ""
		if tc.style != "" {
			style = "\nGpuEnvStyle=" + tc.style
		}
		c := confOf(t, "Gres=gpu:8,npu:8,nic:1"+style, tc.gres, "ConstrainDevices=yes")
		table := &Table{UUID: tc.uuids, firm: map[string]bool{"gpu": true, "npu": true}}
		units := UnitNames(c, "n1", table, tc.firm)
		units.ByUUID = c.GpuEnvStyle == "uuid"
		e := jobenv.Node{Units: units}
		mine, open := &model.NodeAlloc{Gres: tc.mine}, &model.NodeAlloc{Gres: tc.open}
		if tc.open == nil {
			open = mine
		}
		var got jobenv.Vars
		e.ShowUnits(&got, mine, open)
		slices.Sort(got)
		if text := strings.Join(got, " "); text != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, text, tc.want)
		}
	}
}

// Variables of a node's resources are hidden from jobs without them; those of resources that the node lacks stay as the
// user set them.
func TestHiddenVariables(t *testing.T) {
	seen := UnitNames(confOf(t, "Gres=gpu:1", "Name=gpu Count=1 Flags=amd_gpu_env", ""), "n1", nil, false)
	for _, tc := range []struct {
		gres []model.GresDef
		want string
	}{
		{nil, ""},
		{[]model.GresDef{{Name: "gpu", Type: "a", Count: 1}, {Name: "gpu", Type: "b", Count: 1}}, "ROCR_VISIBLE_DEVICES"},
		{[]model.GresDef{{Name: "npu", Count: 2}, {Name: "gpu"}}, "ASCEND_RT_VISIBLE_DEVICES"},
	} {
		if got := strings.Join(seen.HiddenOn(&model.NodeDef{Gres: tc.gres}), " "); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.gres, got, tc.want)
		}
	}
}
