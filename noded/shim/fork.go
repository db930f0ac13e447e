//go:build linux && (amd64 || arm64)

package shim

// fork.go is what happens between fork and exec.
//
// The child shares gshim's memory until it execs (CLONE_VM|CLONE_VFORK: copying the page tables of a Go process costs
// three times the whole launch) and runs on the forking thread's stack while that thread sleeps in the kernel. Hence
// the rules for everything the child calls: no allocation, no stack growth (nosplit, checked by the linker), no write
// of a pointer, no lock, raw system calls only. childArgs has everything it needs.
//
// Unlike syscall.ForkExec this tells the Go runtime that the thread is in a system call. So a child that hangs before
// exec (a working directory or interpreter on a dead file server) blocks one thread, not the garbage collector and with
// it all of gshim. The child also joins v1 cgroups, opens its files with its user's rights and sets its limits, in that
// order, which ForkExec can't.

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

//go:linkname entersyscall runtime.entersyscall
func entersyscall()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()

func rawVfork(trap, a1, a2, a3 uintptr) (r1 uintptr)

const (
	cloneClearSighand = 0x100000000
	cloneIntoCgroup   = 0x200000000

	maxChdirErrno = 134 // errno values with a text for "couldn't chdir"

	sigSetMask  = 2
	sigSetBytes = 8
	maxSignal   = 64
)

// cloneArgs is struct clone_args of clone3(2).
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// cString is bytes for the child to write; p is nil for nothing.
type cString struct {
	p *byte
	n uintptr
}

// rlimitArg is one limit as prlimit64(2) takes it.
type rlimitArg struct {
	resource uintptr
	lim      syscall.Rlimit
}

// childArgs is all that the child reads, and where it writes its result. Plain fields hold all memory that it refers
// to, so that it stays alive and in place until spawn returns.
type childArgs struct {
	clone    cloneArgs
	useClone bool   // clone3 with CLONE_CLEAR_SIGHAND and CLONE_INTO_CGROUP is there (Linux 5.7)
	reset    uint64 // the signals to put at their default: bit N-1 is signal N
	tid      int32  // set by the kernel before the child runs; read it with childTID

	path       *byte
	argv, envv **byte

	joins []int32 // open tasks (v1) or cgroup.procs (v2) files; the child writes its entry into each

	setIdentity bool
	uid, gid    uintptr
	groups      []uint32 // in ascending order, as the kernel keeps them
	became      []uint32 // room for one more group than there should be
	umask       uintptr

	dir       *byte // nil: do not change
	fallback  *byte // "/tmp"
	chdirHead cString
	chdirTail cString
	reasons   *[maxChdirErrno]cString

	mounts       int32              // a mount namespace; -1: none
	confined     bool               // no program may give it rights
	passed       [PassedFiles]int32 // descriptors to be 0, 1 and 2; -1: opened by path; and 3; -1: none
	in, out, err *byte              // err nil: the same open file as out
	outFlags     uintptr
	terminal     bool // 0 becomes the controlling terminal

	limits   []rlimitArg
	setNice  bool
	nice     int
	cpus     []uint64 // affinity mask; empty: inherit
	memMode  uintptr  // memory policy; 0: inherit
	memNodes []uint64
	pid      *byte   // where the process's id is written, in decimal digits and a 0; nil: nowhere
	oomAdj   cString // for /proc/self/oom_score_adj; nil: inherit
	oomPath  *byte

	// Written by the child.
	stage int32
	index int32 // of joins, limits
	errno int32
	chdir int32         // why the directory could not be entered: the process runs in fallback; 0: it could
	born  unix.Timespec // since boot: its first moment

	forked unix.Timespec // since boot: just before
}

// childTID returns the child's pid as soon as it has one, also before spawn returns.
func (a *childArgs) childTID() int { return int(atomic.LoadInt32(&a.tid)) }

// spawn forks and execs. It returns the pid once the new program runs; on failure errno (from the fork itself, or
// from the step of the child that a.stage names: then the child is gone but not yet waited for, and pid is set).
func spawn(a *childArgs) (pid int, errno syscall.Errno) {
	atomic.StoreInt32(&a.tid, 0)
	a.stage, a.index, a.errno, a.chdir = 0, 0, 0, 0
	a.clone.exitSignal = uint64(unix.SIGCHLD)
	a.clone.flags |= unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_PARENT_SETTID
	a.clone.parentTID = uint64(uintptr(unsafe.Pointer(&a.tid)))
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &a.forked) // where it fails the times differ, and startTicks knows nothing
	runtime.LockOSThread()                                // the signal mask is the thread's
	r := blockAndFork(a)
	runtime.UnlockOSThread()
	runtime.KeepAlive(a)
	if r > ^uintptr(4095) {
		return 0, syscall.Errno(-r)
	}
	return int(r), syscall.Errno(a.errno)
}

