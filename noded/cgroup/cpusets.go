package cgroup

import (
	"container/list"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// cpusets.go shares v1's cpusets: all jobs and steps with the same CPUs run in one. Unlike groups in other hierarchies
// a cpuset has no counters and is not used to track or kill jobs, so no job needs its own; making, filling and removing
// one took a third of the CPU time of a job's group. All cpusets, also those of steps, are directly below the prefix,
// and stay when their jobs end.

const (
	// setPrefix begins the names of shared cpusets; the list of CPUs follows, with dots for commas.
	setPrefix = "cpus_"
	// maxSets is the number of sets that are kept. A set with a process can't be removed, and the set used last is
	// removed last: before its process starts, so many others would have to be used.
	maxSets = 512
)

// cpusets are the shared cpusets of a Root. It is safe for use by several goroutines.
type cpusets struct {
	base string // the prefix in the cpuset hierarchy
	fill func(dir, cpus string) error
	most int // maxSets

	mu    sync.Mutex
	sets  map[string]*cpuset // by directory name
	order *list.List         // of *cpuset, the least recently used first
}

type cpuset struct {
	name string
	fd   int // of cpuset.cpus, for reading; -1: left by an earlier gnoded, not read yet
	at   *list.Element
}

// openCpusets registers the sets of an earlier gnoded. It does not remove them: gshim may be about to fork into one.
func openCpusets(base string, fill func(dir, cpus string) error) (*cpusets, error) {
	s := &cpusets{base: base, fill: fill, most: maxSets, sets: map[string]*cpuset{}, order: list.New()}
	entries, err := os.ReadDir(base)
	if err != nil {
		return nil, fmt.Errorf("list the cpusets: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), setPrefix) {
			s.add(&cpuset{name: e.Name(), fd: -1})
		}
	}
	return s, nil
}

func (s *cpusets) add(c *cpuset) {
	c.at = s.order.PushBack(c)
	s.sets[c.name] = c
}

// setName is the directory name for a list in the kernel's notation. A list that is too long is replaced by its hash.
func setName(cpus string) string {
	if name := setPrefix + strings.ReplaceAll(cpus, ",", "."); len(name) <= maxNameBytes {
		return name
	}
	h := fnv.New128a()
	// Writing to a hash does not fail.
	_, _ = h.Write([]byte(cpus))
	return fmt.Sprintf("%s%x", setPrefix, h.Sum(nil))
}

// take gives the directory of the set with these CPUs, and makes it if it is missing.
func (s *cpusets) take(cpus []int) (string, error) {
	want := cpuList(cpus)
	name := setName(want)
	dir := filepath.Join(s.base, name)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.sets[name]
	if c != nil && c.holds(want) {
		s.order.MoveToBack(c.at)
		return dir, nil
	}
	// The set is new, or of another gnoded, or the kernel has removed a CPU that went offline.
	if err := unix.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", &fs.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	if c == nil {
		c = &cpuset{name: name, fd: -1}
		s.add(c)
	}
	if err := errors.Join(s.fill(dir, want), c.open(dir)); err != nil {
		_ = s.drop(c) // the first error is returned; a set that is in use stays
		return "", err
	}
	s.order.MoveToBack(c.at)
	s.shrink()
	return dir, nil
}

// holds reports whether the set has exactly these CPUs.
func (c *cpuset) holds(want string) bool {
	if c.fd < 0 {
		return false
	}
	var buf [smallFile]byte
	n, err := unix.Pread(c.fd, buf[:], 0)
	return err == nil && strings.TrimSpace(string(buf[:n])) == want
}

func (c *cpuset) open(dir string) error {
	c.close()
	fd, err := openCounter(dir, "cpuset.cpus")
	if err == nil {
		c.fd = fd
	}
	return err
}

func (c *cpuset) close() {
	if c.fd >= 0 {
		_ = unix.Close(c.fd) // only read from
	}
	c.fd = -1
}

// shrink removes unused sets while there are more than the limit.
func (s *cpusets) shrink() {
	for at := s.order.Front(); at != nil && len(s.sets) > s.most; {
		next := at.Next()
		_ = s.drop(at.Value.(*cpuset)) // if it is in use it stays, for a later try
		at = next
	}
}

// drop removes a set, unless a process is in it.
func (s *cpusets) drop(c *cpuset) error {
	dir := filepath.Join(s.base, c.name)
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	c.close()
	s.order.Remove(c.at)
	delete(s.sets, c.name)
	return nil
}

// closeAll forgets the sets; with remove it removes unused ones.
func (s *cpusets) closeAll(remove bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.sets {
		if remove {
			_ = s.drop(c) // a set in use stays for the next gnoded
		}
		c.close()
	}
}
