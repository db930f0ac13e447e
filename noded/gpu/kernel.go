package gpu

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// kernel.go is AutoDetect=nvidia: GPUs from the files of NVIDIA's driver and the kernel in /proc and /sys, without the
// library. It also adds the kernel's data to NVML's answer.

// kernelSource reads below a root directory.
type kernelSource struct{ root string }

// Kernel is the source of GPUs in /proc/driver/nvidia and /sys below root: their list, their place, and whether they
// still exist. Only the library has memory, NVLink, MIG instances' UUIDs and utilization.
func Kernel(root string) Source { return &kernelSource{root} }

const procGPUs = "proc/driver/nvidia/gpus"

// Devices reads them, in the order of their PCI addresses.
func (s *kernelSource) Devices() ([]Device, error) {
	entries, err := os.ReadDir(filepath.Join(s.root, procGPUs))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoDriver
	}
	if err != nil {
		return nil, fmt.Errorf("GPUs of the NVIDIA driver: %w", err)
	}
	var out []Device
	for _, e := range entries { // sorted by name, which is the address
		if d, ok := s.device(e.Name()); ok {
			d.Index = len(out)
			out = append(out, d)
		}
	}
	for i := range out {
		if out[i].Fault != "" {
			out[i].likeOthers(out)
		}
	}
	ancestors(s.root, out)
	return out, nil
}

// device reads one; ok is false for one that the driver does not use. One bad GPU does not hide the others.
func (s *kernelSource) device(address string) (d Device, ok bool) {
	path := filepath.Join(s.root, procGPUs, address, "information")
	info, err := keyValues(path)
	if strings.EqualFold(info["GPU Excluded"], "Yes") {
		return d, false
	}
	minor := 0
	if err == nil {
		minor, err = strconv.Atoi(info["Device Minor"])
		if err != nil || minor < 0 {
			err = fmt.Errorf("%s: Device Minor is '%s'", path, info["Device Minor"])
		}
	}
	if err != nil {
		d = Device{PCIBusID: address, Name: info["Model"], Type: ShortType(info["Model"]),
			Fault: "the driver doesn't say what it is: " + err.Error()}
		d.place(s.root)
		return d, true
	}
	d = Device{Minor: minor, Major: nvidiaMajor, UUID: info["GPU UUID"], Name: info["Model"],
		Type: ShortType(info["Model"]), PCIBusID: address,
		Path: fmt.Sprintf("/dev/nvidia%d", minor)}
	if strings.Contains(d.UUID, "?") { // nobody has used it since the driver was loaded
		d.UUID = ""
	}
	if bus := info["Bus Location"]; bus != "" {
		d.PCIBusID = bus
	}
	d.place(s.root)
	if gis, _ := filepath.Glob(filepath.Join(s.root, capsDir(minor), "gi*")); len(gis) > 0 {
		d.MIG = []Instance{}
	}
	if _, err := os.Stat(filepath.Join(s.root, "sys/bus/pci/devices")); err == nil && d.PCIBusID != "" {
		if _, err := os.Stat(filepath.Join(s.root, "sys/bus/pci/devices", d.PCIBusID)); errors.Is(err, fs.ErrNotExist) {
			d.Fault = "the GPU at " + d.PCIBusID + " has left the bus"
		}
	}
	return d, true
}

// keyValues reads "Key: value" lines.
func keyValues(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string]string{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if k, v, ok := strings.Cut(sc.Text(), ":"); ok {
			out[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	return out, nil
}

// Watch reports the devices that still exist.
func (s *kernelSource) Watch(ctx context.Context, every time.Duration, now <-chan struct{},
	got func([]Reading, error)) {
	var known []Device
	lost := map[int]bool{}
	poll(ctx, every, now, func() ([]Reading, error) {
		there, err := s.Devices()
		if err != nil && known == nil {
			return nil, err
		}
		if known == nil {
			known = there
		}
		out := make([]Reading, len(known))
		for i := range known {
			d := &known[i]
			out[i] = plain(d)
			why := "the driver no longer lists the GPU at " + d.PCIBusID
			if k := slices.IndexFunc(there, func(o Device) bool { return o.PCIBusID == d.PCIBusID }); k >= 0 {
				why = there[k].Fault
			}
			out[i].Lost = why != ""
			if out[i].Lost && !lost[i] {
				out[i].Faults = []Fault{{Kind: FaultLost, Text: why, Fatal: true}}
			}
			lost[i] = out[i].Lost
		}
		return out, nil
	}, got)
}

// place fills in the kernel's data about the place of the device, and the files that grant the use of its instances.
func (d *Device) place(root string) {
	d.PCIBusID = sysBusID(d.PCIBusID)
	d.NUMANode = -1
	for i := range d.MIG {
		d.MIG[i].Caps = capFiles(root, d.Minor, d.MIG[i].GI, d.MIG[i].CI)
	}
	if d.PCIBusID == "" {
		return
	}
	dir := filepath.Join(root, "sys/bus/pci/devices", d.PCIBusID)
	if b, err := os.ReadFile(filepath.Join(dir, "numa_node")); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && n >= 0 {
			d.NUMANode = n
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "local_cpulist")); err == nil && len(strings.TrimSpace(string(b))) > 0 {
		d.CPUAffinity = strings.TrimSpace(string(b))
	}
}

func capsDir(minor int) string {
	return fmt.Sprintf("proc/driver/nvidia/capabilities/gpu%d/mig", minor)
}

// capFiles gives the device files of a GPU instance and of a compute instance in it.
func capFiles(root string, minor, gi, ci int) []string {
	var out []string
	for _, file := range []string{fmt.Sprintf("gi%d/access", gi), fmt.Sprintf("gi%d/ci%d/access", gi, ci)} {
		info, err := keyValues(filepath.Join(root, capsDir(minor), file))
		if err != nil {
			continue // an older driver has no such files
		}
		if n, err := strconv.Atoi(info["DeviceFileMinor"]); err == nil {
			out = append(out, fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", n))
		}
	}
	return out
}

// ancestors fills in how near devices are to each other on the buses, by the kernel's tree, if that is unknown.
func ancestors(root string, devices []Device) {
	paths := make([][]string, len(devices))
	for i := range devices {
		if devices[i].PCIBusID == "" {
			return
		}
		real, err := filepath.EvalSymlinks(filepath.Join(root, "sys/bus/pci/devices", devices[i].PCIBusID))
		if err != nil {
			return
		}
		parts := strings.Split(real, string(filepath.Separator))
		host := slices.IndexFunc(parts,
			func(p string) bool { return strings.HasPrefix(p, "pci") && strings.Contains(p, ":") })
		if host < 0 {
			return
		}
		paths[i] = parts[host:]
	}
	for i := range devices {
		if devices[i].Near != nil {
			continue
		}
		devices[i].Near = make([]int, len(devices))
		for j := range devices {
			if i != j {
				devices[i].Near[j] = nearness(paths[i], paths[j], devices[i].NUMANode >= 0 &&
					devices[i].NUMANode == devices[j].NUMANode)
			}
		}
	}
}

// nearness compares two paths from the host bridge down to the device.
func nearness(a, b []string, sameNode bool) int {
	common := 0
	for common < len(a) && common < len(b) && a[common] == b[common] {
		common++
	}
	switch below := max(len(a), len(b)) - common; {
	case common > 1 && below <= 2: // only the switch's own ports are between
		return CommonSwitch
	case common > 1:
		return CommonSwitches
	case common == 1:
		return CommonHostBridge
	case sameNode:
		return CommonNode
	}
	return CommonSystem
}
