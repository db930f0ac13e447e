//go:build cgo && linux

package gpu

// nvml_cgo.go is the helper's question to the driver. It runs in a separate process: the binding ends the process if
// the driver lacks a called function, so functions that old drivers lack are looked up first.

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// start loads the NVML of that path ("": the loader's) and starts it.
func start(library string) (nvml.Interface, error) {
	var opts []nvml.LibraryOption
	if library != "" {
		opts = append(opts, nvml.WithLibraryPath(library))
	}
	lib := nvml.New(opts...)
	switch r := lib.Init(); r {
	case nvml.SUCCESS:
	case nvml.ERROR_LIBRARY_NOT_FOUND, nvml.ERROR_DRIVER_NOT_LOADED:
		return nil, ErrNoDriver
	default:
		return nil, fmt.Errorf("start NVML: %s", nvml.ErrorString(r))
	}
	return lib, nil
}

// query asks the NVML of that path ("": the loader's) for all devices.
func query(library string) ([]Device, error) {
	lib, err := start(library)
	if err != nil {
		return nil, err
	}
	defer func() { _ = lib.Shutdown() }() // the process ends after this
	n, r := lib.DeviceGetCount()
	if r != nvml.SUCCESS {
		return nil, fmt.Errorf("count the devices: %s", nvml.ErrorString(r))
	}
	has := func(symbol string) bool { return lib.Extensions().LookupSymbol(symbol) == nil }
	devices, handles := make([]Device, 0, n), make([]nvml.Device, 0, n)
	for i := range n {
		h, r := lib.DeviceGetHandleByIndex(i)
		if r == nvml.ERROR_NO_PERMISSION {
			continue // a container hides this device
		}
		var d Device
		err := failed("", r)
		if err == nil {
			d, err = describe(h)
		}
		if err == nil {
			d.MIG, err = instances(has, h, &d)
		}
		if err != nil {
			if driverGone(err) {
				return nil, fmt.Errorf("device %d: %w", i, err)
			}
			d.Fault, d.MIG, h = faultOf(err), nil, nil // one bad GPU does not hide the others
		}
		d.Index = len(devices)
		devices, handles = append(devices, d), append(handles, h)
	}
	links(has, handles, devices)
	neighbours(has, handles, devices)
	return devices, nil
}

// nvmlError is an error from the driver.
type nvmlError struct {
	what string // the subject of the question; "": the device
	ret  nvml.Return
}

func (e *nvmlError) Error() string {
	if e.what == "" {
		return nvml.ErrorString(e.ret)
	}
	return e.what + ": " + nvml.ErrorString(e.ret)
}

// failed is an error unless r is success.
func failed(what string, r nvml.Return) error {
	if r == nvml.SUCCESS {
		return nil
	}
	return &nvmlError{what, r}
}

// driverGone reports whether an error is of the driver and not of one device.
func driverGone(err error) bool {
	var e *nvmlError
	return errors.As(err, &e) && (e.ret == nvml.ERROR_UNINITIALIZED || e.ret == nvml.ERROR_DRIVER_NOT_LOADED ||
		e.ret == nvml.ERROR_LIB_RM_VERSION_MISMATCH)
}

// faultOf tells people why a device can't be used.
func faultOf(err error) string {
	var e *nvmlError
	if errors.As(err, &e) {
		switch e.ret {
		case nvml.ERROR_GPU_IS_LOST:
			return lostText
		case nvml.ERROR_RESET_REQUIRED:
			return resetText
		}
	}
	return "the driver can't use the GPU: " + err.Error()
}

// describe asks what a device is. With an error it returns the data read until then.
func describe(h nvml.Device) (Device, error) {
	var d Device
	var r nvml.Return
	if pci, r := h.GetPciInfo(); r == nvml.SUCCESS {
		d.PCIBusID = busID(pci)
	}
	if d.Name, r = h.GetName(); r != nvml.SUCCESS {
		return d, failed("name", r)
	}
	d.Type = ShortType(d.Name)
	if m, r := h.GetMemoryInfo(); r == nvml.SUCCESS { // not supported on chips that share the host's memory
		d.MemMiB = int64(m.Total >> 20)
	}
	if d.UUID, r = h.GetUUID(); r != nvml.SUCCESS {
		return d, failed("UUID", r)
	}
	if d.Minor, r = h.GetMinorNumber(); r != nvml.SUCCESS {
		return d, failed("minor number", r)
	}
	d.Major, d.Path = nvidiaMajor, fmt.Sprintf("/dev/nvidia%d", d.Minor)
	return d, nil
}

func busID(pci nvml.PciInfo) string {
	var b []byte
	for _, c := range pci.BusId {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return string(b)
}

// links counts the NVLink connections between devices: those that lead straight to another one, and, where they lead to
// a switch, all that both of a pair have to it if the driver says that NVLink joins the pair.
func links(has func(string) bool, handles []nvml.Device, devices []Device) {
	at := map[string]int{}
	for i := range devices {
		devices[i].Links = make([]int, len(devices))
		devices[i].Links[i] = -1
		if id := sysBusID(devices[i].PCIBusID); id != "" {
			at[id] = i
		}
	}
	if !has("nvmlDeviceGetNvLinkState") || !has("nvmlDeviceGetNvLinkRemotePciInfo_v2") &&
		!has("nvmlDeviceGetNvLinkRemotePciInfo") {
		return
	}
	switched := make([]int, len(devices))
	for i, h := range handles {
		if h == nil {
			continue // it can't be asked
		}
		for l := range nvml.NVLINK_MAX_LINKS {
			state, r := h.GetNvLinkState(l)
			if r != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
				continue
			}
			pci, r := h.GetNvLinkRemotePciInfo(l)
			if r != nvml.SUCCESS {
				continue
			}
			if j, ok := at[sysBusID(busID(pci))]; ok {
				if i != j {
					devices[i].Links[j]++
				}
			} else {
				switched[i]++
			}
		}
	}
	if !has("nvmlDeviceGetP2PStatus") {
		return
	}
	for i := range handles {
		for j := range handles {
			if i == j || min(switched[i], switched[j]) == 0 {
				continue
			}
			if s, r := handles[i].GetP2PStatus(handles[j], nvml.P2P_CAPS_INDEX_NVLINK); r == nvml.SUCCESS &&
				s == nvml.P2P_STATUS_OK {
				devices[i].Links[j] += min(switched[i], switched[j])
			}
		}
	}
}
