package up

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"gbatch/internal/model"
)

// login is a process in sshd's place: it asks gbatch pam, as pam_exec has it do, and goes on if that lets it in.
type login struct {
	cmd *exec.Cmd
	out *bufio.Reader
}

// logIn begins a login; line is the first line that it prints.
func logIn(t *testing.T, c *Cluster, as, node, then string) (l *login, line string) {
	t.Helper()
	script := fmt.Sprintf("PAM_TYPE=account PAM_USER=%s %s pam -f %s --node %s || exit 1\n"+
		"PAM_TYPE=open_session PAM_USER=%[1]s %[2]s pam -f %[3]s --node %[4]s || exit 1\n%[5]s\n", as,
		filepath.Join(programs(t), "gbatch"), filepath.Dir(c.Conf), node, then)
	l = &login{cmd: exec.Command("sh", "-c", script)}
	l.cmd.Env = []string{"PATH=/usr/bin:/bin"}
	pipe, err := l.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.cmd.Process.Kill() }) // it may have ended
	l.out = bufio.NewReader(pipe)
	line, err = l.out.ReadString('\n')
	if err != nil {
		line = fmt.Sprintf("%s(%v)", line, err)
	}
	return l, strings.TrimSpace(line)
}

// TestLogins: a user without a job on a node is turned away there; one with a job is let in, on each node of the job,
// with the job's GPUs and no others, and the login ends with the job. Nobody but root puts processes into jobs.
func TestLogins(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root puts processes into others' jobs")
	}
	who, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(who.Uid)
	gid, _ := strconv.Atoi(who.Gid)
	open, err := os.MkdirTemp("", "gbatch-logins-") // jobs of others read their scripts there
	if err == nil {
		err = os.Chmod(open, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(open); err != nil {
			t.Error(err)
		}
	})
	c, _ := mustUp(t, Options{Dir: filepath.Join(open, "logins"), Nodes: 2, CPUs: 4, MemMiB: 2000,
		GPUs: "a100:2"})
	denied := func(node string) {
		t.Helper()
		l, line := logIn(t, c, "nobody", node, "echo in")
		if want := "Access denied: you have no running job on " + node + ". "; !strings.HasPrefix(line, want) {
			t.Errorf("%s says %q, want %q", node, line, want)
		}
		if err := l.cmd.Wait(); err == nil {
			t.Errorf("%s lets nobody in", node)
		}
	}
	denied("n1")
	if l, line := logIn(t, c, "root", "n1", "echo in"); line != "in" || l.cmd.Wait() != nil {
		t.Errorf("root is not let in: %q", line)
	}
	asNobody := func(arg ...string) (string, error) {
		cmd := exec.Command(arg[0], arg[1:]...)
		cmd.Dir = "/"
		cmd.Env = []string{"PATH=/usr/bin:/bin", "PAM_TYPE=account", "PAM_USER=nobody", "GBATCH_CONF=" + c.Conf}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	gsubmit := filepath.Join(open, "gsubmit")
	if err := os.Symlink(filepath.Join(programs(t), "gcli"), gsubmit); err != nil {
		t.Fatal(err)
	}
	text, err := asNobody(gsubmit, "--parsable", "-N2", "--gpus-per-node=1", "-o", "/dev/null", "--wrap", "sleep 1000")
	n, _ := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n == 0 {
		t.Fatalf("gsubmit: %v: %s", err, text)
	}
	id := model.JobID(n)
	untilState(t, c, id, model.Running)
	var devices []string // no driver is behind them: what is permitted ends with another error
	_ = filepath.WalkDir(filepath.Join(c.Dir, "gpus"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeCharDevice != 0 && strings.Contains(path, "n2") {
			devices = append(devices, path)
		}
		return nil
	})
	in, line := logIn(t, c, "nobody", "n2", "n=0; for f in "+strings.Join(devices, " ")+
		"; do case $( (: <$f) 2>&1) in *permitted*) ;; *) n=$((n+1)) ;; esac; done\necho opens $n\n"+
		"grep -c job_"+fmt.Sprint(id)+" /proc/self/cgroup\nexec sleep 1000")
	if len(devices) != 2 || line != "opens 1" {
		t.Errorf("a login on n2 says %q, with the devices %v", line, devices)
	}
	if groups, err := in.out.ReadString('\n'); err != nil || groups == "0\n" {
		t.Errorf("a login is in %q groups of its job: %v", groups, err)
	}
	one, line := logIn(t, c, "nobody", "n1", "echo in; exec sleep 1000")
	if line != "in" {
		t.Errorf("a login on n1 says %q", line)
	}
	if out, err := asNobody(filepath.Join(programs(t), "gbatch"), "pam", "-f", c.Conf, "--node", "n1"); err == nil ||
		!strings.Contains(out, "only root of this host") {
		t.Errorf("a user who asks for it: %v: %s", err, out)
	}
	forged(t, c)
	cancel(t, c, id)
	for _, l := range []*login{in, one} {
		if err := l.cmd.Wait(); err == nil || !strings.HasPrefix(err.Error(), "signal: ") {
			t.Errorf("a login has outlived its job: %v", err)
		}
	}
	until(t, "nobody is turned away again", func() bool {
		_, line := logIn(t, c, "nobody", "n2", "echo in")
		return strings.HasPrefix(line, "Access denied")
	})
}

// forged: what pam_env has from a file of the user stands before what pam_exec says, and changes nothing.
func forged(t *testing.T, c *Cluster) {
	t.Helper()
	bin := t.TempDir()
	for _, name := range []string{"getent", "id"} {
		text := "#!/bin/sh\ntouch " + bin + "/ran\n"
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// exec.Cmd would leave the first of each pair out.
	arg := []string{"gbatch", "pam", "-f", c.Conf, "--node", "n1"}
	p, err := os.StartProcess(filepath.Join(programs(t), "gbatch"), arg,
		&os.ProcAttr{Env: []string{"PATH=" + bin, "PAM_USER=root", "PAM_TYPE=close_session",
			"PAM_USER=games", "PAM_TYPE=open_session"}})
	if err != nil {
		t.Fatal(err)
	}
	if end, err := p.Wait(); err != nil || end.Success() {
		t.Errorf("a user who says PAM_USER=root is let in: %v, %v", end, err)
	}
	if _, err := os.Stat(filepath.Join(bin, "ran")); err == nil {
		t.Error("a program in the user's PATH has run as root")
	}
}
