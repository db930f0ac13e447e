//go:build linux && (amd64 || arm64)

package shim

// server.go is the process gshim: its memory, its loops, and the work on each order. Locks: server.jmu (the journal
// file) is taken before server.mu (everything else), never after. No system call that can block is made under mu.

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"gbatch/internal/version"
	"gbatch/internal/wall"

	"golang.org/x/sys/unix"
)

// The limits of the process.
const (
	maxConns = 16
	maxProcs = 4 // of the Go scheduler: launches in flight take none
	// gcPercent keeps the heap near 2 MiB instead of 4. A launch leaves little garbage.
	gcPercent = 50
	maxOrders = 64
)

// state is where one launch is.
type state uint8

const (
	starting state = iota // journaled or about to be, perhaps forked
	running               // a child of this process
	orphan                // runs, but is no child of this process
	ending                // has ended; that is on its way to the disk
	done                  // its last event may be told, and waits for an Ack
)

// entry is one launch.
type entry struct {
	key     Key
	uid     uint32
	cgroup  Cgroup
	state   state
	event   Event      // the newest that may be told; Kind 0 until there is one
	last    Event      // state ending: what event will be
	child   *childArgs // state starting, from just before the fork
	early   *ended     // state starting: the reaper was faster than the launch
	cut     string     // why it was killed when the lease ended; "": it was not
	told    *os.File   // the order's ToldFile; nil: there is none
	settled chan struct{}
}

// serverOptions are what New needs. After an upgrade, Listener and Lock come from the program before it.
type serverOptions struct {
	Dir       string
	Log       *slog.Logger
	LogFormat string // one of logfile.Formats
	Listener  *net.UnixListener
	Lock      *os.File
	Resume    *resume
	NoClone3  bool // use the fork of kernels before 5.7
}

// server is a gshim.
type server struct {
	log      *slog.Logger
	dir      string
	id       identity
	info     Info
	boot     string
	resume   resume
	listener *net.UnixListener
	lock     *os.File

	jmu     sync.Mutex
	journal *journal

	mu        sync.Mutex
	entries   map[Key]*entry
	byPID     map[int]*entry
	launching map[*entry]struct{}
	orphans   map[*entry]struct{}
	ends      []*entry // state ending, not yet in the journal
	conns     map[*conn]struct{}
	inHand    int  // orders being worked on
	paused    bool // an upgrade waits for the current orders; new ones wait for it
	closing   bool // no new orders: they are for the gshim after this one
	gate      sync.Cond
	lease     leased

	launchers *launchers
	closers   closers
	wakeEnds  chan struct{}
	sigchld   chan os.Signal
	stopping  chan struct{}
	stopOnce  sync.Once
	upgradeTo string // set before stop: exec this instead of ending
	wg        sync.WaitGroup
}

// newServer locks the directory (one gshim each), reads the journal and looks for the processes that it names.
func newServer(o serverOptions) (*server, error) {
	s := &server{log: o.Log, dir: o.Dir, boot: bootID(), listener: o.Listener, lock: o.Lock,
		entries: map[Key]*entry{}, byPID: map[int]*entry{}, launching: map[*entry]struct{}{}, orphans: map[*entry]struct{}{},
		conns:    map[*conn]struct{}{},
		wakeEnds: make(chan struct{}, 1), stopping: make(chan struct{}), sigchld: make(chan os.Signal, 1)}
	s.gate.L = &s.mu
	s.launchers = newLaunchers(&s.wg)
	s.launchers.late, s.closers.freed = s.closers.late, s.launchers.wake
	if o.Resume != nil {
		s.resume = *o.Resume
	} else {
		s.resume = resume{Started: time.Now()}
	}
	s.info = Info{Protocol: Protocol, Version: version.Version, PID: os.Getpid(), Started: s.resume.Started,
		Upgrades: s.resume.Upgrades}
	if s.lock == nil {
		lock, err := takeLock(filepath.Join(o.Dir, lockFile))
		if err != nil {
			return nil, err
		}
		s.lock = lock
	}
	// Children of jobs that outlive their parents come to gshim, not to init: it can find and reap them.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become a subreaper: %w", err)
	}
	s.id = s.identify(o)
	journal, oldBoot, known, err := openJournal(filepath.Join(o.Dir, journalFile), s.boot, o.Log)
	if err != nil {
		return nil, err
	}
	s.journal = journal
	s.readLease()
	signal.Notify(s.sigchld, unix.SIGCHLD)
	s.recover(oldBoot, known)
	if s.listener == nil {
		if s.listener, err = listen(o.Dir); err != nil {
			return nil, err
		}
	}
	// An upgrade whose exec failed has left a deadline.
	return s, s.listener.SetDeadline(time.Time{})
}

