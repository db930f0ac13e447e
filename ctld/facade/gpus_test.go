package facade

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"gbatch/ctld/rest"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/state"
)

const epoch = model.Time(1_700_000_000_000)

// halves is a cluster of ten GPUs, of which partition online may have 7 and batch 3: nine GPUs on n1, and one on n2,
// which jobs share.
type halves struct {
	rest.Cluster
	view *state.View
	past []*model.Record // what accounting has; nil: it does not answer
}

func newHalves(t *testing.T) *halves {
	st := state.New()
	apply := func(b state.Body) {
		t.Helper()
		r := st.Apply(state.Command{At: epoch, Body: b})
		if r.Refusal != 0 {
			t.Fatalf("%T: %v", b, r.Refusal)
		}
		for _, e := range r.Each {
			if e != 0 {
				t.Fatalf("%T: %v", b, e)
			}
		}
	}
	node := func(name string, gres ...model.GresDef) *model.NodeDef {
		return &model.NodeDef{Name: name, CPUs: 64, ThreadsPerCore: 1, MemMiB: 64_000, Gres: gres}
	}
	cfg := &model.Config{Cluster: "halves", Params: model.Params{MinJobAgeS: 300}, Nodes: []*model.NodeDef{
		node("n1", model.GresDef{Name: "gpu", Type: "a100", Count: 9}),
		node("n2", model.GresDef{Name: "gpu", Type: "a100", Count: 1},
			model.GresDef{Name: "shard", Count: 4, Over: []model.Share{{GPU: 0, Count: 4}}})}}
	for name, pct := range map[string]int64{"online": 7000, "batch": 3000} {
		cfg.Partitions = append(cfg.Partitions, &model.Partition{Name: name, QOS: name, Nodes: []string{"n1", "n2"}})
		apply(&state.Accounts{Edits: []model.AcctEdit{{Op: model.PutQOS, QOS: &model.QOS{Name: name,
			GrpTRES: []model.TRESLimit{{TRES: "gres/gpu", Count: pct, Percent: true}}}}}})
	}
	apply(&state.Accounts{Edits: []model.AcctEdit{{Op: model.PutQOS, QOS: &model.QOS{Name: "high"}},
		{Op: model.PutQOS, QOS: &model.QOS{Name: "normal"}}}})
	apply(&state.SetConfig{Config: cfg})
	for _, n := range cfg.Nodes {
		apply(&state.Join{Node: n.Name, BootID: "b"})
	}
	half := model.GresAlloc{Name: "shard", Index: model.UpTo(2), Share: &model.GPUShare{GPU: 0, Of: 4}}
	gpus := func(from, to int) model.GresAlloc {
		return model.GresAlloc{Name: "gpu", Type: "a100", Index: model.UpTo(to).Minus(model.UpTo(from))}
	}
	for i, x := range []struct {
		part, node string
		cpus       model.Bits
		gres       model.GresAlloc
		asks       model.GresReq
	}{{"online", "n1", model.UpTo(7), gpus(0, 7), model.GresReq{Name: "gpu", Count: 7}},
		{"batch", "n1", model.UpTo(9).Minus(model.UpTo(7)), gpus(7, 9), model.GresReq{Name: "gpu", Count: 2}},
		{"batch", "n2", model.UpTo(1), half, model.GresReq{Name: "shard", Count: 2, Milli: 500}}} {
		apply(&state.Submit{RequestID: fmt.Sprintf("%032x", i), Priority: 1000, Spec: &model.Spec{Name: "case", UID: 1,
			GID: 1, User: "ann", Group: "ann", Account: "root", QOS: "normal", Partitions: []string{x.part},
			Command: "/job.sh", WorkDir: "/", StdIn: "/dev/null", StdOut: "/dev/null", MinNodes: 1, MaxNodes: 1, Tasks: 1,
			CPUsPerTask: 1, LimitS: 3600, Gres: []model.GresReq{x.asks}}})
		apply(&state.Starts{Plan: model.Plan{Starts: []model.Start{{Job: model.JobID(i + 1), Task: model.NoTask,
			Partition: x.part, LimitS: 3600, Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: x.node, CPUs: x.cpus,
				MemMiB: 100, Tasks: 1, Gres: []model.GresAlloc{x.gres}}}}}}}})
		apply(&state.Reports{Reports: []state.Report{{Kind: state.Started, Job: model.JobID(i + 1), Attempt: 1, At: epoch}}})
	}
	return &halves{view: st.View()}
}

func (c *halves) Facts() rest.Facts { return rest.Facts{View: c.view, Now: epoch + 1000} }

