package steprelay

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/stepio"
	"gbatch/internal/terminal"
	"gbatch/noded/gpuoom"
	"gbatch/noded/shim"
)

// Word is the first argument that makes gshim's program run this one.
const Word = "step-io"

// Exit statuses.
const (
	exitOrder   = 2
	ExitNoReach = 3 // the command could not be reached
	exitLost    = 4 // the command is gone
)

const (
	dialFor   = 20 * time.Second
	dialPace  = 200 * time.Millisecond
	lineWait  = 100 * time.Millisecond // how long an incomplete line waits for its end
	readBytes = 32 << 10
	maxOrder  = 1 << 20
	fdsAtOnce = 120
)

// Order has the command's address and the pipes.
type Order struct {
	Addr  string // host:port
	Key   []byte
	Node  int32 // this node's place in the step
	Pipes []Pipe
	GPU   bool // the tasks have GPUs: the exit status says if one had too little memory (noded/gpuoom)
}

// gpuWord is in the order of tasks that have GPUs.
const gpuWord = "gpu"

// Pipe is the relay's end of one task's stream; if the stream is stepio.Terminal, it is the other side of the task's
// terminal, for input and output. If it is stepio.Ended, gshim writes the ends of all tasks there, and Rank is how many
// these are.
type Pipe struct {
	Rank   int32
	Stream uint8
	File   *os.File
}

func (p *Pipe) terminal() bool { return p.Stream == stepio.Terminal }

// Send writes an order on the socket whose other end is the relay's standard input. It does not wait for the relay.
func Send(sock int, o *Order) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %x %d", o.Addr, o.Key, o.Node)
	if o.GPU {
		b.WriteString(" " + gpuWord)
	}
	b.WriteByte('\n')
	files := make([]*os.File, 0, len(o.Pipes))
	for _, p := range o.Pipes {
		fmt.Fprintf(&b, "%d %d\n", p.Rank, p.Stream)
		files = append(files, p.File)
	}
	return SendLines(sock, b.String(), files)
}

// SendLines writes a text and open files on a socket.
func SendLines(sock int, text string, files []*os.File) error {
	head := fmt.Appendf(nil, "%08x", len(text))
	if _, err := unix.Write(sock, append(head, text...)); err != nil {
		return os.NewSyscallError("write", err)
	}
	fds := make([]int, 0, len(files))
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	for len(fds) > 0 {
		n := min(len(fds), fdsAtOnce)
		if err := unix.Sendmsg(sock, []byte{0}, unix.UnixRights(fds[:n]...), nil, 0); err != nil {
			return os.NewSyscallError("sendmsg", err)
		}
		fds = fds[n:]
	}
	return nil
}

// TakeLines reads what SendLines has written, without the files.
func TakeLines(sock int) ([]string, error) {
	head := make([]byte, 8)
	if err := full(sock, head); err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(string(head), 16, 32)
	if err != nil || n > maxOrder {
		return nil, fmt.Errorf("an order of %q bytes", head)
	}
	text := make([]byte, n)
	if err := full(sock, text); err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), nil
}

// Ranks reads the ranks of tasks, one a line.
func Ranks(lines []string) ([]int32, error) {
	var out []int32
	for _, line := range lines {
		r, err := strconv.ParseInt(line, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("the order %q: %w", line, err)
		}
		out = append(out, int32(r))
	}
	return out, nil
}

// TakeFiles reads the n files of SendLines.
func TakeFiles(sock, n int) ([]*os.File, error) {
	var out []*os.File
	for len(out) < n {
		fds, err := rights(sock)
		if err != nil {
			return nil, err
		}
		for _, fd := range fds {
			if len(out) == n {
				return nil, errors.New("more files than were announced")
			}
			if err := unix.SetNonblock(fd, true); err != nil { // so that reading one has a time limit
				return nil, err
			}
			out = append(out, os.NewFile(uintptr(fd), "a task's file"))
		}
	}
	return out, nil
}

