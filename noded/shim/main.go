//go:build linux && (amd64 || arm64)

package shim

// main.go is gshim as a command: it detaches from its starter, reports whether it has started, and serves.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"gbatch/internal/logfile"
	"gbatch/internal/version"

	"golang.org/x/sys/unix"
)

const (
	detachedEnv = "GSHIM_DETACHED"
	noClone3Env = "GSHIM_NO_CLONE3" // set: launch as on kernels before 5.7
	readyFD     = 3
	readyText   = "ok"
	maxReady    = 64 << 10 // bytes of an error text at start
)

// Main is the program gshim. args are without the program's name; the result is the exit status.
//
//	gshim -dir DIR               start in the background, serving DIR; returns when it serves
//	gshim -dir DIR -foreground   serve here, for systemd and for looking at it; logs to standard error
//	gshim -log json …            the log's lines are objects of JSON
//	gshim -version               name, version, "protocol" and the number of the protocol
func Main(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("gshim", flag.ContinueOnError)
	fs.SetOutput(stderr)
	dir := fs.String("dir", "", "`directory` of the socket, the journal and the log; one gshim each")
	format := fs.String("log", "text", "`format` of the log: "+strings.Join(logfile.Formats, " or "))
	foreground := fs.Bool("foreground", false, "stay in the foreground and log to standard error")
	printVersion := fs.Bool("version", false, "print the version and end")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	if *printVersion {
		fmt.Fprintf(stdout, "gshim %s protocol %d\n", version.Version, Protocol)
		return 0
	}
	if err := mainErr(*dir, *format, fs.Args(), *foreground, args); err != nil {
		fmt.Fprintf(stderr, "gshim: %v\n", err)
		return 1
	}
	return 0
}

func mainErr(dir, format string, rest []string, foreground bool, args []string) error {
	if dir == "" || len(rest) > 0 {
		return errors.New("expected -dir DIR and no other arguments; gnoded starts gshim itself")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := prepareDir(dir); err != nil {
		return err
	}
	if !slices.Contains(logfile.Formats, format) {
		return fmt.Errorf("-log %s: write %s", format, strings.Join(logfile.Formats, " or "))
	}
	o := serverOptions{Dir: dir, LogFormat: format, NoClone3: os.Getenv(noClone3Env) != ""}
	if r := os.Getenv(resumeEnv); r != "" {
		if err := o.take(r); err != nil {
			return err
		}
		return serve(o, args, foreground, nil)
	}
	if foreground {
		return serve(o, args, true, nil)
	}
	if os.Getenv(detachedEnv) == "" {
		return detach(dir, args)
	}
	ready := os.NewFile(readyFD, "ready")
	unix.CloseOnExec(readyFD)
	return serve(o, args, false, ready)
}

// prepareDir makes the directory. It refuses one that other users could change.
func prepareDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to uid %d, but gshim runs as uid %d: give it a directory of its own", dir, st.Uid,
			os.Geteuid())
	}
	if st.Mode&0o022 != 0 {
		return fmt.Errorf("%s can be written by others (mode %#o): chmod go-w it", dir, st.Mode&0o7777)
	}
	return nil
}

// take opens the descriptors that the program before an upgrade has handed over.
func (o *serverOptions) take(env string) error {
	r, err := parseResume(env)
	if err != nil {
		return err
	}
	unix.CloseOnExec(r.ListenFD)
	unix.CloseOnExec(r.LockFD)
	f := os.NewFile(uintptr(r.ListenFD), "socket")
	l, err := net.FileListener(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("take over the socket: %w", err)
	}
	ul, ok := l.(*net.UnixListener)
	if !ok {
		return errors.Join(fmt.Errorf("descriptor %d is not a unix socket", r.ListenFD), l.Close())
	}
	ul.SetUnlinkOnClose(false)
	o.Listener, o.Lock, o.Resume = ul, os.NewFile(uintptr(r.LockFD), lockFile), &r
	return nil
}

