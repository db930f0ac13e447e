package loginenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// loginMark stands before the variables in a shell's output: start files may print.
const loginMark = "=gbatch=environment=begins=here="

const (
	loginGrace = time.Second // for its output to end once it was killed
	maxEnv     = 8 << 20     // bytes of an environment; the kernel passes on less
)

// ask runs the user's shell, as a login shell unless a plain one is asked for, and gives its variables: NAME=value,
// each ended by a NUL. What the shell leaves running is for endRest.
func ask(o *Order) ([]byte, error) {
	shell := o.Shell
	if shell == "" {
		shell = "/bin/sh"
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, shell)
	name := filepath.Base(shell)
	if !o.Plain {
		name = "-" + name // what makes every shell a login shell
	}
	cmd.Args = []string{name, "-c", "echo " + loginMark + "; exec /usr/bin/env -0"}
	cmd.Dir = "/"
	cmd.Env = []string{"HOME=" + o.Home, "USER=" + o.Name, "LOGNAME=" + o.Name, "SHELL=" + shell,
		"PATH=/usr/local/bin:/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = loginGrace
	out := &output{}
	cmd.Stdout = out
	err := cmd.Run()
	_, env, found := bytes.Cut(out.data, []byte(loginMark+"\n"))
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("%s was not ready after %s; its start files hang", shell, o.Limit)
	case out.full:
		return nil, fmt.Errorf("%s has an environment of more than %d bytes", shell, maxEnv)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return nil, fmt.Errorf("%s: %w", shell, err)
	case !found || len(env) == 0:
		return nil, fmt.Errorf("%s ended without showing its environment", shell)
	}
	return env, nil
}

// output keeps what a shell writes up to the largest environment.
type output struct {
	data []byte
	full bool
}

func (o *output) Write(p []byte) (int, error) {
	if len(o.data)+len(p) > maxEnv {
		o.full = true
		return len(p), nil
	}
	o.data = append(o.data, p...)
	return len(p), nil
}

// shellsOwn are variables of a shell itself.
var shellsOwn = []string{"_", "SHLVL", "PWD", "OLDPWD"}

// merge adds to the job's variables those of a login environment that the job does not have, in place of the job's
// those of Over, and none of Not.
func merge(job []string, login []byte, o *Order) []string {
	have := map[string]int{} // where
	out := slices.Clone(job)
	for i, entry := range out {
		name, _, _ := strings.Cut(entry, "=")
		have[name] = i
	}
	for entry := range bytes.SplitSeq(login, []byte{0}) {
		text := string(entry)
		name, _, is := strings.Cut(text, "=")
		if !is || name == "" || slices.Contains(o.Not, name) || slices.Contains(shellsOwn, name) {
			continue
		}
		switch i, has := have[name]; {
		case !has:
			have[name] = len(out)
			out = append(out, text)
		case slices.Contains(o.Over, name):
			out[i] = text
		}
	}
	return out
}
