package oci

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/model/container"
)

// spec.go makes a task's config.json of a bundle's
// (https://github.com/opencontainers/runtime-spec/blob/main/config.md). It keeps what it does not know.

// FilesAt is where the files of gbatch are in a container.
const FilesAt = "/dev/gbatch"

const (
	libsAt  = "lib" // below FilesAt
	toolsAt = "bin"
	tmpfs   = container.Tmpfs

	maxSpec = 4 << 20 // bytes of a config.json
)

type object = map[string]any

// readSpec reads a bundle's config.json.
func readSpec(bundle string) (object, error) {
	file := filepath.Join(bundle, "config.json")
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, fmt.Errorf("%s is no OCI bundle: it has no config.json (umoci unpack --rootless, or runc spec "+
			"--rootless, makes one)", bundle)
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	f := os.NewFile(uintptr(fd), file)
	defer func() { _ = f.Close() }() // it was read only
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s is no file", file), err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSpec+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxSpec {
		return nil, fmt.Errorf("%s has more than %d bytes", file, maxSpec)
	}
	var s object
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// rootOf gives the directory of a bundle's files.
func rootOf(s object, bundle string) string {
	root, _ := in(s, "root")["path"].(string) // "": rootfs
	root = orElse(root, "rootfs")
	if !path.IsAbs(root) {
		root = path.Join(bundle, root)
	}
	return root
}

// in gives an object's member that is an object, and makes it if there is none.
func in(o object, name string) object {
	if v, ok := o[name].(object); ok {
		return v
	}
	v := object{}
	o[name] = v
	return v
}

// listOf gives the objects of a list.
func listOf(v any) []object {
	var out []object
	list, _ := v.([]any) // none: nothing
	for _, e := range list {
		if o, ok := e.(object); ok {
			out = append(out, o)
		}
	}
	return out
}

func textsOf(v any) []string {
	var out []string
	list, _ := v.([]any) // as above
	for _, e := range list {
		if s, ok := e.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func number(v any) uint32 {
	n, _ := v.(float64) // none: 0
	if n < 0 || n > 1<<32-1 {
		return 0
	}
	return uint32(n)
}

// bundleEnv gives the variables that a bundle's config.json sets.
func bundleEnv(s object) []string { return textsOf(in(s, "process")["env"]) }

// adapt makes a bundle's config.json the task's.
func adapt(s object, c *call) {
	c.process(s)
	root := in(s, "root")
	root["path"] = c.root
	if c.o.ReadOnly {
		root["readonly"] = true
	}
	for _, kind := range c.o.Runtime.NoHooks {
		delete(in(s, "hooks"), kind)
	}
	s["mounts"] = c.mounts(s)
	linux := in(s, "linux")
	c.ids(s, linux)
	delete(s, "hostname") // the node's, whose network it is
	delete(s, "domainname")
	// The job's limits and its control group count.
	for _, name := range []string{"resources", "cgroupsPath", "intelRdt"} {
		delete(linux, name)
	}
	keep := []any{}
	user := false
	for _, ns := range listOf(linux["namespaces"]) {
		switch kind, _ := ns["type"].(string); kind {
		case "network", "cgroup", "ipc", "uts", "pid":
			continue
		case "user":
			user = true
		}
		keep = append(keep, ns)
	}
	if !user {
		keep = append(keep, object{"type": "user"})
	}
	linux["namespaces"] = keep
}

// process says what runs.
func (c *call) process(s object) {
	p := in(s, "process")
	p["args"], p["env"], p["terminal"] = c.argv, c.env, c.o.Terminal
	if cwd, _ := p["cwd"].(string); c.o.WorkDir != "" || cwd == "" {
		p["cwd"] = orElse(c.o.WorkDir, "/")
	}
	delete(p, "rlimits") // the job's
	delete(p, "oomScoreAdj")
	delete(p, "consoleSize")
}

// ids makes the job's user the container's: with the ids that the bundle is made for, or its own.
func (c *call) ids(s, linux object) {
	user := in(in(s, "process"), "user")
	inside := func(mappings, id string, own uint32) uint32 {
		switch {
		case c.o.Root == container.Yes || c.o.Runtime.Run == "" && c.o.Runtime.Name == "runc": // it demands a root
			return 0
		case c.o.Root == container.No:
			return own
		}
		want := number(user[id])
		list := listOf(linux[mappings])
		if len(list) == 0 || slices.ContainsFunc(list, func(m object) bool {
			return want-number(m["containerID"]) < max(number(m["size"]), 1)
		}) {
			return want
		}
		return number(list[0]["containerID"])
	}
	uid, gid := inside("uidMappings", "uid", c.o.UID), inside("gidMappings", "gid", c.o.GID)
	linux["uidMappings"] = []any{object{"containerID": uid, "hostID": c.o.UID, "size": 1}}
	linux["gidMappings"] = []any{object{"containerID": gid, "hostID": c.o.GID, "size": 1}}
	user["uid"], user["gid"] = uid, gid
	delete(user, "additionalGids") // there is one group in the container; the job's count outside
	delete(user, "username")
}

// mounts gives the bundle's mounts as a user may make them, and what is added.
func (c *call) mounts(s object) []any {
	out := []any{}
	for _, m := range listOf(s["mounts"]) {
		kind, _ := m["type"].(string)
		at, _ := m["destination"].(string)
		switch {
		case kind == "cgroup" || kind == "cgroup2" || kind == "mqueue": // of namespaces that the container doesn't have
			continue
		case path.Clean(at) == "/dev/shm":
			continue
		case kind == "sysfs":
			m = object{"destination": at, "type": "none", "source": "/sys",
				"options": []string{"rbind", "nosuid", "noexec", "nodev", "ro"}}
		case kind == "proc":
			m = object{"destination": at, "type": "none", "source": "/proc",
				"options": []string{"rbind", "nosuid", "noexec", "nodev"}}
		case m["options"] != nil:
			// Groups and users that the container does not have can't own anything.
			m["options"] = slices.DeleteFunc(textsOf(m["options"]), func(o string) bool {
				return strings.HasPrefix(o, "gid=") || strings.HasPrefix(o, "uid=")
			})
		}
		out = append(out, m)
	}
	bind := func(from, at string, options ...string) {
		out = append(out, object{"destination": at, "type": "bind", "source": from,
			"options": append([]string{"rbind", "nosuid"}, options...)})
	}
	bind("/dev/shm", "/dev/shm", "nodev")
	for _, d := range c.o.Devices {
		bind(d, d)
	}
	for _, m := range c.binds(true) {
		var more []string
		if m.ReadOnly {
			more = append(more, "ro")
		}
		if m.NoExec {
			more = append(more, "noexec")
		}
		switch {
		case m.From == tmpfs:
			out = append(out, object{"destination": m.At, "type": "tmpfs", "source": "tmpfs",
				"options": append([]string{"nosuid", "nodev"}, more...)})
		case m.Flat:
			out = append(out, object{"destination": m.At, "type": "bind", "source": m.From,
				"options": append([]string{"bind", "nosuid"}, more...)})
		default:
			bind(m.From, m.At, more...)
		}
	}
	return out
}