func (s *server) identify(o serverOptions) identity {
	id := identity{uid: os.Geteuid(), gid: os.Getegid(), root: os.Geteuid() == 0, clone3: !o.NoClone3 && hasClone3(),
		reasons: errnoTexts()}
	// CLONE_CLEAR_SIGHAND keeps ignored signals ignored, and make and nohup start gshim with ignored signals.
	if id.reset = math.MaxUint64; id.clone3 {
		id.reset = ignoredSignals()
	}
	id.limits = limitRules{have: ownLimit, mayRaise: mayRaiseLimits(),
		nrOpen: readNumber("/proc/sys/fs/nr_open", defaultNrOpen), openFiles: inheritedOpenFiles()}
	// getpriority(2), the system call, answers 20 - nice.
	if n, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil {
		id.nice = 20 - n
	}
	id.trackName = trackName(s.dir)
	if id.root {
		id.oomAdj = s.shield()
	}
	return id
}

// shield protects gshim from the OOM killer, because its death loses the exit statuses of all jobs. It returns the
// value that jobs get.
func (s *server) shield() []byte {
	const path = "/proc/self/oom_score_adj"
	given := s.resume.OOMAdj
	if given == "" {
		b, err := os.ReadFile(path)
		if err != nil {
			s.log.Warn("the OOM killer's preference is unknown and left alone", "err", err)
			return nil
		}
		given = string(b)
		s.resume.OOMAdj = given
	}
	if err := os.WriteFile(path, []byte("-1000\n"), 0); err != nil {
		s.log.Info("gshim is not protected from the OOM killer", "err", err)
		return nil
	}
	return []byte(given)
}

// stop ends run.
func (s *server) stop() { s.stopOnce.Do(func() { close(s.stopping) }) }

// run serves until Shutdown, SIGTERM or an upgrade (then s.upgradeTo is set).
func (s *server) run() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, loop := range []func(context.Context){s.reapLoop, s.commitLoop, s.orphanLoop, s.acceptLoop, s.abandonedLoop,
		s.leaseLoop} {
		s.wg.Go(func() { loop(ctx) })
	}
	<-s.stopping
	cancel()
	s.mu.Lock()
	s.closing = true
	s.gate.Broadcast()
	for c := range s.conns {
		c.close()
	}
	s.mu.Unlock()
	// Closing would unlink the socket, which an upgrade hands on. A deadline ends Accept as well.
	if err := s.listener.SetDeadline(time.Unix(1, 0)); err != nil {
		s.log.Warn("stop accepting", "err", err)
	}
	s.wg.Wait()
	// Only now: the reaper may have collected an exit status after the other loops stopped. It would be lost if it were
	// not journaled here.
	s.commit()
	return nil
}

// close releases the directory.
func (s *server) close() error {
	signal.Stop(s.sigchld)
	err := os.Remove(filepath.Join(s.dir, socketFile))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, s.listener.Close(), s.journal.close(), s.lock.Close())
}

// terminate handles SIGTERM: it ends gshim only if nothing runs.
func (s *server) terminate() {
	s.mu.Lock()
	err := s.idle()
	s.closing = s.closing || err == nil
	s.mu.Unlock()
	if err != nil {
		s.log.Warn("SIGTERM ignored", "why", err)
		return
	}
	s.log.Info("SIGTERM: nothing runs, shutting down")
	s.stop()
}

// idle returns why gshim can't shut down, or nil.
func (s *server) idle() error {
	var live []Key
	for k, e := range s.entries {
		if e.state != done {
			live = append(live, k)
		}
	}
	if len(live) == 0 {
		return nil
	}
	slices.SortFunc(live, compareKeys)
	return fmt.Errorf("%d processes still run, the first is %v: end them before gshim", len(live), live[0])
}

