package loginenv

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Word is the first argument that makes gshim's program run this one.
const Word = "login-env"

// Order says whose shell is asked, and how.
type Order struct {
	Limit time.Duration // of the shell
	Plain bool          // not as a login shell
	Name  string        // the user's
	Home  string
	Shell string   // "": /bin/sh
	Not   []string // variables that the start files can't set
	Over  []string // variables that they set even if the job has them

	// Space limits the script's address space; it is set last, since this program needs more than many scripts. Its Cur
	// and Max are RLIM_INFINITY if there is none.
	Space unix.Rlimit
}

// fields are the arguments of an Order, after the word.
const fields = 9

// NoSpace is no limit of the address space.
func NoSpace() unix.Rlimit { return unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY} }

// Argv gives the arguments that make the program shim carry out the order and then run script.
func (o *Order) Argv(shim string, script []string) []string {
	return append([]string{shim, Word, o.Limit.String(), strconv.FormatBool(o.Plain), o.Name, o.Home, o.Shell,
		strings.Join(o.Not, ","), strings.Join(o.Over, ","), strconv.FormatUint(o.Space.Cur, 10),
		strconv.FormatUint(o.Space.Max, 10)}, script...)
}

// parse reads the arguments after the word.
func parse(args []string) (o Order, script []string, err error) {
	if len(args) < fields+1 {
		return o, nil, fmt.Errorf("%d arguments: gnoded runs this program", len(args))
	}
	list := func(s string) []string { return strings.FieldsFunc(s, func(r rune) bool { return r == ',' }) }
	o = Order{Name: args[2], Home: args[3], Shell: args[4], Not: list(args[5]), Over: list(args[6])}
	if o.Limit, err = time.ParseDuration(args[0]); err != nil {
		return o, nil, err
	}
	if o.Plain, err = strconv.ParseBool(args[1]); err != nil {
		return o, nil, err
	}
	if o.Space.Cur, err = strconv.ParseUint(args[7], 10, 64); err != nil {
		return o, nil, err
	}
	if o.Space.Max, err = strconv.ParseUint(args[8], 10, 64); err != nil {
		return o, nil, err
	}
	return o, args[fields:], nil
}
