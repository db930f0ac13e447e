package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// try.go asks the kernel itself which device files a group may open: a process that opens them one by one is the only
// proof.

const (
	tryPart  = "doctor" // the part of a group for the test; no step has this name
	tryLimit = 2 * time.Second
	tryGrace = 100 * time.Millisecond
)

// tryScript joins the group in $1, opens the other arguments and prints the result of each.
const tryScript = `echo $$ >"$1/cgroup.procs" || exit 9
shift
for f; do if e=$( (: <"$f") 2>&1 ); then echo open; else echo "$e"; fi; done`

// TryDevices starts a process in a separate part of the group, with all its rules. The process opens device files for
// reading; denied tells for each whether the kernel denied it. Other failures (a file without a driver) don't count as
// denied. ok is false if the group has no rules.
func (g *Group) TryDevices(ctx context.Context, files []string) (denied []bool, ok bool, err error) {
	above := g.v1["devices"]
	if above == "" && g.root.ebpf {
		above = g.v2
	}
	if above == "" {
		return nil, false, nil
	}
	dir := filepath.Join(above, tryPart)
	if err := unix.Mkdir(dir, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, false, fmt.Errorf("make the cgroup %s: %w", dir, err)
	}
	defer func() {
		err = errors.Join(err, removeTree(context.WithoutCancel(ctx), dir))
	}()
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", tryScript, "sh", dir}, files...)...)
	cmd.Env = []string{"LC_ALL=C"}
	cmd.WaitDelay = tryGrace
	out, err := cmd.Output()
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	switch {
	case err != nil:
		return nil, true, fmt.Errorf("open device files in %s: %w", dir, err)
	case len(lines) != len(files):
		return nil, true, fmt.Errorf("open device files in %s: %d answers for %d files", dir, len(lines), len(files))
	}
	for _, l := range lines {
		denied = append(denied, strings.Contains(l, "not permitted"))
	}
	return denied, true, nil
}
