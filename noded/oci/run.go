package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/model/container"
	"gbatch/noded/boxenv"
)

// runtimePath is where runtimes are looked for.
const runtimePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// alsoLimit ends an operation of oci.conf that hangs.
const alsoLimit = 30 * time.Second

// passedOn are the signals that reach the runtime, which hands them on.
var passedOn = []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
	unix.SIGALRM,
	unix.SIGWINCH, unix.SIGCONT}

// Main runs a task's command in a container and gives the exit code.
func Main(args []string, stderr io.Writer) int {
	o, argv, err := parse(args)
	if err == nil {
		var code int
		if code, err = run(o, argv); err == nil {
			return code
		}
	}
	node := "a node"
	if o != nil {
		node = o.Node
	}
	_, _ = fmt.Fprintf(stderr, "error: %s: --container: %v\n", node, err) // the exit code says it too
	return 1
}

func run(o *Order, argv []string) (int, error) {
	// Signals for all of a step's processes need not come this way as well. Without the name they come twice.
	_ = os.WriteFile("/proc/self/comm", []byte(CarrierName), 0)
	stop := make(chan os.Signal, 16)
	signal.Notify(stop, passedOn...)
	defer signal.Stop(stop)
	c, err := prepare(o, argv)
	if err != nil {
		return 0, err
	}
	cmd, err := c.command()
	if err != nil {
		return 0, err
	}
	if o.Again && o.Runtime.Delete != "" {
		c.also(o.Runtime.Delete)
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	c.pid = cmd.Process.Pid
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case sig := <-stop:
			if sig == unix.SIGTERM && o.Runtime.Kill != "" {
				c.also(o.Runtime.Kill)
			}
			_ = cmd.Process.Signal(sig) // it may have ended
			continue
		case err = <-done:
		}
		break
	}
	if o.Runtime.Delete != "" {
		c.also(o.Runtime.Delete)
	}
	if !o.Runtime.KeepFiles {
		_ = os.RemoveAll(c.spool) // gnoded removes what is left
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		if w, ok := exit.Sys().(syscall.WaitStatus); ok && w.Signaled() {
			return 128 + int(w.Signal()), nil
		}
		return exit.ExitCode(), nil
	}
	return 0, err
}

