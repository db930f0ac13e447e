package gpu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	helperArg     = "gbatch-gpu-helper" // not an option: no user can mean it
	helperTimeout = 30 * time.Second    // a driver that loads firmware for eight GPUs takes a few seconds
	helperGrace   = time.Second         // for a helper that does not die at once because it is in the driver
	maxAnswer     = 4 << 20             // bytes of JSON
	maxComplaint  = 2 << 10             // bytes of a helper's stderr in an error
)

// answer is the helper's output.
type answer struct {
	NoDriver bool     `json:",omitempty"`
	NoCgo    bool     `json:",omitempty"`
	Error    string   `json:",omitempty"`
	Devices  []Device `json:",omitempty"`
}

// HelperMain is to be called first thing in the main of a program that uses NVML. When the program is running as the
// helper it does the helper's work and handled is true: exit with that status.
//
//	if status, handled := gpu.HelperMain(os.Args, os.Stdout); handled {
//		os.Exit(status)
//	}
func HelperMain(args []string, stdout io.Writer) (status int, handled bool) {
	if len(args) == 4 && args[1] == monitorArg {
		return monitorMain(args[2], args[3], os.Stdin, stdout), true
	}
	if len(args) != 3 || args[1] != helperArg {
		return 0, false
	}
	var a answer
	devices, err := query(args[2])
	switch {
	case errors.Is(err, ErrNoDriver):
		a.NoDriver = true
	case errors.Is(err, ErrNoCgo):
		a.NoCgo = true
	case err != nil:
		a.Error = err.Error()
	default:
		a.Devices = devices
		if len(devices) > 0 && args[2] == "" {
			loadUVM()
		}
	}
	if err := json.NewEncoder(stdout).Encode(a); err != nil {
		return 1, true
	}
	return 0, true
}

// NVMLOptions are for NVML. Their zero value is right outside tests.
type NVMLOptions struct {
	Binary  string        // a program that calls HelperMain; "": this one
	Library string        // libnvidia-ml.so.1's path; "": wherever the loader finds it
	Timeout time.Duration // for one answer, and for a monitor's silence; 0: 30 s
}

type nvmlSource struct {
	NVMLOptions
	root string // of /sys and /proc, "/" but for tests
}

// NVML is the source of the machine's own GPUs.
func NVML(o NVMLOptions) Source {
	if o.Timeout == 0 {
		o.Timeout = helperTimeout
	}
	return &nvmlSource{o, "/"}
}

// Devices asks the driver in a separate process. It takes as long as the driver does, at most the timeout.
func (s *nvmlSource) Devices() ([]Device, error) {
	a, err := s.ask()
	if err != nil {
		return nil, fmt.Errorf("ask the NVIDIA driver for GPUs: %w", err)
	}
	switch {
	case a.NoDriver:
		return nil, ErrNoDriver
	case a.NoCgo:
		return nil, ErrNoCgo
	case a.Error != "":
		return nil, fmt.Errorf("ask the NVIDIA driver for GPUs: %s", a.Error)
	}
	s.identify(a.Devices)
	for i := range a.Devices {
		a.Devices[i].place(s.root)
	}
	ancestors(s.root, a.Devices)
	return a.Devices, nil
}

// identify finds data about devices that the driver can't use: the kernel still lists lost devices.
func (s *nvmlSource) identify(devices []Device) {
	var nameless []*Device
	known := map[string]bool{}
	for i := range devices {
		if d := &devices[i]; d.PCIBusID != "" {
			known[sysBusID(d.PCIBusID)] = true
		} else {
			nameless = append(nameless, d)
		}
	}
	listed, err := Kernel(s.root).Devices()
	if err != nil {
		listed = nil
	}
	there := slices.Clone(listed)
	// both in the order of addresses
	if listed = slices.DeleteFunc(listed, func(d Device) bool { return known[d.PCIBusID] }); len(listed) == len(nameless) {
		for i, d := range nameless {
			d.PCIBusID = listed[i].PCIBusID
		}
	}
	for i := range devices {
		d := &devices[i]
		if d.Fault == "" {
			continue
		}
		d.PCIBusID = sysBusID(d.PCIBusID)
		if k := slices.IndexFunc(there, func(o Device) bool { return d.PCIBusID != "" && o.PCIBusID == d.PCIBusID }); k >= 0 {
			o := &there[k]
			d.Minor, d.Major, d.Path = o.Minor, o.Major, o.Path
			if d.UUID == "" {
				d.UUID = o.UUID
			}
			if d.Name == "" {
				d.Name, d.Type = o.Name, o.Type
			}
		}
		d.likeOthers(devices)
	}
}

