package dbd

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

func TestQuery(t *testing.T) {
	d, _ := openTest(t, t.TempDir())
	// Jobs around t0 (noon): when each waited, ran and ended.
	//	1  wait 10:00  run 11:00  done 12:00
	//	2  wait 10:00  run 11:00  fails 12:00
	//	3  wait 10:00  runs from 11:00 on
	//	4  wait 10:00  on
	//	5  the day before, 10:00 to 12:00
	//	6  20 days, ended 13:00: outlives most windows
	//	7  attempt 1 lost its node at 11:30, attempt 2 runs since 12:30
	//	8  cancelled 12:00 before it started
	//	10 array: tasks 0 (job 11, done) and 1 (job 12, running); 2-9 wait in its own record
	//	20 array that is over: tasks 0 (job 21) and 1 (job 20 itself)
	put := func(r ...*model.Record) {
		for i := range r {
			r[i].Seq = uint64(i + 1)
		}
		mustPut(t, d, uint64(len(r)), r...)
	}
	nodeFail := func(r *model.Record) { r.State, r.End = model.NodeFail, t0-hour/2 }
	put(rec(0, 1), rec(0, 2, failed, user(2)), rec(0, 3, running), rec(0, 4, waiting, user(2)), rec(0, 5, later(-day)),
		rec(0, 6, func(r *model.Record) { r.Submit, r.Start, r.End = t0-20*day, t0-20*day, t0+hour }),
		rec(0, 7, nodeFail),
		rec(0, 7, attempt(2), running, func(r *model.Record) { r.Start = t0 + hour/2 }),
		rec(0, 8, func(r *model.Record) { r.State, r.Start, r.Nodes = model.Cancelled, 0, "" }),
		rec(0, 10, waiting, task(10, model.NoTask), func(r *model.Record) { r.TaskText, r.Name = "2-9%4", "sweep" }),
		rec(0, 11, task(10, 0)), rec(0, 12, task(10, 1), running),
		rec(0, 20, task(20, 1)), rec(0, 21, task(20, 0), func(r *model.Record) {
			r.Account, r.Partition, r.QOS, r.Name, r.Nodes, r.GID = "chem", "cpu,gpu", "high", "x", "big7", 5
		}))

	id := func(n model.JobID) model.JobRef { return model.JobRef{Job: n, Task: model.NoTask} }
	el := func(n model.JobID, i int32) model.JobRef { return model.JobRef{Job: n, Task: i} }
	jobs := func(j ...model.JobRef) []model.JobRef { return j }
	st := func(s ...model.JobState) []model.JobState { return s }
	const arrays = " 10.1:PD 11.1:CD 12.1:R 20.1:CD 21.1:CD"
	for _, c := range []struct {
		name string
		req  proto.AcctRequest
		want string
	}{
		{"all", proto.AcctRequest{}, "1.1:CD 2.1:F 3.1:R 4.1:PD 5.1:CD 6.1:CD 7.2:R 8.1:CA" + arrays},
		{"all attempts", proto.AcctRequest{Duplicates: true}, "1.1:CD 2.1:F 3.1:R 4.1:PD 5.1:CD 6.1:CD 7.1:NF 7.2:R 8.1:CA" +
			arrays},

		{"today", proto.AcctRequest{Start: t0 - 12*hour}, "1.1:CD 2.1:F 3.1:R 4.1:PD 6.1:CD 7.2:R 8.1:CA" + arrays},
		{"the day before", proto.AcctRequest{Start: t0 - 36*hour, End: t0 - 12*hour}, "5.1:CD 6.1:CD"},
		{"from the end on", proto.AcctRequest{Start: t0}, "1.1:CD 2.1:F 3.1:R 4.1:PD 6.1:CD 7.2:R 8.1:CA" + arrays},
		{"after the end", proto.AcctRequest{Start: t0 + 1}, "3.1:R 4.1:PD 6.1:CD 7.2:R 10.1:PD 12.1:R"},
		{"to the submission", proto.AcctRequest{Start: t0 - 3*hour, End: t0 - 2*hour},
			"1.1:CD 2.1:F 3.1:R 4.1:PD 6.1:CD 7.2:R 8.1:CA" + arrays},
		{"before the submission", proto.AcctRequest{Start: t0 - 3*hour, End: t0 - 2*hour - 1}, "6.1:CD"},
		{"whole seconds include the second", proto.AcctRequest{Start: t0 - 3*hour, End: t0 - 2*hour - second}, "6.1:CD"},
		{"long before", proto.AcctRequest{End: t0 - 100*day}, ""},
		{"long after", proto.AcctRequest{Start: t0 + 100*day}, "3.1:R 4.1:PD 7.2:R 10.1:PD 12.1:R"},
		{"last attempt in the window",
			proto.AcctRequest{Jobs: jobs(id(7)), Start: t0 - hour, End: t0 - 3*hour/4, States: st(model.Running)}, "7.1:NF"},

		{"failed", proto.AcctRequest{States: st(model.Failed)}, "2.1:F"},
		{"failed before", proto.AcctRequest{States: st(model.Failed), End: t0 - second}, ""},
		{"failed within", proto.AcctRequest{States: st(model.Failed, model.NodeFail), Start: t0 - hour, End: t0},
			"2.1:F 7.1:NF"},
		{"cancelled", proto.AcctRequest{States: st(model.Cancelled)}, "8.1:CA"},
		{"running now", proto.AcctRequest{States: st(model.Running), Start: t0 + 2*hour, End: t0 + 2*hour},
			"3.1:R 7.2:R 12.1:R"},
		{"running at 11:15", proto.AcctRequest{States: st(model.Running), Start: t0 - 45*minute, End: t0 - 45*minute},
			"1.1:CD 2.1:F 3.1:R 6.1:CD 7.1:NF 11.1:CD 12.1:R 20.1:CD 21.1:CD"},
		{"running from its end on", proto.AcctRequest{States: st(model.Running), Start: t0}, "3.1:R 6.1:CD 7.2:R 12.1:R"},
		{"pending now", proto.AcctRequest{States: st(model.Pending), Start: t0 + 2*hour, End: t0 + 2*hour}, "4.1:PD 10.1:PD"},
		{"pending at 10:30", proto.AcctRequest{States: st(model.Pending), Start: t0 - 90*minute, End: t0 - 90*minute},
			"1.1:CD 2.1:F 3.1:R 4.1:PD 7.2:R 8.1:CA" + arrays},
		{"pending from its start on", proto.AcctRequest{States: st(model.Pending), Start: t0 - hour},
			"4.1:PD 7.2:R 8.1:CA 10.1:PD"},
		{"suspended", proto.AcctRequest{States: st(model.Suspended)}, ""},
		{"several", proto.AcctRequest{States: st(model.Pending, model.Failed), Start: t0}, "2.1:F 4.1:PD 7.2:R 10.1:PD"},

		{"job", proto.AcctRequest{Jobs: jobs(id(5))}, "5.1:CD"},
		{"jobs", proto.AcctRequest{Jobs: jobs(id(2), id(3), id(99), id(2))}, "2.1:F 3.1:R"},
		{"job and window", proto.AcctRequest{Jobs: jobs(id(5), id(1)), Start: t0 - hour}, "1.1:CD"},
		{"job and state", proto.AcctRequest{Jobs: jobs(id(1), id(2)), States: st(model.Failed)}, "2.1:F"},
		{"job and user", proto.AcctRequest{Jobs: jobs(id(1), id(2)), Users: []uint32{2}}, "2.1:F"},
		{"array", proto.AcctRequest{Jobs: jobs(id(10))}, "10.1:PD 11.1:CD 12.1:R"},
		{"array that is over", proto.AcctRequest{Jobs: jobs(id(20))}, "20.1:CD 21.1:CD"},
		{"task by its own number", proto.AcctRequest{Jobs: jobs(id(12))}, "12.1:R"},
		{"task", proto.AcctRequest{Jobs: jobs(el(10, 1))}, "12.1:R"},
		{"task with the array's number", proto.AcctRequest{Jobs: jobs(el(20, 1))}, "20.1:CD"},
		{"waiting task", proto.AcctRequest{Jobs: jobs(el(10, 5))}, "10.1:PD"},
		{"no such task", proto.AcctRequest{Jobs: jobs(el(10, 10), el(20, 7), el(1, 0))}, ""},
		{"tasks", proto.AcctRequest{Jobs: []model.JobRef{{Job: 10, Tasks: model.TaskSet{{Lo: 1, Hi: 3, Step: 2}}}}},
			"10.1:PD 12.1:R"},
		{"tasks that run", proto.AcctRequest{Jobs: []model.JobRef{{Job: 10, Tasks: model.TaskSet{{Lo: 0, Hi: 1, Step: 1}}}}},
			"11.1:CD 12.1:R"},

		{"user", proto.AcctRequest{Users: []uint32{2}}, "2.1:F 4.1:PD"},
		{"users today", proto.AcctRequest{Users: []uint32{2, 1000, 7}, Start: t0 - hour},
			"1.1:CD 2.1:F 3.1:R 4.1:PD 6.1:CD 7.2:R 8.1:CA" + arrays},
		{"user and state", proto.AcctRequest{Users: []uint32{2}, States: st(model.Failed)}, "2.1:F"},
		{"nobody", proto.AcctRequest{Users: []uint32{4711}}, ""},
		{"group", proto.AcctRequest{Groups: []uint32{5}}, "21.1:CD"},
		{"account", proto.AcctRequest{Accounts: []string{"chem", "bio"}}, "21.1:CD"},
		{"partition", proto.AcctRequest{Partitions: []string{"cpu"}}, "21.1:CD"},
		{"name", proto.AcctRequest{Names: []string{"sweep"}}, "10.1:PD"},
		{"qos", proto.AcctRequest{QOS: []string{"high"}}, "21.1:CD"},
		{"node", proto.AcctRequest{Nodes: []string{"big7"}}, "21.1:CD"},
		{"nodes", proto.AcctRequest{Nodes: []string{"node[02-09],x"}, States: st(model.Failed)}, "2.1:F"},
		{"all of them", proto.AcctRequest{Accounts: []string{"chem"}, Partitions: []string{"gpu"}, QOS: []string{"high"},
			Names: []string{"x"}, Groups: []uint32{5}}, "21.1:CD"},
		{"one of them not", proto.AcctRequest{Accounts: []string{"chem"}, QOS: []string{"normal"}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) { wantNames(t, d, &c.req, c.want) })
	}
}

