package cli

import (
	"fmt"
	"os/user"
	"strconv"
	"strings"
)

// parseUsers reads a comma list of user names and numbers.
func parseUsers(text string) ([]uint32, error) {
	var out []uint32
	for name := range strings.SplitSeq(text, ",") {
		if name == "" {
			continue
		}
		uid, err := uidOf(name)
		if err != nil {
			return nil, err
		}
		out = append(out, uid)
	}
	return out, nil
}

// uidOf gives the number of a user given by name or number.
func uidOf(name string) (uint32, error) {
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

// splitList reads a comma list of words, blanks around them dropped.
func splitList(text string) []string {
	var out []string
	for w := range strings.SplitSeq(text, ",") {
		if w = strings.TrimSpace(w); w != "" {
			out = append(out, w)
		}
	}
	return out
}
