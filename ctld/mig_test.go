package ctld

import (
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

func TestMIGHeld(t *testing.T) {
	bits := func(list ...int) (b model.Bits) {
		for _, k := range list {
			b = b.With(k)
		}
		return b
	}
	for _, c := range []struct {
		gres model.GresAlloc
		want string
	}{
		{model.GresAlloc{Name: "gpu", Index: bits(0, 1)}, ""},
		{model.GresAlloc{Name: "gpu", Index: bits(1, 2, 3)}, "gpu:2"},
		{model.GresAlloc{Name: "mig", Index: bits(0, 5)}, "mig:5"},
		{model.GresAlloc{Name: "npu", Index: bits(2)}, ""},
		{model.GresAlloc{Name: "shard", Index: bits(2), Share: &model.GPUShare{GPU: 0}}, ""},
		{model.GresAlloc{Name: "shard", Index: bits(9), Share: &model.GPUShare{GPU: 3}}, "shares of gpu:3"},
	} {
		na := &model.NodeAlloc{Gres: []model.GresAlloc{c.gres}}
		if got := migHeld(na, map[string][]int{"gpu": {2, 3}, "mig": {5}}); got != c.want {
			t.Errorf("%+v: %q, want %q", c.gres, got, c.want)
		}
	}
}

func TestMIGDrained(t *testing.T) {
	units := []model.GresUnit{
		{Name: "gpu", Index: 0, UUID: "GPU-a"},
		{Name: "gpu", Index: 1, UUID: "MIG-1", Parent: "GPU-b"},
		{Name: "gpu", Index: 2, UUID: "MIG-2", Parent: "GPU-b"},
		{Name: "gpu", Index: 3},
		{Name: "npu", Index: 0},
	}
	out := func(kind model.OutKind, list ...int32) (o []model.UnitOut) {
		for _, k := range list {
			o = append(o, model.UnitOut{Name: "gpu", Index: k, Kind: kind})
		}
		return o
	}
	for _, c := range []struct {
		gres  string
		admin model.NodeAdmin
		out   []model.UnitOut
		want  string // the GPUs and what to resume, or the error
	}{
		{"gpu:0", model.NodeUp, nil,
			"gpu:0 of node n1 is not drained; first gcontrol update NodeName=n1 Gres=gpu:0 State=DRAIN Reason=mig"},
		{"gpu:0", model.NodeUp, out(model.OutInUse, 0),
			"gpu:0 of node n1 is not drained; first gcontrol update NodeName=n1 Gres=gpu:0 State=DRAIN Reason=mig"},
		{"gpu:0", model.NodeUp, out(model.OutDrained, 0), "GPU-a; gcontrol update NodeName=n1 Gres=gpu:0 State=RESUME"},
		{"gpu:0", model.NodeUp, out(model.OutFault, 0), "GPU-a; gcontrol update NodeName=n1 Gres=gpu:0 State=RESUME"},
		{"gpu:0", model.NodeDrain, nil, "GPU-a; gcontrol update NodeName=n1 State=RESUME"},
		{"gpu:1", model.NodeUp, out(model.OutDrained, 1),
			"gpu:2 of node n1 is not drained; first gcontrol update NodeName=n1 Gres=gpu:2 State=DRAIN Reason=mig"},
		// two units are left
		{"gpu:1", model.NodeUp, out(model.OutDrained, 1, 2), "GPU-b; gcontrol update NodeName=n1 Gres=gpu:1 State=RESUME"},
		{"gpu:0,2", model.NodeDrain, out(model.OutDrained, 0),
			"GPU-a GPU-b; gcontrol update NodeName=n1 Gres=gpu:0 State=RESUME; gcontrol update NodeName=n1 State=RESUME"},
		{"", model.NodeDown, nil, "; gcontrol update NodeName=n1 State=RESUME"},
		{"gpu:3", model.NodeDrain, nil, "gpu:3 of node n1 is not known to the driver there, or has no UUID"},
		{"gpu:7", model.NodeDrain, nil, "node n1 has no gpu:7 (gcontrol -d show node n1)"},
		{"npu:0", model.NodeDrain, nil, "gres=npu:0: write the GPUs to divide, such as gres=gpu:0-3"},
		{"gpu", model.NodeDrain, nil, "write the units"},
	} {
		n := &model.Node{Def: &model.NodeDef{Name: "n1"}, Admin: c.admin, Out: c.out}
		g, err := migOf(&state.View{}, n, units, c.gres)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = strings.Join(append([]string{strings.Join(g.uuids, " ")}, g.resume(2)...), "; ")
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("gres=%s, %v, %v:\n got %s\nwant %s", c.gres, c.admin, c.out, got, c.want)
		}
	}
	n := &model.Node{Def: &model.NodeDef{Name: "n1"}}
	if _, err := migOf(&state.View{}, n, nil, ""); err == nil || !strings.Contains(err.Error(), "State=DRAIN") {
		t.Errorf("a node without units, in service: %v", err)
	}
}
