package define

import (
	"slices"
	"testing"
)

func TestHostsFor(t *testing.T) {
	for _, c := range []struct {
		names []string
		list  string
		want  []string // nil: an error
	}{
		{[]string{"n1"}, "fe80::1", []string{"fe80::1"}},
		{[]string{"n3", "n1"}, "10.0.0.[3,1]", []string{"10.0.0.3", "10.0.0.1"}},
		{[]string{"n1", "n2"}, "a,a", []string{"a", "a"}},
		{[]string{"n1", "n2"}, "a", nil},
		{[]string{"n1"}, "a,b", nil},
		{[]string{"n1"}, "", nil},
		{[]string{"n1"}, "a[", nil},
	} {
		got, err := hostsFor(c.names, "NodeAddr", c.list)
		if (err != nil) != (c.want == nil) || !slices.Equal(got, c.want) {
			t.Errorf("%v %s: %v, %v", c.names, c.list, got, err)
		}
	}
}
