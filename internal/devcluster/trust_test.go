package devcluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/client"
	"gbatch/internal/devcluster"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/trust"
)

// The users of TestTrust: ids that every system has.
const (
	ordinary, other, operates, administers = 65534, 1, 2, 3
)

// answer is what a daemon says to one request. It is an error if there was none.
func answer(conn *rpc.Conn, kind uint16, body []byte) (denied bool, text string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), strangerTimeout)
	defer cancel()
	err = conn.Stream(ctx, kind, body, func(*rpc.Frame) error { return nil })
	var e *rpc.Error
	switch {
	case errors.As(err, &e):
		return e.Code == proto.CodeAccess || e.Code == proto.CodeNotHere, e.Text, nil
	case err != nil && strings.Contains(err.Error(), "refused this side's certificate"):
		return true, err.Error(), nil
	case errors.Is(err, context.DeadlineExceeded): // it waits by design, and is let
		return false, "", nil
	}
	return false, "", err
}

// asUser connects to a socket as a user: the kernel takes the thread's.
func asUser(t *testing.T, path string, uid int) *rpc.Conn {
	t.Helper()
	type result struct {
		nc  net.Conn
		err error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if uid != 0 {
			for _, call := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
				if _, _, errno := unix.RawSyscall(call, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
					done <- result{nil, errno}
					return
				}
			}
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		}
		if err != nil {
			done <- result{nil, err}
			return
		}
		f := os.NewFile(uintptr(fd), path)
		nc, err := net.FileConn(f)
		done <- result{nc, errors.Join(err, f.Close())}
	}()
	r := <-done
	must(t, r.err)
	return rpc.Client(r.nc, rpc.ConnOptions{Name: path})
}

