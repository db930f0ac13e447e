package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// thisMachine asks gnoded what this machine is: a NodeName line.
func thisMachine(bin string) (string, error) {
	path, err := program(bin, RoleNode)
	if err != nil {
		return "", err
	}
	const patience = 30 * time.Second // a GPU driver that wakes up takes some
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--print-hardware").Output()
	if err != nil {
		var ee *exec.ExitError
		if errors.As(err, &ee) && len(ee.Stderr) > 0 {
			err = errors.New(strings.TrimSpace(string(ee.Stderr)))
		}
		return "", fmt.Errorf("what this machine has (gnoded --print-hardware): %w; `gbatch up --nodes 2` makes virtual "+
			"nodes instead", err)
	}
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "NodeName=") {
			return line, nil
		}
	}
	return "", fmt.Errorf("gnoded --print-hardware printed no NodeName line but %q", out)
}

// program finds one of the daemons.
func program(bin, role string) (string, error) {
	path := filepath.Join(bin, role)
	st, err := os.Stat(path)
	if err == nil && (st.IsDir() || st.Mode()&0o111 == 0) {
		err = errors.New("it is no program")
	}
	if err != nil {
		return "", fmt.Errorf("%s has to lie beside gbatch: %w; `make build` leaves both in bin/", role, err)
	}
	return path, nil
}

// child is a daemon that this process has started.
type child struct {
	m     *Member
	at    time.Time     // when it was started
	ended chan struct{} // closed when it has ended,
	err   error         // with this
}

// start runs one daemon in a session of its own, so that Ctrl-C reaches `gbatch up` only. Its output goes to its log.
func (l layout) start(m *Member, bin string, virtual bool) (*child, error) {
	path, err := program(bin, m.Role)
	if err != nil {
		return nil, err
	}
	args := []string{"-f", l.conf(), "-N", m.Name}
	if m.Role == RoleNode && virtual {
		args = append(args, "--virtual")
	}
	if m.Role == RoleAccounting && m.Name == dbdCopyName {
		args = append(args, "--listen", m.Addresses[0], "--dir", m.Directory)
	}
	log, err := os.OpenFile(m.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", m, err)
	}
	defer func() { _ = log.Close() }() // the child has its own
	cmd := exec.Command(path, args...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = daemonEnv(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	at := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", m, err)
	}
	if p, ok := processOf(cmd.Process.Pid); ok {
		m.process = p
	}
	c := &child{m: m, at: at, ended: make(chan struct{})}
	go func() { // ends with the daemon
		c.err = cmd.Wait()
		close(c.ended)
	}()
	return c, nil
}

// daemonEnv is what daemons get of the environment: not what describes a job or another cluster.
func daemonEnv(env []string) []string {
	var out []string
	for _, e := range env {
		if !strings.HasPrefix(e, "SLURM") && !strings.HasPrefix(e, "SBATCH_") && !strings.HasPrefix(e, "GBATCH_") &&
			!strings.HasPrefix(e, "CUDA_VISIBLE") {
			out = append(out, e)
		}
	}
	return out
}

// failure is the end of a daemon that should run, with the last words of its log.
func (c *child) failure() error {
	how := "it ended"
	if c.err != nil {
		how = c.err.Error()
	}
	return fmt.Errorf("%s did not stay: %s\n%s", c.m, how, lastWords(c.m))
}

const tailLines = 8

func lastWords(m *Member) string {
	t := tail(m.Log, tailLines)
	if t == "" {
		return "Its log " + m.Log + " is empty."
	}
	return "The end of its log " + m.Log + ":\n  " + strings.ReplaceAll(t, "\n", "\n  ")
}
