package dbd

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gbatch/internal/hostlist"
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

	id := func(n model.JobID) proto.JobRef { return proto.JobRef{Job: n, Task: model.NoTask} }
	el := func(n model.JobID, i int32) proto.JobRef { return proto.JobRef{Job: n, Task: i} }
	jobs := func(j ...proto.JobRef) []proto.JobRef { return j }
	st := func(s ...model.JobState) []model.JobState { return s }
	const arrays = " 10.1:PD 11.1:CD 12.1:R 20.1:CD 21.1:CD"
	for _, c := range []struct {
		name string
		req  proto.AcctRequest
		want string
	}{
		{"all", proto.AcctRequest{}, "1.1:CD 2.1:F 3.1:R 4.1:PD 5.1:CD 6.1:CD 7.2:R 8.1:CA" + arrays},
		{"all attempts", proto.AcctRequest{Duplicates: true}, "1.1:CD 2.1:F 3.1:R 4.1:PD 5.1:CD 6.1:CD 7.1:NF 7.2:R 8.1:CA" + arrays},

		{"today", proto.AcctRequest{Start: t0 - 12*hour}, "1.1:CD 2.1:F 3.1:R 4.1:PD 6.1:CD 7.2:R 8.1:CA" + arrays},
		{"the day before", proto.AcctRequest{Start: t0 - 36*hour, End: t0 - 12*hour}, "5.1:CD 6.1:CD"},
		{"from the end on", proto.AcctRequest{Start: t0}, "1.1:CD 2.1:F 3.1:R 4.1:PD 6.1:CD 7.2:R 8.1:CA" + arrays},
		{"after the end", proto.AcctRequest{Start: t0 + 1}, "3.1:R 4.1:PD 6.1:CD 7.2:R 10.1:PD 12.1:R"},
		{"to the submission", proto.AcctRequest{Start: t0 - 3*hour, End: t0 - 2*hour}, "1.1:CD 2.1:F 3.1:R 4.1:PD 6.1:CD 7.2:R 8.1:CA" + arrays},
		{"before the submission", proto.AcctRequest{Start: t0 - 3*hour, End: t0 - 2*hour - 1}, "6.1:CD"},
		{"whole seconds include the second", proto.AcctRequest{Start: t0 - 3*hour, End: t0 - 2*hour - second}, "6.1:CD"},
		{"long before", proto.AcctRequest{End: t0 - 100*day}, ""},
		{"long after", proto.AcctRequest{Start: t0 + 100*day}, "3.1:R 4.1:PD 7.2:R 10.1:PD 12.1:R"},
		{"last attempt in the window", proto.AcctRequest{Jobs: jobs(id(7)), Start: t0 - hour, End: t0 - 3*hour/4, States: st(model.Running)}, "7.1:NF"},

		{"failed", proto.AcctRequest{States: st(model.Failed)}, "2.1:F"},
		{"failed before", proto.AcctRequest{States: st(model.Failed), End: t0 - second}, ""},
		{"failed within", proto.AcctRequest{States: st(model.Failed, model.NodeFail), Start: t0 - hour, End: t0}, "2.1:F 7.1:NF"},
		{"cancelled", proto.AcctRequest{States: st(model.Cancelled)}, "8.1:CA"},
		{"running now", proto.AcctRequest{States: st(model.Running), Start: t0 + 2*hour, End: t0 + 2*hour}, "3.1:R 7.2:R 12.1:R"},
		{"running at 11:15", proto.AcctRequest{States: st(model.Running), Start: t0 - 45*minute, End: t0 - 45*minute},
			"1.1:CD 2.1:F 3.1:R 6.1:CD 7.1:NF 11.1:CD 12.1:R 20.1:CD 21.1:CD"},
		{"running from its end on", proto.AcctRequest{States: st(model.Running), Start: t0}, "3.1:R 6.1:CD 7.2:R 12.1:R"},
		{"pending now", proto.AcctRequest{States: st(model.Pending), Start: t0 + 2*hour, End: t0 + 2*hour}, "4.1:PD 10.1:PD"},
		{"pending at 10:30", proto.AcctRequest{States: st(model.Pending), Start: t0 - 90*minute, End: t0 - 90*minute},
			"1.1:CD 2.1:F 3.1:R 4.1:PD 7.2:R 8.1:CA" + arrays},
		{"pending from its start on", proto.AcctRequest{States: st(model.Pending), Start: t0 - hour}, "4.1:PD 7.2:R 8.1:CA 10.1:PD"},
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
		{"tasks", proto.AcctRequest{Jobs: []proto.JobRef{{Job: 10, Tasks: model.TaskSet{{Lo: 1, Hi: 3, Step: 2}}}}}, "10.1:PD 12.1:R"},
		{"tasks that run", proto.AcctRequest{Jobs: []proto.JobRef{{Job: 10, Tasks: model.TaskSet{{Lo: 0, Hi: 1, Step: 1}}}}}, "11.1:CD 12.1:R"},

		{"user", proto.AcctRequest{Users: []uint32{2}}, "2.1:F 4.1:PD"},
		{"users today", proto.AcctRequest{Users: []uint32{2, 1000, 7}, Start: t0 - hour}, "1.1:CD 2.1:F 3.1:R 4.1:PD 6.1:CD 7.2:R 8.1:CA" + arrays},
		{"user and state", proto.AcctRequest{Users: []uint32{2}, States: st(model.Failed)}, "2.1:F"},
		{"nobody", proto.AcctRequest{Users: []uint32{4711}}, ""},
		{"group", proto.AcctRequest{Groups: []uint32{5}}, "21.1:CD"},
		{"account", proto.AcctRequest{Accounts: []string{"chem", "bio"}}, "21.1:CD"},
		{"partition", proto.AcctRequest{Partitions: []string{"cpu"}}, "21.1:CD"},
		{"name", proto.AcctRequest{Names: []string{"sweep"}}, "10.1:PD"},
		{"qos", proto.AcctRequest{QOS: []string{"high"}}, "21.1:CD"},
		{"node", proto.AcctRequest{Nodes: []string{"big7"}}, "21.1:CD"},
		{"nodes", proto.AcctRequest{Nodes: []string{"node[02-09],x"}, States: st(model.Failed)}, "2.1:F"},
		{"all of them", proto.AcctRequest{Accounts: []string{"chem"}, Partitions: []string{"gpu"}, QOS: []string{"high"}, Names: []string{"x"}, Groups: []uint32{5}}, "21.1:CD"},
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
		"no range of tasks":     {Jobs: []proto.JobRef{{Job: 1, Tasks: model.TaskSet{{Lo: 0, Hi: 10, Step: 0}}}}},
		"0-2147483647:1":        {Jobs: []proto.JobRef{{Job: 1, Tasks: model.TaskSet{{Lo: 0, Hi: math.MaxInt32, Step: 1}}}}},
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

// TestSlowReadersHoldNoPages: while readers sit on their answers writing goes on, more queries wait their turn, and a
// waiting one can leave.
func TestSlowReadersHoldNoPages(t *testing.T) {
	d, _ := openTest(t, t.TempDir())
	mustPut(t, d, 1, rec(1, 1))
	release := make(chan struct{})
	var reading, all sync.WaitGroup
	for range maxQueries {
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
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tryAsk(ctx, d, &proto.AcctRequest{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(release)
	all.Wait()
	wantNames(t, d, &proto.AcctRequest{}, "1.1:CD 2.1:CD")
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
			want := make([]proto.JobRef, 0, 12)
			for j := max(1, int(last)-11); j <= int(last); j++ {
				want = append(want, proto.JobRef{Job: model.JobID(j), Task: model.NoTask})
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

// naive answers a request the slow and obvious way, from a list of all records.
func naive(records []*model.Record, q *proto.AcctRequest) []*model.Record {
	from, to := q.Start, q.End
	if to == 0 {
		to = math.MaxInt64
	} else if to%1000 == 0 {
		to += 999
	}
	over := func(r *model.Record) bool { return r.End != 0 }
	between := func(a, b model.Time) bool { // [a, b) has a moment of the window
		return a < b && a <= to && b-1 >= from
	}
	endOr := func(t, other model.Time) model.Time {
		if t == 0 {
			return other
		}
		return t
	}
	const never = math.MaxInt64
	fits := func(r *model.Record) bool {
		if r.Submit > to || over(r) && r.End < from {
			return false
		}
		in := len(q.States) == 0
		for _, s := range q.States {
			switch {
			case s == model.Pending:
				in = in || between(r.Submit, endOr(r.Start, endOr(r.End, never)))
			case s == model.Running:
				in = in || r.Start != 0 && between(r.Start, endOr(r.End, never))
			case s.Finished():
				in = in || r.State == s && from <= r.End && r.End <= to
			default:
				in = in || r.State == s
			}
		}
		if len(q.Jobs) > 0 {
			named := false
			for _, j := range q.Jobs {
				switch {
				case len(j.Tasks) == 0 && j.Task == model.NoTask:
					named = named || r.Job == j.Job || r.ArrayID == j.Job
				case r.ArrayID != j.Job:
				default:
					want := j.Tasks
					if len(want) == 0 {
						want = model.TaskSet{{Lo: j.Task, Hi: j.Task, Step: 1}}
					}
					has := model.TaskSet{{Lo: r.Task, Hi: r.Task, Step: 1}}
					if r.Task == model.NoTask {
						has, _, _ = model.ParseTaskSet(r.TaskText, 1000)
					}
					want.Each(func(i int32) bool { named = named || has.Has(i); return true })
				}
			}
			in = in && named
		}
		onNode := len(q.Nodes) == 0
		hosts, _ := hostlist.Expand(r.Nodes)
		for _, n := range q.Nodes {
			onNode = onNode || slices.Contains(hosts, n)
		}
		part := len(q.Partitions) == 0
		for _, p := range q.Partitions {
			part = part || slices.Contains(strings.Split(r.Partition, ","), p)
		}
		none := func(n int, has bool) bool { return n == 0 || has }
		return in && onNode && part &&
			none(len(q.Users), slices.Contains(q.Users, r.UID)) && none(len(q.Groups), slices.Contains(q.Groups, r.GID)) &&
			none(len(q.Accounts), slices.Contains(q.Accounts, r.Account)) && none(len(q.Names), slices.Contains(q.Names, r.Name)) &&
			none(len(q.QOS), slices.Contains(q.QOS, r.QOS))
	}
	var out []*model.Record
	for _, r := range records {
		if fits(r) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *model.Record) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Attempt, b.Attempt))
	})
	if !q.Duplicates {
		for i := 0; i+1 < len(out); {
			if out[i].Job == out[i+1].Job {
				out = slices.Delete(out, i, i+1)
			} else {
				i++
			}
		}
	}
	return out
}

// TestAgainstNaive lets jobs live through thousands of random records and compares random questions with naive.
func TestAgainstNaive(t *testing.T) {
	rng := newRand(t)
	d, _ := openTest(t, t.TempDir())
	type key struct {
		job     model.JobID
		attempt uint32
	}
	truth := map[key]*model.Record{}
	var seq uint64
	var recent []*model.Record // to be sent again
	now := t0
	spanned := func() model.Time { return model.Time(1) << rng.IntN(33) } // up to 50 days
	for range 60 {
		var batch []*model.Record
		if len(recent) > 0 && rng.IntN(2) == 0 {
			batch = append(batch, recent[rng.IntN(len(recent)):]...)
		}
		for range rng.IntN(60) {
			now += spanned() / 256
			seq += uint64(1 + rng.IntN(3))
			r := rec(seq, model.JobID(1+rng.IntN(400)), attempt(uint32(1+rng.IntN(3))), user(uint32(rng.IntN(5))))
			r.GID, r.Account, r.Name = uint32(rng.IntN(3)), pick(rng, "a", "b", "c"), pick(rng, "x", "y", "z")
			r.QOS, r.Partition = pick(rng, "lo", "hi"), pick(rng, "cpu", "gpu", "cpu,gpu")
			r.Nodes = pick(rng, "", "n1", "n[1-3]", "n[2-4],m1")
			if rng.IntN(3) == 0 {
				r.ArrayID = r.Job - r.Job%8 + 1
				r.Task = int32(r.Job % 8)
				if r.ArrayID == r.Job && rng.IntN(2) == 0 {
					r.Task, r.TaskText = model.NoTask, pick(rng, "0-7", "3,5%2", "6-7")
				}
			}
			r.Submit, r.Start, r.End = now-spanned(), 0, 0
			states := []model.JobState{model.Pending, model.Running, model.Suspended, model.Completing, model.Completed, model.Failed, model.Timeout, model.Cancelled}
			r.State = states[rng.IntN(len(states))]
			if r.State.HasResources() || r.State.Finished() && rng.IntN(4) > 0 {
				r.Start = r.Submit + spanned()%(now-r.Submit+1)
			}
			if r.State.Finished() {
				r.End = max(r.Submit, r.Start) + spanned()%(now-max(r.Submit, r.Start)+1)
			}
			if rng.IntN(12) == 0 {
				r.Purge = true
			}
			batch = append(batch, r)
		}
		if len(batch) == 0 {
			continue
		}
		mustPut(t, d, max(seq, 1), batch...)
		for _, r := range batch {
			if !slices.Contains(recent, r) {
				if r.Purge {
					delete(truth, key{r.Job, r.Attempt})
				} else {
					truth[key{r.Job, r.Attempt}] = r
				}
			}
		}
		recent = batch
		sane(t, d)
		var all []*model.Record
		for _, r := range truth {
			all = append(all, r)
		}
		for range 40 {
			q := randomRequest(rng, now, spanned)
			got, want := ask(t, d, q), naive(all, q)
			if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
				t.Fatalf("request %+v\ngot  %s\nwant %s", *q, names(got), names(want))
			}
		}
	}
	t.Logf("%d records in the end", len(truth))
}

func pick(rng *rand.Rand, from ...string) string { return from[rng.IntN(len(from))] }

func randomRequest(rng *rand.Rand, now model.Time, spanned func() model.Time) *proto.AcctRequest {
	q := &proto.AcctRequest{Duplicates: rng.IntN(2) == 0}
	one := func() bool { return rng.IntN(4) == 0 }
	if rng.IntN(4) > 0 {
		q.Start = now - spanned()
	}
	if rng.IntN(2) > 0 {
		q.End = max(q.Start, now-spanned()) / 7 * 7
		if one() {
			q.End = (q.End + 999) / 1000 * 1000
		}
		q.End = max(q.End, q.Start)
	}
	for one() || len(q.States) > 0 && one() {
		q.States = append(q.States, model.JobState(1+rng.IntN(len(model.JobStates()))))
	}
	for range rng.IntN(4) - 1 {
		j := proto.JobRef{Job: model.JobID(1 + rng.IntN(400)), Task: model.NoTask}
		switch rng.IntN(3) {
		case 0:
			j.Job = j.Job - j.Job%8 + 1
		case 1:
			j.Job, j.Task = j.Job-j.Job%8+1, int32(rng.IntN(8))
		}
		if one() {
			j.Tasks = model.TaskSet{{Lo: 1, Hi: 5, Step: 2}}
		}
		q.Jobs = append(q.Jobs, j)
	}
	if one() {
		q.Users = []uint32{uint32(rng.IntN(5)), uint32(rng.IntN(6))}
	}
	if one() {
		q.Groups = []uint32{uint32(rng.IntN(3))}
	}
	if rng.IntN(8) == 0 {
		q.Accounts = []string{"a", "c"}
	}
	if rng.IntN(8) == 0 {
		q.Names = []string{"y"}
	}
	if rng.IntN(8) == 0 {
		q.QOS = []string{"hi"}
	}
	if rng.IntN(8) == 0 {
		q.Partitions = []string{pick(rng, "cpu", "gpu")}
	}
	if rng.IntN(8) == 0 {
		q.Nodes = []string{pick(rng, "n1", "n3", "m1", "m2")}
	}
	return q
}

// fill puts jobs that began at from, one every gap, each some minutes long, in batches of 1000; it gives the next
// sequence.
func fill(t testing.TB, d *db, seq uint64, jobs int, from, gap model.Time) uint64 {
	t.Helper()
	var batch []*model.Record
	for i := range jobs {
		r := rec(seq, model.JobID(seq), user(uint32(1000+seq*7919%300)))
		r.Submit = from + model.Time(i)*gap
		r.Start = r.Submit + model.Time(i%97)*second
		r.End = r.Start + model.Time(1+i%600)*second
		if i%20 == 0 {
			failed(r)
		}
		batch = append(batch, r)
		seq++
		if len(batch) == 1000 || i == jobs-1 {
			mustPut(t, d, seq-1, batch...)
			batch = batch[:0]
		}
	}
	return seq
}

// TestOldWindowsAreCheap: a day long ago costs what its jobs cost, whatever came after.
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
	if n := len(q.hits); n < 110 || n > 130 {
		t.Errorf("%d jobs in an hour", n)
	}
	if q.looked > 4*len(q.hits)+100 {
		t.Errorf("looked at %d index entries for %d records", q.looked, len(q.hits))
	}
}

