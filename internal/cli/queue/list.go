package queue

import (
	"os"
	"slices"

	"gbatch/internal/cli/env"
	"gbatch/internal/client"
	"gbatch/internal/format"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// list.go asks for jobs, and chooses the rows of a job: one, or one for each task (-r) or partition (-P).

// each asks for the jobs, and for what p shows of them, and passes every row to add. A row is valid until add returns.
func (q *queue) each(view *jobtext.JobView, p *format.Printer[jobtext.JobRow], add func(*jobtext.JobRow)) error {
	if q.none {
		return nil
	}
	c, err := q.Connect()
	if err != nil {
		return env.Complaint{Text: env.Text(err)}
	}
	defer c.Close()
	if err := q.CheckClusters(c, q.clusters); err != nil {
		return err
	}
	if err := q.checkNodes(c); err != nil {
		return err
	}
	if view.Numbers, err = env.Numbers(c, p, false); err != nil {
		return err
	}
	hidden, err := q.hidden(c)
	if err != nil {
		return err
	}
	if err := q.learnTiers(c); err != nil {
		return err
	}
	var seen map[model.JobID]bool // a list of ids may name a job more than once
	if len(q.rq.Filter.Jobs) > 1 {
		seen = map[model.JobID]bool{}
	}
	rows := q.rowsOf(view)
	reader := jobReader{care: c.Care()}
	view.Rules = &reader.rules
	return c.Stream(proto.KindJobs, &q.rq, func(body []byte) error {
		return reader.each(body, func(now model.Time, j *model.Job) error {
			view.At = now
			if seen[j.ID] || hidden != nil && q.isHidden(j, hidden) || !q.ranFor(j, now) {
				return nil
			}
			if seen != nil {
				seen[j.ID] = true
			}
			rows.Each(j, add)
			return nil
		})
	})
}

// learnTiers asks for the tiers of partitions, if lines are sorted by them.
func (q *queue) learnTiers(c *client.Client) error {
	if q.tiers == nil {
		return nil
	}
	var reply proto.PartitionsReply
	if err := c.Call(proto.KindPartitions, &proto.Empty{}, &reply); err != nil && env.Code(err) != proto.CodeAccess {
		return err
	}
	for _, p := range reply.Partitions {
		q.tiers[p.Name] = int64(p.PriorityTier)
	}
	return nil
}

// checkNodes reports nodes of -w that don't exist.
func (q *queue) checkNodes(c *client.Client) error {
	for _, n := range q.rq.Filter.Nodes {
		err := c.Stream(proto.KindNodes, &proto.NodesRequest{Names: []string{n}}, func([]byte) error { return nil })
		if env.Code(err) == proto.CodeInvalidNode {
			return env.Complaint{Text: "Invalid node name " + n}
		}
		if err != nil && env.Code(err) != proto.CodeAccess { // PrivateData hides nodes, not the user's jobs there
			return err
		}
	}
	return nil
}

// hidden gives the partitions with hidden jobs; root sees all jobs. Who names partitions, jobs or steps means these, as
// in Slurm.
func (q *queue) hidden(c *client.Client) (map[string]bool, error) {
	if f := &q.rq.Filter; q.all || os.Getuid() == 0 || len(f.Partitions)+len(f.Jobs)+len(q.steps) > 0 {
		return nil, nil
	}
	var reply proto.PartitionsReply
	if err := c.Call(proto.KindPartitions, &proto.Empty{}, &reply); err != nil && env.Code(err) != proto.CodeAccess {
		return nil, err
	}
	var out map[string]bool
	for i, p := range reply.Partitions {
		if reply.Hides(i) {
			if out == nil {
				out = map[string]bool{}
			}
			out[p.Name] = true
		}
	}
	return out, nil
}

// isHidden reports whether a job is in hidden partitions only.
func (q *queue) isHidden(j *model.Job, hidden map[string]bool) bool {
	parts := j.Partitions()
	return len(parts) > 0 && !slices.ContainsFunc(parts, func(p string) bool { return !hidden[p] })
}

// ranFor reports whether a job runs for as long as --running-over and --running-under ask.
func (q *queue) ranFor(j *model.Job, now model.Time) bool {
	if q.over == nil && q.under == nil {
		return true
	}
	s := j.ElapsedS(now)
	return j.State == model.Running && (q.over == nil || s > *q.over) && (q.under == nil || s < *q.under)
}

// rowsOf gives the rule that makes rows of jobs.
func (q *queue) rowsOf(view *jobtext.JobView) *jobtext.JobRows {
	return &jobtext.JobRows{View: view, PerTask: q.perTask, PerPartition: q.perPartition, Jobs: q.rq.Filter.Jobs,
		Partitions: q.rq.Filter.Partitions}
}
