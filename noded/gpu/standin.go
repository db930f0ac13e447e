package gpu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const maxStandins = 256 // minor 255 is nvidiactl's, which has no stand-in: 0 to 254 and beyond would be MIG's

// localMajors are ranges of numbers for local use, says the kernel's devices.txt. Drivers get theirs from 254 down.
var localMajors = [][2]int{{240, 254}, {120, 127}, {60, 63}}

// Stand-ins are files that stand for GPUs on a machine that has none, nvidia0 and so on, so that jobs can be given
// distinct ones and device rules can be seen to work. As root they are character devices of the NVIDIA driver's
// numbers: with no driver behind them, opening one gives ENXIO, or EPERM where a cgroup denies it. On a machine that
// does have the driver, where those numbers would be real GPUs, an unused major is taken. Without root, or where device
// files can't be made, they are plain files. Nothing in /dev is touched.

// standinDir gives the directory by its real name. The place of real devices is none.
func standinDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("stand-in GPUs: %w", err)
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real
	}
	if abs == "/dev" || strings.HasPrefix(abs, "/dev/") && !strings.HasPrefix(abs, "/dev/shm/") {
		return "", fmt.Errorf("stand-in GPUs: %s is the place of real devices: choose another directory", abs)
	}
	return abs, nil
}

// makeStandins makes the files of devices that lie in dir, and removes those of an earlier, larger set.
func makeStandins(dir string, devices []Device) error {
	dir, err := standinDir(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return fmt.Errorf("stand-in GPUs: %w", err)
	}
	n := 0
	for i := range devices {
		if filepath.Dir(devices[i].Path) != dir {
			continue
		}
		if err := makeStandin(&devices[i]); err != nil {
			return fmt.Errorf("stand-in GPUs: %w", err)
		}
		n = max(n, devices[i].Minor+1)
	}
	if err := removeStale(dir, n); err != nil {
		return fmt.Errorf("stand-in GPUs: %w", err)
	}
	return nil
}

// freeMajor picks the major number: NVIDIA's own unless the driver has it, given /proc/devices.
func freeMajor(devices string) int {
	used := map[int]bool{}
	chars, _, _ := strings.Cut(devices, "Block devices:")
	for line := range strings.Lines(chars) {
		if f := strings.Fields(line); len(f) == 2 {
			if n, err := strconv.Atoi(f[0]); err == nil {
				used[n] = true
			}
		}
	}
	if !used[nvidiaMajor] {
		return nvidiaMajor
	}
	for _, r := range localMajors {
		for m := r[0]; m <= r[1]; m++ {
			if !used[m] {
				return m
			}
		}
	}
	return 0 // no device file then
}

// model is what is known of a common type.
type model struct {
	name   string
	memMiB int64
	links  int // to each other one of the same type on a node
}

func modelOf(typ string) model {
	switch strings.ToLower(typ) {
	case "gb200":
		return model{"NVIDIA GB200", 189471, 18}
	case "b200":
		return model{"NVIDIA B200", 183359, 18}
	case "h200":
		return model{"NVIDIA H200", 143771, 18}
	case "h100":
		return model{"NVIDIA H100 80GB HBM3", 81559, 18}
	case "h800":
		return model{"NVIDIA H800", 81559, 8}
	case "a100":
		return model{"NVIDIA A100-SXM4-80GB", 81920, 12}
	case "a800":
		return model{"NVIDIA A800-SXM4-80GB", 81920, 8}
	case "v100":
		return model{"Tesla V100-SXM2-32GB", 32768, 2}
	case "p100":
		return model{"Tesla P100-PCIE-16GB", 16384, 0}
	case "l40s":
		return model{"NVIDIA L40S", 46068, 0}
	case "l40":
		return model{"NVIDIA L40", 46068, 0}
	case "l4":
		return model{"NVIDIA L4", 23034, 0}
	case "a40":
		return model{"NVIDIA A40", 46068, 0}
	case "a30":
		return model{"NVIDIA A30", 24576, 0}
	case "a10":
		return model{"NVIDIA A10", 23028, 0}
	case "t4":
		return model{"Tesla T4", 15360, 0}
	case "rtx4090":
		return model{"NVIDIA GeForce RTX 4090", 24564, 0}
	case "rtx3090":
		return model{"NVIDIA GeForce RTX 3090", 24576, 0}
	}
	return model{strings.TrimSpace("GPU " + typ), 16384, 0}
}

// makeStandin makes the file of one, unless it is there. d.Major is 0 for a plain file.
func makeStandin(d *Device) error {
	dev := unix.Mkdev(uint32(d.Major), uint32(d.Minor))
	var st unix.Stat_t
	switch err := unix.Lstat(d.Path, &st); {
	case err == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && d.Major != 0 && st.Rdev == dev:
		return nil
	case err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && os.Geteuid() != 0:
		d.Major = 0
		return nil
	case err == nil:
		if err := os.Remove(d.Path); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return &fs.PathError{Op: "stat", Path: d.Path, Err: err}
	}
	if d.Major != 0 {
		if err := unix.Mknod(d.Path, unix.S_IFCHR|0o666, int(dev)); err == nil {
			return os.Chmod(d.Path, 0o666) // like the driver's own; the umask has taken some of it
		}
	}
	// No right to make device files: the file only has a name.
	d.Major = 0
	f, err := os.OpenFile(d.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o444)
	if err != nil {
		return err
	}
	return f.Close()
}

// removeStale removes the files of a larger set that was here before.
func removeStale(dir string, n int) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		num, ok := strings.CutPrefix(e.Name(), "nvidia")
		i, err := strconv.Atoi(num)
		if ok && err == nil && i >= n && strconv.Itoa(i) == num {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
