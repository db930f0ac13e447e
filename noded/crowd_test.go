package noded

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/server"
	"gbatch/noded/shares"
)

// crowd_test.go: a user with hundreds of connections to a host's gnoded, each with as much of a large message as the
// daemon takes, leaves the others their commands, jobs and memory.

const (
	crowdEnv      = "NODED_TEST_CROWD" // "attack" or "use": what the process does; then the sockets
	crowdConns    = 512
	crowdMemory   = 256 << 10       // KiB that the daemon may grow by
	crowdPatience = 3 * time.Second // for the daemon to take what is written
)

// TestCrowd runs an attacker and another user as processes of their own.
func TestCrowd(t *testing.T) {
	switch what, dir, _ := strings.Cut(os.Getenv(crowdEnv), " "); what {
	case "attack":
		attack(t, dir)
		return
	case "use":
		useBeside(t, dir)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("needs root to become other users")
	}
	c := newCluster(t)
	c.ctl.set(func(f *fakeCtld) {
		// the client sees it
		f.forward = func(_ context.Context, _ *proto.Forward, r *server.Request) { _ = r.Reply([]byte("taken")) }
	})
	must(t, os.Chmod(c.opts.SocketDir, 0o755))
	debug.FreeOSMemory()
	before := residentKB(t)
	cmd, out := asUser(t, 65534, "attack "+c.opts.SocketDir)
	in, err := cmd.StdinPipe()
	must(t, err)
	must(t, cmd.Start())
	waitLine(t, out, "attacking")
	if kb := residentKB(t) - before; kb > crowdMemory {
		t.Errorf("%d connections of one user to each socket take %d MiB", crowdConns, kb>>10)
	} else {
		t.Logf("%d connections of one user to each socket take %d MiB", crowdConns, kb>>10)
	}
	other, said := asUser(t, 65533, "use "+c.opts.SocketDir)
	must(t, other.Start())
	waitLine(t, said, "used")
	c.lives(1)
	must(t, other.Wait())
	must(t, in.Close()) // it ends
	must(t, cmd.Wait())
	until(t, "everything is given back", func() bool {
		_, bytes := c.n.own.Memory.Used(shares.Owner{})
		_, conns := c.n.own.Conns.Used(shares.Owner{})
		return bytes == 0 && conns == 0
	})
}

// asUser makes a process of this test as a user.
func asUser(t *testing.T, uid uint32, what string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	must(t, os.Chmod(dir, 0o755))
	exe, err := os.Executable()
	must(t, err)
	text, err := os.ReadFile(exe)
	must(t, err)
	self := filepath.Join(dir, "test")
	must(t, os.WriteFile(self, text, 0o755))
	cmd := exec.Command(self, "-test.run", "^TestCrowd$", "-test.v")
	cmd.Dir = dir
	cmd.Env = []string{"NODED_TEST_BINARIES=" + binaries, crowdEnv + "=" + what, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.StdoutPipe()
	must(t, err)
	return cmd, bufio.NewScanner(out)
}

func waitLine(t *testing.T, sc *bufio.Scanner, want string) {
	t.Helper()
	var all []string
	for sc.Scan() {
		if all = append(all, sc.Text()); strings.Contains(sc.Text(), want) {
			go func() { // the process is not to wait for a reader
				for sc.Scan() {
				}
			}()
			return
		}
	}
	t.Fatalf("a process ended without %q:\n%s", want, strings.Join(all, "\n"))
}

func residentKB(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	must(t, err)
	_, rest, _ := strings.Cut(string(status), "\nVmRSS:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	must(t, err)
	return n
}

// attack opens connections, and writes of a large message what the daemon takes.
func attack(t *testing.T, dir string) {
	claim := binary.LittleEndian.AppendUint32([]byte{proto.StepFrameRequest}, proto.MaxStepFrame)
	local := append([]byte("GBATCH\x00\x01"), binary.BigEndian.AppendUint32(nil, rpc.MaxRequest)...)
	local = binary.BigEndian.AppendUint16(local, proto.KindSubmit)
	local = append(local, 0, 0, 0, 0, 0, 1)
	text := make([]byte, 8<<20-1)
	var all sync.WaitGroup
	var conns []net.Conn
	for name, head := range map[string][]byte{proto.StepSocket("n1"): claim, "noded-n1.sock": local} {
		for range crowdConns {
			nc, err := net.Dial("unix", filepath.Join(dir, name))
			must(t, err)
			conns = append(conns, nc)
			all.Go(func() {
				_ = nc.SetWriteDeadline(time.Now().Add(crowdPatience)) // what it does not take, it does not take
				if _, err := nc.Write(head); err == nil {
					_, _ = nc.Write(text)
				}
			})
		}
	}
	all.Wait()
	_, _ = os.Stdout.WriteString("attacking\n") // the test waits for it
	_, _ = io.Copy(io.Discard, os.Stdin)        // until the test is over
	for _, nc := range conns {
		_ = nc.Close() // they have done their worst
	}
}

// useBeside is another user's submission and step.
func useBeside(t *testing.T, dir string) {
	conn, err := rpc.DialUnix(filepath.Join(dir, "noded-n1.sock"), testWait)
	must(t, err)
	f, err := conn.Call(t.Context(), proto.KindSubmit, make([]byte, 100<<10))
	if err != nil || string(f.Body) != "taken" {
		t.Fatalf("a submission beside the crowd: %q, %v", f.Body, err)
	}
	nc, err := net.Dial("unix", filepath.Join(dir, proto.StepSocket("n1")))
	must(t, err)
	must(t, nc.SetDeadline(time.Now().Add(testWait)))
	rq := &proto.StepRequest{Job: model.JobID(99), Parent: proto.StepNone, Argv: []string{"/bin/true"},
		Env: make([]byte, 100<<10)}
	b, err := appendFrame(nil, proto.StepFrameRequest, rq)
	must(t, err)
	_, err = nc.Write(b)
	must(t, err)
	if ev, err := readEvent(nc); err != nil || !strings.Contains(ev.Text, "Invalid job id") {
		t.Fatalf("a step beside the crowd: %+v, %v", ev, err)
	}
	_, _ = os.Stdout.WriteString("used\n") // the test waits for it
}
