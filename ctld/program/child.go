package program

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// child.go is the process that becomes a user, if it is not this one's, and then the program.
//
// The controller starts it as itself, from its own program file: until a child has executed its program, its parent
// stands still as a whole (Go forks with CLONE_VFORK), and that may not depend on a path, which can be on a file system
// that hangs, nor on a process that its user can stop.

// childName is the name by which a program knows that it is such a process.
const childName = "gbatch-program"

const (
	// cannotRun is the exit code of a program that can't be run, as shells have it.
	cannotRun = 127
	// whyFD is where the process says why it did not become the program. It is closed when it does.
	whyFD = 3
	// maxWhy bounds that, bytes.
	maxWhy = 4096
)

// childArgs gives the arguments of the process that runs a program as a user.
func childArgs(as *As, argv []string) []string {
	who := "-"
	if as.Change {
		groups := make([]string, len(as.Groups))
		for i, g := range as.Groups {
			groups[i] = strconv.FormatUint(uint64(g), 10)
		}
		who = fmt.Sprintf("%d:%d:%s", as.UID, as.GID, strings.Join(groups, ","))
	}
	return append([]string{childName, strconv.Itoa(os.Getpid()), who}, argv...)
}

// Main is for programs whose process may be one that runs a program of the controller's: it then becomes that program.
// Otherwise, handled is false.
func Main(args []string) (status int, handled bool) {
	if len(args) < 4 || args[0] != childName && args[0] != keeperName {
		return 0, false
	}
	unix.CloseOnExec(whyFD)
	if args[0] == keeperName {
		runtime.LockOSThread() // the program ends with the thread that starts it
		return keep(args), true
	}
	err := becomeProgram(args[1], args[2], args[3:])
	_, _ = unix.Write(whyFD, []byte(err.Error())) // nobody else is to be told
	return cannotRun, true
}

func becomeProgram(parent, who string, argv []string) error {
	runtime.LockOSThread() // the signal below is this thread's
	if who != "-" {
		if err := becomeUser(who); err != nil {
			return err
		}
	}
	// A change of the user has cleared it.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	if strconv.Itoa(os.Getppid()) != parent {
		return errors.New("the controller has ended")
	}
	return &os.PathError{Op: "exec", Path: argv[0], Err: syscall.Exec(argv[0], argv, os.Environ())}
}

func becomeUser(who string) error {
	var ids []int
	for text := range strings.FieldsFuncSeq(who, func(r rune) bool { return r == ':' || r == ',' }) {
		id, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return err
		}
		ids = append(ids, int(id))
	}
	if len(ids) < 2 {
		return fmt.Errorf("%q names no user and group", who)
	}
	uid, gid := ids[0], ids[1]
	if err := syscall.Setgroups(ids[2:]); err != nil {
		return os.NewSyscallError("setgroups", err)
	}
	if err := syscall.Setresgid(gid, gid, gid); err != nil {
		return os.NewSyscallError("setresgid", err)
	}
	if err := syscall.Setresuid(uid, uid, uid); err != nil {
		return os.NewSyscallError("setresuid", err)
	}
	if r, e, s := unix.Getresuid(); r != uid || e != uid || s != uid || uid != 0 && syscall.Setuid(0) == nil {
		return fmt.Errorf("this process is to be uid %d, and is %d, %d, %d", uid, r, e, s)
	}
	return nil
}
