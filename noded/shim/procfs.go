package shim

// procfs.go reads about processes from /proc and cgroup directories. Files there vanish at any moment, so a missing one
// is no error.

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is the content of /proc/PID/stat.
type process struct {
	pid     int
	state   byte // R, S, D, Z, ...
	parent  int
	group   int
	session int
	ticks   uint64 // start time since boot, in clock ticks
	carrier bool   // it has CarrierName
}

func (p process) dead() bool { return p.state == 'Z' || p.state == 'X' }

// maxStatBytes is more than a stat line can have: 52 numbers and a name of 64 bytes.
const maxStatBytes = 2048

// readProcess is called at every launch, so it avoids package os, which would register the file with the poller.
func readProcess(pid int) (process, error) {
	path := "/proc/" + strconv.Itoa(pid) + "/stat"
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return process{}, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	var buf [maxStatBytes]byte
	n, err := unix.Read(fd, buf[:])
	_ = unix.Close(fd) // nothing was written
	if err != nil {
		return process{}, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return parseStat(buf[:n])
}

// parseStat reads proc(5)'s stat line. The command name, in parentheses, can contain anything, also parentheses.
func parseStat(b []byte) (process, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return process{}, fmt.Errorf("unexpected stat line %q", clip(string(b)))
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:open])))
	if err != nil {
		return process{}, fmt.Errorf("unexpected stat line %q", clip(string(b)))
	}
	f := strings.Fields(string(b[end+1:]))
	const startField = 22 - 3 // f[0] is field 3
	if len(f) <= startField || len(f[0]) != 1 {
		return process{}, fmt.Errorf("unexpected stat line %q", clip(string(b)))
	}
	p := process{pid: pid, state: f[0][0], carrier: string(b[open+1:end]) == CarrierName}
	var errs [4]error
	p.parent, errs[0] = strconv.Atoi(f[1])
	p.group, errs[1] = strconv.Atoi(f[2])
	p.session, errs[2] = strconv.Atoi(f[3])
	p.ticks, errs[3] = strconv.ParseUint(f[startField], 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return process{}, fmt.Errorf("unexpected stat line: %w", err)
	}
	return p, nil
}

// allProcesses lists every process that /proc shows.
func allProcesses() ([]process, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, err
	}
	var out []process
	for _, n := range names {
		if n[0] < '1' || n[0] > '9' {
			continue
		}
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		if p, err := readProcess(pid); err == nil {
			out = append(out, p)
		}
	}
	return out, nil
}

// children lists the children of all threads of this process; ok is false if the kernel does not support it.
func children() (pids []int, ok bool) {
	const tasks = "/proc/self/task"
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return nil, false
	}
	for _, t := range threads {
		b, err := os.ReadFile(filepath.Join(tasks, t.Name(), "children"))
		if err != nil {
			if _, serr := os.Stat(filepath.Join(tasks, t.Name())); errors.Is(serr, fs.ErrNotExist) {
				continue // the thread has ended
			}
			return nil, false
		}
		for _, f := range bytes.Fields(b) {
			if pid, err := strconv.Atoi(string(f)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, true
}

// A process in the middle of an exec has no environment for a moment.
const (
	execLooks = 20
	execPause = time.Millisecond
)

// hasEnv reports whether the process was started with this NAME=value in its environment. If wait, one that has no
// environment at all is looked at again: it may be in the middle of an exec.
func hasEnv(pid int, entry string, wait bool) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	for looks := 1; wait && err == nil && len(b) == 0 && looks < execLooks; looks++ {
		time.Sleep(execPause) // paced by the kernel's own exec
		b, err = os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	}
	if err != nil {
		return false
	}
	for e := range bytes.SplitSeq(b, []byte{0}) {
		if string(e) == entry {
			return true
		}
	}
	return false
}

// cgroupProcesses lists the pids in a cgroup directory and below. A directory that is gone has none.
func cgroupProcesses(dir string) ([]int, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var pids []int
	if err != nil {
		return nil, err
	}
	for _, f := range bytes.Fields(b) {
		// 0 stands for a process that this pid namespace cannot see.
		if pid, err := strconv.Atoi(string(f)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	subs, err := os.ReadDir(dir)
	if err != nil {
		return pids, nil // gone in the meantime, and with it its processes
	}
	for _, s := range subs {
		if s.IsDir() {
			below, err := cgroupProcesses(filepath.Join(dir, s.Name()))
			if err != nil {
				return pids, err
			}
			pids = append(pids, below...)
		}
	}
	return pids, nil
}

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}

// readNumber reads a file of one number, or returns the default.
func readNumber(path string, def uint64) uint64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return def
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return def
	}
	return n
}

// ignoredSignals are the signals that this process ignores, bit N-1 for signal N; all if /proc does not say.
func ignoredSignals() uint64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return math.MaxUint64
	}
	_, rest, found := bytes.Cut(b, []byte("\nSigIgn:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	set, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 64)
	if !found || err != nil {
		return math.MaxUint64
	}
	return set
}
