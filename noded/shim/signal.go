//go:build linux && (amd64 || arm64)

package shim

// signal.go sends signals: to a launch's leader, its process group, or its whole tree.
//
// The tree is the launch's cgroup, if it has one. Otherwise /proc has it: the leader's session, all descendants, and
// processes that were started with the launch's GBATCH_TRACK variable, which also finds daemons that have left the
// session and lost their parents. (gshim is a subreaper, so processes that a job leaves behind become its children.)

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"gbatch/noded/taskaround"
)

const (
	settleWait  = 5 * time.Second // for a launch that is still under way
	settleKill  = 100 * time.Millisecond
	killRounds  = 60 // until nothing is left; with the pauses below about 5 seconds
	killPause   = time.Millisecond
	killPauseTo = 100 * time.Millisecond
)

// signal returns how many processes it reached.
func (s *server) signal(k Key, sig syscall.Signal, scope Scope) (int, error) {
	s.mu.Lock()
	e := s.entries[k]
	s.mu.Unlock()
	if e == nil {
		return 0, fmt.Errorf("%v %w", k, ErrUnknown)
	}
	if err := s.settle(e, sig); err != nil {
		return 0, err
	}
	switch scope {
	case Leader:
		return s.signalLeader(e, sig, false)
	case Group:
		return s.signalLeader(e, sig, true)
	}
	return s.signalTree(e, sig)
}

// settle waits for the end of a launch. One that hangs can be killed: its child then dies before exec.
func (s *server) settle(e *entry, sig syscall.Signal) error {
	wait := settleWait
	if sig == unix.SIGKILL {
		wait = settleKill
	}
	if settled(e, wait) {
		return nil
	}
	s.mu.Lock()
	if sig == unix.SIGKILL && e.state == starting && e.child != nil && e.early == nil {
		if tid := e.child.childTID(); tid != 0 {
			if err := unix.Kill(tid, unix.SIGKILL); err != nil {
				s.log.Warn("kill a launch that hangs", "job", e.key.JobID, "pid", tid, "err", err)
			}
		}
	}
	s.mu.Unlock()
	if sig == unix.SIGKILL && settled(e, settleWait) {
		return nil
	}
	return fmt.Errorf("%v is still being launched: its files, directory or program may be on a dead file server", e.key)
}

// maxStops is how often a launch that is stopped goes on, a second each time, before it is killed.
const maxStops = 5

// unstop ends the hanging of a launch whose child somebody has stopped. The child has the user's id before it has the
// user's program, so its user may stop it, and gshim's thread with it. It goes on, and is stopped again afterwards.
func (s *server) unstop(e *entry) {
	stops := 0
	for !settled(e, stuckAfter) {
		s.mu.Lock()
		if s.closing {
			s.mu.Unlock()
			return
		}
		tid := 0
		if e.state == starting && e.child != nil && e.early == nil {
			tid = e.child.childTID()
		}
		if p, err := readProcess(tid); tid != 0 && err == nil && p.state == 'T' { // mu keeps the reaper away
			sig := unix.SIGCONT
			if stops++; stops > maxStops {
				sig = unix.SIGKILL
			}
			s.log.Warn("a launch was stopped between fork and exec", "job", e.key.JobID, "pid", tid, "sent", sig)
			_ = unix.Kill(tid, sig) // tried again
		}
		s.mu.Unlock()
	}
	if stops > 0 {
		_, _ = s.signalLeader(e, unix.SIGSTOP, false) // unless it was killed
	}
}

func settled(e *entry, wait time.Duration) bool {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-e.settled:
		return true
	case <-t.C:
		return false
	}
}

// signalLeader signals the leader or its group while it exists: mu keeps the reaper from releasing its pid.
func (s *server) signalLeader(e *entry, sig syscall.Signal, group bool) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pid := e.event.PID
	switch {
	case e.state == orphan && pid != 0:
		if p, err := readProcess(pid); err != nil || p.ticks != e.event.StartTicks {
			return 0, nil
		}
	case e.state != running:
		return 0, nil
	}
	kill := unix.Kill
	switch {
	case group:
		pid = -pid
	case sig != 0 && sig != unix.SIGKILL && taskaround.Is(pid):
		kill = passOn
	}
	switch err := kill(pid, sig); err {
	case nil:
		return 1, nil
	case unix.ESRCH:
		return 0, nil
	default:
		return 0, fmt.Errorf("signal %v (pid %d): %w", e.key, pid, err)
	}
}

