//go:build linux && (amd64 || arm64)

package shim

// shim_test.go holds what the tests of the whole process share: a real gshim binary, a directory for it, a client that
// remembers what it hears, and orders.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var binaries string // set by TestMain: directory with gshim and gshim2 (another version)

// helperEnv makes this test binary a client of its own: see TestMain.
const helperEnv = "GSHIM_TEST_HELPER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		helper(dir)
	}
	if raceEnabled {
		// For the gshims: end at once, and loudly where there is a race. They are started dozens of times.
		if err := os.Setenv("GORACE", "atexit_sleep_ms=0 halt_on_error=1"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if slices.Contains(os.Args, "-test.fuzzworker") {
		os.Exit(m.Run())
	}
	if binaries = os.Getenv("GSHIM_TEST_BINARIES"); binaries != "" {
		os.Exit(m.Run()) // as another user: see TestOrdinaryUser
	}
	dir, err := os.MkdirTemp("", "gshim-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for name, version := range map[string]string{"gshim": "1.0.0-test", "gshim2": "2.0.0-test"} {
		args := []string{"build", "-o", filepath.Join(dir, name), "-ldflags", "-X gbatch/internal/version.Version=" + version}
		if raceEnabled {
			args = append(args, "-race")
		}
		cmd := exec.Command("go", append(args, "gbatch/cmd/gshim")...)
		if !raceEnabled {
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build gshim: %v\n%s", err, out)
			os.Exit(1)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binaries = dir
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// helper starts gshim in dir, orders two jobs, says "ordered" and waits to be killed.
func helper(dir string) {
	c, _, err := Start(context.Background(), Options{Dir: dir, Binary: os.Getenv(helperEnv + "_BINARY")})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for i, text := range []string{"exit 4", "until [ -e go ]; do sleep 0.01; done; exit 5"} {
		l := &Launch{Key: Key{JobID: uint32(i + 1)}, Argv: []string{"/bin/sh", "-c", text},
			Env: []string{"PATH=/bin:/usr/bin"}, Dir: filepath.Dir(dir),
			AsRoot: os.Geteuid() == 0, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
		if err := c.Launch(l); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	if err := c.Ping(context.Background()); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ordered")
	select {}
}

const testWait = 20 * time.Second

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testWait)
	t.Cleanup(cancel)
	return ctx
}

// until waits for a condition.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(testWait)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for: %s", testWait, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// session is a client that remembers the newest event of every key.
type session struct {
	t  testing.TB
	c  *Client
	mu sync.Mutex

	last   map[Key]Event
	seen   map[Key][]EventKind
	closed bool
}

func follow(t testing.TB, c *Client, first []Event) *session {
	s := &session{t: t, c: c, last: map[Key]Event{}, seen: map[Key][]EventKind{}}
	s.note(first)
	go func() {
		for evs := range c.Events() {
			s.note(evs)
		}
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
	}()
	t.Cleanup(func() { c.Close() })
	return s
}

func (s *session) note(evs []Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range evs {
		s.last[e.Key] = e
		s.seen[e.Key] = append(s.seen[e.Key], e.Kind)
	}
}

func (s *session) get(k Key) Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[k]
}

func (s *session) gone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// wait returns the event of that kind; a launch that fails meanwhile fails the test.
func (s *session) wait(k Key, kind EventKind) Event {
	s.t.Helper()
	var e Event
	until(s.t, fmt.Sprintf("%v of %v", kind, k), func() bool {
		e = s.get(k)
		if e.Kind != kind && e.Done() {
			s.t.Fatalf("%v: expected %v, got %+v", k, kind, e)
		}
		return e.Kind == kind
	})
	return e
}

func (s *session) launch(l ...*Launch) {
	s.t.Helper()
	if err := s.c.Launch(l...); err != nil {
		s.t.Fatal(err)
	}
}

// run launches and waits for the end.
func (s *session) run(l *Launch) Event {
	s.t.Helper()
	s.launch(l)
	return s.wait(l.Key, Exited)
}

// newDir makes a directory for a gshim that is ended with the test, whatever still runs.
func newDir(t testing.TB) string {
	dir := filepath.Join(t.TempDir(), "shim")
	t.Cleanup(func() {
		if t.Failed() {
			b, _ := os.ReadFile(filepath.Join(dir, logFile))
			t.Logf("log of gshim:\n%s", b)
		}
		c, evs, err := Connect(context.Background(), dir)
		if errors.Is(err, ErrNotRunning) {
			return
		}
		if err != nil {
			t.Errorf("end gshim: %v", err)
			return
		}
		defer c.Close()
		go func() {
			for range c.Events() {
			}
		}()
		ctx, cancel := context.WithTimeout(context.Background(), testWait)
		defer cancel()
		for _, e := range evs {
			if !e.Done() {
				if _, err := c.Signal(ctx, e.Key, syscall.SIGKILL, Tree); err != nil {
					t.Errorf("end %v: %v", e.Key, err)
				}
			}
		}
		until(t, "gshim to shut down", func() bool {
			err = c.Shutdown(ctx)
			return err == nil
		})
		until(t, "gshim to be gone", func() bool { return !alive(c.Info().PID) })
	})
	return dir
}

func alive(pid int) bool {
	p, err := readProcess(pid)
	return err == nil && !p.dead()
}

func startIn(t testing.TB, dir string, env ...string) *session {
	t.Helper()
	c, evs, err := Start(testContext(t), Options{Dir: dir, Binary: filepath.Join(binaries, "gshim"), Env: env})
	if err != nil {
		t.Fatal(err)
	}
	return follow(t, c, evs)
}

func start(t testing.TB) *session {
	t.Helper()
	return startIn(t, newDir(t))
}

var nextJob struct {
	sync.Mutex
	n uint32
}

// script is an order to run sh -c text in a fresh directory that belongs to uid, its output in out and err there.
type script struct {
	*Launch
	dir string
}

func newScript(t testing.TB, text string) *script {
	t.Helper()
	nextJob.Lock()
	nextJob.n++
	k := Key{JobID: nextJob.n, Step: -5}
	nextJob.Unlock()
	dir := workDir(t)
	return &script{&Launch{Key: k, Argv: []string{"/bin/sh", "-c", text}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: dir,
		AsRoot: os.Geteuid() == 0, UID: uint32(os.Geteuid()),
		GID: uint32(os.Getegid()), Umask: 0o022, Stdout: filepath.Join(dir, "out"), Stderr: filepath.Join(dir, "err")}, dir}
}

// workDir is a directory under a path that every user can reach.
func workDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "gshim-job")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (s *script) as(uid, gid uint32, groups ...uint32) *script {
	s.UID, s.GID, s.Groups = uid, gid, groups
	return s
}

func (s *script) read(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (s *script) out(t testing.TB) string { t.Helper(); return strings.TrimSpace(s.read(t, "out")) }

// pidFrom waits for a script to have written a pid into a file.
func (s *script) pidFrom(t testing.TB, name string) int {
	t.Helper()
	var pid int
	until(t, "a pid in "+name, func() bool {
		b, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil || !strings.HasSuffix(string(b), "\n") {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil
	})
	return pid
}

func testLog(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}
