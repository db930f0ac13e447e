package devcluster_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/devcluster"
	"gbatch/internal/terminal"
)

// terminal_test.go is a user at a real terminal: what grun --pty shows there, what its keys do, and how it is left.

// seat is that user: a pseudo-terminal with a command at it.
type seat struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd
	ended  chan error
	before terminal.Modes

	mu   sync.Mutex
	text bytes.Buffer
	from int // what has been looked at
}

// sit starts a command at a terminal of 33 rows and 77 columns, which is its controlling one.
func sit(t *testing.T, c *devcluster.Cluster, args ...string) *seat {
	t.Helper()
	master, slave, err := terminal.Open()
	if err != nil {
		t.Fatal(err)
	}
	s := &seat{t: t, master: master, ended: make(chan error, 1)}
	s.resize(33, 77)
	if s.before, err = terminal.ModesOf(int(master.Fd())); err != nil {
		t.Fatal(err)
	}
	commands := devcluster.Commands(t)
	s.cmd = exec.Command(filepath.Join(commands, args[0]), args[1:]...)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = slave, slave, slave
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	s.cmd.Env = append(c.Env(), "PATH="+commands+":"+os.Getenv("PATH"), "PS1=$ ", "TERM=dumb")
	s.cmd.Dir = c.Dir
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.ended <- s.cmd.Wait() }()
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			s.mu.Lock()
			s.text.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // it has ended, where all is well
		_ = slave.Close()        // it stayed open so that the terminal's modes can be asked for
		_ = master.Close()
	})
	return s
}

func (s *seat) resize(rows, cols uint16) {
	s.t.Helper()
	if err := terminal.Resize(int(s.master.Fd()), terminal.Size{Rows: rows, Cols: cols}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *seat) press(keys string) {
	s.t.Helper()
	if _, err := s.master.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// sees waits until the terminal shows text behind what it has shown before.
func (s *seat) sees(text string) {
	s.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		shown := s.text.String()
		if i := strings.Index(shown[s.from:], text); i >= 0 {
			s.from += i + len(text)
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if time.Now().After(end) {
			s.t.Fatalf("%q was not shown behind\n%s\nbut\n%s", text, shown[:s.from], shown[s.from:])
		}
	}
}

// exits waits for the command's end and looks how it leaves the terminal.
func (s *seat) exits(code int) {
	s.t.Helper()
	select {
	case err := <-s.ended:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			s.t.Fatal(err)
		}
		if got := s.cmd.ProcessState.ExitCode(); got != code {
			s.t.Errorf("exit code %d, want %d", got, code)
		}
	case <-time.After(20 * time.Second):
		s.t.Fatalf("%v has not ended; shown was\n%s", s.cmd.Args, s.text.String())
	}
	if now, err := terminal.ModesOf(int(s.master.Fd())); err != nil || now.Local != s.before.Local ||
		now.Input != s.before.Input || now.Output != s.before.Output {
		s.t.Errorf("the terminal is left as %+v (%v), and was %+v", now, err, s.before)
	}
}

// raw waits until keys are passed on.
func (s *seat) raw() {
	s.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		m, err := terminal.ModesOf(int(s.master.Fd()))
		if err == nil && m.Local&unix.ISIG == 0 {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("the terminal was not made raw: %+v, %v", m, err)
		}
	}
}

