package dbd

import (
	"context"
	"errors"
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
)

// askAs asks as a node's daemon does for its users.
func askAs(ctx context.Context, m *rpc.Mux, who proto.Caller, q *proto.AcctRequest) (string, error) {
	body, err := proto.Encode(q)
	if err != nil {
		return "", err
	}
	body, err = proto.Encode(&proto.Forward{Caller: who, Kind: proto.KindAcct, Body: body})
	if err != nil {
		return "", err
	}
	var records []*model.Record
	err = m.Stream(ctx, proto.KindForward, body, func(f *rpc.Frame) error {
		var chunk proto.RecordsChunk
		err := proto.Decode(f.Body, &chunk)
		records = append(records, chunk.Records...)
		return err
	})
	return names(records), err
}

func userMux(t *testing.T, d *daemonInTest, role string) *rpc.Mux {
	t.Helper()
	cfg, err := pki.Load(d.pki, role, "acct")
	if err != nil {
		t.Fatal(err)
	}
	nc, err := pki.Dial(t.Context(), d.Addr(), pki.ProtoAcct, cfg, pki.RoleDBD)
	if err != nil {
		t.Fatal(err)
	}
	m, err := rpc.NewMux(rpc.Client(nc, rpc.ConnOptions{Name: "gdbd"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() }) // the test is over
	return m
}

// TestUsersSeeWhatTheyMay: questions that nodes and login hosts pass on get what PrivateData leaves, also after a
// restart without any controller; before gdbd knows it, none.
func TestUsersSeeWhatTheyMay(t *testing.T) {
	d := startDaemon(t, nil)
	ctl := mustDial(t, d.Addr(), d.pki)
	in := func(account string) func(*model.Record) { return func(r *model.Record) { r.Account = account } }
	if _, err := call(t.Context(), ctl, &proto.Put{Cluster: "c", Records: []*model.Record{
		rec(1, 1, user(5)), rec(2, 2, user(6)), rec(3, 3, user(6), in("Chemistry")), rec(4, 4, user(7), running),
	}}); err != nil {
		t.Fatal(err)
	}
	login := userMux(t, d, pki.RoleLogin)
	who := func(uid uint32, name string) proto.Caller { return proto.Caller{UID: uid, User: name} }
	everything := &proto.AcctRequest{}
	_, err := askAs(t.Context(), login, who(0, "root"), everything)
	var e *rpc.Error
	if !errors.As(err, &e) || e.Code != proto.CodeNotHere {
		t.Errorf("before gdbd was told: %v", err)
	}
	tell := func(s *proto.Sight) {
		t.Helper()
		body, err := proto.Encode(s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ctl.Call(t.Context(), proto.KindSight, body); err != nil {
			t.Fatal(err)
		}
	}
	check := func(m *rpc.Mux) {
		t.Helper()
		for _, c := range []struct {
			who  proto.Caller
			rq   *proto.AcctRequest
			want string
		}{
			{who(5, "five"), everything, "1.1:CD"},
			{who(6, "six"), everything, "2.1:CD 3.1:CD"},
			{who(7, "seven"), everything, "4.1:R"},
			{who(5, "five"), &proto.AcctRequest{Users: []uint32{6, 7}}, ""},
			{who(5, "five"), &proto.AcctRequest{Users: []uint32{5, 6}}, "1.1:CD"},
			{who(5, "five"), &proto.AcctRequest{Jobs: []model.JobRef{{Job: 2, Task: model.NoTask}}}, ""},
			{who(9, "chief"), everything, ""}, // who coordinates what is asked of the leader
			{who(9, "chief"), &proto.AcctRequest{Users: []uint32{6}}, ""},
			{who(0, "root"), everything, ""}, {who(900, "slurm"), everything, ""}, {who(8, "op"), everything, ""},
		} {
			if got, err := askAs(t.Context(), m, c.who, c.rq); err != nil || got != c.want {
				t.Errorf("%s %+v: %q, %v; want %q", c.who.User, *c.rq, got, err, c.want)
			}
		}
	}
	tell(&proto.Sight{HidesJobs: true, Full: []uint32{900}, Operators: []string{"op"},
		Coordinators: []proto.Coordinator{{User: "chief", Account: "chemistry"}}})
	check(login)
	// gdbd doesn't know who has a job on a node.
	atNode := func() {
		t.Helper()
		for _, w := range []proto.Caller{who(5, "five"), who(6, "six"), who(0, "root")} {
			got, err := askAs(t.Context(), userMux(t, d, pki.RoleNode), w, everything)
			if e = nil; !errors.As(err, &e) || e.Code != proto.CodeNotHere {
				t.Errorf("%s on a node: %q, %v", w.User, got, err)
			}
		}
	}
	atNode()
	if _, err := call(t.Context(), login, &proto.Put{Cluster: "c"}); err == nil {
		t.Error("a login host brought records")
	}

	if _, err := askAs(t.Context(), login, who(model.NoID, "nobody"), everything); err == nil {
		t.Error("an answer for somebody who is nobody")
	}

	// Where operators have their rights on login hosts, the leader answers for these; nodes have no operators.
	tell(&proto.Sight{HidesJobs: true, LoginRights: model.RightsOperator})
	if _, err := askAs(t.Context(), login, who(8, "op"), everything); !errors.As(err, &e) || e.Code != proto.CodeNotHere {
		t.Errorf("an operator on a login host: %v", err)
	}
	atNode()
	tell(&proto.Sight{HidesJobs: true})

	// After a restart what was told is still known.
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	again, err := New(Options{Name: "acct", Listen: "127.0.0.1:0", Dir: strings.TrimSuffix(d.db.path, fileName),
		PKI: d.pki, Logger: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = again.Run(context.Background()) }() // Close ends it
	defer again.Close()
	next := &daemonInTest{Daemon: again, pki: d.pki}
	check(userMux(t, next, pki.RoleLogin))
	ctl = mustDial(t, again.Addr(), d.pki)
	tell(&proto.Sight{})
	if got, err := askAs(t.Context(), userMux(t, next, pki.RoleNode), who(5, "five"), everything); err != nil ||
		strings.Count(got, ":") != 4 {
		t.Errorf("%q, %v", got, err)
	}
}
