package oci

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model/container"
)

// known is a runtime whose way of being called is known.
type known struct {
	name    string
	bundles bool // it runs bundles by their config.json
	argv    func(c *call) []string
	env     func(c *call) []string // what its own environment has besides
}

// call is what a runtime is told.
type call struct {
	o       *Order
	spool   string // of the task
	bundle  string // with the task's config.json; "": there is none
	root    string // the files of a container; a file or an address where Bundle is none of a directory
	id      string
	env     []string // the container's
	envFile string
	argv    []string
	dir     bool // Bundle is a directory
	pid     int
}

var runtimes = []known{
	{name: "crun", bundles: true, argv: func(c *call) []string {
		// The control group is the job's: there is none to be made.
		return c.run("crun", "--cgroup-manager=disabled", "--root="+path.Join(c.spool, "state"), "run")
	}},
	{name: "runc", bundles: true, argv: func(c *call) []string {
		// It warns of the control group that it hasn't made; errors are printed all the same.
		return c.run("runc", "--rootless=true", "--log="+path.Join(c.spool, "log"), "--root="+path.Join(c.spool, "state"),
			"run")
	}},
	{name: "apptainer", argv: func(c *call) []string { return c.apptainer("apptainer") }, env: passedIn},
	{name: "singularity", argv: func(c *call) []string { return c.apptainer("singularity") }, env: passedIn},
	{name: "podman", argv: podman},
	{name: "enroot", argv: enroot, env: func(c *call) []string {
		if !c.dir {
			return nil
		}
		return []string{"ENROOT_DATA_PATH=" + path.Dir(c.root)} // containers are named below it
	}},
}

func runtimeOf(name string) *known {
	if i := slices.IndexFunc(runtimes, func(k known) bool { return k.name == name }); i >= 0 {
		return &runtimes[i]
	}
	return nil
}

// cannot names what a runtime that reads no config.json has no option for; "": it has all that is asked for.
func (c *call) cannot(runtime string) string {
	flags := slices.ContainsFunc(c.o.Mounts, func(m Mount) bool { return m.NoExec || m.Flat })
	switch {
	case runtime == "enroot" && c.o.WorkDir != "":
		return "--container-workdir"
	case (runtime == "apptainer" || runtime == "singularity") && flags:
		return "a mount with noexec or bind"
	}
	return ""
}

// run is the call of a runtime for bundles.
func (c *call) run(words ...string) []string {
	if c.o.Extra {
		words = append(words, "--preserve-fds=1")
	}
	return append(words, "--bundle="+c.bundle, c.id)
}

// binds gives the mounts that are asked for and the files that gbatch shows, for runtimes that take them as arguments.
func (c *call) binds(driver bool) []Mount {
	var out []Mount
	if c.o.Home != "" {
		out = append(out, Mount{From: c.o.Home, At: c.o.Home})
	}
	for _, f := range c.o.Files {
		out = append(out, Mount{From: f.From, At: path.Join(c.at(), f.At), ReadOnly: true})
	}
	if driver {
		for _, f := range c.o.Libs {
			out = append(out, Mount{From: f.From, At: path.Join(c.at(), libsAt, f.At), ReadOnly: true})
		}
		for _, f := range c.o.Tools {
			out = append(out, Mount{From: f.From, At: path.Join(c.at(), toolsAt, f.At), ReadOnly: true})
		}
	}
	return append(out, c.o.Mounts...)
}

func (c *call) at() string { return orElse(c.o.Runtime.MountAt, FilesAt) }

// Shown gives the path in the container of a file that is shown.
func (o *Order) Shown(name string) string { return path.Join(orElse(o.Runtime.MountAt, FilesAt), name) }

// apptainer is the call of Apptainer and of what it was named before. It shows /dev, /tmp and the user's home directory
// by itself.
func (c *call) apptainer(program string) []string {
	out := []string{program, "exec", "--userns"}
	if len(c.o.Libs) > 0 {
		out = append(out, "--nv")
	}
	if !c.o.ReadOnly && c.dir {
		out = append(out, "--writable")
	}
	if c.o.WorkDir != "" {
		out = append(out, "--pwd="+c.o.WorkDir)
	}
	if c.o.Root == container.Yes {
		out = append(out, "--fakeroot")
	}
	for _, m := range c.binds(false) {
		switch {
		case m.From == tmpfs:
			out = append(out, "--scratch="+m.At)
		case m.ReadOnly:
			out = append(out, "--bind="+m.From+":"+m.At+":ro")
		default:
			out = append(out, "--bind="+m.From+":"+m.At)
		}
	}
	return append(append(out, c.root), c.argv...)
}

// passedIn is the environment for a runtime that hands on its own. Its PATH is not the container's.
func passedIn(c *call) []string {
	return slices.DeleteFunc(slices.Clone(c.env), func(e string) bool { return strings.HasPrefix(e, "PATH=") })
}

