package noded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"gbatch/internal/conf"
	"gbatch/internal/proto"
	"gbatch/noded/container"
)

// ownmounts.go gives jobs directories of their own in place of /tmp, /var/tmp and /dev/shm if the configuration wants
// that (noded/container): made with the job's group, before its prolog; entered by its script and by all of its steps'
// processes here; removed when the job's processes have ended, before its epilog. The files of --output, --error and
// --input are opened outside: they are the node's, as is what gnoded writes there when the job has ended.

// openBoxes prepares jobs' own directories; nil without any.
func openBoxes(o *Options) (*container.Store, error) {
	if o.Config == nil {
		return nil, nil
	}
	c := o.Config.ContainerOf(o.Name)
	if c == nil {
		return nil, nil
	}
	base := conf.ExpandPath(c.BasePath, o.Name, o.Host)
	if base == "" {
		base = o.Spool
	} else if c.AutoBase {
		if err := os.MkdirAll(base, 0o755); err != nil {
			return nil, fmt.Errorf("make BasePath of job_container.conf: %w", err)
		}
	}
	// What jobs need of gbatch is there even in a test's cluster below /tmp.
	keep := []string{o.Spool, o.SocketDir, filepath.Dir(o.Shim)}
	if o.ConfigPath != "" {
		keep = append(keep, filepath.Dir(o.ConfigPath))
	}
	return container.Open(container.Options{Base: filepath.Join(base, "containers-"+o.Name), Dirs: c.Dirs,
		Shared: c.Shared, Keep: keep})
}

// ownMounts gives the mount namespace of an attempt, "" without any.
func (n *Noded) ownMounts(key proto.Attempt) (string, error) {
	if n.boxes == nil {
		return "", nil
	}
	return n.boxes.Make(nameOf(key))
}

// dropMounts removes the directories of an attempt whose processes have ended.
func (n *Noded) dropMounts(key proto.Attempt) error {
	if n.boxes == nil {
		return nil
	}
	if err := n.boxes.Remove(nameOf(key)); err != nil {
		return fmt.Errorf("remove the job's own directories: %w", err)
	}
	n.cleanMounts()
	return nil
}

// cleanMounts removes what ended jobs have left in their directories.
func (n *Noded) cleanMounts() {
	n.stops.Do(func(ctx context.Context) {
		if err := n.boxes.Clean(ctx); err != nil && !errors.Is(err, context.Canceled) {
			n.log.Warn("files in the directories of ended jobs could not be removed; it is tried again at the next job's end",
				"err", err)
		}
	})
}

// sweepMounts removes the directories of attempts that nobody knows.
func (n *Noded) sweepMounts(keep []proto.Attempt) error {
	if n.boxes == nil {
		return nil
	}
	names := make([]string, 0, len(keep))
	for _, key := range keep {
		names = append(names, nameOf(key))
	}
	err := n.boxes.Sweep(names)
	n.cleanMounts()
	return err
}
