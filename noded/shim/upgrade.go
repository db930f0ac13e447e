//go:build linux && (amd64 || arm64)

package shim

// upgrade.go replaces the program of a running gshim: it finishes its current orders and execs the new binary with the
// same pid; the new one reads the journal. Across exec the children stay children; the socket stays open, so a client
// that connects meanwhile waits in its backlog. Connections end, and clients connect again.

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	upgradeWait = 10 * time.Second // for current orders, before an upgrade is refused
	upgradeKill = upgradeWait / 2  // for users' launches, before they are killed: their files hang, or are stopped
	upgradePoll = 2 * time.Millisecond
	resumeEnv   = "GSHIM_RESUME"
)

// resume is what one gshim hands to the next across exec; everything else is in the journal.
type resume struct {
	ListenFD int
	LockFD   int
	Upgrades int
	Started  time.Time
	OOMAdj   string // the oom_score_adj that gshim was started with; "" if it has not looked
}

func (r resume) String() string {
	return fmt.Sprintf("%d,%d,%d,%d,%s", r.ListenFD, r.LockFD, r.Upgrades, r.Started.UnixNano(),
		strings.TrimSpace(r.OOMAdj))
}

func parseResume(s string) (resume, error) {
	var r resume
	f := strings.Split(s, ",")
	if len(f) != 5 {
		return r, fmt.Errorf("%s=%q: expected 5 fields", resumeEnv, s)
	}
	var nums [4]int64
	for i := range nums {
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil || n < 0 {
			return r, fmt.Errorf("%s=%q: field %d is not a number", resumeEnv, s, i+1)
		}
		nums[i] = n
	}
	return resume{ListenFD: int(nums[0]), LockFD: int(nums[1]), Upgrades: int(nums[2]), Started: time.Unix(0, nums[3]),
		OOMAdj: f[4]}, nil
}

// upgrade waits until no order is in progress, answers, and stops the server with upgradeTo set.
func (s *server) upgrade(c *conn, seq uint64, path string) {
	if err := unix.Access(path, unix.X_OK); err != nil {
		c.done(seq, 0, fmt.Errorf("the new gshim %s can't be run: %w", path, err))
		return
	}
	s.mu.Lock()
	if s.paused || s.closing {
		s.mu.Unlock()
		c.done(seq, 0, errors.New("gshim is already ending or replacing itself"))
		return
	}
	s.paused = true
	s.mu.Unlock()
	if err := s.quiesce(); err != nil {
		s.mu.Lock()
		s.paused = false
		s.gate.Broadcast()
		s.mu.Unlock()
		c.done(seq, 0, err)
		return
	}
	s.log.Info("replacing myself", "binary", path)
	c.done(seq, 0, nil)
	c.drain()
	s.mu.Lock()
	s.closing = true
	s.upgradeTo = path
	s.mu.Unlock()
	s.stop()
}

// quiesce waits until no order is in progress and every known end is on disk. Users' launches that hang meanwhile are
// killed: they fail, and no user keeps gshim from being replaced. Files that are still being closed would hang the
// exec, which closes them too.
func (s *server) quiesce() error {
	begun := time.Now()
	for killed := false; ; {
		s.mu.Lock()
		var hangs *entry
		for e := range s.launching {
			hangs = e
		}
		if !killed && time.Since(begun) > upgradeKill {
			killed = true
			s.killHanging()
		}
		quiet := s.inHand == 0 && len(s.launching) == 0
		s.mu.Unlock()
		uid, closing := s.closers.open()
		if quiet && !closing {
			return nil // commitLoop commits what has ended since when it stops
		}
		if time.Since(begun) > upgradeWait {
			switch {
			case closing:
				return fmt.Errorf("files of user %d have not been closed for %v, because who serves them hangs: end that "+
					"user's jobs here, then upgrade", uid, upgradeWait)
			case hangs != nil:
				return fmt.Errorf("the launch of %v has not finished for %v: kill it, then upgrade", hangs.key, upgradeWait)
			}
			return fmt.Errorf("orders are still being worked on after %v", upgradeWait)
		}
		time.Sleep(upgradePoll) // bounded by upgradeWait
	}
}

// killHanging kills the launches of users that hang between fork and exec. Callers hold mu.
func (s *server) killHanging() {
	for e := range s.launching {
		if int(e.uid) == s.id.uid || e.state != starting || e.child == nil || e.early != nil {
			continue
		}
		if tid := e.child.childTID(); tid != 0 {
			s.log.Warn("a launch that hangs is killed: gshim is to be replaced", "job", e.key.JobID, "step", e.key.Step,
				"pid", tid)
			if err := unix.Kill(tid, unix.SIGKILL); err != nil {
				s.log.Warn("kill a launch that hangs", "job", e.key.JobID, "pid", tid, "err", err)
			}
		}
	}
}

// handOver prepares the descriptors that survive the exec. Both are duplicates, without close-on-exec.
func (s *server) handOver() (resume, error) {
	r := s.resume
	r.Upgrades++
	raw, err := s.listener.SyscallConn()
	if err != nil {
		return r, err
	}
	var lfd int
	var derr error
	if err := raw.Control(func(fd uintptr) { lfd, derr = unix.Dup(int(fd)) }); err != nil {
		return r, err
	}
	if derr != nil {
		return r, fmt.Errorf("duplicate the socket: %w", derr)
	}
	kfd, err := unix.Dup(int(s.lock.Fd()))
	if err != nil {
		return r, errors.Join(fmt.Errorf("duplicate the lock: %w", err), unix.Close(lfd))
	}
	r.ListenFD, r.LockFD = lfd, kfd
	return r, nil
}

// execInto replaces this program. It returns only on failure, with the descriptors closed again.
func execInto(path string, args []string, r resume) error {
	env := append(cleanEnv(), resumeEnv+"="+r.String())
	err := syscall.Exec(path, append([]string{path}, args...), env)
	return errors.Join(fmt.Errorf("exec %s: %w", path, err), unix.Close(r.ListenFD), unix.Close(r.LockFD))
}

// cleanEnv is the environment without the variables that were for one start of gshim.
func cleanEnv() []string {
	var out []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, resumeEnv+"=") && !strings.HasPrefix(e, detachedEnv+"=") {
			out = append(out, e)
		}
	}
	return out
}
