package steprelay

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/stepio"
	"gbatch/noded/shim"
)

// relayed starts a relay of one task's output, and gives the command's end of its connection.
func relayed(t *testing.T, told <-chan os.Signal) (c *stepio.Conn, task, ends *os.File, over <-chan int) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close() //nolint:errcheck // it has taken its connection
	key, err := stepio.NewKey()
	must(t, err)
	var fds [2]int
	must(t, unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK))
	read, write, err := shim.EndPipe(1)
	must(t, err)
	nc, err := net.Dial("tcp", ln.Addr().String())
	must(t, err)
	status := make(chan int, 1)
	go func() {
		defer nc.Close() //nolint:errcheck // the test sees what comes
		hailed, err := stepio.Hail(nc, key, 1)
		if err != nil {
			status <- -1
			return
		}
		status <- serve(hailed, []Pipe{{Stream: 1, File: os.NewFile(uintptr(fds[0]), "a relay's file")},
			{Rank: 1, Stream: stepio.Ended, File: read}}, false, told, nc.(*net.TCPConn).CloseWrite)
	}()
	at, err := ln.Accept()
	must(t, err)
	t.Cleanup(func() { _ = at.Close() }) // the test is over
	c, _, err = stepio.Answer(at, key)
	must(t, err)
	must(t, unix.SetNonblock(fds[1], false))
	return c, os.NewFile(uintptr(fds[1]), "a task's file"), write[0], status
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bytesTo reads what a relay sends of the task's output until its end.
func bytesTo(t *testing.T, c *stepio.Conn) (n int, ended bool) {
	t.Helper()
	for {
		f, err := c.Read()
		switch {
		case errors.Is(err, io.EOF):
			return n, ended
		case err != nil:
			t.Fatal(err)
		case f.Stream == 1:
			n, ended = n+len(f.Data), len(f.Data) == 0
		}
	}
}

// TestRelayOfALeftover: what a task has left holds its output open, and goes on writing. The command gets all that the
// task has written, and the relay ends.
func TestRelayOfALeftover(t *testing.T) {
	c, task, ends, over := relayed(t, nil)
	text := bytes.Repeat([]byte("0123456789abcde\n"), 2048)
	_, err := task.Write(text)
	must(t, err)
	_, err = ends.WriteString("0 0 0\n")
	must(t, err)
	must(t, ends.Close())
	go func() {
		for {
			if _, err := task.Write([]byte("left\n")); err != nil {
				return // the relay has ended
			}
		}
	}()
	n, ended := bytesTo(t, c)
	if n < len(text) || !ended {
		t.Errorf("%d of %d bytes came, their end: %v", n, len(text), ended)
	}
	select {
	case code := <-over:
		t.Errorf("it has ended with %d before the command has closed", code)
	default:
	}
}

// TestRelayOfANewLauncher: the gshim that would tell how the tasks end has been replaced; gnoded's word ends a relay
// whose pipe something holds.
func TestRelayOfANewLauncher(t *testing.T) {
	told := make(chan os.Signal, 1)
	c, task, ends, _ := relayed(t, told)
	defer task.Close() //nolint:errcheck // it is what is left
	must(t, ends.Close())
	_, err := task.WriteString("said\n")
	must(t, err)
	told <- TasksOver
	begun := time.Now()
	if n, ended := bytesTo(t, c); n != 5 || !ended {
		t.Errorf("%d of 5 bytes came, their end: %v", n, ended)
	}
	if d := time.Since(begun); d < drainFor/2 {
		t.Errorf("what is left had %v", d)
	}
}
