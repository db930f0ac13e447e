package dbd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// newRand gives a source whose seed the test's log names.
func newRand(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func TestPutTwice(t *testing.T) {
	d, stop := openTest(t, t.TempDir())
	dir := d.path
	batch := []*model.Record{rec(1, 1), rec(2, 2, running), rec(5, 3, waiting)}
	mustPut(t, d, 5, batch...)
	mustPut(t, d, 5, batch...)
	all := &proto.AcctRequest{Duplicates: true}
	wantNames(t, d, all, "1.1:CD 2.1:R 3.1:PD")

	// Overlapping: 4 and 5 have been here, whatever they hold now; 6 and 7 are new.
	mustPut(t, d, 7, rec(4, 9), rec(5, 3, failed), rec(6, 2), rec(7, 4))
	wantNames(t, d, all, "1.1:CD 2.1:CD 3.1:PD 4.1:CD")
	mustPut(t, d, 7) // asks how far we are
	mustPut(t, d, 7, rec(1, 1, failed))
	wantNames(t, d, all, "1.1:CD 2.1:CD 3.1:PD 4.1:CD")

	stop()
	d, _ = openTest(t, strings.TrimSuffix(dir, fileName))
	mustPut(t, d, 7)
	mustPut(t, d, 8, rec(6, 2, failed), rec(8, 5))
	wantNames(t, d, all, "1.1:CD 2.1:CD 3.1:PD 4.1:CD 5.1:CD")
}

func TestPutRecordIsReturnedWhole(t *testing.T) {
	d, _ := openTest(t, t.TempDir())
	r := rec(3, 7, task(5, 2), attempt(4))
	r.Exit = model.Exit{Code: 3, Signal: 9, UserMS: 1234, SysMS: 5, MaxRSSKB: 1 << 40, Text: "two\nlines"}
	mustPut(t, d, 3, r)
	got := ask(t, d, &proto.AcctRequest{})
	if len(got) != 1 || got[0].Cluster != "c" || got[0].Exit != r.Exit || got[0].SubmitLine != r.SubmitLine ||
		len(got[0].AllocGres) != 1 || got[0].AllocGres[0] != r.AllocGres[0] {
		t.Errorf("got %+v", got[0])
	}
}

// TestPutMoves follows records from shelf to shelf; sane looks at the indexes after each step.
func TestPutMoves(t *testing.T) {
	d, _ := openTest(t, t.TempDir())
	seq := uint64(0)
	step := func(want string, r *model.Record) {
		t.Helper()
		seq++
		r.Seq = seq
		mustPut(t, d, seq, r)
		wantNames(t, d, &proto.AcctRequest{Duplicates: true}, want)
	}
	step("1.1:PD", rec(0, 1, waiting))
	step("1.1:R", rec(0, 1, running))
	step("1.1:R", rec(0, 1, running, user(7)))
	step("1.1:CD", rec(0, 1, user(7)))
	step("1.1:F", rec(0, 1, user(7), failed))
	step("1.1:F", rec(0, 1, failed, user(8), later(40*day)))
	step("1.1:F 1.2:PD", rec(0, 1, waiting, attempt(2)))
	step("1.1:F 1.2:CD", rec(0, 1, attempt(2)))
	step("1.1:F 1.2:R", rec(0, 1, attempt(2), running)) // should not happen, but is kept as told
	step("1.1:F 1.2:R 9.1:PD", rec(0, 9, waiting, task(9, model.NoTask)))
	step("1.1:F 1.2:R 9.1:PD 10.1:R", rec(0, 10, running, task(9, 0)))
	step("1.1:F 1.2:R 10.1:R", rec(0, 9, purged))
	step("1.1:F 1.2:R 10.1:R", rec(0, 9, purged))
	step("1.2:R 10.1:R", rec(0, 1, purged))
	step("1.2:R 9.1:CD 10.1:R", rec(0, 9, task(9, 1))) // the array's last task takes its number
	wantNames(t, d, &proto.AcctRequest{Jobs: []model.JobRef{{Job: 9, Task: model.NoTask}}}, "9.1:CD 10.1:R")
}

func TestPutKeepsTheLastOfABatch(t *testing.T) {
	d, _ := openTest(t, t.TempDir())
	mustPut(t, d, 7, rec(1, 1, waiting), rec(2, 1, running), rec(3, 2, waiting), rec(4, 1), rec(5, 2, purged),
		rec(6, 3, purged), rec(7, 3, running))
	wantNames(t, d, &proto.AcctRequest{}, "1.1:CD 3.1:R")
}

func TestOddTimes(t *testing.T) {
	d, _ := openTest(t, t.TempDir())
	mustPut(t, d, 5,
		rec(1, 1, func(r *model.Record) { r.Submit, r.Start, r.End = -5, -7, -9 }),
		rec(2, 2, func(r *model.Record) { r.End = 0 }), // final, without an end
		rec(3, 3, func(r *model.Record) { r.End = 1 << 62 }),
		rec(4, 4, func(r *model.Record) { r.Submit, r.Start, r.End = 0, 0, 0 }),
		rec(5, 5, func(r *model.Record) { r.State = model.Running }), // an end, without a final state
	)
	wantNames(t, d, &proto.AcctRequest{}, "1.1:CD 2.1:CD 3.1:CD 4.1:CD 5.1:R")
}

// TestInstances: a cluster that starts over numbers its records and jobs from 1 again; old records stay unchanged.
func TestInstances(t *testing.T) {
	d, _ := openTest(t, t.TempDir())
	put := func(cluster string, instance, want uint64, records ...*model.Record) {
		t.Helper()
		seq, err := d.put(t.Context(), &proto.Put{Cluster: cluster, Instance: instance, Records: records})
		if err != nil || seq != want {
			t.Fatalf("%d, %v; want %d", seq, err, want)
		}
	}
	put("c", 1, 9, rec(8, 1), rec(9, 2, failed))
	put("c", 2, 0)
	put("c", 2, 1, rec(1, 1, running))
	put("other", 2, 1, rec(1, 1, waiting))
	put("c", 1, 9)
	wantNames(t, d, &proto.AcctRequest{Duplicates: true}, "1.1:CD 1.1:R 1.1:PD 2.1:F")
	// Of one cluster's two jobs 1, the later one is given; the other cluster's job 1 is another job.
	wantNames(t, d, &proto.AcctRequest{}, "1.1:R 1.1:PD 2.1:F")
	put("c", 2, 2, rec(2, 1, failed))
	wantNames(t, d, &proto.AcctRequest{Duplicates: true}, "1.1:CD 1.1:F 1.1:PD 2.1:F")
}

// TestEras: when the controllers go on from an older state, what they number anew is neither ignored nor doubled, and
// what gdbd has of before is not asked for again.
func TestEras(t *testing.T) {
	d, _ := openTest(t, t.TempDir())
	put := func(want uint64, eras []model.Era, records ...*model.Record) {
		t.Helper()
		seq, err := d.put(t.Context(), &proto.Put{Cluster: "c", Instance: 1, Eras: eras, Records: records})
		if err != nil || seq != want {
			t.Fatalf("%d, %v; want %d", seq, err, want)
		}
	}
	put(9, nil, rec(5, 1), rec(8, 2, running), rec(9, 70, failed))

	// The snapshot was made at 6: job 2 starts anew, as another attempt.
	second := []model.Era{{Number: 50, From: 7}}
	put(6, second)
	put(9, nil) // nothing has come yet
	put(8, second, rec(5, 1, failed), rec(7, 2, waiting, attempt(1000)), rec(8, 71))
	put(8, second, rec(7, 2, waiting, attempt(1000)), rec(8, 71))
	wantNames(t, d, &proto.AcctRequest{Duplicates: true}, "1.1:CD 2.1:R 2.1000:PD 70.1:F 71.1:CD")

	// What of the first era is still on its way, or comes from a controller that was not restored, is refused.
	_, err := d.put(t.Context(), &proto.Put{Cluster: "c", Instance: 1, Records: []*model.Record{rec(10, 9)}})
	var bad *BadRequestError
	if !errors.As(err, &bad) || !strings.Contains(bad.Text, "older than a restored snapshot") {
		t.Errorf("a record of the former era: %v", err)
	}

	// gdbd has seen the era before the last one not at all: it is sent all that it may lack.
	third := []model.Era{{Number: 50, From: 7}, {Number: 60, From: 4}, {Number: 90, From: 12}}
	put(3, third)
	put(12, third, rec(4, 1), rec(12, 80))
	wantNames(t, d, &proto.AcctRequest{Duplicates: true}, "1.1:CD 2.1:R 2.1000:PD 70.1:F 71.1:CD 80.1:CD")
	reply, err := d.position(t.Context(), &proto.Put{Cluster: "c", Instance: 1, Eras: third})
	if err != nil || reply.Seq != 12 || reply.LastJob != 80 {
		t.Errorf("gdbd says that it stands at %+v, %v", reply, err)
	}
}

func TestPutRefusals(t *testing.T) {
	d, _ := openTest(t, t.TempDir())
	many := make([]*model.Record, maxPutRecords+1)
	for want, p := range map[string]*proto.Put{
		"without a cluster's name":   {Records: []*model.Record{rec(1, 1)}},
		"longer than":                {Cluster: strings.Repeat("x", maxClusterName+1)},
		"zero byte":                  {Cluster: "a\x00b"},
		"is empty":                   {Cluster: "c", Records: []*model.Record{nil}},
		"the sequence 1 after 2":     {Cluster: "c", Records: []*model.Record{rec(2, 1), rec(1, 2)}},
		"the sequence 3 after 3":     {Cluster: "c", Records: []*model.Record{rec(3, 1), rec(3, 2)}},
		"the sequence 0 after 0":     {Cluster: "c", Records: []*model.Record{rec(0, 1)}},
		"accounting records at once": {Cluster: "c", Records: many},
	} {
		_, err := d.put(t.Context(), p)
		var bad *BadRequestError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	wantNames(t, d, &proto.AcctRequest{}, "")
}

// TestGroupCommit: batches of many connections share commits, and each is acknowledged for itself.
func TestGroupCommit(t *testing.T) {
	d, _ := openTest(t, t.TempDir())
	before := d.txid()
	const clusters, batches = 16, 20
	var wg sync.WaitGroup
	for c := range clusters {
		wg.Go(func() {
			for i := range uint64(batches) {
				seq, err := d.put(t.Context(),
					&proto.Put{Cluster: string(rune('a' + c)), Records: []*model.Record{rec(i+1, model.JobID(i+1))}})
				if err != nil || seq != i+1 {
					t.Errorf("%d: %d, %v", i, seq, err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(ask(t, d, &proto.AcctRequest{})); n != clusters*batches {
		t.Errorf("%d records", n)
	}
	commits := d.txid() - before
	t.Logf("%d batches in %d commits", clusters*batches, commits)
	if commits >= clusters*batches {
		t.Errorf("no batches shared a commit")
	}
	sane(t, d)
}

func TestPutEndsWithItsContext(t *testing.T) {
	d, err := openDB(t.TempDir(), testLog(t), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range maxWaitingPuts + 3 { // no writer runs: some wait for their answer, the last ones for room
		wg.Go(func() {
			if _, err := d.put(ctx, &proto.Put{Cluster: "c", Records: []*model.Record{rec(1, 1)}}); !errors.Is(err,
				context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
	}
	cancel()
	wg.Wait()
	startTest(t, d)() // what was accepted meanwhile does no harm
}

func TestPurgeForgetsMonths(t *testing.T) {
	dir := t.TempDir()
	d, stop := openTest(t, dir)
	mustPut(t, d, 5, rec(1, 1, later(-400*day)), rec(2, 2, later(-60*day)), rec(3, 3, running, later(-400*day)),
		rec(4, 4, later(-20*day)), rec(5, 5))
	stop()
	now := func() time.Time { return time.UnixMilli(int64(t0)) }
	d, err := openDB(dir, testLog(t), now)
	if err != nil {
		t.Fatal(err)
	}
	d.keep = 1 // October and November
	if err := (&writer{db: d}).purge(); err != nil {
		t.Fatal(err)
	}
	startTest(t, d)
	wantNames(t, d, &proto.AcctRequest{}, "3.1:R 4.1:CD 5.1:CD")
	mustPut(t, d, 6, rec(5, 6), rec(6, 7, later(-400*day))) // late, and forgotten at the next tick
	wantNames(t, d, &proto.AcctRequest{}, "3.1:R 4.1:CD 5.1:CD 7.1:CD")
}

// TestNotedRecords: an entry of the trail changes the record of an ended job, before or after a later version of the
// record, in one Put or in several, in the last history of the cluster or an earlier one; another submission under the
// same number is not touched.
func TestNotedRecords(t *testing.T) {
	dir := t.TempDir()
	d, stop := openTest(t, dir)
	note := func(seq uint64, r *model.Record, set ...model.KV) *model.Record {
		return &model.Record{Seq: seq, Audit: &model.Audit{At: t0, Event: "task_changed", What: "job", Job: r.Job,
			Noted: &model.Noted{Attempt: r.Attempt, Size: r.Size, Submit: r.Submit, Set: set}}}
	}
	says := func(job model.JobID, want string) {
		t.Helper()
		var got []string
		rq := &proto.AcctRequest{Jobs: []model.JobRef{{Job: job, Task: model.NoTask}}, Duplicates: true}
		for _, r := range ask(t, d, rq) {
			x := r.Exit.Derived()
			got = append(got, fmt.Sprintf("%s,%d:%d,%s,%s", r.Comment, x.Code, x.Signal, r.Extra(), r.SystemText()))
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("job %d is %q, not %q", job, s, want)
		}
		sane(t, d)
	}
	comment := func(v string) model.KV { return model.KV{Key: model.NotedComment, Value: v} }
	code := model.KV{Key: model.NotedExitCode, Value: "5:0"}
	old := rec(1, 7, func(r *model.Record) { r.Submit -= hour })
	if _, err := d.put(t.Context(), &proto.Put{Cluster: "c", Instance: 1, Records: []*model.Record{old}}); err != nil {
		t.Fatal(err)
	}
	mustPut(t, d, 3, rec(1, 1), rec(2, 2, running), rec(3, 7))
	mustPut(t, d, 4, note(4, rec(0, 1), comment("a"), code))
	says(1, "a,5:0,,")
	mustPut(t, d, 4, note(4, rec(0, 1), comment("b"))) // it was here
	says(1, "a,5:0,,")
	late := rec(5, 1, func(r *model.Record) { r.End += 40 * 24 * hour }) // a node reports late: another month
	mustPut(t, d, 5, late)
	says(1, "a,5:0,,")
	mustPut(t, d, 8, rec(6, 1), note(7, rec(0, 1), comment("b")), note(8, rec(0, 1), model.KV{Key: model.NotedExtra,
		Value: "x"}, model.KV{Key: model.NotedSystem, Value: "s"}))
	says(1, "b,5:0,x,s")
	mustPut(t, d, 10, note(9, rec(0, 1), comment("c")), rec(10, 1))
	says(1, "c,5:0,x,s")

	mustPut(t, d, 12, note(11, rec(0, 2), comment("runs")), note(12, rec(0, 99), comment("unknown"))) // neither is
	says(2, ",0:0,,")

	mustPut(t, d, 13, note(13, old, comment("then")))
	says(7, "then,0:0,, ,0:0,,")
	mustPut(t, d, 14, note(14, rec(0, 7), comment("now")))
	says(7, "then,0:0,, now,0:0,,")

	stop()
	d, _ = openTest(t, dir)
	says(1, "c,5:0,x,s")
	says(7, "then,0:0,, now,0:0,,")
}