// startTicks is field 22 of the child's /proc/PID/stat, its start in clock ticks since boot, as spawn has measured it.
// It is 0 if a tick passed during the fork, because either tick could be right then. Reading the file takes a tenth of
// a launch's time.
func (a *childArgs) startTicks() uint64 {
	const tick = uint64(10 * time.Millisecond) // USER_HZ, the unit of /proc, is 100 on every machine that Go runs on
	before, after := uint64(a.forked.Nano())/tick, uint64(a.born.Nano())/tick
	if before != after {
		return 0
	}
	return before
}

//go:nosplit
//go:norace
//go:nocheckptr
func blockAndFork(a *childArgs) uintptr {
	entersyscall()
	all, old := ^uint64(0), uint64(0)
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, sigSetMask, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&old)),
		sigSetBytes, 0, 0)
	r := fork(a)
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, sigSetMask, uintptr(unsafe.Pointer(&old)), 0, sigSetBytes, 0, 0)
	exitsyscall()
	return r
}

// fork returns in the parent only. The child must not touch the frames of this function's callers, so it never returns.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func fork(a *childArgs) uintptr {
	var r uintptr
	if a.useClone {
		r = rawVfork(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&a.clone)), unsafe.Sizeof(a.clone), 0)
	} else {
		r = rawVfork(unix.SYS_CLONE, uintptr(a.clone.flags&0xffffffff|a.clone.exitSignal), 0, uintptr(unsafe.Pointer(&a.tid)))
	}
	if r != 0 {
		return r
	}
	child(a)
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 127, 0, 0)
	}
}

// child prepares the process and execs; it returns only on failure, with a.stage, a.index and a.errno set. Its parts
// are functions, one after the other, because nothing here may grow the stack, and what the compiler adds for fuzzing
// takes some of it.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func child(a *childArgs) {
	syscall.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&a.born)), 0)
	if settle(a) && takeFiles(a) {
		becomeUser(a)
	}
}

// settle is what needs gshim's rights.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func settle(a *childArgs) bool {
	// 1. A session of its own, and every signal at its default.
	resetHandlers(a.reset)
	if _, _, e := syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0); e != 0 {
		fail(a, StageSession, 0, e)
		return false
	}
	// 2. Settings that need gshim's rights: cgroups, nice, the OOM killer's preference.
	self := [2]byte{'0', '\n'}
	for i, fd := range a.joins {
		if _, _, e := syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&self)), 2); e != 0 {
			fail(a, StageCgroup, i, e)
			return false
		}
	}
	if a.setNice {
		if _, _, e := syscall.RawSyscall(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, uintptr(a.nice)); e != 0 {
			fail(a, StageNice, 0, e)
			return false
		}
	}
	if len(a.cpus) != 0 {
		if _, _, e := syscall.RawSyscall(unix.SYS_SCHED_SETAFFINITY, 0, uintptr(len(a.cpus)*8),
			uintptr(unsafe.Pointer(unsafe.SliceData(a.cpus)))); e != 0 {
			fail(a, StageCPUs, 0, e)
			return false
		}
	}
	if a.memMode != 0 {
		if _, _, e := syscall.RawSyscall(unix.SYS_SET_MEMPOLICY, a.memMode,
			uintptr(unsafe.Pointer(unsafe.SliceData(a.memNodes))), uintptr(len(a.memNodes)*64+1)); e != 0 {
			fail(a, StageMemory, 0, e)
			return false
		}
	}
	if a.pid != nil {
		writePID(a.pid)
	}
	if a.oomAdj.p != nil {
		// An error is ignored: the job then has gshim's protection from the OOM killer.
		if fd, _, e := openat(a.oomPath, unix.O_WRONLY|unix.O_CLOEXEC, 0); e == 0 {
			syscall.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(a.oomAdj.p)), a.oomAdj.n)
			syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
		}
	}
	return true
}

// takeFiles opens the files, and enters the directory and the mounts.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func takeFiles(a *childArgs) bool {
	// 3. Files as the user. fsuid and fsgid decide about files; step 4 needs root's other rights.
	if a.setIdentity {
		if _, _, e := syscall.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(a.groups)),
			uintptr(unsafe.Pointer(unsafe.SliceData(a.groups))), 0); e != 0 {
			fail(a, StageIdentity, 0, e)
			return false
		}
		syscall.RawSyscall(unix.SYS_SETFSGID, a.gid, 0, 0)
		syscall.RawSyscall(unix.SYS_SETFSUID, a.uid, 0, 0)
	}
	syscall.RawSyscall(unix.SYS_UMASK, a.umask, 0, 0)
	var chdirErr syscall.Errno
	if !enterDir(a, &chdirErr) || !openFiles(a) {
		return false
	}
	if !enterMounts(a, &chdirErr) || !passFourth(a) {
		return false
	}
	if a.terminal {
		if _, _, e := syscall.RawSyscall(unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 0); e != 0 {
			fail(a, StageTerminal, 0, e)
			return false
		}
	}
	if chdirErr != 0 {
		a.chdir = int32(chdirErr)
		tellChdir(a, chdirErr)
	}
	return true
}

