package acct

import (
	"gbatch/internal/client"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// printJSON prints the records as sacct --json does.
func (a *account) printJSON(c *client.Client, view *jobtext.RecordView) error {
	var cluster string
	var cfg proto.ConfigReply // without a controller resources of its own have no numbers
	if c.Call(proto.KindConfig, &proto.Empty{}, &cfg) == nil && cfg.Config != nil {
		view.TRES = cfg.Config.TRES()
	}
	fields := jobtext.RecordJSON()
	j := a.JSONFrame("jobs", a.json)
	err := a.each(c, func(r *model.Record, steps []*model.Record) error {
		cluster = r.Cluster
		row := &jobtext.RecordRow{Record: r, RecordView: view}
		script := !a.allocations && jobtext.HasBatch(r)
		slurmjson.Write(j, "", fields, &jobtext.RecordWithSteps{RecordRow: row, Script: script, Steps: steps})
		j.Flush(false)
		return j.Err
	})
	if err != nil {
		return err
	}
	return a.JSONFinish(j, cluster, model.Time(a.now.UnixMilli()))
}
