package run

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"golang.org/x/sys/unix"

	"gbatch/internal/proto"
	"gbatch/internal/terminal"
)

// terminal.go is grun --pty: task 0 gets a pseudo-terminal of its node, and the user's own terminal passes on every
// key. Ctrl-C and Ctrl-Z are keys like any other: they signal the foreground processes of the task's terminal. On this
// host grun holds the master side, so the terminal ends with grun; on another host the relay holds it (remote.go).

// wantTerminal requests a terminal like the one at grun's output, as srun does. Without one it ignores --pty, with a
// message.
func (r *run) wantTerminal() error {
	if r.in != "" || r.out != "" || r.err != "" {
		return errors.New("--error/--input/--output are incompatible with --pty")
	}
	size, err := terminal.SizeOf(1)
	if err != nil {
		r.Errorf("Not using a pseudo-terminal, disregarding --pty option: the output is no terminal")
		return nil
	}
	t := &proto.StepTerminal{Rows: int32(size.Rows), Cols: int32(size.Cols)}
	if m, err := terminal.ModesOf(0); err == nil {
		t.Modes, t.Chars = []uint32{m.Input, m.Output, m.Control, m.Local}, m.Chars
		r.cooked = m
	}
	r.rq.Terminal = t
	return nil
}

// plumbTerminal makes the files of a step with a terminal.
func (r *run) plumbTerminal(pl *plumbing) error {
	own := slices.Contains(pl.mine, 0)
	for range 3 {
		f := proto.StepFile{Mode: proto.FileOne}
		if own {
			f.FDs = 1
		}
		pl.files.Files = append(pl.files.Files, f)
	}
	if !own {
		pl.wired, pl.feeds, pl.sinks[1] = true, true, sink{1, r.label, 1}
		return nil
	}
	master, slave, err := terminal.Open()
	if err != nil {
		return err
	}
	pl.ends = append(pl.ends, slave)
	pl.terminal, pl.inputs = master, append(pl.inputs, master)
	fd := int(slave.Fd())
	pl.fds = append(pl.fds, fd, fd, fd)
	if err := terminal.Set(fd, r.cooked); err != nil {
		return err
	}
	t := r.rq.Terminal
	if err := terminal.Resize(fd, terminal.Size{Rows: uint16(t.Rows), Cols: uint16(t.Cols)}); err != nil {
		return err
	}
	pl.readers.Go(func() {
		if r.label {
			pl.copyLines(0, master, sink{fd: 1, stream: 1})
			return
		}
		buf := make([]byte, 32<<10)
		for {
			n, err := master.Read(buf)
			pl.guests.copy(1, 0, buf[:n])
			if pl.put(1, buf[:n]); err != nil { // EIO: no process has the other side open
				return
			}
		}
	})
	return nil
}

// raw makes the user's terminal pass on keys, once a task reads them.
func (t *talk) raw() {
	if t.rq.Terminal == nil || len(t.cooked.Chars) == 0 || t.isRaw {
		return
	}
	t.isRaw = terminal.Set(0, t.cooked.Raw()) == nil
	if _, err := terminal.SizeOf(2); t.isRaw && err == nil {
		t.stderr, t.Stderr = t.Stderr, returning{t.Stderr}
	}
	t.resize() // it may have changed since
}

// returning writes lines to a raw terminal, with a carriage return before each newline.
type returning struct{ io.Writer }

func (w returning) Write(b []byte) (int, error) {
	_, err := w.Writer.Write(bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n")))
	return len(b), err
}

// unraw restores the modes of the user's terminal.
func (t *talk) unraw() {
	if t.isRaw {
		t.isRaw = false
		if t.stderr != nil {
			t.stderr, t.Stderr = nil, t.stderr
		}
		_ = terminal.Set(0, t.cooked) // it fails only if the terminal is gone
	}
}

// resize makes the task's terminal as large as the user's.
func (t *talk) resize() {
	if t.rq.Terminal == nil || t.pl == nil {
		return
	}
	size, err := terminal.SizeOf(1)
	switch {
	case err != nil: // it is gone
	case t.pl.terminal != nil:
		_ = terminal.Resize(int(t.pl.terminal.Fd()), size) // likewise
	case t.pl.remote != nil:
		t.pl.remote.resize(size)
	}
}

// endInput ends the input of the tasks.
func (pl *plumbing) endInput() {
	pl.inMu.Lock()
	defer pl.inMu.Unlock()
	for _, in := range pl.inputs {
		if in != pl.terminal {
			_ = in.Close() // it has all input
			continue
		}
		fd := int(pl.terminal.Fd())
		_, _ = unix.Write(fd, terminal.EndOfInput(fd)) // closing it would hang up
	}
}
