package shim

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The limits of one order. They bound the memory that a client, always of gshim's own user, can make the server use.
const (
	MaxArgs        = 65536   // arguments, and likewise environment variables
	MaxStringBytes = 1 << 20 // one string; the kernel's own limit for an argument is 128 KiB
	MaxPathBytes   = 4096    // a path; the kernel's PATH_MAX
	MaxGroups      = 65536   // the kernel's NGROUPS_MAX
	MaxCgroupDirs  = 16
	MaxLimits      = 10 // those that Slurm passes on, RLIMIT_CPU to RLIMIT_AS; not those of real-time priorities
	MaxCPUs        = 8192
	maxNotes       = 17 // one of each limit, and one of the directory; journals may have those of other limits
	MaxAckKeys     = 65536

	PassedFiles = 5 // files that come with an order

	// ToldFile is the one of them that gshim keeps. When the process has ended, and its end is in the journal, gshim
	// writes a line of an EndWord there, and closes it.
	ToldFile = 4

	maxEntries = 65536 // launches that run or wait for an Ack
)

// Key identifies a launch for ever: the job, its attempt, the step, and the task's rank in the step. Slurm's special
// steps are negative (batch is -5).
type Key struct {
	JobID   uint32
	Attempt uint32
	Step    int32
	Task    int32
}

func (k Key) String() string {
	if k.Task != 0 {
		return fmt.Sprintf("job %d (attempt %d, step %d, task %d)", k.JobID, k.Attempt, k.Step, k.Task)
	}
	return fmt.Sprintf("job %d (attempt %d, step %d)", k.JobID, k.Attempt, k.Step)
}

// Unlimited is RLIM_INFINITY, the value of a Limit that is no limit.
const Unlimited = ^uint64(0)

// Limit is one resource limit (getrlimit(2)): Resource is RLIMIT_..., Soft and Hard in the resource's own unit.
type Limit struct {
	Resource int
	Soft     uint64
	Hard     uint64
	Raise    bool // above gshim's own hard limit, where the kernel lets it
}

// Cgroup names the directories in which the process starts. All are absolute paths; both parts may be empty.
type Cgroup struct {
	V1 []string // one directory per v1 hierarchy, each with a tasks file
	V2 string   // a cgroup2 directory
}

func (c Cgroup) empty() bool { return c.V2 == "" && len(c.V1) == 0 }

// Launch is the order to start one process. The process leads a new session, and has a terminal only if the order gives
// one. All signals are at their defaults, and none is blocked.
type Launch struct {
	Key  Key
	Path string   // what is executed, absolute; "" means Argv[0]
	Argv []string // at least one
	Env  []string // NAME=value, complete: nothing of gshim's own environment is passed on

	Dir    string // absolute; "" means /
	UID    uint32
	GID    uint32
	Groups []uint32 // supplementary; an unprivileged gshim keeps its own
	Umask  uint32   // 0 to 0777

	Stdin  string // "" means /dev/null; a relative path is taken from Dir
	Stdout string // likewise; created with 0666 less the umask
	Stderr string // equal to Stdout: one open file for both
	Append bool   // keep what the output files hold; they are written with O_APPEND in any case

	// Passed are open files to be the process's 0, 1 and 2 in place of Stdin, Stdout and Stderr; nil ones are opened by
	// those paths. A fourth one is its 3, a fifth one gshim's own (ToldFile). They stay the caller's.
	Passed [PassedFiles]*os.File

	// Limits are set before the first instruction, lowered to gshim's own hard limits; RLIMIT_NOFILE otherwise 1024
	// (soft).
	Limits []Limit
	Cgroup Cgroup
	Nice   int   // -20 to 19, absolute; below gshim's own only as root
	CPUs   []int // pin to these by sched_setaffinity; nil inherits (a cpuset in Cgroup narrows either)
	Mem    MemPolicy
	PIDVar string // a variable that is set to the process's id in its own environment; "": none

	// Mounts is the file of a mount namespace that the process enters when its files are open; "": gshim's own. Its
	// directory is entered there.
	Mounts string

	Terminal bool // Passed[0] is a terminal, and becomes the session's controlling one

	// Confined says that neither the process nor its children ever get rights by running a program (no_new_privs): files
	// in Mounts are not the node's, and a set-uid program of the node would believe them.
	Confined bool

	AsRoot bool // it is meant to have root's ids: a program of the configuration, or a job of root's own
}

