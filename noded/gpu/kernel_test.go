package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// tree is a made-up /proc and /sys.
type tree struct {
	t    *testing.T
	root string
}

func (k *tree) write(path, text string) {
	k.t.Helper()
	path = filepath.Join(k.root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		k.t.Fatal(err)
	}
}

// gpu makes one: what the driver says of it, and its place below the host bridges in /sys.
func (k *tree) gpu(address, place, info string, numa int, cpus string) {
	k.t.Helper()
	k.write(filepath.Join(procGPUs, address, "information"), info)
	dir := filepath.Join("sys/devices", place, address)
	k.write(filepath.Join(dir, "numa_node"), fmt.Sprintln(numa))
	k.write(filepath.Join(dir, "local_cpulist"), cpus+"\n")
	link := filepath.Join(k.root, "sys/bus/pci/devices", address)
	if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755),
		os.Symlink(filepath.Join(k.root, dir), link)); err != nil {
		k.t.Fatal(err)
	}
}

func (k *tree) remove(path string) {
	k.t.Helper()
	if err := os.RemoveAll(filepath.Join(k.root, path)); err != nil {
		k.t.Fatal(err)
	}
}

const h100Info = "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 16\nGPU UUID: \t %s\nVideo BIOS: \t 96.00\nBus " +
	"Type: \t PCIe\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Excluded:\t No\n"

func info(uuid, address string, minor int) string {
	return fmt.Sprintf(h100Info, uuid, address, minor)
}

// dualSocket is a machine with two GPUs behind one switch, one behind another switch of that socket, and one on the
// other socket.
func dualSocket(t *testing.T) *tree {
	k := &tree{t, t.TempDir()}
	k.gpu("0000:17:00.0", "pci0000:15/0000:15:01.0/0000:16:00.0", info("GPU-0", "0000:17:00.0", 0), 0, "0-31,64-95")
	k.gpu("0000:18:00.0", "pci0000:15/0000:15:01.0/0000:16:01.0", info("GPU-1", "0000:18:00.0", 1), 0, "0-31,64-95")
	k.gpu("0000:3a:00.0", "pci0000:37/0000:37:01.0", info("GPU-????????-????-????-????-????????????", "0000:3a:00.0", 2),
		0, "0-31,64-95")
	k.gpu("0000:9a:00.0", "pci0000:97/0000:97:01.0", info("GPU-3", "0000:9a:00.0", 3), 1, "32-63,96-127")
	return k
}

func TestKernelDevices(t *testing.T) {
	k := dualSocket(t)
	// One that the driver was told to leave alone, and one in MIG mode whose instances only the library knows.
	k.gpu("0000:9b:00.0", "pci0000:97/0000:97:02.0",
		strings.Replace(info("GPU-4", "0000:9b:00.0", 4), "Excluded:\t No", "Excluded:\t Yes", 1), 1, "32-63,96-127")
	k.write("proc/driver/nvidia/capabilities/gpu3/mig/gi1/access", "DeviceFileMinor: 12\nDeviceFileMode: 256\n")
	got, err := Kernel(k.root).Devices()
	if err != nil {
		t.Fatal(err)
	}
	device := func(i int, uuid, address string, numa int, cpus string, near ...int) Device {
		return Device{Index: i, Minor: i, Major: 195, UUID: uuid, Name: "NVIDIA H100 80GB HBM3", Type: "h100",
			PCIBusID: address, NUMANode: numa, CPUAffinity: cpus,
			Path: fmt.Sprintf("/dev/nvidia%d", i), Near: near}
	}
	want := []Device{
		device(0, "GPU-0", "0000:17:00.0", 0, "0-31,64-95", 0, CommonSwitch, CommonNode, CommonSystem),
		device(1, "GPU-1", "0000:18:00.0", 0, "0-31,64-95", CommonSwitch, 0, CommonNode, CommonSystem),
		// nobody has used it yet: it has no UUID
		device(2, "", "0000:3a:00.0", 0, "0-31,64-95", CommonNode, CommonNode, 0, CommonSystem),
		device(3, "GPU-3", "0000:9a:00.0", 1, "32-63,96-127", CommonSystem, CommonSystem, CommonSystem, 0),
	}
	want[3].MIG = []Instance{}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	if caps := capFiles(k.root, 3, 1, 0); !reflect.DeepEqual(caps, []string{"/dev/nvidia-caps/nvidia-cap12"}) {
		t.Errorf("caps %q", caps)
	}

	if _, err := Kernel(t.TempDir()).Devices(); !errors.Is(err, ErrNoDriver) {
		t.Errorf("no driver: %v", err)
	}
	none := &tree{t, t.TempDir()}
	none.write("proc/driver/nvidia/version", "NVRM version: x\n")
	if err := os.MkdirAll(filepath.Join(none.root, procGPUs), 0o755); err != nil {
		t.Fatal(err)
	}
	if d, err := Kernel(none.root).Devices(); err != nil || len(d) != 0 {
		t.Errorf("a driver without GPUs: %v %v", d, err)
	}
}

