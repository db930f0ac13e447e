package run

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/client"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/stepio"
	"gbatch/internal/terminal"
)

// remote.go is grun's end of the streams of tasks on other hosts: their nodes' relays connect to it.

const (
	remoteHello = 10 * time.Second // for a relay to authenticate
	remoteFirst = 30 * time.Second // for the relays of all nodes to connect, before the input starts without them
	remoteQueue = 1024             // connections that may wait for accept
)

// remoteFiles takes the relays' connections.
type remoteFiles struct {
	pl     *plumbing
	ln     int
	port   int32
	key    []byte
	await  map[int32]bool // nodes whose relay has not connected yet
	closed bool

	mu    sync.Mutex
	cond  sync.Cond
	conns []*stepio.Conn
	size  *terminal.Size   // of the user's terminal since it changed
	words []proto.StepWord // how tasks have ended, as their relays say
	asks  *client.Steps    // the daemon that wants to know; nil: it knows by itself
}

// listen opens a port for the relays of all nodes but direct.
func (pl *plumbing) listen(layout []proto.StepNode, direct string) (*remoteFiles, error) {
	rf := &remoteFiles{pl: pl, await: map[int32]bool{}}
	rf.cond.L = &rf.mu
	var err error
	if rf.key, err = stepio.NewKey(); err != nil {
		return nil, err
	}
	if rf.ln, rf.port, err = listenAny(); err != nil {
		return nil, fmt.Errorf("listen for the tasks on other nodes: %w", err)
	}
	for i := range layout {
		if layout[i].Node != direct && pl.wires(&layout[i]) {
			rf.await[int32(i)] = true
			pl.readers.Add(1) // until its relay has disconnected
		}
	}
	go acceptEach(rf.ln, rf.talk) // it ends with the port
	return rf, nil
}

// listenAny listens on any free port of all addresses: IPv6 and IPv4 if the kernel has both.
func listenAny() (fd int, port int32, err error) {
	fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	var any unix.Sockaddr = &unix.SockaddrInet6{}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	}
	if err == nil {
		err = unix.Bind(fd, any)
	}
	if err != nil {
		if fd >= 0 {
			_ = unix.Close(fd) // it was never used
		}
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return -1, 0, os.NewSyscallError("socket", err)
		}
		if err = unix.Bind(fd, &unix.SockaddrInet4{}); err != nil {
			_ = unix.Close(fd) // as above
			return -1, 0, os.NewSyscallError("bind", err)
		}
	}
	if err = unix.Listen(fd, remoteQueue); err == nil {
		var at unix.Sockaddr
		if at, err = unix.Getsockname(fd); err == nil {
			switch a := at.(type) {
			case *unix.SockaddrInet6:
				return fd, int32(a.Port), nil
			case *unix.SockaddrInet4:
				return fd, int32(a.Port), nil
			}
			err = unix.EAFNOSUPPORT
		}
	}
	_ = unix.Close(fd) // as above
	return -1, 0, os.NewSyscallError("listen", err)
}

