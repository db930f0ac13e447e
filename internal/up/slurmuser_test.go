package up

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gbatch/internal/model"
)

// statusLine gives one line of a process's /proc/PID/status.
func statusLine(t *testing.T, pid int, key string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.Join(strings.Fields(rest), " ")
		}
	}
	t.Fatalf("process %d has no %s", pid, key)
	return ""
}

// TestSlurmUser: controllers and gdbd that root starts become SlurmUser, without any right of root's, and the cluster
// works: jobs of others run, are on record, daemons come back after they were killed, certificates are issued. What
// SlurmUser can't use is refused with the command that mends it.
func TestSlurmUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root starts daemons of another user")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	ids := strings.TrimSpace(strings.Repeat(nobody.Uid+" ", 4))
	parent, err := os.MkdirTemp("", "gbatch-slurmuser-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(parent); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(parent, "c")
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 1, CPUs: 4, MemMiB: 2000})
	down(t, dir)
	conf, err := os.ReadFile(c.Conf)
	if err != nil {
		t.Fatal(err)
	}
	own := strings.Replace(string(conf), "SlurmUser=root", "SlurmUser=nobody", 1)
	if err := os.WriteFile(c.Conf, []byte(own), 0o644); err != nil {
		t.Fatal(err)
	}

	// Each sentence has the command that mends it.
	l := layout(dir)
	gctld := func() string {
		out, _ := exec.Command(filepath.Join(programs(t), "gctld"), "-f", c.Conf, "--begin").CombinedOutput()
		return string(out)
	}
	for range 10 {
		said := gctld()
		_, mend, found := strings.Cut(strings.TrimSpace(said), "; give it what is there: ")
		if !found {
			if _, mend, found = strings.Cut(strings.TrimSpace(said), "; "); found {
				mend, _, found = strings.Cut(mend, ", or use another place")
			}
		}
		if !found {
			if !strings.Contains(said, "has a cluster's state") {
				t.Fatalf("gctld says: %s", said)
			}
			break
		}
		if out, err := exec.Command("sh", "-c", mend).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", mend, err, out)
		}
	}
	if err := exec.Command("chown", "-R", "nobody:", l.at("state", dbdName)).Run(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(parent, 0o755); err != nil {
		t.Fatal(err)
	}

	c, _ = mustUp(t, Options{Dir: dir})
	check := func() {
		t.Helper()
		for _, d := range status(t, dir).Daemons {
			want, caps := "0 0 0 0", ""
			if d.Role == RoleController || d.Role == RoleAccounting {
				want, caps = ids, strings.Repeat("0", 16)
			}
			if got := statusLine(t, d.PID, "Uid"); got != want {
				t.Errorf("%s has the user ids %s", d.Name, got)
			}
			if caps == "" {
				continue
			}
			for _, key := range []string{"CapEff", "CapPrm", "CapInh"} {
				if got := statusLine(t, d.PID, key); got != caps {
					t.Errorf("%s of %s is %s", key, d.Name, got)
				}
			}
			info, err := os.Stat(fmt.Sprintf("/proc/%d/maps", d.PID))
			if err != nil {
				t.Error(err)
			} else if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 0 {
				t.Errorf("SlurmUser's other processes may read the memory of %s", d.Name)
			}
		}
	}
	check()
	setConfig(t, c)
	run := func() {
		t.Helper()
		id := submit(t, c, "id -u\n", nil)
		untilState(t, c, id, model.Completed)
		until(t, "the job is on record", func() bool {
			out, _, err := commandAs(t, c, 0, "", "gacct", "-nXj", fmt.Sprint(id), "-o", "state")
			return err == nil && strings.TrimSpace(out) == "COMPLETED"
		})
	}
	run()
	for _, d := range status(t, dir).Daemons {
		if d.Role == RoleController || d.Role == RoleAccounting {
			if err := syscall.Kill(d.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			p, _ := processOf(d.PID)
			gone([]process{p}, nodePatience)
		}
	}
	c, _ = mustUp(t, Options{Dir: dir})
	check()
	run()

	// What root makes in SlurmUser's directories is SlurmUser's.
	out, err := exec.Command(filepath.Join(programs(t), "gbatch"), "cert", "issue", "--pki", l.pki(), "ctld", "ctl1").
		CombinedOutput()
	if err != nil {
		t.Fatalf("gbatch cert issue: %v: %s", err, out)
	}
	info, err := os.Stat(filepath.Join(l.pki(), "ctld-ctl1.key"))
	if err != nil {
		t.Fatal(err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || fmt.Sprint(st.Uid) != nobody.Uid {
		t.Errorf("root's gbatch cert issue made a key that gctld can't read: %+v", st)
	}
}
