package model

import (
	"reflect"
	"testing"
)

// TestWithFound: detected values only fill in what the configuration omits.
func TestWithFound(t *testing.T) {
	near, links, dist := []Bits{UpTo(2), UpTo(4)}, [][]int32{{0, 4}, {4, 0}}, [][]int32{{0, 10}, {10, 0}}
	two := func() *NodeDef {
		return &NodeDef{Name: "n1", CPUs: 4,
			Gres: []GresDef{{Name: "gpu", Type: "h100", Count: 2}, {Name: "shard", Count: 8}}}
	}
	found := []GresDef{{Name: "gpu", Type: "h100", Count: 2, Near: near, Links: links, Dist: dist, MemMiB: 80}}
	d := two()
	got := d.WithFound(found)
	if want := (GresDef{Name: "gpu", Type: "h100", Count: 2, Near: near, Links: links, Dist: dist,
		MemMiB: 80}); !reflect.DeepEqual(got.Gres[0], want) || !reflect.DeepEqual(got.Gres[1], d.Gres[1]) {
		t.Errorf("%+v", got.Gres)
	}
	if len(d.Gres[0].Near) != 0 || d.Gres[0].MemMiB != 0 {
		t.Error("the definition itself was changed")
	}
	// The same definition where there is nothing to add: the scheduler knows a node by it.
	for name, f := range map[string][]GresDef{
		"nothing":         nil,
		"nothing known":   {{Name: "gpu", Type: "h100", Count: 2}},
		"others":          {{Name: "npu", Count: 2, MemMiB: 5}},
		"a unit too few":  {{Name: "gpu", Type: "h100", Count: 1, Near: near[:1], MemMiB: 80}},
		"other positions": {{Name: "gpu", First: 2, Count: 2, MemMiB: 80}},
	} {
		if got := d.WithFound(f); got != d {
			t.Errorf("%s: %+v", name, got.Gres)
		}
	}
	// The configuration's own values stay.
	said := two()
	said.Gres[0].Near, said.Gres[0].Links, said.Gres[0].MemMiB = []Bits{UpTo(1), UpTo(1)}, [][]int32{{0, 1}, {1, 0}}, 40
	got = said.WithFound(found)
	if g := got.Gres[0]; !reflect.DeepEqual(g.Near, said.Gres[0].Near) ||
		!reflect.DeepEqual(g.Links, said.Gres[0].Links) || g.MemMiB != 40 || !reflect.DeepEqual(g.Dist, dist) {
		t.Errorf("%+v", g)
	}
	// Units of one entry that were found as two types keep their order; a type's memory is the smallest of its units.
	mixed := &NodeDef{Gres: []GresDef{{Name: "gpu", Count: 3}}}
	got = mixed.WithFound([]GresDef{{Name: "gpu", Type: "a", Count: 1, MemMiB: 40},
		{Name: "gpu", Type: "b", First: 1, Count: 2, MemMiB: 80}})
	if got.Gres[0].MemMiB != 40 || len(got.Gres[0].Near) != 0 {
		t.Errorf("%+v", got.Gres[0])
	}
}
