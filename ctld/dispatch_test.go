package ctld

import (
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// twoNodeJob gives a controller with sessions of two nodes, and facts in which a job runs on both.
func twoNodeJob(t *testing.T, spec *model.Spec) (*Controller, *state.State, model.JobID) {
	t.Helper()
	st := state.New()
	cfg := &model.Config{Cluster: "c"}
	cfg.Params.KillWaitS = 30
	cfg.Params.Rules.Contain = true
	start := model.Start{Task: model.NoTask, Partition: "p", LimitS: 3600, Alloc: &model.Alloc{}}
	c := &Controller{nodes: newNodeSet()}
	for _, name := range []string{"n1", "n2"} {
		cfg.Nodes = append(cfg.Nodes, &model.NodeDef{Name: name, CPUs: 4, ThreadsPerCore: 1, MemMiB: 1000})
		start.Alloc.Nodes = append(start.Alloc.Nodes, model.NodeAlloc{Node: name, CPUs: model.UpTo(1), Tasks: 1})
		c.nodes.sessions[name] = &session{node: name, told: map[partKey]telling{}}
	}
	cfg.Partitions = []*model.Partition{{Name: "p", Nodes: []string{"n1", "n2"}}}
	logged(t, st, &state.SetConfig{Config: cfg, Instance: 1})
	logged(t, st, &state.Join{Node: "n1", BootID: "b"})
	logged(t, st, &state.Join{Node: "n2", BootID: "b"})
	spec.Name, spec.Partitions = "j", []string{"p"}
	start.Job = logged(t, st, &state.Submit{Spec: spec}).Job
	logged(t, st, &state.Starts{Plan: model.Plan{Starts: []model.Start{start}}})
	for _, name := range []string{"n1", "n2"} {
		logged(t, st, &state.Reports{Reports: []state.Report{{Kind: state.Ready, Job: start.Job, Attempt: 1, Node: name}}})
	}
	logged(t, st, &state.Reports{Reports: []state.Report{{Kind: state.Started, Job: start.Job, Attempt: 1}}})
	return c, st, start.Job
}

// logged applies a command as it is read from the log.
func logged(t *testing.T, st *state.State, b state.Body) state.Result {
	t.Helper()
	return loggedAt(t, st, 1_000_000, b)
}

func loggedAt(t *testing.T, st *state.State, at model.Time, b state.Body) state.Result {
	t.Helper()
	data, err := state.Encode(at, b)
	if err != nil {
		t.Fatal(err)
	}
	cmd, err := state.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return st.Apply(cmd)
}

// TestGraceEverywhere: all nodes of a preempted job give it its GraceTime.
func TestGraceEverywhere(t *testing.T) {
	c, st, id := twoNodeJob(t, &model.Spec{Requeue: true})
	logged(t, st, &state.Starts{Plan: model.Plan{Preempt: []model.Preemption{{Job: id, For: 9, GraceS: 300}}}})
	v := st.View()
	for k := range v.Job(id).Run.Alloc.Nodes {
		if got := c.stopOf(v, v.Job(id), k); got.KillWaitS != 300 {
			t.Errorf("node %d: SIGKILL follows after %d s", k+1, got.KillWaitS)
		}
	}
}

// TestWarningOnce: the node that manages a job's steps passes its warning on to the others, so these have no order.
func TestWarningOnce(t *testing.T) {
	c, st, id := twoNodeJob(t, &model.Spec{Warning: &model.Warning{Signal: 10, BeforeS: 60}})
	j, run := *st.View().Job(id), *st.View().Job(id).Run
	run.Warned, j.Run = 1_000_000, &run
	orders := map[string]*proto.Orders{}
	for range 2 {
		c.warningOrders(&j, func(s *session) *proto.Orders {
			if orders[s.node] == nil {
				orders[s.node] = &proto.Orders{}
			}
			return orders[s.node]
		})
	}
	if o := orders["n1"]; len(orders) != 1 || o == nil || len(o.Stop) != 1 || o.Stop[0].Signal != 10 {
		t.Errorf("%d nodes have the order: %+v", len(orders), orders)
	}
}

// TestResizedDidNotWait: the time that a job ran before it got another size is no planned time of that size's record.
func TestResizedDidNotWait(t *testing.T) {
	c, st, id := twoNodeJob(t, &model.Spec{})
	if r := loggedAt(t, st, 1_060_000, &state.Resize{Job: id, Attempt: 1, Keep: []string{"n1"}}); r.Each[0] != state.OK {
		t.Fatal(r.Each)
	}
	j := st.View().Job(id)
	if r := c.recordOf(st.View(), 1, j); r.Eligible != 1_060_000 || r.Start != r.Eligible {
		t.Errorf("it was eligible at %d and began at %d", r.Eligible, r.Start)
	}
}
