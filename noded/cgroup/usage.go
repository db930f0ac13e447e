package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Usage is what a group has used so far, all its processes together, also those that have ended. What a host does not
// measure is 0 (see Features CPUTime and Memory).
type Usage struct {
	UserCPU      time.Duration
	SysCPU       time.Duration
	MemPeakBytes int64 // the most at any time, page cache included; before Linux 5.19 on v2: what it is now
	MemBytes     int64 // now
	OOMKills     int64 // processes that the kernel has killed because the group was at its memory limit
}

// Usage reads the counters. A group that has been removed is an error (fs.ErrNotExist).
func (g *Group) Usage() (Usage, error) {
	var u Usage
	err := errors.Join(g.cpuUsage(&u), g.memUsage(&u))
	if err != nil {
		return u, fmt.Errorf("usage of group %s: %w", g.name, err)
	}
	return u, nil
}

func (g *Group) cpuUsage(u *Usage) error {
	switch {
	case !g.root.can.CPUTime:
		return nil
	case g.v2 != "":
		b, err := os.ReadFile(filepath.Join(g.v2, "cpu.stat"))
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
	b, err := os.ReadFile(filepath.Join(g.v1["cpuacct"], "cpuacct.stat"))
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
	var err error
	if g.v2 != "" && g.root.v2ctl["memory"] {
		if u.MemBytes, err = number(g.v2, "memory.current"); err != nil {
			return err
		}
		if u.MemPeakBytes, err = number(g.v2, "memory.peak"); errors.Is(err, fs.ErrNotExist) {
			u.MemPeakBytes, err = u.MemBytes, nil
		}
		if err != nil {
			return err
		}
		b, err := os.ReadFile(filepath.Join(g.v2, "memory.events"))
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
	if u.MemBytes, err = number(dir, "memory.usage_in_bytes"); err != nil {
		return err
	}
	if u.MemPeakBytes, err = number(dir, "memory.max_usage_in_bytes"); err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(dir, "memory.oom_control"))
	if err != nil {
		return err
	}
	if bytes.Contains(b, []byte("oom_kill ")) { // Linux 4.13
		u.OOMKills, err = field(b, "oom_kill")
	}
	return err
}

func number(dir, file string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s/%s: %w", dir, file, err)
	}
	return n, nil
}

// field finds "name value" in a file of such lines.
func field(b []byte, name string) (int64, error) {
	for line := range bytes.Lines(b) {
		if n, v, ok := strings.Cut(strings.TrimSpace(string(line)), " "); ok && n == name {
			x, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s %q: %w", name, v, err)
			}
			return x, nil
		}
	}
	return 0, fmt.Errorf("no field %s", name)
}