func TestQueryRefusals(t *testing.T) {
	d, _ := openTest(t, t.TempDir())
	for want, req := range map[string]*proto.AcctRequest{
		"ends before it starts": {Start: t0, End: t0 - second},
		"no job state 77":       {States: []model.JobState{77}},
		"no job state 0":        {States: []model.JobState{0}},
		"at most 10000":         {Users: make([]uint32, proto.MaxTargets+1)},
		"nodes: ":               {Nodes: []string{"n[1-"}},
		"more than 10000 nodes": {Nodes: []string{"n[1-10001]"}},
		"no range of tasks":     {Jobs: []model.JobRef{{Job: 1, Tasks: model.TaskSet{{Lo: 0, Hi: 10, Step: 0}}}}},
		"0-2147483647:1":        {Jobs: []model.JobRef{{Job: 1, Tasks: model.TaskSet{{Lo: 0, Hi: math.MaxInt32, Step: 1}}}}},
	} {
		_, err := tryAsk(t.Context(), d, req)
		var bad *BadRequestError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestQueryStops(t *testing.T) {
	d, _ := openTest(t, t.TempDir())
	var batch []*model.Record
	for i := range 3 * proto.ChunkJobs {
		batch = append(batch, rec(uint64(i+1), model.JobID(i+1)))
	}
	mustPut(t, d, uint64(len(batch)), batch...)

	gone := errors.New("the reader has gone")
	chunks := 0
	err := d.query(t.Context(), &proto.AcctRequest{}, func([][]byte) error { chunks++; return gone })
	if !errors.Is(err, gone) || chunks != 1 {
		t.Errorf("%d chunks, %v", chunks, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	chunks = 0
	err = d.query(ctx, &proto.AcctRequest{}, func([][]byte) error { chunks++; cancel(); return nil })
	if !errors.Is(err, context.Canceled) || chunks != 1 {
		t.Errorf("%d chunks, %v", chunks, err)
	}
}

// TestSlowReadersHoldNothing: while clients read their answers slowly, no transaction is open, and writes and other
// queries go on.
func TestSlowReadersHoldNothing(t *testing.T) {
	d, _ := openTest(t, t.TempDir())
	mustPut(t, d, 1, rec(1, 1))
	release := make(chan struct{})
	var reading, all sync.WaitGroup
	for range 3 * maxQueries {
		reading.Add(1)
		all.Go(func() {
			err := d.query(t.Context(), &proto.AcctRequest{}, func([][]byte) error {
				reading.Done()
				<-release
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	reading.Wait()
	if n := d.bolt.Stats().OpenTxN; n != 0 {
		t.Errorf("%d transactions are open under slow readers", n)
	}
	mustPut(t, d, 2, rec(2, 2))
	wantNames(t, d, &proto.AcctRequest{}, "1.1:CD 2.1:CD")

	d.held.Add(maxHeld)
	var busy *BusyError
	if _, err := tryAsk(t.Context(), d, &proto.AcctRequest{}); !errors.As(err, &busy) {
		t.Errorf("got %v", err)
	}
	d.held.Add(-maxHeld)
	close(release)
	all.Wait()
	if n := d.held.Load(); n != 0 {
		t.Errorf("%d hits are held by nobody", n)
	}
}

// TestQueriesWaitTheirTurn: while all slots for scans are taken a query waits, and ends with its context.
func TestQueriesWaitTheirTurn(t *testing.T) {
	d, _ := openTest(t, t.TempDir())
	for range maxQueries {
		d.querying <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := tryAsk(ctx, d, &proto.AcctRequest{})
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-d.querying
	wantNames(t, d, &proto.AcctRequest{}, "")
}

// TestJobsAreSeenWhileTheyMove asks for jobs again and again while they start and end: each must always be there.
func TestJobsAreSeenWhileTheyMove(t *testing.T) {
	d, _ := openTest(t, t.TempDir())
	const jobs = 300
	now, seq := t0, uint64(0)
	put := func(job model.JobID, change ...change) {
		seq++
		r := rec(seq, job, change...)
		if r.End != 0 {
			now += 6 * hour // a new month now and then
			r.Submit, r.Start, r.End = now-hour, now-hour, now
		}
		mustPut(t, d, seq, r)
	}
	const first = 10
	for j := range model.JobID(first) {
		put(j+1, running)
	}
	var known sync.Mutex
	top := model.JobID(first)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		for j := model.JobID(1); j <= jobs; j++ {
			put(j)
			put(j+first, waiting)
			put(j+first, running)
			known.Lock()
			top = j + first
			known.Unlock()
		}
	})
	wg.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				t.Logf("%d rounds", n)
				return
			default:
			}
			known.Lock()
			last := top
			known.Unlock()
			want := make([]model.JobRef, 0, 12)
			for j := max(1, int(last)-11); j <= int(last); j++ {
				want = append(want, model.JobRef{Job: model.JobID(j), Task: model.NoTask})
			}
			if got := ask(t, d, &proto.AcctRequest{Jobs: want}); len(got) != len(want) {
				t.Errorf("asked for %d jobs up to %d, got %s", len(want), last, names(got))
				return
			}
			if got := ask(t, d, &proto.AcctRequest{Users: []uint32{1000}}); len(got) < int(last) {
				t.Errorf("user query has %d of at least %d jobs", len(got), last)
				return
			}
			if got := ask(t, d, &proto.AcctRequest{Start: t0}); len(got) < int(last) {
				t.Errorf("window query has %d of at least %d jobs", len(got), last)
				return
			}
		}
	})
	wg.Wait()
	sane(t, d)
}

// TestOldWindowsAreCheap: the cost of a query for a day long ago depends only on that day's jobs.
func TestOldWindowsAreCheap(t *testing.T) {
	d, _ := openTest(t, t.TempDir())
	seq := fill(t, d, 1, 2000, t0, minute/2)
	fill(t, d, seq, 30000, t0+30*day, 2*minute)
	q := &query{db: d}
	var err error
	if q.filter, err = newFilter(&proto.AcctRequest{Start: t0, End: t0 + hour}); err != nil {
		t.Fatal(err)
	}
	if err := q.scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(q.list); n < 110 || n > 130 {
		t.Errorf("%d jobs in an hour", n)
	}
	if q.looked > 4*len(q.list)+100 {
		t.Errorf("looked at %d index entries for %d records", q.looked, len(q.list))
	}
}
