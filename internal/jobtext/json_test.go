package jobtext

import (
	"bytes"
	"strings"
	"testing"

	"gbatch/internal/ask"
	"gbatch/internal/golden"
	"gbatch/internal/model"
	"gbatch/internal/slurmjson"
)

// TestJSONFields: the members of --json that programs can rely on. A removed or changed line breaks programs.
func TestJSONFields(t *testing.T) {
	text := slurmjson.Described("job", JobJSON()) +
		slurmjson.Described("record", RecordJSON()) +
		slurmjson.Described("node", NodeJSON()) +
		slurmjson.Described("sinfo", SinfoJSON()) +
		slurmjson.Described("partition", PartitionJSON()) +
		slurmjson.Described("reservation", ReservationJSON()) +
		slurmjson.Described("gpu", GPUJSON()) +
		slurmjson.Described("why", WhyJSON())
	golden.Compare(t, "testdata/json.txt", []byte(text))
}

// TestMoment: rows of a job have the same members at two times if they have the same moment.
func TestMoment(t *testing.T) {
	const at, step = model.Time(1_700_000_000_000), 1000
	pending := func(change func(*model.Job)) *model.Job {
		j := &model.Job{ID: 1, Task: model.NoTask, State: model.Pending, Submit: at - 5000, Eligible: at - 5000,
			Spec: &model.Spec{Partitions: []string{"batch"}, MinNodes: 1, LimitS: 60,
				WorkDir: "/tmp"}}
		change(j)
		return j
	}
	started := &model.Run{Partition: "batch", Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1"}}},
		Start: at - 2000, Launched: at - 2000, LimitS: 60}
	jobs := []*model.Job{
		pending(func(*model.Job) {}),
		pending(func(j *model.Job) { j.Begin, j.Reason = at+2500, model.ReasonBeginTime }),
		pending(func(j *model.Job) { j.Expect = &model.Expect{Start: at + 1500} }),
		pending(func(j *model.Job) { j.Hold = model.HeldByUser }),
		pending(func(j *model.Job) {
			j.Spec.Deps = []model.Dep{{Kind: model.DepAfter, Job: 7, Task: model.NoTask, DelayS: 60}}
			j.Begin = at + 3500
		}),
		pending(func(j *model.Job) { j.State, j.Run = model.Running, started }),
		pending(func(j *model.Job) {
			run := *started
			run.Sleep, run.SleepAt, run.Turns = model.SleepsByAdmin, at-1000, 1
			j.State, j.Run = model.Suspended, &run
		}),
		pending(func(j *model.Job) { j.State, j.Run, j.End = model.Completed, started, &model.End{At: at - 100} }),
		pending(func(j *model.Job) { j.State, j.Begin, j.End = model.Cancelled, at+500, &model.End{At: at - 100} }),
	}
	changes := 0
	for i, j := range jobs {
		var moment, row []byte
		for n := range model.Time(6) {
			r := &JobRow{Job: j, JobView: &JobView{At: at + n*step, Rules: &ask.Rulebook{}}, OneTask: model.NoTask}
			var b bytes.Buffer
			w := slurmjson.New(&b, "v0.0.44")
			slurmjson.Write(w, "", JobMembers(), r)
			w.Flush(true)
			now := r.AppendMoment(nil)
			if n > 0 && bytes.Equal(now, moment) != bytes.Equal(b.Bytes(), row) {
				t.Errorf("job %d after %d s: the moment is %q after %q, the row\n%s\nafter\n%s", i, n, now, moment, b.Bytes(),
					row)
			}
			if n > 0 && !bytes.Equal(now, moment) {
				changes++
			}
			moment, row = now, b.Bytes()
		}
	}
	if changes < 4 {
		t.Errorf("time alone changed %d rows: too few to tell", changes)
	}
}

