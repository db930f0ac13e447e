package queue

import (
	"cmp"
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

// stepSort is the default order of squeue -s.
const stepSort = "P,i"

// sortSteps sorts steps by keys; the shells of a job and its daemon stand behind its steps, as in Slurm.
func sortSteps(steps []proto.RunningStep, keys []format.SortKey) {
	slices.SortStableFunc(steps, func(a, b proto.RunningStep) int {
		for _, k := range keys {
			if n := compareSteps(&a, &b, k.Letter); n != 0 && k.Down {
				return -n
			} else if n != 0 {
				return n
			}
		}
		return 0
	})
}

// compareSteps compares two steps by what a letter of -o prints.
func compareSteps(a, b *proto.RunningStep, letter byte) int {
	switch letter {
	case 'A':
		return cmp.Compare(a.Step.Tasks, b.Step.Tasks)
	case 'b':
		return cmp.Compare(jobtext.StepGres(&a.Step), jobtext.StepGres(&b.Step))
	case 'i':
		return cmp.Or(cmp.Compare(cmp.Or(a.ArrayID, a.Job), cmp.Or(b.ArrayID, b.Job)), cmp.Compare(a.Task, b.Task),
			cmp.Compare(a.Job, b.Job), cmp.Compare(uint32(a.Step.ID), uint32(b.Step.ID)))
	case 'j':
		return cmp.Compare(a.Step.Name, b.Step.Name)
	case 'l':
		return cmp.Compare(a.LimitS, b.LimitS)
	case 'M':
		return cmp.Compare(b.Step.Start, a.Step.Start)
	case 'N':
		return slices.Compare(a.Step.Nodes, b.Step.Nodes)
	case 'P':
		return cmp.Compare(a.Partition, b.Partition)
	case 'S':
		return cmp.Compare(a.Step.Start, b.Step.Start)
	case 'u':
		return cmp.Compare(a.User, b.User)
	case 'U':
		return cmp.Compare(a.UID, b.UID)
	}
	return 0
}

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
	keys, rc := sortKeys(q, &lang, stepSort)
	if rc != 0 {
		return rc
	}
	c, err := q.Connect()
	if err != nil {
		return q.ended(err)
	}
	defer c.Close()
	if err := q.CheckClusters(c, q.clusters); err != nil {
		return q.ended(err)
	}
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
		steps = slices.DeleteFunc(steps, func(s proto.RunningStep) bool {
			ran := s.Step.ElapsedS(now)
			return hidden[s.Partition] || q.over != nil && ran <= *q.over || q.under != nil && ran >= *q.under
		})
	}
	if q.json != "" {
		return q.ended(q.StepsJSON(c, q.json, steps, now))
	}
	sortSteps(steps, keys)
	view := &jobtext.JobView{Times: q.Times(time.Now()), At: now}
	var b []byte
	if (q.every > 0 || q.long) && !q.noHeader {
		b = time.Now().AppendFormat(b, "Mon Jan _2 15:04:05 2006\n")
	}
	if !q.noHeader {
		b = p.AppendHeader(b)
	}
	for i := range steps {
		b = p.AppendRow(b, &jobtext.StepRow{RunningStep: &steps[i], JobView: view})
	}
	if q.every > 0 {
		b = append(b, '\n')
	}
	if _, err := q.Stdout.Write(b); err != nil {
		return 1
	}
	return 0
}
