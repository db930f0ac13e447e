package page

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/cli/env"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/seff"
	"gbatch/internal/walltime"
)

// pair is a name and a value.
type pair struct{ Name, Value string }

// happened is one thing that happened to a job.
type happened struct {
	At   model.Time
	What string
}

// job is the view of one job.
type job struct {
	*jobLine
	Ref      string
	Show     string // scontrol's text
	Facts    []pair
	Causes   []string
	Sooner   []change
	Position []model.QueuePlace
	Events   []happened
	GPUList  []gpuOf
	Charts   []*chart // what it used over time
	EachGPU  []*chart
	Steps    []stepOf
	Tasks    []*jobLine // of an array, or components
	MoreJobs bool
	Use      []pair // seff's lines
	Advice   string
	UseNote  string
	Script   string
	Out, Err string
	Tails    []tail // the ends of its output
	TailWhy  string // why there is none
	Command  string // that reads more of it
	Array    string // what has become of an array's tasks, in words
	May      bool   // its owner, or somebody who may see as much
	Past     *model.Record
}

// gpuOf is one GPU of a job.
type gpuOf struct {
	jobtext.GPULook
	Part string // how much of it jobs hold, if it is shared
	Use  *bar
	Mem  *bar
}

// stepOf is a running step.
type stepOf struct {
	ID, Name, Nodes string
	Tasks           int32
	Start           model.Time
	ForS            int64
}

// adviseRunningS is how long a job has to run before the page says what to ask for next time, seconds.
const adviseRunningS = 600

// shownScript bounds how much of a script is on the page, bytes.
const shownScript = 64 << 10

// oneJob shows one job: what it asked for and uses, what happened, and what to ask for next time.
func oneJob(q *request) (any, error) {
	ref, err := env.ParseJobRef(q.rest)
	if err != nil {
		return nil, rpc.Errorf(proto.CodeInvalidJob, "%s", err)
	}
	rq := &proto.JobsRequest{Positions: true}
	rq.Filter.Jobs, rq.Filter.States = []model.JobRef{ref}, model.JobStates()
	sum := tally{}
	list, rules, _, err := q.jobs(rq, maxRows, sum.add)
	var said *rpc.Error
	switch {
	case errors.As(err, &said) && said.Code == proto.CodeInvalidJob, err == nil && len(list) == 0:
		return q.pastJob(ref)
	case err != nil:
		return nil, err
	}
	x := &job{jobLine: q.line(list[0], rules), Ref: q.rest, MoreJobs: sum.all > len(list)}
	for _, j := range list[1:] {
		x.Tasks = append(x.Tasks, q.line(j, rules))
	}
	if len(list) > 1 {
		x.Tasks = append([]*jobLine{q.line(list[0], rules)}, x.Tasks...)
	}
	j := list[0]
	if whole := j.ArrayID != 0 && ref.Task == model.NoTask && len(list) > 1; whole {
		x.wholeArray(&sum)
	}
	q.name = strings.TrimSpace("Job " + x.Number + " " + j.Spec.Name)
	if x.Array != "" {
		x.facts(q, j, rules)
		q.whyOne(x, ref)
		q.script(x, j.ID)
		return x, nil
	}
	x.Show = strings.TrimSpace(jobtext.ShowJob(j, rules.Of(j), q.now, &jobtext.Times{Now: q.at.Now}, true).Text(false))
	x.facts(q, j, rules)
	x.Events = events(j, q.now)
	if j.State == model.Pending || len(list) > 1 {
		q.whyOne(x, ref)
	}
	if j.Run != nil && j.Run.Alloc != nil && !j.State.Finished() {
		q.jobGPUs(x, j)
		q.steps(x, ref)
	}
	if x.Out, x.Err = j.OutputFiles(); j.IsArray() && j.Run == nil { // each task has its own
		x.Out, x.Err = "", ""
	}
	if j.Run != nil && j.Run.Alloc != nil && len(j.Run.Alloc.Nodes) > 0 && !j.Spec.Extra().Interactive {
		q.tails(x, j)
	}
	if j.Run != nil && len(list) == 1 {
		to := model.Time(0)
		if j.End != nil {
			to = j.End.At
		}
		size := jobSize{cpus: int64(x.CPUs), memMiB: ask.Job(j, rules.Of(j)).MemMiB}
		for k := range x.GPUList {
			size.gpuMiB += max(0, x.GPUList[k].AllMiB)
		}
		q.overTime(x, j.ID, j.Run.Start, to, size)
	}
	q.script(x, j.ID)
	if j.Run != nil || j.State.Finished() {
		q.efficiency(x, ref, j)
	}
	return x, nil
}

