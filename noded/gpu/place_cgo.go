//go:build cgo && linux

package gpu

// place_cgo.go asks the driver how a device is divided, and where it is. The kernel's data about the place is
// preferred.

import (
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// maxCPUs is of a machine, for its bit sets.
const maxCPUs = 1024

// instances lists the MIG instances of a device: nil if it is not in MIG mode, empty if it is and has none yet.
func instances(has func(string) bool, h nvml.Device, d *Device) ([]Instance, error) {
	if !has("nvmlDeviceGetMigMode") || !has("nvmlDeviceGetMaxMigDeviceCount") ||
		!has("nvmlDeviceGetMigDeviceHandleByIndex") ||
		!has("nvmlDeviceGetGpuInstanceId") || !has("nvmlDeviceGetComputeInstanceId") {
		return nil, nil
	}
	if mode, _, r := h.GetMigMode(); r != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE {
		return nil, nil
	}
	n, r := h.GetMaxMigDeviceCount()
	if r != nvml.SUCCESS {
		return nil, failed("count the MIG instances", r)
	}
	out := []Instance{}
	for i := range n {
		m, r := h.GetMigDeviceHandleByIndex(i)
		if r == nvml.ERROR_NOT_FOUND || r == nvml.ERROR_INVALID_ARGUMENT {
			continue // indices have holes
		}
		if r != nvml.SUCCESS {
			return nil, failed(fmt.Sprintf("MIG instance %d", i), r)
		}
		in := Instance{Index: len(out)}
		if in.UUID, r = m.GetUUID(); r != nvml.SUCCESS {
			return nil, failed(fmt.Sprintf("MIG instance %d: UUID", i), r)
		}
		if in.GI, r = m.GetGpuInstanceId(); r != nvml.SUCCESS {
			return nil, failed(fmt.Sprintf("MIG instance %d: GPU instance", i), r)
		}
		if in.CI, r = m.GetComputeInstanceId(); r != nvml.SUCCESS {
			return nil, failed(fmt.Sprintf("MIG instance %d: compute instance", i), r)
		}
		if err := in.describe(has, m, d); err != nil {
			return nil, fmt.Errorf("MIG instance %d: %w", i, err)
		}
		out = append(out, in)
	}
	return out, nil
}

// describe fills in profile and memory. The name has the profile with newer drivers; it is computed from the sizes
// otherwise.
func (in *Instance) describe(has func(string) bool, m nvml.Device, d *Device) error {
	var a nvml.DeviceAttributes
	r := nvml.Return(nvml.ERROR_FUNCTION_NOT_FOUND)
	if has("nvmlDeviceGetAttributes_v2") || has("nvmlDeviceGetAttributes") {
		a, r = m.GetAttributes()
	}
	if r == nvml.SUCCESS {
		in.MemMiB = int64(a.MemorySizeMB)
		in.Profile = profileOf(int(a.ComputeInstanceSliceCount), int(a.GpuInstanceSliceCount), in.MemMiB, d.MemMiB)
	}
	if name, r := m.GetName(); r == nvml.SUCCESS {
		if _, profile, ok := strings.Cut(name, " MIG "); ok {
			in.Profile = strings.TrimSpace(profile)
		}
	}
	if in.Profile == "" {
		return fmt.Errorf("the driver names no profile: %s", nvml.ErrorString(r))
	}
	return nil
}

// neighbours fills in how near devices are to each other, if the driver has this for all, and the CPUs close to each.
func neighbours(has func(string) bool, handles []nvml.Device, devices []Device) {
	if has("nvmlDeviceGetCpuAffinity") {
		for i, h := range handles {
			if h == nil {
				continue
			}
			if set, r := h.GetCpuAffinity(maxCPUs); r == nvml.SUCCESS {
				devices[i].CPUAffinity = cpuList(set)
			}
		}
	}
	if !has("nvmlDeviceGetTopologyCommonAncestor") {
		return
	}
	near := make([][]int, len(handles))
	for i, a := range handles {
		near[i] = make([]int, len(handles))
		for j, b := range handles {
			if i == j {
				continue
			}
			if a == nil || b == nil {
				near[i][j] = CommonSystem
				continue
			}
			level, r := a.GetTopologyCommonAncestor(b)
			if r != nvml.SUCCESS {
				return
			}
			near[i][j] = int(level)
		}
	}
	for i := range devices {
		devices[i].Near = near[i]
	}
}
