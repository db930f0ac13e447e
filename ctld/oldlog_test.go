package ctld

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gbatch/internal/golden"
	"gbatch/internal/model"
	"gbatch/internal/state"
	"gbatch/internal/store"
)

// TestLogIsReadForever: a controller starts on the raft log of an earlier version, with all its facts. v1/raft.db.gz is
// of a gctld of commit 4b95a0e that was killed with jobs in every state; it is never rewritten. A person has checked
// the text beside it.
func TestLogIsReadForever(t *testing.T) {
	dir := t.TempDir()
	old := golden.Unpack(t, "testdata/v1/raft.db.gz")
	if err := os.WriteFile(filepath.Join(dir, "raft.db"), old, 0o600); err != nil {
		t.Fatal(err)
	}
	m := newMachine()
	open := func() *store.Store {
		s, err := store.Open(store.Options{ID: "ctl1", Dir: dir, Peers: []store.Peer{{ID: "ctl1", Addr: "mem"}},
			Net: store.NewMemNet(), Machine: m})
		if err != nil {
			t.Fatal(err)
		}
		for deadline := time.After(time.Minute); !s.IsLeader(); {
			select {
			case <-s.LeaderCh():
			case <-deadline:
				t.Fatal("no leader after a minute")
			}
		}
		if err := s.Barrier(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	first := factsText(m.View())
	golden.Compare(t, "testdata/v1/raft.txt", first)
	if err := m.st.Check(); err != nil {
		t.Error(err)
	}
	// It goes on from there: with a command of today's, a snapshot of today's, and the next start.
	tick, err := state.Encode(1_795_370_060_000, &state.Tick{}) // half a minute later, before jobs are forgotten
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Propose(t.Context(), tick); err != nil {
		t.Error(err)
	}
	if err := s.Snapshot(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	gen := m.View().Gen()
	m = newMachine()
	s = open()
	defer s.Close()
	if now := factsText(m.View()); !bytes.Equal(now, first) || m.View().Gen() != gen {
		t.Errorf("after a snapshot, at generation %d of %d:\n%s", m.View().Gen(), gen, now)
	}
}

// factsText says what a person wants to see of all facts.
func factsText(v *state.View) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "cluster %s\n", v.Config().Cluster)
	v.Nodes(func(n *model.Node) bool {
		fmt.Fprintf(&b, "node %s: %d CPUs, %d kinds of units, admin %d, %d jobs\n", n.Def.Name, n.Def.CPUs,
			len(n.Def.Gres), n.Admin, len(n.Jobs))
		return true
	})
	v.Accounts(func(a *model.Account) bool {
		fmt.Fprintf(&b, "account %s below %q\n", a.Name, a.Parent)
		return true
	})
	v.Associations(func(a *model.Association) bool {
		fmt.Fprintf(&b, "association %d: %s %s\n", a.ID, a.Account, a.User)
		return true
	})
	v.Jobs(func(j *model.Job) bool {
		fmt.Fprintf(&b, "job %d %s: %s (%s) of %s, attempt %d, submitted at %d, begins at %d", j.ID, j.Spec.Name, j.State,
			j.Reason, j.Spec.User, j.Attempt, j.Submit, j.Begin)
		if j.Run != nil {
			fmt.Fprintf(&b, ", since %d on %v with %v for %d s", j.Run.Start, j.Run.Alloc.NodeNames(),
				j.Run.Alloc.Nodes[0].Gres, j.Run.LimitS)
		}
		if j.End != nil {
			fmt.Fprintf(&b, ", ended at %d with %d:%d", j.End.At, j.End.Exit.Code, j.End.Exit.Signal)
		}
		b.WriteByte('\n')
		return true
	})
	return b.Bytes()
}
