package control

import (
	"fmt"

	"gbatch/internal/cli/env"
	"gbatch/internal/jobtext"
	"gbatch/internal/proto"
)

// showSteps is gcontrol show step [JOB[.STEP]].
func (c *control) showSteps(arg string) error {
	refs, err := env.ParseStepRefs(arg)
	if err != nil {
		return err
	}
	cl, err := c.ask()
	if err != nil {
		return err
	}
	steps, now, err := c.RunningSteps(cl, &proto.StepsRequest{Steps: refs})
	if err != nil {
		return plain{fmt.Errorf("slurm_get_job_steps error: %s", env.Text(err))}
	}
	if c.json != "" {
		return c.StepsJSON(cl, c.json, steps, now)
	}
	if len(steps) > 0 {
		c.sayRecords(now, len(steps))
	}
	for i := range steps {
		c.print(jobtext.ShowStep(&steps[i], c.Clock()))
	}
	switch {
	case len(steps) > 0:
	case arg == "":
		fmt.Fprintln(c.Stdout, "No job steps in the system")
	default:
		return fmt.Errorf("Job step %s not found: no such step runs; gacct -j %s shows what has ended", arg, arg)
	}
	return nil
}
