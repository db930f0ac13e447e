//go:build linux && (amd64 || arm64)

package shim

// launch.go is one launch: it makes childArgs of the order, forks, and explains failures.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"gbatch/internal/rootfile"
)

const (
	busyRetries  = 6 // ETXTBSY: someone still has the program open for writing
	busyPause    = 2 * time.Millisecond
	shebangBytes = 256 // BINPRM_BUF_SIZE
)

// identity has gshim's user and rights, read once.
type identity struct {
	uid, gid  int
	root      bool
	clone3    bool
	reset     uint64 // signals that a child has to put at their default (childArgs)
	limits    limitRules
	oomAdj    []byte // to give back to jobs; nil: gshim has not changed its own
	nice      int
	trackName string // environment entry prefix by which processes without a cgroup are recognized
	reasons   *[maxChdirErrno]cString
}

// launchError is a launch that did not happen.
type launchError struct {
	stage Stage
	errno syscall.Errno
	text  string
}

func refuse(stage Stage, format string, args ...any) *launchError {
	e := &launchError{stage: stage, text: fmt.Errorf(format, args...).Error()}
	for _, a := range args {
		if err, ok := a.(error); ok {
			errors.As(err, &e.errno)
		}
	}
	return e
}

// prepared is a launch ready to fork.
type prepared struct {
	child  *childArgs
	notes  []string
	closes []int // file descriptors of the parent
	hold   [][]*byte
}

func (p *prepared) close() {
	for _, fd := range p.closes {
		_ = unix.Close(fd) // read-only directories and one-line control files: nothing to lose
	}
	p.closes = nil
}

// prepare makes all checks that are possible before the fork, and the child's arguments.
func (id *identity) prepare(l *Launch) (*prepared, *launchError) {
	if err := l.Check(); err != nil {
		return nil, refuse(StageOrder, "%w", err)
	}
	if !id.root && int(l.UID) != id.uid {
		return nil, refuse(StageOrder,
			"gshim runs as uid %d and can't start a job of uid %d: run gnoded as root to run other users' jobs", id.uid, l.UID)
	}
	if !id.root && int(l.GID) != id.gid {
		return nil, refuse(StageOrder, "gshim runs as gid %d and can't start a job with gid %d: run gnoded as root for that",
			id.gid, l.GID)
	}
	p := &prepared{child: &childArgs{useClone: id.clone3, reset: id.reset, umask: uintptr(l.Umask)}}
	if id.clone3 {
		p.child.clone.flags = cloneClearSighand
	}
	a := p.child
	var err error
	if a.limits, p.notes, err = planLimits(l.Limits, id.limits); err != nil {
		return nil, refuse(StageLimit, "%w", err)
	}
	if id.root {
		a.setIdentity, a.uid, a.gid, a.groups = true, uintptr(l.UID), uintptr(l.GID), slices.Sorted(slices.Values(l.Groups))
		a.became = make([]uint32, len(a.groups)+1)
	}
	if l.Nice != id.nice {
		a.setNice, a.nice = true, l.Nice
	}
	a.cpus = cpuMask(l.CPUs)
	if a.memMode = uintptr(l.Mem.Mode); a.memMode != 0 {
		a.memNodes = cpuMask(l.Mem.Nodes)
	}
	for i, f := range l.Passed {
		if a.passed[i] = -1; f != nil {
			a.passed[i] = int32(fdOf(f))
		}
	}
	a.terminal, a.mounts, a.confined = l.Terminal, -1, l.Confined
	env := l.Env
	if l.Cgroup.empty() {
		env = append(env[:len(env):len(env)], id.trackEntry(l.Key))
	}
	if err := id.strings(p, l, env); err != nil {
		return nil, refuse(StageOrder, "%w", err)
	}
	if err := p.openCgroups(l.Cgroup); err != nil {
		p.close()
		return nil, err
	}
	if l.Mounts != "" {
		fd, err := unix.Open(l.Mounts, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			p.close()
			return nil, refuse(StageMounts, "could not open the mount namespace %s: %w", l.Mounts, err)
		}
		p.closes = append(p.closes, fd)
		a.mounts = int32(fd)
	}
	return p, nil
}

// trackEntry is the environment variable that marks the processes of a launch that has no cgroup.
func (id *identity) trackEntry(k Key) string {
	entry := fmt.Sprintf("%s%d.%d.%d", id.trackName, k.JobID, k.Attempt, k.Step)
	if k.Task != 0 {
		entry += fmt.Sprintf(".%d", k.Task)
	}
	return entry
}

func cpuMask(cpus []int) []uint64 {
	if len(cpus) == 0 {
		return nil
	}
	top := 0
	for _, c := range cpus {
		top = max(top, c)
	}
	mask := make([]uint64, top/64+1)
	for _, c := range cpus {
		mask[c/64] |= 1 << (c % 64)
	}
	return mask
}

