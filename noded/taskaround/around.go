//go:build linux && (amd64 || arm64)

package taskaround

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Word is the first argument that makes gshim's program run this one. The path of TaskEpilog, that of --task-epilog,
// the exit code if the task can't be run, and the task's arguments follow.
const Word = "task-around"

// PassOn is the signal whose value is one to pass on.
const PassOn = unix.Signal(41)

const (
	siteLimit = 5 * time.Second // for TaskEpilog
	siQueue   = -1              // a signal's code: sent by sigqueue
)

// Is reports whether a process is one around its task, and takes signals to pass on: it has
// that name, and blocks that signal. Neither the process's memory, such as its arguments, nor its program's file is
// looked at: that can take as long as a file system of its user hangs.
func Is(pid int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil || strings.TrimSpace(string(name)) != Word {
		return false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(status), "\nSigBlk:\t")
	mask, _, _ := strings.Cut(rest, "\n")
	bits, perr := strconv.ParseUint(mask, 16, 64)
	return err == nil && perr == nil && bits&(1<<(PassOn-1)) != 0
}

// Main is the program. It returns the exit status; a task that a signal has ended ends it by the same.
func Main(args []string, stderr io.Writer) int {
	if len(args) < 4 {
		_, _ = fmt.Fprintln(stderr, "gshim "+Word+": no program") // the exit status says it too
		return 2
	}
	runtime.LockOSThread()
	var set, old unix.Sigset_t
	set.Val[0] = 1 << (PassOn - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, &old); err != nil {
		_, _ = fmt.Fprintln(stderr, stepdError+err.Error()) // as above
		return 1
	}
	if old.Val[0]&set.Val[0] == 0 {
		err := syscall.Exec("/proc/self/exe", os.Args, os.Environ())
		_, _ = fmt.Fprintln(stderr, stepdError+err.Error()) // as above
		return 1
	}
	_ = os.WriteFile("/proc/self/comm", []byte(Word), 0) // gshim knows it by this name; without it, tasks get no signals
	// Not ignored: the task would inherit that.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1,
		unix.SIGUSR2, unix.SIGALRM)
	t := &task{stderr: stderr, set: set}
	code, sig := 0, unix.Signal(0)
	if args[2] != "" {
		code, _ = strconv.Atoi(args[2]) // the shell's own number
	} else {
		code, sig = t.run(args[3:])
	}
	_ = os.Setenv("SLURM_SCRIPT_CONTEXT", "epilog_task") // a valid name; the task has ended
	t.epilog("TaskEpilog", args[0], siteLimit)
	t.epilog("--task-epilog", args[1], 0)
	if sig != 0 {
		t.dieBy(sig)
		code = 128 + int(sig)
	}
	return code
}

const stepdError = "slurmstepd: error: "

type task struct {
	stderr io.Writer
	set    unix.Sigset_t
}

// start starts a program with no signal blocked.
func (t *task) start(path string, argv []string, group bool) (*os.Process, error) {
	var none unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &none, nil); err != nil {
		return nil, err
	}
	p, err := os.StartProcess(path, argv, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys: &syscall.SysProcAttr{Setpgid: group}})
	return p, errors.Join(err, unix.PthreadSigmask(unix.SIG_BLOCK, &t.set, nil))
}

// run runs the task, and gives its end.
func (t *task) run(argv []string) (code int, sig unix.Signal) {
	fd, err := unix.Signalfd(-1, &t.set, unix.SFD_CLOEXEC)
	if err != nil {
		_, _ = fmt.Fprintln(t.stderr, stepdError+os.NewSyscallError("signalfd", err).Error()) // the exit status says it too
		return 1, 0
	}
	path := argv[0]
	if !strings.Contains(path, "/") {
		if path, err = exec.LookPath(path); err != nil {
			err = unix.ENOENT
		}
	}
	var p *os.Process
	if err == nil {
		p, err = t.start(path, argv, false)
	}
	if err != nil {
		no := unix.ENOENT
		_ = errors.As(err, &no) // else that stays
		why := no.Error()
		why = strings.ToUpper(why[:1]) + why[1:]
		_, _ = fmt.Fprintf(t.stderr, "%sexecve(): %s: %s\n", stepdError, argv[0], why) // as above
		return int(no) & 0xff, 0
	}
	go passOn(fd, p) // it ends with this process
	return endOf(p.Wait())
}

// passOn gives a task the signals that came for it alone. When it has ended, they are dropped.
func passOn(fd int, p *os.Process) {
	var info unix.SignalfdSiginfo
	b := (*[unsafe.Sizeof(info)]byte)(unsafe.Pointer(&info))[:]
	for {
		switch n, err := unix.Read(fd, b); {
		case err == unix.EINTR:
		case err != nil || n != len(b):
			return
		case info.Code == siQueue:
			_ = p.Signal(unix.Signal(info.Int)) // it has ended
		}
	}
}

func endOf(st *os.ProcessState, err error) (code int, sig unix.Signal) {
	if err != nil {
		return 1, 0
	}
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 0, ws.Signal()
	}
	return st.ExitCode(), 0
}

// epilog runs an epilog, and kills it after a limit; 0: there is none. A status is told as wait(2) has it, as in Slurm,
// which calls each of the two by the other's name.
func (t *task) epilog(name, path string, limit time.Duration) {
	if path == "" {
		return
	}
	status := func() int {
		p, err := t.start(path, []string{path}, limit > 0)
		if errors.Is(err, unix.ENOEXEC) { // a script that does not say whose
			p, err = t.start("/bin/sh", []string{"/bin/sh", path}, limit > 0)
		}
		if err != nil {
			_, _ = fmt.Fprintln(t.stderr, stepdError+err.Error()) // it is told below too
			if errors.Is(err, os.ErrNotExist) {
				return 127 << 8
			}
			return 126 << 8
		}
		if limit > 0 {
			over, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			stop := context.AfterFunc(over, func() {
				if over.Err() == context.DeadlineExceeded {
					_ = unix.Kill(-p.Pid, unix.SIGKILL) // it has ended
				}
			})
			defer stop()
		}
		code, sig := endOf(p.Wait())
		if sig != 0 {
			return int(sig)
		}
		return code << 8
	}()
	if status != 0 {
		_, _ = fmt.Fprintf(t.stderr, "%s%s failed status=%d\n", stepdError, name, status) // there is no more to do about it
	}
}

// dieBy ends this process by a signal, without a core of its own. It returns if the signal can't do that.
func (t *task) dieBy(sig unix.Signal) {
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // the task's core may be overwritten
	var byDefault [4]uint64                              // the kernel's sigaction: no handler
	_, _, no := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	if no != 0 && sig != unix.SIGKILL {
		return
	}
	var none unix.Sigset_t
	if unix.PthreadSigmask(unix.SIG_SETMASK, &none, nil) == nil {
		_ = unix.Kill(os.Getpid(), sig) // the exit status says it too
		time.Sleep(time.Second)         // it may come to another thread
	}
}
