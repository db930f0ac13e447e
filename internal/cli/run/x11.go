package run

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/request"
	"gbatch/internal/proto"
	"gbatch/internal/stepio"
	"gbatch/internal/x11"
)

// x11.go is grun's end of --x11: connections of X clients among the tasks come to a port of its own, and go on to the
// display of the user, with the cookie of that display in place of the one that the tasks have.

// setX11 reads --x11.
func (r *run) setX11(v string) error {
	nodes, err := request.ParseX11(v, r.Getenv)
	if err == nil {
		r.x11 = &nodes
	}
	return err
}

// display is the X server of the user, on this host.
type display struct {
	to     unix.Sockaddr
	family int
	number int
	cookie []byte // nil: none is known
}

// displayOf reads DISPLAY: [HOST]:NUMBER[.SCREEN], or the path of a socket.
func (r *run) displayOf() (*display, error) {
	text := r.Getenv("DISPLAY")
	if strings.HasPrefix(text, "/") {
		return &display{to: &unix.SockaddrUnix{Name: text}, family: unix.AF_UNIX}, nil
	}
	at := strings.LastIndexByte(text, ':')
	number, _, _ := strings.Cut(text[at+1:], ".")
	n, err := strconv.ParseUint(number, 10, 16)
	if at < 0 || err != nil || n > 65535-x11.FirstPort {
		return nil, fmt.Errorf("DISPLAY=%s is no display: it has to be HOST:NUMBER", text)
	}
	d := &display{number: int(n)}
	switch host := text[:at]; host {
	case "", "unix":
		d.to, d.family = &unix.SockaddrUnix{Name: fmt.Sprintf("/tmp/.X11-unix/X%d", n)}, unix.AF_UNIX
	default:
		ip := [4]byte{127, 0, 0, 1} // where sshd listens
		if !ownName(host) {
			if _, err := fmt.Sscanf(host, "%d.%d.%d.%d", &ip[0], &ip[1], &ip[2], &ip[3]); err != nil {
				return nil, fmt.Errorf("DISPLAY=%s is on another host: forward it to this one, as ssh -X does", text)
			}
		}
		d.to, d.family = &unix.SockaddrInet4{Port: x11.FirstPort + d.number, Addr: ip}, unix.AF_INET
	}
	d.cookie = r.cookieOf(d.number)
	return d, nil
}

// ownName reports whether a display's host is this one, as sshd names it.
func ownName(host string) bool {
	own, err := os.Hostname()
	short, _, _ := strings.Cut(own, ".")
	return host == "localhost" || err == nil && (host == own || host == short)
}

// cookieOf gives the cookie of a display in the user's file; nil: there is none, and the X server may want none.
func (r *run) cookieOf(number int) []byte {
	path := r.Getenv("XAUTHORITY")
	if path == "" {
		path = filepath.Join(r.Getenv("HOME"), ".Xauthority")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(f, x11.MaxFile))
	if err != nil {
		return nil
	}
	host, _ := os.Hostname() // without it any entry of the number counts
	return x11.Find(text, host, number)
}

// dial connects to the X server.
func (d *display) dial() (*os.File, error) {
	fd, err := unix.Socket(d.family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(fd, d.to); err != nil {
		_ = unix.Close(fd) // it was never used
		return nil, os.NewSyscallError("connect", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd) // as above
		return nil, err
	}
	return os.NewFile(uintptr(fd), "an X server"), nil
}

// usable gives the display, if somebody listens there.
func (r *run) usable() (*display, error) {
	d, err := r.displayOf()
	if err != nil {
		return nil, err
	}
	probe, err := d.dial()
	if err != nil {
		return nil, fmt.Errorf("DISPLAY=%s can't be used: %w", r.Getenv("DISPLAY"), err)
	}
	_ = probe.Close() // it was only to look
	return d, nil
}

// serveX11 opens the port for the X clients of all steps, if they are to have the user's display. What galloc was asked
// for is no reason to fail where this command has no display.
func (s *steps) serveX11() error {
	first := s.all[0]
	asked := first.x11 != nil
	if v := first.Getenv(request.X11Env); !asked && (v == "" || first.setX11(v) != nil) {
		return nil
	}
	d, err := first.usable()
	if err != nil && !asked {
		first.Errorf("the tasks have no display: %v", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("--x11: %w", err)
	}
	key, err := stepio.NewKey()
	if err != nil {
		return err
	}
	ln, port, err := listenAny()
	if err != nil {
		return fmt.Errorf("listen for --x11: %w", err)
	}
	s.x11Port = ln
	for _, t := range s.all {
		t.pl.files.X11 = &proto.StepIO{Port: port, Key: key, Nodes: *first.x11}
	}
	go acceptEach(ln, func(f *os.File) { d.talk(f, key) }) // it ends with the port
	return nil
}

// talk passes an X client's connection on to the X server.
func (d *display) talk(f *os.File, key []byte) {
	defer f.Close() //nolint:errcheck // everything has been read
	if f.SetDeadline(time.Now().Add(remoteHello)) != nil {
		return
	}
	c, _, err := stepio.Answer(f, key)
	if err != nil {
		return // a stranger
	}
	from := &frames{c: c}
	begin, err := x11.Exchange(from, x11.Cookie(key), d.cookie)
	if err != nil || f.SetDeadline(time.Time{}) != nil {
		return // it has no right to the display
	}
	server, err := d.dial()
	if err != nil {
		return // the client says that it can't open the display
	}
	defer server.Close() //nolint:errcheck // as above
	if _, err := server.Write(append(begin, from.left.Bytes()...)); err == nil {
		x11.Splice(c, server)
	}
}

// frames reads an X client's first bytes. What comes with them is left.
type frames struct {
	c    *stepio.Conn
	left bytes.Buffer
}

func (r *frames) Read(b []byte) (int, error) {
	if r.left.Len() == 0 {
		f, err := r.c.Read()
		if err != nil {
			return 0, err
		}
		if len(f.Data) == 0 {
			return 0, io.EOF
		}
		r.left.Write(f.Data)
	}
	return r.left.Read(b)
}

func (s *steps) closeX11() { _ = unix.Shutdown(s.x11Port, unix.SHUT_RDWR) } // ends accept
