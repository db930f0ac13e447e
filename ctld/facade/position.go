package facade

import (
	"cmp"
	"slices"
	"strconv"

	"gbatch/internal/ask"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// Answers about places in the queue.
type (
	place struct {
		TaskID     string   `json:"task_id"`
		Name       string   `json:"name"`
		User       string   `json:"user"`
		Position   int32    `json:"position"` // from 1: the best one of its partitions
		Rank       int32    `json:"rank"`     // the same from 0
		Score      uint32   `json:"score"`    // the priority: higher ones come first
		Partitions []string `json:"partitions"`
	}
	placesReply struct {
		Tasks []place `json:"tasks"`
		Total int     `json:"total"` // that wait for their turn, whatever limit= says
	}
	queuePlace struct {
		Partition string `json:"partition"`
		Position  int32  `json:"position"`
		Ahead     int32  `json:"ahead"`
		Queued    int32  `json:"queued"`
	}
	placeReply struct {
		TaskID   string       `json:"task_id"`
		Status   string       `json:"status" enum:"pending,running,success,failed"`
		Position *int32       `json:"position"` // null: it does not wait for its turn
		Rank     *int32       `json:"rank"`
		Score    uint32       `json:"score"`
		Queues   []queuePlace `json:"queues"`
		Reason   string       `json:"reason"` // why it waits or has failed
		Expected *string      `json:"expected_start"`
	}
)

// firstTasks is how many tasks of the queue are listed where nobody says how many.
const firstTasks = 10

var positionQuery = [][2]string{{"partition", "of this one's queue"}, {"limit", "at most so many, 1 to 10000; 10"}}

// positions lists the first tasks of the queue.
func (q *request) positions(string) (any, error) {
	facts := q.f.Cluster.Facts()
	for _, name := range q.words("partition") {
		if facts.Partition(name) == nil {
			return nil, bad("partition=%s: there is no such partition", name)
		}
	}
	f, most := proto.JobFilter{States: []model.JobState{model.Pending}, Partitions: q.words("partition")}, firstTasks
	if v := q.r.URL.Query().Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > maxTasks {
			return nil, bad("limit=%s: it is 1 to %d", v, maxTasks)
		}
		most = n
	}
	out := placesReply{Tasks: []place{}}
	order := func(a, b place) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(b.Score, a.Score))
	}
	cut := func() {
		slices.SortStableFunc(out.Tasks, order)
		out.Tasks = out.Tasks[:min(most, len(out.Tasks))]
	}
	err := q.each(f, &ask.Rulebook{}, func(j *model.Job) {
		if j.Expect == nil || j.Expect.Position == 0 {
			return
		}
		if out.Total++; len(out.Tasks) >= 2*most {
			cut()
		}
		out.Tasks = append(out.Tasks, place{TaskID: "task-" + jobtext.JobID(j), Name: j.Spec.Name, User: j.Spec.User,
			Position: j.Expect.Position, Rank: j.Expect.Position - 1, Score: j.Priority, Partitions: j.Spec.Partitions})
	})
	cut()
	return out, err
}

// position says where a task is in each of its queues, as gqueue --why does.
func (q *request) position(id string) (any, error) {
	t, err := q.one(id)
	if err != nil {
		return nil, err
	}
	out := placeReply{TaskID: t.TaskID, Status: t.Status, Score: t.job.Priority, Queues: []queuePlace{}, Reason: t.Error,
		Expected: t.Expected}
	if t.Status != "pending" {
		return out, nil
	}
	r, err := ref(id)
	if err != nil {
		return nil, err
	}
	var why proto.WhyReply
	if err := q.ask(proto.KindWhy, &proto.WhyRequest{Jobs: []model.JobRef{r}}, &why); err != nil {
		return nil, err
	}
	if len(why.List) == 0 {
		return out, nil
	}
	x := why.List[0]
	if out.Expected = stamp(x.Start); x.Start == 0 {
		out.Expected = t.Expected
	}
	for _, p := range x.Places {
		n := p.Ahead + 1
		out.Queues = append(out.Queues, queuePlace{p.Partition, n, p.Ahead, p.Queue})
		if out.Position == nil || n < *out.Position {
			rank := p.Ahead
			out.Position, out.Rank = &n, &rank
		}
	}
	return out, nil
}