// facts are the first things that somebody wants to know of a job.
func (x *job) facts(q *request, j *model.Job, rules *ask.Rulebook) {
	add := func(name, value string) {
		if value != "" {
			x.Facts = append(x.Facts, pair{name, value})
		}
	}
	sp, size := j.Spec, ask.Job(j, rules.Of(j))
	add("User", sp.User)
	add("Account", sp.Account)
	add("QOS", sp.QOS)
	add("Partition", x.Part)
	add("Priority", strconv.FormatUint(uint64(j.Priority), 10))
	add("Size", x.Size)
	add("CPUs", strconv.Itoa(size.CPUs))
	add("Memory", memoryText(sp, size.MemMiB))
	if limit := j.TimeLimitS(); limit != model.NotSet {
		add("Time limit", walltime.Limit(limit, limit == model.Unlimited))
	}
	if j.End != nil && j.Run != nil {
		add("Exit code", exitText(&j.End.Exit))
	}
	add("Nodes", x.Where)
	add("Directory", sp.WorkDir)
	add("Reservation", j.ReservationText())
	add("Features", sp.Features)
	add("Dependency", sp.DepText)
	add("Comment", sp.Comment)
}

// memoryText says how much memory a job asked for, or holds.
func memoryText(sp *model.Spec, all int64) string {
	switch {
	case all > 0:
		return walltime.FormatRounded(all)
	case sp.MemPerNode > 0:
		return walltime.FormatRounded(sp.MemPerNode) + " on each node"
	case sp.MemPerCPU > 0:
		return walltime.FormatRounded(sp.MemPerCPU) + " for each CPU"
	}
	return "the default"
}

// events tells what happened to a job, in order, as far as its own record knows.
func events(j *model.Job, now model.Time) (out []happened) {
	add := func(t model.Time, what string) {
		if t > 0 && t <= now {
			out = append(out, happened{t, what})
		}
	}
	add(j.Submit, "Submitted")
	if j.Eligible > j.Submit+1000 {
		add(j.Eligible, "Nothing but resources was missing from here on")
	}
	if r := j.Run; r != nil {
		add(r.Start, "Got its resources")
		add(r.Launched, "Its script started")
		if r.Stop != model.NoStop {
			why := j.StopText()
			if why == "" {
				why = "It is being ended"
			}
			add(r.StopAt, sentence(why))
		}
	}
	if j.Restarts > 0 {
		out = append(out, happened{0, plural(j.Restarts, "earlier start", "earlier starts") +
			", after which it went back into the queue"})
	}
	if j.End != nil {
		what := "Ended " + j.State.String()
		if why := j.EndText(); why != "" {
			what += ": " + why
		}
		add(j.End.At, what)
	}
	return out
}

