package noded

import (
	"context"
	"errors"
	"os/user"
	"slices"
	"strings"
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/userdb"
)

// aNode is the daemon of a node as root, with a user database that has some users; user id 5000 it can't look up.
func aNode() *Noded {
	users := map[uint32]userdb.User{
		1001: {UID: 1001, GID: 100, Name: "ann", Groups: []uint32{0, 100, 4242}},
		900:  {UID: 900, GID: 900, Name: "slurm", Groups: []uint32{900}},
	}
	return &Noded{root: true, opts: Options{Name: "n1"}, system: &slurmUser{name: "slurm", known: true, uid: 900},
		people: userdb.NewWith(func(_ context.Context, uid uint32) (userdb.User, error) {
			u, known := users[uid]
			switch {
			case uid == 5000:
				return u, errors.New("the directory server does not answer")
			case !known:
				return u, userdb.ErrUnknown
			}
			return u, nil
		}, func(context.Context, uint32) (string, error) { return "", userdb.ErrUnknown })}
}

// TestMayLaunch: whatever the leader says, this node runs no job of nobody, of root or SlurmUser unless it comes from a
// controller, for another node, or with limits that there are none of.
func TestMayLaunch(t *testing.T) {
	n := aNode()
	for _, c := range []struct {
		name   string
		change func(*proto.Launch)
		want   string // "": it may run
	}{
		{"a user's", func(*proto.Launch) {}, ""},
		{"no specification", func(l *proto.Launch) { l.Spec = nil }, "incomplete"},
		{"another node's", func(l *proto.Launch) { l.Alloc.Nodes[0].Node = "n2" }, "is not for node n1"},
		{"no such part", func(l *proto.Launch) { l.Node = 1 }, "is not for node n1"},
		{"a negative part", func(l *proto.Launch) { l.Node = -1 }, "is not for node n1"},
		{"root's", func(l *proto.Launch) { l.Spec.UID = 0 }, "user id 0 is root's"},
		{"root's, of a controller", func(l *proto.Launch) {
			l.Spec.UID, l.Spec.GID, l.Spec.Groups, l.Spec.From = 0, 0, nil, model.FromController
		}, ""},
		{"SlurmUser's", func(l *proto.Launch) { l.Spec.UID = 900 }, "user id 900 is SlurmUser's"},
		{"nobody's", func(l *proto.Launch) { l.Spec.UID = model.NoID }, "4294967295"},
		{"no group's", func(l *proto.Launch) { l.Spec.GID = model.NoID }, "4294967295"},
		{"root's group", func(l *proto.Launch) { l.Spec.GID = 0 }, "group"},
		{"root's group among others", func(l *proto.Launch) { l.Spec.Groups = []uint32{0} }, "group"},
		{"no limit's", func(l *proto.Launch) { l.Spec.Limits = []model.RLimit{{Resource: 99}} }, "resource limit number 99"},
	} {
		l := &proto.Launch{Job: 1, Attempt: 1, Spec: &model.Spec{UID: 1001, GID: 100, User: "ann", Groups: []uint32{4242}},
			Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1"}}}}
		c.change(l)
		err := n.mayLaunch(l)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	n.system = &slurmUser{name: "slurm", known: true} // nobody here has the name
	l := &proto.Launch{Job: 1, Spec: &model.Spec{UID: 1001, GID: 100},
		Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1"}}}}
	if err := n.mayLaunch(l); err != nil {
		t.Error(err)
	}
	n.opts.Login = true
	if err := n.mayLaunch(l); err == nil {
		t.Error("a login host runs a job")
	}
}

// TestAsKnownHere: a job has only the groups that this node's database gives, and runs only if both databases agree on
// who its user is.
func TestAsKnownHere(t *testing.T) {
	n := aNode()
	for _, c := range []struct {
		uid, gid uint32
		user     string
		want     string
	}{
		{1001, 100, "ann", ""},
		{1001, 100, "1001", ""}, // the controllers know no name
		{1001, 100, "bob", "user id 1001 is ann on node n1 and bob on the controllers"},
		{1001, 77, "ann", "does not give user ann group id 77"},
		{2002, 100, "carl", "user carl is unknown on node n1"},
		{5000, 100, "dora", "does not say who user dora (5000) is: the directory server does not answer"},
	} {
		l := &proto.Launch{Spec: &model.Spec{UID: c.uid, GID: c.gid, User: c.user, Groups: []uint32{0, 100, 666, 4242}}}
		out, err := n.asKnownHere(t.Context(), l)
		switch {
		case c.want != "":
			if err == nil || !strings.Contains(err.Error(), c.want) || out != l {
				t.Errorf("%+v: %v", c, err)
			}
		case err != nil || !slices.Equal(out.Spec.Groups, []uint32{100, 4242}) || len(l.Spec.Groups) != 4:
			t.Errorf("%+v: groups %v, %v", c, out.Spec.Groups, err)
		}
	}
	unnamed := &proto.Launch{Spec: &model.Spec{UID: 2002, GID: 7, User: "2002", Groups: []uint32{0, 7, 666}}}
	if out, err := n.asKnownHere(t.Context(), unnamed); err != nil || !slices.Equal(out.Spec.Groups, []uint32{7}) {
		t.Errorf("a user whom neither knows: %v, %v", out.Spec.Groups, err)
	}
	if got := n.given(5000, []uint32{4}); got != nil {
		t.Errorf("groups of a user who can't be looked up: %v", got)
	}
}

// TestSlurmUserIsLookedUpAside: while the user database hangs, the loop takes launches, workers wait for no longer than
// they may, and there is one lookup. Once it answers, SlurmUser's jobs are refused.
func TestSlurmUserIsLookedUpAside(t *testing.T) {
	n := aNode()
	hangs, asked := make(chan struct{}), make(chan struct{}, 9)
	n.system = &slurmUser{name: "slurm", lookup: func(string) (*user.User, error) {
		asked <- struct{}{}
		<-hangs
		return &user.User{Uid: "900"}, nil
	}}
	l := &proto.Launch{Job: 1, Spec: &model.Spec{UID: 900, GID: 900, User: "slurm"},
		Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1"}}}}
	if err := n.mayLaunch(l); err != nil {
		t.Errorf("the loop: %v", err)
	}
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := n.asKnownHere(ctx, l)
		if err == nil || !strings.Contains(err.Error(), "does not say who SlurmUser=slurm is") {
			t.Errorf("a worker: %v", err)
		}
	}
	if len(asked) != 1 {
		t.Errorf("%d lookups", len(asked))
	}
	close(hangs)
	if _, err := n.asKnownHere(t.Context(), l); err == nil || !strings.Contains(err.Error(), "is SlurmUser's") {
		t.Errorf("a job of SlurmUser's: %v", err)
	}
	if err := n.mayLaunch(l); err == nil {
		t.Error("the loop takes a job of SlurmUser's, who is known")
	}
}

// TestMayCome: who may be spoken for about steps from another host.
func TestMayCome(t *testing.T) {
	s := &stepServer{system: &slurmUser{name: "slurm", known: true, uid: 900}}
	for _, c := range []struct {
		role string
		uid  uint32
		may  bool
	}{
		{pki.RoleLogin, 1001, true}, {pki.RoleLogin, 0, false}, {pki.RoleLogin, 900, false},
		{pki.RoleLogin, model.NoID, false}, {pki.RoleNode, model.NoID, false}, {pki.RoleNode, 0, true},
	} {
		if err := s.mayCome(c.role, c.uid); (err == nil) != c.may {
			t.Errorf("%s for %d: %v", c.role, c.uid, err)
		}
	}
}
