package devcluster

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/noded/cgroup"
)

// leftovers.go ends what outlives the daemons on purpose, so that a test leaves nothing behind: launchers, jobs that
// still run, and their control groups.

// leftoverTimeout bounds waiting for killed processes to be gone.
const leftoverTimeout = 10 * time.Second

// endLeftovers kills the launchers of this cluster and every process of its jobs, and removes their control groups.
// The daemons have stopped: nobody starts new ones.
func (c *Cluster) endLeftovers() error {
	groups := c.groupDirs()
	for deadline := time.Now().Add(leftoverTimeout); ; time.Sleep(5 * time.Millisecond) { // the pace of looking
		pids, err := c.leftovers(groups)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v of the cluster are still there %v after SIGKILL", pids, leftoverTimeout)
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // gone already is as good
		}
	}
	// The innermost first.
	sort.Slice(groups, func(i, j int) bool { return len(groups[i]) > len(groups[j]) })
	for _, dir := range groups {
		if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.EBUSY) {
			return fmt.Errorf("remove the control group %s: %w", dir, err)
		}
	}
	return c.unmount()
}

// unmount removes the mounts in the cluster's directory: jobs' own directories, whose jobs have been ended.
func (c *Cluster) unmount() error {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var at []string
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], c.Dir+"/") {
			at = append(at, f[4])
		}
	}
	for _, path := range slices.Backward(at) { // the innermost first
		if err := syscall.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	return nil
}

// JobProcesses lists the processes of jobs that are there, each with its command line. The launchers are none.
func (c *Cluster) JobProcesses() ([]string, error) {
	pids, err := c.leftovers(c.JobGroups())
	var out []string
	for _, pid := range pids {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // one that has ended is no more
		if text := strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " ")); text != "" && !c.isShim(line) {
			out = append(out, fmt.Sprintf("%d %s", pid, text))
		}
	}
	return out, err
}

// Launchers gives the processes of gshim.
func (c *Cluster) Launchers() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	var out []int
	for _, e := range entries {
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")) // as above
		if pid, perr := strconv.Atoi(e.Name()); perr == nil && c.isShim(line) {
			out = append(out, pid)
		}
	}
	return out, err
}

func (c *Cluster) isShim(line []byte) bool {
	return bytes.Contains(line, []byte("gshim")) && bytes.Contains(line, []byte(c.Dir))
}

// JobGroups lists the control groups of jobs and steps that are there.
func (c *Cluster) JobGroups() []string {
	var out []string
	for _, dir := range c.groupDirs() {
		if strings.Contains(filepath.Base(dir), "job") || strings.Contains(filepath.Base(filepath.Dir(dir)), "job") {
			out = append(out, dir)
		}
	}
	return out
}

// leftovers lists the launchers, known by the directory they serve, and the jobs' processes: known by their
// environment, or by their control group where they have thrown that away.
func (c *Cluster) leftovers(groups []string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// Processes end at any moment, so what can't be read is not there.
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		isJob := bytes.Contains(env, []byte("SLURM_CONF="+c.Conf+"\x00")) && bytes.Contains(env, []byte("SLURM_JOB_ID="))
		if c.isShim(line) || isJob {
			pids = append(pids, pid)
		}
	}
	for _, dir := range groups {
		procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, f := range strings.Fields(string(procs)) {
			if pid, err := strconv.Atoi(f); err == nil && pid > 1 && pid != os.Getpid() {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

// groupDirs lists the control groups of the nodes, which gnoded names after node and spool, and those below.
func (c *Cluster) groupDirs() []string {
	var out []string
	for name := range c.daemons {
		base := cgroup.Place(name, filepath.Join(c.Dir, "spool", name))
		for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
			found, _ := filepath.Glob(filepath.Join(mount, base)) // the pattern is well-formed
			for _, dir := range found {
				// What vanishes in between needs no removing.
				_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
					if err == nil && d.IsDir() {
						out = append(out, path)
					}
					return nil
				})
			}
		}
	}
	return out
}