// take reads an order from the socket.
func take(sock int) (*Order, error) {
	lines, err := TakeLines(sock)
	if err != nil {
		return nil, err
	}
	o := &Order{}
	var key string
	if _, err := fmt.Sscanf(lines[0], "%s %s %d", &o.Addr, &key, &o.Node); err != nil {
		return nil, fmt.Errorf("the order %q: %w", lines[0], err)
	}
	o.GPU = strings.HasSuffix(lines[0], " "+gpuWord)
	if o.Key, err = hex.DecodeString(key); err != nil {
		return nil, err
	}
	for _, line := range lines[1:] {
		var p Pipe
		if _, err := fmt.Sscanf(line, "%d %d", &p.Rank, &p.Stream); err != nil {
			return nil, fmt.Errorf("the order %q: %w", line, err)
		}
		o.Pipes = append(o.Pipes, p)
	}
	files, err := TakeFiles(sock, len(o.Pipes))
	if err != nil {
		return nil, err
	}
	for i := range o.Pipes {
		o.Pipes[i].File = files[i]
	}
	return o, nil
}

func full(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Read(fd, b)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return os.NewSyscallError("read", err)
		case n == 0:
			return io.ErrUnexpectedEOF
		}
		b = b[n:]
	}
	return nil
}

func rights(sock int) ([]int, error) {
	var one [1]byte
	oob := make([]byte, unix.CmsgSpace(4*fdsAtOnce))
	n, oobn, _, _, err := unix.Recvmsg(sock, one[:], oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n == 0 {
		return nil, fmt.Errorf("the pipes did not come: %w", orEOF(err))
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, err
	}
	var out []int
	for i := range msgs {
		if fds, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			out = append(out, fds...)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the pipes did not come")
	}
	return out, nil
}

func orEOF(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Main is the program. It returns the exit status.
func Main(stderr io.Writer) int {
	IgnoreSignals()
	told := tasksOverSignal()
	o, err := take(0)
	if err != nil {
		fmt.Fprintln(stderr, "gshim step-io:", err)
		return exitOrder
	}
	nc, err := Dial(o.Addr)
	if err != nil {
		return ExitNoReach
	}
	defer nc.Close() //nolint:errcheck // all is written, or has no reader
	c, err := stepio.Hail(nc, o.Key, o.Node)
	if err != nil {
		return ExitNoReach
	}
	all := nc.Close
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		all = half.CloseWrite
	}
	return serve(c, o.Pipes, o.GPU, told, all)
}

// IgnoreSignals leaves signals to the tasks, whose group this process is in.
func IgnoreSignals() {
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM,
		unix.SIGPIPE, unix.SIGXCPU,
		unix.SIGVTALRM, unix.SIGPROF, unix.SIGWINCH, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
}

// Dial connects to the command. The command listens before the relay starts, so Dial waits only for a busy network.
func Dial(addr string) (net.Conn, error) {
	give := time.Now().Add(dialFor)
	for {
		nc, err := net.DialTimeout("tcp", addr, time.Until(give))
		if err == nil {
			return nc, bound(nc)
		}
		if errors.Is(err, unix.ECONNREFUSED) || time.Now().Add(dialPace).After(give) {
			return nil, err
		}
		time.Sleep(dialPace)
	}
}

// bound makes a connection end when the command's host is silent.
func bound(nc net.Conn) error {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Control(func(fd uintptr) { serr = stepio.Bound(int(fd), stepio.LostAfter) })
	return errors.Join(err, serr)
}

// serve moves data until the tasks' outputs have ended, and the command has read them, however slow it is. With gpu it
// looks for a lack of GPU memory in them. told is gnoded's word that all tasks have ended, and all says to the command
// that nothing more comes.
func serve(c *stepio.Conn, pipes []Pipe, gpu bool, told <-chan os.Signal, all func() error) int {
	seen := make([]gpuoom.Watch, len(pipes))
	var outs sync.WaitGroup
	inputs := map[int32]Pipe{}
	lost := make(chan struct{})
	var once sync.Once
	gone := func() { once.Do(func() { close(lost) }) }
	end := newRest(drainFor)
	outputs := 0
	for _, p := range pipes {
		if p.Stream == 0 || p.terminal() {
			inputs[p.Rank] = p
		}
		if p.Stream != 0 && p.Stream != stepio.Ended {
			end.files = append(end.files, p.File)
			outputs++
		}
	}
	for i, p := range pipes {
		switch {
		case p.Stream == 0:
		case p.Stream == stepio.Ended:
			outs.Go(func() {
				if hearEnds(p.File, int(p.Rank), told, end.begin, func(w *shim.EndWord) error {
					return c.Write(stepio.Ended, w.Task, stepio.EndData(w.Code, w.Signal))
				}) != nil {
					gone()
				}
			})
		default:
			var w *gpuoom.Watch
			if gpu {
				w = &seen[i]
			}
			outs.Go(func() {
				if copyOut(c, &p, w, end) != nil {
					gone()
				}
			})
		}
	}
	fed := make(chan struct{})
	go func() {
		feed(c, inputs)
		gone()
		close(fed)
	}()
	done := make(chan struct{})
	go func() {
		if outs.Wait(); outputs == 0 {
			select {
			case <-fed:
			case <-end.begun:
			}
		}
		close(done)
	}()
	select {
	case <-done:
	case <-lost:
		return exitLost
	}
	for _, p := range pipes {
		if p.Stream == 0 {
			_ = p.File.SetWriteDeadline(time.Unix(1, 0)) // it is closed; what does not read holds nothing up
		}
	}
	if all() == nil { // to close it before the command has read everything would drop the rest
		<-fed
	}
	for i := range seen {
		if code := seen[i].Code(); code != 0 {
			return code
		}
	}
	return 0
}

// copyOut sends a task's output, in whole lines if they come soon enough. A terminal's output is sent at once. w sees
// it too, unless it is nil.
func copyOut(c *stepio.Conn, p *Pipe, w *gpuoom.Watch, end *rest) error {
	buf := make([]byte, 0, 2*readBytes)
	stream := p.Stream
	if p.terminal() {
		stream = 1
	}
	last := lastBytes{file: p.File}
	for {
		var until time.Time
		if len(buf) > 0 {
			until = time.Now().Add(lineWait)
		}
		if err := end.deadline(p.File, until); err != nil {
			return err
		}
		n, err := p.File.Read(buf[len(buf):min(cap(buf), len(buf)+readBytes)])
		if errors.Is(err, os.ErrDeadlineExceeded) && end.over() {
			n, err = last.read(buf[len(buf):min(cap(buf), len(buf)+readBytes)])
		}
		if w != nil {
			w.See(buf[len(buf) : len(buf)+n])
		}
		buf = buf[:len(buf)+n]
		send := bytes.LastIndexByte(buf, '\n') + 1
		if err != nil || len(buf) >= readBytes || p.terminal() {
			send = len(buf)
		}
		if send > 0 {
			if werr := c.Write(stream, p.Rank, buf[:send]); werr != nil {
				return werr
			}
			buf = append(buf[:0], buf[send:]...)
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return c.Write(stream, p.Rank, nil)
		}
	}
}

// feed gives tasks their input. It ends with the connection.
func feed(c *stepio.Conn, inputs map[int32]Pipe) {
	queues := map[int32]*stepio.Queue{}
	for rank, in := range inputs {
		if !in.terminal() {
			queues[rank] = stepio.NewQueue(in.File)
		}
	}
	end := func(rank int32) {
		_ = queues[rank].Close() // its input has ended, or it no longer reads
		delete(queues, rank)
		delete(inputs, rank)
	}
	for {
		f, err := c.Read()
		if err != nil {
			return
		}
		for rank, in := range inputs {
			data := f.Data
			switch {
			case f.Rank != rank && f.Rank != stepio.AllRanks:
				continue
			case f.Stream == stepio.Terminal && in.terminal():
				if size, ok := stepio.SizeOf(data); ok {
					control(in.File, func(fd int) { _ = terminal.Resize(fd, size) }) // fails if its task has ended
				}
				continue
			case f.Stream != 0:
				continue
			case len(data) == 0 && in.terminal():
				control(in.File, func(fd int) { data = terminal.EndOfInput(fd) })
			case len(data) == 0:
				end(rank)
				continue
			}
			if in.terminal() {
				_, _ = in.File.Write(data) // its task has ended
			} else if _, err := queues[rank].Write(data); err != nil {
				end(rank)
			}
		}
	}
}

// control calls f with a file's descriptor; Fd would make it blocking.
func control(file *os.File, f func(fd int)) {
	if c, err := file.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { f(int(fd)) }) // it is closed
	}
}
