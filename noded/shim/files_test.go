//go:build linux && (amd64 || arm64)

package shim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFilesAsTheUser: gshim, as root, opens for a job only files that the job's user can open.
func TestFilesAsTheUser(t *testing.T) {
	needRoot(t)
	s := start(t)
	shadow, err := os.ReadFile("/etc/shadow")
	if err != nil {
		t.Skip("no /etc/shadow to protect")
	}
	private := workDir(t)
	if err := os.Chmod(private, 0o700); err != nil {
		t.Fatal(err)
	}
	grouped := workDir(t)
	if err := os.Chown(grouped, 0, someGroup); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(grouped, 0o770); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		set    func(l *Launch)
		groups []uint32
		text   string // "" means it runs
		stage  Stage
	}{
		{"stdout", func(l *Launch) { l.Stdout = "/etc/shadow" }, nil,
			"could not open stdout file /etc/shadow: permission denied", StageStdout},
		{"stderr", func(l *Launch) { l.Stderr = "/etc/shadow"; l.Append = true }, nil,
			"could not open stderr file /etc/shadow: permission denied", StageStderr},
		{"both", func(l *Launch) { l.Stdout, l.Stderr = "/etc/shadow", "/etc/shadow" }, nil,
			"could not open stdout file /etc/shadow: permission denied", StageStdout},
		{"stdin", func(l *Launch) { l.Stdin = "/etc/shadow" }, nil,
			"could not open stdin file /etc/shadow: permission denied", StageStdin},
		{"directory of root", func(l *Launch) { l.Stdout = private + "/x" }, nil, "could not open stdout file " + private +
			"/x: permission denied", StageStdout},
		{"directory of another group", func(l *Launch) { l.Stdout = grouped + "/no" }, nil, "could not open stdout file " +
			grouped + "/no: permission denied", StageStdout},
		{"directory of a supplementary group", func(l *Launch) { l.Stdout = grouped + "/yes" }, []uint32{someGroup}, "", 0},
		{"program", func(l *Launch) { l.Path = private + "/p" }, nil, "could not run " + private + "/p: permission denied",
			StageExec},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newScript(t, "true").as(nobody, nobody, c.groups...)
			c.set(l.Launch)
			s.launch(l.Launch)
			if c.text == "" {
				s.wait(l.Key, Exited)
				return
			}
			if e := s.wait(l.Key, LaunchFailed); e.Text != c.text || e.Stage != c.stage || e.Errno != unix.EACCES {
				t.Errorf("got %q (stage %d, errno %d)\nwant %q", e.Text, e.Stage, e.Errno, c.text)
			}
		})
	}
	if now, err := os.ReadFile("/etc/shadow"); err != nil || string(now) != string(shadow) {
		t.Fatal("/etc/shadow has changed")
	}
}