// MemPolicy says from which memory nodes a process gets its memory: set_mempolicy(2). Mode 0 leaves the default.
type MemPolicy struct {
	Mode  int   // MPOL_PREFERRED (1), MPOL_BIND (2), MPOL_INTERLEAVE (3), MPOL_LOCAL (4)
	Nodes []int // of the machine
}

// The modes of a MemPolicy, the kernel's numbers.
const (
	MemPreferred  = 1
	MemBind       = 2
	MemInterleave = 3
	MemLocal      = 4
	maxMemMode    = 4
	maxMemNode    = 1023
)

// program is the path that is executed.
func (l *Launch) program() string {
	if l.Path != "" {
		return l.Path
	}
	return l.Argv[0]
}

// Check returns the first fault of an order that can never work. The client calls it before sending, and so does the
// server.
func (l *Launch) Check() error {
	switch {
	case len(l.Argv) == 0:
		return fmt.Errorf("launch %v: no command given", l.Key)
	case len(l.Argv) > MaxArgs || len(l.Env) > MaxArgs:
		return fmt.Errorf("launch %v: %d arguments and %d environment variables, at most %d of each can be passed",
			l.Key, len(l.Argv), len(l.Env), MaxArgs)
	case !filepath.IsAbs(l.program()):
		return fmt.Errorf("launch %v: the program %q is not an absolute path", l.Key, l.program())
	case l.Dir != "" && !filepath.IsAbs(l.Dir):
		return fmt.Errorf("launch %v: the working directory %q is not an absolute path", l.Key, l.Dir)
	case l.Mounts != "" && !filepath.IsAbs(l.Mounts):
		return fmt.Errorf("launch %v: the mount namespace %q is not an absolute path", l.Key, l.Mounts)
	case l.Confined && l.Mounts == "":
		return fmt.Errorf("launch %v: it is to be confined to no mount namespace", l.Key)
	case len(l.Groups) > MaxGroups:
		return fmt.Errorf("launch %v: %d supplementary groups, the kernel takes %d", l.Key, len(l.Groups), MaxGroups)
	case l.Umask > 0o777:
		return fmt.Errorf("launch %v: umask %#o is not between 0 and 0777", l.Key, l.Umask)
	case l.Nice < -20 || l.Nice > 19:
		return fmt.Errorf("launch %v: nice value %d is not between -20 and 19", l.Key, l.Nice)
	case len(l.Limits) > MaxLimits:
		return fmt.Errorf("launch %v: %d resource limits, a process can be given %d", l.Key, len(l.Limits), MaxLimits)
	case len(l.CPUs) > MaxCPUs:
		return fmt.Errorf("launch %v: %d CPUs to pin to, at most %d", l.Key, len(l.CPUs), MaxCPUs)
	}
	if err := l.checkIDs(); err != nil {
		return err
	}
	for _, r := range l.Limits {
		if r.Resource < 0 || r.Resource >= MaxLimits {
			return fmt.Errorf("launch %v: resource limit number %d is not between 0 and %d", l.Key, r.Resource, MaxLimits-1)
		}
	}
	for _, c := range l.CPUs {
		if c < 0 || c >= MaxCPUs {
			return fmt.Errorf("launch %v: CPU %d is not between 0 and %d", l.Key, c, MaxCPUs-1)
		}
	}
	if l.Mem.Mode < 0 || l.Mem.Mode > maxMemMode || len(l.Mem.Nodes) > maxMemNode {
		return fmt.Errorf("launch %v: memory policy %d over %d nodes is none that this program knows", l.Key, l.Mem.Mode,
			len(l.Mem.Nodes))
	}
	for _, n := range l.Mem.Nodes {
		if n < 0 || n > maxMemNode {
			return fmt.Errorf("launch %v: memory node %d is not between 0 and %d", l.Key, n, maxMemNode)
		}
	}
	if l.Key.Task < 0 {
		return fmt.Errorf("launch %v: a negative task", l.Key)
	}
	if err := l.Cgroup.check(); err != nil {
		return fmt.Errorf("launch %v: %w", l.Key, err)
	}
	return l.checkStrings()
}

