package request

import (
	"strconv"
	"strings"

	"gbatch/internal/cli/getopt"
)

// userEnvironment reads --get-user-env's value: [seconds][L|S].
func (s *Submission) userEnvironment(v string) error {
	s.userEnv = v
	if v == "" {
		s.userEnv = "1" // what Slurm writes
		return nil
	}
	digits := strings.TrimRight(v, "LlSs")
	if n, err := strconv.Atoi(digits); digits != "" && (err != nil || n < 1) || len(v) > len(digits)+1 {
		return &getopt.TextError{
			Text: "Invalid --get-user-env specification: '" + v +
				"'; write seconds, and L for a login shell or S for a plain one, such as 10L"}
	}
	return nil
}

// LoginOnly requests the login environment whatever --export says: the job has none of its own.
func (s *Submission) LoginOnly() {
	if s.userEnv == "" && s.exportTo == "" {
		s.userEnv = "1"
	}
}

// WishLogin requests the login environment if --export leaves out the current one, as Slurm does.
func (s *Submission) WishLogin() {
	if s.userEnv != "" || s.Export == "" || s.exportTo != "" {
		return
	}
	for _, w := range splitQuoted(s.Export) {
		if strings.EqualFold(w, "ALL") {
			return
		}
	}
	s.userEnv = "1"
}