// becomeUser gives up all rights but the user's, and execs.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func becomeUser(a *childArgs) {
	// 4. Limits, then the user for good, then the program.
	for i := range a.limits {
		l := &a.limits[i]
		if _, _, e := syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, l.resource, uintptr(unsafe.Pointer(&l.lim)), 0, 0,
			0); e != 0 {
			fail(a, StageLimit, i, e)
			return
		}
	}
	if a.setIdentity {
		if _, _, e := syscall.RawSyscall(unix.SYS_SETRESGID, a.gid, a.gid, a.gid); e != 0 {
			fail(a, StageIdentity, 1, e)
			return
		}
		if _, _, e := syscall.RawSyscall(unix.SYS_SETRESUID, a.uid, a.uid, a.uid); e != 0 {
			fail(a, StageIdentity, 2, e)
			return
		}
		if !isWho(a) {
			fail(a, StageIdentity, 3, unix.EPERM)
			return
		}
	}
	none := uint64(0)
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, sigSetMask, uintptr(unsafe.Pointer(&none)), 0, sigSetBytes, 0, 0)
	_, _, e := syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(a.path)), uintptr(unsafe.Pointer(a.argv)),
		uintptr(unsafe.Pointer(a.envv)))
	fail(a, StageExec, 0, e)
}

// enterMounts enters the job's mount namespace, and its directory there: the same name may be another one.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func enterMounts(a *childArgs, why *syscall.Errno) bool {
	if a.mounts < 0 {
		return true
	}
	if _, _, e := syscall.RawSyscall(unix.SYS_SETNS, uintptr(a.mounts), unix.CLONE_NEWNS, 0); e != 0 {
		fail(a, StageMounts, 0, e)
		return false
	}
	if a.confined {
		if _, _, e := syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); e != 0 {
			fail(a, StageMounts, 0, e)
			return false
		}
	}
	return enterDir(a, why)
}

// passFourth makes the fourth file descriptor 3. No descriptor above 2 is of use any more, so that what was 3 may go.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func passFourth(a *childArgs) bool {
	if a.passed[3] < 0 {
		return true
	}
	_, _, e := syscall.RawSyscall(unix.SYS_DUP3, uintptr(a.passed[3]), 3, 0)
	if a.passed[3] == 3 {
		_, _, e = syscall.RawSyscall(unix.SYS_FCNTL, 3, unix.F_SETFD, 0)
	}
	if e != 0 {
		fail(a, StageStdin, 0, e)
	}
	return e == 0
}

// enterDir enters the job's directory, or its fallback with the reason in why.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func enterDir(a *childArgs, why *syscall.Errno) bool {
	if a.dir == nil {
		return true
	}
	if _, _, *why = syscall.RawSyscall(unix.SYS_CHDIR, uintptr(unsafe.Pointer(a.dir)), 0, 0); *why != 0 {
		if _, _, e := syscall.RawSyscall(unix.SYS_CHDIR, uintptr(unsafe.Pointer(a.fallback)), 0, 0); e != 0 {
			fail(a, StageDir, 0, e)
			return false
		}
	}
	return true
}

// isWho reports whether the kernel says of the process that it has exactly the ids that were asked for: some values
// mean "leave it as it is" to the calls that set them, which then answer that all is well.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func isWho(a *childArgs) bool {
	var have [3]uint32 // real, effective, saved
	at := unsafe.Pointer(&have)
	if _, _, e := syscall.RawSyscall(unix.SYS_GETRESUID, uintptr(at), uintptr(unsafe.Add(at, 4)),
		uintptr(unsafe.Add(at, 8))); e != 0 || !allAre(&have, a.uid) {
		return false
	}
	if _, _, e := syscall.RawSyscall(unix.SYS_GETRESGID, uintptr(at), uintptr(unsafe.Add(at, 4)),
		uintptr(unsafe.Add(at, 8))); e != 0 || !allAre(&have, a.gid) {
		return false
	}
	n, _, e := syscall.RawSyscall(unix.SYS_GETGROUPS, uintptr(len(a.became)),
		uintptr(unsafe.Pointer(unsafe.SliceData(a.became))), 0)
	if e != 0 || n != uintptr(len(a.groups)) {
		return false
	}
	for i := range a.groups {
		if a.became[i] != a.groups[i] {
			return false
		}
	}
	return true
}