// strings makes the C strings.
func (id *identity) strings(p *prepared, l *Launch, env []string) error {
	a := p.child
	var errs []error
	str := func(s string) *byte {
		b, err := syscall.BytePtrFromString(s)
		errs = append(errs, err)
		return b
	}
	list := func(l []string) **byte {
		b, err := syscall.SlicePtrFromStrings(l)
		if err != nil {
			errs = append(errs, err)
			return nil
		}
		p.hold = append(p.hold, b)
		return &b[0]
	}
	orNull := func(path string) string {
		if path == "" {
			return os.DevNull
		}
		return path
	}
	dir := l.Dir
	if dir == "" {
		dir = "/"
	}
	if l.PIDVar != "" {
		env = append(env[:len(env):len(env)], l.PIDVar+"=")
	}
	a.path, a.argv, a.envv = str(l.program()), list(l.Argv), list(env)
	if l.PIDVar != "" && len(errs) > 0 && errors.Join(errs...) == nil {
		b := append([]byte(l.PIDVar+"="), make([]byte, pidDigits+1)...)
		a.pid = &b[len(l.PIDVar)+1]
		p.hold[len(p.hold)-1][len(env)-1] = &b[0]
	}
	a.dir, a.fallback = str(dir), str("/tmp")
	a.in, a.out = str(orNull(l.Stdin)), str(orNull(l.Stdout))
	if l.Stderr != l.Stdout || l.Passed[1] != nil {
		a.err = str(orNull(l.Stderr))
	}
	a.outFlags = unix.O_WRONLY | unix.O_CREAT | unix.O_APPEND
	if !l.Append {
		a.outFlags |= unix.O_TRUNC
	}
	a.chdirHead = cBytes("slurmstepd: error: couldn't chdir to '" + dir + "': ")
	a.chdirTail = cBytes(": going to /tmp instead\n")
	a.reasons = id.reasons
	if id.oomAdj != nil {
		a.oomPath, a.oomAdj = str("/proc/self/oom_score_adj"), cBytes(string(id.oomAdj))
	}
	return errors.Join(errs...)
}

func cBytes(s string) cString {
	b := []byte(s)
	return cString{unsafe.SliceData(b), uintptr(len(b))}
}

// errnoTexts are the reasons that chdir can give, worded as strerror(3) does.
func errnoTexts() *[maxChdirErrno]cString {
	var t [maxChdirErrno]cString
	for i := 1; i < maxChdirErrno; i++ {
		if s := syscall.Errno(i).Error(); s != "" {
			t[i] = cBytes(strings.ToUpper(s[:1]) + s[1:])
		}
	}
	return &t
}

// openCgroups opens what the child writes itself into. On kernels that can, it is born into the v2 directory instead.
func (p *prepared) openCgroups(c Cgroup) *launchError {
	open := func(path string, flags int) (int, *launchError) {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1, refuse(StageCgroup, "could not open the cgroup %s: %w", path, err)
		}
		p.closes = append(p.closes, fd)
		return fd, nil
	}
	for _, d := range c.V1 {
		fd, err := open(filepath.Join(d, "tasks"), unix.O_WRONLY)
		if err != nil {
			return err
		}
		p.child.joins = append(p.child.joins, int32(fd))
	}
	switch {
	case c.V2 == "":
	case p.child.useClone:
		fd, err := open(c.V2, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		p.child.clone.flags |= cloneIntoCgroup
		p.child.clone.cgroup = uint64(fd)
	default:
		fd, err := open(filepath.Join(c.V2, "cgroup.procs"), unix.O_WRONLY)
		if err != nil {
			return err
		}
		p.child.joins = append(p.child.joins, int32(fd))
	}
	return nil
}

// forkExec runs the prepared launch. On failure the child, if there was one, is left to the reaper.
func (p *prepared) forkExec(l *Launch) (int, *launchError) {
	for try := 0; ; try++ {
		pid, errno := spawn(p.child)
		if errno == 0 {
			return pid, nil
		}
		if errno == unix.ETXTBSY && try < busyRetries {
			time.Sleep(busyPause << try) // paced retry, at most 250 ms in all
			continue
		}
		return 0, p.explain(l, pid != 0, errno)
	}
}