func podman(c *call) []string {
	ipc := "--ipc=host"
	if !isThere("/dev/mqueue") { // which podman would mount
		ipc = "--volume=/dev/shm:/dev/shm"
	}
	out := []string{"podman", "run", "--rm", "--network=host", ipc, "--cgroups=disabled", "--log-driver=none",
		"--interactive", "--env-file=" + c.envFile, "--name=" + c.id}
	for _, d := range c.o.Devices {
		out = append(out, "--volume="+d+":"+d)
	}
	if c.o.Root == container.No {
		out = append(out, "--userns=keep-id")
	}
	if c.o.ReadOnly {
		out = append(out, "--read-only")
	}
	if c.o.WorkDir != "" {
		out = append(out, "--workdir="+c.o.WorkDir)
	}
	if c.o.Terminal {
		out = append(out, "--tty")
	}
	if c.o.Extra {
		out = append(out, "--preserve-fds=1")
	}
	for _, m := range c.binds(true) {
		options := "rslave"
		if m.ReadOnly {
			options += ",ro"
		}
		if m.NoExec {
			options += ",noexec"
		}
		if m.Flat {
			options += ",bind"
		}
		if m.From == tmpfs {
			out = append(out, "--tmpfs="+m.At)
		} else {
			out = append(out, "--volume="+m.From+":"+m.At+":"+options)
		}
	}
	if c.dir {
		out = append(out, "--rootfs")
	}
	return append(append(out, c.root), c.argv...)
}

func enroot(c *call) []string {
	out := []string{"enroot", "start"}
	if !c.o.ReadOnly {
		out = append(out, "--rw")
	}
	if c.o.Root == container.Yes {
		out = append(out, "--root")
	}
	for _, m := range c.binds(true) {
		kind := "rbind,x-create=auto"
		if m.Flat {
			kind = "bind,x-create=auto"
		}
		if m.ReadOnly {
			kind += ",ro"
		}
		if m.NoExec {
			kind += ",noexec"
		}
		if m.From == tmpfs {
			out = append(out, "--mount=tmpfs:"+m.At+":x-create=dir")
		} else {
			out = append(out, "--mount="+m.From+":"+m.At+":"+kind)
		}
	}
	for _, e := range c.env {
		out = append(out, "--env="+e)
	}
	name := c.root
	if c.dir {
		name = path.Base(c.root)
	}
	return append(append(out, name), c.argv...)
}

// shell puts the values of a call into a pattern of oci.conf that the shell reads.
func (c *call) shell(pattern string) (string, error) { return c.expand(pattern, quoted) }

// expand puts the values of a call into a pattern of oci.conf.
func (c *call) expand(pattern string, quote func(string) string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		if pattern[i] != '%' {
			b.WriteByte(pattern[i])
			continue
		}
		i++
		if i == len(pattern) {
			return "", fmt.Errorf("oci.conf: %q ends in %%: write %%%% for the character", pattern)
		}
		switch pattern[i] {
		case '%':
			b.WriteByte('%')
		case '@':
			for k, a := range c.argv {
				if k > 0 {
					b.WriteByte(' ')
				}
				b.WriteString(inQuotes(a))
			}
		case 'b':
			b.WriteString(quote(orElse(c.bundle, c.o.Bundle)))
		case 'e':
			b.WriteString(quote(c.envFile))
		case 'j':
			b.WriteString(strconv.FormatUint(uint64(c.o.Job), 10))
		case 'm':
			b.WriteString(quote(c.spool))
		case 'n':
			b.WriteString(quote(c.o.Node))
		case 'p':
			b.WriteString(strconv.Itoa(c.pid))
		case 'r':
			b.WriteString(quote(c.root))
		case 's':
			b.WriteString(quote(c.o.Step))
		case 't':
			b.WriteString(strconv.FormatUint(uint64(c.o.Task), 10))
		case 'u':
			b.WriteString(quote(c.o.User))
		case 'U':
			b.WriteString(strconv.FormatUint(uint64(c.o.UID), 10))
		default:
			return "", fmt.Errorf("oci.conf: %q has %%%c: write %%%% for the character, or one of %s", pattern, pattern[i],
				container.OCIPatterns)
		}
	}
	return b.String(), nil
}

// quoted gives a word for the shell, in quotes where it would be read as more than that.
func quoted(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:@,+=", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return inQuotes(s)
}

func inQuotes(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// installed gives a program's file, looked for as a login shell of root's would: the user's PATH is for the container.
func installed(name string) (string, error) {
	if filepath.IsAbs(name) {
		return name, nil
	}
	for _, dir := range strings.Split(runtimePath, ":") {
		file := filepath.Join(dir, name)
		if isProgram(file) {
			return file, nil
		}
	}
	return "", fmt.Errorf("%s is not installed on this node", name)
}
