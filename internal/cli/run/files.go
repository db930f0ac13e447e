package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/outpath"
	"gbatch/internal/proto"
	"gbatch/internal/stepio"
	"gbatch/internal/terminal"
)

// files.go gives tasks their standard files: grun's own if the data needs no change, named files if requested, and
// pipes if lines get labels or several tasks share the input.

// plumbing is the files of a step.
type plumbing struct {
	files   proto.StepFiles
	fds     []int      // in the order of the message
	ends    []*os.File // the tasks' ends of pipes and files opened here: closed once all tasks have them
	readers sync.WaitGroup
	mu      sync.Mutex       // lines of different tasks don't mix
	inputs  []io.WriteCloser // the writing ends of the tasks' inputs
	keep    []*os.File       // files for output

	ranks  int          // tasks of the step
	first  int          // tasks of the command's steps before it
	all    int          // tasks of all the command's steps
	mine   []int32      // tasks that get open files directly
	sinks  [3]sink      // destinations of the other tasks' output
	wired  bool         // other tasks read from, or write to, this command
	feeds  bool         // some of them read this command's input
	remote *remoteFiles // files of the other tasks; nil: there are none, or they need nothing

	moveMu  sync.Mutex
	writing int       // writes of output that have not returned
	wrote   time.Time // when the last one began or returned

	guests     guests
	direct     [3]int           // the files that tasks write to by themselves
	follows    [3]bool          // guests read them
	inMu       sync.Mutex       // guests give input too
	everyInput []io.WriteCloser // of each of mine; nil: that one has another input

	terminal *os.File // the master side of task 0's terminal, if that is on this host
}

// sink is a destination of output: a file, with labels or without. A negative fd means none.
type sink struct {
	fd     int
	label  bool
	stream uint8
}

// plumb opens the files of the step's tasks. direct is the node whose tasks get open files; het is the step's place
// among several.
func (r *run) plumb(step int32, ranks int, layout []proto.StepNode, direct string, v outpath.Values,
	het *proto.StepHet) (pl *plumbing, err error) {
	pl = &plumbing{ranks: ranks, all: ranks, sinks: [3]sink{{fd: -1}, {fd: -1, stream: 1}, {fd: -1, stream: 2}}}
	if het != nil {
		pl.files.Het, pl.first, pl.all = het, int(het.FirstTask), int(het.Tasks)
	}
	for i := range layout {
		if layout[i].Node == direct {
			pl.mine = layout[i].Ranks
		}
	}
	defer func(made *plumbing) {
		if err != nil {
			made.closeEnds()
			pl = nil
		}
	}(pl)
	v.Step = strconv.Itoa(int(step))
	if len(layout) == 1 {
		v.Node = layout[0].Node
	}
	if r.rq.Terminal != nil {
		if err := r.plumbTerminal(pl); err != nil {
			return nil, fmt.Errorf("--pty: %w", err)
		}
		return pl, r.plumbRemote(pl, layout, direct)
	}
	modes := [3]string{r.in, r.out, r.err}
	if modes[2] == "" && modes[1] != "" {
		if _, err := strconv.Atoi(modes[1]); err != nil && modes[1] != "all" {
			modes[2] = modes[1]
		}
	}
	for i, mode := range modes {
		f := proto.StepFile{Append: r.append}
		var fds []int
		task, terr := strconv.Atoi(mode)
		switch {
		case mode == "none":
			f.Mode = proto.FileNull
		case terr == nil && (task < 0 || task >= pl.all):
			return nil, fmt.Errorf("'%s' is none of the step's tasks 0 to %d", mode, pl.all-1)
		case terr == nil && (task < pl.first || task >= pl.first+ranks): // it is another component's
			f.Mode = proto.FileNull
		case terr == nil:
			f.Mode, f.Task = proto.FileOne, int32(task-pl.first)
			fds, err = pl.ofOne(i, f.Task)
		case mode == "" || mode == "all":
			f.Mode, fds, err = r.ownFile(pl, i)
		case i == 2 && mode == modes[1]:
			f = pl.files.Files[1]
			pl.sinks[2] = pl.sinks[1]
			if pl.sinks[2].stream = 2; f.Mode == proto.FileShared || f.Mode == proto.FileEach {
				f.Mode, fds, err = pl.output(pl.sinks[2])
			}
		default:
			if !filepath.IsAbs(mode) {
				mode = filepath.Join(r.rq.Dir, mode)
			}
			if i == 0 && !outpath.PerTask(mode) && !outpath.PerNode(mode) { // one file for all: report its error once, here
				file, err := os.Open(outpath.Expand(mode, v))
				if err != nil {
					return nil, fmt.Errorf("Could not open stdin file %s: %w", mode, reason(err))
				}
				_ = file.Close() // opened only as a check
			}
			if i == 0 || outpath.PerTask(mode) || len(layout) > 1 && outpath.PerNode(mode) {
				f.Mode, f.Pattern, f.Label = proto.FilePath, mode, i > 0 && r.label
				break
			}
			flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND
			name, first := outpath.Expand(mode, v), v
			if het != nil {
				first.JobID = uint32(het.Job)
			}
			if !r.append && (pl.first == 0 || name != outpath.Expand(mode, first)) { // else it is the first component's
				flags |= os.O_TRUNC
			}
			var file *os.File
			if file, err = os.OpenFile(name, flags, 0o666); err != nil {
				return nil, fmt.Errorf("Could not open %s file %s: %w", [...]string{"stdin", "stdout", "stderr"}[i], name,
					reason(err))
			}
			pl.keep = append(pl.keep, file)
			pl.sinks[i] = sink{int(file.Fd()), r.label, uint8(i)}
			f.Mode, fds, err = pl.output(pl.sinks[i])
		}
		if err != nil {
			return nil, err
		}
		f.FDs = pl.announce(i, f.Mode, fds)
		pl.files.Files = append(pl.files.Files, f)
		pl.fds = append(pl.fds, fds...)
	}
	return pl, r.plumbRemote(pl, layout, direct)
}

