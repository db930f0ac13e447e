package conf

import "testing"

// TestKept: specialized cores are whole cores, taken from the last core of each socket in turn, the last socket first;
// for a list of CPUs, their cores.
func TestKept(t *testing.T) {
	for _, c := range []struct {
		cpus, sockets, cores, count int64
		list                        []int
		want                        string
	}{
		{4, 1, 4, 0, nil, ""},
		{4, 1, 4, 1, nil, "3"},
		{12, 2, 3, 1, nil, "10-11"},
		{12, 2, 3, 3, nil, "4-5,8-11"},
		{12, 2, 3, 5, nil, "2-11"},
		{6, 2, 3, 2, nil, "2,5"}, // threads that aren't to be used
		{12, 2, 3, 0, []int{0, 7}, "0-1,6-7"},
	} {
		n := NodeDef{CPUs: c.cpus, Sockets: c.sockets, CoresPerSocket: c.cores, CoreSpecCount: c.count, CPUSpecList: c.list}
		if got := n.kept().String(); got != c.want {
			t.Errorf("%+v: %q; want %q", c, got, c.want)
		}
	}
}
