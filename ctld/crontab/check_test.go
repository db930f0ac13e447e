package crontab

import (
	"strings"
	"testing"
	"time"

	"gbatch/internal/cron"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

func job(change func(*proto.SubmitRequest)) *proto.SubmitRequest {
	rq := &proto.SubmitRequest{Spec: &model.Spec{Cron: &model.Cron{Times: "0 * * * *", First: 1, Last: 2}}}
	change(rq)
	return rq
}

// TestChecks: what a command by hand could send is refused, whatever gcrontab itself looks at.
func TestChecks(t *testing.T) {
	for want, change := range map[string]func(*proto.SubmitRequest){
		"":                              func(*proto.SubmitRequest) {},
		"malformed: an entry has no":    func(rq *proto.SubmitRequest) { rq.Spec.Cron = nil },
		"no description, or no times":   func(rq *proto.SubmitRequest) { rq.Spec = nil },
		"has no description":            func(rq *proto.SubmitRequest) { rq.TestOnly = true },
		"lines 0-2 of 2":                func(rq *proto.SubmitRequest) { rq.Spec.Cron.First = 0 },
		"lines 2-1 of 2":                func(rq *proto.SubmitRequest) { rq.Spec.Cron.First, rq.Spec.Cron.Last = 2, 1 },
		"lines 1-3 of 2":                func(rq *proto.SubmitRequest) { rq.Spec.Cron.Last = 3 },
		"longer than 1024":              func(rq *proto.SubmitRequest) { rq.Spec.Cron.Times = strings.Repeat("1,", 999) },
		"'60' is not a number":          func(rq *proto.SubmitRequest) { rq.Spec.Cron.Times = "60 * * * *" },
		"more than five fields":         func(rq *proto.SubmitRequest) { rq.Spec.Cron.Times = "0 * * * * x" },
		"a heterogeneous job can't":     func(rq *proto.SubmitRequest) { rq.Rest = []*model.Spec{{}} },
		"an array can't come back":      func(rq *proto.SubmitRequest) { rq.Spec.Tasklist = model.TaskSet{{Hi: 2, Step: 1}} },
		"has no --deadline":             func(rq *proto.SubmitRequest) { rq.Spec.Deadline = 1 },
		"an allocation can't come back": func(rq *proto.SubmitRequest) { rq.Spec.More = &model.Needs{Interactive: true} },
	} {
		err := CheckJob(job(change), 2)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for text, want := range map[string]string{"# \tfine é\n@daily x\n": "", "@daily x\n# \x1b[31m\n": "line 2 of the",
		"# \xff": "line 1 of the", "# \r\n": "line 1 of", strings.Repeat("x", cron.MaxText+1): "at most 65536 bytes"} {
		err := CheckText([]byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
}

// TestDue: the next time of a job is after now, and after the time of the run that has ended.
func TestDue(t *testing.T) {
	hour := func(n int) model.Time {
		return model.Time(time.Date(2026, 12, 1, n, 0, 0, 0, time.Local).UnixMilli())
	}
	if at := Next(job(func(*proto.SubmitRequest) {}).Spec.Cron, hour(3)+1); at != hour(4) {
		t.Errorf("the first time is %d", at)
	}
	st := state.New()
	apply := func(at model.Time, b state.Body) {
		t.Helper()
		data, err := state.Encode(at, b)
		if err != nil {
			t.Fatal(err)
		}
		c, err := state.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		st.Apply(c)
	}
	apply(hour(1), &state.SetConfig{Config: &model.Config{Cluster: "c",
		Nodes:      []*model.NodeDef{{Name: "n1", CPUs: 2, ThreadsPerCore: 1, MemMiB: 100}},
		Partitions: []*model.Partition{{Name: "p", Nodes: []string{"n1"}}}}, Instance: 1})
	apply(hour(1), &state.Join{Node: "n1", BootID: "b"})
	sp := *job(func(*proto.SubmitRequest) {}).Spec
	sp.Partitions, sp.Begin = []string{"p"}, hour(2)
	apply(hour(1), &state.Crontab{Text: []byte("x\ny\n"), Jobs: []state.Submit{{Spec: &sp}}})
	apply(hour(2), &state.Tick{})
	if list := Due(st.View(), hour(2)); len(list) != 0 {
		t.Errorf("%d are due before they have run", len(list))
	}
	apply(hour(2), &state.Starts{Plan: model.Plan{Starts: []model.Start{{Job: 1, Task: model.NoTask, Partition: "p",
		LimitS: 60, Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1", CPUs: model.UpTo(1), Tasks: 1}}}}}}})
	apply(hour(2), &state.Reports{Reports: []state.Report{{Kind: state.Started, Job: 1, Attempt: 2},
		{Kind: state.Ended, Job: 1, Attempt: 2}, {Kind: state.Started, Job: 1, Attempt: 1},
		{Kind: state.Ended, Job: 1, Attempt: 1}}})
	list := Due(st.View(), hour(2)-5000) // the cluster's time is a little behind the run's
	if len(list) != 1 || list[0].Begin != hour(3) || list[0].Targets[0].Job != 1 {
		t.Fatalf("%+v, %+v", list, st.View().Job(1))
	}
	if list = Due(st.View(), hour(7)+1); len(list) != 1 || list[0].Begin != hour(8) {
		t.Errorf("%+v", list)
	}
	apply(hour(2), list[0])
	if list = Due(st.View(), hour(2)); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}
