package program

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// keeper.go is the process between the controller and a program of which nothing may survive its end. What the program
// has started becomes the keeper's when its own parent ends, in whatever session it is (PR_SET_CHILD_SUBREAPER): so the
// keeper knows all of it, and kills it. It stays the controller's user, to whom the program's user can do nothing.
//
// That needs no control groups: gctld's are closed to it where systemd starts it (ProtectControlGroups=).

// keeperName is the name by which a program knows that it is such a process.
const keeperName = "gbatch-program-keeper"

// clearWait is how long what a program has started may take to end when it is killed. It is less than grace: then the
// keeper is killed.
const clearWait = grace * 3 / 4

// keep runs a program for the controller, and gives the exit code.
func keep(args []string) int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return cannot(os.NewSyscallError("prctl", err))
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGTERM) // from the controller, or as it has ended
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0); err != nil {
		return cannot(os.NewSyscallError("prctl", err))
	}
	if strconv.Itoa(os.Getppid()) != args[1] {
		return cannot(errors.New("the controller has ended"))
	}
	why := os.NewFile(whyFD, "why")
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{childName, strconv.Itoa(os.Getpid())}, args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{why}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // of this thread, which is the process's first
	if err := cmd.Start(); err != nil {
		return cannot(err)
	}
	_ = why.Close() // it is the child's
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
		clearAll()
	case <-stop:
		_ = cmd.Process.Kill()      // or it has ended
		for waits := true; waits; { // it may hang in the kernel: the others end meanwhile
			select {
			case <-ended:
				waits = false
			case <-time.After(10 * time.Millisecond):
				for _, pid := range children() {
					_ = unix.Kill(pid, unix.SIGKILL) // one that can't be killed is tried again
				}
			}
		}
		clearAll()
	}
	st, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if st.Signaled() {
		return 128 + int(st.Signal()) // as shells say it: of one sent to itself, Go's runtime would print its stacks
	}
	return st.ExitStatus()
}

func cannot(err error) int {
	_, _ = unix.Write(whyFD, []byte(err.Error())) // nobody else is to be told
	return cannotRun
}

// clearAll kills every process that this one has, and those that come to it by that, until there is none.
func clearAll() {
	for until := time.Now().Add(clearWait); ; time.Sleep(time.Millisecond) {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if errors.Is(err, unix.ECHILD) {
				return
			}
			if pid <= 0 && !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if time.Now().After(until) {
			return
		}
		for _, pid := range children() {
			_ = unix.Kill(pid, unix.SIGKILL) // one that can't be killed is tried again
		}
	}
}

// children gives the processes that this one has.
func children() (out []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", os.Getpid())) // the pattern is well formed
	for _, file := range files {
		text, _ := os.ReadFile(file) // a thread that has ended has none
		for _, word := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil {
				out = append(out, pid)
			}
		}
	}
	return out
}
