package ctld

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"gbatch/ctld/trigger"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/state"
)

// TestWhoHasTriggers: a program on a controller runs as nobody but who set it, and only of those whom the site lets.
func TestWhoHasTriggers(t *testing.T) {
	c := ruled(t)
	allow := func(yes bool) *state.View {
		data, err := state.Encode(2000, &state.SetConfig{Config: &model.Config{Cluster: "c",
			Nodes:  []*model.NodeDef{{Name: "n1", CPUs: 1, MemMiB: 1}},
			Params: model.Params{UserTriggers: yes, SlurmUID: systemUID}}})
		if err != nil {
			t.Fatal(err)
		}
		c.machine.Apply(c.machine.View().LastEntry()+1, [][]byte{data})
		return c.machine.View()
	}
	for _, x := range []struct {
		allow     bool
		uid, self uint32
		may       bool
	}{
		{false, 0, 0, true}, {false, systemUID, 0, true}, {false, plainUser, 0, false}, {false, adminUser, 0, false},
		{true, plainUser, 0, true}, {true, operUser, 0, true}, {true, 0, 0, true},
		{true, systemUID, systemUID, true}, {true, 0, systemUID, false}, {true, plainUser, systemUID, false},
		{false, plainUser, plainUser, true}, {false, operUser, plainUser, false},
	} {
		if err := c.hasTriggersOf(allow(x.allow), x.uid, x.self); (err == nil) != x.may {
			t.Errorf("user %d, gctld of %d, allowed %v: %v", x.uid, x.self, x.allow, err)
		}
	}
	if os.Geteuid() != 0 {
		return // this process could not become others
	}
	ctx, v := context.Background(), allow(true)
	for uid, name := range map[uint32]string{plainUser: "ann", 0: "root"} {
		as, err := c.triggerUser(ctx, v, &model.Trigger{UID: uid, GID: 0})
		if err != nil || as.UID != uid || as.Name != name || as.Change != (uid != 0) || uid != 0 && as.GID == 0 {
			t.Errorf("user %d: %+v, %v", uid, as, err)
		}
	}
	for _, uid := range []uint32{4242, model.NoID} {
		if as, err := c.triggerUser(ctx, v, &model.Trigger{UID: uid}); !errors.Is(err, trigger.ErrNever) {
			t.Errorf("user %d: %+v, %v", uid, as, err)
		}
	}
	if as, err := c.triggerUser(ctx, allow(false), &model.Trigger{UID: plainUser}); !errors.Is(err, trigger.ErrNever) {
		t.Errorf("a user who may have none any more: %+v, %v", as, err)
	}

	v = allow(true)
	for _, x := range []struct {
		who  uint32
		t    model.Trigger
		want string
	}{
		{plainUser, model.Trigger{Of: model.TriggerNode, Events: model.OnDown, Program: "/p"}, "are set by operators"},
		{plainUser, model.Trigger{Of: model.TriggerCtld, Events: model.OnPrimaryFails, Program: "/p"}, "by operators"},
		{operUser, model.Trigger{Of: model.TriggerNode, Events: model.OnDown, Program: "/p"}, ""},
		{operUser, model.Trigger{Of: model.TriggerNode, Events: model.OnDown, Nodes: "n1,n2", Program: "/p"}, "n2"},
		{operUser, model.Trigger{Of: model.TriggerNode, Events: model.OnDown, Nodes: "n[", Program: "/p"},
			"no list of nodes"},
		{operUser, model.Trigger{Of: model.TriggerNode, Events: model.OnFini, Program: "/p"}, "can't have the events fini"},
		{operUser, model.Trigger{Of: 77, Events: model.OnFini, Program: "/p"}, "unknown"},
		{operUser, model.Trigger{Of: model.TriggerNode, Events: model.OnDown, Program: "p"}, "begins with /"},
		{operUser, model.Trigger{Of: model.TriggerNode, Events: model.OnDown, Program: "/p\x1b"}, "screens"},
		{operUser, model.Trigger{Of: model.TriggerNode, Events: model.OnDown, Program: "/" + strings.Repeat("p", 2000)},
			"most"},
		{operUser, model.Trigger{Of: model.TriggerNode, Events: model.OnDown, Program: "/p", OffsetS: 1 << 40}, "offset"},
		{plainUser, model.Trigger{Of: model.TriggerJob, Events: model.OnFini, Job: 99, Program: "/p"}, "Invalid job id"},
	} {
		err := c.checkTrigger(v, at(x.who), &x.t)
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("user %d, %+v: %v, want %q", x.who, x.t, err, x.want)
		}
	}
	var why *rpc.Error
	_, err := c.clearTriggers(ctx, at(plainUser), &proto.ClearTriggersRequest{})
	if !errors.As(err, &why) || why.Code != proto.CodeBadRequest {
		t.Errorf("all triggers: %v", err)
	}
}
