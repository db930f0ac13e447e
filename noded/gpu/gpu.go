package gpu

import (
	"context"
	"errors"
	"strings"
	"time"
)

// Device is one GPU.
type Device struct {
	Index       int    // in this list
	Minor       int    // of its device file
	Major       int    // likewise; 195 for NVIDIA's driver, 0 for a stand-in that is a plain file
	UUID        string // GPU-...
	Name        string // the driver's, "NVIDIA H100 80GB HBM3"
	Type        string // as Slurm's Gres types are written, "h100"
	MemMiB      int64
	PCIBusID    string // "0000:17:00.0"; "" for stand-ins
	NUMANode    int    // -1 if unknown
	CPUAffinity string // CPUs close to it, in the kernel's list notation ("0-31,64-95"); "" if unknown
	Path        string // its device file, "/dev/nvidia0"
	Links       []int  // NVLink connections to each device of the list, -1 for itself, as in gres.conf's Links
	Standin     bool   // not a real GPU
	Fault       string // why it can't be used; some of the above may then be missing; "": it is usable

	Near []int      // how near each device of the list is on the buses: a Common*, 0 for itself; nil if unknown
	MIG  []Instance // its instances; nil: it is not divided
}

// How near two GPUs are: their nearest common ancestor, in NVML's numbers.
const (
	CommonBoard      = 0  // one board
	CommonSwitch     = 10 // one PCIe switch
	CommonSwitches   = 20 // several PCIe switches, one host bridge not needed
	CommonHostBridge = 30
	CommonNode       = 40 // one NUMA node
	CommonSystem     = 50
)

// Instance is one MIG instance of a GPU: a compute instance with its part of the memory.
type Instance struct {
	Index   int    // among the device's MIG devices
	Profile string // "1g.10gb"
	UUID    string // MIG-...
	GI, CI  int    // GPU instance, compute instance
	MemMiB  int64
	// device files that grant its use, /dev/nvidia-caps/nvidia-capN: of the GPU instance, then of the compute instance
	Caps []string
}

// Source is where devices come from.
type Source interface {
	// Devices lists them. ErrNoDriver: this machine has no GPU driver.
	Devices() ([]Device, error)

	// Watch calls got with a reading of every device, at once and then every so often and whenever it gets something from
	// now, until ctx ends, and then returns. An error is of one round: the next may succeed. got is called from one
	// goroutine and owns its argument.
	Watch(ctx context.Context, every time.Duration, now <-chan struct{}, got func([]Reading, error))
}

// Texts about unusable GPUs.
const (
	lostText  = "the GPU has fallen off the bus, or no longer answers"
	resetText = "the driver refuses the GPU until it is reset"
)

// ErrNoDriver says that the machine has no NVIDIA driver, so no GPUs that could be used.
var ErrNoDriver = errors.New("no NVIDIA driver is loaded")

// ErrNoCgo says that this program can't ask the driver.
var ErrNoCgo = errors.New("this gnoded was built without cgo and can't ask the NVIDIA driver for GPUs: build it with " +
	"CGO_ENABLED=1, or list them in gres.conf")

// nvidiaMajor is the major number of /dev/nvidiaN.
const nvidiaMajor = 195

// ShortType makes a Gres type of a product name: "NVIDIA H100 80GB HBM3" is h100, "NVIDIA GeForce RTX 4090" is rtx4090.
// It keeps the words that distinguish products for a user and drops maker, form factor, bus and memory size. "" if no
// word is left.
func ShortType(name string) string {
	var kept []string
	for _, w := range strings.FieldsFunc(strings.ToLower(name),
		func(r rune) bool { return r == ' ' || r == '-' || r == '_' || r == '/' }) {
		w = strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' {
				return r
			}
			return -1
		}, w)
		if w != "" && !noise(w) {
			kept = append(kept, w)
		}
	}
	// A6000 was sold as "RTX A6000": the letter says it all. "RTX 6000" needs its family.
	if len(kept) > 1 && kept[0] == "rtx" && kept[1][0] >= 'a' && kept[1][0] <= 'z' &&
		strings.ContainsAny(kept[1], "0123456789") {
		kept = kept[1:]
	}
	return strings.Join(kept, "")
}

// noise reports whether a word of a product name does not identify the GPU.
func noise(w string) bool {
	switch w {
	case "nvidia", "tesla", "quadro", "geforce", "corporation", "graphics", "device", "pcie", "pci", "sxm", "sxm2", "sxm3",
		"sxm4", "sxm5", "sxm6",
		"nvl", "hbm", "hbm2", "hbm2e", "hbm3", "hbm3e", "gddr6", "generation", "edition", "server", "workstation",
		"blackwell", "standin", "tensor", "core", "gpu", "dgx", "display":
		return true
	}
	for _, unit := range []string{"gb", "gib", "mb", "mib"} {
		if n, ok := strings.CutSuffix(w, unit); ok && n != "" && strings.Trim(n, "0123456789") == "" {
			return true
		}
	}
	return false
}
