package container

import (
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/plain"
)

// Tmpfs is the source of a mount of memory instead of a directory.
const Tmpfs = "tmpfs"

// Mount is a directory or file of the node that is seen in a container.
type Mount struct {
	Source   string // absolute, or Tmpfs
	Target   string // absolute, in the container
	ReadOnly bool
	NoExec   bool
	Flat     bool // an OCI runtime leaves out what is mounted below Source, if the kernel lets its user do that
}

// without are flags that say what holds anyhow: a container's mounts are private, and change nobody's rights.
var without = []string{"rw", "rbind", "nosuid", "private", "rprivate", "slave", "rslave", "x-create=dir",
	"x-create=file", "x-create=auto", "nodev"}

// ParseMount reads SRC:DST[:FLAGS], or SRC for the same path in the container. FLAGS are joined with +.
func ParseMount(text string) (Mount, error) {
	shown := plain.Line(text)
	parts := strings.Split(text, ":")
	if len(parts) > 3 || text == "" {
		return Mount{}, fmt.Errorf("--container-mounts '%s': write SRC:DST or SRC:DST:FLAGS, such as /data:/data:ro", shown)
	}
	m := Mount{Source: parts[0], Target: parts[0]}
	if len(parts) > 1 {
		m.Target = parts[1]
	}
	if m.Source == "umount" {
		return m, fmt.Errorf("--container-mounts '%s': nothing is mounted that could be unmounted; leave it out", shown)
	}
	if m.Source != Tmpfs {
		if err := mountPath(shown, m.Source); err != nil {
			return m, err
		}
	}
	if err := mountPath(shown, m.Target); err != nil {
		return m, err
	}
	if strings.Trim(m.Target, "/.") == "" {
		return m, fmt.Errorf("--container-mounts '%s': the container's / is its image's", shown)
	}
	if len(parts) < 3 {
		return m, nil
	}
	for _, flag := range strings.Split(parts[2], "+") {
		switch {
		case flag == "ro":
			m.ReadOnly = true
		case flag == "noexec":
			m.NoExec = true
		case flag == "bind":
			m.Flat = true
		case slices.Contains(without, flag):
		default:
			return m, fmt.Errorf("--container-mounts '%s': there is no flag '%s'; write ro, rw, noexec, bind or rbind, "+
				"joined with +", shown, plain.Line(flag))
		}
	}
	return m, nil
}

func mountPath(shown, path string) error {
	if path == "" {
		return fmt.Errorf("--container-mounts '%s': a path is missing; write SRC:DST", shown)
	}
	return CheckPath("--container-mounts", path)
}
