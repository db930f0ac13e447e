package server

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gbatch/internal/rpc"
)

// childSocket makes the test binary a client: it asks the server at the variable's socket for its own identity.
const childSocket = "GBATCH_TEST_RPC_SOCKET"

func TestMain(m *testing.M) {
	path := os.Getenv(childSocket)
	if path == "" {
		os.Exit(m.Run())
	}
	c, err := rpc.DialUnix(path, 5*time.Second)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	f, err := c.Call(context.Background(), 1, []byte("I am root, honestly"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%s", f.Body)
}

func whoami(_ context.Context, r *Request) {
	u, ok := r.Peer.User()
	_ = r.Reply(fmt.Appendf(nil, "%v uid %d gid %d groups %v pid %d", ok, u.UID, u.GID, u.Groups, u.PID))
}

func TestPeerFromKernel(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	s := startServer(t, whoami, Options{})
	many := make([]uint32, 300) // more than the first buffer holds
	for i := range many {
		many[i] = uint32(5000 + i)
	}
	for _, cred := range []syscall.Credential{
		{Uid: 65534, Gid: 65534},
		{Uid: 1234, Gid: 4321, Groups: []uint32{7, 100}},
		{Uid: 1, Gid: 1, Groups: many},
		{Uid: 0, Gid: 0},
	} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), childSocket+"="+s.path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &cred}
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("uid %d: %v: %s", cred.Uid, err, errs.String())
		}
		if cred.Groups == nil {
			cred.Groups = []uint32{}
		}
		want := fmt.Sprintf("true uid %d gid %d groups %v pid %d", cred.Uid, cred.Gid, cred.Groups, cmd.Process.Pid)
		if out.String() != want {
			t.Errorf("the server saw %q, want %q", out.String(), want)
		}
	}
}

func TestPeerIsSelf(t *testing.T) {
	s := startServer(t, whoami, Options{})
	f, err := s.dial(t).Call(context.Background(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(groups)
	if want := fmt.Sprintf("true uid %d gid %d groups %v pid %d", os.Getuid(), os.Getgid(), groups,
		os.Getpid()); string(f.Body) != want {
		t.Errorf("got %q, want %q", f.Body, want)
	}
}

func TestPeerOfTCPIsNobody(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if p, err := UnixPeer(a); err == nil {
		t.Errorf("got %v", p)
	}
}
