package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestAdopt: of a group with processes of root's and a user's, the user's join a job, held by its limits, also if the
// job has a step; a set-uid one is the user's. What comes later is killed; root's stay, and keep the group.
func TestAdopt(t *testing.T) {
	const user = 65534
	withRealID := exec.Command("setpriv", "--ruid", "65534", "true").Run() == nil // busybox's can't
	forEach(t, func(t *testing.T, r *Root) {
		for _, steps := range []bool{false, true} {
			l := Limits{MemBytes: 1 << 30}
			if r.Can().Devices {
				l.Devices = &Devices{Deny: []Device{{Major: 1, Minor: 7}}}
			}
			job := create(t, r, "job_1.0", l)
			if steps {
				if _, err := job.Sub("step_0", Limits{}); err != nil {
					t.Fatal(err)
				}
			}
			left := create(t, r, "prolog_1.0", Limits{})
			theirs, _ := run(t, left, "exec sleep 1000")
			users := sleeper(t, left, user)
			mine := []int{users.Process.Pid}
			if withRealID { // as a set-uid program that the user has started
				setuid, _ := run(t, left, "exec setpriv --ruid 65534 sleep 1000")
				t.Cleanup(func() { _ = setuid.Wait() }) // it was killed
				mine = append(mine, setuid.Process.Pid)
			}
			slices.Sort(mine)
			until(t, "both run as the user", func() bool {
				pids, err := left.procsOf(user)
				return err == nil && slices.Equal(pids, mine)
			})
			if err := job.Adopt(left, user); err != nil {
				t.Fatal(err)
			}
			if pids, err := job.Procs(); err != nil || !slices.Equal(pids, mine) {
				t.Errorf("steps %v: the job has %v, %v, want %v", steps, pids, err, mine)
			}
			held := "devices:/" + r.prefix + "/job_1.0\n"
			if l.Devices != nil && !r.ebpf && !strings.Contains(cgroupsOf(t, users.Process.Pid), held) {
				t.Error("the user's process is not held by the devices of the job")
			}
			if pids, err := left.Procs(); err != nil || !slices.Equal(pids, []int{theirs.Process.Pid}) {
				t.Errorf("steps %v: there stay %v, %v", steps, pids, err)
			}

			late := sleeper(t, left, user)
			if err := left.KillOf(testContext(t), user); err != nil {
				t.Error(err)
			}
			if left.RemoveIfEmpty() {
				t.Error("a group with a process was removed")
			}
			_ = late.Wait() // it was killed
			for _, g := range []*Group{job, left} {
				if err := g.Kill(testContext(t)); err != nil {
					t.Error(err)
				}
			}
			_ = theirs.Wait() // so were these
			_ = users.Wait()
			until(t, "the group is gone", left.RemoveIfEmpty)
			if err := job.Remove(testContext(t)); err != nil {
				t.Error(err)
			}
		}
	})
}

// sleeper starts a process of a user in a group.
func sleeper(t *testing.T, g *Group, uid uint32) *exec.Cmd {
	t.Helper()
	c := exec.Command("sleep", "1000")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.take(c.Process.Pid); err != nil {
		t.Fatal(err)
	}
	return c
}

// cgroupsOf gives the groups of a process, as the kernel writes them.
func cgroupsOf(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
