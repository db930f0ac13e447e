package noded

import (
	"slices"
	"testing"

	"gbatch/internal/proto"
	"gbatch/noded/shim"
	"gbatch/noded/steplayout"
)

// TestBindMemory: every way of binding memory.
func TestBindMemory(t *testing.T) {
	s := &steplayout.Shape{NUMA: map[int]int{0: 0, 1: 0, 2: 1, 3: 1}}
	for _, c := range []struct {
		name string
		bind proto.StepBind
		want shim.MemPolicy
	}{
		{"not asked for", proto.StepBind{}, shim.MemPolicy{}},
		{"none", proto.StepBind{Mem: proto.BindNone}, shim.MemPolicy{}},
		{"local", proto.StepBind{Mem: proto.BindLocal}, shim.MemPolicy{Mode: shim.MemBind, Nodes: []int{1}}},
		{"rank", proto.StepBind{Mem: proto.BindRank}, shim.MemPolicy{Mode: shim.MemBind, Nodes: []int{1}}},
		{"map", proto.StepBind{Mem: proto.BindMap, MemList: []string{"1", "0"}},
			shim.MemPolicy{Mode: shim.MemBind, Nodes: []int{0}}},
		{"mask", proto.StepBind{Mem: proto.BindMask, MemList: []string{"0x3"}},
			shim.MemPolicy{Mode: shim.MemBind, Nodes: []int{0, 1}}},
		{"prefer", proto.StepBind{Mem: proto.BindMask, MemList: []string{"0x3"}, MemPrefer: true},
			shim.MemPolicy{Mode: shim.MemPreferred, Nodes: []int{0}}},
	} {
		got, err := bindMemory(s, &c.bind, 1, []int{2, 3})
		if err != nil || got.Mode != c.want.Mode || !slices.Equal(got.Nodes, c.want.Nodes) {
			t.Errorf("%s: %+v %v, want %+v", c.name, got, err, c.want)
		}
	}
}