// TestTrust walks the table of trust: every kind of request of users by every kind of user on a controller, every kind
// of request by every daemon, and every kind that a daemon can pass on, for root, a user with a job on the node, a user
// without one, and nobody.
func TestTrust(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to be other users")
	}
	c := devcluster.Start(t, devcluster.Options{Nodes: 1,
		Conf: "SlurmctldParameters=allow_user_triggers"})
	dir := filepath.Join(c.Dir, "pki")
	must(t, pki.Issue(dir, pki.RoleLogin, "lg1", []string{"127.0.0.1"}, dir))
	socket, all := filepath.Join(c.Dir, "run", "ctld-ctl1.sock"), ports(t, c)
	nameOf := func(uid int) string {
		u, err := user.LookupId(fmt.Sprint(uid))
		must(t, err)
		return u.Username
	}

	// One user of each kind, and a job of the ordinary one on n1.
	cl := c.Client()
	defer cl.Close()
	edits := []model.AcctEdit{{Op: model.PutAccount, Account: &model.Account{Name: "a", Parent: model.RootAccount,
		Coordinators: []string{nameOf(coordinates)}}},
		{Op: model.PutAssoc, Assoc: &model.Association{Account: "a", Shares: 1}}}
	for uid, level := range map[int]model.AdminLevel{operates: model.AdminOperator, administers: model.AdminFull,
		ordinary: model.AdminNone} {
		edits = append(edits, model.AcctEdit{Op: model.PutUser, User: &model.User{Name: nameOf(uid), DefaultAccount: "a",
			Admin: level}})
	}
	gen := uint64(0)
	must(t, cl.Stream(proto.KindAccounts, &proto.AccountsRequest{}, func(body []byte) error {
		var chunk proto.AccountsChunk
		err := proto.Decode(body, &chunk)
		gen = max(gen, chunk.Gen)
		return err
	}))
	must(t, cl.Call(proto.KindEditAccounts, &proto.EditAccountsRequest{Gen: gen, Edits: edits}, &proto.Empty{}))
	submit := &proto.SubmitRequest{RequestID: "long", Script: []byte("#!/bin/sh\nexec sleep 600\n"),
		Spec: &model.Spec{Name: "long", WorkDir: "/", StdOut: "/dev/null", MinNodes: 1, MaxNodes: 1, LimitS: 600}}
	body, err := proto.Encode(submit)
	must(t, err)
	denied, text, err := answer(asUser(t, socket, ordinary), proto.KindSubmit, body)
	if denied || err != nil || text != "" {
		t.Fatal(denied, text, err)
	}
	oneRuns(c, cl)

	empty, err := proto.Encode(&proto.Empty{})
	must(t, err)
	none, err := proto.Encode(&proto.CancelRequest{Targets: []model.JobRef{{Job: 999_999, Task: model.NoTask}}})
	must(t, err)
	bodyOf := func(kind uint16) []byte { // to cancel jobs without naming any is to cancel all
		if kind == proto.KindCancel || kind == proto.KindSignal {
			return none
		}
		return empty
	}
	kinds := map[uint16]proto.Request{}
	for kind := range uint16(200) {
		if row := proto.RequestOf(kind); row.Name != "REQUEST_OTHER" {
			kinds[kind] = row
		}
	}
	t.Run("users", func(t *testing.T) {
		for uid, who := range map[int]trust.Caller{ordinary: trust.User, operates: trust.Operator,
			administers: trust.Administrator, 0: trust.Administrator} {
			for kind, row := range kinds {
				if kind == proto.KindAttend || trust.May(who, kind) == trust.Inner {
					continue // lasts as long as its connection; what is in it counts, see below
				}
				conn := asUser(t, socket, uid)
				denied, text, err := answer(conn, kind, bodyOf(kind))
				_ = conn.Close() // the answer is all that counts
				want := trust.May(who, kind) == trust.Refused
				bad := strings.Contains(text, "takes requests of users only") ||
					strings.Contains(text, "does not know request kind")
				if err != nil || (denied || bad && row.At == proto.AtDaemon) != want && !bad {
					t.Errorf("%s by a %s (uid %d): refused %v: %q, %v", row.Name, who, uid, denied, text, err)
				}
				if row.At != proto.AtLeader || row.Effect != proto.Changes || row.OwnID || want == false {
					continue
				}
				once, err := proto.Encode(&proto.Once{ID: strings.Repeat("x", proto.OnceIDBytes), Kind: kind, Body: bodyOf(kind),
					AtMS: time.Now().UnixMilli()})
				must(t, err)
				conn = asUser(t, socket, uid)
				denied, text, err = answer(conn, proto.KindOnce, once)
				_ = conn.Close() // as above
				if err != nil || !denied {
					t.Errorf("%s in a Once by a %s: refused %v: %q, %v", row.Name, who, denied, text, err)
				}
			}
		}
	})
	t.Run("jobs of others", func(t *testing.T) { othersJobs(t, c, socket) })
	t.Run("strangers", func(t *testing.T) { strangersKinds(t, dir, all, kinds) })
	daemons := map[string]string{pki.RoleCtld: "ctl1", pki.RoleNode: "n1", pki.RoleLogin: "lg1", pki.RoleDBD: "dbd"}
	dial := func(t *testing.T, role, port, to, alpn string) *rpc.Conn {
		cfg, err := pki.Load(dir, role, daemons[role])
		must(t, err)
		nc, err := pki.Dial(context.Background(), all[port], alpn, cfg, to)
		if err != nil {
			return nil // this port does not admit the role at all
		}
		return rpc.Client(nc, rpc.ConnOptions{Name: port})
	}
	t.Run("daemons", func(t *testing.T) {
		for role := range daemons {
			by := trust.OfRole(role)
			for kind, row := range kinds {
				if by == trust.Node && kind == proto.KindHello {
					continue // it would take the place of n1's own session
				}
				for port, to := range map[string]string{"ctl1": pki.RoleCtld, "dbd": pki.RoleDBD} {
					conn := dial(t, role, port, to, pki.ProtoRPC)
					if conn == nil {
						if trust.Asks(by, kind) && to == pki.RoleCtld && role != pki.RoleDBD {
							t.Errorf("%s by a %s: %s is closed to it", row.Name, by, port)
						}
						continue
					}
					denied, text, err := answer(conn, kind, bodyOf(kind))
					_ = conn.Close() // the answer is all that counts
					if err == nil && !denied && text == "" && !trust.Asks(by, kind) {
						t.Errorf("%s by a %s is answered by %s", row.Name, by, port)
					}
					if !trust.Asks(by, kind) && !denied {
						t.Errorf("%s by a %s at %s: %q, %v; it should be refused before it is read", row.Name, by, port, text, err)
					}
				}
			}
		}
	})
	t.Run("passed on", func(t *testing.T) {
		for _, role := range []string{pki.RoleNode, pki.RoleLogin, pki.RoleCtld, pki.RoleDBD} {
			by := trust.OfRole(role)
			for kind, row := range kinds {
				if kind >= proto.KindForward || row.At != proto.AtLeader || kind == proto.KindOnce || kind == proto.KindStale ||
					row.WaitS > 0 && by == trust.Controller {
					continue
				}
				for _, uid := range []uint32{0, ordinary, other, administers, model.NoID} {
					conn := dial(t, role, "ctl1", pki.RoleCtld, pki.ProtoRPC)
					if conn == nil {
						continue
					}
					m, err := proto.Encode(&proto.Forward{Kind: kind, Body: bodyOf(kind),
						Caller: proto.Caller{UID: uid, GID: uid, User: "root", Group: "root", Groups: []uint32{0}}})
					must(t, err)
					denied, text, err := answer(conn, proto.KindForward, m)
					_ = conn.Close() // as above
					why := trust.Vouch(&trust.Claim{By: by, Kind: kind, Effect: row.Effect, UID: uid,
						HasJob: func(uid uint32) bool { return uid == ordinary }})
					rights := trust.User
					if by == trust.Controller && (uid == 0 || uid == administers) {
						rights = trust.Administrator
					}
					want := why != trust.Believed || trust.May(rights, kind) == trust.Refused || by == trust.Gdbd
					if strings.Contains(text, "does not know request kind") {
						continue
					}
					if err != nil || denied != want {
						t.Errorf("%s for uid %d by a %s: refused %v, %q, %v; the table says %v", row.Name, uid, by, denied, text, err,
							want)
					}
				}
			}
		}
	})
	t.Run("an administrator's job", func(t *testing.T) {
		// Where an administrator has a job, the node speaks for them, and without their rights.
		rq := *submit
		rq.RequestID = "admin"
		m, err := proto.Encode(&rq)
		must(t, err)
		denied, text, err := answer(asUser(t, socket, administers), proto.KindSubmit, m)
		if denied || err != nil || text != "" {
			t.Fatal(denied, text, err)
		}
		running := map[string]model.JobID{}
		c.Wait("it runs", func() error {
			err := cl.Stream(proto.KindJobs, &proto.JobsRequest{}, func(body []byte) error {
				var chunk proto.JobsChunk
				err := proto.Decode(body, &chunk)
				for _, j := range chunk.Jobs {
					if j.State == model.Running {
						running[j.Spec.User] = j.ID
					}
				}
				return err
			})
			if err == nil && (running[nameOf(administers)] == 0 || running[nameOf(ordinary)] == 0) {
				err = fmt.Errorf("these run: %v", running)
			}
			return err
		})
		signal := func(of int) proto.Code {
			t.Helper()
			in, err := proto.Encode(&proto.CancelRequest{Signal: int32(unix.SIGCONT),
				Targets: []model.JobRef{{Job: running[nameOf(of)], Task: model.NoTask}}})
			must(t, err)
			m, err := proto.Encode(&proto.Forward{Kind: proto.KindSignal, Body: in,
				Caller: proto.Caller{UID: administers, GID: administers}})
			must(t, err)
			conn := dial(t, pki.RoleNode, "ctl1", pki.RoleCtld, pki.ProtoRPC)
			defer conn.Close() //nolint:errcheck // only the answer counts
			f, err := conn.Call(context.Background(), proto.KindForward, m)
			must(t, err)
			var reply proto.TargetsReply
			must(t, proto.Decode(f.Body, &reply))
			return reply.Results[0].Code
		}
		if code := signal(administers); code != 0 {
			t.Errorf("their own job: %v", code)
		}
		if code := signal(ordinary); code != proto.CodeAccess {
			t.Errorf("another's job, by way of a node: %v", code)
		}
	})
	t.Run("forged", func(t *testing.T) {
		// A rooted host has no more of a user than the user's id, even where it may speak for them.
		for role, host := range map[string]string{pki.RoleNode: "n1", pki.RoleLogin: "lg1"} {
			forge := func(uid, gid uint32) (bool, string) {
				rq := *submit
				rq.RequestID = "forged" + host
				spec := *submit.Spec
				spec.Name, spec.HoldReq, spec.From, spec.User = "forged"+host, true, model.FromController, "root"
				rq.Spec = &spec
				in, err := proto.Encode(&rq)
				must(t, err)
				m, err := proto.Encode(&proto.Forward{Kind: proto.KindSubmit, Body: in, Caller: proto.Caller{UID: uid, GID: gid,
					Groups: []uint32{0, 6, 42}, User: nameOf(other), Group: "root"}})
				must(t, err)
				conn := dial(t, role, "ctl1", pki.RoleCtld, pki.ProtoRPC)
				denied, text, err := answer(conn, proto.KindForward, m)
				_ = conn.Close() // as above
				must(t, err)
				return denied, text
			}
			for _, ids := range [][2]uint32{{model.NoID, model.NoID}, {0, 0}, {ordinary, 0}, {ordinary, 6},
				{ordinary, model.NoID}, {4_000_000_000, 4_000_000_000}} {
				if denied, text := forge(ids[0], ids[1]); !denied {
					t.Errorf("a job of uid %d with gid %d by %s: %q", ids[0], ids[1], host, text)
				}
			}
			if denied, text := forge(ordinary, ordinary); denied || text != "" {
				t.Errorf("the user's own job by %s: %q", host, text)
			}
			found := false
			must(t, cl.Stream(proto.KindJobs, &proto.JobsRequest{}, func(body []byte) error {
				var chunk proto.JobsChunk
				err := proto.Decode(body, &chunk)
				for _, j := range chunk.Jobs {
					if j.Spec.Name == "forged"+host {
						if found = true; j.Spec.User != nameOf(ordinary) || j.Spec.UID != ordinary {
							t.Errorf("%s has made a job of %s (%d)", host, j.Spec.User, j.Spec.UID)
						}
					}
				}
				return err
			}))
			if !found {
				t.Errorf("the user's job by %s is not there", host)
			}
		}
	})
}

// oneRuns waits until one job of the ordinary user runs.
func oneRuns(c *devcluster.Cluster, cl *client.Client) {
	c.Wait("the job runs", func() error {
		n := 0
		err := cl.Stream(proto.KindJobs, &proto.JobsRequest{}, func(body []byte) error {
			var chunk proto.JobsChunk
			err := proto.Decode(body, &chunk)
			for _, j := range chunk.Jobs {
				if j.State == model.Running && j.Spec.UID == ordinary {
					n++
				}
			}
			return err
		})
		if err == nil && n != 1 {
			err = fmt.Errorf("%d jobs run", n)
		}
		return err
	})
}