// noID is no user's and no group's: setresuid(2) takes it for "leave it as it is".
const noID = ^uint32(0)

// checkIDs refuses ids that nobody has, and root's for what is not root's.
func (l *Launch) checkIDs() error {
	switch {
	case l.UID == noID || l.GID == noID || slices.Contains(l.Groups, noID):
		return fmt.Errorf("launch %v: %d is the id of no user and of no group", l.Key, noID)
	case (!l.AsRoot || l.UID != 0) && (l.UID == 0 || l.GID == 0 || slices.Contains(l.Groups, 0)):
		return fmt.Errorf("launch %v: user id %d with group id %d and groups %v: 0 is root's, and this is not root's", l.Key,
			l.UID, l.GID, l.Groups[:min(len(l.Groups), 16)])
	}
	return nil
}

func (c Cgroup) check() error {
	if len(c.V1) > MaxCgroupDirs {
		return fmt.Errorf("%d cgroup directories, at most %d", len(c.V1), MaxCgroupDirs)
	}
	for _, d := range c.V1 {
		if !filepath.IsAbs(d) {
			return fmt.Errorf("cgroup directory %q is not an absolute path", d)
		}
	}
	if c.V2 != "" && !filepath.IsAbs(c.V2) {
		return fmt.Errorf("cgroup directory %q is not an absolute path", c.V2)
	}
	return nil
}

// checkStrings refuses NUL bytes, which C strings cannot hold, and strings beyond the frame's limits.
func (l *Launch) checkStrings() error {
	total := 0
	one := func(what, s string, max int) error {
		total += len(s) + 1
		if len(s) > max {
			return fmt.Errorf("launch %v: %s has %d bytes, at most %d can be passed", l.Key, what, len(s), max)
		}
		if strings.IndexByte(s, 0) >= 0 {
			return fmt.Errorf("launch %v: %s %q contains a NUL byte", l.Key, what, clip(s))
		}
		return nil
	}
	named := []struct{ what, s string }{{"the program", l.Path}, {"the working directory", l.Dir},
		{"the stdin file", l.Stdin},
		{"the stdout file", l.Stdout}, {"the stderr file", l.Stderr}, {"the cgroup directory", l.Cgroup.V2},
		{"the variable of the process id", l.PIDVar}, {"the mount namespace", l.Mounts}}
	for _, n := range named {
		if err := one(n.what, n.s, MaxPathBytes); err != nil {
			return err
		}
	}
	for _, list := range []struct {
		what string
		max  int
		list []string
	}{{"an argument", MaxStringBytes, l.Argv}, {"an environment variable", MaxStringBytes, l.Env},
		{"a cgroup directory", MaxPathBytes, l.Cgroup.V1}} {
		for _, s := range list.list {
			if err := one(list.what, s, list.max); err != nil {
				return err
			}
		}
	}
	if total > maxLaunchBytes {
		return fmt.Errorf("launch %v: arguments and environment have %d bytes, at most %d can be passed", l.Key, total,
			maxLaunchBytes)
	}
	return nil
}

func clip(s string) string {
	const max = 60
	if len(s) > max {
		return s[:max] + "..."
	}
	return s
}

// Lease says how long processes may run without another message from gnoded, and which program is asked at its end
// whether the controllers give the node up (lease.go). Times are of the clock of Uptime.
type Lease struct {
	Until   time.Duration // 0: for ever
	Heard   time.Duration // when the node last said something that a controller has acknowledged
	Ask     time.Duration // how long before Until the verdict is asked for
	Verdict []string      // the program, absolute, and its arguments: it prints one line
}

// MaxVerdictArgs bounds Lease.Verdict.
const MaxVerdictArgs = 64

// Uptime is the clock of leases: the time since the machine's boot, including suspensions. Nobody can set it.
func Uptime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // every Linux since 2.6.39 has it
	return time.Duration(ts.Nano())
}

// Scope says which processes a signal reaches.
type Scope uint8

// The values are on the wire: append only.
const (
	Leader  Scope = 1 // the process that was launched
	Group   Scope = 2 // its process group: what a terminal's interrupt would reach
	Tree    Scope = 3 // everything in its cgroup; without one: its session, its descendants and what they left behind
	scopeNo Scope = 4
)

