package cli

import (
	"fmt"
	"slices"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/format"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// Running steps: gqueue -s, gcontrol show step, and what gcancel is told of them. The leader asks the nodes that manage them.

// stepFormat is what squeue -s prints.
const stepFormat = "%.15i %.8j %.9P %.8u %.9M %N"

// listSteps prints one table of steps.
func (q *queue) listSteps() int {
	lang := jobtext.StepLanguage()
	compile := func() (*format.Printer[jobtext.StepRow], error) { return lang.Template(stepFormat) }
	switch q.layout {
	case 'o':
		compile = func() (*format.Printer[jobtext.StepRow], error) { return lang.Template(q.template) }
	case 'O':
		compile = func() (*format.Printer[jobtext.StepRow], error) { return lang.Columns(q.columns) }
	}
	p, err := compile()
	if err = q.UnknownFields(err); err != nil {
		q.Errorf("%v", err)
		return 1
	}
	c, err := q.Connect()
	if err != nil {
		return q.ended(err)
	}
	defer c.Close()
	var steps []proto.RunningStep
	var now model.Time
	if !q.none {
		hidden, err := q.hidden(c)
		if err != nil {
			return q.ended(err)
		}
		if steps, now, err = q.RunningSteps(c, &proto.StepsRequest{Filter: q.rq.Filter, Steps: q.steps}); err != nil {
			return q.ended(err)
		}
		steps = slices.DeleteFunc(steps, func(s proto.RunningStep) bool { return hidden[s.Partition] })
	}
	view := &jobtext.JobView{Times: q.Times(time.Now()), At: now}
	var b []byte
	if !q.noHeader {
		b = p.AppendHeader(b)
	}
	for i := range steps {
		b = p.AppendRow(b, &jobtext.StepRow{RunningStep: &steps[i], JobView: view})
	}
	if _, err := q.Stdout.Write(b); err != nil {
		return 1
	}
	return 0
}

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
	steps, _, err := c.RunningSteps(cl, &proto.StepsRequest{Steps: refs})
	if err != nil {
		return plain{fmt.Errorf("slurm_get_job_steps error: %s", env.Text(err))}
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
