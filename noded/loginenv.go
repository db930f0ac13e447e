package noded

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/noded/loginenv"
	"gbatch/noded/shim"
)

// loginenv.go makes jobs that want their user's login environment (--get-user-env, and --export without ALL) begin with
// the process that asks the user's shell for it (noded/loginenv). Submitted variables come first.

// loginName is the variable of a submitted environment that asks for the login environment; its value is 1, or the
// option's: SECONDS[L|S], S for a shell that is no login shell.
const loginName = "SLURM_GET_USER_ENV="

const (
	loginDefault = 8 * time.Second  // the time limit of a shell
	loginMost    = 60 * time.Second // however much a user asks for
)

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

// filled are the variables that a job gets if its submission has none. A login environment has better ones.
var filled = []string{"HOME", "USER", "LOGNAME", "SHELL", "PATH"}

// withLogin makes an order begin with the process that asks the user's shell, if the submitted environment wants that.
func (n *Noded) withLogin(o *shim.Launch, submitted []byte, user uint32) {
	w := wishOf(submitted)
	if w == nil {
		return
	}
	who := n.names.Account(user)
	e := n.jobEnv()
	if d := n.def.Load(); d != nil {
		e.Hidden = e.Units.HiddenOn(d.def)
	}
	lo := &loginenv.Order{Limit: w.limit, Plain: w.plain, Name: who.Name, Home: who.Home, Shell: who.Shell,
		Not: e.Owned(), Space: loginenv.NoSpace()}
	given := map[string]bool{}
	for entry := range bytes.SplitSeq(submitted, []byte{0}) {
		name, _, _ := bytes.Cut(entry, []byte("="))
		given[string(name)] = true
	}
	for _, name := range filled {
		if !given[name] {
			lo.Over = append(lo.Over, name)
		}
	}
	o.Limits = slices.DeleteFunc(o.Limits, func(l shim.Limit) bool {
		if l.Resource != unix.RLIMIT_AS {
			return false
		}
		lo.Space = unix.Rlimit{Cur: l.Soft, Max: l.Hard}
		return true
	})
	o.Argv = lo.Argv(n.opts.Shim, append([]string{o.Path}, o.Argv[1:]...))
	o.Path = n.opts.Shim
}