// ofOne gives one of grun's own files to one task alone.
func (pl *plumbing) ofOne(i int, task int32) (fds []int, err error) {
	mine := slices.Contains(pl.mine, task)
	switch {
	case mine && i == 0 && isTerminal(i):
		return pl.inputPipes(task)
	case mine:
		return []int{i}, nil
	case i == 0:
		pl.wired, pl.feeds = true, true
	default:
		pl.wired, pl.sinks[i] = true, sink{i, false, uint8(i)}
	}
	return nil, nil
}

// announce gives the number of open files, and remembers the one that tasks write to by themselves, and whether it can
// be read (guests.go).
func (pl *plumbing) announce(i int, mode uint8, fds []int) int32 {
	if i > 0 && len(fds) == 1 && (mode == proto.FileShared || mode == proto.FileOne) {
		var st unix.Stat_t
		pl.direct[i] = fds[0]
		pl.follows[i] = unix.Fstat(fds[0], &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
	}
	return int32(len(fds))
}

// plumbRemote listens for the relays of tasks on other hosts, if these read from or write to this command.
func (r *run) plumbRemote(pl *plumbing, layout []proto.StepNode, direct string) (err error) {
	if pl.ranks == len(pl.mine) || !pl.wired {
		return nil
	}
	if pl.remote, err = pl.listen(layout, direct); err == nil {
		pl.files.IO = &proto.StepIO{Port: pl.remote.port, Key: pl.remote.key}
	}
	return err
}

// wires reports whether some of a node's tasks read from or write to this command.
func (pl *plumbing) wires(n *proto.StepNode) bool {
	return slices.ContainsFunc(pl.files.Files, func(f proto.StepFile) bool {
		return f.Mode == proto.FileShared || f.Mode == proto.FileEach ||
			f.Mode == proto.FileOne && slices.Contains(n.Ranks, f.Task)
	})
}

// ownFile passes on one of grun's own files.
func (r *run) ownFile(pl *plumbing, i int) (mode uint8, fds []int, err error) {
	others := pl.ranks > len(pl.mine)
	switch {
	case i == 0 && r.send != nil:
		pl.wired, pl.feeds = pl.wired || others, others
		fds, err = pl.inputPipes(pl.mine...)
		return proto.FileEach, fds, err
	case !isOpen(i), i == 0 && others && isNull(0):
		return proto.FileNull, nil, nil // closed: the tasks get /dev/null
	case i == 0 && (pl.all > 1 && !isNull(0) || others || isTerminal(0)): // a shell takes a terminal for its own
		pl.wired, pl.feeds = pl.wired || others, others
		fds, err = pl.inputPipes(pl.mine...)
		return proto.FileEach, fds, err
	case i > 0:
		pl.sinks[i] = sink{i, r.label, uint8(i)}
		return pl.output(pl.sinks[i])
	case len(pl.mine) > 0:
		return proto.FileShared, []int{i}, nil
	}
	return proto.FileNull, nil, nil
}

// output connects tasks to a destination.
func (pl *plumbing) output(to sink) (mode uint8, fds []int, err error) {
	pl.wired = pl.wired || pl.ranks > len(pl.mine)
	switch {
	case to.label:
		fds, err = pl.pipes(to)
		return proto.FileEach, fds, err
	case len(pl.mine) > 0:
		return proto.FileShared, []int{to.fd}, nil
	}
	return proto.FileShared, nil, nil
}

// reason gives the cause of a file's error, without its name.
func reason(err error) error {
	var e *os.PathError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

func isOpen(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}

func isTerminal(fd int) bool {
	_, err := terminal.ModesOf(fd)
	return err == nil
}

func isNull(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}

// pipes makes a pipe for each task, and copies its lines to a file with labels.
func (pl *plumbing) pipes(to sink) (fds []int, err error) {
	for _, task := range pl.mine {
		out, in, err := os.Pipe()
		if err != nil {
			return nil, fmt.Errorf("make a pipe for task %d: %w", task, err)
		}
		pl.ends = append(pl.ends, in)
		fds = append(fds, int(in.Fd()))
		pl.readers.Go(func() {
			pl.copyLines(int(task), out, to)
			_ = out.Close() // it was only read
		})
	}
	return fds, nil
}

// copyLines writes each line of a task with its number before it.
func (pl *plumbing) copyLines(task int, p io.Reader, to sink) {
	l := pl.labeller(task, to.fd)
	buf := make([]byte, 32<<10)
	for {
		n, err := p.Read(buf)
		pl.guests.copy(to.stream, int32(task), buf[:n])
		l.take(buf[:n], err != nil)
		if err != nil {
			return
		}
	}
}

// labeller puts a task's number before its lines.
type labeller struct {
	pl *plumbing
	to int
	stepio.Labeller
}

func (pl *plumbing) labeller(task, to int) *labeller {
	return &labeller{pl, to, stepio.Labeller{Label: stepio.LabelOf(pl.first+task, pl.all)}}
}

// take writes the lines that data completes, and at the end also the rest.
func (l *labeller) take(data []byte, end bool) { l.pl.put(l.to, l.Take(data, end)) }

// put writes to a file and drops the text on errors, as when no reader is left.
func (pl *plumbing) put(to int, text []byte) {
	pl.moved(1)
	defer pl.moved(-1)
	pl.mu.Lock()
	defer pl.mu.Unlock()
	for len(text) > 0 {
		n, err := unix.Write(to, text)
		if err == unix.EAGAIN { // the next write tells
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(to), Events: unix.POLLOUT}}, -1)
			continue
		}
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return
		}
		text = text[n:]
	}
}

