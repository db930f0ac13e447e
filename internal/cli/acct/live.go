package acct

import (
	"cmp"
	"slices"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// live.go shows the steps of running jobs that run now. Accounting has a step only after its end, so gacct asks the
// nodes that manage them for running steps, once per call, when it comes to the first running job. Nodes name those too
// that have just ended: they may not have been in accounting when it was asked.

// liveLimit is how long the nodes may take.
const liveLimit = 7 * time.Second

// withLive adds the steps of a job that run now to those that have ended, in order of number.
func (a *account) withLive(job *model.Record, ended []*model.Record) []*model.Record {
	for _, s := range a.liveSteps()[job.Job] {
		if s.Step.ID == proto.StepBatch || !job.Lists(&s.Step) ||
			slices.ContainsFunc(ended, func(r *model.Record) bool { return r.Step.ID == s.Step.ID }) {
			continue
		}
		a.clip(&s.Step.Start, &s.Step.End)
		ended = append(ended, &model.Record{Job: job.Job, Attempt: job.Attempt, Step: &s.Step})
	}
	slices.SortStableFunc(ended, func(x, y *model.Record) int { return cmp.Compare(x.Step.ID, y.Step.ID) })
	return ended
}

// liveSteps asks for running steps of the requested jobs. If no controller leads, accounting is shown without them.
func (a *account) liveSteps() map[model.JobID][]proto.RunningStep {
	if a.live != nil {
		return a.live
	}
	a.live = map[model.JobID][]proto.RunningStep{}
	c, err := a.Connect() // the first connection is in the middle of its answer
	if err != nil {
		return a.live
	}
	defer c.Close()
	c.Within(liveLimit)
	steps, _, err := a.RunningSteps(c,
		&proto.StepsRequest{Filter: proto.JobFilter{Jobs: a.rq.Jobs, Users: a.rq.Users, Names: a.rq.Names,
			Partitions: a.rq.Partitions, Accounts: a.rq.Accounts, QOS: a.rq.QOS}, Ended: true})
	if err != nil {
		a.Errorf("steps that run now are not shown: %s", env.Text(err))
		return a.live
	}
	for _, s := range steps {
		a.live[s.Job] = append(a.live[s.Job], s)
	}
	return a.live
}
