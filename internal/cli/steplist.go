package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/format"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// Running steps: gqueue -s, gcontrol show step, and what gcancel is told of them. The leader asks the nodes that manage them.

// stepFormat is what squeue -s prints.
const stepFormat = "%.15i %.8j %.9P %.8u %.9M %N"

// runningRow is one running step in a table.
type runningRow struct {
	*proto.RunningStep
	*queueView
}

func (s *runningRow) elapsed() int64 { return max(0, int64(s.at-s.Step.Start)/1000) }

// stepID writes a step as people name it: 12.0, 12_3.batch.
func stepID(s *proto.RunningStep) string {
	id := strconv.FormatUint(uint64(s.Job), 10)
	if s.ArrayID != 0 && s.Task != model.NoTask {
		id = strconv.FormatUint(uint64(s.ArrayID), 10) + "_" + strconv.FormatInt(int64(s.Task), 10)
	}
	return id + "." + stepName(s.Step.ID)
}

func stepLimit(s *proto.RunningStep) string {
	if s.LimitS >= model.Unlimited {
		return "UNLIMITED"
	}
	return walltime.Short(s.LimitS)
}

// stepLanguage is what squeue can show of a step.
func stepLanguage() format.Language[runningRow] {
	text := func(letter byte, name, heading string, get func(s *runningRow) string) format.Field[runningRow] {
		return format.Field[runningRow]{Letter: letter, Name: name, Heading: heading, Get: get}
	}
	num := func(letter byte, name, heading string, get func(s *runningRow) int64) format.Field[runningRow] {
		return format.Field[runningRow]{Letter: letter, Name: name, Heading: heading,
			Append: func(b []byte, s *runningRow) []byte { return strconv.AppendInt(b, get(s), 10) }}
	}
	return format.Language[runningRow]{Noun: "job step", Fields: []format.Field[runningRow]{
		num('A', "NumTasks", "TASKS", func(s *runningRow) int64 { return int64(s.Step.Tasks) }),
		text('b', "tres-per-node", "TRES_PER_NODE", func(s *runningRow) string { return stepGres(&s.Step) }),
		text('i', "StepID", "STEPID", func(s *runningRow) string { return stepID(s.RunningStep) }),
		text('j', "StepName", "NAME", func(s *runningRow) string { return s.Step.Name }),
		text('l', "TimeLimit", "TIME_LIMIT", func(s *runningRow) string { return stepLimit(s.RunningStep) }),
		{Letter: 'M', Name: "TimeUsed", Heading: "TIME", Append: func(b []byte, s *runningRow) []byte { return appendShort(b, s.elapsed()) }},
		{Letter: 'N', Name: "Nodes", Heading: "NODELIST", Whole: true, Get: func(s *runningRow) string { return hostlist.CompressInOrder(s.Step.Nodes) }},
		text('P', "Partition", "PARTITION", func(s *runningRow) string { return s.Partition }),
		{Letter: 'S', Name: "StartTime", Heading: "START_TIME", Append: func(b []byte, s *runningRow) []byte { return s.append(b, s.Step.Start, "N/A") }},
		text('u', "UserName", "USER", func(s *runningRow) string { return s.User }),
		num('U', "UserID", "USER", func(s *runningRow) int64 { return int64(s.UID) }),
		text(0, "StepState", "STATE", func(*runningRow) string { return "RUNNING" }),
		text(0, "Account", "ACCOUNT", func(s *runningRow) string { return orNull(s.Account) }),
		num(0, "NumCPUs", "CPUS", func(s *runningRow) int64 { return int64(s.Step.CPUs) }),
		num(0, "NumNodes", "NODES", func(s *runningRow) int64 { return int64(len(s.Step.Nodes)) }),
		num(0, "ArrayJobID", "ARRAY_JOB_ID", func(s *runningRow) int64 { return int64(cmp.Or(s.ArrayID, s.Job)) }),
		text(0, "ArrayTaskID", "ARRAY_TASK_ID", func(s *runningRow) string {
			if s.ArrayID == 0 {
				return "N/A"
			}
			return strconv.Itoa(int(s.Task))
		}),
		num(0, "JobID", "JOBID", func(s *runningRow) int64 { return int64(s.Job) }),
		text(0, "Name", "NAME", func(s *runningRow) string { return s.Step.Name }),
	}}
}

func stepGres(s *model.Step) string {
	var out []string
	for _, g := range s.Gres {
		name := "gres/" + g.Name
		if g.Type != "" {
			name += ":" + g.Type
		}
		out = append(out, name+":"+strconv.FormatInt(g.Count, 10))
	}
	return cmp.Or(strings.Join(out, ","), "N/A")
}