// whyOne adds why a job waits.
func (q *request) whyOne(x *job, ref model.JobRef) {
	var reply proto.WhyReply
	if err := q.ask(proto.KindWhy, &proto.WhyRequest{Jobs: []model.JobRef{ref}}, &reply); err != nil {
		x.Causes = []string{sentence(env.Text(err))}
		return
	}
	for _, e := range reply.List {
		if e.State != model.Pending {
			continue
		}
		_, all := jobtext.WhyTold(e, reply.Now, &q.at)
		for _, text := range all {
			x.Causes = append(x.Causes, sentence(beside(text)))
		}
		x.Sooner = append(x.Sooner, q.sooner(e, reply.Now)...)
		x.Position = append(x.Position, e.Places...)
		if e.Start > 0 {
			x.Start = e.Start
		}
		x.Likely = jobtext.Likely(e.Early, e.Late, reply.Now)
	}
}

// jobGPUs adds what each GPU of a job does now.
func (q *request) jobGPUs(x *job, j *model.Job) {
	names := j.Run.Alloc.NodeNames()
	if x.GPUs == 0 {
		return
	}
	held := map[string]model.Bits{}
	eachGPU(j, func(node string, gpu int32) { held[node] = held[node].With(int(gpu)) })
	_ = q.nodes(names[:min(len(names), askedNodes)], func(i *proto.NodeInfo) { // without them the page is still of use
		rows := jobtext.GPURows(i)
		for k := range rows {
			l := rows[k].Look()
			if !held[l.Node].Has(int(l.Index)) {
				continue
			}
			x.GPUList = append(x.GPUList, gpuLine(i, &rows[k]))
		}
	})
}

// steps adds the running steps.
func (q *request) steps(x *job, ref model.JobRef) {
	rq := &proto.StepsRequest{}
	rq.Filter.Jobs = []model.JobRef{ref}
	_ = q.stream(proto.KindSteps, rq, func(part []byte) error { // a node that doesn't answer leaves out its steps
		var chunk proto.StepsChunk
		if err := proto.Decode(part, &chunk); err != nil {
			return err
		}
		for i := range chunk.Steps {
			s := &chunk.Steps[i]
			if len(x.Steps) == maxRows {
				return errEnough
			}
			x.Steps = append(x.Steps, stepOf{ID: jobtext.StepID(s), Name: s.Step.Name, Nodes: strings.Join(s.Step.Nodes, ","),
				Tasks: s.Step.Tasks, Start: s.Step.Start, ForS: max(0, int64(q.now-s.Step.Start)/1000)})
		}
		return nil
	})
}

// script adds the job's script, for its owner.
func (q *request) script(x *job, id model.JobID) {
	var reply proto.ScriptReply
	if err := q.ask(proto.KindScript, &proto.ScriptRequest{Job: id}, &reply); err != nil {
		return // it is not this reader's
	}
	x.May = true
	if len(reply.Script) > shownScript {
		reply.Script = append(reply.Script[:shownScript:shownScript], "\n..."...)
	}
	x.Script = strings.ToValidUTF8(string(reply.Script), "\uFFFD")
}