// passOn has the process around a task give it a signal.
func passOn(pid int, sig syscall.Signal) error {
	info := struct {
		signo, errno, code, _ int32
		pid, uid              int32
		value                 int64
		_                     [96]byte
	}{signo: int32(taskaround.PassOn), code: -1 /* SI_QUEUE */, pid: int32(os.Getpid()), uid: int32(os.Getuid()),
		value: int64(sig)}
	if _, _, no := unix.RawSyscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), uintptr(taskaround.PassOn),
		uintptr(unsafe.Pointer(&info))); no != 0 {
		return no
	}
	return nil
}

// signalTree signals the whole tree. SIGKILL is repeated until no process is left, so that none escapes by forking.
// SIGTSTP stops processes that don't catch it: the kernel does not stop those of an orphaned group, and all groups of
// jobs are.
func (s *server) signalTree(e *entry, sig syscall.Signal) (int, error) {
	if sig == unix.SIGKILL && e.cgroup.V2 != "" {
		n, err := s.killCgroup(e)
		if err == nil {
			return n, nil
		}
		s.log.Debug("no cgroup.kill, killing one by one", "dir", e.cgroup.V2, "err", err)
	}
	reached := 0
	pause := killPause
	for round := 0; ; round++ {
		pids, err := s.treeOf(e)
		if err != nil {
			return reached, fmt.Errorf("find the processes of %v: %w", e.key, err)
		}
		if len(pids) == 0 {
			return reached, nil
		}
		if sig != unix.SIGKILL {
			pids = carried(pids)
		}
		for _, p := range pids {
			if err := killProcess(p, stopping(p, sig)); err == nil && round == 0 {
				reached++
			} else if err != nil && err != unix.ESRCH {
				return reached, fmt.Errorf("signal %v (pid %d): %w", e.key, p.pid, err)
			}
		}
		if sig != unix.SIGKILL {
			return reached, nil
		}
		if round == killRounds {
			return reached, fmt.Errorf("%d processes of %v survive SIGKILL, the first is pid %d: they may hang in a device or "+
				"on a file server",
				len(pids), e.key, pids[0].pid)
		}
		time.Sleep(pause) // paced by the kernel's own teardown
		pause = min(2*pause, killPauseTo)
	}
}

// CarrierName is the name (prctl PR_SET_NAME) of a process that only carries others, and passes signals on to them
// through its child: the process of a container and its runtime.
const CarrierName = "gshim-carrier"

// carried leaves out carriers and their children if there is anything else: a signal for all reaches what they run
// once, and not once more through each of them.
func carried(pids []process) []process {
	carriers := map[int]bool{}
	for _, p := range pids {
		if p.carrier {
			carriers[p.pid] = true
		}
	}
	if len(carriers) == 0 {
		return pids
	}
	var out []process
	for _, p := range pids {
		if !p.carrier && !carriers[p.parent] {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		return pids
	}
	return out
}

// killCgroup uses cgroup.kill (Linux 5.14) and waits until the cgroup is empty.
func (s *server) killCgroup(e *entry) (int, error) {
	pids, err := cgroupProcesses(e.cgroup.V2)
	if err != nil || len(pids) == 0 {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(e.cgroup.V2, "cgroup.kill"), []byte("1\n"), 0); err != nil {
		return 0, err
	}
	pause := killPause
	for range killRounds {
		left, err := cgroupProcesses(e.cgroup.V2)
		if err != nil {
			return len(pids), err
		}
		if len(left) == 0 {
			return len(pids), nil
		}
		time.Sleep(pause) // paced by the kernel's own teardown
		pause = min(2*pause, killPauseTo)
	}
	return len(pids), errors.New("not empty after cgroup.kill")
}

// stopping returns SIGSTOP for a SIGTSTP that a process neither catches nor ignores, nor blocks for long.
func stopping(p process, sig syscall.Signal) syscall.Signal {
	if sig != unix.SIGTSTP {
		return sig
	}
	for range blockedLooks { // a process that starts another one blocks all signals for a moment
		switch masks, err := signalMasks(p.pid); {
		case err != nil, masks["SigIgn"], masks["SigCgt"]:
			return sig
		case !masks["SigBlk"]:
			return unix.SIGSTOP
		}
		time.Sleep(blockedPause) // paced by the kernel's own exec
	}
	return sig
}

const (
	blockedLooks = 5
	blockedPause = 2 * time.Millisecond
)

// signalMasks says which of a process's masks have SIGTSTP.
func signalMasks(pid int) (map[string]bool, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return nil, err
	}
	has := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		name, mask, _ := strings.Cut(line, ":")
		if name != "SigBlk" && name != "SigIgn" && name != "SigCgt" {
			continue
		}
		bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
		if err != nil {
			return nil, fmt.Errorf("%s of process %d: %w", name, pid, err)
		}
		has[name] = bits&(1<<(unix.SIGTSTP-1)) != 0
	}
	return has, nil
}

