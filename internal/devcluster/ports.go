package devcluster

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Ports of daemons stay theirs while a test has stopped a daemon. They come from below the range from which kernels
// take the near end of connections (32768 and up) and that of gbatch up (20000 to 32000), and each process of tests has
// blocks of them to itself: it holds a lock on a file for each until it ends. When a process has had all of its blocks,
// it begins again with those of tests that are long over.
const (
	portFirst  = 10000
	portBlock  = 100
	portBlocks = 99
	ownBlocks  = 15 // of one process, at most
)

var ports struct {
	sync.Mutex
	next, end int
	own       []int      // blocks of this process
	again     int        // how many of them were begun again
	locks     []*os.File // of own; held until the process ends
}

// FreePort gives a port that nobody listens on, and that no other test is given.
func FreePort(t testing.TB) int {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	for {
		if ports.next == ports.end {
			takeBlock(t)
		}
		port := ports.next
		ports.next++
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue // a program that is no test has it
		}
		if err := ln.Close(); err != nil {
			t.Fatal(err)
		}
		return port
	}
}

// takeBlock goes on to a block that no other process has.
func takeBlock(t testing.TB) {
	t.Helper()
	dir := filepath.Join(os.TempDir(), "gbatch-test-ports")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	_ = os.Chmod(dir, 0o777|fs.ModeSticky) // if it is another user's, it has that mode already
	begin := func(block int) {
		ports.next = portFirst + block*portBlock
		ports.end = ports.next + portBlock
	}
	for block := 0; block < portBlocks && len(ports.own) < ownBlocks; block++ {
		if slices.Contains(ports.own, block) {
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(block)), os.O_CREATE|os.O_RDONLY, 0o644)
		if err != nil {
			continue // another user's
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			_ = f.Close() // nothing was written
			continue
		}
		ports.own, ports.locks = append(ports.own, block), append(ports.locks, f)
		begin(block)
		return
	}
	if len(ports.own) == 0 {
		t.Fatalf("no block of ports from %d on is free", portFirst)
	}
	begin(ports.own[ports.again%len(ports.own)])
	ports.again++
}
