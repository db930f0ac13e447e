package devcluster_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gbatch/internal/devcluster"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/trust"
)

// named gives a login name of a test's user.
func named(t *testing.T, uid int) string {
	t.Helper()
	u, err := user.LookupId(fmt.Sprint(uid))
	must(t, err)
	return u.Username
}

// asksOf gives the kind of request that an operation of REST makes, by which its user's rights are judged; 0: everybody
// who is known may. ok is false for an operation that nobody has thought of here.
func asksOf(method, id string) (kind uint16, ok bool) {
	name := strings.ReplaceAll(id, "_v0044", "")
	switch {
	case name == "slurm_get_reconfigure":
		return proto.KindReconfigure, true
	case method == http.MethodGet:
		return 0, true
	case slices.Contains([]string{"slurmdb_post_clusters", "slurmdb_delete_cluster", "slurmdb_post_tres",
		"slurmdb_post_wckeys", "slurmdb_delete_wckey", "util_post_hostnames", "util_post_hostlist"}, name):
		return 0, true // they change nothing
	case name == "slurm_post_job_submit", name == "slurm_post_job_allocate":
		return proto.KindSubmit, true
	case name == "slurm_delete_jobs", name == "slurm_delete_job":
		return proto.KindCancel, true
	case name == "slurm_post_job", name == "slurmdb_post_jobs", name == "slurmdb_post_job":
		return proto.KindUpdateJob, true
	case strings.HasPrefix(name, "slurm_") && strings.Contains(name, "node"):
		return proto.KindUpdateNode, true
	case strings.HasPrefix(name, "slurm_") && strings.Contains(name, "reservation"):
		return proto.KindReserve, true
	case strings.HasPrefix(name, "slurmdb_"):
		return proto.KindEditAccounts, true
	}
	return 0, false
}

// TestTrustOfREST walks every operation that is served, by whoever may ask: nobody without a token, or with one that
// somebody has made up, gets anything; users, operators and administrators what the table of trust says.
func TestTrustOfREST(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to make tokens for others")
	}
	c := devcluster.Start(t, devcluster.Options{Nodes: 1, HTTP: true})
	cl := c.Client()
	defer cl.Close()
	edits := []model.AcctEdit{{Op: model.PutAccount, Account: &model.Account{Name: "a", Parent: model.RootAccount}}}
	callers := map[trust.Caller]int{trust.User: ordinary, trust.Operator: operates, trust.Administrator: administers}
	for who, level := range map[trust.Caller]model.AdminLevel{trust.User: model.AdminNone,
		trust.Operator: model.AdminOperator, trust.Administrator: model.AdminFull} {
		edits = append(edits, model.AcctEdit{Op: model.PutUser, User: &model.User{Name: named(t, callers[who]),
			DefaultAccount: "a", Admin: level}})
	}
	gen := uint64(0)
	must(t, cl.Stream(proto.KindAccounts, &proto.AccountsRequest{}, func(body []byte) error {
		var chunk proto.AccountsChunk
		err := proto.Decode(body, &chunk)
		gen = max(gen, chunk.Gen)
		return err
	}))
	must(t, cl.Call(proto.KindEditAccounts, &proto.EditAccountsRequest{Gen: gen, Edits: edits}, &proto.Empty{}))
	tokens := map[trust.Caller]string{}
	for who, uid := range callers {
		var r proto.TokenReply
		must(t, cl.Call(proto.KindToken, &proto.TokenRequest{User: named(t, uid)}, &r))
		tokens[who] = r.Token
	}
	w := newWeb(t, c, "ctl1")
	_, spec, text := w.do(http.MethodGet, "/openapi/v3", "")
	paths, _ := spec["paths"].(map[string]any)
	if len(paths) == 0 {
		t.Fatalf("no operations are described: %.300s", text)
	}
	open := &web{t: t}
	ask := func(method, path, token string) (status int, text string) {
		t.Helper()
		body := ""
		if method != http.MethodGet {
			body = `{}`
		}
		if method == http.MethodDelete && strings.HasSuffix(path, "/jobs/") {
			body = `{"jobs":["999999"]}`
		}
		r, err := http.NewRequest(method, "http://"+c.HTTPAddr["ctl1"]+path, strings.NewReader(body))
		must(t, err)
		r.Header.Set("Content-Type", "application/json")
		if token != "" {
			r.Header.Set("X-SLURM-USER-TOKEN", token)
		}
		got, err := open.c.Do(r)
		must(t, err)
		var b strings.Builder
		buf := make([]byte, 16<<10)
		for {
			n, err := got.Body.Read(buf)
			b.Write(buf[:n])
			if err != nil {
				break
			}
		}
		must(t, got.Body.Close())
		return got.StatusCode, b.String()
	}
	const denied = `"error_number":2002`
	seen := 0
	for path, methods := range paths {
		ops, _ := methods.(map[string]any)
		if !strings.Contains(path, "/v0.0.44/") {
			continue
		}
		real := path
		for strings.Contains(real, "{") {
			head, rest, _ := strings.Cut(real, "{")
			name, tail, _ := strings.Cut(rest, "}")
			value := "none"
			if name == "job_id" {
				value = "999999"
			}
			real = head + value + tail
		}
		for verb, o := range ops {
			op, _ := o.(map[string]any)
			id, _ := op["operationId"].(string)
			method := strings.ToUpper(verb)
			if id == "" {
				continue
			}
			seen++
			kind, known := asksOf(method, id)
			if !known {
				t.Errorf("%s (%s %s): say in this test who may", id, method, path)
			}
			if status, text := ask(method, real, ""); status != http.StatusUnauthorized {
				t.Errorf("%s without a token: %d %.200s", id, status, text)
			}
			if status, text := ask(method, real, tokens[trust.Administrator]+"x"); status < 400 ||
				!strings.Contains(text, "authentication") {
				t.Errorf("%s with a token that was made up: %d %.200s", id, status, text)
			}
			for who, token := range tokens {
				status, text := ask(method, real, token)
				no := strings.Contains(strings.ReplaceAll(text, " ", ""), denied)
				may := trust.Sees // of what everybody may
				if kind != 0 {
					may = trust.May(who, kind)
				}
				switch {
				case (may == trust.Refused) && !no:
					t.Errorf("%s by a %s is not refused: %d %.200s", id, who, status, text)
				case no && (kind == 0 || may.Covers(false, false)):
					t.Errorf("%s by a %s is refused: %d %.200s", id, who, status, text)
				}
			}
		}
	}
	if seen < 60 {
		t.Errorf("only %d operations were walked", seen)
	}
}

