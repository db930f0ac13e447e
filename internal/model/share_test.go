package model

import "testing"

// GPUs and shares of them are counted together: a GPU with a share in use can't be given out whole, nor shared by
// another resource.
func TestHoldsGres(t *testing.T) {
	d := &NodeDef{Gres: []GresDef{
		{Name: "gpu", Type: "a", Count: 2},
		{Name: "gpu", Type: "mig", First: 2, Count: 3},
		{Name: "shard", Type: "a", Count: 8, Over: []Share{{0, 4}, {1, 4}}},
		{Name: "mps", Type: "a", Count: 200, Over: []Share{{0, 100}, {1, 100}}},
		{Name: "fpga", Count: 2},
	}}
	shards := func(gpu int32, n int) GresAlloc {
		return GresAlloc{Name: "shard", Type: "a", Index: UpTo(int(gpu)*4 + n).Minus(UpTo(int(gpu) * 4)),
			Share: &GPUShare{GPU: gpu, Of: 4}}
	}
	for _, x := range []struct {
		want []int32
		held []GresAlloc
		ok   bool
	}{
		{[]int32{2, 3, 0, 0, 2}, nil, true},
		{[]int32{3, 0, 0, 0, 0}, nil, false},
		{[]int32{2, 0, 1, 0, 0}, nil, false},
		{[]int32{1, 0, 4, 0, 0}, nil, true},
		{[]int32{1, 3, 5, 0, 0}, nil, false},
		{[]int32{0, 0, 4, 100, 0}, nil, true},
		{[]int32{0, 0, 5, 1, 0}, nil, false},
		{[]int32{1, 0, 2, 0, 0}, []GresAlloc{shards(1, 2)}, true},
		{[]int32{1, 0, 3, 0, 0}, []GresAlloc{shards(1, 2)}, false},
		{[]int32{2, 0, 0, 0, 0}, []GresAlloc{shards(0, 1)}, false},
		{[]int32{0, 0, 0, 100, 0}, []GresAlloc{shards(0, 1)}, true},
		{[]int32{0, 0, 0, 101, 0}, []GresAlloc{shards(0, 1)}, false},
		{[]int32{1, 1, 0, 0, 0}, []GresAlloc{{Name: "gpu", Type: "mig", Index: Bits(nil).With(2).With(3)}}, true},
		{[]int32{1, 2, 0, 0, 0}, []GresAlloc{{Name: "gpu", Type: "mig", Index: Bits(nil).With(2).With(3)}}, false},
		{[]int32{0, 0, 5, 0, 0}, []GresAlloc{{Name: "gpu", Type: "a", Index: Bits(nil).With(0)}}, false},
		{[]int32{0, 0, 0, 0, 2}, []GresAlloc{{Name: "fpga", Index: Bits(nil).With(1)}}, false},
	} {
		if ok := d.HoldsGres(x.want, x.held); ok != x.ok {
			t.Errorf("%v beside %v: %v", x.want, x.held, ok)
		}
	}
}
