package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stopAll closes all voters.
func (g *group) stopAll() {
	g.t.Helper()
	for id := range g.members {
		g.stop(id)
	}
}

func (g *group) stop(id string) {
	g.t.Helper()
	if err := g.members[id].Close(); err != nil {
		g.t.Error(err)
	}
	delete(g.members, id)
}

// TestMajorityWiped: two of three disks are lost and those two start first. They don't begin a new cluster; when the
// third starts, its log is everywhere.
func TestMajorityWiped(t *testing.T) {
	base := t.TempDir()
	g := newGroup(t, 3, Options{Logger: testLogger(t)})
	g.startAll(base)
	for n := range 500 {
		g.proposeSomewhere(fmt.Sprint("job ", n))
	}
	g.agree(500)
	g.stopAll()
	for _, id := range []string{"c1", "c2"} {
		if err := os.RemoveAll(filepath.Join(base, id)); err != nil {
			t.Fatal(err)
		}
		i := id[1] - '1'
		g.start(g.peers[i], filepath.Join(base, id))
	}
	for end := time.Now().Add(4 * defaultTimeout); time.Now().Before(end); time.Sleep(joinPace) { // nothing may happen
		for id, m := range g.members {
			if st := m.Stats(); st.State != "Follower" || st.LastIndex != 0 || !m.Joining() {
				t.Fatalf("%s, which is empty: %+v", id, st)
			}
		}
	}
	g.start(g.peers[2], filepath.Join(base, "c3"))
	g.proposeSomewhere("job 500")
	g.agree(501)
	g.joined()
	// From now on they count: without the third.
	g.stop("c3")
	g.proposeSomewhere("job 501")
	g.agree(502)
}

// TestEmptyVoterMayNotDecide: a voter that has lost its disk and one whose log is old are a majority, but don't elect
// each other while the one with the newest log is away.
func TestEmptyVoterMayNotDecide(t *testing.T) {
	base := t.TempDir()
	g := newGroup(t, 3, Options{Logger: testLogger(t)})
	g.startAll(base)
	g.proposeSomewhere("both have this")
	g.agree(1)
	g.stop("c3")
	g.proposeSomewhere("c3 lacks this")
	g.agree(2)
	g.stopAll()
	if err := os.RemoveAll(filepath.Join(base, "c1")); err != nil {
		t.Fatal(err)
	}
	c1 := g.start(g.peers[0], filepath.Join(base, "c1"))
	c3 := g.start(g.peers[2], filepath.Join(base, "c3"))
	for end := time.Now().Add(6 * defaultTimeout); time.Now().Before(end); time.Sleep(joinPace) {
		if c1.IsLeader() || c3.IsLeader() {
			t.Fatal("an empty voter helped an old log to lead")
		}
	}
	g.start(g.peers[1], filepath.Join(base, "c2"))
	g.proposeSomewhere("all have this")
	g.agree(3)
}

// TestJoiningIsRemembered: a voter that starts again before it has everything is still joining.
func TestJoiningIsRemembered(t *testing.T) {
	base := t.TempDir()
	g := newGroup(t, 3, Options{Logger: testLogger(t)})
	g.startAll(base)
	g.proposeSomewhere("x")
	g.agree(1)
	g.stop("c1")
	dir := filepath.Join(base, "c1")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	m := g.start(g.peers[0], dir)
	await(t, "its first entries", func() bool { return m.Stats().LastIndex > 0 })
	wasJoining := m.Joining()
	g.stop("c1")
	m = g.start(g.peers[0], dir)
	if !wasJoining || !m.Joining() {
		t.Errorf("joining with the first entries: %v, after a restart: %v", wasJoining, m.Joining())
	}
	g.joined()
	g.stop("c1")
	if m = g.start(g.peers[0], dir); m.Joining() {
		t.Error("it has joined, and forgot that")
	}
}

// TestBeginsOnPurpose: without being told, empty voters wait; one that is told begins when all others have answered.
func TestBeginsOnPurpose(t *testing.T) {
	base := t.TempDir()
	g := newGroup(t, 3, Options{HeartbeatTimeout: 100 * time.Millisecond})
	g.begun = true
	for _, p := range g.peers {
		g.start(p, filepath.Join(base, p.ID))
	}
	nobody := func(what string) {
		t.Helper()
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(joinPace) {
			for id, m := range g.members {
				if m.Stats().LastIndex > 0 {
					t.Fatalf("%s: %s has begun a cluster", what, id)
				}
			}
		}
	}
	nobody("nobody was told to")
	g.stop("c3")
	mark := filepath.Join(base, "begin")
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	g.stop("c2")
	g.opts.BeginFile = mark
	g.start(g.peers[1], filepath.Join(base, "c2"))
	nobody("one of three is away")
	g.opts.BeginFile = ""
	g.start(g.peers[2], filepath.Join(base, "c3"))
	g.proposeSomewhere("x")
	g.agree(1)
	g.joined()
	if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the mark: %v", err)
	}

	// Alone: refused, or at once.
	o := Options{ID: "c1", Dir: t.TempDir(), Peers: []Peer{{"c1", "mem"}}, Net: NewMemNet(), Machine: newLedger()}
	want := "has no state in " + o.Dir
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--begin") {
		t.Errorf("alone: %v", err)
	}
}

// TestBeginTogether: all three are told, and begin one cluster.
func TestBeginTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 3, Options{Net: NewMemNet()})
		g.startAll("")
		g.proposeSomewhere("x")
		g.agree(1)
	})
}