func (s Scope) String() string {
	switch s {
	case Leader:
		return "leader"
	case Group:
		return "process group"
	case Tree:
		return "process tree"
	}
	return fmt.Sprintf("scope %d", uint8(s))
}

// EventKind is what an Event reports. The values are on the wire and in journals: append only.
type EventKind uint8

// The kinds.
const (
	Launched     EventKind = 1 // the program runs (exec has succeeded)
	LaunchFailed EventKind = 2 // it never ran; Text says why, naming the path or the value. Wants an Ack
	Exited       EventKind = 3 // it has ended. Wants an Ack
	Orphaned     EventKind = 4 // it runs, but an earlier gshim died: its exit status will be unknown
	eventNo      EventKind = 5
)

func (k EventKind) String() string {
	switch k {
	case Launched:
		return "launched"
	case LaunchFailed:
		return "launch failed"
	case Exited:
		return "exited"
	case Orphaned:
		return "orphaned"
	}
	return fmt.Sprintf("event %d", uint8(k))
}

// Event is the newest news of one launch. Fields that a kind does not mention are as they were at Launched.
type Event struct {
	Kind       EventKind
	Key        Key
	PID        int       // 0 for LaunchFailed
	Started    time.Time // wall clock
	StartTicks uint64    // field 22 of /proc/PID/stat: with PID, the process's identity until the next boot; 0 unknown

	Text  string   // LaunchFailed, Exited with Unknown: a sentence without the key
	Notes []string // Launched, Exited: what could not be done exactly, such as a limit that had to be lowered
	Stage Stage    // LaunchFailed: where it failed
	Errno syscall.Errno

	Code     int           // Exited: 0 to 255; 0 if ended by a signal
	Signal   int           // Exited: the signal that ended it, or 0
	Core     bool          // Exited: it dumped core
	Unknown  bool          // Exited: how it ended is not known; Code and Signal are 0
	UserCPU  time.Duration // Exited: of the process and its waited-for descendants
	SysCPU   time.Duration
	MaxRSSKB int64     // Exited: KiB, of the largest of them; never less than gshim's own few MiB
	ReadB    int64     // Exited: bytes that they had read from block devices, 0 from journals from before protocol 2
	WriteB   int64     // likewise written
	Faults   int64     // likewise page faults that had to read from a disk
	Ended    time.Time // Exited, LaunchFailed: wall clock
}

// Done reports whether the event is the last one of its launch and waits for an Ack.
func (e *Event) Done() bool { return e.Kind == Exited || e.Kind == LaunchFailed }

// cutWords begin the Text of a launch that was killed, or not started, because its node was given up.
const cutWords = "the node was cut off from the controllers for "

// unseenWords are the Text of a process that was gone when the next gshim came.
const unseenWords = "gshim died and the process ended before the next gshim was there"

// Unseen reports whether the launch ended between two gshims: by itself, or because all of the node was killed.
func (e *Event) Unseen() bool { return e.Kind == Exited && e.Unknown && e.Text == unseenWords }

// CutOff reports whether the launch was killed because the controllers give the node up.
func (e *Event) CutOff() bool {
	return e.Kind == Exited && e.Unknown && strings.HasPrefix(e.Text, cutWords)
}

// Stage is the part of a launch that failed, for callers that map failures to Slurm's exit codes.
type Stage uint8

// The values are on the wire and in journals: append only.
const (
	StageNone     Stage = 0
	StageOrder    Stage = 1 // the order itself: limits of gshim, other user without root
	StageJournal  Stage = 2
	StageCgroup   Stage = 3
	StageFork     Stage = 4
	StageSession  Stage = 5
	StageIdentity Stage = 6 // user, groups
	StageDir      Stage = 7 // neither the directory nor /tmp
	StageStdin    Stage = 8
	StageStdout   Stage = 9
	StageStderr   Stage = 10
	StageLimit    Stage = 11
	StageNice     Stage = 12
	StageCPUs     Stage = 13
	StageExec     Stage = 14
	StageMemory   Stage = 15 // memory policy
	StageTerminal Stage = 16 // controlling terminal
	StageMounts   Stage = 17 // mount namespace
	stageNo       Stage = 18
)
