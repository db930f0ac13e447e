package ctld

import (
	"log/slog"
	"testing"
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/store"
)

// TestHeir: who leads next is of this version as long as there is one, then the one that began last; never one that
// can't, or lacks much of the log.
func TestHeir(t *testing.T) {
	for _, c := range []struct {
		name string
		two  proto.MomentReply
		thr  proto.MomentReply
		want string
	}{
		{"the younger", proto.MomentReply{Version: "2", UpMS: 900}, proto.MomentReply{Version: "2", UpMS: 100}, "c3"},
		{"of this version", proto.MomentReply{Version: "2", UpMS: 900}, proto.MomentReply{Version: "3", UpMS: 100}, "c2"},
		{"a newer one, if there is no other", proto.MomentReply{Version: "3", UpMS: 9, Stalled: true},
			proto.MomentReply{Version: "3", UpMS: 100}, "c3"},
		{"that has the log", proto.MomentReply{Version: "2", UpMS: 900, Index: 5000},
			proto.MomentReply{Version: "2", UpMS: 100, Index: 100}, "c2"},
		{"nearly all of it", proto.MomentReply{Version: "2", UpMS: 900, Index: 5000},
			proto.MomentReply{Version: "2", UpMS: 100, Index: 4900}, "c3"},
		{"nobody", proto.MomentReply{Version: "2", Joins: true}, proto.MomentReply{Version: "2", Stalled: true}, ""},
	} {
		ctl := &Controller{log: slog.New(slog.DiscardHandler), machine: newMachine(), nodes: newNodeSet(),
			clocks: newClocks(), opts: Options{Name: "c1", Version: "2"}}
		var err error
		peers := []store.Peer{{ID: "c1", Addr: "c1"}, {ID: "c2", Addr: "c2"}, {ID: "c3", Addr: "c3"}}
		ctl.store, err = store.Open(store.Options{ID: "c1", Peers: peers, Begin: true, Net: store.NewMemNet(),
			Machine: newMachine()})
		if err != nil {
			t.Fatal(err)
		}
		ctl.clocks.news = map[string]peerNews{"c2": {c.two, time.Now(), 0}, "c3": {c.thr, time.Now(), 0}}
		if got := ctl.heir(t.Context()); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if err := ctl.store.Close(); err != nil {
			t.Error(err)
		}
	}
}