// records gives what accounting has of a job.
func (q *request) records(ref model.JobRef, most int) (list []*model.Record, err error) {
	err = q.stream(proto.KindAcct, &proto.AcctRequest{Jobs: []model.JobRef{ref}}, func(part []byte) error {
		var chunk proto.RecordsChunk
		if err := proto.Decode(part, &chunk); err != nil {
			return err
		}
		if chunk.Note != "" {
			q.note = chunk.Note
		}
		for _, r := range chunk.Records {
			if len(list) == most {
				return errEnough
			}
			list = append(list, r)
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return list, err
}

// efficiency adds what gseff tells of a job, with what it uses now if it runs and the reader may know.
func (q *request) efficiency(x *job, ref model.JobRef, j *model.Job) {
	list, err := q.records(ref, 1)
	if err != nil {
		x.UseNote = sentence(env.Text(err))
		return
	}
	if len(list) == 0 || list[0].Start == 0 {
		return
	}
	r := list[0]
	var use *model.Usage
	if r.End == 0 {
		var reply proto.StatReply
		if !j.State.HasResources() || q.ask(proto.KindStat, &proto.StatRequest{Jobs: []model.JobRef{ref}}, &reply) != nil {
			return // it is not this reader's
		}
		for i := range reply.Steps {
			if u := reply.Steps[i].Use; u != nil && reply.Steps[i].Job == r.Job {
				if use == nil {
					use = &model.Usage{}
				}
				use.Add(u)
			}
		}
		if use == nil {
			return
		}
		x.UseNote = "The job is running: this is what it has used until now."
	}
	x.used(r, use, q.now)
}

func (x *job) used(r *model.Record, use *model.Usage, now model.Time) {
	s := seff.Of(r, use, now)
	var b strings.Builder
	s.Write(&b)
	for line := range strings.Lines(b.String()) {
		name, value, _ := strings.Cut(strings.TrimRight(line, "\n"), ": ")
		x.Use = append(x.Use, pair{strings.TrimSpace(name), value})
	}
	if r.End == 0 && r.HeldS(now) < adviseRunningS { // its beginning says little of the whole
		return
	}
	x.Advice = sentence(s.Advice())
}

// pastJob shows a job that only accounting knows.
func (q *request) pastJob(ref model.JobRef) (any, error) {
	list, err := q.records(ref, 1)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, rpc.Errorf(proto.CodeInvalidJob,
			"There is no job %s: neither the controller nor accounting knows it.", q.rest)
	}
	r := list[0]
	x := &job{jobLine: &jobLine{Class: classOf(r.State), StateWord: stateWord(r.State)}, Past: r, Ref: q.rest,
		Out: r.StdOut, Err: r.StdErr}
	q.name = strings.TrimSpace("Job " + q.rest + " " + r.Name)
	x.pastFacts(r)
	for _, e := range []happened{{r.Submit, "Submitted"}, {r.Start, "Started"}, {r.End, "Ended " + r.State.String()}} {
		if e.At > 0 {
			x.Events = append(x.Events, e)
		}
	}
	if why := r.EndText(); why != "" {
		x.Causes = []string{sentence(why)}
	}
	if r.Start > 0 {
		q.overTime(x, r.Job, r.Start, r.End, jobSize{cpus: int64(r.AllocCPUs), memMiB: r.AllocMemMiB})
	}
	if r.Start > 0 && r.End > 0 {
		x.used(r, nil, q.now)
	}
	return x, nil
}

// exitText says with what a script ended.
func exitText(x *model.Exit) string {
	switch {
	case x.Unknown:
		return "not known"
	case x.Signal != 0:
		return fmt.Sprintf("signal %d", x.Signal)
	}
	return strconv.Itoa(int(x.Code))
}

// pastFacts are the facts of a job that only accounting knows.
func (x *job) pastFacts(r *model.Record) {
	_, size := recordSize(r)
	exit, cpus, mem := "", "", ""
	if r.End != 0 && r.Start != 0 {
		exit = exitText(&r.Exit)
	}
	if r.AllocCPUs > 0 {
		cpus = strconv.Itoa(int(r.AllocCPUs))
	}
	if r.AllocMemMiB > 0 {
		mem = walltime.FormatRounded(r.AllocMemMiB)
	}
	limit := ""
	if r.LimitS != 0 && r.LimitS != model.NotSet {
		limit = walltime.Limit(r.LimitS, r.LimitS == model.Unlimited)
	}
	for _, p := range []pair{{"User", r.User}, {"Account", r.Account}, {"QOS", r.QOS}, {"Partition", r.Partition},
		{"Size", size}, {"CPUs", cpus}, {"Memory", mem}, {"Time limit", limit}, {"Ran", span(r.ElapsedS())},
		{"Exit code", exit}, {"Nodes", r.Nodes}, {"Directory", r.WorkDir}, {"Reservation", r.Reservation},
		{"Features", r.Constraints}, {"Comment", r.Comment}} {
		if p.Value != "" {
			x.Facts = append(x.Facts, p)
		}
	}
}
