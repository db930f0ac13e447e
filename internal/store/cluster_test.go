package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestThreeVotersOnTCP(t *testing.T) {
	base := t.TempDir()
	// long: it proposes to one leader and the machine may be busy
	g := newGroup(t, 3, Options{HeartbeatTimeout: time.Second, Logger: testLogger(t), TrailingLogs: 10})
	g.startAll(base)
	lead := g.leader()
	n := 0
	for range 50 {
		propose(t, lead.Store, fmt.Sprint("a", n))
		n++
	}
	g.agree(n)

	// A follower refuses, and names the leader.
	for id, m := range g.members {
		if m == lead {
			continue
		}
		_, err := m.Propose(t.Context(), []byte("to a follower"))
		if !errors.Is(err, ErrNotLeader) || !strings.Contains(err.Error(), lead.peer.ID+" at "+lead.peer.Addr) {
			t.Errorf("%s: %v", id, err)
		}
		if err := m.VerifyLeader(t.Context()); !errors.Is(err, ErrNotLeader) {
			t.Errorf("%s verifies: %v", id, err)
		}
		if err := m.Barrier(t.Context()); !errors.Is(err, ErrNotLeader) {
			t.Errorf("%s barrier: %v", id, err)
		}
		if st := m.Stats(); st.State != "Follower" || st.Leader != lead.peer.ID || st.LastContact < 0 || len(st.Voters) != 3 {
			t.Errorf("%s: %+v", id, st)
		}
	}

	// A planned hand-over.
	if err := lead.TransferLeadership(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	await(t, "another leader", func() bool { return !lead.IsLeader() && g.leader() != lead })
	for range 10 {
		g.proposeSomewhere(fmt.Sprint("b", n))
		n++
	}
	g.agree(n)

	// The leader stops and the others continue; it returns with a log so old that it gets a snapshot.
	lead = g.leader()
	term := lead.Term()
	if err := lead.Close(); err != nil {
		t.Fatal(err)
	}
	delete(g.members, lead.peer.ID)
	stopped := time.Now()
	next := g.leader()
	t.Logf("new leader %v after the old one closed", time.Since(stopped))
	if next.Term() <= term {
		t.Errorf("term %d after %d", next.Term(), term)
	}
	for range 2 { // the log reaches back to the older of two snapshots
		for range 50 {
			propose(t, next.Store, fmt.Sprint("c", n))
			n++
		}
		if err := next.Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	back := g.start(lead.peer, filepath.Join(base, lead.peer.ID))
	g.agree(n)
	if back.machine.restores == 0 {
		t.Error("the returning voter got no snapshot")
	}
	for range 10 {
		g.proposeSomewhere(fmt.Sprint("d", n))
		n++
	}
	g.agree(n)
}

// TestAddressesMayChange checks that voters' addresses come from the configuration, not from the log.
func TestAddressesMayChange(t *testing.T) {
	base := t.TempDir()
	for round := range 2 {
		g := newGroup(t, 3, Options{HeartbeatTimeout: 100 * time.Millisecond}) // new ports each round
		g.startAll(base)
		g.proposeSomewhere(fmt.Sprint("round", round))
		g.agree(round + 1)
		for _, m := range g.members {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestHourOfFailover runs three voters in one bubble of fake time. Every ten minutes the leader is isolated: commands
// that it has acknowledged must not be lost, and it must not acknowledge commands while isolated.
func TestHourOfFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := NewMemNet()
		g := newGroup(t, 3, Options{Net: mem, SnapshotThreshold: 20, TrailingLogs: 5})
		g.startAll("")
		n := 0
		for range 6 {
			time.Sleep(10 * time.Minute)
			lead := g.leader()
			propose(t, lead.Store, fmt.Sprint("cmd", n))
			n++
			mem.Isolate(lead.peer.Addr)
			delete(g.members, lead.peer.ID)
			cut := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if _, err := lead.Propose(ctx, []byte("lost")); !errors.Is(err, ErrLeadershipLost) && !errors.Is(err, ErrNotLeader) {
				t.Errorf("the isolated leader said %v", err)
			}
			cancel()
			next := g.leader()
			if d := time.Since(cut); d > 10*time.Second {
				t.Errorf("a new leader after %v", d)
			}
			for range 30 {
				propose(t, next.Store, fmt.Sprint("cmd", n))
				n++
			}
			mem.Rejoin(lead.peer.Addr)
			g.members[lead.peer.ID] = lead
			g.agree(n)
		}
		for _, m := range g.members {
			if m.machine.times("lost") != 0 {
				t.Error("a command that was never acknowledged, on a leader without majority, was applied")
			}
		}
	})
}

// TestCloseLeavesNothing checks that Close leaves no goroutine and no open file.
func TestCloseLeavesNothing(t *testing.T) {
	files := func() int {
		es, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc here to count open files in")
		}
		return len(es)
	}
	base := t.TempDir()
	goroutines, open := runtime.NumGoroutine(), files()
	g := newGroup(t, 3, Options{HeartbeatTimeout: 100 * time.Millisecond})
	g.startAll(base)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				for _, m := range g.members {
					// While the voters close, calls may fail but must not hang.
					_, _ = m.Propose(context.Background(), fmt.Appendf(nil, "%d.%d", w, i))
					_ = m.VerifyLeader(context.Background())
				}
			}
		})
	}
	g.leader()
	for _, m := range g.members {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
	await(t, "goroutines and files to end", func() bool { return runtime.NumGoroutine() <= goroutines && files() <= open })
}
