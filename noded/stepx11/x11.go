// Package stepx11 gives a step's tasks their user's display (grun --x11). A process beside the tasks takes the
// connections of X clients on this node and carries them to the step's command (internal/stepio), which passes them on
// to the X server.
//
// gnoded makes the listening socket and the file with the display's cookie, so that both are there before the first
// task. gshim starts the process in the step's control group, as the step's user, so it outlives gnoded, and ends with
// the step.
package stepx11

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/stepio"
	"gbatch/internal/x11"
	"gbatch/noded/steprelay"
)

// Word is the first argument that makes gshim's program run this one.
const Word = "step-x11"

const exitOrder = 2

// Limits.
const (
	firstDisplay = 20 // sshd begins at 10
	displays     = 480
	maxClients   = 256                    // of one step on a node at a time
	restS        = 100 * time.Millisecond // after a failed accept: too many open files
)

// Store has the files with the displays' cookies of one gnoded.
type Store struct {
	dir  string
	root bool
}

// Open makes the folder. With root, files are given to the steps' users.
func Open(dir string, root bool) (*Store, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("make the folder of displays' cookies: %w", err)
	}
	return &Store{dir: dir, root: root}, nil
}

func (s *Store) path(key proto.Attempt, step int32) string {
	return filepath.Join(s.dir, fmt.Sprintf("%d.%d.%d", key.Job, key.Attempt, step))
}

// Display is a step's display on this node.
type Display struct {
	Port *os.File // the listening socket
	Env  []string // what leads to it
}

// Make listens for a step's X clients, and writes the file with the cookie. The display's address is 127.0.0.1 and not
// localhost: where that is ::1 too, somebody else could listen there and be given the cookie.
func (s *Store) Make(key proto.Attempt, step int32, uid, gid uint32, secret []byte) (*Display, error) {
	var ln *net.TCPListener
	number := firstDisplay
	for ; ; number++ {
		var err error
		ln, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: x11.FirstPort + number})
		if err == nil {
			break
		}
		if number == firstDisplay+displays {
			return nil, fmt.Errorf("no display from %d to %d is free: %w", firstDisplay, number, err)
		}
	}
	defer ln.Close() //nolint:errcheck // the copy stays
	path := s.path(key, step)
	if err := s.write(path, x11.File(number, x11.Cookie(secret)), uid, gid); err != nil {
		return nil, fmt.Errorf("write the display's cookie: %w", err)
	}
	port, err := ln.File()
	if err != nil {
		return nil, err
	}
	return &Display{Port: port,
		Env: []string{fmt.Sprintf("DISPLAY=127.0.0.1:%d.0", number), "XAUTHORITY=" + path}}, nil
}

// write makes a file for a user. The folder is gnoded's own, so nobody else puts a link there.
func (s *Store) write(path string, text []byte, uid, gid uint32) error {
	f, err := os.CreateTemp(s.dir, ".new.*") // for root only, until it is whole
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil && s.root {
		err = f.Chown(int(uid), int(gid))
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // err says what is wrong
	}
	return err
}

// Remove removes the file of a step that has ended; most have none.
func (s *Store) Remove(key proto.Attempt, step int32) error {
	if err := os.Remove(s.path(key, step)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Sweep removes the files of attempts that this node does not have any more.
func (s *Store) Sweep(has func(proto.Attempt) bool) error {
	list, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		var key proto.Attempt
		if _, err := fmt.Sscanf(e.Name(), "%d.%d.", &key.Job, &key.Attempt); err != nil || !has(key) {
			if err := os.Remove(filepath.Join(s.dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// Order has the command's address and the listening socket.
type Order struct {
	Addr string // host:port
	Key  []byte
	Node int32 // this node's place in the step
	Port *os.File
}

// Send writes an order on the socket whose other end is the process's standard input. It does not wait for it.
func Send(sock int, o *Order) error {
	return steprelay.SendLines(sock, fmt.Sprintf("%s %x %d\n", o.Addr, o.Key, o.Node), []*os.File{o.Port})
}

// take reads an order from the socket.
func take(sock int) (*Order, error) {
	lines, err := steprelay.TakeLines(sock)
	if err != nil {
		return nil, err
	}
	words := strings.Fields(lines[0])
	if len(words) != 3 {
		return nil, fmt.Errorf("the order %q", lines[0])
	}
	node, err := strconv.ParseInt(words[2], 10, 32)
	if err != nil {
		return nil, err
	}
	o := &Order{Addr: words[0], Node: int32(node)}
	if o.Key, err = hex.DecodeString(words[1]); err != nil {
		return nil, err
	}
	files, err := steprelay.TakeFiles(sock, 1)
	if err != nil {
		return nil, err
	}
	o.Port = files[0]
	return o, nil
}

// Main is the program. It returns the exit status.
func Main(stderr io.Writer) int {
	steprelay.IgnoreSignals()
	o, err := take(0)
	if err != nil {
		fmt.Fprintln(stderr, "gshim step-x11:", err)
		return exitOrder
	}
	ln, err := net.FileListener(o.Port)
	if err != nil {
		fmt.Fprintln(stderr, "gshim step-x11:", err)
		return exitOrder
	}
	room := make(chan struct{}, maxClients)
	for {
		nc, err := ln.Accept()
		if err != nil {
			time.Sleep(restS)
			continue
		}
		select {
		case room <- struct{}{}:
			go func() {
				o.carry(nc)
				<-room
			}()
		default:
			_ = nc.Close() // the client says that it can't open the display
		}
	}
}

// carry carries one client's connection to the command, until either side ends.
func (o *Order) carry(client net.Conn) {
	defer client.Close() //nolint:errcheck // all is written, or has no reader
	nc, err := steprelay.Dial(o.Addr)
	if err != nil {
		return
	}
	defer nc.Close() //nolint:errcheck // as above
	c, err := stepio.Hail(nc, o.Key, o.Node)
	if err != nil {
		return
	}
	x11.Splice(c, client)
}
