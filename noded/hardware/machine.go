package hardware

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// machine.go reads the machine's data from /proc and /sys, below a root directory, so that tests can use other
// machines.

// maxProcFile limits the bytes read of one file in /proc or /sys.
const maxProcFile = 1 << 20

// Machine is one host as its kernel describes it.
type Machine struct {
	Root string // "/", or the directory of a test's own /proc and /sys
}

func (m Machine) read(path string) (string, error) {
	f, err := os.Open(filepath.Join(m.Root, path))
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxProcFile))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// cpus reads the online CPUs and their sockets, cores and threads. order lists them so that the threads of a core and
// the cores of a socket are neighbours: the i-th of them is CPU i of the node, as allocations count. Uneven machines
// (hybrid cores, offline threads) are described by the whole numbers that keep CPUs right: one thread per core. CPUs
// for which usable is false are left out: this process may not run on them, as in a container.
func (m Machine) cpus(usable func(cpu int) bool) (order []int, hw proto.Hardware, err error) {
	const dir = "sys/devices/system/cpu"
	text, err := m.read(dir + "/online")
	if err != nil {
		return nil, hw, fmt.Errorf("which CPUs are there: %w", err)
	}
	online, err := hostlist.ParseIndexes(text)
	if err != nil || len(online) == 0 {
		return nil, hw, fmt.Errorf("which CPUs are there: %s/online says %q", dir, text)
	}
	online = slices.DeleteFunc(online, func(cpu int) bool { return !usable(cpu) })
	if len(online) == 0 {
		return nil, hw, fmt.Errorf("none of the CPUs %s may be used", text)
	}
	at := make(map[int][2]int, len(online)) // package and core by CPU
	packages := map[int]bool{}
	cores := map[[2]int]bool{}
	for _, cpu := range online {
		pkg, perr := m.number(fmt.Sprintf("%s/cpu%d/topology/physical_package_id", dir, cpu))
		core, cerr := m.number(fmt.Sprintf("%s/cpu%d/topology/core_id", dir, cpu))
		if perr != nil || cerr != nil {
			// Containers and some virtual machines hide the topology: every CPU is a core of one socket.
			pkg, core = 0, cpu
		}
		at[cpu] = [2]int{pkg, core}
		packages[pkg] = true
		cores[at[cpu]] = true
	}
	order = slices.Clone(online)
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := at[a], at[b]
		return slices.Compare(x[:], y[:])
	})
	n, sockets, all := len(online), len(packages), len(cores)
	hw = proto.Hardware{CPUs: int32(n), Sockets: int32(sockets), Cores: int32(all / sockets), Threads: int32(n / all)}
	if int(hw.Sockets*hw.Cores*hw.Threads) != n {
		hw.Sockets, hw.Cores, hw.Threads = 1, int32(n), 1
	}
	return order, hw, nil
}

// ownCPUs gives a function that tells whether this process may run on a CPU.
func ownCPUs() (func(cpu int) bool, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("which CPUs may be used: %w", err)
	}
	return set.IsSet, nil
}

func (m Machine) number(path string) (int, error) {
	text, err := m.read(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

// Memory reads total and free memory, MiB.
func (m Machine) Memory() (total, free int64, err error) {
	text, err := m.read("proc/meminfo")
	if err != nil {
		return 0, 0, err
	}
	total, free = -1, -1
	sc := bufio.NewScanner(strings.NewReader(text))
	for sc.Scan() {
		name, rest, ok := strings.Cut(sc.Text(), ":")
		if !ok || name != "MemTotal" && name != "MemFree" {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("/proc/meminfo: %s is %q: %w", name, strings.TrimSpace(rest), err)
		}
		if name == "MemTotal" {
			total = kib >> 10
		} else {
			free = kib >> 10
		}
	}
	if total < 0 || free < 0 {
		return 0, 0, errors.New("/proc/meminfo has no MemTotal or MemFree")
	}
	return total, free, nil
}

// LoadMilli reads the load average of one minute, in thousandths.
func (m Machine) LoadMilli() (int64, error) {
	text, err := m.read("proc/loadavg")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(text, " ")
	f, err := strconv.ParseFloat(first, 64)
	if err != nil || f < 0 || f > 1e9 {
		return 0, fmt.Errorf("/proc/loadavg says %q", text)
	}
	return int64(f*1000 + 0.5), nil
}

// boot reads the identity and the time of this boot.
func (m Machine) boot() (id string, at model.Time, err error) {
	if id, err = m.read("proc/sys/kernel/random/boot_id"); err != nil {
		return "", 0, err
	}
	text, err := m.read("proc/stat")
	if err != nil {
		return "", 0, err
	}
	for line := range strings.SplitSeq(text, "\n") {
		if v, ok := strings.CutPrefix(line, "btime "); ok {
			s, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			if err != nil {
				return "", 0, fmt.Errorf("/proc/stat: btime is %q", v)
			}
			return id, model.Time(s * 1000), nil
		}
	}
	return "", 0, errors.New("/proc/stat has no btime")
}

// tmpMiB gives the size of the file system that holds dir, MiB.
func tmpMiB(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return int64(st.Blocks) * st.Bsize >> 20, nil
}

// kernel gives the operating system as Slurm shows it, and the machine's architecture.
func kernel() (system, arch string, err error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", "", fmt.Errorf("uname: %w", err)
	}
	text := func(b []byte) string { return unix.ByteSliceToString(b) }
	return text(u.Sysname[:]) + " " + text(u.Release[:]) + " " + text(u.Version[:]), text(u.Machine[:]), nil
}

// numa reads which memory node each CPU is near; unreadable nodes are missing.
func (m Machine) numa() map[int]int {
	const dir = "sys/devices/system/node"
	entries, err := os.ReadDir(filepath.Join(m.Root, dir))
	if err != nil {
		return nil
	}
	out := map[int]int{}
	for _, e := range entries {
		id, ok := strings.CutPrefix(e.Name(), "node")
		node, err := strconv.Atoi(id)
		if !ok || err != nil {
			continue
		}
		text, err := m.read(filepath.Join(dir, e.Name(), "cpulist"))
		if err != nil || text == "" {
			continue
		}
		cpus, err := hostlist.ParseIndexes(text)
		if err != nil {
			continue
		}
		for _, c := range cpus {
			out[c] = node
		}
	}
	return out
}
