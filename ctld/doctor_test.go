package ctld

import (
	"fmt"
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// TestDoctorCountsOnce: what waits for nodes is counted in one walk over the jobs, however many nodes are looked at,
// and a job that asks for two of a node's partitions counts once.
func TestDoctorCountsOnce(t *testing.T) {
	c := ruled(t)
	apply := func(b state.Body) {
		t.Helper()
		data, err := state.Encode(3000, b)
		if err != nil {
			t.Fatal(err)
		}
		c.machine.Apply(c.machine.View().LastEntry()+1, [][]byte{data})
	}
	const nodes = 2000
	cfg := &model.Config{Cluster: "c", Params: model.Params{MaxJobs: 10000}}
	a, b := &model.Partition{Name: "a", Default: true}, &model.Partition{Name: "b"}
	for i := range nodes {
		name := fmt.Sprintf("n%04d", i)
		cfg.Nodes = append(cfg.Nodes, &model.NodeDef{Name: name, CPUs: 1, MemMiB: 1})
		a.Nodes = append(a.Nodes, name)
		if i%2 == 0 {
			b.Nodes = append(b.Nodes, name)
		}
	}
	cfg.Partitions = []*model.Partition{a, b}
	apply(&state.SetConfig{Config: cfg})
	const jobs = 300
	for i := range jobs {
		sp := &model.Spec{UID: plainUser, User: "ann", Name: "j", MinNodes: 1, MaxNodes: 1, LimitS: 60,
			Partitions: [][]string{{"a"}, {"b"}, {"a", "b"}}[i%3]}
		apply(&state.Submit{Spec: sp, Priority: 1})
	}
	v := c.machine.View()
	if v.Pending() != jobs {
		t.Fatalf("%d jobs wait", v.Pending())
	}
	q := queuesOf(v)
	for name, want := range map[string]int{"n0000": jobs, "n0001": jobs * 2 / 3} {
		var f findings
		queue(&f, q, v.Node(name))
		if len(f) != 1 || !strings.Contains(f[0].Text, fmt.Sprintf("waiting there: %d ", want)) {
			t.Errorf("%s: %+v, want %d", name, f, want)
		}
	}
	if spent := testing.AllocsPerRun(10, func() { queue(new(findings), q, v.Node("n0002")) }); spent > jobs/3 {
		t.Errorf("each further node costs %.0f allocations", spent)
	}
}