// acceptEach takes connections until the port is closed, and serves each.
func acceptEach(ln int, talk func(*os.File)) {
	for {
		fd, _, err := unix.Accept4(ln, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		switch {
		case err == unix.EINTR || err == unix.ECONNABORTED:
			continue
		case err != nil:
			return
		}
		if stepio.Bound(fd, stepio.LostAfter) != nil { // the peer has gone already
			_ = unix.Close(fd) // nothing was sent
			continue
		}
		go talk(os.NewFile(uintptr(fd), "of a node"))
	}
}

// talk serves one relay's connection.
func (rf *remoteFiles) talk(f *os.File) {
	defer f.Close() //nolint:errcheck // everything has been read
	if f.SetDeadline(time.Now().Add(remoteHello)) != nil {
		return
	}
	c, node, err := stepio.Answer(f, rf.key)
	if err != nil || f.SetDeadline(time.Time{}) != nil {
		return // a stranger
	}
	rf.mu.Lock()
	rf.conns = append(rf.conns, c)
	size := rf.size
	first := rf.await[node]
	delete(rf.await, node)
	rf.cond.Broadcast()
	rf.mu.Unlock()
	if first {
		defer rf.pl.readers.Done()
	}
	if size != nil {
		_ = c.Write(stepio.Terminal, stepio.AllRanks, stepio.SizeData(*size)) // a broken connection is seen by the reader
	}
	rf.read(c)
	rf.mu.Lock()
	rf.conns = slices.DeleteFunc(rf.conns, func(o *stepio.Conn) bool { return o == c })
	rf.mu.Unlock()
}

// read copies the tasks' output to its destinations.
func (rf *remoteFiles) read(c *stepio.Conn) {
	type stream struct {
		stream uint8
		rank   int32
	}
	labels := map[stream]*labeller{}
	for {
		fr, err := c.Read()
		if err != nil {
			for _, l := range labels {
				l.take(nil, true)
			}
			return
		}
		if code, sig, ok := stepio.EndOf(fr.Data); fr.Stream == stepio.Ended && ok {
			rf.ended(proto.StepWord{Task: fr.Rank, Code: code, Signal: sig})
			continue
		}
		if fr.Stream > 2 || rf.pl.sinks[fr.Stream].fd < 0 {
			continue
		}
		to := rf.pl.sinks[fr.Stream]
		if !rf.pl.follows[fr.Stream] {
			rf.pl.guests.copy(fr.Stream, fr.Rank, fr.Data)
		}
		if !to.label {
			rf.pl.put(to.fd, fr.Data)
			continue
		}
		key := stream{stream: fr.Stream, rank: fr.Rank}
		l := labels[key]
		if l == nil {
			l = rf.pl.labeller(int(fr.Rank), to.fd)
			labels[key] = l
		}
		l.take(fr.Data, len(fr.Data) == 0)
	}
}

// ended keeps how a task has ended, and says it if it is asked for.
func (rf *remoteFiles) ended(w proto.StepWord) {
	rf.mu.Lock()
	if rf.words = append(rf.words, w); len(rf.words) > model.MaxList {
		rf.words = rf.words[1:]
	}
	to := rf.asks
	rf.mu.Unlock()
	if to != nil {
		_ = to.Send(proto.StepFrameWords, &proto.StepWords{List: []proto.StepWord{w}}, nil) // as in resize
	}
}

// tell says how tasks have ended, and from now on how others end.
func (rf *remoteFiles) tell(to *client.Steps) {
	rf.mu.Lock()
	rf.asks = to
	known := slices.Clone(rf.words)
	rf.mu.Unlock()
	if len(known) > 0 {
		_ = to.Send(proto.StepFrameWords, &proto.StepWords{List: known}, nil) // as in resize
	}
}

// feed sends input to the tasks, or its end if data is empty, once the relays of all nodes have connected. It reports
// whether any task still reads.
func (rf *remoteFiles) feed(data []byte) bool {
	late := time.AfterFunc(remoteFirst, func() {
		rf.mu.Lock()
		clear(rf.await)
		rf.cond.Broadcast()
		rf.mu.Unlock()
	})
	rf.mu.Lock()
	for len(rf.await) > 0 && !rf.closed {
		rf.cond.Wait()
	}
	conns := slices.Clone(rf.conns)
	rf.mu.Unlock()
	late.Stop()
	left := false
	for _, c := range conns {
		left = c.Write(0, stepio.AllRanks, data) == nil || left
	}
	return left
}

// feedTo sends input to one task.
func (rf *remoteFiles) feedTo(rank int32, data []byte) {
	rf.mu.Lock()
	conns := slices.Clone(rf.conns)
	rf.mu.Unlock()
	for _, c := range conns {
		_ = c.Write(0, rank, data) // the relay of another node drops it; a broken connection is seen by the reader
	}
}

// resize sends the terminal's new size to its relay.
func (rf *remoteFiles) resize(size terminal.Size) {
	rf.mu.Lock()
	rf.size = &size
	conns := slices.Clone(rf.conns)
	rf.mu.Unlock()
	for _, c := range conns {
		_ = c.Write(stepio.Terminal, stepio.AllRanks, stepio.SizeData(size)) // as above
	}
}

// silent reports whether no relay is connected.
func (rf *remoteFiles) silent() bool {
	rf.mu.Lock()
	defer rf.mu.Unlock()
	return len(rf.conns) == 0
}

func (rf *remoteFiles) close() {
	rf.mu.Lock()
	defer rf.mu.Unlock()
	if !rf.closed {
		rf.closed = true
		_ = unix.Shutdown(rf.ln, unix.SHUT_RDWR) // ends accept; connected relays stay until grun ends
		rf.cond.Broadcast()
	}
}
