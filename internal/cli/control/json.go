package control

import (
	"fmt"
	"slices"
	"time"

	"gbatch/internal/ask"
	"gbatch/internal/cli/env"
	"gbatch/internal/client"
	"gbatch/internal/clustertext"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// gcontrol --json, but for why.

// jobsJSON writes all jobs that the controller knows, or those that are named, as gqueue --json does.
func (c *control) jobsJSON(ids string) error {
	failed := func(err error) error { return plain{fmt.Errorf("slurm_load_jobs error: %s", env.Text(err))} }
	refs, err := env.ParseJobRefs(ids)
	if err != nil {
		return failed(err)
	}
	cl, err := c.ask()
	if err != nil {
		return failed(err)
	}
	cluster, err := env.ClusterName(cl)
	if err != nil {
		return failed(err)
	}
	rq := &proto.JobsRequest{}
	rq.Filter.Jobs, rq.Filter.States = refs, model.JobStates()
	rows := &jobtext.JobRows{
		View: &jobtext.JobView{Times: *c.Clock(), BitLen: c.BitLen(), Cluster: cluster, Rules: &ask.Rulebook{}}, Jobs: refs}
	seen := map[model.JobID]bool{} // a list of ids may name a job more than once
	fields := jobtext.JobJSON()
	j := c.JSONFrame("jobs", c.json)
	at := model.Time(time.Now().UnixMilli()) // the controller's, once it has sent a job
	err = c.eachJob(rq, rows.View.Rules, func(job *model.Job, now model.Time) {
		rows.View.At, at = now, now
		if len(refs) > 1 && seen[job.ID] {
			return
		}
		seen[job.ID] = len(refs) > 1
		rows.Each(job, func(r *jobtext.JobRow) { slurmjson.Write(j, "", fields, r) })
		j.Flush(false)
	})
	if err != nil {
		return failed(err)
	}
	return c.JSONFinish(j, cluster, at)
}

// nodesJSON writes nodes.
func (c *control) nodesJSON(infos []*proto.NodeInfo, now model.Time) error {
	cluster, err := env.ClusterName(c.client)
	if err != nil {
		return err
	}
	j := c.JSONFrame("nodes", c.json)
	fields := jobtext.NodeJSON()
	for _, i := range infos {
		slurmjson.Write(j, "", fields, &jobtext.NodeOf{NodeInfo: i, Cluster: cluster})
		j.Flush(false)
	}
	return c.JSONFinish(j, cluster, now)
}

// partitionsJSON writes partitions.
func (c *control) partitionsJSON(parts []*model.Partition, reply *proto.PartitionsReply) error {
	cluster, err := env.ClusterName(c.client)
	if err != nil {
		return err
	}
	j := c.JSONFrame("partitions", c.json)
	fields := jobtext.PartitionJSON()
	for i, p := range reply.Partitions {
		if slices.Contains(parts, p) {
			slurmjson.Write(j, "", fields, &jobtext.PartitionOf{Partition: p, CPUs: reply.TotalCPUs[i], Cluster: cluster})
			j.Flush(false)
		}
	}
	return c.JSONFinish(j, cluster, reply.Now)
}

// pingJSON writes which controllers answer and which leads.
func (c *control) pingJSON(r *proto.PingReply) error {
	j := c.JSONFrame("pings", c.json)
	fields := clustertext.PingJSON()
	for i := range r.Controllers {
		slurmjson.Write(j, "", fields, &r.Controllers[i])
	}
	return c.JSONFinish(j, r.Cluster, r.Now)
}

// reservationsJSON writes all reservations, or the named one.
func (c *control) reservationsJSON(cl *client.Client, reply *proto.ReservationsReply, name string) error {
	cluster, err := env.ClusterName(cl)
	if err != nil {
		return err
	}
	j := c.JSONFrame("reservations", c.json)
	fields := jobtext.ReservationJSON()
	for i, v := range reply.List {
		if name == "" || v.Name == name {
			slurmjson.Write(j, "", fields, &jobtext.ReservationOf{Reservation: v, Size: &reply.Sizes[i]})
		}
	}
	return c.JSONFinish(j, cluster, reply.Now)
}

// licensesJSON writes all licenses, or the named one.
func (c *control) licensesJSON(reply *proto.ConfigReply, name string) error {
	j := c.JSONFrame("licenses", c.json)
	fields := clustertext.LicenseJSON()
	for _, l := range clustertext.LicensesOf(reply, name) {
		slurmjson.Write(j, "", fields, &l)
	}
	return c.JSONFinish(j, reply.Config.Cluster, reply.Now)
}