// detach starts this program again in a session of its own and waits until it serves or reports why it can't.
func detach(dir string, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find my own program: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	log, err := os.OpenFile(filepath.Join(dir, logFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	p, err := os.StartProcess(self, append([]string{self}, args...),
		&os.ProcAttr{Dir: "/", Env: append(cleanEnv(), detachedEnv+"=1"),
			Files: []*os.File{null, log, log, w}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err := errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("start in the background: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(r, maxReady))
	if err != nil {
		return fmt.Errorf("wait for the start: %w", err)
	}
	switch t := strings.TrimSpace(string(text)); t {
	case readyText:
		return p.Release()
	case "":
		return fmt.Errorf("it ended while starting: see %s", filepath.Join(dir, logFile))
	default:
		return errors.New(t)
	}
}

// serve runs gshim to its end. If exec fails during an upgrade, it starts again in the same process.
func serve(o serverOptions, args []string, foreground bool, ready *os.File) error {
	unix.Umask(0o077)
	if err := sealDescriptors(); err != nil {
		return tell(ready, err)
	}
	runtime.GOMAXPROCS(min(maxProcs, runtime.NumCPU()))
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	var out io.Writer = os.Stderr
	if !foreground {
		lw, err := openLog(filepath.Join(o.Dir, logFile))
		if err != nil {
			return tell(ready, err)
		}
		out = lw
	}
	o.Log = slog.New(logfile.Handler(out, o.LogFormat, slog.LevelInfo)).With("pid", os.Getpid())
	signals := make(chan os.Signal, 8)
	// Signals are caught, not ignored: jobs would inherit an ignored signal.
	signal.Notify(signals, unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2)
	defer signal.Stop(signals)
	for {
		s, err := newServer(o)
		if err != nil {
			o.Log.Error("gshim can't start", "err", err)
			return tell(ready, err)
		}
		if ready != nil {
			if err := tell(ready, nil); err != nil {
				o.Log.Warn("nobody waits for my start any more", "err", err)
			}
			ready = nil
		}
		o.Log.Info("gshim serves", "version", version.Version, "dir", o.Dir, "upgrades", s.info.Upgrades, "launches",
			len(s.entries))
		ctx, cancel := context.WithCancel(context.Background())
		go obey(ctx, s, signals)
		err = s.run()
		cancel()
		if s.upgradeTo == "" {
			return errors.Join(err, s.close())
		}
		r, err := s.handOver()
		if err == nil {
			err = execInto(s.upgradeTo, args, r)
		}
		o.Log.Error("the upgrade failed, going on as before", "err", err)
		if err := s.journal.close(); err != nil {
			o.Log.Warn("close the journal", "err", err)
		}
		o.Listener, o.Lock, o.Resume = s.listener, s.lock, &s.resume
	}
}

// sealDescriptors makes inherited descriptors close on exec, so that jobs don't get them.
func sealDescriptors() error {
	err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	open, err := os.ReadDir("/proc/self/fd") // before Linux 5.11
	if err != nil {
		return fmt.Errorf("look for inherited descriptors: %w", err)
	}
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// tell reports the result of the start to the process that waits for it.
func tell(ready *os.File, err error) error {
	if ready == nil {
		return err
	}
	text := readyText
	if err != nil {
		text = err.Error()
	}
	_, werr := io.WriteString(ready, text)
	return errors.Join(err, werr, ready.Close())
}

// obey handles signals until ctx ends.
func obey(ctx context.Context, s *server, signals <-chan os.Signal) {
	for {
		select {
		case sig := <-signals:
			switch sig {
			case unix.SIGTERM:
				s.terminate()
			case unix.SIGPIPE:
			default:
				s.log.Info("signal ignored", "signal", sig.String())
			}
		case <-ctx.Done():
			return
		}
	}
}

// hasClone3 reports whether clone3 knows CLONE_CLEAR_SIGHAND and CLONE_INTO_CGROUP. Some container sandboxes answer
// ENOSYS on any kernel.
func hasClone3() bool {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return false
	}
	var major, minor int
	if n, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); n != 2 || err != nil {
		return false
	}
	if major < 5 || major == 5 && minor < 7 {
		return false
	}
	_, _, errno := syscall.Syscall(unix.SYS_CLONE3, 0, 0, 0)
	return errno == unix.EINVAL
}