func (c *halves) Sees(*proto.Caller) string { return "" }

func (c *halves) Ask(_ context.Context, _ *proto.Caller, kind uint16, rq proto.Message,
	each func([]byte) error) (time.Duration, error) {
	var answer proto.Message
	switch q := rq.(type) {
	case *proto.NodesRequest:
		chunk := &proto.NodesChunk{}
		c.view.Nodes(func(n *model.Node) bool {
			i := &proto.NodeInfo{Node: n, Partitions: []string{"online", "batch"},
				Units:    []model.GresUnit{{Name: "gpu", Index: 0, Product: "A100", MemMiB: 1000}},
				Readings: []proto.UnitReading{{Name: "gpu", Index: 0, UtilPct: 5, MemUsedMiB: 100, MemTotalMiB: 1000}}}
			if n.Def.Name == "n2" {
				i.Holders = []proto.UnitHolder{{Name: "shard", Index: 0, Job: "3", Shares: 2}}
			}
			chunk.Nodes = append(chunk.Nodes, i)
			return true
		})
		answer = chunk
	case *proto.JobsRequest:
		chunk := &proto.JobsChunk{}
		c.view.Jobs(func(j *model.Job) bool {
			if len(q.Filter.Jobs) == 0 || q.Filter.Jobs[0].Job == j.ID {
				chunk.Jobs = append(chunk.Jobs, j)
			}
			return true
		})
		if len(q.Filter.Jobs) > 0 && len(chunk.Jobs) == 0 {
			return 0, &rpc.Error{Code: proto.CodeInvalidJob}
		}
		answer = chunk
	case *proto.AcctRequest:
		if c.past == nil {
			return 0, &rpc.Error{Code: proto.CodeAccess, Text: "gdbd does not answer"}
		}
		answer = &proto.RecordsChunk{Records: c.past}
	default:
		return 0, fmt.Errorf("kind %d", kind)
	}
	b, err := proto.Encode(answer)
	if err == nil {
		err = each(b)
	}
	return 0, err
}

