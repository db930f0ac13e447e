package ctld

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// secretive is ruled with a configuration whose PrivateData hides all. apply applies commands.
func secretive(t *testing.T) (c *Controller, apply func(at model.Time, b state.Body) state.Result) {
	t.Helper()
	c = ruled(t)
	apply = func(at model.Time, b state.Body) state.Result {
		t.Helper()
		data, err := state.Encode(at, b)
		if err != nil {
			t.Fatal(err)
		}
		res, ok := c.machine.Apply(c.machine.View().LastEntry()+1, [][]byte{data})[0].(state.Result)
		if !ok || res.Refusal != state.OK {
			t.Fatalf("%T: %v", b, res.Refusal)
		}
		return res
	}
	apply(2000, &state.SetConfig{Config: &model.Config{Cluster: "c", Accounts: []string{"secret-account"},
		Nodes:      []*model.NodeDef{{Name: "n1", CPUs: 1, MemMiB: 1}},
		Partitions: []*model.Partition{{Name: "p", Default: true, Nodes: []string{"n1"}}},
		Future:     []*model.NodeDef{{Name: "secret-future", CPUs: 1, MemMiB: 1}},
		Sets:       []model.NodeSet{{Name: "secret-set", Nodes: []string{"n1"}}},
		Params: model.Params{MinJobAgeS: 10, MaxJobs: 100, MaxArraySize: 100, SlurmUID: systemUID,
			PrivateData: []string{"accounts", "events", "jobs", "nodes", "partitions", "reservations", "usage", "users"}}}})
	return c, apply
}

