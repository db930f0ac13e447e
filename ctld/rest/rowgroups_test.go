package rest

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"gbatch/internal/ask"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// listed is a controller that has some jobs.
type listed struct {
	Cluster
	now  model.Time
	jobs []*model.Job
}

func (l *listed) Ask(_ context.Context, _ *proto.Caller, _ uint16, _ proto.Message,
	each func([]byte) error) (time.Duration, error) {
	chunks := []*proto.JobsChunk{{Now: l.now, Rules: []*model.AskRules{{Partition: "batch"}}}}
	for part := range slices.Chunk(l.jobs, 50) {
		chunks = append(chunks, &proto.JobsChunk{Now: l.now, Jobs: part})
	}
	for _, c := range chunks {
		b, err := proto.Encode(c)
		if err == nil {
			err = each(b)
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, nil
}

func (l *listed) add(r *rand.Rand, id model.JobID) {
	j := &model.Job{ID: id, Task: model.NoTask, State: model.Pending, Priority: r.Uint32N(1000), Submit: l.now,
		Spec: &model.Spec{Name: fmt.Sprint("job ", id), User: "alice", Partitions: []string{"batch"}, MinNodes: 1}}
	switch id % 8 {
	case 1:
		j.Begin, j.Reason = l.now+model.Time(r.Int64N(100_000)), model.ReasonBeginTime
	case 2:
		j.Expect = &model.Expect{Start: l.now + model.Time(r.Int64N(2_000_000))}
	case 3:
		j.ArrayID, j.Tasks = id, model.TaskSet{{Lo: 1, Hi: 5, Step: 1}}
	}
	l.jobs = append(l.jobs, j)
}

// TestRowGroups: a list whose rows were partly made before is the one that is made anew, while jobs come, change and go
// and time passes, compressed or not; and most rows are not made anew.
func TestRowGroups(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	l := &listed{now: 1_700_000_000_000}
	id := model.JobID(1)
	for ; id < 400; id++ {
		l.add(r, id)
	}
	s := &Server{o: Options{Cluster: l}, rows: newRowsKept(), held: newHeld()}
	list := func(to interface {
		io.Writer
		rowSink
	}) {
		t.Helper()
		q := &request{ctx: t.Context(), s: s, held: new(held), ver: "v0.0.44", rowSink: to}
		j := slurmjson.New(to, q.ver)
		j.Started()
		j.Open("jobs", '[')
		if err := q.eachGroup(j, &proto.JobsRequest{}, rows()); err != nil {
			t.Fatal(err)
		}
		j.Close(']')
		j.Count("last_update", l.now.Seconds())
		if j.Flush(true); j.Err != nil {
			t.Fatal(j.Err)
		}
	}
	made := 0
	for round := range 50 {
		var want, plain bytes.Buffer
		l.anew(t, &want)
		list(&counting{putter(func(b []byte) error { plain.Write(b); return nil }), &made})
		if !bytes.Equal(plain.Bytes(), want.Bytes()) {
			t.Fatalf("round %d: a plain list differs", round)
		}
		var p parts
		var put [][]byte
		z := newZipper(func(b []byte) error { put = append(put, b); return nil })
		_, _ = p.Write([]byte("{"))
		list(z)
		if err := z.end(); err != nil {
			t.Fatal(err)
		}
		z.free()
		p.shared(put, true)
		_, _ = p.Write([]byte("}"))
		sent, _ := form{gzip: true}.encode(http.Header{}, &p)
		zr, err := gzip.NewReader(bytes.NewReader(bytes.Join(sent, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(zr); err != nil || string(got) != "{"+want.String()+"}" {
			t.Fatalf("round %d: a compressed list differs: %v", round, err)
		}
		before := made
		list(&counting{putter(func([]byte) error { return nil }), &made})
		if made != before {
			t.Errorf("round %d: %d groups were made anew though nothing has changed", round, made-before)
		}
		l.add(r, id)
		id++
		at := r.IntN(len(l.jobs))
		changed := *l.jobs[at]
		changed.Priority++
		l.jobs[at] = &changed
		l.jobs = slices.Delete(l.jobs, 0, 1)
		l.now += model.Time(r.Int64N(2000))
	}
	if made < 13+50 || made > 50*8 {
		t.Errorf("%d groups were made for 50 lists of 13", made)
	}
}

// counting counts the groups that are made.
type counting struct {
	putter
	made *int
}

func (c *counting) keep(plain []byte) *madeRows {
	*c.made++
	return c.putter.keep(plain)
}

func rows() *jobtext.JobRows {
	return &jobtext.JobRows{View: &jobtext.JobView{Cluster: "c", Rules: &ask.Rulebook{}}}
}

// anew writes the list row by row.
func (l *listed) anew(t *testing.T, to io.Writer) {
	t.Helper()
	x := rows()
	x.View.At = l.now
	x.View.Rules.Add([]*model.AskRules{{Partition: "batch"}})
	j := slurmjson.New(to, "v0.0.44")
	j.Started()
	j.Open("jobs", '[')
	for _, job := range l.jobs {
		x.Each(job, func(r *jobtext.JobRow) { slurmjson.Write(j, "", jobFields, r) })
	}
	j.Close(']')
	j.Count("last_update", l.now.Seconds())
	if j.Flush(true); j.Err != nil {
		t.Fatal(j.Err)
	}
}

// TestRowsKept: what is kept stays within its bound, and what is asked for again stays.
func TestRowsKept(t *testing.T) {
	k := newRowsKept()
	needed := k.key([]byte("needed"))
	k.rows.put(needed, &madeRows{}, 100)
	for i := range 100 {
		k.rows.put(k.key(fmt.Append(nil, i)), &madeRows{}, 1<<20)
		if _, ok := k.rows.get(needed); !ok {
			t.Fatalf("what every list needs is gone after %d others", i)
		}
		if n := len(k.rows.recent) + len(k.rows.before); n > mostKept>>20+2 {
			t.Fatalf("%d rows of 1 MiB are kept", n)
		}
	}
	if _, ok := k.rows.get(k.key([]byte("0"))); ok {
		t.Error("rows that nobody needed are still there")
	}
}

// BenchmarkJobsList makes compressed lists of 1,000 jobs of which one has changed, as a controller does that takes
// submissions.
func BenchmarkJobsList(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	l := &listed{now: 1_700_000_000_000}
	for id := range model.JobID(1000) {
		l.add(r, id+1)
	}
	s := &Server{o: Options{Cluster: l}, rows: newRowsKept(), held: newHeld()}
	for b.Loop() {
		at := r.IntN(len(l.jobs))
		changed := *l.jobs[at]
		changed.Priority++
		l.jobs[at] = &changed
		z := newZipper(func([]byte) error { return nil })
		q := &request{ctx: b.Context(), s: s, held: new(held), ver: "v0.0.44", rowSink: z}
		j := slurmjson.New(z, q.ver)
		j.Started()
		j.Open("jobs", '[')
		if err := q.eachGroup(j, &proto.JobsRequest{}, rows()); err != nil {
			b.Fatal(err)
		}
		j.Close(']')
		if j.Flush(true); j.Err != nil || z.end() != nil {
			b.Fatal(j.Err)
		}
		z.free()
	}
}
