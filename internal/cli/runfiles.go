package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"gbatch/internal/outpath"
	"gbatch/internal/proto"
)

// runfiles.go gives tasks their standard files: grun's own where nothing has to be done with what goes through them,
// files where asked for, pipes where lines get labels or the input goes to several tasks.

// maxHeldLine is how much of a line without an end is kept for its label, bytes.
const maxHeldLine = 64 << 10

// plumbing is the files of a step.
type plumbing struct {
	files   proto.StepFiles
	fds     []int      // in the order of the message
	ends    []*os.File // the tasks' ends of pipes and files opened here: closed when all tasks have theirs
	readers sync.WaitGroup
	mu      sync.Mutex // lines of different tasks don't mix
	inputs  []*os.File // the writing ends of the tasks' inputs
}

// plumb opens what the step's tasks need. ranks is the number of tasks.
func (r *run) plumb(step int32, ranks int, layout []proto.StepNode, v outpath.Values) (pl *plumbing, err error) {
	pl = &plumbing{}
	defer func() {
		if err != nil {
			pl.closeEnds()
		}
	}()
	v.Step = strconv.Itoa(int(step))
	if len(layout) == 1 {
		v.Node = layout[0].Node
	}
	modes := [3]string{r.in, r.out, r.err}
	if modes[2] == "" && modes[1] != "" {
		if _, err := strconv.Atoi(modes[1]); err != nil && modes[1] != "all" {
			modes[2] = modes[1]
		}
	}
	var sharedOut int
	for i, mode := range modes {
		f := proto.StepFile{Append: r.append}
		var fds []int
		task, terr := strconv.Atoi(mode)
		switch {
		case mode == "none":
			f.Mode = proto.FileNull
		case terr == nil && (task < 0 || task >= ranks):
			return nil, fmt.Errorf("'%s' is none of the step's tasks 0 to %d", mode, ranks-1)
		case terr == nil:
			f.Mode, f.Task, fds = proto.FileOne, int32(task), []int{i}
		case mode == "" || mode == "all":
			f, fds, err = r.ownFile(pl, i, ranks)
		case i == 2 && mode == modes[1]:
			f, fds = pl.files.Files[1], nil
			if f.Mode == proto.FileShared {
				fds = []int{sharedOut}
			}
			if f.Mode == proto.FileEach { // labelled lines of both in one file
				if fds, err = pl.pipes(ranks, func(task int, p *os.File) { pl.copyLines(task, ranks, p, sharedOut) }); err != nil {
					return nil, err
				}
			}
		default:
			if !filepath.IsAbs(mode) {
				mode = filepath.Join(r.rq.Dir, mode)
			}
			if i == 0 || outpath.PerTask(mode) || len(layout) > 1 && outpath.PerNode(mode) {
				f.Mode, f.Pattern = proto.FilePath, mode
				break
			}
			flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND
			if !r.append {
				flags |= os.O_TRUNC
			}
			name := outpath.Expand(mode, v)
			var file *os.File
			if file, err = os.OpenFile(name, flags, 0o666); err != nil {
				return nil, fmt.Errorf("Could not open %s file: %w", [...]string{"stdin", "stdout", "stderr"}[i], err)
			}
			pl.ends = append(pl.ends, file)
			sharedOut = int(file.Fd())
			if f.Mode, fds = proto.FileShared, []int{sharedOut}; r.label {
				out := sharedOut
				f.Mode, f.Task = proto.FileEach, int32(ranks)
				fds, err = pl.pipes(ranks, func(task int, p *os.File) { pl.copyLines(task, ranks, p, out) })
			}
		}
		if err != nil {
			return nil, err
		}
		pl.files.Files = append(pl.files.Files, f)
		pl.fds = append(pl.fds, fds...)
	}
	return pl, nil
}

// ownFile passes one of grun's own files on.
func (r *run) ownFile(pl *plumbing, i, ranks int) (f proto.StepFile, fds []int, err error) {
	if !isOpen(i) {
		return f, nil, nil // closed: the tasks get /dev/null
	}
	f.Mode, fds = proto.FileShared, []int{i}
	switch {
	case i == 0 && ranks > 1 && !isNull(i):
		f.Mode, f.Task = proto.FileEach, int32(ranks)
		fds, err = pl.inputPipes(ranks)
	case i > 0 && r.label:
		f.Mode, f.Task = proto.FileEach, int32(ranks)
		fds, err = pl.pipes(ranks, func(task int, p *os.File) { pl.copyLines(task, ranks, p, i) })
	}
	return f, fds, err
}

func isOpen(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}

func isNull(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3)
}

// pipes makes a pipe for each task, and gives what comes out of each to read.
func (pl *plumbing) pipes(n int, read func(task int, p *os.File)) (fds []int, err error) {
	for task := range n {
		out, in, err := os.Pipe()
		if err != nil {
			return nil, fmt.Errorf("make a pipe for task %d: %w", task, err)
		}
		pl.ends = append(pl.ends, in)
		fds = append(fds, int(in.Fd()))
		pl.readers.Go(func() {
			read(task, out)
			_ = out.Close() // it was only read
		})
	}
	return fds, nil
}

// copyLines writes each line of a task with its number before it.
func (pl *plumbing) copyLines(task, ranks int, p io.Reader, to int) {
	label := fmt.Appendf(nil, "%0*d: ", len(strconv.Itoa(ranks-1)), task)
	var held []byte
	buf := make([]byte, 32<<10)
	put := func(text []byte) {
		pl.mu.Lock()
		defer pl.mu.Unlock()
		for len(text) > 0 {
			n, err := unix.Write(to, text)
			if err == unix.EINTR || err == unix.EAGAIN {
				continue
			}
			if err != nil {
				return // nobody reads it any more
			}
			text = text[n:]
		}
	}
	for {
		n, err := p.Read(buf)
		held = append(held, buf[:n]...)
		var out []byte
		for {
			end := bytes.IndexByte(held, '\n')
			if end < 0 && len(held) < maxHeldLine && err == nil {
				break
			}
			if end < 0 {
				if len(held) > 0 {
					out = append(append(append(out, label...), held...), '\n')
					held = nil
				}
				break
			}
			out = append(append(out, label...), held[:end+1]...)
			held = held[end+1:]
		}
		put(out)
		if err != nil {
			return
		}
	}
}

// inputPipes makes a pipe for each task's input. feed fills them.
func (pl *plumbing) inputPipes(n int) (fds []int, err error) {
	for task := range n {
		out, in, err := os.Pipe()
		if err != nil {
			return nil, fmt.Errorf("make a pipe for task %d: %w", task, err)
		}
		pl.ends = append(pl.ends, out)
		pl.inputs = append(pl.inputs, in)
		fds = append(fds, int(out.Fd()))
	}
	return fds, nil
}

// feed gives all tasks what grun reads.
func (pl *plumbing) feed() {
	inputs := pl.inputs
	buf := make([]byte, 32<<10)
	for len(inputs) > 0 {
		n, err := unix.Read(0, buf)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			break
		}
		keep := inputs[:0]
		for _, in := range inputs {
			if _, err := in.Write(buf[:n]); err == nil {
				keep = append(keep, in)
			} else {
				_ = in.Close() // that task reads no more
			}
		}
		inputs = keep
	}
	for _, in := range inputs {
		_ = in.Close() // the end of the input
	}
}

// closeEnds closes the tasks' ends: when those of the tasks are closed too, the pipes end.
func (pl *plumbing) closeEnds() {
	for _, f := range pl.ends {
		_ = f.Close() // the tasks have their own
	}
	pl.ends = nil
}

// valuesOf is what names of files can say of the job.
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
