package gpu

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if status, handled := HelperMain(os.Args, os.Stdout); handled {
		os.Exit(status)
	}
	os.Exit(m.Run())
}

func TestShortType(t *testing.T) {
	for name, want := range map[string]string{
		"NVIDIA H100 80GB HBM3": "h100", "NVIDIA H100 PCIe": "h100", "NVIDIA H100 NVL": "h100", "NVIDIA H200": "h200",
		"NVIDIA H20":         "h20",
		"NVIDIA GH200 480GB": "gh200", "NVIDIA GB200": "gb200", "NVIDIA B200": "b200",
		"NVIDIA A100-SXM4-80GB": "a100", "NVIDIA A100 80GB PCIe": "a100", "A100-PCIE-40GB": "a100",
		"NVIDIA A800-SXM4-80GB": "a800",
		"Tesla V100-SXM2-16GB":  "v100", "Tesla P100-PCIE-16GB": "p100", "Tesla T4": "t4", "NVIDIA L40S": "l40s",
		"NVIDIA L4": "l4", "NVIDIA A10G": "a10g",
		"NVIDIA GeForce RTX 4090": "rtx4090", "NVIDIA GeForce RTX 3090": "rtx3090", "GeForce GTX 1080 Ti": "gtx1080ti",
		"NVIDIA GeForce RTX 4070 Ti SUPER": "rtx4070tisuper",
		"NVIDIA RTX A6000":                 "a6000", "NVIDIA RTX 6000 Ada Generation": "rtx6000ada",
		"Quadro RTX 8000": "rtx8000", "NVIDIA TITAN V": "titanv",
		"NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtxpro6000", "Tesla K80": "k80", "": "", "NVIDIA": "",
		"GPU strange/name": "strangename",
	} {
		if got := ShortType(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func FuzzShortType(f *testing.F) {
	f.Add("NVIDIA RTX A6000")
	f.Add("rtx rtx é 80GB")
	f.Fuzz(func(t *testing.T, name string) {
		for _, r := range ShortType(name) {
			if !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.') {
				t.Fatalf("%q gives %q", name, ShortType(name))
			}
		}
	})
}

func TestBusID(t *testing.T) {
	for in, want := range map[string]string{"00000000:1A:00.0": "0000:1a:00.0", "0001:17:00.0": "0001:17:00.0", "": "",
		"x": "", "00000000:../..": "", "zz:00:00.0": "", "00010000:3B:00.0": "10000:3b:00.0"} {
		if got := sysBusID(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// fakeNVML compiles a driver's library.
func fakeNVML(t *testing.T, defines ...string) string {
	t.Helper()
	if _, err := query(""); errors.Is(err, ErrNoCgo) {
		t.Skip("built without cgo")
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc to make a driver of")
	}
	lib := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	args := append([]string{"-shared", "-fPIC", "-o", lib, "testdata/fakenvml.c"}, defines...)
	if out, err := exec.Command(gcc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return lib
}

func TestNVML(t *testing.T) {
	for _, c := range []struct {
		name    string
		defines []string
		links   [][]int
	}{
		{"pairs", nil, [][]int{{-1, 2, 0, 0}, {2, -1, 0, 0}, {0, 0, -1, 2}, {0, 0, 2, -1}}},
		{"switch", []string{"-DSWITCH"}, [][]int{{-1, 2, 2, 2}, {2, -1, 2, 2}, {2, 2, -1, 2}, {2, 2, 2, -1}}},
		{"a driver that knows no NVLink", []string{"-DOLD"},
			[][]int{{-1, 0, 0, 0}, {0, -1, 0, 0}, {0, 0, -1, 0}, {0, 0, 0, -1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			pci := filepath.Join(root, "sys/bus/pci/devices/0000:1b:00.0")
			if err := errors.Join(os.MkdirAll(pci, 0o755), os.WriteFile(filepath.Join(pci, "numa_node"), []byte("1\n"), 0o644),
				os.WriteFile(filepath.Join(pci, "local_cpulist"), []byte("0-31,64-95\n"), 0o644)); err != nil {
				t.Fatal(err)
			}
			s := NVML(NVMLOptions{Library: fakeNVML(t, c.defines...)}).(*nvmlSource)
			s.root = root
			got, err := s.Devices()
			if err != nil {
				t.Fatal(err)
			}
			var want []Device
			for i := range 4 {
				d := Device{Index: i, Minor: 3 - i, Major: 195, UUID: fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i),
					Name: "NVIDIA H100 80GB HBM3", Type: "h100",
					MemMiB: 81559, PCIBusID: fmt.Sprintf("0000:%02x:00.0", 0x1a+i), NUMANode: -1,
					Path: fmt.Sprintf("/dev/nvidia%d", 3-i), Links: c.links[i]}
				if i == 1 {
					d.NUMANode, d.CPUAffinity = 1, "0-31,64-95"
				}
				want = append(want, d)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got\n%+v\nwant\n%+v", got, want)
			}
		})
	}
}

// TestDriversInTrouble: whatever the driver does, the result is an error.
func TestDriversInTrouble(t *testing.T) {
	for _, c := range []struct{ define, want string }{
		{"-DCRASH", "driver: about to crash"},
		{"-DHANG", "did not answer in 500ms"},
	} {
		_, err := NVML(NVMLOptions{Library: fakeNVML(t, c.define), Timeout: 500 * time.Millisecond}).Devices()
		if c.define != "-DHANG" {
			_, err = NVML(NVMLOptions{Library: fakeNVML(t, c.define)}).Devices()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.define, err)
		}
	}
	if d, err := NVML(NVMLOptions{Library: fakeNVML(t, "-DCOUNT=0")}).Devices(); err != nil || len(d) != 0 {
		t.Errorf("a driver without GPUs: %v %v", d, err)
	}
	for name, lib := range map[string]string{"not loaded": fakeNVML(t, "-DNODRIVER"),
		"no library": "/no/libnvidia-ml.so.1"} {
		if _, err := NVML(NVMLOptions{Library: lib}).Devices(); !errors.Is(err, ErrNoDriver) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NVML(NVMLOptions{Binary: "/bin/true"}).Devices(); err == nil ||
		!strings.Contains(err.Error(), "unreadable answer") {
		t.Errorf("another program: %v", err)
	}
	if _, err := NVML(NVMLOptions{Binary: "/no/such"}).Devices(); err == nil {
		t.Error("no program: no error")
	}
}

// TestOneBadGPU: a GPU that was lost before the first query, or that the driver can't describe, does not affect the
// others, and is identified by the kernel's files.
func TestOneBadGPU(t *testing.T) {
	root := t.TempDir()
	for i, text := range []string{"Model: NVIDIA H100 80GB HBM3\nGPU UUID: GPU-a\nDevice Minor: 3\n",
		"Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t GPU-????????-????-????-????-????????????\nDevice Minor: \t 2\n",
		"Model: NVIDIA H100 80GB HBM3\nGPU UUID: GPU-c\nDevice Minor: 1\n",
		"Model: NVIDIA H100 80GB HBM3\nGPU UUID: GPU-d\nDevice Minor: 0\n"} {
		dir := filepath.Join(root, procGPUs, fmt.Sprintf("0000:%02x:00.0", 0x1a+i))
		if err := errors.Join(os.MkdirAll(dir, 0o755),
			os.WriteFile(filepath.Join(dir, "information"), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		define, root string
		bad          int
		want         Device
	}{
		{"-DGONE=1", root, 1, Device{Fault: lostText, PCIBusID: "0000:1b:00.0", Path: "/dev/nvidia2", Minor: 2, Major: 195,
			Name: "NVIDIA H100 80GB HBM3", Type: "h100", MemMiB: 81559}},
		{"-DGONE=1", "/no", 1, Device{Fault: lostText, Name: "NVIDIA H100 80GB HBM3", Type: "h100", MemMiB: 81559}},
		{"-DLOST", root, 2, Device{Fault: "the driver can't use the GPU: UUID: Unknown Error", PCIBusID: "0000:1c:00.0",
			UUID: "GPU-c", Path: "/dev/nvidia1", Minor: 1, Major: 195,
			Name: "NVIDIA H100 80GB HBM3", Type: "h100", MemMiB: 81559}},
	} {
		s := NVML(NVMLOptions{Library: fakeNVML(t, c.define, "-DTOPOLOGY")}).(*nvmlSource)
		s.root = c.root
		got, err := s.Devices()
		if err != nil || len(got) != 4 {
			t.Fatalf("%s: %v %+v", c.define, err, got)
		}
		d := got[c.bad]
		d.Links, d.Near, d.Index, d.NUMANode = nil, nil, 0, 0
		if !reflect.DeepEqual(d, c.want) {
			t.Errorf("%s: got\n%+v\nwant\n%+v", c.define, d, c.want)
		}
		for i := range got {
			if i != c.bad && (got[i].Fault != "" || got[i].UUID != fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i)) {
				t.Errorf("%s: device %d: %+v", c.define, i, got[i])
			}
		}
		w := watch(t, NVMLOptions{}, c.define)
		r := w.until("readings", fine)
		if len(r.readings) != 4 || !r.readings[c.bad].Lost ||
			!reflect.DeepEqual(r.readings[c.bad].Faults, []Fault{{FaultLost, 0, c.want.Fault, true}}) || r.readings[3].Lost {
			t.Errorf("%s: %+v", c.define, r.readings)
		}
	}
}

func TestHelperMainMindsItsOwnBusiness(t *testing.T) {
	for _, args := range [][]string{{"gnoded"}, {"gnoded", "--version"}, {"gnoded", helperArg},
		{"gnoded", helperArg, "", "more"}} {
		if _, handled := HelperMain(args, nil); handled {
			t.Errorf("%q was handled", args)
		}
	}
}

func TestStandins(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gpus")
	file := filepath.Join(t.TempDir(), "gpus.json")
	standins := func(dir, devices string) ([]Device, error) {
		writeFake(t, file, fmt.Sprintf(`{"dir": %q, "devices": [%s]}`, dir, devices))
		return Fake(file).Devices()
	}
	got, err := standins(dir, `{"type": "H100", "count": 2}, {"type": "l4"}`)
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v %v", got, err)
	}
	seen := map[string]bool{}
	for i, d := range got {
		if d.Index != i || d.Minor != i || !d.Standin || seen[d.UUID] || filepath.Base(d.Path) != fmt.Sprintf("nvidia%d", i) {
			t.Errorf("%+v", d)
		}
		seen[d.UUID] = true
		var st syscall.Stat_t
		if err := syscall.Stat(d.Path, &st); err != nil {
			t.Fatal(err)
		}
		if d.Major != 0 && (st.Mode&syscall.S_IFMT != syscall.S_IFCHR || st.Mode&0o777 != 0o666 ||
			st.Rdev != unix.Mkdev(uint32(d.Major), uint32(i))) {
			t.Errorf("%s: mode %o, device %x", d.Path, st.Mode, st.Rdev)
		}
	}
	if got[0].Type != "h100" || got[0].MemMiB != 81559 || got[2].Type != "l4" ||
		!reflect.DeepEqual(got[0].Links, []int{-1, 18, 0}) || !reflect.DeepEqual(got[2].Links, []int{0, 0, -1}) {
		t.Errorf("%+v", got)
	}
	if os.Geteuid() == 0 && got[0].Major != 0 {
		// EACCES: mounted nodev
		if _, err := os.Open(got[0].Path); !errors.Is(err, unix.ENXIO) && !errors.Is(err, unix.EACCES) {
			t.Errorf("opening a stand-in: %v", err)
		}
	}
	// The same again: the same GPUs.
	if again, err := standins(dir, `{"type": "h100", "count": 2}, {"type": "l4"}`); err != nil ||
		!reflect.DeepEqual(again, got) {
		t.Errorf("got\n%+v %v\nbefore\n%+v", again, err, got)
	}
	// Fewer: the others go; what is not ours stays.
	if err := os.WriteFile(filepath.Join(dir, "nvidia-notes"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := standins(dir, `{"type": "a100"}`); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("%v %v", entries, err)
	}
	if d, err := standins(t.TempDir(), ""); err != nil || len(d) != 0 {
		t.Errorf("%v %v", d, err)
	}
	for _, bad := range []struct {
		dir string
		n   int
	}{{"/dev", 1}, {"/dev/nvidia", 1}, {dir, -1}, {dir, 1000}, {"/dev/null/x", 1}} {
		if _, err := standins(bad.dir, fmt.Sprintf(`{"type": "h100", "count": %d}`, bad.n)); err == nil {
			t.Errorf("%+v: no error", bad)
		}
	}
}

// TestStandinsWithoutRoot runs TestStandins as an ordinary user.
func TestStandinsWithoutRoot(t *testing.T) {
	if os.Geteuid() != 0 || runtime.GOOS != "linux" {
		t.Skip("needs root to become another user")
	}
	tmp, err := os.MkdirTemp("/tmp", "gpu-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	b, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(tmp, "tests"), b, 0o755), os.Chmod(tmp, 0o777))
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(tmp, "tests"), "-test.run", "^TestStandins$")
	cmd.Dir = tmp
	cmd.Env = append(os.Environ(), "HOME="+tmp, "TMPDIR="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestFreeMajor(t *testing.T) {
	all := "Character devices:\n195 nvidia\n"
	for m := 240; m <= 254; m++ {
		all += fmt.Sprintf("%d driver\n", m)
	}
	for want, in := range map[int]string{
		120: all,
		195: "Character devices:\n  1 mem\n\nBlock devices:\n195 x\n",
		240: "Character devices:\n195 nvidia\n195 nvidiactl\n\nBlock devices:\n240 x\n",
		242: "Character devices:\n195 nvidia\n240 a\n241 b\n",
	} {
		if got := freeMajor(in); got != want {
			t.Errorf("%q: %d, want %d", in, got, want)
		}
	}
}