// TestHiddenArray: an array of which only tasks are left, while its own record was forgotten, is hidden like any job
// from those who wait for it or would let others wait for it.
func TestHiddenArray(t *testing.T) {
	c, apply := secretive(t)
	id := apply(3000, &state.Submit{Spec: &model.Spec{UID: operUser, User: "oper", Name: "a", Partitions: []string{"p"},
		MinNodes: 1, MaxNodes: 1, LimitS: 60, Tasklist: model.TaskSet{{Lo: 0, Hi: 1, Step: 1}}}, Priority: 1}).Job
	apply(4000, &state.Edit{Targets: []model.JobRef{{Job: id, Task: 0}}, Set: []state.Field{state.SetHold},
		Hold: model.HeldByUser})
	apply(5000, &state.Stop{Targets: []model.JobRef{{Job: id, Task: 1}}, Event: model.EvCancel})
	apply(60000, &state.Tick{Limit: 100})
	v := c.machine.View()
	if v.Job(id) != nil || v.Array(id) == nil {
		t.Fatal("the array's own record is still there, or nothing is left of it")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // whoever may wait does so in vain
	if _, err := c.wait(ctx, at(plainUser), &proto.WaitRequest{Job: id}); codeOf(err) != proto.CodeInvalidJob {
		t.Errorf("another user waits for it: %v", err)
	}
	if _, err := c.wait(ctx, at(operUser), &proto.WaitRequest{Job: id}); codeOf(err) == proto.CodeInvalidJob {
		t.Errorf("its own user: %v", err)
	}
	mine := apply(61000, &state.Submit{Spec: &model.Spec{UID: plainUser, User: "ann", Name: "b",
		Partitions: []string{"p"}, MinNodes: 1, MaxNodes: 1, LimitS: 60}, Priority: 1}).Job
	_, err := c.edit(c.machine.View(), at(plainUser), model.JobRef{Job: mine, Task: model.NoTask},
		wanted{set: []model.KV{{Key: "Dependency", Value: "afterany:" + jobName(&model.Job{ID: id})}}})
	if codeOf(err) != proto.CodeDependency {
		t.Errorf("another user's job is to wait for it: %v", err)
	}
}

// TestSharedAnswers: answers are shared by those who see the same, not by one user with all rights and with less.
func TestSharedAnswers(t *testing.T) {
	c, _ := secretive(t)
	body, err := proto.Encode(&proto.JobsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	less, grouped, token := at(coordUser), at(coordUser), at(operUser)
	less.most, grouped.Groups, token.most = model.RightsUser, []uint32{7}, model.RightsUser
	seen := map[string]int{}
	for i, who := range []*caller{at(coordUser), less, grouped, at(plainUser), token, at(operUser)} {
		key, ok := c.sameAs(&call{who: who, body: body}, proto.KindJobs)
		if other, had := seen[key]; !ok || had {
			t.Errorf("caller %d shares with caller %d", i, other)
		}
		seen[key] = i
	}
	mine, _ := c.sameAs(&call{who: at(plainUser), body: body}, proto.KindJobs)
	if _, same := seen[mine]; !same {
		t.Error("the same caller does not share with himself")
	}
	if key, _ := c.sameAs(&call{who: at(0), body: body}, proto.KindJobs); seen[key] != 5 {
		t.Error("those who see everything do not share")
	}
}

// TestHiddenNames searches what a user gets, from whom PrivateData hides all, for names that are hidden: whatever
// request with an empty body is answered from this controller's own facts.
func TestHiddenNames(t *testing.T) {
	c, apply := secretive(t)
	c.readers, c.clocks, c.nodes, c.idle = newReaders(), newClocks(), newNodeSet(), newIdleWatch()
	apply(3000, &state.Submit{Spec: &model.Spec{UID: operUser, User: "oper", Name: "secret-job",
		Partitions: []string{"p"}, MinNodes: 1, MaxNodes: 1, LimitS: 60}, Priority: 1})
	apply(4000, &state.Reserve{Op: state.CreateResv,
		Resv: &model.Reservation{Name: "secret-resv", Start: 5000, End: 9_000_000,
			Nodes: []string{"n1"}, Users: []string{"oper"}}})
	asked := 0
	for _, kind := range []uint16{proto.KindJobs, proto.KindNodes, proto.KindPartitions, proto.KindPools,
		proto.KindConfig, proto.KindReservations, proto.KindPeers, proto.KindDaemon} {
		for _, who := range []*caller{at(plainUser), at(operUser)} {
			rq := map[uint16]proto.Message{proto.KindPeers: &proto.PeersRequest{Nodes: []string{"n1"}},
				proto.KindDaemon: &proto.DaemonRequest{Node: "n1"}, proto.KindJobs: &proto.JobsRequest{},
				proto.KindNodes: &proto.NodesRequest{Future: true}}[kind]
			if rq == nil {
				rq = &proto.Empty{}
			}
			body, err := proto.Encode(rq)
			if err != nil {
				t.Fatal(err)
			}
			var got []byte
			h := handlers[kind]
			a := &call{who: who, kind: kind, body: body, more: func(part []byte) error {
				got = append(got, part...)
				return nil
			}}
			last, err := c.make(t.Context(), a, &h)
			got = append(got, last...)
			switch {
			case who.UID == operUser && bytes.Contains(got, []byte("secret-")):
				asked++
			case who.UID == plainUser && bytes.Contains(got, []byte("secret-")):
				t.Errorf("request %d tells: %q", kind, got)
			case who.UID == plainUser && (kind == proto.KindPeers || kind == proto.KindDaemon) &&
				codeOf(err) != proto.CodeAccess:
				t.Errorf("request %d of a node: %v", kind, err)
			}
		}
	}
	if asked < 4 {
		t.Errorf("only %d answers have what is searched for", asked)
	}
}

// TestHiddenPreemptor: mail about a preempted job does not name the job of another user that is hidden.
func TestHiddenPreemptor(t *testing.T) {
	c, apply := secretive(t)
	by := func(uid uint32, victim uint32) string {
		id := apply(3000, &state.Submit{Spec: &model.Spec{UID: uid, User: "u", Name: "a", Partitions: []string{"p"},
			MinNodes: 1, MaxNodes: 1, LimitS: 60}, Priority: 1}).Job
		return preemptorOf(c.machine.View(), &model.Job{State: model.Preempted, Run: &model.Run{StopFor: id},
			Spec: &model.Spec{UID: victim}})
	}
	if text := by(operUser, plainUser); !strings.HasPrefix(text, "another user's job (") {
		t.Errorf("by another user's: %s", text)
	}
	if text := by(plainUser, plainUser); !strings.HasPrefix(text, "job ") {
		t.Errorf("by their own: %s", text)
	}
}
