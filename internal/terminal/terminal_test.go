package terminal_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"gbatch/internal/terminal"
)

func TestPseudoTerminal(t *testing.T) {
	master, slave, err := terminal.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close() //nolint:errcheck // a test
	defer slave.Close()  //nolint:errcheck // a test
	want := terminal.Size{Rows: 33, Cols: 77}
	if err := terminal.Resize(int(master.Fd()), want); err != nil {
		t.Fatal(err)
	}
	if got, err := terminal.SizeOf(int(slave.Fd())); got != want || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	before, err := terminal.ModesOf(int(slave.Fd()))
	if err != nil || before.Local&unix.ECHO == 0 {
		t.Fatalf("%+v, %v", before, err)
	}
	if err := terminal.Set(int(slave.Fd()), before.Raw()); err != nil {
		t.Fatal(err)
	}
	raw, err := terminal.ModesOf(int(slave.Fd()))
	if err != nil || raw.Local&(unix.ECHO|unix.ICANON|unix.ISIG) != 0 || raw.Output&unix.OPOST != 0 {
		t.Errorf("raw: %+v, %v", raw, err)
	}
	if _, err := slave.WriteString("line\n"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 16)
	if n, err := master.Read(buf); string(buf[:n]) != "line\n" || err != nil {
		t.Errorf("%q, %v", buf[:n], err)
	}
	if err := terminal.Set(int(slave.Fd()), before); err != nil {
		t.Fatal(err)
	}
	if got, err := terminal.ModesOf(int(slave.Fd())); got.Local != before.Local || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if err := terminal.Set(int(slave.Fd()), terminal.Modes{}); err != nil { // the kernel's own: nothing to do
		t.Error(err)
	}
	if got := terminal.EndOfInput(int(master.Fd())); len(got) != 1 || got[0] != 4 {
		t.Errorf("%v", got)
	}
}

func TestNoTerminal(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // a test
	if _, err := terminal.SizeOf(int(f.Fd())); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("%v", err)
	}
}
