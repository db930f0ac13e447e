package hardware

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gbatch/internal/conf"
	"gbatch/noded/cgroup"
)

// allowed.go is AllowedDevices of cgroup.conf: with it a job opens only the listed devices, those that every program
// needs, the control files of accelerators and its own units. AllowedDevicesFile adds to that list.

const (
	maxAllowed      = 400     // device files that it may match; a device program takes somewhat more
	maxAllowedBytes = 1 << 16 // of the file
)

// readAllowed reads the patterns, and gives the devices that every job may open even if they belong to a resource:
// those that AllowedDevices names one by one. A device that only a pattern or a line of the file matches stays with its
// holder, as in Slurm.
func (t *Table) readAllowed(c *conf.Cgroup) map[cgroup.Device]bool {
	open := map[cgroup.Device]bool{}
	if !c.ConstrainDevices || c.AllowedDevices == "" {
		return open
	}
	for p := range strings.SplitSeq(c.AllowedDevices, ",") {
		if p = strings.TrimSpace(p); p == "" {
			continue
		}
		t.Strict = append(t.Strict, p)
		if d, ok, err := DeviceOf(p); err == nil && ok {
			open[d] = true
		}
	}
	if c.AllowedDevicesFile != "" {
		list, err := readDeviceList(c.AllowedDevicesFile)
		if err != nil {
			t.Notable = append(t.Notable, "AllowedDevicesFile is left out: "+err.Error())
		}
		t.Strict = append(t.Strict, list...)
	}
	if n := len(t.matches(nil)); n > maxAllowed {
		t.Notable = append(t.Notable, fmt.Sprintf("AllowedDevices matches %d device files, at most %d can be allowed: the "+
			"others stay denied; write narrower patterns", n, maxAllowed))
	}
	return open
}

// readDeviceList reads a list of paths and patterns, one on a line, as Slurm's cgroup_allowed_devices_file.conf.
func readDeviceList(file string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxAllowedBytes+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxAllowedBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", file, maxAllowedBytes)
	}
	var list []string
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if _, err := filepath.Match(line, "/"); err != nil || !filepath.IsAbs(line) {
			return nil, fmt.Errorf("%s:%d: '%s' is not the absolute path of a device file or a pattern of such", file, n, line)
		}
		list = append(list, line)
	}
	return list, nil
}

// matches adds the devices that are allowed to all jobs to a list. It searches the files each time: some appear only at
// the first use of their driver.
func (t *Table) matches(list []cgroup.Device) []cgroup.Device {
	add := func(pattern string) {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return // patterns are checked when they are read
		}
		for _, f := range files {
			if d, ok, err := DeviceOf(f); err == nil && ok && !slices.Contains(t.Devs, d) && !slices.Contains(list, d) {
				list = append(list, d)
			}
		}
	}
	for _, name := range controlFiles {
		add("/dev/" + name)
	}
	for _, pattern := range t.Strict {
		add(pattern)
	}
	return list
}

// allowed lists the devices that a job opens if it holds these of t.Devs.
func (t *Table) allowed(held []bool) []cgroup.Device {
	list := cgroup.BaseDevices()
	for n, d := range t.Devs {
		if held[n] {
			list = append(list, d)
		}
	}
	list = t.matches(list)
	return list[:min(len(list), maxAllowed)]
}
