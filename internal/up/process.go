package up

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a process that can be told from every other one until the next boot: pids are used again, but not with
// the same start time.
type process struct {
	PID   int    `json:"pid,omitempty"`
	Start uint64 `json:"start_ticks,omitempty"` // field 22 of /proc/PID/stat
}

const bootIDFile = "/proc/sys/kernel/random/boot_id"

// bootID names this boot of the machine.
func bootID() (string, error) {
	b, err := os.ReadFile(bootIDFile)
	if err != nil {
		return "", fmt.Errorf("which boot of the machine this is: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// statOf gives the fields of /proc/PID/stat from the third on, which is the state; none for a process that has gone.
func statOf(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	// The command's name stands in parentheses and may hold anything: the fields begin behind the last one.
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
}

// processOf looks at a running process; ok is false where there is none, or only its zombie.
func processOf(pid int) (p process, ok bool) {
	f := statOf(pid)
	const state, threads, start = 0, 17, 19 // fields 3, 20 and 22
	// A process whose main thread has ended may still have others, and with them its files and ports. The kernel counts
	// them in the same reading: a list of /proc/PID/task is another one, and can fail while they end.
	if pid <= 0 || len(f) <= start || f[state] == "X" || f[state] == "Z" && (f[threads] == "1" || f[threads] == "0") {
		return process{}, false
	}
	ticks, err := strconv.ParseUint(f[start], 10, 64)
	if err != nil {
		return process{}, false
	}
	return process{pid, ticks}, true
}

// parentOf gives the parent of a process; 0 where there is none.
func parentOf(pid int) int {
	f := statOf(pid)
	if len(f) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(f[1]) // it is a number
	return parent
}

// runs reports whether exactly this process still runs.
func (p process) runs() bool {
	now, ok := processOf(p.PID)
	return ok && now == p
}

// signal sends a signal to exactly this process; one that has gone is no error.
func (p process) signal(sig syscall.Signal) error {
	if !p.runs() {
		return nil
	}
	if err := syscall.Kill(p.PID, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %v to process %d: %w", sig, p.PID, err)
	}
	return nil
}

const goneEvery = 5 * time.Millisecond

// gone waits until the processes have ended, and returns those that have not after the time given.
func gone(list []process, limit time.Duration) []process {
	for end := time.Now().Add(limit); ; time.Sleep(goneEvery) {
		left := list[:0:0]
		for _, p := range list {
			if p.runs() {
				left = append(left, p)
			}
		}
		if list = left; len(list) == 0 || time.Now().After(end) {
			return list
		}
	}
}

// commands gives the command lines of all processes that this user may look at.
func commands() (map[process][]string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	out := map[process][]string{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || len(b) == 0 {
			continue // gone, or a thread of the kernel
		}
		if p, ok := processOf(pid); ok {
			out[p] = strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
		}
	}
	return out, nil
}

// option gives the value behind -x in a command line.
func option(argv []string, name string) string {
	for i := 1; i+1 < len(argv); i++ {
		if argv[i] == name {
			return argv[i+1]
		}
	}
	return ""
}

// listener finds out who listens on a TCP port of this machine, as "process 123 (nginx)"; "" where it can't be seen.
func listener(port int) string {
	inodes := map[string]bool{}
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			const local, state, inode, listen = 1, 3, 9, "0A"
			f := strings.Fields(line)
			if len(f) <= inode || f[state] != listen {
				continue
			}
			_, hex, _ := strings.Cut(f[local], ":")
			if n, err := strconv.ParseUint(hex, 16, 16); err == nil && int(n) == port {
				inodes["socket:["+f[inode]+"]"] = true
			}
		}
	}
	if len(inodes) == 0 {
		return ""
	}
	all, err := commands()
	if err != nil {
		return ""
	}
	for p, argv := range all {
		dir := fmt.Sprintf("/proc/%d/fd", p.PID)
		fds, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && inodes[to] {
				return fmt.Sprintf("process %d (%s)", p.PID, filepath.Base(argv[0]))
			}
		}
	}
	return "a process of another user"
}

// tail gives the last lines of a file, for people; "" where there is nothing.
func tail(path string, lines int) string {
	const most = 16 << 10
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return ""
	}
	b := make([]byte, min(st.Size(), most))
	n, err := f.ReadAt(b, st.Size()-int64(len(b)))
	if err != nil && n == 0 {
		return ""
	}
	all := strings.Split(strings.TrimRight(string(b[:n]), "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return strings.Join(all, "\n")
}

// exists reports whether something lies at path; what can't be looked at counts as there.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
