package cgroup

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"gbatch/internal/model"
)

const maxDevices = 512 // of one policy; a v2 program has a few instructions for each

// Any as major or minor number means all.
const Any = -1

// Device is a device file or a range of them.
type Device struct {
	Block        bool // a block device; else a character device
	Major, Minor int64
}

// Devices says which device files a group may open. Exactly one list counts: if Deny is set, all other devices open;
// else only those of Allow open. The same holds for creating device files (mknod).
type Devices struct {
	Allow []Device
	Deny  []Device
}

// BaseDevices are the devices that ordinary programs need, for an Allow list.
func BaseDevices() []Device {
	var out []Device
	for _, b := range model.BaseDevices() {
		out = append(out, Device{Major: b.Major, Minor: max(b.Minor, Any)})
	}
	return out
}

// IsBase reports whether a device is one of BaseDevices.
func IsBase(d Device) bool {
	return !d.Block && slices.ContainsFunc(model.BaseDevices(), func(b model.BaseDevice) bool {
		return b.Is(d.Major, d.Minor)
	})
}

func (d *Devices) check() error {
	if len(d.Allow) > 0 && len(d.Deny) > 0 {
		return errors.New("devices: either an Allow or a Deny list, not both")
	}
	if len(d.Allow)+len(d.Deny) > maxDevices {
		return fmt.Errorf("devices: %d entries, at most %d", len(d.Allow)+len(d.Deny), maxDevices)
	}
	for _, v := range append(d.Allow[:len(d.Allow):len(d.Allow)], d.Deny...) {
		if v.Major < Any || v.Minor < Any || v.Major > 0xfff || v.Minor > 0xfffff {
			return fmt.Errorf("devices: no device has the number %d:%d", v.Major, v.Minor)
		}
	}
	return nil
}

// program is the policy as a v2 device program. Its last matching rule counts; access is always rwm, since the
// library's filter lets O_RDWR through an r-only rule.
func (d *Devices) program() []specs.LinuxDeviceCgroup {
	any := int64(Any)
	rules := []specs.LinuxDeviceCgroup{{Allow: d.Deny != nil, Type: "a", Major: &any, Minor: &any, Access: "rwm"}}
	list, allow := d.Allow, true
	if d.Deny != nil {
		list, allow = d.Deny, false
	}
	for i := range list {
		typ := "c"
		if list[i].Block {
			typ = "b"
		}
		rules = append(rules, specs.LinuxDeviceCgroup{Allow: allow, Type: typ, Major: &list[i].Major, Minor: &list[i].Minor,
			Access: "rwm"})
	}
	return rules
}

// write puts the policy on a v1 devices directory.
func (d *Devices) write(dir string) error {
	file, list := "devices.deny", d.Deny
	if d.Deny == nil {
		if err := writeFile(filepath.Join(dir, "devices.deny"), "a"); err != nil {
			return err
		}
		file, list = "devices.allow", d.Allow
	}
	for _, v := range list {
		if err := writeFile(filepath.Join(dir, file), v.String()+" rwm"); err != nil {
			return err
		}
	}
	return nil
}

// String is v1's notation, such as "c 195:3" or "c 136:*".
func (v Device) String() string {
	var b strings.Builder
	b.WriteString("c ")
	if v.Block {
		b.Reset()
		b.WriteString("b ")
	}
	number := func(n int64) string {
		if n == Any {
			return "*"
		}
		return strconv.FormatInt(n, 10)
	}
	return b.String() + number(v.Major) + ":" + number(v.Minor)
}

const probeName = "gbatch-probe" // no job has this name

// tryDeviceProgram tests whether device programs can be attached here.
func (r *Root) tryDeviceProgram() error {
	dir := filepath.Join(r.v2, probeName)
	if err := unix.Mkdir(dir, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make the cgroup %s: %w", dir, err)
	}
	err := r.programs.attach(&Devices{Deny: []Device{}}, dir)
	return errors.Join(err, unix.Rmdir(dir))
}
