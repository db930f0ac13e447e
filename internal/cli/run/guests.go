package run

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/proto"
	"gbatch/internal/stepio"
)

// guests.go is grun's part of gattach: who attaches to its step gets what the tasks write from then on. What passes
// through grun is copied; what tasks write to a file directly is read from the file. A terminal or a pipe that tasks
// write to directly can't be copied, and the guest is told.

const (
	maxGuests   = 16                     // of a step
	guestQueue  = 256                    // pieces of output that wait for a guest; one that reads more slowly is dropped
	guestDial   = 10 * time.Second       // to connect and to authenticate
	followPace  = 200 * time.Millisecond // between two looks at a file
	followBytes = 32 << 10
	guestLast   = 2 * time.Second // for guests to take the last output
)

// Streams of frames to and from a guest, beside the tasks' own.
const (
	guestNote = 8 // a line for the user
	guestEnd  = 9 // the step has ended; the rank is its exit code
)

// guests are those who have attached to a step.
type guests struct {
	mu   sync.Mutex
	list []*guest
	over bool

	followers sync.WaitGroup // who reads files for them
	all       sync.WaitGroup // their connections
}

// guest is one of them.
type guest struct {
	queue chan stepio.Frame
	gone  chan struct{} // closed with its connection
	once  sync.Once
}

func (g *guest) leave() { g.once.Do(func() { close(g.gone) }) }

// put gives a guest a piece of output.
func (g *guest) put(f stepio.Frame) {
	select {
	case g.queue <- f:
	case <-g.gone:
	default:
		g.leave()
	}
}

// tell gives a guest a piece that must not be lost.
func (g *guest) tell(f stepio.Frame) {
	select {
	case g.queue <- f:
	case <-g.gone:
	case <-time.After(guestLast):
		g.leave()
	}
}

// copy gives all guests a piece of a task's output.
func (gs *guests) copy(stream uint8, rank int32, data []byte) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if len(gs.list) == 0 || len(data) == 0 {
		return
	}
	f := stepio.Frame{Stream: stream, Rank: rank, Data: slices.Clone(data)}
	for _, g := range gs.list {
		g.put(f)
	}
}

// joined lets somebody attach.
func (t *talk) joined(at *proto.StepIO) {
	pl := t.pl
	if pl == nil || at == nil {
		return // the step has no tasks yet: the guest's time runs out
	}
	gs := &pl.guests
	g := &guest{queue: make(chan stepio.Frame, guestQueue), gone: make(chan struct{})}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.over || len(gs.list) >= maxGuests {
		return // as above
	}
	gs.list = append(gs.list, g)
	if t.rq.Terminal == nil { // a terminal's output passes through this process
		pl.follow(g, 1)
		pl.follow(g, 2)
	}
	gs.all.Add(1)
	go func() {
		defer gs.all.Done()
		pl.serve(g, at)
		g.leave()
		gs.mu.Lock()
		defer gs.mu.Unlock()
		gs.list = slices.DeleteFunc(gs.list, func(o *guest) bool { return o == g })
	}()
}

func note(text string) stepio.Frame { return stepio.Frame{Stream: guestNote, Data: []byte(text)} }

// follow reads for a guest what tasks write to a file of theirs.
func (pl *plumbing) follow(g *guest, stream int) {
	name := [...]string{"", "standard output", "standard error"}[stream]
	f := &pl.files.Files[stream]
	switch {
	case f.Mode == proto.FilePath:
		g.put(note("the tasks' " + name + " goes to files: " + f.Pattern))
		return
	case f.Mode != proto.FileShared && f.Mode != proto.FileOne || len(pl.mine) == 0 || f.FDs == 0:
		return // it passes through this process
	}
	fd := pl.direct[stream]
	var st, out unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		if !isNull(fd) {
			g.put(note("the tasks' " + name + " goes to a terminal or a pipe, past their command, and can't be copied; with " +
				"--label, or in a file, it can"))
		} else {
			g.put(note("the tasks' " + name + " goes to /dev/null; with --label, or in a file, it can be copied"))
		}
		return
	}
	if stream == 2 && unix.Fstat(pl.direct[1], &out) == nil && out.Dev == st.Dev && out.Ino == st.Ino {
		return // it is in the output already
	}
	file, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		g.put(note(fmt.Sprintf("the file of the tasks' %s can't be read: %v", name, reason(err))))
		return
	}
	pl.guests.followers.Add(1)
	go func() {
		defer pl.guests.followers.Done()
		defer file.Close() //nolint:errcheck // it was only read
		pl.readOn(g, uint8(stream), file, st.Size)
	}()
}