// moved notes that output is written: one more, or one less.
func (pl *plumbing) moved(more int) {
	pl.moveMu.Lock()
	defer pl.moveMu.Unlock()
	pl.writing, pl.wrote = pl.writing+more, time.Now()
}

// still gives the time after which nothing more is waited for if no output comes; 0: now.
func (pl *plumbing) still() time.Duration {
	pl.moveMu.Lock()
	defer pl.moveMu.Unlock()
	if pl.writing > 0 {
		return drainOutput
	}
	return max(0, drainOutput-time.Since(pl.wrote))
}

// inputPipes makes a pipe for the input of each of these tasks. feed fills them.
func (pl *plumbing) inputPipes(tasks ...int32) (fds []int, err error) {
	pl.everyInput = make([]io.WriteCloser, len(pl.mine))
	for _, task := range tasks {
		out, in, err := os.Pipe()
		if err != nil {
			return nil, fmt.Errorf("make a pipe for task %d: %w", task, err)
		}
		pl.ends = append(pl.ends, out)
		q := stepio.NewQueue(in)
		pl.inputs = append(pl.inputs, q)
		pl.everyInput[slices.Index(pl.mine, task)] = q
		fds = append(fds, int(out.Fd()))
	}
	return fds, nil
}

// feed copies grun's input to all tasks of all steps.
func feed(all []*plumbing) {
	buf := make([]byte, 32<<10)
	reads := func(pl *plumbing) bool { return len(pl.inputs) > 0 || pl.feeds }
	for slices.ContainsFunc(all, reads) {
		n, err := unix.Read(0, buf)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			break
		}
		for _, pl := range all {
			pl.pour(buf[:n])
		}
	}
	for _, pl := range all {
		pl.endInput()
		if pl.feeds {
			pl.remote.feed(nil)
		}
	}
}

// pour gives data to the tasks that still read.
func (pl *plumbing) pour(data []byte) {
	pl.inMu.Lock()
	defer pl.inMu.Unlock()
	keep := pl.inputs[:0]
	for _, in := range pl.inputs {
		if _, err := in.Write(data); err == nil {
			keep = append(keep, in)
		} else {
			_ = in.Close() // that task has stopped reading
		}
	}
	pl.inputs = keep
	if pl.feeds {
		pl.feeds = pl.remote.feed(data)
	}
}

// closeEnds closes this process's copies of the tasks' ends, so that the pipes end when the tasks close theirs.
func (pl *plumbing) closeEnds() {
	for _, f := range pl.ends {
		_ = f.Close() // the tasks have their own
	}
	pl.ends = nil
}

// closeKept closes the files that were opened for output.
func (pl *plumbing) closeKept() {
	for _, f := range pl.keep {
		_ = f.Close() // the writers report errors
	}
	pl.keep = nil
}

// valuesOf gives the job's values for patterns in file names.
func valuesOf(ev *proto.StepEvent, rq *proto.StepRequest) outpath.Values {
	v := outpath.Values{JobID: uint32(rq.Job), JobName: rq.Name}
	if j := ev.Job; j != nil {
		v.User = j.User
		if v.JobName = j.Name; j.Task >= 0 {
			v.ArrayJob, v.Task = uint32(j.ArrayID), uint32(j.Task)
		}
	}
	if host, err := os.Hostname(); err == nil {
		v.Node, _, _ = strings.Cut(host, ".")
	}
	return v
}