// TestMembersOfJobs: what the text of a job tells stands in its members too, with the defaults of the cluster.
func TestMembersOfJobs(t *testing.T) {
	const at = model.Time(1_700_000_000_000)
	spec := func(change func(*model.Spec)) *model.Spec {
		sp := &model.Spec{Partitions: []string{"batch"}, MinNodes: 1, MaxNodes: 1, Tasks: 1, CPUsPerTask: 2, LimitS: 60}
		change(sp)
		return sp
	}
	run := func(change func(*model.Run)) *model.Run {
		r := &model.Run{Partition: "batch", Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n1"}}}, Start: at - 20_000,
			Launched: at - 20_000, LimitS: 60}
		change(r)
		return r
	}
	plain := spec(func(*model.Spec) {})
	perCPU := &model.AskRules{DefMemPerCPU: 100}
	for _, c := range []struct {
		what  string
		job   *model.Job
		rules *model.AskRules
		want  []string
	}{
		{"a default per CPU", &model.Job{Spec: plain}, perCPU, []string{
			`"memory_per_cpu":{"set":true,"infinite":false,"number":100}`,
			`"memory_per_node":{"set":false,"infinite":false,"number":0}`}},
		{"a default per node", &model.Job{Spec: plain}, &model.AskRules{DefMemPerNode: 300}, []string{
			`"memory_per_cpu":{"set":false,"infinite":false,"number":0}`,
			`"memory_per_node":{"set":true,"infinite":false,"number":300}`}},
		{"a suspended job", &model.Job{Spec: plain, State: model.Suspended, Run: run(func(r *model.Run) {
			r.Sleep, r.SleepAt, r.Turns = model.SleepsByAdmin, at-5000, 1
		})}, perCPU, []string{`"suspend_time":{"set":true,"infinite":false,"number":1699999995}`,
			`"pre_sus_time":{"set":true,"infinite":false,"number":15}`,
			`"last_sched_evaluation":{"set":true,"infinite":false,"number":1699999980}`,
			`"end_time":{"set":true,"infinite":false,"number":1700000045}`}},
		{"one whose epilog runs", &model.Job{Spec: plain, State: model.Completing, Run: run(func(r *model.Run) {
			r.Over = &model.End{At: at - 3000, Exit: model.Exit{Code: 3}}
		})}, perCPU, []string{`"end_time":{"set":true,"infinite":false,"number":1699999997}`,
			`"return_code":{"set":true,"infinite":false,"number":3}`}},
		{"one that is planned", &model.Job{Spec: plain, State: model.Pending,
			Expect: &model.Expect{Start: at + 9000, Nodes: []string{"n1", "n2"}}}, perCPU,
			[]string{`"scheduled_nodes":"n[1-2]"`}},
		{"one that has other nodes than before", &model.Job{Spec: plain, State: model.Running, Run: run(func(r *model.Run) {
			r.Sized, r.Sizes = at-4000, 1
		})}, perCPU, []string{`"resize_time":{"set":true,"infinite":false,"number":1699999996}`}},
		{"one that is preempted", &model.Job{Spec: plain, State: model.Completing, Run: run(func(r *model.Run) {
			r.Stop, r.StopAt = model.StopPreempt, at-2000
		})}, perCPU, []string{`"preempt_time":{"set":true,"infinite":false,"number":1699999998}`}},
		{"one with a frequency", &model.Job{Spec: spec(func(sp *model.Spec) {
			sp.More = &model.Needs{Stated: &model.Stated{CPUFreq: "1200000-2400000:conservative", Profile: "Energy,Task"},
				CoresPerSocket: 4, Bind: &model.BindWish{TasksPerGPU: 2}}
		})}, perCPU, []string{`"cpu_frequency_minimum":{"set":true,"infinite":false,"number":1200000}`,
			`"cpu_frequency_maximum":{"set":true,"infinite":false,"number":2400000}`,
			`"cpu_frequency_governor":{"set":true,"infinite":false,"number":2281701376}`,
			`"profile":["ENERGY","TASK"]`, `"cores_per_socket":{"set":true,"infinite":false,"number":4}`,
			`"tasks_per_tres":{"set":true,"infinite":false,"number":2}`}},
		{"one that waits for an array", &model.Job{Spec: plain, State: model.Pending, Deps: []model.Dep{
			{Kind: model.DepAfterOK, Job: 4, Task: model.NoTask, Array: true},
			{Kind: model.DepAfterOK, Job: 5, Task: model.NoTask}}}, perCPU,
			[]string{`"dependency":"afterok:4_*(unfulfilled),afterok:5(unfulfilled)"`}},
		{"one bound to GPUs", &model.Job{Spec: spec(func(sp *model.Spec) {
			sp.More = &model.Needs{Bind: &model.BindWish{GPU: "closest"}}
		})}, perCPU, []string{`"tres_bind":"gres/gpu:closest"`}},
	} {
		c.job.ID, c.job.Task, c.job.Submit, c.job.Eligible = 1, model.NoTask, at-30_000, at-30_000
		rules := &ask.Rulebook{}
		r := &JobRow{Job: c.job, JobView: &JobView{At: at, Rules: rules}, OneTask: model.NoTask}
		c.rules.Partition = "batch"
		rules.Add([]*model.AskRules{c.rules})
		var b bytes.Buffer
		w := slurmjson.New(&b, "v0.0.44")
		slurmjson.Write(w, "", JobMembers(), r)
		w.Flush(true)
		text := strings.Join(strings.Fields(b.String()), "")
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %s in\n%s", c.what, want, text)
			}
		}
	}
}