// killProcess signals exactly that process, not a later one with the same pid.
func killProcess(p process, sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == unix.ENOSYS || err == unix.EPERM {
		return unix.Kill(p.pid, sig)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if now, err := readProcess(p.pid); err != nil || now.ticks != p.ticks {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// treeOf lists the living processes of a launch.
func (s *server) treeOf(e *entry) ([]process, error) {
	dir := e.cgroup.V2
	if dir == "" && len(e.cgroup.V1) > 0 {
		dir = e.cgroup.V1[0]
	}
	if dir == "" {
		return s.familyOf(e)
	}
	pids, err := cgroupProcesses(dir)
	if err != nil {
		return nil, err
	}
	var out []process
	for _, pid := range pids {
		if p, err := readProcess(pid); err == nil && !p.dead() && pid != s.info.PID {
			out = append(out, p)
		}
	}
	return out, nil
}

func (s *server) eventOf(e *entry) Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.event
}

// familyOf finds a launch's processes without a cgroup.
func (s *server) familyOf(e *entry) ([]process, error) {
	if s.nothingLeft(e) {
		return nil, nil
	}
	all, err := allProcesses()
	if err != nil {
		return nil, err
	}
	leader := s.eventOf(e)
	return family(all, leader.PID, leader.StartTicks, s.info.PID,
		func(p process) bool {
			return hasEnv(p.pid, s.id.trackEntry(e.key), p.parent == s.info.PID && !p.dead())
		}), nil
}

// nothingLeft is a cheap test for the usual job, which leaves no process: a survivor of a dead leader has an ancestor
// that is a child of gshim, and if all children of gshim are leaders of other launches, there is none. The kernel's
// list can skip an entry when another process on it ends meanwhile, so it is read twice.
func (s *server) nothingLeft(e *entry) bool {
	for range 2 {
		kids, ok := children()
		if !ok || !s.allLeaders(e, kids) {
			return false
		}
	}
	return true
}

func (s *server) allLeaders(e *entry, kids []int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.state != ending && e.state != done || e.event.Unknown || e.last.Unknown {
		return false
	}
	for _, k := range kids {
		if s.byPID[k] == nil {
			return false
		}
	}
	return true
}

// family picks out of all processes those of the session of leader (if that is still the leader's: its pid may have
// gone to another process), those that are marked, and the descendants of both; never gshim itself or the dead.
func family(all []process, leader int, ticks uint64, self int, marked func(process) bool) []process {
	byPID := make(map[int]process, len(all))
	for _, p := range all {
		byPID[p.pid] = p
	}
	sessionOurs := leader != 0
	if now, ok := byPID[leader]; ok && now.ticks != ticks {
		sessionOurs = false
	}
	const (
		no  = 1
		yes = 2
	)
	verdict := map[int]int{self: no, 0: no, 1: no}
	var judge func(p process, depth int) bool
	judge = func(p process, depth int) bool {
		if v := verdict[p.pid]; v != 0 {
			return v == yes
		}
		ours := sessionOurs && (p.session == leader || p.pid == leader)
		if parent, ok := byPID[p.parent]; !ours && ok && depth < len(all) {
			ours = judge(parent, depth+1)
		}
		ours = ours || marked(p)
		verdict[p.pid] = no
		if ours {
			verdict[p.pid] = yes
		}
		return ours
	}
	var out []process
	for _, p := range all {
		if judge(p, 0) && !p.dead() {
			out = append(out, p)
		}
	}
	return out
}
