package starter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain is this program in gnoded's place: as the starter, as what asks it, and confined, to say what it can.
func TestMain(m *testing.M) {
	if status, handled := Main(os.Args); handled {
		os.Exit(status)
	}
	if what := os.Getenv("STARTER_TEST"); what != "" {
		s, err := Confine()
		if err == nil {
			err = confined(s, what)
		}
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func confined(s *Starter, what string) error {
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	line := func(text, key string) string {
		_, rest, _ := strings.Cut(text, key+":")
		rest, _, _ = strings.Cut(rest, "\n")
		return strings.TrimSpace(rest)
	}
	switch what {
	case "rights":
		fmt.Println("own", line(string(own), "CapBnd"), line(string(own), "CapEff"), line(string(own), "Seccomp"))
		fmt.Println("clock", unix.ClockSettime(unix.CLOCK_REALTIME, &unix.Timespec{Sec: -1}))
		fmt.Println("socket left:", os.Getenv(socketEnv))
		cmd := exec.Command("/bin/sh", "-c", "cat /proc/self/status; exit 7")
		cmd.Dir = "/usr"
		s.Wrap(cmd)
		out, err := cmd.CombinedOutput()
		fmt.Println("program", line(string(out), "CapBnd"), line(string(out), "CapEff"), line(string(out), "Seccomp"), err)
		cmd = exec.Command("/bin/sh", "-c", "pwd; echo $0 $1; echo $A; echo bad >&2; kill -9 $$", "zero", "one")
		cmd.Dir, cmd.Env = "/usr", []string{"A=b"}
		s.Wrap(cmd)
		out, err = cmd.CombinedOutput()
		fmt.Printf("%q %v\n", out, err)
		cmd = &exec.Cmd{Path: "/no/such", Args: []string{"x"}}
		s.Wrap(cmd)
		out, err = cmd.CombinedOutput()
		fmt.Printf("%q %v\n", out, err)
	case "killed":
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		cmd := exec.CommandContext(ctx, "/bin/sh", "-c", "echo $$; sleep 1000 & wait")
		s.Wrap(cmd)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			return err
		}
		text := make([]byte, 20)
		n, _ := out.Read(text)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n])))
		cancel()
		_ = cmd.Wait() // it was killed
		for range 1000 {
			if errors.Is(unix.Kill(-pid, 0), unix.ESRCH) {
				fmt.Println("gone")
				return nil
			}
			time.Sleep(10 * time.Millisecond)
		}
		return errors.Join(err, fmt.Errorf("the group of %d is still there", pid))
	}
	return nil
}

func inPlace(t *testing.T, what string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root has anything to give up")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "STARTER_TEST="+what)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// TestConfined: gnoded has less than it was started with, and programs that the starter starts have all of it. They get
// their arguments, environment and directory, and gnoded sees how they end.
func TestConfined(t *testing.T) {
	has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_TIME, 0, 0, 0)
	if err != nil || has == 0 {
		t.Skip("this process has been confined already")
	}
	text := inPlace(t, "rights")
	word := func(line, n int) string { return strings.Fields(strings.Split(text, "\n")[line])[n] }
	own, err := strconv.ParseUint(word(0, 1), 16, 64)
	if err != nil {
		t.Fatal(text)
	}
	effective, _ := strconv.ParseUint(word(0, 2), 16, 64)
	all, _ := strconv.ParseUint(word(3, 1), 16, 64)
	for _, c := range dropped {
		if own>>c&1 != 0 || effective>>c&1 != 0 {
			t.Errorf("gnoded has capability %d", c)
		}
	}
	if all&^own == 0 || all>>unix.CAP_SYS_TIME&1 == 0 || word(0, 3) != "2" || word(3, 3) != "0" {
		t.Errorf("what gnoded has, and a program:\n%s", text)
	}
	for _, want := range []string{"clock operation not permitted", "socket left: \n", "exit status 7",
		`"/usr\nzero one\nb\nbad\n" signal: killed`,
		`"/no/such: fork/exec /no/such: no such file or directory\n" exit status 127`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}

// TestKilled: with a command that is killed its program and the program's group end.
func TestKilled(t *testing.T) {
	if got := inPlace(t, "killed"); got != "gone\n" {
		t.Error(got)
	}
}

// TestDirect: without a starter, a command stays as it is.
func TestDirect(t *testing.T) {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	(*Starter)(nil).Wrap(cmd)
	if err := cmd.Run(); err != nil || cmd.Path != "/bin/true" || !bytes.Equal([]byte(cmd.Args[0]), []byte("/bin/true")) {
		t.Errorf("%v, %v", cmd.Args, err)
	}
}