func BenchmarkIngest1000(b *testing.B) { benchmarkIngest(b, 1000) }
func BenchmarkIngest100(b *testing.B)  { benchmarkIngest(b, 100) }
func BenchmarkIngest1(b *testing.B)    { benchmarkIngest(b, 1) }

// benchmarkIngest measures final records that the database has not seen, per record.
func benchmarkIngest(b *testing.B, batch int) {
	d, _ := openTest(b, b.TempDir())
	records := make([]*model.Record, batch)
	seq := uint64(1)
	b.ResetTimer()
	for n := 0; n < b.N; n += batch {
		for i := range records {
			records[i] = rec(seq, model.JobID(seq), user(uint32(1000+seq*7919%300)), later(model.Time(seq)*second))
			seq++
		}
		mustPut(b, d, seq-1, records...)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkLives measures whole jobs as the controller sends them: pending, running, over.
func BenchmarkLives(b *testing.B) {
	d, _ := openTest(b, b.TempDir())
	const batch = 300
	seq, job := uint64(1), model.JobID(1)
	b.ResetTimer()
	for n := 0; n < b.N; n += batch {
		for _, phase := range []change{waiting, running, func(*model.Record) {}} {
			records := make([]*model.Record, batch)
			for i := range records {
				id := job + model.JobID(i)
				records[i] = rec(seq, id, user(uint32(1000+id*7919%300)), later(model.Time(id)*second), phase)
				seq++
			}
			mustPut(b, d, seq-1, records...)
		}
		job += batch
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

// BenchmarkQuery asks a database of 11 days with 40,000 jobs each.
func BenchmarkQuery(b *testing.B) {
	d, _ := openTest(b, b.TempDir())
	const perDay = 40000
	start := t0 - 5*day
	fill(b, d, 1, 11*perDay, start, day/perDay)
	at := start + 5*day
	for _, c := range []struct {
		name string
		req  proto.AcctRequest
		want [2]int
	}{
		{"day", proto.AcctRequest{Start: at, End: at + day - 1}, [2]int{39000, 41000}},
		{"day-account", proto.AcctRequest{Start: at, End: at + day - 1, Accounts: []string{"chem"}}, [2]int{0, 0}},
		{"day-failed", proto.AcctRequest{Start: at, End: at + day - 1, States: []model.JobState{model.Failed}}, [2]int{1900, 2100}},
		{"user-day", proto.AcctRequest{Start: at, End: at + day - 1, Users: []uint32{1005}}, [2]int{120, 150}},
		{"user-all", proto.AcctRequest{Users: []uint32{1005}}, [2]int{1400, 1500}},
		{"job", proto.AcctRequest{Jobs: []proto.JobRef{{Job: 200000, Task: model.NoTask}}}, [2]int{1, 1}},
		{"running-now", proto.AcctRequest{Start: t0 + 30*day, End: t0 + 30*day, States: []model.JobState{model.Running}}, [2]int{0, 0}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				n, bytes := 0, 0
				err := d.query(b.Context(), &c.req, func(records [][]byte) error {
					n += len(records)
					for _, r := range records {
						bytes += len(r)
					}
					return nil
				})
				if err != nil || n < c.want[0] || n > c.want[1] {
					b.Fatalf("%d records, %v", n, err)
				}
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	d, stop := openTest(b, dir)
	fill(b, d, 1, 200000, t0, second)
	stop()
	var check time.Duration
	for b.Loop() {
		at := time.Now()
		if err := checkFile(d.path); err != nil {
			b.Fatal(err)
		}
		check += time.Since(at)
		d, err := openDB(dir, testLog(b), time.Now)
		if err != nil {
			b.Fatal(err)
		}
		if err := d.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(check.Milliseconds())/float64(b.N), "check-ms/op")
}
