package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is a group's usage so far, of all its processes together, also of those that have ended. A value that the host
// does not measure is 0 (see Features CPUTime and Memory).
type Usage struct {
	UserCPU      time.Duration
	SysCPU       time.Duration
	MemPeakBytes int64 // the most at any time, page cache included; before Linux 5.19 on v2: the present value
	OOMKills     int64 // processes that the kernel has killed because the group was at its memory limit
}

// Usage reads the counters. A removed group is an error (fs.ErrNotExist).
func (g *Group) Usage() (Usage, error) {
	var u Usage
	err := errors.Join(g.cpuUsage(&u), g.memUsage(&u))
	if err != nil {
		return u, fmt.Errorf("usage of group %s: %w", g.name, err)
	}
	return u, nil
}

func (g *Group) cpuUsage(u *Usage) error {
	var buf [smallFile]byte
	switch {
	case !g.root.can.CPUTime:
		return nil
	case g.v2 != "":
		b, err := readSmall(g.v2, "cpu.stat", buf[:])
		if err != nil {
			return err
		}
		user, uerr := field(b, "user_usec")
		sys, serr := field(b, "system_usec")
		u.UserCPU, u.SysCPU = time.Duration(user)*time.Microsecond, time.Duration(sys)*time.Microsecond
		return errors.Join(uerr, serr)
	case g.v1["cpuacct"] == "":
		return nil
	}
	b, err := readSmall(g.v1["cpuacct"], "cpuacct.stat", buf[:])
	if err != nil {
		return err
	}
	user, uerr := field(b, "user")
	sys, serr := field(b, "system")
	tick := time.Second / time.Duration(g.root.ticks)
	u.UserCPU, u.SysCPU = time.Duration(user)*tick, time.Duration(sys)*tick
	return errors.Join(uerr, serr)
}

func (g *Group) memUsage(u *Usage) error {
	var buf [smallFile]byte
	var err error
	if g.v2 != "" && g.root.v2ctl["memory"] {
		if u.MemPeakBytes, err = number(g.v2, "memory.peak"); errors.Is(err, fs.ErrNotExist) {
			u.MemPeakBytes, err = number(g.v2, "memory.current")
		}
		if err != nil {
			return err
		}
		b, err := readSmall(g.v2, "memory.events", buf[:])
		if err != nil {
			return err
		}
		u.OOMKills, err = field(b, "oom_kill")
		return err
	}
	dir := g.v1["memory"]
	if dir == "" {
		return nil
	}
	if u.MemPeakBytes, err = number(dir, "memory.max_usage_in_bytes"); err != nil {
		return err
	}
	b, err := readSmall(dir, "memory.oom_control", buf[:])
	if err != nil {
		return err
	}
	if bytes.Contains(b, []byte("oom_kill ")) { // Linux 4.13
		u.OOMKills, err = field(b, "oom_kill")
	}
	return err
}

// OwnOOMKills gives the OOMKills of the group's own processes, without those of the groups of steps below it.
func (g *Group) OwnOOMKills() (int64, error) {
	if g.v2 == "" || !g.root.v2ctl["memory"] {
		var u Usage
		err := g.memUsage(&u)
		return u.OOMKills, err
	}
	var sum int64
	for _, dir := range [...]string{g.v2, g.v2 + "/" + ownPart} {
		var buf [smallFile]byte
		b, err := readSmall(dir, "memory.events.local", buf[:]) // Linux 5.2
		if errors.Is(err, fs.ErrNotExist) && dir != g.v2 {
			break
		}
		n, ferr := field(b, "oom_kill")
		if err = errors.Join(err, ferr); err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// MemLimit gives the group's memory limit in bytes; 0 if there is none.
func (g *Group) MemLimit() (int64, error) {
	dir, file := g.v1["memory"], "memory.limit_in_bytes"
	switch {
	case g.v2 != "" && g.root.v2ctl["memory"]:
		dir, file = g.v2, "memory.max"
	case dir == "":
		return 0, nil
	}
	var buf [smallFile]byte
	b, err := readSmall(dir, file, buf[:])
	if err != nil {
		return 0, err
	}
	n := digits(b)
	if n >= 1<<62 { // v1's value for no limit
		n = 0
	}
	return n, nil
}

func number(dir, file string) (int64, error) {
	var buf [smallFile]byte
	b, err := readSmall(dir, file, buf[:])
	if err != nil {
		return 0, err
	}
	if len(b) == 0 || b[0] < '0' || b[0] > '9' {
		return 0, fmt.Errorf("%s/%s: %q is not a number", dir, file, b)
	}
	return digits(b), nil
}

// smallFile is the size of the buffer for counters at a group's end, bytes.
const smallFile = 2048

// readSmall reads a control file of at most smallFile bytes with three system calls: every job's end reads four of
// them.
func readSmall(dir, file string, buf []byte) ([]byte, error) {
	path := dir + "/" + file
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	var n int
	for {
		if n, err = unix.Read(fd, buf); err != unix.EINTR {
			break
		}
	}
	_ = unix.Close(fd) // only read from
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return buf[:n], nil
}

// field finds "name value" in a file of such lines.
func field(b []byte, name string) (int64, error) {
	for rest := b; len(rest) > 0; {
		line := rest
		if i := bytes.IndexByte(rest, '\n'); i >= 0 {
			line, rest = rest[:i], rest[i+1:]
		} else {
			rest = nil
		}
		if len(line) > len(name)+1 && line[len(name)] == ' ' && string(line[:len(name)]) == name {
			return digits(line[len(name)+1:]), nil
		}
	}
	return 0, fmt.Errorf("no field %s", name)
}