// TestTerminal: a shell of grun --pty has a terminal: on this host, on another node through its relay, and in a running
// job.
func TestTerminal(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{Gres: "gpu:a100:2"})
	shell := []string{"--pty", "bash", "--norc", "--noediting"}
	for name, words := range map[string][]string{
		"of its own":  {"grun", "-G1"},
		"two nodes":   {"grun", "-N2", "-n2", "-G2"},
		"in galloc":   {"galloc", "-Q", "-G1", "grun"},
		"other node":  {"galloc", "-Q", "-N2", "--gpus-per-node=1", "grun", "-N1", "-wn2"},
		"in a script": {"galloc", "-Q", "-G1", "sh", "-c", "grun \"$@\"; exit $?", "sh"},
	} {
		t.Run(name, func(t *testing.T) {
			s := sit(t, c, append(words, shell...)...)
			s.sees("$ ")
			s.press("stty size; tty\r")
			s.sees("\r\n33 77\r\n/dev/pts/")
			s.sees("$ ")
			s.press("echo =${#CUDA_VISIBLE_DEVICES}= $SLURM_PROCID $SLURM_PTY_WIN_COL\r")
			s.sees("\r\n=1= 0 77\r\n")
			s.sees("$ ")
			s.raw()
			s.resize(40, 100)
			s.press("until [ \"$(stty size)\" = '40 100' ]; do sleep 0.05; done; echo re''sized\r")
			s.sees("\r\nresized\r\n")
			s.sees("$ ")
			s.press("sh -c 'echo wai''ting; exec sleep 600'\r")
			s.sees("\r\nwaiting\r\n") // it is in the foreground
			s.press("\x03")
			s.sees("^C\r\n$ ")
			s.press("echo =$?\r")
			s.sees("\r\n=130\r\n")
			s.sees("$ ")
			s.press("sh -c 'echo wai''ting; exec sleep 600'\r")
			s.sees("\r\nwaiting\r\n")
			s.press("\x1a")
			s.sees("Stopped")
			s.press("kill -9 %1; exec sh -c 'exit 3'\r")
			s.exits(3)
		})
	}
}

// TestTerminalEnds: however grun ends, it restores the terminal.
func TestTerminalEnds(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{})
	shell := []string{"--pty", "bash", "--norc", "--noediting", "-c", "cat; sleep 600"}
	cancel := func(t *testing.T) {
		cmd := exec.Command(filepath.Join(devcluster.Commands(t), "gcancel"), "-u", strconv.Itoa(os.Getuid()))
		cmd.Env = c.Env()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for name, args := range map[string][]string{
		"here":  append([]string{"grun"}, shell...),
		"there": append([]string{"galloc", "-Q", "-N2", "grun", "-N1", "-wn2"}, shell...),
	} {
		begin := func(t *testing.T) *seat {
			s := sit(t, c, args...)
			s.raw()
			s.press("ready\r")
			s.sees("ready\r\nready")
			return s
		}
		t.Run("terminated "+name, func(t *testing.T) {
			s := begin(t)
			if err := syscall.Kill(-s.cmd.Process.Pid, syscall.SIGTERM); err != nil { // galloc's group has grun in it
				t.Fatal(err)
			}
			s.exits(128 + int(unix.SIGTERM))
		})
		t.Run("daemons restarted "+name, func(t *testing.T) {
			s := begin(t)
			for _, n := range []string{"n1", "n2"} {
				c.StopDaemon(n)
				s.press("typed meanwhile\r")
				s.sees("typed meanwhile\r\ntyped meanwhile")
				c.StartDaemon(n)
			}
			c.WaitReady()
			s.raw()
			s.press("\x03")
			s.exits(128 + int(unix.SIGINT))
		})
		t.Run("job cancelled "+name, func(t *testing.T) {
			s := begin(t)
			cancel(t)
			s.exits(128 + int(unix.SIGTERM))
		})
		t.Run("shell cancelled "+name, func(t *testing.T) {
			s := sit(t, c, append(slices.Clone(args[:len(args)-5]), "bash", "--norc", "--noediting", "-i")...)
			s.sees("$ ")
			s.raw()
			cancel(t)
			s.exits(128 + int(unix.SIGHUP))
		})
		t.Run("terminal lost "+name, func(t *testing.T) {
			s := begin(t)
			if err := syscall.Kill(-s.cmd.Process.Pid, syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			s.exits(128 + int(unix.SIGTERM))
		})
	}
}

// Without --pty a task's input is no terminal, so that a shell there reads lines and takes nothing for its own; with
// --input=1 that task gets them.
func TestLinesOfTerminal(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{Nodes: 1, CPUs: 2})
	for _, args := range [][]string{{"grun", "-n1", "sh"}, {"grun", "-n2", "--input=1", "sh"}} {
		s := sit(t, c, args...)
		s.press("test -t 0 || echo lines of $SLURM_PROCID\n")
		s.sees("lines of " + strconv.Itoa(len(args)/4) + "\r\n")
		s.press("exit 3\n")
		s.exits(3)
	}
}
