package jobtext

import (
	"bytes"
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