//go:nosplit
//go:norace
//go:nocheckptr
func allAre(have *[3]uint32, id uintptr) bool {
	return id != uintptr(noID) && uintptr(have[0]) == id && uintptr(have[1]) == id && uintptr(have[2]) == id
}

// openFiles opens the job's files as 0, 1 and 2. O_NONBLOCK keeps the open of a FIFO from hanging; it is cleared
// afterwards.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func openFiles(a *childArgs) bool {
	const flags = unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	if e := openAs(a.passed[0], a.in, flags|unix.O_RDONLY, 0); e != 0 {
		fail(a, StageStdin, 0, e)
		return false
	}
	if e := openAs(a.passed[1], a.out, flags|a.outFlags, 1); e != 0 {
		fail(a, StageStdout, 0, e)
		return false
	}
	if a.err == nil && a.passed[2] < 0 {
		if _, _, e := syscall.RawSyscall(unix.SYS_DUP3, 1, 2, 0); e != 0 {
			fail(a, StageStderr, 0, e)
			return false
		}
		return true
	}
	if e := openAs(a.passed[2], a.err, flags|a.outFlags, 2); e != 0 {
		fail(a, StageStderr, 0, e)
		return false
	}
	return true
}

//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func openAs(passed int32, path *byte, flags uintptr, as uintptr) syscall.Errno {
	if passed >= 0 {
		_, _, e := syscall.RawSyscall(unix.SYS_DUP3, uintptr(passed), as, 0)
		return e
	}
	fd, _, e := openat(path, flags, 0o666)
	if e != 0 {
		return e
	}
	if _, _, e = syscall.RawSyscall(unix.SYS_FCNTL, fd, unix.F_SETFL, flags&unix.O_APPEND); e != 0 {
		return e
	}
	_, _, e = syscall.RawSyscall(unix.SYS_DUP3, fd, as, 0)
	return e
}

// pidDigits is room for any process id.
const pidDigits = 20

// writePID writes the process's id where its environment has room for it.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func writePID(at *byte) {
	pid, _, _ := syscall.RawSyscall(unix.SYS_GETPID, 0, 0, 0)
	n := uintptr(1)
	for p := pid; p >= 10; p /= 10 {
		n++
	}
	for i := n; i > 0; i-- {
		*(*byte)(unsafe.Add(unsafe.Pointer(at), i-1)) = byte('0' + pid%10)
		pid /= 10
	}
	*(*byte)(unsafe.Add(unsafe.Pointer(at), n)) = 0
}

//go:nosplit
//go:norace
//go:nocheckptr
func openat(path *byte, flags, mode uintptr) (fd, r2 uintptr, e syscall.Errno) {
	const cwd = ^uintptr(99) // AT_FDCWD, -100
	return syscall.RawSyscall6(unix.SYS_OPENAT, cwd, uintptr(unsafe.Pointer(path)), flags, mode, 0, 0)
}

// tellChdir writes Slurm's message about the directory to the job's stderr.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func tellChdir(a *childArgs, why syscall.Errno) {
	syscall.RawSyscall(unix.SYS_WRITE, 2, uintptr(unsafe.Pointer(a.chdirHead.p)), a.chdirHead.n)
	for i := range a.reasons {
		if uintptr(i) == uintptr(why) && a.reasons[i].p != nil {
			syscall.RawSyscall(unix.SYS_WRITE, 2, uintptr(unsafe.Pointer(a.reasons[i].p)), a.reasons[i].n)
		}
	}
	syscall.RawSyscall(unix.SYS_WRITE, 2, uintptr(unsafe.Pointer(a.chdirTail.p)), a.chdirTail.n)
}

// resetHandlers puts signals at their default.
//
//go:noinline
//go:nosplit
//go:norace
//go:nocheckptr
func resetHandlers(set uint64) {
	var dfl [5]uint64 // struct sigaction with SIG_DFL, for every architecture
	for s := uintptr(1); s <= maxSignal; s++ {
		if set&(1<<(s-1)) == 0 {
			continue
		}
		// SIGKILL and SIGSTOP give EINVAL, as they should.
		syscall.RawSyscall6(unix.SYS_RT_SIGACTION, s, uintptr(unsafe.Pointer(&dfl)), 0, sigSetBytes, 0, 0)
	}
}

//go:nosplit
//go:norace
//go:nocheckptr
func fail(a *childArgs, stage Stage, index int, e syscall.Errno) {
	a.stage, a.index, a.errno = int32(stage), int32(index), int32(e)
}
