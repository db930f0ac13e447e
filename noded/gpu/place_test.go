package gpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestTopology(t *testing.T) {
	got, err := NVML(NVMLOptions{Library: fakeNVML(t, "-DTOPOLOGY")}).Devices()
	if err != nil {
		t.Fatal(err)
	}
	near := [][]int{{0, CommonSwitch, CommonSystem, CommonSystem}, {CommonSwitch, 0, CommonSystem, CommonSystem},
		{CommonSystem, CommonSystem, 0, CommonSwitch}, {CommonSystem, CommonSystem, CommonSwitch, 0}}
	for i, d := range got {
		if cpus := []string{"0-7", "8-11,63-64"}[i/2]; d.CPUAffinity != cpus || !reflect.DeepEqual(d.Near, near[i]) {
			t.Errorf("device %d: CPUs %s, near %v", i, d.CPUAffinity, d.Near)
		}
	}
}

// TestMIG: drivers that name the profile and those that tell sizes; GPU 2 is in MIG mode and not divided, GPU 3 can't
// be.
func TestMIG(t *testing.T) {
	for name, defines := range map[string][]string{"names": {"-DMIG", "-DMIGNAMES"}, "sizes": {"-DMIG"}} {
		t.Run(name, func(t *testing.T) {
			s := NVML(NVMLOptions{Library: fakeNVML(t, defines...)}).(*nvmlSource)
			s.root = t.TempDir()
			for file, minor := range map[string]int{"gi9/access": 84, "gi9/ci0/access": 85, "gi2/access": 21,
				"gi2/ci1/access": 23} {
				path := filepath.Join(s.root, "proc/driver/nvidia/capabilities/gpu2/mig", file) // GPU 1 has minor 2
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
					os.WriteFile(path, fmt.Appendf(nil, "DeviceFileMinor: %d\nDeviceFileMode: 292\n", minor), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			got, err := s.Devices()
			if err != nil || len(got) != 4 {
				t.Fatalf("%+v %v", got, err)
			}
			want := []Instance{
				{Index: 0, Profile: "1g.10gb", UUID: "MIG-00000000-0000-0000-0000-000000000001", GI: 9, CI: 0, MemMiB: 9984,
					Caps: []string{"/dev/nvidia-caps/nvidia-cap84", "/dev/nvidia-caps/nvidia-cap85"}},
				{Index: 1, Profile: "2c.3g.40gb", UUID: "MIG-00000000-0000-0000-0000-000000000002", GI: 2, CI: 1, MemMiB: 40192,
					Caps: []string{"/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap23"}},
			}
			if !reflect.DeepEqual(got[1].MIG, want) {
				t.Errorf("got\n%+v\nwant\n%+v", got[1].MIG, want)
			}
			if got[0].MIG != nil || got[3].MIG != nil || got[2].MIG == nil || len(got[2].MIG) != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestProfileOf(t *testing.T) {
	for _, c := range []struct {
		compute, slices int
		mem, device     int64
		want            string
	}{
		{1, 1, 9984, 81559, "1g.10gb"}, {2, 2, 19968, 81559, "2g.20gb"}, {7, 7, 80896, 81559, "7g.80gb"},
		{1, 1, 20096, 81559, "1g.20gb"},
		{1, 1, 4864, 40960, "1g.5gb"}, {7, 7, 40192, 40960, "7g.40gb"}, {1, 1, 16384, 143771, "1g.18gb"},
		{1, 3, 40192, 81559, "1c.3g.40gb"},
		{1, 1, 5952, 24576, "1g.6gb"}, {0, 0, 0, 0, ""}, {1, 1, 10, 0, ""},
	} {
		if got := profileOf(c.compute, c.slices, c.mem, c.device); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestCPUList(t *testing.T) {
	for _, c := range []struct {
		set  []uint
		want string
	}{{nil, ""}, {[]uint{0, 0}, ""}, {[]uint{1}, "0"}, {[]uint{0xb}, "0-1,3"}, {[]uint{1 << 63, 3}, "63-65"},
		{[]uint{^uint(0)}, "0-63"}} {
		if got := cpuList(c.set); got != c.want {
			t.Errorf("%x: %s", c.set, fmt.Sprint(got))
		}
	}
}
