// Package terminal opens pseudo-terminals and asks terminals for their size and modes, for grun --pty: the command at
// the user's terminal, the node's daemon and the relay between them (noded/steprelay).
//
// It owns the ioctls and nothing else: no process, no goroutine, no state. Whoever opens a terminal closes it. What
// modes and sizes mean is in ioctl_tty(2) and termios(3).
package terminal

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Size is a terminal's, in characters.
type Size struct{ Rows, Cols uint16 }

// Modes are a terminal's settings: the flags and control characters of struct termios. The zero value stands for the
// kernel's own.
type Modes struct {
	Input, Output, Control, Local uint32
	Chars                         []byte
}

// Open makes a pseudo-terminal: what is written to one side is read from the other, where a program sees a terminal.
// The program's side belongs to the caller's user; neither becomes anybody's controlling terminal.
func Open() (master, slave *os.File, err error) {
	const path = "/dev/ptmx"
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	fail := func(what string, err error) (*os.File, *os.File, error) {
		_ = unix.Close(fd) // it was never used
		return nil, nil, fmt.Errorf("%s of a new pseudo-terminal: %w", what, err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return fail("ask for the number", err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return fail("unlock the program's side", err)
	}
	name := fmt.Sprintf("/dev/pts/%d", n)
	// By the master: in another mount namespace the name may be another terminal's.
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	other := int(peer)
	if errno != 0 { // before Linux 4.13
		other, err = unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return fail("open the program's side", err)
	}
	return os.NewFile(uintptr(fd), path), os.NewFile(uintptr(other), name), nil
}

// SizeOf asks for a terminal's size. What is no terminal gives unix.ENOTTY.
func SizeOf(fd int) (Size, error) {
	w, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil {
		return Size{}, err
	}
	return Size{Rows: w.Row, Cols: w.Col}, nil
}

// Resize sets a terminal's size; either side of a pseudo-terminal will do. Its foreground processes get SIGWINCH where
// it differs.
func Resize(fd int, s Size) error {
	return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: s.Rows, Col: s.Cols})
}

// ModesOf asks for a terminal's settings.
func ModesOf(fd int) (Modes, error) {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return Modes{}, err
	}
	return Modes{Input: t.Iflag, Output: t.Oflag, Control: t.Cflag, Local: t.Lflag, Chars: slices.Clone(t.Cc[:])}, nil
}

// Set changes a terminal's settings to m. Control flags, which are about lines of wire, stay.
func Set(fd int, m Modes) error {
	if len(m.Chars) == 0 {
		return nil
	}
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	t.Iflag, t.Oflag, t.Lflag = m.Input, m.Output, m.Local
	copy(t.Cc[:], m.Chars)
	return unix.IoctlSetTermios(fd, unix.TCSETS, t)
}

// Raw gives the settings with which every byte typed is read as it is, and every byte written shown as it is: nothing
// is echoed, edited, turned into a signal or ended with a carriage return.
func (m Modes) Raw() Modes {
	m.Chars = slices.Clone(m.Chars)
	m.Input &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	m.Local &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	m.Output &^= unix.OPOST
	if len(m.Chars) > unix.VMIN {
		m.Chars[unix.VMIN], m.Chars[unix.VTIME] = 1, 0
	}
	return m
}

// EndOfInput is what is typed at the terminal for the end of its input: Ctrl-D, unless it was changed.
func EndOfInput(fd int) []byte {
	const ctrlD = 4
	if t, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil && t.Cc[unix.VEOF] != 0 {
		return []byte{t.Cc[unix.VEOF]}
	}
	return []byte{ctrlD}
}
