package noded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gbatch/internal/rootfile"
)

// health.go checks the node's health: its own checks, for every registration and heartbeat, and HealthCheckProgram when
// the leader orders it. While there is a problem the leader keeps the node drained, with the problem's sentence as the
// reason; without one the node takes jobs again.
//
// The leader compares CPUs, memory and GPUs with the configuration when the node registers.

const (
	// healthTimeout is how long HealthCheckProgram may run, as in Slurm.
	healthTimeout = 60 * time.Second
	// minSpool is the free space that the spool's file system needs to take a job, bytes.
	minSpool = 16 << 20
	// localGrace is how long the output of a program that was killed is waited for.
	localGrace = 2 * time.Second
	// ownChecks is how often the node's own checks are made.
	ownChecks = 5 * time.Second
	// firstChecks is how long the node's registration waits for them.
	firstChecks = 2 * time.Second
	// hungChecks is how long they may take before what is looked at counts as broken.
	hungChecks = 15 * time.Second
)

type health struct {
	n     *Noded
	check func(at *atomic.Pointer[string]) string // the node's own checks; at: what is being looked at

	mu      sync.Mutex
	running bool
	found   string // by the program, last time
	looked  time.Time
	own     string          // by the checks, last time
	busy    <-chan struct{} // of the checks that are being made; nil: none
	at      atomic.Pointer[string]
}

// look gives this node's problem, or "". It never waits for a file system, but for the first checks of all: for
// firstChecks at most. It may be called on a nil health: a login host has none.
func (h *health) look() string {
	if h == nil {
		return ""
	}
	h.mu.Lock()
	first := h.looked.IsZero()
	if now := h.n.now(); h.busy == nil && (first || now.Sub(h.looked) >= ownChecks) {
		h.looked = now
		h.begin()
	}
	busy := h.busy
	h.mu.Unlock()
	if first && busy != nil {
		late := time.NewTimer(firstChecks)
		defer late.Stop()
		select {
		case <-busy:
		case <-late.C:
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := h.at.Load(); h.busy != nil && at != nil && h.n.now().Sub(h.looked) >= hungChecks {
		return *at + " does not answer"
	}
	if h.own != "" {
		return h.own
	}
	if broken := h.n.spoolBroken.Load(); broken != nil {
		return *broken
	}
	if r := h.n.rules.Load(); r == nil || r.HealthProgram == "" {
		h.found = "" // it is not asked any more
	}
	return h.found
}

// begin makes the checks on a goroutine of their own, one at a time: it ends when the file systems answer.
func (h *health) begin() {
	busy := make(chan struct{})
	h.busy = busy
	go func() {
		own := h.check(&h.at)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.own, h.busy = own, nil
		h.at.Store(nil)
		close(busy)
	}()
}

// ownCheck makes the node's own checks. Nothing is made in TmpFS, where users can prepare any name.
func (n *Noded) ownCheck(at *atomic.Pointer[string]) string {
	for _, d := range []struct {
		what, dir string
		try       func(string) error
	}{{"spool", n.opts.Spool, writable}, {"TmpFS", n.opts.TmpFS, rootfile.Writable}} {
		what := d.what + " " + d.dir
		at.Store(&what)
		if err := d.try(d.dir); err != nil {
			return fmt.Sprintf("%s is not writable: %v", d.what, err)
		}
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(n.opts.Spool, &st); err == nil && int64(st.Bavail)*st.Bsize < minSpool {
		return fmt.Sprintf("spool %s has %d MiB left, %d are needed", n.opts.Spool, int64(st.Bavail)*st.Bsize>>20,
			minSpool>>20)
	}
	return ""
}

// writable makes a file in a directory of root's and removes it.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".gbatch-")
	if err != nil {
		return err
	}
	_, err = f.WriteString("gbatch")
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// run runs HealthCheckProgram, unless it runs already. It does not wait.
func (h *health) run() {
	r := h.n.rules.Load()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running || r == nil || r.HealthProgram == "" {
		return
	}
	h.running = true
	h.n.stops.Do(func(ctx context.Context) {
		found := h.n.healthProblem(ctx, r.HealthProgram)
		h.mu.Lock()
		changed := h.found != found
		h.running, h.found = false, found
		h.mu.Unlock()
		if changed {
			h.n.beatNow()
		}
	})
}

// healthProblem runs HealthCheckProgram and makes a sentence of its failure: the first line that it wrote.
func (n *Noded) healthProblem(ctx context.Context, path string) string {
	out, err := n.runLocal(ctx, path, healthTimeout, []string{"SLURM_SCRIPT_CONTEXT=healthcheck"})
	if err == nil || ctx.Err() != nil {
		return ""
	}
	n.log.Warn("HealthCheckProgram failed", "program", path, "err", err, "output", out)
	line, _, _ := strings.Cut(out, "\n")
	return "Health check: " + clip(orElse(strings.TrimSpace(line), err.Error()), maxProblem)
}

// maxProblem is the longest line of a program that becomes a node's reason, bytes.
const maxProblem = 256

// runLocal runs a program as gnoded's own child, with a fixed environment, and kills it and its process group at its
// time limit. It gives the beginning of what it wrote.
func (n *Noded) runLocal(parent context.Context, path string, limit time.Duration, env []string,
	args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(parent, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=" + programPath, "SLURMD_NODENAME=" + n.opts.Name}, env...)
	if n.opts.ConfigPath != "" {
		cmd.Env = append(cmd.Env, "SLURM_CONF="+n.opts.ConfigPath, "GBATCH_CONF="+n.opts.ConfigPath)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	n.opts.Starter.Wrap(cmd)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = localGrace
	out := &headBuffer{}
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	switch {
	case parent.Err() == nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("%s was killed after %s, its time limit", path, limit)
	case errors.Is(err, exec.ErrWaitDelay):
		err = nil // it ended well, and something that it started holds its output open
	case err != nil:
		err = fmt.Errorf("%s: %w", path, err)
	}
	return strings.TrimSpace(out.String()), err
}

// headBuffer keeps the first maxProgramLog bytes that are written. It has no other method of a buffer: io.Copy would
// use ReadFrom, which knows no bound.
type headBuffer struct{ data []byte }

func (b *headBuffer) Write(p []byte) (int, error) {
	b.data = append(b.data, p[:min(max(maxProgramLog-len(b.data), 0), len(p))]...)
	return len(p), nil
}

func (b *headBuffer) String() string { return string(b.data) }
