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

// cpusets.go shares v1's cpusets: all jobs and steps with the same CPUs run in one. Unlike the other hierarchies a
// cpuset counts nothing and is not what jobs are tracked or killed by, so there is no need for one each; and to make,
// fill and remove one was a third of what a job's group cost. They lie side by side below the prefix, also those of
// steps, and stay when their jobs end.

const (
	// setPrefix begins the names of shared cpusets; what follows is the list of CPUs, with dots for commas.
	setPrefix = "cpus_"
	// maxSets is how many are kept. A set that is in use by a process can't be removed, and one that was just given out is
	// the last to go: so many others would have to be given out before its process is born.
	maxSets = 512
)

// cpusets are the shared cpusets of a Root. It is safe for use by several goroutines.
type cpusets struct {
	base string // the prefix in the cpuset hierarchy
	fill func(dir, cpus string) error
	most int // maxSets

	mu    sync.Mutex
	sets  map[string]*cpuset // by directory name
	order *list.List         // of *cpuset, the longest not given out first
}

type cpuset struct {
	name string
	fd   int // of cpuset.cpus, for reading; -1: left by an earlier gnoded, not looked at yet
	at   *list.Element
}

// openCpusets takes up the sets that an earlier gnoded has left. They are not removed: gshim may be about to fork into
// one.
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

// setName is the directory of a list in the kernel's notation. Those too long for a name are told apart by a hash.
func setName(cpus string) string {
	if name := setPrefix + strings.ReplaceAll(cpus, ",", "."); len(name) <= maxNameBytes {
		return name
	}
	h := fnv.New128a()
	// Writing to a hash does not fail.
	_, _ = h.Write([]byte(cpus))
	return fmt.Sprintf("%s%x", setPrefix, h.Sum(nil))
}

// take gives the directory of the set with these CPUs, made if need be.
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
	// New, or left by another gnoded, or the kernel has taken out a CPU that went offline.
	if err := unix.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", &fs.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	if c == nil {
		c = &cpuset{name: name, fd: -1}
		s.add(c)
	}
	if err := errors.Join(s.fill(dir, want), c.open(dir)); err != nil {
		_ = s.drop(c) // the first error is the one to tell; a set that is in use stays
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

// shrink removes sets beyond the limit that nothing runs in.
func (s *cpusets) shrink() {
	for at := s.order.Front(); at != nil && len(s.sets) > s.most; {
		next := at.Next()
		_ = s.drop(at.Value.(*cpuset)) // one that is in use stays, and is tried again
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

// closeAll forgets the sets, and with remove removes those that nothing runs in.
func (s *cpusets) closeAll(remove bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.sets {
		if remove {
			_ = s.drop(c) // what is in use stays for the next gnoded
		}
		c.close()
	}
}
