package ctld

import (
	"testing"

	"gbatch/internal/proto"
)

// Each user request that the leader answers has a handler, which streams its answer if its row says so.
func TestEveryRequestHasAHandler(t *testing.T) {
	for kind := proto.KindPing; kind < proto.KindForward; kind++ {
		row := proto.RequestOf(kind)
		h, ok := handlers[kind]
		switch {
		case kind == proto.KindOnce, kind == proto.KindStale: // they hold another one
		case row.Name == "REQUEST_OTHER" || row.At != proto.AtLeader:
			if ok {
				t.Errorf("kind %d (%s) has a handler, and no row in the table that says so", kind, row.Name)
			}
		case !ok:
			t.Errorf("%s has no handler", row.Name)
		case h.parts != row.Stream:
			t.Errorf("%s: answered in parts: %v; its row says %v", row.Name, h.parts, row.Stream)
		}
	}
	for kind := range handlers {
		if kind >= proto.KindForward {
			t.Errorf("kind %d is of daemons, and has a handler for users", kind)
		}
	}
}
