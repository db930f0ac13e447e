package ctld

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/pki"
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

// TestDoctorOfNodesThatAreNotThere: nodes have a moment to come to a new leader; of one whose certificate it has
// refused it says why and what to do, also when that is over.
func TestDoctorOfNodesThatAreNotThere(t *testing.T) {
	c := ruled(t)
	c.nodes, c.clocks = newNodeSet(), newClocks()
	for _, b := range []state.Body{
		&state.SetConfig{Config: &model.Config{Cluster: "c", Nodes: []*model.NodeDef{{Name: "n1", CPUs: 1, MemMiB: 1}},
			Partitions: []*model.Partition{{Name: "p", Nodes: []string{"n1"}}}, Params: model.Params{NodeTimeoutS: 300}}},
		&state.Join{Node: "n1"}} {
		data, err := state.Encode(3000, b)
		if err != nil {
			t.Fatal(err)
		}
		c.machine.Apply(c.machine.View().LastEntry()+1, [][]byte{data})
	}
	v := c.machine.View()
	is := func(when string, grade proto.Grade, text, fix string) {
		t.Helper()
		f := c.examine(t.Context(), v, queuesOf(v), v.Node("n1"))
		if f[0].About != "daemon" || f[0].Grade != grade || !strings.Contains(f[0].Text, text) || f[0].Fix != fix {
			t.Errorf("%s: %+v", when, f[0])
		}
	}
	c.nodes.lead(1, time.Now().Add(-300*time.Millisecond))
	is("just now", proto.GradeNote, "s left to come to it", "")
	c.nodes.lead(1, time.Now().Add(-time.Hour))
	is("later", proto.GradeBad, "gnoded is not connected", "start gnoded there; its log says why it does not reach the "+
		"controllers")
	const fix = "gbatch cert token node n1 on a controller, then gnoded --join TOKEN there"
	c.turned.noteRevoked(&pki.Holder{Role: pki.RoleNode, Name: "n1"}, &model.CertRevoked{By: "root", Why: "stolen"})
	is("revoked", proto.GradeBad, "ctl1 refuses gnoded: its certificate was revoked by root: stolen", fix)
	c.turned.noteOutOfDate(&pki.Holder{Role: pki.RoleNode, Name: "n1", At: time.Unix(0, 0), Until: time.Unix(86400, 0)})
	is("expired", proto.GradeBad, "its certificate is out of date: it counts from 1970-01-01 00:00:00 to 1970-01-02 "+
		"00:00:00 UTC", fix)
}

// TestDoctorOfAccounting: what gdbd says of itself is told, and a gdbd that runs is not to be started.
func TestDoctorOfAccounting(t *testing.T) {
	c := ruled(t)
	for _, x := range []struct {
		d         proto.DbdInfo
		text, fix string
	}{
		{proto.DbdInfo{Addr: "db1:1", Why: "no space left for the accounting database"},
			"no space left for the accounting database", "see to that on the host of gdbd, which runs"},
		{proto.DbdInfo{Addr: "db1:1", Why: "connecting to dbd db1:1: connection refused"}, "connection refused",
			"start gdbd"},
		{proto.DbdInfo{Addr: "db2:1", Copy: true, Why: "connecting to dbd db2:1: connection refused"},
			"gdbd's copy at db2:1 takes no records", "start gdbd"},
	} {
		var f findings
		c.examineDbds(&f, c.machine.View(), &proto.PingReply{Outbox: 3, Dbds: []proto.DbdInfo{x.d}})
		if len(f) != 1 || f[0].Grade != proto.GradeBad || !strings.Contains(f[0].Text, x.text) ||
			!strings.HasPrefix(f[0].Fix, x.fix) {
			t.Errorf("%+v", f)
		}
	}
}
