package devcluster_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gbatch/internal/devcluster"
	"gbatch/internal/x11"
)

// xServer is an X server that looks at its clients' cookies: it answers each with the real one, with its number among
// them, and takes notes of others.
type xServer struct {
	display string
	cookie  []byte
	bad     chan string
}

func newXServer(t *testing.T) *xServer {
	t.Helper()
	var ln net.Listener
	for { // of high ports only some are those of displays
		var err error
		if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if ln.Addr().(*net.TCPAddr).Port > x11.FirstPort {
			break
		}
		_ = ln.Close() // the next one is higher
	}
	t.Cleanup(func() { _ = ln.Close() }) // the test is over
	s := &xServer{cookie: []byte("the real cookie!"), bad: make(chan string, 100),
		display: fmt.Sprintf("127.0.0.1:%d", ln.Addr().(*net.TCPAddr).Port-x11.FirstPort)}
	go func() {
		for n := 0; ; {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			_ = nc.SetDeadline(time.Now().Add(20 * time.Second)) // a broken one is seen by the read
			first := make([]byte, 12+20+16)
			if got, err := io.ReadFull(nc, first); err == io.EOF { // grun looks whether somebody listens
				_ = nc.Close() // nobody is there
				continue
			} else if err != nil || !bytes.Equal(first[32:], s.cookie) {
				s.bad <- fmt.Sprintf("%q: %v", first[:got], err)
			}
			n++
			_, _ = fmt.Fprintf(nc, "hello %02d", n) // the task tells what it gets
			go func() {
				_, _ = io.Copy(nc, nc) // as above
				_ = nc.Close()
			}()
		}
	}()
	return s
}

// client is a task that is an X client: it shows the cookie of its file, and what it hears, with an echo.
const xClient = `n=${DISPLAY#127.0.0.1:}; n=${n%.0}
exec 3<>/dev/tcp/127.0.0.1/$((6000+n)) || exit 9
{ printf 'l\0\013\0\0\0\022\0\020\0\0\0MIT-MAGIC-COOKIE-1\0\0'; tail -c16 "$XAUTHORITY"; printf ECHO; } >&3
echo "$SLURM_PROCID: $(head -c8 <&3) $(head -c4 <&3)"
`

// TestX11: tasks on all nodes have the user's display through grun, with a cookie of the step's own, which is gone with
// the step; who has another cookie is not let in; galloc hands the display on; without PrologFlags=X11 there is none.
func TestX11(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{Conf: "PrologFlags=X11\n"})
	server := newXServer(t)
	number, _ := strconv.Atoi(strings.TrimPrefix(server.display, "127.0.0.1:"))
	file := filepath.Join(t.TempDir(), "Xauthority")
	if err := os.WriteFile(file, x11.File(number, server.cookie), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(code int, args ...string) string {
		t.Helper()
		cmd := exec.Command(filepath.Join(devcluster.Commands(t), args[0]), args[1:]...)
		cmd.Env = append(c.Env(), "PATH="+devcluster.Commands(t)+":"+os.Getenv("PATH"), "DISPLAY="+server.display,
			"XAUTHORITY="+file)
		cmd.Dir = t.TempDir()
		said, _ := cmd.CombinedOutput() // the exit code says it
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("%v ended with %d, want %d: %s", args, got, code, said)
		}
		return string(said)
	}
	both := run(0, "grun", "--x11", "-N2", "-n2", "bash", "-c", xClient)
	for _, want := range []string{"0: hello 0", "1: hello 0", " ECHO\n"} {
		if !strings.Contains(both, want) {
			t.Errorf("%q is not in what two tasks on two nodes print: %s", want, both)
		}
	}
	last := run(0, "grun", "--x11=last", "-N2", "-n2", "--label", "bash", "-c", `echo "$DISPLAY"`)
	if !strings.Contains(last, "0: "+server.display+"\n") || strings.Contains(last, "1: "+server.display) {
		t.Errorf("with --x11=last: %s", last)
	}
	if said := run(0, "galloc", "-Q", "--x11", "grun", "bash", "-c", xClient); !strings.Contains(said, "hello") {
		t.Errorf("in galloc --x11: %s", said)
	}
	thief := strings.ReplaceAll(xClient, `tail -c16 "$XAUTHORITY"`, `printf 0123456789abcdef`)
	if said := run(0, "grun", "--x11", "bash", "-c", thief); strings.Contains(said, "hello") {
		t.Errorf("with another cookie: %s", said)
	}
	where := run(0, "grun", "--x11", "sh", "-c", `stat -c '%U %a' "$XAUTHORITY"; echo "$XAUTHORITY"`)
	lines := strings.Split(strings.TrimSpace(where), "\n")
	if lines[0] != "root 600" {
		t.Errorf("the file with the cookie is of %s", lines[0])
	}
	if _, err := os.Stat(lines[len(lines)-1]); !os.IsNotExist(err) {
		t.Errorf("after the step its cookie is still there: %v", err)
	}
	text, err := os.ReadFile(c.Conf)
	if err == nil {
		err = os.WriteFile(c.Conf, bytes.ReplaceAll(text, []byte("PrologFlags=X11\n"), nil), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	run(0, "gcontrol", "reconfigure")
	if said := run(1, "grun", "--x11", "true"); !strings.Contains(said, "PrologFlags in gbatch.conf has no X11") {
		t.Errorf("where displays are not forwarded: %s", said)
	}
	server.display = "127.0.0.1:1" // a display that nobody has
	if said := run(1, "grun", "--x11", "true"); !strings.Contains(said, "DISPLAY=127.0.0.1:1 can't be used") {
		t.Errorf("without an X server: %s", said)
	}
	select {
	case said := <-server.bad:
		t.Errorf("the X server was sent %s", said)
	default:
	}
}
