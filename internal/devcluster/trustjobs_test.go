package devcluster_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"gbatch/internal/devcluster"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/trust"
)

// Two more users of TestTrust: one who coordinates the ordinary one's account, and one who has nothing to do with it.
const coordinates, unrelated = 4, 5

// othersJobs tries each kind of request that is about a job by each kind of user on a job of the ordinary user: what is
// allowed is what the table's word covers.
func othersJobs(t *testing.T, c *devcluster.Cluster, socket string) {
	submit := func() model.JobID {
		t.Helper()
		conn := asUser(t, socket, ordinary)
		defer conn.Close() //nolint:errcheck // only the answer counts
		body, err := proto.Encode(&proto.SubmitRequest{RequestID: rand.Text(), Script: []byte("#!/bin/sh\n"),
			Spec: &model.Spec{Name: "theirs", WorkDir: "/", StdOut: "/dev/null", MinNodes: 1, MaxNodes: 1, LimitS: 600,
				Account: "a", HoldReq: true}})
		must(t, err)
		f, err := conn.Call(context.Background(), proto.KindSubmit, body)
		must(t, err)
		var reply proto.SubmitReply
		must(t, proto.Decode(f.Body, &reply))
		return reply.Job
	}
	for _, as := range []struct {
		uid        int
		who        trust.Caller
		own, below bool
	}{{unrelated, trust.User, false, false}, {coordinates, trust.Coordinator, false, true},
		{operates, trust.Operator, false, false}, {administers, trust.Administrator, false, false},
		{0, trust.Administrator, false, false}, {ordinary, trust.User, true, false}} {
		job := submit()
		ref := []model.JobRef{{Job: job, Task: model.NoTask}}
		for _, ask := range []struct {
			kind uint16
			rq   proto.Message
		}{
			{proto.KindScript, &proto.ScriptRequest{Job: job}},
			{proto.KindStat, &proto.StatRequest{Jobs: ref}},
			{proto.KindTail, &proto.TailRequest{Job: job}},
			{proto.KindUpdateJob, &proto.UpdateJobRequest{Action: proto.ActUpdate, Targets: ref,
				Set: []model.KV{{Key: "Comment", Value: "changed"}}}},
			{proto.KindSignal, &proto.CancelRequest{Targets: ref, Signal: 10}},
			{proto.KindCancel, &proto.CancelRequest{Targets: ref}}, // the last one: it ends the job
		} {
			conn := asUser(t, socket, as.uid)
			body, err := proto.Encode(ask.rq)
			must(t, err)
			f, err := conn.Call(context.Background(), ask.kind, body)
			_ = conn.Close() // the answer is all that counts
			var code proto.Code
			var said *rpc.Error
			if errors.As(err, &said) {
				code = said.Code
			} else {
				must(t, err)
			}
			var reply proto.TargetsReply
			if err == nil && ask.kind != proto.KindScript && ask.kind != proto.KindStat && ask.kind != proto.KindTail {
				must(t, proto.Decode(f.Body, &reply))
				for _, r := range reply.Results {
					code = r.Code
				}
			}
			denied := code == proto.CodeAccess
			if want := !trust.May(as.who, ask.kind).Covers(as.own, as.below); denied != want {
				t.Errorf("%s of somebody's job by a %s (uid %d): refused %v (%d %v); the table says %v",
					proto.RequestOf(ask.kind).Name, as.who, as.uid, denied, code, err, want)
			}
		}
	}
}

// strangersKinds tries each kind of request without a certificate: all but two are refused.
func strangersKinds(t *testing.T, dir string, all map[string]string, kinds map[uint16]proto.Request) {
	text, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	must(t, err)
	block, _ := pem.Decode(text)
	print := sha256.Sum256(block.Bytes)
	empty, err := proto.Encode(&proto.Empty{})
	must(t, err)
	for kind, row := range kinds {
		nc, err := pki.DialJoin(context.Background(), all["ctl1"], print[:])
		must(t, err)
		conn := rpc.Client(nc, rpc.ConnOptions{Name: "ctl1"})
		denied, text, err := answer(conn, kind, empty)
		_ = conn.Close() // the answer is all that counts
		if want := !trust.Asks(trust.Stranger, kind); err != nil || denied != want {
			t.Errorf("%s by a stranger: refused %v: %q, %v", row.Name, denied, text, err)
		}
	}
	for name, addr := range all {
		if name == "ctl1" {
			continue
		}
		if nc, err := pki.DialJoin(context.Background(), addr, print[:]); err == nil {
			t.Errorf("%s takes strangers' requests", name)
			_ = nc.Close() // the test has failed
		}
	}
}