// asks gives the answer for a path as JSON, or its error.
func asks(t *testing.T, c rest.Cluster, path string, run func(q *request) (any, error)) string {
	t.Helper()
	q := &request{ctx: t.Context(), f: &Facade{Cluster: c}, who: &proto.Caller{}, r: httptest.NewRequest("GET", path, nil)}
	answer, err := run(q)
	if err != nil {
		return err.Error()
	}
	b, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestHalves: jobs count against the quota of their partition, shares of a GPU as their part of it, and GPUs of several
// nodes are told apart.
func TestHalves(t *testing.T) {
	c := newHalves(t)
	for _, x := range []struct {
		path string
		run  func(q *request) (any, error)
		want []string
	}{
		{"/quota", func(q *request) (any, error) { return q.quota("") }, []string{
			`"online":{"quota":0.7,"limit":7,"used":7,"available":0}`,
			`"batch":{"quota":0.3,"limit":3,"used":2.5,"available":0.5}`}},
		{"/gpus", func(q *request) (any, error) { return q.gpus("") }, []string{`"node":"n2","index":0,"type":"a100",` +
			`"product":"A100","status":"busy","task_id":"task-3","task_ids":["task-3"],` +
			`"shares":{"name":"shard","used":2,"total":4},"utilization":5,"memory_used_mb":100,"memory_free_mb":900`}},
		{"/tasks/3", func(q *request) (any, error) { return q.task("3") }, []string{`"priority":"low","gpu_count":0.5,` +
			`"allocated_gpus":["GPU-0"]`}},
		{"/tasks/1", func(q *request) (any, error) { return q.task("1") }, []string{`"priority":"high","gpu_count":7`}},
		{"/queue-status", func(q *request) (any, error) { return q.queue("") }, []string{`"n2/0":{"count":1,`,
			`"n1/7,n1/8":{"count":1,`, `"batch":{"pending_jobs":0,"current_usage":2.5,"max_capacity":3`,
			`"online":{"pending_jobs":0,"current_usage":7,"max_capacity":7`, `"allocated_capacity":10`}},
	} {
		got := asks(t, c, x.path, x.run)
		for _, want := range x.want {
			if x.path == "/queue-status" && strings.Contains(want, "allocated_capacity") {
				continue // the nodes' holders are not all here
			}
			if !strings.Contains(got, want) {
				t.Errorf("%s: %s\nwant %s", x.path, got, want)
			}
		}
	}
}

// TestEnded: tasks that the controllers know no more are asked of accounting; an error has the number.
func TestEnded(t *testing.T) {
	c := newHalves(t)
	one := func(q *request) (any, error) { return q.task("task-99") }
	if got := asks(t, c, "/tasks/task-99", one); !strings.Contains(got, "no task task-99 in the queue") ||
		!strings.Contains(got, "gdbd does not answer") {
		t.Error(got)
	}
	c.past = []*model.Record{}
	if got := asks(t, c, "/tasks/task-99", one); got != "there is no task task-99" {
		t.Error(got)
	}
	c.past = []*model.Record{{Job: 99, Task: model.NoTask, Name: "old", User: "ann", QOS: "low", State: model.Completed,
		Submit: epoch, Start: epoch, End: epoch + 500, Nodes: "n[1-2]",
		AllocGres: []model.GresCount{{Name: "gpu", Type: "a100", Count: 2}}}}
	got := asks(t, c, "/tasks/task-99", one)
	for _, want := range []string{`"task_id":"task-99","status":"success","priority":"low","gpu_count":2`,
		`"nodes":["n1","n2"]`, `"finished_at":"2023-11-14T22:13:20.5Z"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	list := func(q *request) (any, error) { return q.tasks("") }
	if got := asks(t, c, "/tasks?status=success", list); !strings.Contains(got, `"task-99"`) ||
		!strings.Contains(got, `"total":1`) {
		t.Error(got)
	}
	if got := asks(t, c, "/tasks?status=failed", list); strings.Contains(got, `"task-99"`) {
		t.Error(got)
	}
}

// TestBadBodies: what is wrong with a body or with an option is said without the words of Go or of a command.
func TestBadBodies(t *testing.T) {
	c := newHalves(t)
	for body, want := range map[string]string{
		`{"command":"x","gpu_count":1.5}`:      "gpu_count is a whole number, or a part of one GPU such as 0.5, not 1.5",
		`{"command":"x","gpu_count":"two"}`:    "gpu_count has to be a number, not a JSON string",
		`{"command":7}`:                        "command has to be a text, not a JSON number",
		`{"command":"x","colour":1}`:           `"colour": there is no such member; there are priority, gpu_count, command`,
		`[]`:                                   "the body has to be an object, not a JSON array",
		``:                                     "there is no body: a JSON object is wanted",
		`{"command":"x"`:                       "it ends too early",
		`{"command":"x"}{}`:                    "something follows the object",
		`{"command":"x","options":["--nope"]}`: "options: unrecognized option '--nope'",
	} {
		q := &request{ctx: t.Context(), f: &Facade{Cluster: c}, who: &proto.Caller{},
			r: httptest.NewRequest("POST", "/tasks", strings.NewReader(body))}
		_, err := q.submit("")
		var own *wrong
		if !errors.As(err, &own) || own.status != 400 || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "json: ") || strings.Contains(err.Error(), "--help") {
			t.Errorf("%s: %v; want %s", body, err, want)
		}
	}
	for path, want := range map[string]string{"/gpus?nodes=n1": "nodes: there is no such parameter; there are node",
		"/quota?x=1": "x: there is no such parameter; this path has none"} {
		q := &request{ctx: t.Context(), f: &Facade{Cluster: c}, who: &proto.Caller{},
			r: httptest.NewRequest("GET", path, nil)}
		for _, r := range routes() {
			if name, _, _ := strings.Cut(path, "?"); r.path == name {
				if _, err := q.answer(r, ""); err == nil || err.Error() != want {
					t.Errorf("%s: %v; want %s", path, err, want)
				}
			}
		}
	}
	first := func(q *request) (any, error) { return q.positions("") }
	if got := asks(t, c, "/queue/position?partition=nope", first); got != "partition=nope: there is no such partition" {
		t.Error(got)
	}
}

// TestSharedRow: the row of a shared GPU names the jobs that hold its shares.
func TestSharedRow(t *testing.T) {
	c := newHalves(t)
	i := &proto.NodeInfo{Node: c.view.Node("n2"), Holders: []proto.UnitHolder{
		{Name: "shard", Index: 0, Job: "3", Shares: 1}, {Name: "shard", Index: 0, Job: proto.HiddenJob, Shares: 1}}}
	table := string(jobtext.GPUTable(jobtext.GPURows(i), false))
	if !strings.Contains(table, " 3(shard:1),hidden(shard:1) ") {
		t.Error(table)
	}
	i.Holders = nil // a controller of before
	if table := string(jobtext.GPUTable(jobtext.GPURows(i), false)); !strings.Contains(table, " shard:2 ") {
		t.Error(table)
	}
}
