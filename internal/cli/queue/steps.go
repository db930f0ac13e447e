package queue

import (
	"slices"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/format"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// steps.go shows running steps: gqueue -s. The leader asks the nodes that manage them.

// stepFormat is the default format of squeue -s.
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
		steps, now, err = q.RunningSteps(c, &proto.StepsRequest{Filter: q.rq.Filter, Steps: q.steps})
		named := len(q.steps)+len(q.rq.Filter.Jobs) > 0
		noJob := named && q.SlurmName() && env.Code(err) == proto.CodeInvalidJob // squeue: no line
		if err != nil && !noJob {
			return q.ended(err)
		}
		steps = slices.DeleteFunc(steps, func(s proto.RunningStep) bool { return hidden[s.Partition] })
	}
	view := &jobtext.JobView{Times: q.Times(time.Now()), At: now}
	var b []byte
	if q.long && !q.noHeader {
		b = time.Now().AppendFormat(b, "Mon Jan _2 15:04:05 2006\n")
	}
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