// TestKernelOneBadGPU: an unreadable file of one GPU is a fault of that GPU only.
func TestKernelOneBadGPU(t *testing.T) {
	k := dualSocket(t)
	k.write(filepath.Join(procGPUs, "0000:17:00.0/information"), "Model: \t\t Unknown\n")
	k.remove("sys/bus/pci/devices/0000:9a:00.0")
	got, err := Kernel(k.root).Devices()
	if err != nil || len(got) != 4 {
		t.Fatalf("%v %+v", err, got)
	}
	for i, want := range []string{"information: Device Minor is ''", "", "", "the GPU at 0000:9a:00.0 has left the bus"} {
		if d := &got[i]; !strings.HasSuffix(d.Fault, want) || want == "" && d.Fault != "" {
			t.Errorf("GPU %d: %+v", i, d)
		}
	}
	if d := &got[3]; d.UUID != "GPU-3" || d.Path != "/dev/nvidia3" || d.Type != "h100" {
		t.Errorf("%+v", d)
	}
}

// TestKernelWatch: the kernel says whether a GPU still exists; there are no other readings.
func TestKernelWatch(t *testing.T) {
	k := dualSocket(t)
	ctx, cancel := context.WithCancel(context.Background())
	rounds := make(chan round, 100)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Kernel(k.root).Watch(ctx, time.Millisecond, nil, func(r []Reading, err error) {
			select {
			case rounds <- round{r, err}:
			case <-ctx.Done():
			}
		})
	}()
	defer func() { cancel(); <-ended }()
	w := &watching{t, "", rounds}
	r := w.until("readings", fine)
	if len(r.readings) != 4 || r.readings[1].UUID != "GPU-1" || r.readings[1].UtilPct != -1 ||
		r.readings[1].MemUsedMiB != -1 || r.readings[1].Lost {
		t.Fatalf("%+v", r)
	}
	lost := func(i int) func(round) bool { return func(r round) bool { return r.err == nil && r.readings[i].Lost } }
	k.remove("sys/bus/pci/devices/0000:18:00.0")
	if r := w.until("a lost GPU", lost(1)); !reflect.DeepEqual(r.readings[1].Faults,
		[]Fault{{FaultLost, 0, "the GPU at 0000:18:00.0 has left the bus", true}}) || r.readings[0].Lost {
		t.Errorf("%+v", r)
	}
	if r := w.until("the next round", fine); len(r.readings[1].Faults) != 0 || !r.readings[1].Lost {
		t.Errorf("told again: %+v", r)
	}
	k.remove(filepath.Join(procGPUs, "0000:9a:00.0"))
	if r := w.until("another lost GPU", lost(3)); !reflect.DeepEqual(r.readings[3].Faults,
		[]Fault{{FaultLost, 0, "the driver no longer lists the GPU at 0000:9a:00.0", true}}) {
		t.Errorf("%+v", r)
	}
}
