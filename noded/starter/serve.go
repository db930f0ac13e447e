package starter

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// maxOrder bounds an order, bytes: the kernel bounds a message too.
	maxOrder = 160 << 10
	// files come with an order: what the program has as 0, 1 and 2, and the line on which its end is told.
	files = 4
	// socketFD is the socket's descriptor in the starter and in processes that ask it.
	socketFD = 3
	// notStarted is the exit code of a command whose program could not be started.
	notStarted = 127
)

// order is what is to be started.
type order struct {
	Path    string
	Args    []string
	Env     []string
	Dir     string
	Session bool
}

// Main is the program gnoded as the starter, or as a process that asks it. handled is false if it is neither.
func Main(args []string) (status int, handled bool) {
	switch {
	case len(args) == 2 && args[1] == serveWord:
		serve(os.NewFile(socketFD, "gnoded"))
		return 0, true
	case len(args) >= 5 && args[1] == runWord:
		return run(args[2] == "session", args[3], args[4:]), true
	}
	return 0, false
}

// run asks the starter and ends as the program does.
func run(session bool, path string, args []string) int {
	fail := func(err error) int {
		fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
		return notStarted
	}
	dir, err := os.Getwd()
	if err != nil {
		return fail(err)
	}
	text, err := json.Marshal(&order{Path: path, Args: args, Env: os.Environ(), Dir: dir, Session: session})
	if err == nil && len(text) > maxOrder {
		err = fmt.Errorf("its arguments and environment have %d bytes, and %d are possible", len(text), maxOrder)
	}
	if err != nil {
		return fail(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Sendmsg(socketFD, text, unix.UnixRights(0, 1, 2, pair[1]), nil, unix.MSG_NOSIGNAL)
	}
	if err != nil {
		return fail(fmt.Errorf("gnoded's starter does not answer; restart gnoded: %w", err))
	}
	_ = unix.Close(pair[1]) // the starter has it
	line := os.NewFile(uintptr(pair[0]), "line")
	answer := make([]byte, 1<<10)
	n, err := line.Read(answer)
	word, rest, _ := strings.Cut(string(answer[:max(n, 0)]), " ")
	code, bad := strconv.Atoi(rest)
	switch {
	case word == "error":
		return fail(errors.New(rest))
	case err != nil || bad != nil:
		return fail(errors.New("gnoded's starter has ended"))
	case word == "signal":
		_ = unix.Kill(os.Getpid(), unix.Signal(code)) // for whoever waits for this process
		return 128 + code
	}
	return code
}

// serve starts programs until gnoded has ended.
func serve(socket *os.File) {
	syscall.CloseOnExec(socketFD)
	buf, oob := make([]byte, maxOrder), make([]byte, unix.CmsgSpace(4*files))
	for {
		n, oobn, _, _, err := unix.Recvmsg(int(socket.Fd()), buf, oob, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		var fds []int
		if msgs, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(msgs) == 1 {
			fds, _ = unix.ParseUnixRights(&msgs[0])
		}
		var with []*os.File
		for _, fd := range fds {
			with = append(with, os.NewFile(uintptr(fd), "file"))
		}
		var o order
		if err := json.Unmarshal(buf[:n], &o); err != nil || len(with) != files {
			for _, f := range with {
				_ = f.Close() // nothing is started
			}
			continue
		}
		go start(&o, with) // ends with the program
	}
}

// start starts one program and tells of its end on its line. If whoever asked has gone, the program's group is killed.
func start(o *order, with []*os.File) {
	line := with[files-1]
	defer line.Close() //nolint:errcheck // it was told
	cmd := &exec.Cmd{Path: o.Path, Args: o.Args, Env: o.Env, Dir: o.Dir, Stdin: with[0], Stdout: with[1], Stderr: with[2],
		SysProcAttr: &syscall.SysProcAttr{Setpgid: !o.Session, Setsid: o.Session}}
	err := cmd.Start()
	for _, f := range with[:files-1] {
		_ = f.Close() // the program has them
	}
	if err != nil {
		_, _ = fmt.Fprintf(line, "error %v", err) // to whom nobody hears it nothing is lost
		return
	}
	var mu sync.Mutex
	over := false
	go func() {
		_, _ = line.Read(make([]byte, 1)) // nothing is ever said: they have gone, or all is over
		mu.Lock()
		defer mu.Unlock()
		if !over {
			_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // it may be ending
		}
	}()
	_ = cmd.Wait() // ProcessState has it
	mu.Lock()
	over = true
	mu.Unlock()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		_, _ = fmt.Fprintf(line, "signal %d", int(ws.Signal())) // as above
		return
	}
	_, _ = fmt.Fprintf(line, "exit %d", cmd.ProcessState.ExitCode()) // as above
}
