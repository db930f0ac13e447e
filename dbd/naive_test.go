package dbd

import (
	"cmp"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

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
		eligible := r.Eligible != 0 || r.Start != 0
		in := len(q.States) == 0 && (eligible || len(q.Jobs) > 0)
		for _, s := range q.States {
			switch {
			case s == model.Pending:
				in = in || eligible && between(max(r.Submit, r.Eligible), endOr(r.Start, endOr(r.End, never)))
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
			none(len(q.Accounts), slices.Contains(q.Accounts, r.Account)) &&
			none(len(q.Names), slices.Contains(q.Names, r.Name)) &&
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

// TestAgainstNaive stores thousands of random records of jobs and compares the answers to random queries with naive's.
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
			r.Submit, r.Eligible, r.Start, r.End = now-spanned(), 0, 0, 0
			if rng.IntN(2) == 0 {
				r.Eligible = r.Submit + model.Time(rng.IntN(2))*spanned()
			}
			states := []model.JobState{model.Pending, model.Running, model.Suspended, model.Completing, model.Completed,
				model.Failed, model.Timeout, model.Cancelled}
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
		j := model.JobRef{Job: model.JobID(1 + rng.IntN(400)), Task: model.NoTask}
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
