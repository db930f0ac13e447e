package ctld

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/state"
	"gbatch/internal/trust"
	"gbatch/internal/userdb"
)

// TestEveryRoleIsACaller: each role of a certificate has a column in the table of trust.
func TestEveryRoleIsACaller(t *testing.T) {
	seen := map[trust.Caller]bool{}
	for _, role := range pki.Roles() {
		c := trust.OfRole(role)
		if c == trust.Stranger || seen[c] {
			t.Errorf("role %s is a %s", role, c)
		}
		seen[c] = true
	}
}

// TestHostsSayNoMoreThanAnId: of what a login host says of a user, name, groups and group names are the controller's
// own; a group that the user has not, root's group and ids of nobody are refused.
func TestHostsSayNoMoreThanAnId(t *testing.T) {
	c := ruled(t)
	pass := func(role string, f proto.Caller) (*caller, error) {
		return c.vouched(t.Context(), &proto.Forward{Caller: f, Kind: proto.KindSubmit}, role, "h1")
	}
	who, err := pass(pki.RoleLogin, proto.Caller{UID: plainUser, GID: 4, Groups: []uint32{0, 6, 42}, User: "root",
		Group: "root", Host: "a\x1bb"})
	if err != nil || who.User != "ann" || who.GID != 4 || who.Group != "g4" || who.Host != "h1" ||
		fmt.Sprint(who.Groups) != fmt.Sprint([]uint32{4, plainUser}) || who.from != model.FromHost ||
		who.most != model.RightsUser {
		t.Errorf("%+v, %v", who, err)
	}
	for _, x := range []struct {
		uid, gid uint32
		says     string
	}{
		{0, 0, "root's commands are taken on controllers only"},
		{systemUID, systemUID, "root's commands are taken on controllers only"},
		{model.NoID, model.NoID, "4294967295 is no user id"},
		{model.NoID, plainUser, "4294967295 is no user id"},
		{plainUser, model.NoID, "group id 4294967295"},
		{plainUser, 6, "user ann has group id 6, which the user database of controller ctl1 does not give them"},
		{plainUser, 0, "group 0 is root's"},
		{5555, 5555, "user id 5555 of host h1 is unknown on controller ctl1: getent passwd 5555 finds nothing there"},
	} {
		_, err := pass(pki.RoleLogin, proto.Caller{UID: x.uid, GID: x.gid, User: "ann"})
		if err == nil || !strings.Contains(err.Error(), x.says) {
			t.Errorf("uid %d, gid %d: %v", x.uid, x.gid, err)
		}
	}
	// A controller's word is its kernel's.
	who, err = pass(pki.RoleCtld, proto.Caller{UID: 0, User: "root", Host: "ctl2"})
	if err != nil || c.level(who) != model.AdminFull || who.from != model.FromController {
		t.Errorf("root on another controller: %+v, %v", who, err)
	}
	if _, err := pass(pki.RoleDBD, proto.Caller{UID: plainUser, GID: plainUser}); err == nil {
		t.Error("gdbd speaks for users")
	}
	// A database that does not answer is told, and does not keep from reading.
	c.people = userdb.NewWith(func(context.Context, uint32) (userdb.User, error) {
		return userdb.User{}, errors.New("timeout")
	}, func(context.Context, uint32) (string, error) { return "", errors.New("timeout") })
	if _, err := pass(pki.RoleLogin, proto.Caller{UID: plainUser}); err == nil ||
		!strings.Contains(err.Error(), "does not say who user id 1001 is (timeout)") {
		t.Error(err)
	}
	read := &proto.Forward{Caller: proto.Caller{UID: 7}, Kind: proto.KindJobs}
	who, err = c.vouched(t.Context(), read, pki.RoleNode, "h1")
	if err == nil || who != nil {
		t.Errorf("a node that is not configured passes something on: %+v", who)
	}
	who, err = c.vouched(t.Context(), read, pki.RoleLogin, "h1")
	if err != nil || who.User != "7" {
		t.Errorf("reading: %+v, %v", who, err)
	}
}

