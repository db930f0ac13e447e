package steplayout

import (
	"slices"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// TestBindCPUs: every way of binding two tasks on a node of two sockets with four cores each.
func TestBindCPUs(t *testing.T) {
	s := &Shape{Sockets: 2, Cores: 4, Threads: 1}
	part := &proto.StepNode{Node: "n1", CPUs: model.UpTo(8), Ranks: []int32{0, 1}}
	for _, c := range []struct {
		name  string
		bind  proto.StepBind
		need  proto.StepNeed
		want  []string // nil: not bound
		notes int
	}{
		{name: "auto, more CPUs than tasks"},
		{name: "auto, exact", need: proto.StepNeed{Exact: true}, want: []string{"0", "4"}},
		{name: "none", bind: proto.StepBind{CPU: proto.BindNone}},
		{name: "rank", bind: proto.StepBind{CPU: proto.BindRank}, want: []string{"0", "1"}},
		{name: "threads", bind: proto.StepBind{CPU: proto.BindThreads}, want: []string{"0", "4"}},
		{name: "threads in blocks", bind: proto.StepBind{CPU: proto.BindThreads, Cores: proto.DistBlock},
			want: []string{"0", "1"}},
		{name: "cores", bind: proto.StepBind{CPU: proto.BindCores}, want: []string{"0", "4"}},
		{name: "sockets", bind: proto.StepBind{CPU: proto.BindSockets}, want: []string{"0-3", "4-7"}},
		{name: "ldoms", bind: proto.StepBind{CPU: proto.BindLdoms}, want: []string{"0-3", "4-7"}},
		{name: "two CPUs each", bind: proto.StepBind{CPU: proto.BindThreads}, need: proto.StepNeed{CPUsPerTask: 2},
			want: []string{"0-1", "4-5"}},
		{name: "fcyclic", bind: proto.StepBind{CPU: proto.BindThreads, Cores: proto.DistFCyclic},
			need: proto.StepNeed{CPUsPerTask: 2}, want: []string{"0-1", "4-5"}},
		{name: "map", bind: proto.StepBind{CPU: proto.BindMap, CPUList: []string{"3", "5"}}, want: []string{"3", "5"}},
		{name: "map begins again", bind: proto.StepBind{CPU: proto.BindMap, CPUList: []string{"3"}},
			want: []string{"3", "3"}},
		{name: "mask", bind: proto.StepBind{CPU: proto.BindMask, CPUList: []string{"0x3", "c"}},
			want: []string{"0-1", "2-3"}},
		{name: "map of a CPU that the step doesn't have",
			bind: proto.StepBind{CPU: proto.BindMap, CPUList: []string{"2", "9"}}, want: []string{"2", "0-7"}, notes: 1},
		{name: "more than there are", bind: proto.StepBind{CPU: proto.BindCores},
			need: proto.StepNeed{CPUsPerTask: 5}, notes: 1},
	} {
		got, notes := BindCPUs(s, part, &c.bind, &c.need)
		var text []string
		for _, b := range got {
			text = append(text, b.String())
		}
		if !slices.Equal(text, c.want) || len(notes) != c.notes {
			t.Errorf("%s: %q with notes %q, want %q", c.name, text, notes, c.want)
		}
	}
}

// TestThirdLevel: how tasks go to the threads of a socket's cores, on two sockets of two cores with two threads.
func TestThirdLevel(t *testing.T) {
	s := &Shape{Sockets: 2, Cores: 2, Threads: 2}
	part := &proto.StepNode{Node: "n1", CPUs: model.UpTo(8), Ranks: []int32{0, 1}}
	for _, c := range []struct {
		cores, threads uint8
		per            int32
		want           []string
	}{
		{proto.DistBlock, proto.DistDefault, 1, []string{"0", "1"}},
		{proto.DistBlock, proto.DistCyclic, 1, []string{"0", "2"}},
		{proto.DistBlock, proto.DistCyclic, 2, []string{"0-1", "2-3"}},
		{proto.DistBlock, proto.DistFCyclic, 2, []string{"0,2", "1,3"}},
		{proto.DistCyclic, proto.DistFCyclic, 2, []string{"0,2", "4,6"}},
	} {
		got, _ := BindCPUs(s, part, &proto.StepBind{CPU: proto.BindThreads, Cores: c.cores, Threads: c.threads},
			&proto.StepNeed{CPUsPerTask: c.per})
		var text []string
		for _, b := range got {
			text = append(text, b.String())
		}
		if !slices.Equal(text, c.want) {
			t.Errorf("%d:%d with %d CPUs: %q, want %q", c.cores, c.threads, c.per, text, c.want)
		}
	}
}
