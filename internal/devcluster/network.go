package devcluster

import (
	"net"
	"sync"
)

// network.go is a network between a node and the controllers that can hold everything back without breaking anything:
// no byte, no end of a connection and no new connection comes through until it is told to deliver.

// network is the way from one node to all controllers.
type network struct {
	mu      sync.Mutex
	changed *sync.Cond
	held    bool
	closed  bool
	open    map[net.Conn]bool
	doors   []net.Listener
	all     sync.WaitGroup
}

func newNetwork() *network {
	n := &network{open: map[net.Conn]bool{}}
	n.changed = sync.NewCond(&n.mu)
	return n
}

// door gives an address that leads to another one.
func (n *network) door(to string) (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	n.doors = append(n.doors, ln)
	n.mu.Unlock()
	n.all.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return // closed
			}
			n.all.Go(func() { n.carry(near, to) })
		}
	})
	return ln.Addr().String(), nil
}

// carry moves bytes both ways until either side ends.
func (n *network) carry(near net.Conn, to string) {
	defer func() { _ = near.Close() }() // whoever is there sees the end
	if !n.keep(near) || !n.passes() {
		return
	}
	far, err := net.Dial("tcp", to)
	if err != nil {
		return // the node sees its connection end
	}
	defer func() { _ = far.Close() }() // as above
	if !n.keep(far) {
		return
	}
	var ways sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		ways.Go(func() {
			n.move(way[0], way[1])
			_, _ = way[0].Close(), way[1].Close() // one way that has ended ends the other
		})
	}
	ways.Wait()
	n.mu.Lock()
	delete(n.open, near)
	delete(n.open, far)
	n.mu.Unlock()
}

func (n *network) move(from, to net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		k, err := from.Read(buf)
		if !n.passes() {
			return
		}
		if _, werr := to.Write(buf[:k]); err != nil || werr != nil {
			return
		}
	}
}

// keep remembers a connection; false: the network is gone.
func (n *network) keep(c net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open[c] = true
	return !n.closed
}

// passes waits while everything is held back; false: the network is gone.
func (n *network) passes() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.held && !n.closed {
		n.changed.Wait()
	}
	return !n.closed
}

func (n *network) hold(held bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held = held
	n.changed.Broadcast()
}

func (n *network) close() {
	n.mu.Lock()
	n.closed = true
	n.changed.Broadcast()
	for _, ln := range n.doors {
		_ = ln.Close() // it takes no more, as is wanted
	}
	for c := range n.open {
		_ = c.Close() // as above
	}
	n.mu.Unlock()
	n.all.Wait()
}

// HoldNetwork keeps back everything between a node and the controllers; false delivers what was kept and what comes. It
// needs Options.Networks.
func (c *Cluster) HoldNetwork(node string, held bool) {
	c.t.Helper()
	n := c.networks[node]
	if n == nil {
		c.t.Fatalf("devcluster: %s has no network of its own: start the cluster with Networks", node)
	}
	n.hold(held)
}