// TestNodeNamesOthers: a node that names a user without a job on it learns nothing that PrivateData hides, and costs
// that user nothing.
func TestNodeNamesOthers(t *testing.T) {
	c, apply := secretive(t)
	apply(2500, &state.Join{Node: "n1", BootID: "b"})
	spec := &model.Spec{UID: plainUser, User: "ann", Name: "a", Partitions: []string{"p"}, MinNodes: 1, MaxNodes: 1,
		LimitS: 60, WorkDir: "/"}
	id := apply(3000, &state.Submit{Spec: spec, Priority: 1}).Job
	asks := func(role, name string, uid uint32) (sees bool, payer string) {
		t.Helper()
		who, err := c.vouched(t.Context(), &proto.Forward{Kind: proto.KindJobs, Caller: proto.Caller{UID: uid, GID: uid}},
			role, name)
		if err != nil {
			t.Fatal(err)
		}
		return c.sees(c.machine.View(), who).job(spec), c.forwardPayer(uid, role, name)
	}
	check := func(role, name string, uid uint32, sees bool, payer string) {
		t.Helper()
		if s, p := asks(role, name, uid); s != sees || p != payer {
			t.Errorf("uid %d by %s %s: sees %v, %q pays; want %v, %q", uid, role, name, s, p, sees, payer)
		}
	}
	check(pki.RoleNode, "n1", plainUser, false, "node n1")
	check(pki.RoleLogin, "lg1", plainUser, true, "uid 1001")
	apply(4000, &state.Starts{Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p",
		LimitS: 60, Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1", CPUs: model.UpTo(1), Tasks: 1}}}}}}})
	check(pki.RoleNode, "n1", plainUser, true, "uid 1001")
	check(pki.RoleNode, "n1", operUser, false, "node n1")
	check(pki.RoleNode, "n1", 0, false, "node n1")
	check(pki.RoleLogin, "lg1", 0, false, "login lg1")
	check(pki.RoleCtld, "ctl2", 0, true, "")

	// Where other nodes are it asks for itself, also where that is hidden from users.
	own := &proto.Forward{Kind: proto.KindPeers, Caller: proto.Caller{Host: "n1"}}
	if who, err := c.vouched(t.Context(), own, pki.RoleNode, "n1"); err != nil || who.UID != 0 {
		t.Errorf("a node that asks for others is %+v, %v", who, err)
	}
}

// TestRightsByHost: administrators, operators and coordinators have their rights on controllers, on login hosts what
// LoginRights leaves, on nodes none.
func TestRightsByHost(t *testing.T) {
	c := ruled(t)
	v := c.machine.View()
	job := &model.Job{Spec: &model.Spec{UID: 7777, Account: "sub"}}
	for _, x := range []struct {
		uid  uint32
		most model.Rights
		want trust.Caller
		over bool // others' jobs in the account
	}{
		{adminUser, model.RightsAdministrator, trust.Administrator, true},
		{0, model.RightsAdministrator, trust.Administrator, true},
		{systemUID, model.RightsAdministrator, trust.Administrator, true},
		{operUser, model.RightsAdministrator, trust.Operator, true},
		{coordUser, model.RightsAdministrator, trust.User, true},
		{plainUser, model.RightsAdministrator, trust.User, false},
		{adminUser, model.RightsOperator, trust.Operator, true},
		{operUser, model.RightsOperator, trust.Operator, true},
		{adminUser, model.RightsCoordinator, trust.User, false},
		{coordUser, model.RightsCoordinator, trust.User, true},
		{0, model.RightsUser, trust.User, false},
		{systemUID, model.RightsUser, trust.User, false},
		{adminUser, model.RightsUser, trust.User, false},
		{operUser, model.RightsUser, trust.User, false},
		{coordUser, model.RightsUser, trust.User, false},
	} {
		who := at(x.uid)
		who.most = x.most
		if got := c.class(who); got != x.want || c.mine(who, job) != x.over {
			t.Errorf("user %d where they have the rights of a %s: %s, may change others' jobs: %v", x.uid, x.most, got,
				c.mine(who, job))
		}
		if c.coordinates(v, who, "sub") != (x.uid == coordUser && x.most >= model.RightsCoordinator) {
			t.Errorf("user %d as %s coordinates: %v", x.uid, x.most, c.coordinates(v, who, "sub"))
		}
		for kind := range handlers {
			err := c.mayAsk(who, kind)
			if (err == nil) != (trust.May(x.want, kind) != trust.Refused) {
				t.Errorf("kind %d of user %d as %s: %v", kind, x.uid, x.most, err)
			}
		}
	}
	who := at(operUser)
	who.most = model.RightsUser
	if err := c.mayAsk(who, proto.KindUpdateNode); err == nil || !strings.Contains(err.Error(), "LoginRights") {
		t.Errorf("an operator on a login host is told: %v", err)
	}
}

// TestControllerTakesNoJobOfNobody: the controller refuses what the state, gnoded and gshim refuse too.
func TestControllerTakesNoJobOfNobody(t *testing.T) {
	c := ruled(t)
	rq := &proto.SubmitRequest{Script: []byte("#!/bin/sh\n"), Spec: &model.Spec{Name: "x", WorkDir: "/"}}
	for _, x := range []struct {
		uid, gid uint32
		groups   []uint32
		from     model.Origin
	}{
		{model.NoID, 5, nil, model.FromController}, {5, model.NoID, nil, model.FromController},
		{5, 5, []uint32{model.NoID}, model.FromController}, {5, 0, nil, model.FromController},
		{5, 5, []uint32{0}, model.FromController}, {0, 0, nil, model.FromHost}, {systemUID, 5, nil, model.FromHost},
		{0, 0, nil, model.FromBefore},
	} {
		who := caller{Caller: proto.Caller{UID: x.uid, GID: x.gid, Groups: x.groups}, from: x.from}
		_, _, err := c.prepare(c.machine.View(), who, rq)
		var e *rpc.Error
		if !errors.As(err, &e) || e.Code != proto.CodeAccess || !strings.Contains(e.Text, "takes no such job") {
			t.Errorf("uid %d, gid %d, groups %v: %v", x.uid, x.gid, x.groups, err)
		}
	}
	who := c.kernelSays(t.Context(), &rpc.User{UID: plainUser, GID: plainUser, Groups: []uint32{0, 4}})
	if fmt.Sprint(who.Groups) != "[4]" || who.User != "ann" {
		t.Errorf("%+v", who)
	}
	_, _, err := c.prepare(c.machine.View(), *who, rq)
	if err != nil && strings.Contains(err.Error(), "takes no such job") {
		t.Error(err)
	}
	said := refusedBy(c.machine.View(), &model.Spec{UID: model.NoID}, state.Result{Refusal: state.BadUser})
	if said == nil || !strings.Contains(said.Error(), "is no user id") {
		t.Error(said)
	}
}

// TestInGroups: who belongs to a group, by the own group or as a member, may use what is the group's; a host's name
// counts with its domain and without.
func TestInGroups(t *testing.T) {
	c := ruled(t)
	who := c.kernelSays(t.Context(), &rpc.User{UID: plainUser, GID: plainUser})
	who.Groups = []uint32{4, plainUser}
	for name, want := range map[string]bool{"g1001": true, "g4": true, "g5": false, "ann": false} {
		if got := c.inGroups(who, []string{"other", name}); got != want {
			t.Errorf("ann is in %s: %v", name, got)
		}
	}
	for host, want := range map[string]bool{"l1": true, "l1.site": true, "l2.site": true, "l2": false, "l11": false} {
		if got := onHost(host, []string{"l1", "l2.site"}); got != want {
			t.Errorf("%s: %v", host, got)
		}
	}
}