// parseStepRefs reads a list of steps: 12.0, 12_3.batch; 12 alone is all steps of a job.
func parseStepRefs(list string) ([]proto.StepRef, error) {
	var out []proto.StepRef
	for _, word := range splitIDs(list) {
		id, name, one := strings.Cut(word, ".")
		refs, err := parseJobRefs(id)
		if err != nil {
			return nil, err
		}
		step := proto.StepAll
		if one {
			if step, err = parseStepName(name, word); err != nil {
				return nil, err
			}
		}
		for _, r := range refs {
			out = append(out, proto.StepRef{Job: r, Step: step})
		}
	}
	return out, nil
}

func parseStepName(name, word string) (int32, error) {
	switch n, err := strconv.ParseInt(name, 10, 32); {
	case strings.EqualFold(name, "batch"):
		return proto.StepBatch, nil
	case err == nil && n >= 0:
		return int32(n), nil
	}
	return 0, fmt.Errorf("Invalid job step specified: '%s'; write JOB.NUMBER or JOB.batch", word)
}

// runningSteps asks for running steps, sorted by job and number, and says which nodes don't answer.
func (e *Env) runningSteps(c *client.Client, rq *proto.StepsRequest) (steps []proto.RunningStep, now model.Time, err error) {
	err = c.Stream(proto.KindSteps, rq, func(body []byte) error {
		var chunk proto.StepsChunk
		if err := proto.Decode(body, &chunk); err != nil {
			return err
		}
		steps, now = append(steps, chunk.Steps...), chunk.Now
		for _, m := range chunk.Missing {
			e.errorf("%s", m)
		}
		return nil
	})
	slices.SortFunc(steps, func(a, b proto.RunningStep) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Step.ID, b.Step.ID))
	})
	return steps, now, err
}

// listSteps prints one table of steps.
func (q *queue) listSteps() int {
	lang := stepLanguage()
	compile := func() (*format.Printer[runningRow], error) { return lang.Template(stepFormat) }
	switch q.layout {
	case 'o':
		compile = func() (*format.Printer[runningRow], error) { return lang.Template(q.template) }
	case 'O':
		compile = func() (*format.Printer[runningRow], error) { return lang.Columns(q.columns) }
	}
	p, err := compile()
	if err = q.unknownFields(err); err != nil {
		q.errorf("%v", err)
		return 1
	}
	c, err := q.connect()
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
		if steps, now, err = q.runningSteps(c, &proto.StepsRequest{Filter: q.rq.Filter, Steps: q.steps}); err != nil {
			return q.ended(err)
		}
		steps = slices.DeleteFunc(steps, func(s proto.RunningStep) bool { return hidden[s.Partition] })
	}
	view := &queueView{moments: q.moments(time.Now()), at: now}
	var b []byte
	if !q.noHeader {
		b = p.AppendHeader(b)
	}
	for i := range steps {
		b = p.AppendRow(b, &runningRow{&steps[i], view})
	}
	if _, err := q.Stdout.Write(b); err != nil {
		return 1
	}
	return 0
}

// showSteps is gcontrol show step [JOB[.STEP]].
func (c *control) showSteps(arg string) error {
	refs, err := parseStepRefs(arg)
	if err != nil {
		return err
	}
	cl, err := c.ask()
	if err != nil {
		return err
	}
	steps, _, err := c.runningSteps(cl, &proto.StepsRequest{Steps: refs})
	if err != nil {
		return plain{fmt.Errorf("slurm_get_job_steps error: %s", text(err))}
	}
	for i := range steps {
		c.print(showStep(&steps[i], c.times()))
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

// showStep gives a running step as scontrol show step does.
func showStep(s *proto.RunningStep, at *moments) *record {
	r := &record{}
	st := &s.Step
	limit := "UNLIMITED"
	if s.LimitS < model.Unlimited {
		limit = walltime.Elapsed(s.LimitS)
	}
	r.line(kv("StepId", stepID(s)), kv("UserId", s.UID), kv("StartTime", at.stamp(st.Start, "Unknown")), kv("TimeLimit", limit))
	r.line(kv("State", "RUNNING"), kv("Partition", s.Partition), kv("NodeList", hostlist.CompressInOrder(st.Nodes)))
	r.line(kv("Nodes", len(st.Nodes)), kv("CPUs", st.CPUs), kv("Tasks", st.Tasks), kv("Name", st.Name), kv("Network", "(null)"))
	r.line(kv("TRES", stepTRES(st)))
	r.line(kv("ResvPorts", "(null)"))
	r.line(kv("CPUFreqReq", "Default"))
	r.line(kv("SrunHost:Pid", fmt.Sprintf("%s:%d", s.Host, s.PID)))
	if st.Submit != "" {
		r.line(kv("SubmitLine", st.Submit))
	}
	return r
}

// stepTRES writes what a step holds; it is not billed for it.
func stepTRES(s *model.Step) string {
	text := tres(int64(s.CPUs), s.MemMiB, int64(len(s.Nodes)), s.Gres)
	return strings.Replace(text, fmt.Sprintf(",billing=%d", s.CPUs), "", 1)
}
