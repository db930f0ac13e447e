package hardware

import (
	"strings"
	"testing"

	"gbatch/internal/conf"
	"gbatch/noded/cgroup"
)

// Devices that every program needs are never denied, whatever gres.conf says.
func TestBaseDevicesAreNeverDenied(t *testing.T) {
	table := NewTable([]Unit{{Name: "gpu", Files: []string{"/dev/null"}},
		{Name: "lamp", Files: []string{"/dev/zero", "/dev/tty"}}}, &conf.Cgroup{})
	if rules := table.Rules(nil); rules != nil {
		t.Errorf("denies %+v", rules.Deny)
	}
	if len(table.Notable) != 3 ||
		!strings.Contains(table.Notable[0], "gpu /dev/null is device 1:3, which every program needs") {
		t.Errorf("said %q", table.Notable)
	}
	for _, d := range cgroup.BaseDevices() {
		if d.Minor == cgroup.Any {
			d.Minor = 7
		}
		if !cgroup.IsBase(d) {
			t.Errorf("%+v is not known", d)
		}
	}
	if cgroup.IsBase(cgroup.Device{Major: 195, Minor: 0}) ||
		cgroup.IsBase(cgroup.Device{Block: true, Major: 1, Minor: 3}) {
		t.Error("an accelerator counts as what every program needs")
	}
}
