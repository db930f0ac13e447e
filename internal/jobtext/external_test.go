package jobtext

import (
	"slices"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// TestExternalState: programs see that a node has no daemon.
func TestExternalState(t *testing.T) {
	n := &proto.NodeInfo{Node: &model.Node{Link: model.LinkUp, Def: &model.NodeDef{Name: "k1", CPUs: 1, External: true}}}
	if got := nodeStatesJSON(n); !slices.Equal(got, []string{"IDLE", "EXTERNAL"}) {
		t.Errorf("its states are %v", got)
	}
}
