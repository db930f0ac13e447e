package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/getopt"
	"gbatch/internal/hostlist"
	"gbatch/internal/terminal"
)

// elastic.go is grun --elastic: the command runs on all nodes of an elastic job that stay, and again on the new ones
// when they change. Each run is a grun of its own, because tasks don't move.

const (
	// elasticVar tells that grun that it is one run: the value is the number of runs before it. Tasks see it.
	elasticVar = "GBATCH_ELASTIC_RUN"
	// maxAllocFile bounds the job's file, bytes.
	maxAllocFile = 64 << 20
	inotifyBytes = 4096
)

// settleElastic refuses what --elastic can't do, and sees whether this process is one run.
func (r *run) settleElastic() error {
	if !r.elastic {
		return nil
	}
	if r.Getenv(elasticVar) != "" {
		r.elastic = false // for it, --nodes and --nodelist are options like others
		r.rq.Whole = true
		return nil
	}
	const all = "--elastic runs the command on all nodes of the job: leave --%s out"
	for _, name := range [...]string{"nodes", "nodelist", "ntasks", "relative", "exclude", "nodefile", "async", "pty",
		"jobid", "het-group"} {
		if p := r.line.Given(name); p.Source == getopt.FromArgs {
			return fmt.Errorf(all, name)
		}
	}
	if r.Getenv("SLURM_JOB_ALLOCATION_FILE") == "" {
		return errors.New("--elastic is for the script of an elastic job: submit it with gsubmit --elastic=MIN-MAX")
	}
	return nil
}

// size is what the job's file says of its nodes.
type size struct {
	stay  []string
	asked bool // for others, which it is to give back
}

func readSize(file string) (*size, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("the nodes of the job are not known: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	var d struct {
		Nodes []struct {
			Name    string `json:"name"`
			Leaving bool   `json:"leaving"`
		} `json:"nodes"`
	}
	if err := json.NewDecoder(io.LimitReader(f, maxAllocFile)).Decode(&d); err != nil {
		return nil, fmt.Errorf("the nodes of the job are not known: %s: %w", file, err)
	}
	s := &size{}
	for _, n := range d.Nodes {
		if n.Leaving {
			s.asked = true
		} else {
			s.stay = append(s.stay, n.Name)
		}
	}
	if len(s.stay) == 0 {
		return nil, fmt.Errorf("%s names no node that stays in the job", file)
	}
	return s, nil
}

// follow runs the command again and again, until it ends without having been asked to.
func (r *run) follow() int {
	runtime.LockOSThread() // a run ends with the thread that has started it
	file := r.Getenv("SLURM_JOB_ALLOCATION_FILE")
	changes, stop, err := watch(filepath.Dir(file))
	if err != nil {
		r.Errorf("%v", err)
		return r.Failed(1)
	}
	defer stop()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	defer signal.Stop(signals)
	for n := 0; ; n++ {
		now, err := readSize(file)
		if err != nil {
			r.Errorf("%v", err)
			return r.Failed(1)
		}
		if now.asked {
			r.agree()
		}
		if n > 0 && !r.quiet {
			fmt.Fprintf(r.Stderr, "%s: the job's nodes change: the command begins again on %s\n", r.Program,
				hostlist.CountText(len(now.stay)))
		}
		rc, again := r.once(n, now, file, changes, signals)
		if !again {
			return rc
		}
	}
}

// once runs the command on the nodes that stay. again says that it was asked to end because they change.
func (r *run) once(n int, on *size, file string, changes <-chan struct{}, signals <-chan os.Signal) (rc int,
	again bool) {
	list := hostlist.CompressInOrder(on.stay)
	args := append([]string{"--nodes=" + strconv.Itoa(len(on.stay)), "--nodelist=" + list}, r.Args...)
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Args[0], cmd.Dir = r.Program, r.Dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(r.sized(list, len(on.stay)), elasticVar+"="+strconv.Itoa(n))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGTERM}
	if err := cmd.Start(); err != nil {
		r.Errorf("%v", err)
		return r.Failed(1), false
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its state says how it ended
		close(ended)
	}()
	for {
		select {
		case <-ended:
			if rc = cmd.ProcessState.ExitCode(); rc < 0 {
				rc = 128 + int(cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
			}
			return rc, again
		case s := <-signals:
			if s == unix.SIGTERM || s == unix.SIGHUP {
				again = false
			}
			if s == unix.SIGINT || s == unix.SIGQUIT {
				if _, err := terminal.ModesOf(0); err == nil {
					continue // the terminal has sent it to both
				}
			}
			_ = cmd.Process.Signal(s) // it may have ended
		case <-changes:
			if now, err := readSize(file); again || err != nil || slices.Equal(now.stay, on.stay) {
				continue
			}
			again = true
			_ = cmd.Process.Signal(unix.SIGTERM) // as above
		}
	}
}

// sized is the environment, with the present nodes in place of those at the script's start.
func (r *run) sized(list string, n int) []string {
	count := strconv.Itoa(n)
	now := map[string]string{"SLURM_JOB_NUM_NODES": count, "SLURM_NNODES": count, "SLURM_JOB_NODELIST": list,
		"SLURM_NODELIST": list, "SLURM_NTASKS": "", "SLURM_NPROCS": "", "SLURM_TASKS_PER_NODE": "",
		"SLURM_JOB_CPUS_PER_NODE": ""}
	out := make([]string, 0, len(r.Environ))
	for _, kv := range r.Environ {
		name, _, _ := strings.Cut(kv, "=")
		switch value, is := now[name]; {
		case !is:
			out = append(out, kv)
		case value != "":
			out = append(out, name+"="+value)
		}
	}
	return out
}

// agree gives the nodes back that the job is asked for: nothing runs there any more.
func (r *run) agree() {
	cmd := exec.Command("/proc/self/exe", "resize")
	cmd.Args[0], cmd.Dir, cmd.Env, cmd.Stderr = "gcontrol", r.Dir, r.Environ, os.Stderr
	if err := cmd.Run(); err != nil {
		r.Errorf("the nodes that others need are given back when the job's grace is over: gcontrol resize: %v", err)
	}
}

// watch tells of changes of the files in a directory.
func watch(dir string) (changes <-chan struct{}, stop func(), err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	f := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MOVED_TO|unix.IN_CLOSE_WRITE|unix.IN_DELETE_SELF); err != nil {
		_ = f.Close() // it is of no use
		return nil, nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	c := make(chan struct{}, 1)
	go func() {
		buf := make([]byte, inotifyBytes)
		for {
			if _, err := f.Read(buf); err != nil {
				return
			}
			select {
			case c <- struct{}{}:
			default: // it is known already
			}
		}
	}()
	return c, func() { _ = f.Close() }, nil // nobody looks at it any more
}