// prepare makes the task's directory and files.
func prepare(o *Order, argv []string) (*call, error) {
	c := &call{o: o, argv: argv, root: o.Bundle}
	st, err := os.Stat(o.Bundle)
	if err == nil {
		c.dir = st.IsDir()
	} else if filepath.IsAbs(o.Bundle) {
		return nil, err
	}
	switch c.id = o.ID; {
	case c.id == "":
		c.id = fmt.Sprintf("%s.%s.%d.%s.%d", o.Node, o.User, o.Job, o.Step, o.Task)
	case o.Task > 0:
		c.id += "." + strconv.FormatUint(uint64(o.Task), 10)
	}
	own := "task-" + strconv.FormatUint(uint64(o.Task), 10)
	c.spool = filepath.Join(o.Spool, own)
	if o.Runtime.Path != "" {
		base, err := c.expand(o.Runtime.Path, func(s string) string { return s })
		if err != nil {
			return nil, err
		}
		c.spool = filepath.Join(base, own)
	}
	if err := os.MkdirAll(c.spool, 0o700); err != nil {
		return nil, fmt.Errorf("make the container's directory: %w", err)
	}
	if err := c.pick(); err != nil {
		return nil, err
	}
	var spec object
	if c.dir && !o.Runtime.NoConfig {
		if spec, err = readSpec(o.Bundle); err != nil && (o.Runtime.Run != "" || runtimeOf(o.Runtime.Name).bundles) {
			return nil, err
		}
	}
	if spec == nil {
		spec = object{} // another runtime's container
	}
	if c.dir {
		c.root = rootOf(spec, o.Bundle)
		if _, err := os.Stat(c.root); err != nil && o.Runtime.Run == "" && !runtimeOf(o.Runtime.Name).bundles {
			c.root = o.Bundle // a directory with the files themselves
		}
	}
	if err := c.environ(bundleEnv(spec)); err != nil {
		return nil, err
	}
	if c.dir && !o.Runtime.NoConfig {
		adapt(spec, c)
		text, err := json.Marshal(spec)
		if err != nil {
			return nil, err
		}
		c.bundle = c.spool
		if err := os.WriteFile(filepath.Join(c.spool, "config.json"), text, 0o600); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// pick says which runtime runs the container, where nobody else does.
func (c *call) pick() error {
	r := &c.o.Runtime
	if r.Run == "" && r.Name == "" {
		names := []string{"crun", "runc"}
		if isThere("/sys/fs/cgroup/unified/cgroup.controllers") { // crun refuses control groups of both versions
			slices.Reverse(names)
		}
		for _, name := range names {
			if _, err := installed(name); err == nil {
				r.Name = name
				break
			}
		}
		if r.Name == "" {
			return errors.New("neither crun nor runc is installed on this node; an administrator installs one, or sets " +
				"ContainerRuntime= in gbatch.conf")
		}
	}
	k := runtimeOf(r.Name)
	switch {
	case r.Run == "" && k == nil:
		return fmt.Errorf("the runtime %q is not known", r.Name)
	case r.Run == "" && k.bundles && !c.dir:
		return fmt.Errorf("%s is no directory: %s runs OCI bundles", c.o.Bundle, r.Name)
	case r.Run == "" && r.Name == "runc" && c.o.Root == container.No:
		return errors.New("--no-container-remap-root: with runc you are root in the container; leave it out, or have an " +
			"administrator set ContainerRuntime=crun")
	case r.Run == "" && !k.bundles && c.cannot(r.Name) != "":
		return fmt.Errorf("%s can't be asked for by %s, which runs containers here: leave it out", c.cannot(r.Name), r.Name)
	case r.NoConfig && len(c.o.Mounts) > 0:
		return errors.New("--container-mounts: this site's runtime reads no config.json (IgnoreFileConfigJson in " +
			"oci.conf): leave the mounts out")
	}
	return nil
}

// environ makes the container's environment, and its file where the runtime wants one.
func (c *call) environ(bundle []string) error {
	libs, tools := "", ""
	if len(c.o.Libs) > 0 {
		libs = filepath.Join(c.at(), libsAt)
	}
	if len(c.o.Tools) > 0 {
		tools = filepath.Join(c.at(), toolsAt)
	}
	c.env = boxenv.Environ(os.Environ(), bundle, c.o.Keep, libs, tools)
	var err error
	if c.env, err = without(c.env, c.o.Runtime.EnvExclude); err != nil {
		return err
	}
	kind := c.o.Runtime.EnvFile
	if c.o.Runtime.Run == "" && c.o.Runtime.Name == "podman" {
		kind = container.EnvLines
	}
	end := "\x00"
	switch kind {
	case "":
		return nil
	case container.EnvLines:
		end = "\n"
	}
	var b strings.Builder
	for _, e := range c.env {
		if !strings.Contains(e, end) {
			b.WriteString(e + end)
		}
	}
	c.envFile = filepath.Join(c.spool, "environment")
	return os.WriteFile(c.envFile, []byte(b.String()), 0o600)
}

// without leaves out the entries that a regular expression matches.
func without(env []string, pattern string) ([]string, error) {
	if pattern == "" {
		return env, nil
	}
	re, err := regexp.CompilePOSIX(pattern)
	if err != nil {
		return nil, fmt.Errorf("oci.conf: %w", err)
	}
	return slices.DeleteFunc(slices.Clone(env), re.MatchString), nil
}

// command is the runtime's process.
func (c *call) command() (*exec.Cmd, error) {
	r := &c.o.Runtime
	var cmd *exec.Cmd
	env := os.Environ()
	if r.Run != "" {
		text, err := c.shell(r.Run)
		if err != nil {
			return nil, err
		}
		cmd = exec.Command("/bin/sh", "-c", text)
	} else {
		k := runtimeOf(r.Name)
		argv := k.argv(c)
		program, err := installed(argv[0])
		if err != nil {
			return nil, fmt.Errorf("%w; an administrator installs it, or sets ContainerRuntime= in gbatch.conf", err)
		}
		cmd = exec.Command(program, argv[1:]...)
		if env = append(env, "PATH="+runtimePath); k.env != nil {
			env = append(env, k.env(c)...)
		}
	}
	var err error
	if cmd.Env, err = without(env, r.RunExclude); err != nil {
		return nil, err
	}
	// A signal for the group of the task's first process comes through that process alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !c.o.Terminal}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if c.o.Extra {
		cmd.ExtraFiles = []*os.File{os.NewFile(3, "of the task")}
	}
	return cmd, nil
}

// also runs another operation of oci.conf. What it says is its own; the container's end counts.
func (c *call) also(pattern string) {
	text, err := c.shell(pattern)
	if err != nil {
		return // conf has checked it
	}
	ctx, cancel := context.WithTimeout(context.Background(), alsoLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", text)
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "PATH="+runtimePath)
	_ = cmd.Run() // a container that has ended can't be killed, and one that is gone not be deleted
}

func isProgram(file string) bool {
	st, err := os.Stat(file)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}

func isThere(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