// TestSameMembers: what REST tells of jobs, nodes and partitions, --json of the commands tells too.
func TestSameMembers(t *testing.T) {
	for _, c := range []struct{ what, commands, rest string }{
		{"job", slurmjson.Described("", JobJSON()), slurmjson.Described("", JobMembers())},
		{"node", slurmjson.Described("", NodeJSON()), slurmjson.Described("", NodeMembers())},
	} {
		for line := range strings.Lines(c.rest) {
			if name, _, _ := strings.Cut(strings.TrimSpace(line), " "); !strings.Contains(c.commands, "\n  "+name+" ") &&
				strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "   ") {
				t.Errorf("%s: only REST has %s", c.what, name)
			}
		}
	}
	seen := map[string]bool{}
	for _, f := range JobJSON() {
		for _, ver := range []string{"v0.0.38", "v0.0.40", "v0.0.42", "v0.0.44"} {
			key := ver + " " + f.Name
			old := ver < "v0.0.40"
			if f.In != slurmjson.InAll && (f.In == slurmjson.InOld) != old || f.If != nil || ver < f.Since ||
				f.Until != "" && ver > f.Until {
				continue
			}
			if seen[key] {
				t.Errorf("%s is written twice", key)
			}
			seen[key] = true
		}
	}
}

// TestArrayLimitInRecords: the record of tasks that wait has the limit of their array.
func TestArrayLimitInRecords(t *testing.T) {
	for tasks, want := range map[string]string{"3,5%2": `"tasks":2`, "3,5": `"tasks":0`} {
		r := RecordWithSteps{RecordRow: &RecordRow{RecordView: &RecordView{},
			Record: &model.Record{Job: 9, ArrayID: 9, Task: model.NoTask, TaskText: tasks}}}
		var b bytes.Buffer
		j := slurmjson.New(&b, "v0.0.42")
		slurmjson.Write(j, "", RecordJSON(), &r)
		j.Flush(true)
		text := strings.Join(strings.Fields(b.String()), "")
		if _, limits, _ := strings.Cut(text, `"limits":`); !strings.HasPrefix(limits, `{"max":{"running":{`+want) {
			t.Errorf("limits of %s: %.80s", tasks, limits)
		}
	}
}
