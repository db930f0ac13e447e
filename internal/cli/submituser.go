package cli

import (
	"fmt"
	"os/user"
	"strconv"
	"strings"

	"gbatch/internal/cli/getopt"
)

// userEnvironment reads --get-user-env's value: [seconds][L|S].
func (s *submission) userEnvironment(v string) error {
	s.userEnv = v
	if v == "" {
		s.userEnv = "1" // what Slurm writes
		return nil
	}
	digits := strings.TrimRight(v, "LlSs")
	if n, err := strconv.Atoi(digits); digits != "" && (err != nil || n < 1) || len(v) > len(digits)+1 {
		return &getopt.TextError{Text: "Invalid --get-user-env specification: '" + v + "'; write seconds, and L for a login shell or S for a plain one, such as 10L"}
	}
	return nil
}

// wishLogin asks for the login environment where --export leaves out this one, as Slurm does.
func (s *submission) wishLogin() {
	if s.userEnv != "" || s.export == "" || s.exportTo != "" {
		return
	}
	for _, w := range splitQuoted(s.export) {
		if strings.EqualFold(w, "ALL") {
			return
		}
	}
	s.userEnv = "1"
}

// own gives the setter of an option that may name nobody but the caller, or his group.
func own(option, instead string, mine func() int, number func(string) (uint32, error)) func(string) error {
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

// gidOf gives the number of a group given by name or number.
func gidOf(name string) (uint32, error) {
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
