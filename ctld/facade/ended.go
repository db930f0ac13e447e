package facade

import (
	"errors"
	"fmt"
	"net/http"

	"gbatch/ctld/rest"
	"gbatch/internal/ask"
	"gbatch/internal/hostlist"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/state"
)

// ended.go has tasks that the controllers know no more: accounting has them.

// Limits.
const (
	endedWithin = 24 * 3600 * 1000 // lists have what has ended in so much time, milliseconds
	maxRecords  = 200_000          // that are looked at for a list
)

// records gives what accounting has of ended jobs.
func (q *request) records(rq *proto.AcctRequest, see func(*model.Record)) error {
	seen := 0
	err := q.stream(proto.KindAcct, rq, func(part []byte) error {
		var chunk proto.RecordsChunk
		if err := proto.Decode(part, &chunk); err != nil {
			return err
		}
		for _, r := range chunk.Records {
			if seen++; seen > maxRecords {
				return errEnough
			}
			if r.End > 0 && r.State.Finished() && r.Step == nil && r.Audit == nil && r.TaskText == "" {
				see(r)
			}
		}
		return nil
	})
	if errors.Is(err, errEnough) { // accounting gives the oldest first
		err = fmt.Errorf("only the first %d records of a day are looked at: ask with user=", maxRecords)
	}
	return err
}

// jobOf gives of a record what tasks show.
func jobOf(r *model.Record) *model.Job {
	return &model.Job{ID: r.Job, ArrayID: r.ArrayID, Task: r.Task, Het: r.Het, State: r.State, Reason: r.Reason,
		Why: r.Why, Submit: r.Submit, Priority: r.Priority, End: &model.End{At: r.End, Exit: r.Exit},
		Run:  &model.Run{Start: r.Start, Partition: r.Partition},
		Spec: &model.Spec{Name: r.Name, User: r.User, UID: r.UID, Account: r.Account, QOS: r.QOS}}
}

// taskOfRecord makes a task of an ended job's record, which does not say which GPUs of its nodes it had.
func taskOfRecord(r *model.Record, facts *rest.Facts) *Task {
	t := taskOf(jobOf(r), &model.AskRules{}, facts)
	t.StartedAt = stamp(r.Start)
	if nodes, err := hostlist.Expand(r.Nodes); err == nil && r.Start > 0 {
		t.Nodes = append(t.Nodes, nodes...)
	}
	gres := r.AllocGres
	if len(gres) == 0 {
		gres = r.ReqGres
	}
	t.GPUCount = partOf(gres, facts.View)
	return t
}

// partOf says how many GPUs units are, shares as of the GPU with the most of them.
func partOf(gres []model.GresCount, v *state.View) float64 {
	micros := int64(0)
	for _, g := range gres {
		if g.Name == model.GPUName {
			micros += g.Count * model.GPU
		} else if most := mostShares(v, g.Name); most > 0 {
			micros += model.ShareUnits(g.Name, g.Count, true) * model.GPU / most
		}
	}
	return rounded(float64(micros) / model.GPU)
}

// queued gives a task that the controllers know, or nil.
func (q *request) queued(r model.JobRef) (*Task, error) {
	var first *model.Job // of an array its own record, or its first task
	rules := &ask.Rulebook{}
	err := q.each(proto.JobFilter{Jobs: []model.JobRef{r}}, rules, func(j *model.Job) {
		if first == nil {
			first = j
		}
	})
	var own *rpc.Error
	if errors.As(err, &own) && own.Code == proto.CodeInvalidJob {
		err = nil
	}
	if err != nil || first == nil {
		return nil, err
	}
	facts := q.f.Cluster.Facts()
	return taskOf(first, rules.Of(first), &facts), nil
}

// one gives a task: from accounting if the controllers know it no more.
func (q *request) one(id string) (*Task, error) {
	r, err := ref(id)
	if err != nil {
		return nil, err
	}
	t, err := q.queued(r)
	if t != nil || err != nil {
		return t, err
	}
	facts := q.f.Cluster.Facts()
	none := &wrong{http.StatusNotFound, "there is no task " + id}
	err = q.records(&proto.AcctRequest{Jobs: []model.JobRef{r}}, func(rec *model.Record) {
		if t == nil {
			t = taskOfRecord(rec, &facts)
		}
	})
	switch {
	case t != nil:
		return t, nil
	case err != nil:
		_, text := rest.StatusOf(err)
		none.text += " in the queue; accounting, which has older ones, can't be asked: " + text
	}
	return nil, none
}

// lately adds to a list the tasks that have ended lately and that the controllers know no more.
func (q *request) lately(want string, users []uint32, list []*Task, most int) (all []*Task, more int, note string) {
	facts := q.f.Cluster.Facts()
	have := map[string]bool{}
	for _, t := range list {
		have[t.TaskID] = true
	}
	rq := &proto.AcctRequest{Users: users, Start: facts.Now - endedWithin, End: facts.Now}
	for s := model.Completed; s.Finished(); s++ {
		if statusOf(&model.Job{State: s}) == want {
			rq.States = append(rq.States, s)
		}
	}
	err := q.records(rq, func(r *model.Record) {
		id := "task-" + jobtext.RecordID(r)
		if have[id] || statusOf(&model.Job{State: r.State}) != want || r.End < rq.Start || facts.Job(r.Job) != nil {
			return
		}
		more++
		if have[id] = true; len(list) < 2*most {
			list = append(list, taskOfRecord(r, &facts))
			return
		}
		list = append(newestOf(list, most), taskOfRecord(r, &facts))
	})
	if err != nil {
		_, text := rest.StatusOf(err)
		note = "tasks that have ended for longer than the controllers keep them are missing: " + text
	}
	return newestOf(list, most), more, note
}
