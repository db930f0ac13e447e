package steprelay

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"gbatch/noded/gpuoom"
)

// TestSlowReader: the tasks have ended with a full pipe behind them, and the user's reader takes its time. It gets all
// of it, also what comes after the time that is left to processes of the tasks.
func TestSlowReader(t *testing.T) {
	pipe := func() (read, write int) {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		return fds[0], fds[1]
	}
	in, tasks := pipe()
	user, out := pipe()
	if err := unix.SetNonblock(in, true); err != nil {
		t.Fatal(err)
	}
	text := bytes.Repeat([]byte("0123456789abcdef"), 4096) // a pipe's 64 KiB
	if n, err := unix.Write(tasks, text); err != nil || n != len(text) {
		t.Fatal(n, err)
	}
	if n, err := unix.Write(out, text); err != nil || n != len(text) { // the reader has not read before
		t.Fatal(n, err)
	}
	over, done := make(chan struct{}), make(chan struct{})
	close(over)
	go func() {
		defer close(done)
		passOn(in, out, over, &gpuoom.Watch{}, "")
		_ = unix.Close(out) // the process ends
	}()
	// The pipe of the tasks stays open, as something that they have left holds it; restFor ends while the reader waits.
	var fds [1]unix.PollFd
	_, _ = unix.Poll(fds[:0], int(4*restFor.Milliseconds())) // the time that the test is about
	got, err := io.ReadAll(os.NewFile(uintptr(user), "the user's"))
	if <-done; err != nil || !bytes.Equal(got, append(text, text...)) {
		t.Errorf("%d of %d bytes came: %v", len(got), 2*len(text), err)
	}
	if err := unix.Close(tasks); err != nil {
		t.Error(err)
	}
}

// TestHeardOrders: an order comes as it was sent, also one of the version before labels.
func TestHeardOrders(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close() //nolint:errcheck // it was only read
	for _, c := range []struct {
		send func(sock int) error
		want string
	}{
		{func(sock int) error {
			return SendHeard(sock, null, 2, false, []Heard{{null, null, " 3: "}, {null, null, ""}})
		}, `{2 false [ 3:  ]}`},
		{func(sock int) error { return SendHeard(sock, null, 1, true, []Heard{{null, null, ""}}) }, `{1 true []}`},
		{func(sock int) error { return SendLines(sock, "2 1\n", []*os.File{null, null, null}) }, `{2 true []}`},
	} {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.send(pair[0]); err != nil {
			t.Fatal(err)
		}
		o, fds, err := takeHeard(pair[1])
		if got := fmt.Sprint(o); err != nil || got != c.want || len(fds) != 1+2*len(o.labels) {
			t.Errorf("%s with %d files, want %s: %v", got, len(fds), c.want, err)
		}
		for _, fd := range append(fds, pair[:]...) {
			_ = unix.Close(fd) // the test is over
		}
	}
}