// explain describes a failed launch and names the faulty file or value.
func (p *prepared) explain(l *Launch, forked bool, errno syscall.Errno) *launchError {
	say := func(stage Stage, format string, args ...any) *launchError {
		e := refuse(stage, format, args...)
		e.errno = errno
		return e
	}
	if !forked {
		if l.Cgroup.V2 != "" && p.child.clone.flags&cloneIntoCgroup != 0 && errno != unix.EAGAIN && errno != unix.ENOMEM {
			return say(StageCgroup, "could not fork into the cgroup %s: %w", l.Cgroup.V2, errno)
		}
		return say(StageFork, "could not fork: %w", errno)
	}
	stage := Stage(p.child.stage)
	switch stage {
	case StageSession:
		return say(stage, "could not start a session: %w", errno)
	case StageCgroup:
		dirs := append(l.Cgroup.V1[:len(l.Cgroup.V1):len(l.Cgroup.V1)], l.Cgroup.V2)
		return say(stage, "could not enter the cgroup %s: %w", dirs[p.child.index], errno)
	case StageNice:
		return say(stage, "could not set the nice value to %d: %w", l.Nice, errno)
	case StageCPUs:
		return say(stage, "could not pin the process to CPUs %v: %w", l.CPUs, errno)
	case StageMemory:
		return say(stage, "could not set memory policy %d over the memory nodes %v: %w", l.Mem.Mode, l.Mem.Nodes, errno)
	case StageIdentity:
		what := [...]string{fmt.Sprintf("%d supplementary groups", len(l.Groups)), fmt.Sprintf("group id %d", l.GID),
			fmt.Sprintf("user id %d", l.UID), fmt.Sprintf("exactly user id %d, group id %d and %d groups", l.UID, l.GID,
				len(l.Groups))}
		return say(stage, "could not take %s: %w", what[p.child.index], errno)
	case StageMounts:
		return say(stage, "could not enter the mount namespace %s: %w", l.Mounts, errno)
	case StageDir:
		return say(stage, "could not change to the working directory %s, nor to /tmp: %w", l.Dir, errno)
	case StageStdin:
		return say(stage, "could not open stdin file %s: %s", inDir(l, l.Stdin), openReason(errno))
	case StageStdout:
		return say(stage, "could not open stdout file %s: %s", inDir(l, l.Stdout), openReason(errno))
	case StageStderr:
		return say(stage, "could not open stderr file %s: %s", inDir(l, l.Stderr), openReason(errno))
	case StageTerminal:
		return say(stage, "could not make its standard input its controlling terminal: %w", errno)
	case StageLimit:
		r := p.child.limits[p.child.index]
		return say(stage, "could not set %s to soft %s, hard %s: %w", limitName(int(r.resource)), limitText(r.lim.Cur),
			limitText(r.lim.Max), errno)
	}
	return say(StageExec, "could not run %s: %s", l.program(), execReason(l, errno))
}

func inDir(l *Launch, path string) string {
	switch {
	case path == "":
		return os.DevNull
	case filepath.IsAbs(path):
		return path
	}
	return filepath.Join(l.Dir, path)
}

func openReason(errno syscall.Errno) string {
	if errno == unix.ENXIO {
		return errno.Error() + " (a FIFO that nobody reads, or a device that is not there)"
	}
	return errno.Error()
}

// execReason explains an exec error: the kernel says "no such file" also for a script whose interpreter is missing.
func execReason(l *Launch, errno syscall.Errno) string {
	switch errno {
	case unix.E2BIG:
		total, largest := 0, ""
		for _, list := range [][]string{l.Argv, l.Env} {
			for _, s := range list {
				total += len(s) + 1
				if len(s) > len(largest) {
					largest = s
				}
			}
		}
		return fmt.Sprintf("arguments and environment are too long: %d bytes, the longest of %d beginning with %q", total,
			len(largest), clip(largest))
	case unix.ENOEXEC:
		return "not a program of this machine and not a script beginning with #!"
	case unix.ENOENT, unix.EACCES, unix.ENOTDIR, unix.ELOOP:
		if interp := interpreter(l.program(), l.UID); interp != "" {
			return fmt.Sprintf("bad interpreter %s: %v", interp, errno)
		}
	case unix.EAGAIN:
		return errno.Error() + " (the user's process limit, RLIMIT_NPROC, is used up)"
	}
	return errno.Error()
}

// interpreter returns a script's #! program, or "" if it has none, or one that every user can run.
func interpreter(script string, uid uint32) string {
	f, err := rootfile.Readable(script, uid) // the user's choice: it may be a device
	if err != nil {
		return ""
	}
	head := make([]byte, shebangBytes)
	n, err := io.ReadFull(f, head)
	if cerr := f.Close(); cerr != nil || err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return ""
	}
	line, _, _ := bytes.Cut(head[:n], []byte("\n"))
	rest, ok := bytes.CutPrefix(line, []byte("#!"))
	if !ok {
		return ""
	}
	if bytes.HasSuffix(rest, []byte("\r")) {
		return fmt.Sprintf("%q (the script has DOS line ends)", strings.TrimSpace(string(rest))+"\r")
	}
	fields := strings.Fields(string(rest))
	if len(fields) == 0 {
		return `"" (nothing after #!)`
	}
	if fi, err := os.Stat(fields[0]); err == nil && !fi.IsDir() && fi.Mode()&0o111 == 0o111 {
		return ""
	}
	return fields[0]
}
