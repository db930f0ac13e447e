package up

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"time"
)

// Ports are drawn below the range that the kernel gives to outgoing connections (from 32768), so that one that a
// cluster has kept while it was down has rarely been taken meanwhile.
const (
	firstPort = 20000
	lastPort  = 32000
	portTries = 200
)

// drawPorts finds free TCP ports on the loopback address. Each is held until all are found, so they differ.
func drawPorts(n int) ([]int, error) {
	var ports []int
	var held []net.Listener
	defer func() {
		for _, h := range held {
			_ = h.Close() // nobody has connected
		}
	}()
	for try := 0; len(ports) < n; try++ {
		if try == portTries {
			return nil, fmt.Errorf("no %d free TCP ports between %d and %d", n, firstPort, lastPort)
		}
		p := firstPort + rand.IntN(lastPort-firstPort)
		h, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(p)))
		if err != nil {
			continue
		}
		held, ports = append(held, h), append(ports, p)
	}
	return ports, nil
}

const loopback = "127.0.0.1"

// portPatience is for the kernel to give back the port of a process that was killed.
const portPatience = 500 * time.Millisecond

// portFree tells why a daemon of ours could not listen on its address, nil if it could.
func (l layout) portFree(m *Member) error {
	if m.Role == RoleNode {
		return nil // it listens on no port
	}
	var h net.Listener
	var err error
	for end := time.Now().Add(portPatience); ; time.Sleep(goneEvery) {
		if h, err = net.Listen("tcp", m.Addresses[0]); err == nil {
			return h.Close()
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			break
		}
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s can't listen on %s: %w; %s in %s says where", m, m.Addresses[0], err, portKey(m), l.conf())
	}
	who := "another process"
	if _, port, err := net.SplitHostPort(m.Addresses[0]); err == nil {
		if n, err := strconv.Atoi(port); err == nil {
			if w := listener(n); w != "" {
				who = w
			}
		}
	}
	return fmt.Errorf("the port of %s, %s, is in use by %s: end that one, or give %s another port with %s in %s",
		m, m.Addresses[0], who, m.Name, portKey(m), l.conf())
}

func portKey(m *Member) string {
	if m.Role == RoleController {
		return "SlurmctldHost"
	}
	return "AccountingStoragePort"
}
