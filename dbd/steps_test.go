package dbd

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// stepRec is the record of a step of a job that rec makes.
func stepRec(seq uint64, job model.JobID, id int32, end model.Time) *model.Record {
	return &model.Record{Seq: seq, Job: job, Attempt: 1, Task: model.NoTask, UID: 1000, Submit: t0 - 2*hour,
		Start: end - minute, End: end,
		State: model.Completed, Step: &model.Step{ID: id, Name: "true", Start: end - minute, End: end, Tasks: 2}}
}

// stepNames writes an answer as "job" and "job.step".
func stepNames(t *testing.T, d *db, req *proto.AcctRequest) string {
	var b strings.Builder
	for _, r := range ask(t, d, req) {
		b.WriteString(" " + strconv.Itoa(int(r.Job)))
		if r.Step != nil {
			b.WriteString("." + strconv.Itoa(int(r.Step.ID)))
		}
	}
	return strings.TrimPrefix(b.String(), " ")
}

func TestSteps(t *testing.T) {
	d, _ := openTest(t, t.TempDir())
	// In any order, twice, before their job's record and after it, in two months.
	mustPut(t, d, 3, rec(1, 1), rec(2, 2, running), stepRec(3, 1, 1, t0-minute))
	mustPut(t, d, 8, stepRec(4, 1, 0, t0-2*minute), stepRec(5, 1, 1, t0-minute), stepRec(6, 3, 0, t0), rec(7, 3),
		stepRec(8, 1, 2, t0+20*day))
	mustPut(t, d, 8, stepRec(4, 1, 0, t0-2*minute))
	mustPut(t, d, 9, stepRec(9, 2, 0, t0+40*day))
	for want, req := range map[string]*proto.AcctRequest{
		"1 2 3":                     {},
		"1 1.0 1.1 1.2 2 2.0 3 3.0": {Steps: true},
		"1 1.0 1.1 1.2":             {Steps: true, Jobs: []model.JobRef{{Job: 1, Task: model.NoTask}}},
	} {
		if got := stepNames(t, d, req); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	sane(t, d)
}

// TestManySteps: an answer goes on in the middle of a job's steps.
func TestManySteps(t *testing.T) {
	d, _ := openTest(t, t.TempDir())
	var records []*model.Record
	want := "1"
	for i := range 3*proto.ChunkJobs + 5 {
		end := t0 - minute
		if i < 10 {
			end -= 31 * day // a month earlier
		}
		r := stepRec(uint64(i+1), 1, int32(i), end)
		r.Submit = t0 - 60*day
		records = append(records, r)
		want += " 1." + strconv.Itoa(i)
	}
	n := uint64(len(records))
	early := func(r *model.Record) { r.Submit = t0 - 60*day }
	records = append(records, rec(n+1, 1, early), rec(n+2, 2, early))
	mustPut(t, d, n+2, records...)
	if got := stepNames(t, d, &proto.AcctRequest{Steps: true}); got != want+" 2" {
		t.Errorf("got %s", got)
	}
}

func TestPurgeForgetsSteps(t *testing.T) {
	dir := t.TempDir()
	d, stop := openTest(t, dir)
	old := func(r *model.Record) { r.Submit = t0 - 100*day }
	early := stepRec(1, 1, 0, t0-90*day)
	early.Submit = t0 - 100*day
	mustPut(t, d, 3, early, stepRec(2, 1, 1, t0), rec(3, 1, running, old))
	stop()
	d, err := openDB(dir, testLog(t), func() time.Time { return time.UnixMilli(int64(t0)) })
	if err != nil {
		t.Fatal(err)
	}
	d.keep = 1
	for range 2 {
		if err := (&writer{db: d}).purge(); err != nil {
			t.Fatal(err)
		}
	}
	startTest(t, d)
	if got := stepNames(t, d, &proto.AcctRequest{Steps: true}); got != "1 1.1" {
		t.Errorf("got %s", got)
	}
}
