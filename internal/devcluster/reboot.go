package devcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"gbatch/noded/shim"
)

// reboot.go does to a node's machine what machines do: they are rebooted, lose their power, and their launcher is
// killed or replaced under running jobs.

// tornBytes is what a loss of power takes off the end of the node's files: less than the record that was written last.
const tornBytes = 5

// shimDir is where a node's launcher lives.
func (c *Cluster) shimDir(node string) string { return filepath.Join(c.Dir, "spool", node, "gshim") }

// Reboot ends a node's daemon and all its processes at once, launcher first so that it sees nothing, takes its
// control groups away and starts the daemon as after a boot. With torn the power failed: the last write to each
// journal is not whole.
func (c *Cluster) Reboot(node string, torn bool) {
	c.t.Helper()
	launcher := c.shimPID(node)
	c.StopDaemon(node)
	if err := syscall.Kill(launcher, syscall.SIGKILL); err != nil {
		c.t.Fatalf("reboot %s: kill gshim: %v", node, err)
	}
	groups := slices.DeleteFunc(c.groupDirs(), func(dir string) bool { return !strings.Contains(dir, "/"+node+"-") })
	c.Wait("the processes of "+node+" to be gone", func() error {
		left, err := c.processesOf(node, groups)
		if err != nil || len(left) == 0 {
			return err
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // gone already is as good
		}
		return fmt.Errorf("%v are still there", left)
	})
	slices.SortFunc(groups, func(a, b string) int { return len(b) - len(a) })
	for _, dir := range groups {
		c.Wait(dir+" to be removed", func() error {
			if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		})
	}
	if torn {
		for _, path := range []string{filepath.Join(c.Dir, "spool", node, "journal"),
			filepath.Join(c.shimDir(node), "shim.journal")} {
			fi, err := os.Stat(path)
			if err == nil {
				err = os.Truncate(path, max(fi.Size()-tornBytes, 0))
			}
			if err != nil {
				c.t.Fatalf("reboot %s: %v", node, err)
			}
		}
	}
	c.boots[node] = fmt.Sprintf("boot after %q", c.boots[node])
	// Slurm's times are whole seconds: boot after start
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
	c.StartDaemon(node)
}

// processesOf lists what runs of a node's jobs.
func (c *Cluster) processesOf(node string, groups []string) ([]int, error) {
	all, err := c.leftovers(groups)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(pid int) bool {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // of one that has just ended it is empty
		if err != nil || bytes.Contains(line, []byte("gshim")) {
			return true
		}
		return bytes.Contains(env, []byte("SLURMD_NODENAME=")) && !bytes.Contains(env, []byte("SLURMD_NODENAME="+node+"\x00"))
	}), nil
}

func (c *Cluster) shimPID(node string) int {
	c.t.Helper()
	conn := c.connectShim(node)
	defer func() { _ = conn.Close() }() // only asked
	return conn.Info().PID
}

func (c *Cluster) connectShim(node string) *shim.Client {
	c.t.Helper()
	var conn *shim.Client
	c.Wait("gshim of "+node, func() (err error) { // one that replaces itself resets who comes in the middle of it
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		conn, _, err = shim.Connect(ctx, c.shimDir(node))
		return err
	})
	return conn
}

// KillShim kills a node's launcher under its jobs, and waits until there is another.
func (c *Cluster) KillShim(node string) {
	c.t.Helper()
	old := c.shimPID(node)
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		c.t.Fatalf("kill gshim of %s: %v", node, err)
	}
	c.Wait("a new gshim of "+node, func() error {
		if c.shimPID(node) == old {
			return errors.New("the killed one answers")
		}
		return nil
	})
}

// UpgradeShim has a node's launcher replace itself in place, by the same program.
func (c *Cluster) UpgradeShim(node string) {
	c.t.Helper()
	conn := c.connectShim(node)
	info := conn.Info()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err := conn.Upgrade(ctx, c.shim)
	_ = conn.Close() // it has ended with the exec
	if err != nil {
		c.t.Fatalf("upgrade gshim of %s: %v", node, err)
	}
	conn = c.connectShim(node)
	defer func() { _ = conn.Close() }() // only asked
	if now := conn.Info(); now.PID != info.PID || now.Upgrades != info.Upgrades+1 {
		c.t.Fatalf("gshim of %s was pid %d with %d upgrades and is pid %d with %d", node, info.PID, info.Upgrades, now.PID,
			now.Upgrades)
	}
}
