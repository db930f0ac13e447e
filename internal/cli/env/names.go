package env

import (
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/getopt"
	"gbatch/internal/model"
)

// ParseUsers reads a comma list of user names and numbers.
func ParseUsers(text string) ([]uint32, error) {
	var out []uint32
	for name := range strings.SplitSeq(text, ",") {
		if name == "" {
			continue
		}
		uid, err := UIDOf(name)
		if err != nil {
			return nil, err
		}
		out = append(out, uid)
	}
	return out, nil
}

// UIDOf gives the number of a user given by name or number.
func UIDOf(name string) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, fmt.Errorf("Invalid user: %s", name)
	}
	n, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("Invalid user: %s", name)
	}
	return uint32(n), nil
}

// SplitList reads a comma list of words, blanks around them dropped.
func SplitList(text string) []string {
	var out []string
	for w := range strings.SplitSeq(text, ",") {
		if w = strings.TrimSpace(w); w != "" {
			out = append(out, w)
		}
	}
	return out
}

// ParseSignal reads a signal's name, with or without SIG, or its number.
func ParseSignal(text string) (int32, error) {
	if n, err := strconv.Atoi(text); err == nil {
		if n < 1 || n > 64 {
			return 0, fmt.Errorf("Unknown job signal: %s", text)
		}
		return int32(n), nil
	}
	name := strings.ToUpper(text)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if n := unix.SignalNum(name); n != 0 {
		return int32(n), nil
	}
	return 0, fmt.Errorf("Unknown job signal: %s", text)
}

// CommandLine completes operands that are a program and its arguments.
func CommandLine(before []string, _ string) getopt.Values {
	if len(before) == 0 {
		return getopt.Values{Kind: getopt.Commands}
	}
	return getopt.Values{Kind: getopt.Files}
}

// StateWords are job states, for completion.
func StateWords() getopt.Values {
	v := getopt.Fields("all")
	for _, s := range model.JobStates() {
		v.Words = append(v.Words, getopt.Word{Text: s.String(), Help: s.Short()})
	}
	v.Words = append(v.Words, getopt.Word{Text: model.ExpeditingText, Help: "lost with a node, first in line"},
		getopt.Word{Text: model.SpecialExitText, Help: "held for somebody to look at it"})
	return v
}

// more are Slurm's further states, in its order: their names and short forms. No job is in them here, but for
// SPECIAL_EXIT (model.ParseFilterState).
var more = [][2]string{{"RESV_DEL_HOLD", "RD"}, {"REQUEUE_FED", "RF"}, {"REQUEUE_HOLD", "RH"}, {"REVOKED", "RV"},
	{"SIGNALING", "SI"}, {model.SpecialExitText, "SE"}, {"STAGE_OUT", "SO"}, {"STOPPED", "ST"}}

// QueryStates reads a list of states; PENDING is what is given for it. States of Slurm that gbatch doesn't have are
// known, but no job is in them.
func QueryStates(v string, pending model.JobState) ([]model.JobState, error) {
	var out []model.JobState
	for _, w := range SplitList(v) {
		if strings.EqualFold(w, "all") {
			return model.JobStates(), nil
		}
		if s, ok := model.ParseFilterState(w); ok {
			if s == model.Pending {
				s = pending
			}
			out = append(out, s)
			continue
		}
		is := func(s [2]string) bool { return strings.EqualFold(w, s[0]) || strings.EqualFold(w, s[1]) }
		if slices.ContainsFunc(more, is) {
			continue
		}
		var names []string
		for _, s := range model.JobStates() {
			names = append(names, s.String())
		}
		names = append(names, model.ExpeditingText)
		for _, s := range more {
			names = append(names, s[0])
		}
		return nil, &getopt.TextError{Text: "Invalid job state specified: " + w + "\nValid job states include: " +
			strings.Join(names, ",")}
	}
	return out, nil
}

// Own gives the setter of an option that may name only the caller, or the caller's group.
func Own(option, instead string, mine func() int, number func(string) (uint32, error)) func(string) error {
	return func(v string) error {
		n, err := number(v)
		if err != nil {
			return err
		}
		if int64(n) != int64(mine()) {
			return &getopt.TextError{Text: fmt.Sprintf("%s=%s is not supported by gbatch: %s", option, v, instead)}
		}
		return nil
	}
}

// GIDOf gives the number of a group given by name or number.
func GIDOf(name string) (uint32, error) {
	text := name
	if g, err := user.LookupGroup(name); err == nil {
		text = g.Gid
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("Invalid group: %s", name)
	}
	return uint32(n), nil
}