// TestTrustOfNodes walks what gnoded answers: its port, by every daemon and protocol, the one for metrics, and its
// socket, by users with and without a job there, for every kind of request.
func TestTrustOfNodes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to be other users")
	}
	metrics := fmt.Sprintf("127.0.0.1:%d", devcluster.FreePort(t))
	c := devcluster.Start(t, devcluster.Options{Nodes: 2, Conf: "NodeMetricsListen=" + metrics})
	dir := filepath.Join(c.Dir, "pki")
	must(t, pki.Issue(dir, pki.RoleLogin, "lg1", nil, dir))
	cl := c.Client()
	defer cl.Close()
	var at proto.PeersReply
	must(t, cl.Call(proto.KindPeers, &proto.PeersRequest{Nodes: []string{"n1"}}, &at))
	kinds := map[uint16]proto.Request{}
	for kind := range uint16(200) {
		if row := proto.RequestOf(kind); row.Name != "REQUEST_OTHER" {
			kinds[kind] = row
		}
	}
	for _, by := range [][2]string{{pki.RoleCtld, "ctl1"}, {pki.RoleDBD, "dbd"}, {pki.RoleLogin, "lg1"},
		{pki.RoleNode, "n2"}} {
		creds, err := pki.Load(dir, by[0], by[1])
		must(t, err)
		for alpn, roles := range map[string][]string{"gbatch-peer": {pki.RoleNode, pki.RoleLogin},
			pki.ProtoRPC: {pki.RoleNode}, pki.ProtoRaft: {}, pki.ProtoJoin: {}, pki.ProtoAcct: {}} {
			nc, err := pki.Dial(context.Background(), at.Addrs[0], alpn, creds, pki.RoleNode)
			if err == nil { // a server's refusal comes with the first read
				must(t, nc.SetReadDeadline(time.Now().Add(500*time.Millisecond)))
				_, err = nc.Read(make([]byte, 1))
				_ = nc.Close() // the answer is all that counts
			}
			if let := errors.Is(err, os.ErrDeadlineExceeded); let != slices.Contains(roles, by[0]) {
				t.Errorf("%s %s is let in with %s: %v, %v", by[0], by[1], alpn, let, err)
			}
		}
	}
	creds, err := pki.Load(dir, pki.RoleNode, "n2")
	must(t, err)
	for kind, row := range kinds {
		nc, err := pki.Dial(context.Background(), at.Addrs[0], pki.ProtoRPC, creds, pki.RoleNode)
		must(t, err)
		conn := rpc.Client(nc, rpc.ConnOptions{Name: "n1"})
		_, text, err := answer(conn, kind, nil)
		_ = conn.Close() // as above
		refused := strings.Contains(text, "a node does not answer requests of kind")
		if err != nil || refused == (kind == proto.KindWitness) {
			t.Errorf("%s of node n2 at n1's port: %q, %v", row.Name, text, err)
		}
	}

	// The port for metrics gives numbers to whoever reaches it, and takes nothing.
	for _, x := range []struct {
		method, path string
		status       int
	}{{"GET", "/metrics", http.StatusOK}, {"GET", "/health", http.StatusOK}, {"GET", "/", http.StatusNotFound},
		{"GET", "/debug/pprof/", http.StatusNotFound}, {"GET", "/slurm/v0.0.44/jobs/", http.StatusNotFound},
		{"POST", "/metrics", http.StatusMethodNotAllowed}, {"DELETE", "/metrics", http.StatusMethodNotAllowed}} {
		r, err := http.NewRequest(x.method, "http://"+metrics+x.path, nil)
		must(t, err)
		got, err := http.DefaultClient.Do(r)
		must(t, err)
		if must(t, got.Body.Close()); got.StatusCode != x.status {
			t.Errorf("%s %s at the port for metrics: %d, want %d", x.method, x.path, got.StatusCode, x.status)
		}
	}

	// The socket of a node's host: users with a job there submit, change and cancel; everybody reads.
	socket := filepath.Join(c.Dir, "run", "noded-n1.sock")
	rq := &proto.SubmitRequest{RequestID: "here", Script: []byte("#!/bin/sh\nexec sleep 600\n"),
		Spec: &model.Spec{Name: "here", WorkDir: "/", StdOut: "/dev/null", MinNodes: 1, MaxNodes: 1, LimitS: 600,
			ReqNodes: []string{"n1"}}}
	body, err := proto.Encode(rq)
	must(t, err)
	denied, text, err := answer(asUser(t, filepath.Join(c.Dir, "run", "ctld-ctl1.sock"), ordinary), proto.KindSubmit, body)
	if denied || err != nil || text != "" {
		t.Fatal(denied, text, err)
	}
	oneRuns(c, cl)
	empty, err := proto.Encode(&proto.Empty{})
	must(t, err)
	none, err := proto.Encode(&proto.CancelRequest{Targets: []model.JobRef{{Job: 999_999, Task: model.NoTask}}})
	must(t, err)
	for _, uid := range []int{0, ordinary, other} {
		for kind, row := range kinds {
			if row.At == proto.AtLeader && (row.WaitS > 0 || kind == proto.KindOnce || kind == proto.KindStale) ||
				kind == proto.KindAttend {
				continue // they last, or carry another one
			}
			body := empty
			if kind == proto.KindCancel || kind == proto.KindSignal { // to cancel jobs without naming any is to cancel all
				body = none
			}
			conn := asUser(t, socket, uid)
			denied, text, err := answer(conn, kind, body)
			_ = conn.Close() // as above
			want := trust.Vouch(&trust.Claim{By: trust.Node, Kind: kind, Effect: row.Effect, UID: uint32(uid),
				HasJob: func(uid uint32) bool { return uid == ordinary }}) != trust.Believed ||
				trust.May(trust.User, kind) == trust.Refused
			unknown := strings.Contains(text, "is none that a user can make on this socket")
			if err != nil || (denied || unknown) != want {
				t.Errorf("%s by uid %d at n1's socket: refused %v, %q, %v; the table says %v", row.Name, uid, denied, text, err,
					want)
			}
		}
	}
}
