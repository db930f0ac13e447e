package up

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
)

// TestFewCapabilities: a node's daemon without the capabilities of etc/examples/gnoded-capabilities.conf runs jobs, and
// binds them to their GPUs; and no process of a job can have them, whatever it executes.
func TestFewCapabilities(t *testing.T) {
	rootTools(t)
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("needs setpriv of util-linux")
	}
	dir := filepath.Join(t.TempDir(), "caps")
	c, _ := mustUp(t, Options{Dir: dir, Nodes: 1, CPUs: 2, MemMiB: 1000, GPUs: "a100:2"})
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.Members[2].process.PID))
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	if filepath.Base(args[0]) != "gnoded" {
		t.Fatal(args)
	}
	var old []process // with the launcher, which would start jobs with what it has
	for _, pid := range []int{c.Members[2].process.PID, status(t, dir).Daemons[2].Shim} {
		p, ok := processOf(pid)
		if !ok {
			t.Fatal("no process", pid)
		}
		old = append(old, p)
		if err := p.signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if left := gone(old, nodePatience); len(left) > 0 {
		t.Fatal(left)
	}

	names := dropped(t)
	var said bytes.Buffer
	cmd := exec.Command(setpriv, append([]string{"--bounding-set", "-" + strings.Join(names, ",-")}, args...)...)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it runs, or the test has failed
		_ = cmd.Wait()         // as above
		if t.Failed() {
			t.Log(said.String())
		}
	})
	got := filepath.Join(t.TempDir(), "out")
	id := submit(t, c, "grep CapBnd: /proc/self/status\necho gpus $SLURM_JOB_GPUS\nfor i in 0 1; do (: <"+
		filepath.Join(dir, "gpus", "n1")+"/nvidia$i); done 2>&1\nexit 0\n", func(sp *model.Spec) {
		sp.Gres = []model.GresReq{{Name: "gpu", Count: 1}}
		sp.StdOut = got
	})
	untilState(t, c, id, model.Completed)
	text, err := os.ReadFile(got)
	if err != nil {
		t.Fatal(err)
	}
	bound, rest, _ := strings.Cut(strings.TrimPrefix(string(text), "CapBnd:"), "\n")
	has, err := strconv.ParseUint(strings.TrimSpace(bound), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	for name, bit := range map[string]uint{"sys_module": unix.CAP_SYS_MODULE, "sys_rawio": unix.CAP_SYS_RAWIO,
		"mac_admin": unix.CAP_MAC_ADMIN, "block_suspend": unix.CAP_BLOCK_SUSPEND, "net_raw": unix.CAP_NET_RAW} {
		if has>>bit&1 != 0 {
			t.Errorf("a job can have %s", name)
		}
	}
	if !strings.HasPrefix(rest, "gpus 0\n") || strings.Count(rest, "Operation not permitted") != 1 {
		t.Errorf("the job saw %q", rest)
	}
}

// dropped gives the capabilities of the drop-in, as setpriv names them.
func dropped(t *testing.T) (out []string) {
	t.Helper()
	text, err := os.ReadFile("../../etc/examples/gnoded-capabilities.conf")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if list, ok := strings.CutPrefix(line, "CapabilityBoundingSet=~"); ok {
			for _, name := range strings.Fields(list) {
				out = append(out, strings.ToLower(strings.TrimPrefix(name, "CAP_")))
			}
		}
	}
	if len(out) < 10 {
		t.Fatal(out)
	}
	return out
}
