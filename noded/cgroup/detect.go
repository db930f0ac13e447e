package cgroup

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Mode is how a host has mounted control groups.
type Mode int

// The modes.
const (
	None    Mode = iota // no usable control groups
	Legacy              // v1 only
	Hybrid              // v1 controllers beside a cgroup2 mount
	Unified             // v2 only
)

func (m Mode) String() string {
	switch m {
	case None:
		return "none"
	case Legacy:
		return "v1"
	case Hybrid:
		return "hybrid v1 and v2"
	case Unified:
		return "v2"
	}
	return fmt.Sprintf("mode %d", int(m))
}

// Support says which control groups a host has.
type Support struct {
	Mode Mode
	Why  string // Mode None: why, as a sentence without a full stop

	v1  map[string]string // controller -> mount point
	v2  string            // mount point, or ""
	ctl []string          // controllers of v2

	unlimited bool // groups only track
}

// Detect reads the mounts. Open, not Detect, tests whether they are usable.
func Detect() Support {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return Support{Why: fmt.Sprintf("the mounted file systems can't be read: %v", err)}
	}
	s := parseMounts(b)
	if s.v2 != "" {
		if ctl, err := os.ReadFile(filepath.Join(s.v2, "cgroup.controllers")); err == nil {
			s.ctl = strings.Fields(string(ctl))
		}
	}
	s.setMode()
	return s
}

func (s *Support) setMode() {
	switch {
	case len(s.v1) == 0 && s.v2 == "":
		s.Mode, s.Why = None, "no cgroup file system is mounted"
	case s.v2 == "":
		s.Mode = Legacy
	case len(s.v1) == 0:
		s.Mode = Unified
	default:
		s.Mode = Hybrid
	}
}

// controllers are those that gbatch uses; others may be mounted.
var controllers = []string{"cpuset", "memory", "pids", "devices", "freezer", "cpuacct"}

// parseMounts reads proc(5)'s mountinfo. Of several mounts of one hierarchy the first counts.
func parseMounts(b []byte) Support {
	s := Support{v1: map[string]string{}}
	for line := range bytes.Lines(b) {
		left, right, ok := strings.Cut(strings.TrimSpace(string(line)), " - ")
		if !ok {
			continue
		}
		f, g := strings.Fields(left), strings.Fields(right)
		if len(f) < 5 || len(g) < 3 {
			continue
		}
		at := unescape(f[4])
		switch g[0] {
		case "cgroup2":
			if s.v2 == "" {
				s.v2 = at
			}
		case "cgroup":
			for _, c := range strings.Split(g[2], ",") {
				if slices.Contains(controllers, c) && s.v1[c] == "" {
					s.v1[c] = at
				}
			}
		}
	}
	return s
}

// unescape undoes mountinfo's octal escapes (\040 for a blank).
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}
