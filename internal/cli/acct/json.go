package acct

import (
	"gbatch/internal/client"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
)

// printJSON prints the records as sacct --json does.
func (a *account) printJSON(c *client.Client, view *jobtext.RecordView) error {
	var cluster string
	j := a.JSONFrame("jobs", a.json)
	err := a.each(c, func(r *model.Record, steps []*model.Record) error {
		cluster = r.Cluster
		(&jobtext.RecordRow{Record: r, RecordView: view, Batch: false, OfStep: nil}).JSON(j, !a.allocations && jobtext.HasBatch(r), steps)
		j.Flush(false)
		return j.Err
	})
	if err != nil {
		return err
	}
	return a.JSONFinish(j, cluster, model.Time(a.now.UnixMilli()))
}
