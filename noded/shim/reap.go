//go:build linux && (amd64 || arm64)

package shim

// reap.go collects ends and makes them durable before it reports them: reapLoop takes exit statuses from the kernel;
// commitLoop writes and syncs them in batches. A batch is all that has ended during the last sync.

import (
	"context"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/wall"
)

// ended is one exit status.
type ended struct {
	pid    int
	status syscall.WaitStatus
	usage  syscall.Rusage
	at     time.Time
}

// event is the Exited of a launch, given its Launched.
func (x *ended) event(launched Event) Event {
	ev := launched
	ev.Kind, ev.Ended = Exited, x.at
	if x.status.Signaled() {
		ev.Signal, ev.Core = int(x.status.Signal()), x.status.CoreDump()
	} else {
		ev.Code = x.status.ExitStatus()
	}
	ev.UserCPU, ev.SysCPU = time.Duration(x.usage.Utime.Nano()), time.Duration(x.usage.Stime.Nano())
	ev.MaxRSSKB = x.usage.Maxrss
	const block = 512 // bytes; the kernel's unit here, whatever the disk's
	ev.ReadB, ev.WriteB, ev.Faults = x.usage.Inblock*block, x.usage.Oublock*block, x.usage.Majflt
	return ev
}

func (s *server) reapLoop(ctx context.Context) {
	for {
		for s.reapOne() {
		}
		select {
		case <-s.sigchld:
		case <-ctx.Done():
			return
		}
	}
}

// reapOne collects one child, if one has ended. It holds mu until the entry is marked, so that no signal goes to a pid
// that the kernel has already given to another process.
func (s *server) reapOne() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var x ended
	var pid int
	var err error
	for {
		if pid, err = syscall.Wait4(-1, &x.status, unix.WNOHANG, &x.usage); err != unix.EINTR {
			break
		}
	}
	if err != nil || pid <= 0 {
		return false
	}
	x.pid, x.at = pid, wall.Now()
	if e := s.byPID[pid]; e != nil {
		delete(s.byPID, pid)
		s.finish(e, x.event(e.event))
		return true
	}
	for e := range s.launching {
		if e.child != nil && e.child.childTID() == pid && (e.early == nil || e.early.pid != pid) {
			e.early = &x
			return true
		}
	}
	return true // a process that some job left behind
}

// finish queues a launch's last event for the journal. Callers hold mu.
func (s *server) finish(e *entry, last Event) {
	if e.cut != "" {
		last = cutEnd(last, e.cut)
	}
	e.state, e.last = ending, last
	s.ends = append(s.ends, e)
	wake(s.wakeEnds)
}

// commitPace is the least time between two syncs, so that a busy node gathers ends; a single end does not wait.
const commitPace = 5 * time.Millisecond

func (s *server) commitLoop(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-s.wakeEnds:
		case <-ctx.Done():
			return
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		s.commit()
		pause.Reset(commitPace)
	}
}

// commit makes all queued ends durable and reports them. If the journal fails (a full disk), it reports them
// nevertheless: gnoded may not be there later.
func (s *server) commit() {
	s.mu.Lock()
	batch := s.ends
	s.ends = nil
	s.mu.Unlock()

	records := make([]*record, len(batch))
	for i, e := range batch {
		records[i] = &record{kind: recDone, event: e.last}
	}
	s.jmu.Lock()
	var err error
	if s.journal.wantsRewrite() {
		s.rewriteJournal()
	}
	if len(records) > 0 {
		err = s.journal.add(records...)
	}
	s.jmu.Unlock()
	if len(records) == 0 {
		return
	}
	if err == nil {
		// Only this loop replaces the file, so it is safe to sync it without the lock.
		err = s.journal.sync()
	}
	if err != nil {
		s.log.Error("ends of launches are told without being on disk; launching stops until the journal can be written again",
			"count", len(batch), "err", err)
		s.jmu.Lock()
		s.journal.bad = err
		s.jmu.Unlock()
	}

	s.mu.Lock()
	for _, e := range batch {
		e.event, e.state, e.last = e.last, done, Event{}
		s.tell(e.event)
		sayEnd(e)
	}
	s.mu.Unlock()
}

// sayEnd tells who waits for the end of a launch beside gnoded. Callers hold mu: the file doesn't block (EndPipe).
func sayEnd(e *entry) {
	if e.told == nil {
		return
	}
	if fd := fdOf(e.told); fd >= 0 && e.event.Kind == Exited {
		w := EndWord{Task: e.key.Task, Code: int32(e.event.Code), Signal: int32(e.event.Signal)}
		_, _ = unix.Write(fd, []byte(w.String())) // without it, gnoded tells alone, as soon as it can
	}
	_ = e.told.Close() // it was only written
	e.told = nil
}

// rewriteJournal replaces the journal by one of the launches in memory. Callers hold jmu.
func (s *server) rewriteJournal() {
	s.mu.Lock()
	known := make([]remembered, 0, len(s.entries))
	for _, e := range s.entries {
		known = append(known, remembered{key: e.key, cgroup: e.cgroup, event: e.event})
	}
	s.mu.Unlock()
	if err := s.journal.rewrite(s.boot, known); err != nil {
		s.log.Error("the journal can't be rewritten", "err", err)
	}
}
