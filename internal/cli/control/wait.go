package control

import (
	"errors"
	"fmt"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// waitJobPace is how often wait_job looks, at most.
const waitJobPace = 500 * time.Millisecond

// waitJob returns once a job's script may run on its nodes.
func (c *control) waitJob(words []string) error {
	if len(words) != 1 {
		return tooFew("too few arguments for keyword:wait_job", "one job, as in wait_job 12")
	}
	refs, err := env.ParseJobRefs(words[0])
	if err != nil || len(refs) != 1 {
		return errors.New("Invalid job id specified: '" + words[0] + "'")
	}
	for pace := 20 * time.Millisecond; ; pace = min(2*pace, waitJobPace) {
		var j *model.Job
		if err := c.eachJob(&proto.JobsRequest{Filter: proto.JobFilter{Jobs: refs}}, nil,
			func(found *model.Job, _ model.Time) { j = found }); err != nil {
			return err
		}
		switch {
		case j == nil:
			return errors.New("Invalid job id specified: '" + words[0] + "'")
		case j.State == model.Running || j.State == model.Suspended:
			if !c.quiet {
				fmt.Fprintf(c.Stderr, "%s: Nodes are ready for job %d\n", c.Program, j.ID)
			}
			return nil
		case j.State.Finished(), j.State == model.Completing:
			return fmt.Errorf("job %d has ended: %s", j.ID, j.State)
		}
		time.Sleep(pace)
	}
}

// completing lists the jobs that are being ended.
func (c *control) completing([]string) error {
	return c.eachJob(&proto.JobsRequest{Filter: proto.JobFilter{States: []model.JobState{model.Completing}}}, nil,
		func(j *model.Job, now model.Time) {
			if j.Run != nil {
				fmt.Fprintf(c.Stdout, "JobId=%d EndTime=%s CompletingTime=%s Nodes(COMPLETING)=%s\n", j.ID,
					c.Stamp(j.Ending(), "Unknown"),
					walltime.Elapsed(max(0, now.Seconds()-j.Ending().Seconds())), hostlist.Compress(j.Run.Alloc.NodeNames()))
			}
		})
}