func TestOutputFiles(t *testing.T) {
	s := start(t)
	fifo := func(l *script) string {
		p := filepath.Join(l.dir, "fifo")
		if err := unix.Mkfifo(p, 0o666); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		name, text string
		set        func(l *script)
		fails      string // a part of the reason
		want       string // of the file out
	}{
		{"one file for both, in order", "echo a; echo b >&2; echo c", func(l *script) { l.Stderr = l.Stdout }, "",
			"a\nb\nc\n"},
		{"truncates", "echo new", func(l *script) { write(t, l.Stdout, "old and longer\n") }, "", "new\n"},
		{"appends", "echo new", func(l *script) { write(t, l.Stdout, "old\n"); l.Append = true }, "", "old\nnew\n"},
		{"two names of one file keep everything", "echo aaaa; echo b >&2; echo c", func(l *script) {
			l.Stderr = filepath.Join(l.dir, "link")
			if err := os.Symlink("out", l.Stderr); err != nil {
				t.Fatal(err)
			}
		}, "", "aaaa\nb\nc\n"},
		{"relative to the directory", "echo x", func(l *script) { l.Stdout, l.Stderr = "out", "err" }, "", "x\n"},
		{"stdin", "cat", func(l *script) { write(t, filepath.Join(l.dir, "in"), "hello\n"); l.Stdin = "in" }, "", "hello\n"},
		{"nothing named", "cat; echo lost; echo lost >&2",
			func(l *script) { write(t, l.Stdout, ""); l.Stdout, l.Stderr = "", "" }, "", ""},
		{"dev null", "echo lost", func(l *script) { write(t, l.Stdout, ""); l.Stdout, l.Stderr = "/dev/null", "/dev/null" },
			"", ""},
		{"dev full", "echo lost || exit 0", func(l *script) { write(t, l.Stdout, ""); l.Stdout = "/dev/full" }, "", ""},
		{"fifo that nobody reads", "echo x", func(l *script) { l.Stdout = fifo(l) },
			"no such device or address (a FIFO that nobody reads", ""},
		{"fifo as stdin", "cat; echo done", func(l *script) { l.Stdin = fifo(l) }, "", "done\n"},
		{"a directory", "echo x", func(l *script) { l.Stdout = l.dir }, "is a directory", ""},
		{"in no directory", "echo x", func(l *script) { l.Stdout = l.dir + "/none/out" }, "no such file or directory", ""},
		{"missing stdin", "echo x", func(l *script) { l.Stdin = "none" }, "/none: no such file or directory", ""},
		{"long name", "echo x", func(l *script) { l.Stdout = l.dir + "/" + strings.Repeat("x", 300) }, "file name too long",
			""},
		{"socket", "echo x", func(l *script) {
			l.Stdout = filepath.Join(filepath.Dir(fmt.Sprint(s.c.nc.RemoteAddr())),
				socketFile)
		}, "no such device or address", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newScript(t, c.text)
			out := l.Stdout
			c.set(l)
			s.launch(l.Launch)
			if c.fails != "" {
				if e := s.wait(l.Key, LaunchFailed); !strings.Contains(e.Text, c.fails) {
					t.Errorf("got %q, want ...%q", e.Text, c.fails)
				}
				return
			}
			if e := s.wait(l.Key, Exited); e.Code != 0 && c.name != "dev full" {
				t.Errorf("exit code %d", e.Code)
			}
			if b, err := os.ReadFile(out); err != nil || string(b) != c.want {
				t.Errorf("got %q (%v), want %q", b, err, c.want)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestFIFOWithReader: descriptors reach the job in blocking mode.
func TestFIFOWithReader(t *testing.T) {
	s := start(t)
	l := newScript(t, "head -c 1000000 /dev/zero")
	l.Stdout = filepath.Join(l.dir, "fifo")
	if err := unix.Mkfifo(l.Stdout, 0o666); err != nil {
		t.Fatal(err)
	}
	r, err := os.OpenFile(l.Stdout, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s.launch(l.Launch)
	s.wait(l.Key, Launched)
	n, buf := 0, make([]byte, 4096)
	for n < 1000000 {
		k, err := r.Read(buf)
		if err != nil {
			break
		}
		n += k
	}
	if e := s.wait(l.Key, Exited); e.Code != 0 || n != 1000000 {
		t.Errorf("read %d bytes, exit code %d: %s", n, e.Code, l.read(t, "err"))
	}
}

func TestWorkingDirectory(t *testing.T) {
	s := start(t)
	check := func(t *testing.T, l *script, dir, reason string) {
		t.Helper()
		l.Dir = dir
		s.launch(l.Launch)
		note := fmt.Sprintf("could not change to the working directory %s: %s; it runs in /tmp", dir, strings.ToLower(reason))
		// A short job's start may be told with its end only.
		if e := s.wait(l.Key, Exited); len(e.Notes) != 1 || e.Notes[0] != note {
			t.Errorf("noted %q, want %q", e.Notes, note)
		}
		if got := l.out(t); got != "/tmp" {
			t.Errorf("ran in %q", got)
		}
		want := fmt.Sprintf("slurmstepd: error: couldn't chdir to '%s': %s: going to /tmp instead\n", dir, reason)
		if got := l.read(t, "err"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	check(t, newScript(t, "pwd"), "/does/not/exist", "No such file or directory")
	check(t, newScript(t, "pwd"), "/etc/passwd", "Not a directory")
	t.Run("not permitted", func(t *testing.T) {
		needRoot(t)
		d := workDir(t)
		if err := os.Chmod(d, 0o700); err != nil {
			t.Fatal(err)
		}
		check(t, newScript(t, "pwd").as(nobody, nobody), d, "Permission denied")
	})
}
