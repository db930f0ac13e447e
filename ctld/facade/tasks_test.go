package facade

import (
	"context"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"gbatch/ctld/rest"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// queueOf is a cluster that has jobs only, in parts.
type queueOf struct {
	rest.Cluster
	jobs []*model.Job
}

func (c queueOf) Ask(_ context.Context, _ *proto.Caller, kind uint16, _ proto.Message,
	each func([]byte) error) (time.Duration, error) {
	if kind != proto.KindJobs { // accounting has nothing
		return 0, nil
	}
	for part := range slices.Chunk(c.jobs, proto.ChunkJobs) {
		b, err := proto.Encode(&proto.JobsChunk{Jobs: part})
		if err == nil {
			err = each(b)
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, nil
}

func (c queueOf) Facts() rest.Facts { return rest.Facts{} }

// TestNewest: of more tasks than a list has the newest that match are listed, and all are counted.
func TestNewest(t *testing.T) {
	var c queueOf
	const n = 10_200 // more than maxTasks
	for id := model.JobID(1); id <= n; id++ {
		state := model.Pending
		if id%3 == 0 {
			state = model.Completed
		}
		c.jobs = append(c.jobs, &model.Job{ID: id, State: state, Spec: &model.Spec{}})
	}
	for _, x := range []struct {
		query string
		total int
		ids   []model.JobID
	}{{"limit=3", n, []model.JobID{n, n - 1, n - 2}},
		{"limit=3&status=success", n / 3, []model.JobID{n, n - 3, n - 6}},
		{"limit=2&status=pending", n / 3 * 2, []model.JobID{n - 1, n - 2}}} {
		q := &request{ctx: t.Context(), f: &Facade{Cluster: c}}
		q.r = httptest.NewRequest("GET", Prefix+"/tasks?"+x.query, nil)
		got, err := q.tasks("")
		if err != nil {
			t.Fatal(err)
		}
		reply, _ := got.(tasksReply)
		var ids []model.JobID
		for _, task := range reply.Tasks {
			ids = append(ids, task.job.ID)
		}
		if reply.Total != x.total || !slices.Equal(ids, x.ids) {
			t.Errorf("%s: %v of %d; want %v of %d", x.query, ids, reply.Total, x.ids, x.total)
		}
	}
}
