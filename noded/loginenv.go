package noded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"gbatch/internal/jobenv"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// loginenv.go gets a user's login environment for jobs that want it (--get-user-env, and --export without ALL): the
// variables that the user's shell has after it has read its start files here. Submitted variables come first.
//
// Start files may hang or fail. A shell has a time limit, and its result is kept for a while, good or bad. A job
// without a login environment runs all the same, with a line in its standard error.

// loginName is the variable of a submitted environment that asks for the login environment; its value is 1, or the
// option's: SECONDS[L|S], S for a shell that is no login shell.
const loginName = "SLURM_GET_USER_ENV="

const (
	loginDefault = 8 * time.Second  // the time limit of a shell
	loginMost    = 60 * time.Second // however much a user asks for
	loginGrace   = time.Second      // for its output to end once it was killed
	loginLasts   = 30 * time.Second // how long an outcome is good for
	maxLogins    = 8                // jobs that wait for a shell at once; others wait for these
	maxLoginKept = 256              // outcomes that are kept
)

// loginMark stands before the variables in a shell's output: start files may print.
const loginMark = "=gbatch=environment=begins=here="

type loginWish struct {
	limit time.Duration
	plain bool // no login shell
}

// wishOf says whether a submitted environment asks for the user's login environment.
func wishOf(submitted []byte) *loginWish {
	if !bytes.Contains(submitted, []byte(loginName)) { // most jobs: their variables need not be looked at one by one
		return nil
	}
	for entry := range bytes.SplitSeq(submitted, []byte{0}) {
		value, is := bytes.CutPrefix(entry, []byte(loginName))
		if !is {
			continue
		}
		w := &loginWish{limit: loginDefault}
		text := bytes.TrimRight(value, "LlSs")
		w.plain = bytes.ContainsAny(value[len(text):], "Ss")
		if n, err := strconv.Atoi(string(text)); err == nil && n > 1 { // 1 is what Slurm writes whatever was asked for
			w.limit = min(time.Duration(n)*time.Second, loginMost)
		}
		return w
	}
	return nil
}

// logins keeps what shells gave, by user and kind of shell.
type logins struct {
	mu   sync.Mutex
	kept map[loginKey]*login
}

type loginKey struct {
	uid   uint32
	plain bool
}

// login is one result. Jobs that need it while its shell runs wait for it.
type login struct {
	done chan struct{}
	at   time.Time
	env  []byte // NAME=value, each ended by a NUL
	err  error
}

// get gives the login environment of a job's user.
func (ls *logins) get(ctx context.Context, s *model.Spec, who jobenv.Account, root bool, w *loginWish) ([]byte, error) {
	key := loginKey{s.UID, w.plain}
	ls.mu.Lock()
	l := ls.kept[key]
	if l == nil || !l.at.IsZero() && time.Since(l.at) > loginLasts {
		l = &login{done: make(chan struct{})}
		if ls.kept == nil || len(ls.kept) >= maxLoginKept {
			ls.kept = map[loginKey]*login{}
		}
		ls.kept[key] = l
		ls.mu.Unlock()
		l.env, l.err = askShell(ctx, s, who, root, w)
		ls.mu.Lock()
		l.at = time.Now()
		ls.mu.Unlock()
		close(l.done)
		return l.env, l.err
	}
	ls.mu.Unlock()
	<-l.done // within the shell's time limit
	return l.env, l.err
}

// askShell runs the user's shell, as a login shell unless the wish is for a plain one, and reads its variables.
func askShell(parent context.Context, s *model.Spec, who jobenv.Account, root bool, w *loginWish) ([]byte, error) {
	shell := who.Shell
	if shell == "" {
		shell = "/bin/sh"
	}
	ctx, cancel := context.WithTimeout(parent, w.limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, shell)
	name := filepath.Base(shell)
	if !w.plain {
		name = "-" + name // what makes every shell a login shell
	}
	cmd.Args = []string{name, "-c", "echo " + loginMark + "; exec /usr/bin/env -0"}
	cmd.Dir = "/"
	cmd.Env = []string{"HOME=" + who.Home, "USER=" + who.Name, "LOGNAME=" + who.Name, "SHELL=" + shell,
		"PATH=/usr/local/bin:/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if root {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: s.UID, Gid: s.GID, Groups: s.Groups}
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = loginGrace
	out := &loginOutput{}
	cmd.Stdout = out
	err := cmd.Run()
	_, env, found := bytes.Cut(out.data, []byte(loginMark+"\n"))
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("%s was not ready after %s; its start files hang", shell, w.limit)
	case out.full:
		return nil, fmt.Errorf("%s has an environment of more than %d bytes", shell, proto.MaxEnvBytes)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return nil, fmt.Errorf("%s: %w", shell, err)
	case !found || len(env) == 0:
		return nil, fmt.Errorf("%s ended without showing its environment", shell)
	}
	return env, nil
}

// loginOutput keeps what a shell writes up to the largest environment.
type loginOutput struct {
	data []byte
	full bool
}

func (o *loginOutput) Write(p []byte) (int, error) {
	if len(o.data)+len(p) > proto.MaxEnvBytes {
		o.full = true
		return len(p), nil
	}
	o.data = append(o.data, p...)
	return len(p), nil
}

// withLogin adds those variables of a login environment that were not submitted, and are not the shell's own.
func withLogin(submitted, login []byte) []byte {
	have := map[string]bool{"_": true, "SHLVL": true, "PWD": true, "OLDPWD": true}
	for entry := range bytes.SplitSeq(submitted, []byte{0}) {
		name, _, _ := bytes.Cut(entry, []byte("="))
		have[string(name)] = true
	}
	out := bytes.Clone(submitted)
	for entry := range bytes.SplitSeq(login, []byte{0}) {
		if name, _, is := bytes.Cut(entry, []byte("=")); is && len(name) > 0 && !have[string(name)] {
			out = append(append(out, entry...), 0)
		}
	}
	return out
}

// makeWith calls f with the login environment of a launch's user where the job wants it, on a worker that may wait for
// a shell, and else at once with nothing. note is for the user.
func (n *Noded) makeWith(l *proto.Launch, f func(login []byte, note string)) {
	submitted, err := n.envs.open(&l.Env)
	w := (*loginWish)(nil)
	if err == nil && !l.Prepare {
		w = wishOf(submitted)
	}
	if w == nil {
		f(nil, "")
		return
	}
	n.waits.Do(func(ctx context.Context) {
		env, err := n.logins.get(ctx, l.Spec, n.names.Account(l.Spec.UID), n.root, w)
		note := ""
		if err != nil {
			n.log.Warn("a user's login environment could not be read; the job runs without it", "job", l.Job, "user",
				l.Spec.User,
				"err", err)
			note = fmt.Sprintf("slurmstepd: error: the login environment of %s could not be read on node %s (%v); the job runs "+
				"with what it was submitted with", l.Spec.User, n.opts.Name, err)
		}
		n.workers.Do(func(context.Context) { f(env, note) })
	})
}
