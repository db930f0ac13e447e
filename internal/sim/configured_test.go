package sim

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestQueuePolicy: partitions of a configuration have their own orders in a replay, whatever the cluster's order is.
func TestQueuePolicy(t *testing.T) {
	const text = `ClusterName=sim
SlurmctldHost=localhost
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
NodeName=n[1-2] CPUs=1
PartitionName=p Nodes=n1 Default=YES MaxTime=1-0 QueuePolicy=ORDER
PartitionName=q Nodes=n2 MaxTime=1-0
`
	w := &Workload{Name: "orders"}
	for _, j := range []Job{ // each runs alone: the starts are the order
		{ID: 1, Submit: 0, Run: 10, Request: 10, CPUs: 1, Queue: "p", User: "bob"},
		{ID: 2, Submit: 1, Run: 1000, Request: 1000, CPUs: 1, Queue: "p", User: "ann"},
		{ID: 3, Submit: 2, Run: 1000, Request: 1000, CPUs: 1, Queue: "p", User: "ann"},
		{ID: 4, Submit: 3, Run: 1000, Request: 1000, CPUs: 1, Queue: "p", User: "bob"},
		{ID: 5, Submit: 4, Run: 1000, Request: 1000, CPUs: 1, Queue: "p", User: "ann"},
	} {
		w.add(j)
	}
	w.sort()
	for _, more := range []string{"", "PriorityType=priority/basic\n", "PriorityWeightAge=1000\n"} {
		for order, want := range map[string][]int{"fifo": {1, 2, 3, 4, 5}, "fairshare": {1, 2, 4, 3, 5}} {
			file := filepath.Join(t.TempDir(), "gbatch.conf")
			if err := os.WriteFile(file, []byte(more+strings.Replace(text, "ORDER", order, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			m, _, err := FromConf(file)
			if err != nil {
				t.Fatal(err)
			}
			o := replayOn(t, w, m)
			got := []int{0, 1, 2, 3, 4}
			slices.SortFunc(got, func(a, b int) int { return cmp.Compare(o.Start[a], o.Start[b]) })
			for i := range got {
				if got[i]+1 != want[i] {
					t.Errorf("%q, QueuePolicy=%s: order %v counted from 0, not %v from 1", more, order, got, want)
					break
				}
			}
		}
	}
}
