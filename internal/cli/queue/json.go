package queue

import (
	"gbatch/internal/cli/env"
	"gbatch/internal/jobtext"
	"gbatch/internal/slurmjson"
)

// printJSON prints the jobs as squeue --json does, in the controller's order, as they come.
func (q *queue) printJSON(view *jobtext.JobView) error {
	cluster, err := q.Cluster()
	if err != nil {
		return err
	}
	view.Cluster = cluster
	fields := jobtext.JobJSON()
	j := q.JSONFrame("jobs", q.json)
	err = q.each(view, nil, func(r *jobtext.JobRow) {
		slurmjson.Write(j, "", fields, r)
		j.Flush(false)
	})
	if err != nil {
		return err
	}
	if err := q.JSONFinish(j, cluster, view.At); err != nil {
		return env.Complaint{Text: err.Error()}
	}
	return nil
}
