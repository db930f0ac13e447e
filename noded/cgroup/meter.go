package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// meter.go reads a group's counters repeatedly. A sample of a hundred jobs should cost little, so the files are opened
// once and read by pread into one buffer; nothing is allocated.

// Counters are a group's past and present usage. A value that the host does not count is 0.
type Counters struct {
	UserCPU   time.Duration
	SysCPU    time.Duration
	MemBytes  int64 // in use now, page cache included
	RSSBytes  int64 // the processes' part of it: anonymous memory and shared memory
	SwapBytes int64
	Faults    int64 // page faults that had to read from a disk
	ReadB     int64 // from and to block devices, bytes; only where HasIO
	WriteB    int64
	HasIO     bool // the group's I/O is counted (v2 with the io controller)
}

// meterBuf is enough for the longest file, memory.stat with about seventy lines.
const meterBuf = 16 << 10

// MeterBuf is a read buffer; many Meters can use one, one after the other.
type MeterBuf [meterBuf]byte

// Meter holds a group's files open. It is used by one goroutine.
type Meter struct {
	cpu, mem, stat, swap, procs, io int // file descriptors, -1: none
	v2                              bool
	v2mem                           bool
	tick                            time.Duration
}

// Meter opens the group's counters. fs.ErrNotExist if the group has been removed.
func (g *Group) Meter() (*Meter, error) {
	m := &Meter{cpu: -1, mem: -1, stat: -1, swap: -1, procs: -1, io: -1,
		tick: time.Second / time.Duration(max(g.root.ticks, 1))}
	err := m.open(g)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("counters of group %s: %w", g.name, err), m.Close())
	}
	return m, nil
}

func (m *Meter) open(g *Group) error {
	if !g.root.can.Track {
		return nil
	}
	track, err := g.trackDir()
	if err != nil {
		return err
	}
	want := func(fd *int, dir, file string) {
		if err == nil {
			*fd, err = openCounter(dir, file)
		}
	}
	maybe := func(fd *int, dir, file string) {
		if *fd, _ = openCounter(dir, file); *fd < 0 { // not every kernel has it
			*fd = -1
		}
	}
	maybe(&m.procs, filepath.Join(track, ownPart), "cgroup.procs") // where they were moved aside
	if m.procs < 0 {
		want(&m.procs, track, "cgroup.procs")
	}
	switch {
	case !g.root.can.CPUTime:
	case g.v2 != "":
		m.v2 = true
		want(&m.cpu, g.v2, "cpu.stat")
	case g.v1["cpuacct"] != "":
		want(&m.cpu, g.v1["cpuacct"], "cpuacct.stat")
	}
	switch dir := g.v1["memory"]; {
	case g.v2 != "" && g.root.v2ctl["memory"]:
		m.v2mem = true
		want(&m.mem, g.v2, "memory.current")
		want(&m.stat, g.v2, "memory.stat")
		maybe(&m.swap, g.v2, "memory.swap.current")
	case dir != "":
		want(&m.mem, dir, "memory.usage_in_bytes")
		want(&m.stat, dir, "memory.stat")
	}
	if g.v2 != "" && g.root.v2ctl["io"] {
		maybe(&m.io, g.v2, "io.stat")
	}
	return err
}

func openCounter(dir, file string) (int, error) {
	path := filepath.Join(dir, file)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	return fd, nil
}

// Close closes the files.
func (m *Meter) Close() error {
	var errs []error
	for _, fd := range []*int{&m.cpu, &m.mem, &m.stat, &m.swap, &m.procs, &m.io} {
		if *fd >= 0 {
			errs = append(errs, unix.Close(*fd))
			*fd = -1
		}
	}
	return errors.Join(errs...)
}

// Read reads the counters. A removed group is an error.
func (m *Meter) Read(c *Counters, buf *MeterBuf) error {
	*c = Counters{}
	if m.cpu >= 0 {
		b, err := pread(m.cpu, buf)
		if err != nil {
			return fmt.Errorf("read CPU time: %w", err)
		}
		if m.v2 {
			c.UserCPU, c.SysCPU = time.Duration(count(b, "user_usec"))*time.Microsecond,
				time.Duration(count(b, "system_usec"))*time.Microsecond
		} else {
			c.UserCPU, c.SysCPU = time.Duration(count(b, "user"))*m.tick, time.Duration(count(b, "system"))*m.tick
		}
	}
	if m.mem >= 0 {
		b, err := pread(m.mem, buf)
		if err != nil {
			return fmt.Errorf("read memory: %w", err)
		}
		c.MemBytes = digits(b)
		if b, err = pread(m.stat, buf); err != nil {
			return fmt.Errorf("read memory statistics: %w", err)
		}
		if m.v2mem {
			c.RSSBytes, c.Faults = count(b, "anon")+count(b, "shmem"), count(b, "pgmajfault")
		} else {
			c.RSSBytes, c.Faults, c.SwapBytes = count(b, "total_rss")+count(b, "total_shmem"), count(b, "total_pgmajfault"),
				count(b, "total_swap")
		}
	}
	if m.swap >= 0 {
		b, err := pread(m.swap, buf)
		if err != nil {
			return fmt.Errorf("read swap: %w", err)
		}
		c.SwapBytes = digits(b)
	}
	if m.io >= 0 {
		b, err := pread(m.io, buf)
		if err != nil {
			return fmt.Errorf("read I/O: %w", err)
		}
		c.ReadB, c.WriteB, c.HasIO = sumIO(b, "rbytes="), sumIO(b, "wbytes="), true
	}
	return nil
}

// Procs appends the pids of the group's processes to list, at most max of them.
func (m *Meter) Procs(list []int, max int, buf *MeterBuf) ([]int, error) {
	if m.procs < 0 {
		return list, nil
	}
	at := int64(0)
	pid := 0
	for len(list) < max {
		n, err := unix.Pread(m.procs, buf[:], at)
		if err != nil {
			if errors.Is(err, unix.ENODEV) { // removed
				return list, nil
			}
			return list, fmt.Errorf("read processes: %w", err)
		}
		if n == 0 {
			break
		}
		at += int64(n)
		for _, ch := range buf[:n] {
			if ch >= '0' && ch <= '9' {
				pid = 10*pid + int(ch-'0')
				continue
			}
			if pid > 0 && len(list) < max { // 0 is a process of another pid namespace
				list = append(list, pid)
			}
			pid = 0
		}
	}
	return list, nil
}

func pread(fd int, buf *MeterBuf) ([]byte, error) {
	for {
		n, err := unix.Pread(fd, buf[:], 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		return buf[:n], nil
	}
}

// count finds "name number" in a file of such lines; 0 if it is missing.
func count(b []byte, name string) int64 {
	for len(b) > 0 {
		line := b
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			line, b = b[:i], b[i+1:]
		} else {
			b = nil
		}
		if len(line) > len(name) && line[len(name)] == ' ' && string(line[:len(name)]) == name {
			return digits(line[len(name)+1:])
		}
	}
	return 0
}

// sumIO adds up name's numbers of io.stat: a line for each device, "8:0 rbytes=1 wbytes=2 ...".
func sumIO(b []byte, name string) int64 {
	sum := int64(0)
	for {
		i := bytes.Index(b, []byte(name))
		if i < 0 {
			return sum
		}
		b = b[i+len(name):]
		sum += digits(b)
	}
}

// digits reads the number at the beginning of b.
func digits(b []byte) int64 {
	n := int64(0)
	for _, ch := range b {
		if ch < '0' || ch > '9' {
			break
		}
		n = 10*n + int64(ch-'0')
	}
	return n
}