// likeOthers takes a device's name and type from the other devices, if they are all alike.
func (d *Device) likeOthers(devices []Device) {
	var one *Device
	for i := range devices {
		o := &devices[i]
		if o.Fault != "" || o.Type == "" {
			continue
		}
		if one != nil && one.Name != o.Name {
			return
		}
		one = o
	}
	if one == nil || d.Name != "" && d.Name != one.Name {
		return
	}
	d.Name, d.Type, d.MemMiB = one.Name, one.Type, max(d.MemMiB, one.MemMiB)
}

func (s *nvmlSource) ask() (answer, error) {
	binary := s.Binary
	if binary == "" {
		var err error
		if binary, err = os.Executable(); err != nil {
			return answer{}, fmt.Errorf("find my own program: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, helperArg, s.Library)
	cmd.WaitDelay = helperGrace
	var stderr bytes.Buffer
	var stdout limited
	cmd.Stdout, cmd.Stderr = &stdout, &limitedTail{&stderr}
	err := cmd.Run()
	if ctx.Err() != nil {
		return answer{}, fmt.Errorf("it did not answer in %v; it may be loading, or hang (see dmesg)", s.Timeout)
	}
	if err != nil {
		text := strings.TrimSpace(stderr.String())
		if text != "" {
			return answer{}, fmt.Errorf("the query failed: %w: %s", err, text)
		}
		return answer{}, fmt.Errorf("the query failed: %w", err)
	}
	var a answer
	if err := json.Unmarshal(stdout.data, &a); err != nil {
		return answer{}, fmt.Errorf("unreadable answer: %w", err)
	}
	return a, nil
}

// limited keeps an answer up to a limit. It has no other method of a buffer: io.Copy would use ReadFrom, which knows no
// limit.
type limited struct{ data []byte }

func (l *limited) Write(b []byte) (int, error) {
	if len(l.data)+len(b) > maxAnswer {
		return 0, fmt.Errorf("an answer of more than %d bytes", maxAnswer)
	}
	l.data = append(l.data, b...)
	return len(b), nil
}

// limitedTail keeps the beginning of an error message and drops the rest.
type limitedTail struct{ b *bytes.Buffer }

func (l *limitedTail) Write(b []byte) (int, error) {
	l.b.Write(b[:min(len(b), max(0, maxComplaint-l.b.Len()))])
	return len(b), nil
}

// sysBusID turns NVML's name into sysfs's, which has a shorter domain and no capitals: "00000000:17:00.0" is
// "0000:17:00.0". For a text that is no bus id it gives "".
func sysBusID(id string) string {
	domain, rest, ok := strings.Cut(strings.ToLower(id), ":")
	n, err := strconv.ParseUint(domain, 16, 32)
	if !ok || err != nil || strings.Trim(rest, "0123456789abcdef:.") != "" {
		return ""
	}
	return fmt.Sprintf("%04x:%s", n, rest)
}

// loadUVM makes the device file that CUDA needs beside a GPU's own, if the driver's setuid program is there. CUDA does
// so itself at its first use, but not from inside a container, where that program isn't.
func loadUVM() {
	if _, err := os.Stat("/dev/nvidia-uvm"); err == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), helperTimeout/2)
	defer cancel()
	_ = exec.CommandContext(ctx, "nvidia-modprobe", "-u", "-c", "0").Run() // without it, CUDA outside of containers works
}
