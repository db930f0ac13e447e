package greshelper

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Word is the first argument that makes gshim's program run a keeper.
const Word = "gres-helper"

// StopSignal tells a keeper to end its helper: one of the real-time signals, so that it is none that jobs use.
const StopSignal = syscall.Signal(50)

// Going is how long a keeper takes at most to end its helper.
const Going = 2 * stopStep

// stopStep is the time between the end of a helper's input, SIGTERM and SIGKILL.
const stopStep = time.Second

// ignored are the signals that users and the cluster send to all processes of a job. They are for the job's own
// programs: it may need its GPUs to save its work. The helper inherits that.
var ignored = []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
	unix.SIGALRM, unix.SIGXCPU, unix.SIGPIPE}

// Argv gives a keeper's arguments.
func Argv(gshim string, limitS int64, program string) []string {
	return []string{gshim, Word, strconv.FormatInt(limitS, 10), program}
}

// Main keeps a helper, and gives the exit code. It reads the line for the helper from its input, and writes its word
// to its output.
func Main(args []string, in io.Reader, out io.WriteCloser) int {
	runtime.LockOSThread() // the helper ends with this thread
	limitS, err := int64(0), errors.New("two arguments are wanted")
	if len(args) == 2 {
		limitS, err = strconv.ParseInt(args[0], 10, 64)
	}
	if err != nil {
		return 2
	}
	signal.Ignore(ignored...)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, StopSignal)
	start, err := io.ReadAll(io.LimitReader(in, maxStart))
	k := &keeper{}
	if err == nil {
		err = k.begin(args[1], start)
	}
	w := &word{}
	if err == nil {
		w.Answer, err = k.ask(time.Duration(limitS)*time.Second, stop)
	}
	if err != nil {
		w.Fault = err.Error()
		k.kill()
		k.listen()
	}
	w.Said = k.said.text()
	err = json.NewEncoder(out).Encode(w)
	if err = errors.Join(err, out.Close()); w.Fault != "" || err != nil {
		k.kill() // nobody waits for it any more
		return 1
	}
	return k.wait(stop)
}

// keeper is a helper that runs.
type keeper struct {
	cmd   *exec.Cmd
	in    *os.File
	out   *os.File
	said  noise
	ended chan struct{} // closed when it has ended
	heard chan struct{} // closed when all that it has said is in said
}

// begin starts the helper and gives it its line.
func (k *keeper) begin(program string, start []byte) error {
	var ends [6]*os.File // pairs: what is read, what is written
	for i := 0; i < len(ends); i += 2 {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		ends[i], ends[i+1] = r, w
	}
	k.cmd = exec.Command(program)
	k.cmd.Stdin, k.cmd.Stdout, k.cmd.Stderr, k.cmd.Dir = ends[0], ends[3], ends[5], "/"
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := k.cmd.Start(); err != nil {
		k.cmd = nil
		return err
	}
	for _, f := range []*os.File{ends[0], ends[3], ends[5]} {
		_ = f.Close() // the helper has them
	}
	k.in, k.out, k.ended, k.heard = ends[1], ends[2], make(chan struct{}), make(chan struct{})
	go func() {
		_, _ = io.Copy(&k.said, ends[4]) // ends with the helper; what is lost is only text
		close(k.heard)
	}()
	go func() {
		_ = k.cmd.Wait() // ProcessState has it
		close(k.ended)
	}()
	go func() { _, _ = k.in.Write(append(start, '\n')) }() // a helper that doesn't read answers too late
	return nil
}

// ask waits for the helper's line, and then throws away what it writes.
func (k *keeper) ask(limit time.Duration, stop <-chan os.Signal) ([]byte, error) {
	type read struct {
		line []byte
		err  error
	}
	got := make(chan read, 1)
	go func() {
		r := bufio.NewReader(io.LimitReader(k.out, maxAnswer+1))
		line, err := r.ReadBytes('\n')
		got <- read{line, err}
		if err == nil {
			_, _ = io.Copy(io.Discard, k.out) // a helper may say more: nobody reads it
		}
	}()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case r := <-got:
		switch {
		case len(r.line) > maxAnswer:
			return nil, fmt.Errorf("it answered with more than %d bytes", maxAnswer)
		case len(bytes.TrimSpace(r.line)) > 0:
			return r.line, nil
		}
		select {
		case <-k.ended:
			return nil, fmt.Errorf("it ended without an answer (%s)", k.cmd.ProcessState)
		case <-time.After(stopStep):
			return nil, errors.New("it closed its output without an answer")
		}
	case <-late.C:
		return nil, fmt.Errorf("it did not answer within %d s (GresHelperTimeout)", int64(limit/time.Second))
	case <-stop:
		return nil, errors.New("the job ends")
	}
}

// wait waits until the helper ends by itself or is to end, and gives the keeper's exit code.
func (k *keeper) wait(stop <-chan os.Signal) int {
	select {
	case <-k.ended:
		if code := k.cmd.ProcessState.ExitCode(); code >= 0 {
			return code
		}
		return 128 + int(k.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal()) // Unix has no other
	case <-stop:
	}
	_ = k.in.Close() // this is what tells it
	if k.gone() {
		return 0 // what it has left behind ends with the job
	}
	_ = syscall.Kill(-k.cmd.Process.Pid, syscall.SIGTERM) // it may have ended just now
	if !k.gone() {
		k.kill()
	}
	return 0
}

// listen waits for the rest of what a helper has said that has ended. Others may hold its standard error open.
func (k *keeper) listen() {
	if k.cmd == nil {
		return
	}
	select {
	case <-k.heard:
	case <-time.After(stopStep):
	}
}

// gone waits a step for the helper's end.
func (k *keeper) gone() bool {
	select {
	case <-k.ended:
		return true
	case <-time.After(stopStep):
		return false
	}
}

// kill ends the helper's process group.
func (k *keeper) kill() {
	if k.cmd != nil {
		_ = syscall.Kill(-k.cmd.Process.Pid, syscall.SIGKILL) // there may be nothing left of it
	}
}

// noise keeps the beginning of what is written to it.
type noise struct {
	mu   sync.Mutex
	data []byte
}

func (n *noise) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.data = append(n.data, p[:min(len(p), maxSaid-len(n.data))]...)
	return len(p), nil
}

func (n *noise) text() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return string(n.data)
}
