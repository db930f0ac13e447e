package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// add makes a started controller a member with a vote.
func (g *group) add(p Peer) {
	g.t.Helper()
	if err := g.leader().AddMember(short(g.t), p); err != nil {
		g.t.Fatal(err)
	}
	await(g.t, p.ID+" has the state", func() bool { return !g.members[p.ID].Joining() })
	if err := g.leader().Promote(short(g.t), p); err != nil {
		g.t.Fatal(err)
	}
}

// remove ends a membership, of the leader after another one leads.
func (g *group) remove(id string) {
	g.t.Helper()
	l := g.leader()
	if l.peer.ID == id {
		if err := l.TransferLeadership(short(g.t), ""); err != nil {
			g.t.Fatal(err)
		}
		await(g.t, "another leader", func() bool { l = g.leader(); return l.peer.ID != id })
	}
	if err := l.RemoveMember(short(g.t), id); err != nil {
		g.t.Fatal(err)
	}
	g.stop(id)
}

// names gives the members as a controller knows them, those without a vote in brackets.
func (m *member) names() string {
	var out []string
	for _, x := range m.Members() {
		if !x.Voter {
			x.ID = "(" + x.ID + ")"
		}
		out = append(out, x.ID)
	}
	slices.Sort(out) // the order is that of the file
	return strings.Join(out, " ")
}

// TestMembersChange: from one controller to three, to five, and back to one, commands in between. All that were
// acknowledged are there, also after each restart with the file from before the change and with that from after it.
func TestMembersChange(t *testing.T) {
	base := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 5, Options{Net: NewMemNet(), Logger: testLogger(t)})
		all, n := g.peers, 0
		dir := func(p Peer) string { return filepath.Join(base, p.ID) }
		command := func() { g.proposeSomewhere(fmt.Sprint("command ", n)); n++ }
		g.peers = all[:1]
		g.start(all[0], dir(all[0]))
		g.joined()
		command()
		for i, p := range all[1:] {
			g.peers = all[:i+2]
			g.start(p, dir(p))
			command()
			g.add(p)
			command()
		}
		g.agree(n)
		for _, file := range [][]Peer{all[:1], all} {
			ids := slices.Collect(maps.Keys(g.members))
			g.stopAll()
			for _, id := range ids {
				i := id[1] - '1'
				g.peers = file
				if len(file) == 1 && i > 0 {
					g.peers = append([]Peer{all[0]}, all[i]) // it has to name itself
				}
				g.start(all[i], dir(all[i]))
			}
			command()
			g.agree(n)
			if got := g.leader().names(); got != "c1 c2 c3 c4 c5" {
				t.Errorf("after a restart: %s", got)
			}
		}
		for len(g.members) > 1 {
			command()
			g.remove(g.leader().peer.ID) // the worst choice
			command()
		}
		last := g.leader()
		if got := last.names(); got != last.peer.ID {
			t.Errorf("left: %s", got)
		}
		g.agree(n)
		g.stopAll()
		g.start(last.peer, dir(last.peer))
		command()
		g.agree(n)

		// One that was removed does not start with its old state, and names no way to lose what somebody needs.
		gone := all[0]
		if last.peer == gone {
			gone = all[1]
		}
		s, err := Open(Options{ID: gone.ID, Dir: dir(gone), Peers: all, Net: NewMemNet(), Machine: newLedger()})
		if err == nil { // it ended before it heard of it
			err = s.Close()
		} else if errors.Is(err, ErrRemoved) {
			err = nil
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// TestNewMemberGetsStateFirst: a member without a vote does not count for a majority, however long it takes.
func TestNewMemberGetsStateFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, 2, Options{Net: NewMemNet()})
		all := g.peers
		g.peers = all[:1]
		g.start(all[0], "")
		g.joined()
		l := g.leader()
		if err := l.AddMember(short(t), all[1]); err != nil { // nobody is there
			t.Fatal(err)
		}
		propose(t, l.Store, "without it")
		if got := l.names(); got != "(c2) c1" {
			t.Error(got)
		}
		g.peers = all
		g.start(all[1], "")
		await(t, "c2 has the state", func() bool { return !g.members["c2"].Joining() })
		g.agree(1)
	})
}

// TestWipedVoterAsksTheWholeCluster: a voter that has lost its disk, and whose file is from before two controllers were
// added, gives no vote before those were heard: they may have what the candidate lacks.
func TestWipedVoterAsksTheWholeCluster(t *testing.T) {
	members := []Peer{{"c1", "a"}, {"c2", "b"}, {"c3", "c"}, {"c4", "d"}}
	net := NewMemNet()
	s, err := Open(Options{ID: "c1", Peers: members[:3], Net: net, Machine: newLedger()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	said := map[string]Standing{
		"c2": {ID: "c2", LastTerm: 2, LastIndex: 9, Members: members},
		"c3": {ID: "c3", LastTerm: 1, LastIndex: 4, Members: members[:3]},
	}
	s.join.ask = func(_ context.Context, p Peer) (Standing, error) {
		if st, ok := said[p.ID]; ok {
			return st, nil
		}
		return Standing{}, errors.New("no answer")
	}
	if s.join.mayVote(t.Context(), 2, 9) {
		t.Error("it votes although c4 was not heard")
	}
	said["c4"] = Standing{ID: "c4", LastTerm: 2, LastIndex: 12, Members: members}
	if s.join.mayVote(t.Context(), 2, 9) {
		t.Error("it votes for a log that is worse than that of c4")
	}
	if !s.join.mayVote(t.Context(), 2, 12) {
		t.Error("it does not vote for the best log")
	}
}
