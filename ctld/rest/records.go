package rest

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"time"

	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
	"gbatch/internal/walltime"
)

// records.go is slurmdb's jobs: gdbd's records, with the steps that run now.

var recordFields = jobtext.RecordJSON()

// records writes the records that match.
func (q *request) records(rq *proto.AcctRequest) (n int, err error) {
	rq.Steps = true
	live := q.liveSteps(rq)
	view := &jobtext.RecordView{Times: jobtext.Times{Now: time.Now()}}
	var job *model.Record
	var steps []*model.Record
	give := func() {
		if job == nil {
			return
		}
		if job.State.HasResources() {
			for i := range live[job.Job] {
				s := &live[job.Job][i]
				if s.Step.ID != proto.StepBatch &&
					!slices.ContainsFunc(steps, func(r *model.Record) bool { return r.Step.ID == s.Step.ID }) {
					steps = append(steps, &model.Record{Job: job.Job, Attempt: job.Attempt, Step: &s.Step})
				}
			}
			slices.SortStableFunc(steps, func(x, y *model.Record) int { return cmp.Compare(x.Step.ID, y.Step.ID) })
		}
		row := &jobtext.RecordRow{Record: job, RecordView: view}
		slurmjson.Write(q.j, "", recordFields, &jobtext.RecordWithSteps{RecordRow: row, Script: jobtext.HasBatch(job),
			Steps: steps})
		q.j.Flush(false)
		n++
		job, steps = nil, nil
	}
	q.j.Open("jobs", '[')
	err = q.stream(proto.KindAcct, rq, func(part []byte) error {
		var chunk proto.RecordsChunk
		if err := proto.Decode(part, &chunk); err != nil {
			return err
		}
		if chunk.Note != "" {
			q.warn(chunk.Note)
		}
		for i, r := range chunk.Records {
			switch {
			case r.Step == nil:
				give()
				if job = r; r.AdminComment == "" && i < len(chunk.Summaries) {
					r.AdminComment = chunk.Summaries[i]
				}
			case job != nil && job.Job == r.Job && job.Attempt == r.Attempt:
				steps = append(steps, r)
			}
		}
		return q.ctx.Err()
	})
	give()
	q.j.Close(']')
	return n, err
}

// liveSteps gives the running steps of the jobs that are asked for. Without a leader there are none.
func (q *request) liveSteps(rq *proto.AcctRequest) map[model.JobID][]proto.RunningStep {
	out := map[model.JobID][]proto.RunningStep{}
	if q.facts.Leaderless {
		return out
	}
	err := q.stream(proto.KindSteps, &proto.StepsRequest{Filter: proto.JobFilter{Jobs: rq.Jobs, Users: rq.Users,
		Names: rq.Names, Partitions: rq.Partitions, Accounts: rq.Accounts, QOS: rq.QOS}}, func(part []byte) error {
		var chunk proto.StepsChunk
		err := proto.Decode(part, &chunk)
		for _, s := range chunk.Steps {
			out[s.Job] = append(out[s.Job], s)
		}
		return err
	})
	if err != nil {
		q.warn("steps that run now are missing: " + err.Error())
	}
	return out
}

func dbJob(q *request) error {
	ref, err := jobRef(q.name)
	if err != nil {
		return err
	}
	n, err := q.records(&proto.AcctRequest{Jobs: []proto.JobRef{ref}})
	if err == nil && n == 0 {
		q.warn("Nothing found with query: there is no record of job " + q.name)
	}
	return err
}

// moment reads a moment as slurmrestd does: seconds since 1970, or what the commands take.
func (q *request) moment(name string) (model.Time, error) {
	text := q.get(name)
	if text == "" {
		return 0, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 9999999 {
		return model.Time(n * 1000), nil
	}
	now := time.UnixMilli(int64(q.facts.Now))
	t, err := walltime.ParsePastDate(text, now)
	if err != nil {
		return 0, &fault{Number: errConversion, Detail: name + ": " + err.Error(), Status: http.StatusBadRequest}
	}
	return model.Time(t.UnixMilli()), nil
}

// dbJobs is GET slurmdb's jobs. As in Slurm, without a time and without jobs it is today's.
func dbJobs(q *request) error {
	rq := &proto.AcctRequest{Accounts: q.words("account"), Partitions: q.words("partition"), Names: q.words("job_name"),
		QOS: q.words("qos"), Nodes: q.words("node"), Duplicates: q.flag("show_duplicates")}
	var err error
	if rq.Users, err = q.users(append(q.words("users"), q.words("user")...)); err != nil {
		return err
	}
	if rq.Jobs, err = jobRefs(append(q.words("step"), q.words("job_id")...)); err != nil {
		return err
	}
	if rq.States, err = parseStates(q.words("state")); err != nil {
		return err
	}
	if rq.Start, err = q.moment("start_time"); err != nil {
		return err
	}
	if rq.End, err = q.moment("end_time"); err != nil {
		return err
	}
	for _, name := range []string{"wckey", "reservation", "reservation_id", "constraints", "reason", "groups",
		"exit_code",
		"association"} {
		if q.get(name) != "" {
			return unsupported(name + " selects no records here; account, users, job_name, partition, qos, node, state, " +
				"start_time and end_time do")
		}
	}
	if rq.Start == 0 && len(rq.Jobs) == 0 {
		now := time.UnixMilli(int64(q.facts.Now))
		rq.Start = model.Time(time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location()).UnixMilli())
	}
	_, err = q.records(rq)
	return err
}
