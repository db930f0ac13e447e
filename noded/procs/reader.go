package procs

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// reader.go reads /proc of a job's processes: address space, memory, and I/O if the kernel does not count it by group.

const (
	// maxSeen is the number of a job's processes in one sample, the oldest first.
	maxSeen = 64
)

// Seen is the result of a job's samples.
type Seen struct {
	io            map[int]ioOf // by pid, of live processes
	ReadB, WriteB int64        // of all processes in any sample

	BigPID  int // the one with the most memory in any sample
	BigName string
	BigKB   int64
}

type ioOf struct{ readB, writeB int64 }

// Total sums one sample.
type Total struct{ VMKB, RSSKB int64 }

// Reader has the read buffers, shared by all jobs.
type Reader struct {
	PIDs []int
	path []byte
	buf  [4096]byte
}

// Read samples some of the processes.
func (r *Reader) Read(seen *Seen, pids []int, withIO bool) (t Total) {
	pids = pids[:min(len(pids), maxSeen)]
	for _, pid := range pids {
		vm, rss, name := r.stat(pid)
		t.VMKB += vm
		t.RSSKB += rss
		if rss > seen.BigKB {
			seen.BigPID, seen.BigKB, seen.BigName = pid, rss, string(name)
		}
		if withIO {
			r.io(seen, pid)
		}
	}
	if withIO && len(seen.io) > 2*maxSeen { // ended ones are counted already
		there := make(map[int]ioOf, len(pids))
		for _, pid := range pids {
			there[pid] = seen.io[pid]
		}
		seen.io = there
	}
	return t
}

// stat gives a process's address space and memory in KiB, and its name; zeros if it has ended.
func (r *Reader) stat(pid int) (vmKB, rssKB int64, name []byte) {
	b := r.file(pid, "/stat")
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return 0, 0, nil
	}
	name = b[open+1 : end]
	rest := b[end+1:]
	// After the name: state is field 3; vsize is 23 (bytes), rss 24 (pages).
	field := 2
	for len(rest) > 0 && field < 24 {
		rest = bytes.TrimLeft(rest, " ")
		n := bytes.IndexByte(rest, ' ')
		if n < 0 {
			n = len(rest)
		}
		field++
		switch field {
		case 23:
			vmKB = Digits(rest[:n]) >> 10
		case 24:
			rssKB = Digits(rest[:n]) * int64(unix.Getpagesize()>>10)
		}
		rest = rest[n:]
	}
	return vmKB, rssKB, name
}

// io adds the bytes that a process has read and written since the last sample.
func (r *Reader) io(seen *Seen, pid int) {
	b := r.file(pid, "/io")
	if len(b) == 0 {
		return
	}
	now := ioOf{after(b, "\nread_bytes: "), after(b, "\nwrite_bytes: ")}
	old := seen.io[pid]
	if now.readB < old.readB || now.writeB < old.writeB { // another process with the same number
		old = ioOf{}
	}
	seen.ReadB += now.readB - old.readB
	seen.WriteB += now.writeB - old.writeB
	if seen.io == nil {
		seen.io = map[int]ioOf{}
	}
	seen.io[pid] = now
}

// file reads a file of /proc/PID; empty if it can't be read.
func (r *Reader) file(pid int, name string) []byte {
	r.path = append(strconv.AppendInt(append(r.path[:0], "/proc/"...), int64(pid), 10), name...)
	fd, err := unix.Open(string(r.path), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	n, err := unix.Read(fd, r.buf[:])
	_ = unix.Close(fd) // only read from
	if err != nil || n < 0 {
		return nil
	}
	return r.buf[:n]
}

// after reads the number after a label.
func after(b []byte, label string) int64 {
	i := bytes.Index(b, []byte(label))
	if i < 0 {
		return 0
	}
	return Digits(b[i+len(label):])
}

// Digits reads the digits at the beginning of b.
func Digits(b []byte) int64 {
	n := int64(0)
	for _, c := range b {
		if c < '0' || c > '9' {
			break
		}
		n = 10*n + int64(c-'0')
	}
	return n
}