// readOn gives a guest what comes into a file, until the step or the guest's connection has ended.
func (pl *plumbing) readOn(g *guest, stream uint8, file *os.File, at int64) {
	buf := make([]byte, followBytes)
	for {
		ended := pl.guests.ended()
		for {
			n, err := file.ReadAt(buf, at)
			if n > 0 {
				g.tell(stepio.Frame{Stream: stream, Rank: stepio.AllRanks, Data: slices.Clone(buf[:n])})
				at += int64(n)
			}
			if err != nil || n == 0 {
				break
			}
		}
		if st, err := file.Stat(); err == nil && st.Size() < at { // it was truncated
			at = st.Size()
		}
		if ended {
			return
		}
		select {
		case <-g.gone:
			return
		case <-time.After(followPace):
		}
	}
}

func (gs *guests) ended() bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.over
}

// serve is the connection to one guest.
func (pl *plumbing) serve(g *guest, at *proto.StepIO) {
	f, err := dialGuest(at)
	if err != nil {
		return // it has gone
	}
	defer f.Close() //nolint:errcheck // the guest says what it has not got
	if f.SetDeadline(time.Now().Add(guestDial)) != nil {
		return
	}
	c, err := stepio.Hail(f, at.Key, 0)
	if err != nil || f.SetDeadline(time.Time{}) != nil {
		return
	}
	go func() { // it ends with the connection
		defer g.leave()
		for {
			fr, err := c.Read()
			if err != nil {
				return
			}
			if fr.Stream == 0 && len(fr.Data) > 0 {
				pl.giveInput(fr.Rank, fr.Data)
			}
		}
	}()
	for {
		select {
		case fr := <-g.queue:
			if c.Write(fr.Stream, fr.Rank, fr.Data) != nil || fr.Stream == guestEnd {
				return
			}
		case <-g.gone:
			return
		}
	}
}

// dialGuest connects to where a guest listens.
func dialGuest(at *proto.StepIO) (*os.File, error) {
	var to unix.Sockaddr
	family := unix.AF_INET6
	if v4, ok := parseV4(at.Host); ok {
		to, family = &unix.SockaddrInet4{Port: int(at.Port), Addr: v4}, unix.AF_INET
	} else if v6, ok := parseV6(at.Host); ok {
		to = &unix.SockaddrInet6{Port: int(at.Port), Addr: v6}
	} else {
		return nil, fmt.Errorf("'%s' is no address", at.Host)
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	wait := unix.NsecToTimeval(int64(guestDial))
	if err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait); err == nil { // bounds connect too
		err = unix.Connect(fd, to)
	}
	if err == nil {
		err = stepio.Bound(fd, stepio.LostAfter)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		_ = unix.Close(fd) // it was never used
		return nil, err
	}
	return os.NewFile(uintptr(fd), "a guest"), nil
}

// parseV4 reads an IPv4 address. (Package netip is too large for commands.)
func parseV4(text string) (ip [4]byte, ok bool) {
	parts := strings.Split(text, ".")
	if len(parts) != len(ip) {
		return ip, false
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 8)
		if err != nil {
			return ip, false
		}
		ip[i] = byte(n)
	}
	return ip, true
}

// parseV6 reads an IPv6 address in groups, with at most one ::.
func parseV6(text string) (ip [16]byte, ok bool) {
	head, tail, short := strings.Cut(text, "::")
	put := func(groups string, at int) bool {
		for _, g := range strings.Split(groups, ":") {
			n, err := strconv.ParseUint(g, 16, 16)
			if err != nil || at < 0 || at > len(ip)-2 {
				return false
			}
			ip[at], ip[at+1] = byte(n>>8), byte(n)
			at += 2
		}
		return true
	}
	if !short && strings.Count(head, ":") != 7 {
		return ip, false
	}
	if head != "" && !put(head, 0) {
		return ip, false
	}
	if tail != "" && !put(tail, len(ip)-2*(strings.Count(tail, ":")+1)) {
		return ip, false
	}
	return ip, short || head != ""
}

// giveInput gives what a guest types to the tasks that read from their command.
func (pl *plumbing) giveInput(rank int32, data []byte) {
	if rank == stepio.AllRanks {
		pl.pour(data)
		return
	}
	pl.inMu.Lock()
	defer pl.inMu.Unlock()
	if i := slices.Index(pl.mine, rank); i >= 0 && i < len(pl.everyInput) && pl.everyInput[i] != nil {
		_, _ = pl.everyInput[i].Write(data) // a task that reads no more
		return
	}
	if pl.feeds && pl.remote != nil {
		pl.remote.feedTo(rank, data)
	}
}

// endGuests tells the guests that the step has ended.
func (pl *plumbing) endGuests(rc int) {
	gs := &pl.guests
	gs.mu.Lock()
	gs.over = true
	list := slices.Clone(gs.list)
	gs.mu.Unlock()
	if len(list) == 0 {
		return
	}
	done := make(chan struct{})
	go func() {
		gs.followers.Wait()
		for _, g := range list {
			g.tell(stepio.Frame{Stream: guestEnd, Rank: int32(rc)})
		}
		gs.all.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(guestLast):
	}
}
