//go:build linux && (amd64 || arm64)

package shim

// orphan.go is the start of a gshim whose directory has a journal: it finds which launches still run, which are its own
// children (after an upgrade), and which ended unseen.

import (
	"context"
	"time"

	"gbatch/internal/wall"
)

const orphanPace = 300 * time.Millisecond // how often processes that are not children are looked at

// recover fills the tables from the journal. It takes no lock, because nothing else runs yet.
func (s *server) recover(oldBoot string, known []remembered) {
	for _, k := range known {
		e := &entry{key: k.key, cgroup: k.cgroup, event: k.event, state: done, settled: make(chan struct{})}
		close(e.settled)
		s.entries[k.key] = e
		if k.event.Done() {
			continue
		}
		e.state = orphan
		if k.event.Kind == 0 {
			e.event = Event{Kind: Orphaned, Key: k.key}
		}
		switch {
		case oldBoot != s.boot:
			s.finish(e, unknownEnd(e.event, "the node was rebooted while it ran"))
		case s.isChild(e.event):
			e.state = running
			s.byPID[e.event.PID] = e
		case s.orphanAlive(e):
			e.event.Kind = Orphaned
			s.orphans[e] = struct{}{}
			s.log.Warn("a process of an earlier gshim runs on; how it ends will be unknown", "job", e.key.JobID,
				"attempt", e.key.Attempt, "step", e.key.Step, "pid", e.event.PID)
		default:
			s.finish(e, unknownEnd(e.event, unseenWords))
		}
	}
}

func unknownEnd(ev Event, why string) Event {
	ev.Kind, ev.Unknown, ev.Text, ev.Notes, ev.Ended = Exited, true, why, nil, wall.Now()
	return ev
}

// isChild reports whether the process is this gshim's own, ended or not.
func (s *server) isChild(ev Event) bool {
	p, err := readProcess(ev.PID)
	return ev.PID != 0 && err == nil && p.ticks == ev.StartTicks && p.parent == s.info.PID
}

// orphanAlive reports whether the process of an entry, which is no child, runs. For an entry with only an intent, just
// the place of its processes is known: it lives as long as one of them.
func (s *server) orphanAlive(e *entry) bool {
	if leader := s.eventOf(e); leader.PID != 0 {
		p, err := readProcess(leader.PID)
		return err == nil && p.ticks == leader.StartTicks && !p.dead()
	}
	pids, err := s.treeOf(e)
	return err == nil && len(pids) > 0
}

func (s *server) orphanLoop(ctx context.Context) {
	tick := time.NewTicker(orphanPace)
	defer tick.Stop()
	for {
		s.mu.Lock()
		var watch []*entry
		for e := range s.orphans {
			watch = append(watch, e)
		}
		s.mu.Unlock()
		if len(watch) == 0 {
			return // orphans come from the start only
		}
		for _, e := range watch {
			if s.orphanAlive(e) {
				continue
			}
			s.mu.Lock()
			delete(s.orphans, e)
			s.finish(e, unknownEnd(e.event, "gshim died while it ran"))
			s.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
