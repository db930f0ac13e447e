package starter

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// The words by which the program gnoded is the starter, or a process that has it start something.
const (
	serveWord = "gnoded-starter"
	runWord   = "gnoded-run"
)

// socketEnv has the number of the descriptor that leads to the starter, for the program that gnoded executes anew.
const socketEnv = "GNODED_STARTER"

// Starter starts programs for a gnoded that is confined. A nil one starts them directly.
type Starter struct {
	binary string
	socket *os.File
}

// Confine gives up what gnoded does not need. It returns in a program that was executed anew, whose command line is the
// same; with nil if this process is not root's, and has nothing to give up. If the kernel can't do it, the error says
// so, and all is as it was.
func Confine() (*Starter, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if text := os.Getenv(socketEnv); text != "" {
		fd, err := strconv.Atoi(text)
		if err = errors.Join(err, os.Unsetenv(socketEnv)); err != nil {
			return nil, err
		}
		syscall.CloseOnExec(fd)
		return &Starter{binary: binary, socket: os.NewFile(uintptr(fd), "starter")}, nil
	}
	if os.Geteuid() != 0 {
		return nil, nil
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs := os.NewFile(uintptr(pair[1]), "gnoded")
	cmd := exec.Command(binary, serveWord)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it ends with gnoded, not before by Ctrl-C
	err = cmd.Start()
	_ = theirs.Close() // the starter has it
	if err != nil {
		return nil, errors.Join(err, unix.Close(pair[0]))
	}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // what is given up is this thread's, which ends with the goroutine, and the next program's
		err := cage()
		if err == nil {
			_, err = unix.FcntlInt(uintptr(pair[0]), unix.F_SETFD, 0)
		}
		if err == nil {
			env := append(os.Environ(), fmt.Sprintf("%s=%d", socketEnv, pair[0]))
			err = os.NewSyscallError("execve", syscall.Exec(binary, os.Args, env))
		}
		failed <- err
	}()
	return nil, errors.Join(<-failed, unix.Close(pair[0])) // the starter ends
}

// Wrap has the starter start the program of a command that has not begun: with its files, arguments, environment and
// directory, in a process group of its own. The command's process ends as the program does; if it is killed, the
// program and its group are.
func (s *Starter) Wrap(cmd *exec.Cmd) {
	if s == nil || cmd.Err != nil {
		return
	}
	session := "group"
	if a := cmd.SysProcAttr; a != nil && a.Setsid {
		session = "session"
	}
	cmd.Args = append([]string{s.binary, runWord, session, cmd.Path}, cmd.Args...)
	cmd.Path = s.binary
	cmd.ExtraFiles = []*os.File{s.socket}
}