// launch keeps invariant 1: journal the intent, fork, journal the result, report it.
func (s *server) launch(e *entry, l *Launch) {
	defer s.dropPassed(l)
	if why := s.mayStart(e.key); why != "" {
		s.refuseCut(e, why)
		return
	}
	p, lerr := s.id.prepare(l)
	if lerr == nil {
		defer p.close()
		s.jmu.Lock()
		err := s.journal.add(&record{kind: recIntent, key: e.key, cgroup: e.cgroup})
		s.jmu.Unlock()
		if err != nil {
			wake(s.wakeEnds) // a rewrite may cure it
			lerr = refuse(StageJournal, "could not record the launch: %w", err)
		}
	}
	if lerr != nil {
		s.launched(e, Event{}, lerr)
		return
	}
	s.mu.Lock()
	e.child = p.child
	s.mu.Unlock()

	started := wall.Now()
	pid, lerr := p.forkExec(l)
	if lerr != nil {
		s.launched(e, Event{}, lerr)
		return
	}
	s.mu.Lock()
	e.told, l.Passed[ToldFile] = l.Passed[ToldFile], nil
	s.mu.Unlock()
	if errno := syscall.Errno(p.child.chdir); errno != 0 {
		p.notes = append(p.notes, fmt.Sprintf("could not change to the working directory %s: %v; it runs in /tmp", l.Dir,
			errno))
	}
	ev := Event{Kind: Launched, Key: e.key, PID: pid, Started: started, Notes: p.notes}
	if ev.StartTicks = p.child.startTicks(); ev.StartTicks == 0 {
		if proc, err := readProcess(pid); err == nil { // else it has been reaped already and needs no identity
			ev.StartTicks = proc.ticks
		}
	}
	s.mu.Lock()
	e.event = ev // for a rewrite of the journal between here and launched
	s.mu.Unlock()
	s.jmu.Lock()
	err := s.journal.add(&record{kind: recLaunched, event: ev})
	s.jmu.Unlock()
	if err != nil {
		s.log.Error("a launch is not in the journal; if gshim dies now its process has to be found by its cgroup", "job",
			e.key.JobID, "err", err)
	}
	s.launched(e, ev, nil)
}

// launched records and reports the result of a launch.
func (s *server) launched(e *entry, ev Event, failed *launchError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.launching, e)
	e.child = nil
	defer close(e.settled)
	if failed != nil {
		s.log.Info("launch failed", "job", e.key.JobID, "attempt", e.key.Attempt, "step", e.key.Step, "why", failed.text)
		s.finish(e, failedEvent(e.key, failed))
		return
	}
	e.event, e.state = ev, running
	s.tell(ev)
	if e.early != nil && e.early.pid == ev.PID { // else it is a failed try's, before the one that succeeded
		s.finish(e, e.early.event(ev))
		e.early = nil
		return
	}
	s.byPID[ev.PID] = e
}

func failedEvent(k Key, e *launchError) Event {
	return Event{Kind: LaunchFailed, Key: k, Stage: e.stage, Errno: e.errno, Text: clipText(e.text), Ended: wall.Now()}
}

func clipText(s string) string {
	const max = 16 << 10
	if len(s) > max {
		return s[:max] + "..."
	}
	return s
}

// tell sends an event to every connection that has sent List. Callers hold mu.
func (s *server) tell(ev Event) {
	for c := range s.conns {
		if c.subscribed {
			c.events(0, []Event{ev})
		}
	}
}

// trackName begins the environment entry that marks the processes of the gshim of this directory.
func trackName(dir string) string {
	h := fnv.New32a()
	h.Write([]byte(dir))
	return fmt.Sprintf("GBATCH_TRACK=%x.", h.Sum32())
}

func compareKeys(a, b Key) int {
	switch {
	case a.JobID != b.JobID:
		return cmpOrder(a.JobID < b.JobID)
	case a.Attempt != b.Attempt:
		return cmpOrder(a.Attempt < b.Attempt)
	case a.Step != b.Step:
		return cmpOrder(a.Step < b.Step)
	case a.Task != b.Task:
		return cmpOrder(a.Task < b.Task)
	}
	return 0
}

func cmpOrder(less bool) int {
	if less {
		return -1
	}
	return 1
}
