package page

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/hostlist"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/seff"
)

// jobLine is a job as a line of a list.
type jobLine struct {
	*model.Job
	Number    string // as users write it
	Ref       string // the same for addresses: tasks that wait are with all of their array
	Exact     string // what buttons of the line are about: those tasks alone
	Class     string
	StateWord string
	Part      string
	Size      string
	GPUs      gpuCount
	CPUs      int
	Why       string // Slurm's word, and what is known beside it
	Start     model.Time
	Likely    string // when it is likely to start
	Place     int32
	Where     string
	Elapsed   int64 // seconds
	Limit     int64 // seconds; 0: not known
	Left      *bar
	Use       *bar   // of its GPUs, now or as a mean
	Spark     *chart // its use in the last hour
	IdleS     int64  // for how long its GPUs have done nothing
	Mine      bool
	Tasks     int    // that have not started, of an array's own record
	MayAct    bool   // the reader may change it
	UseText   string // Use in words
}

// line makes a line of a job.
func (q *request) line(j *model.Job, rules *ask.Rulebook) *jobLine {
	l := &jobLine{Job: j, Number: jobtext.JobID(j), Ref: jobtext.RefText(refOf(j)), Class: class(j),
		StateWord: stateWord(j.State),
		Part:      cmp.Or(j.Partition(), strings.Join(j.Spec.Partitions, ",")), Mine: j.Spec.UID == q.who.UID}
	if l.Exact = l.Ref; j.IsArray() {
		l.Exact = jobtext.RefText(j.Ref())
	}
	if len(j.Spec.Partitions) > 1 && j.Run == nil {
		l.Part = strings.Join(j.Spec.Partitions, ",")
	}
	nodes, shares := 0, ""
	if j.Run != nil && j.Run.Alloc != nil {
		l.GPUs, nodes = gpusHeld(j), len(j.Run.Alloc.Nodes)
		l.Where = hostlist.CompressSorted(j.Run.Alloc.NodeNames())
		l.Elapsed, l.Start = j.ElapsedS(q.now), j.Run.Start
	} else {
		l.GPUs, nodes, shares = gpusAsked(j, rules.Of(j))
	}
	l.CPUs = ask.Job(j, rules.Of(j)).CPUs
	l.MayAct = q.p.o.Cluster.MayChange(q.who, j.Spec)
	l.Size = sizeText(nodes, l.GPUs, shares, j, rules)
	l.Tasks = j.Tasks.Count()
	if s := j.TimeLimitS(); s > 0 && s != model.NotSet && s != model.Unlimited {
		l.Limit = s
	}
	switch {
	case j.State == model.Pending:
		l.Why = reasonText(j.ReasonAt(q.now))
		if more := j.NotAvailText(); more != "" {
			l.Why += ", " + more
		}
		if j.Hold != model.NotHeld {
			l.StateWord = "held"
		}
		if e := j.Expect; e != nil {
			l.Start, l.Place, l.Likely = e.Start, e.Position, jobtext.Likely(e.Early, e.Late, q.now)
			if l.Where == "" {
				l.Where = hostlist.Compress(e.Nodes)
			}
		}
	case j.State.Finished():
		l.Why = sentence(j.EndText())
		if j.End != nil && j.End.Exit.Use != nil {
			l.meanUse(j)
		}
	default:
		if l.Limit > 0 {
			l.Left = barOf(l.Elapsed, l.Limit, span(l.Elapsed)+" of "+span(l.Limit))
		}
		if j.Expect != nil {
			l.IdleS = j.Expect.IdleS
		}
	}
	return l
}

// meanUse adds how busy what an ended job held was: its GPUs, or its CPUs where it had none.
func (l *jobLine) meanUse(j *model.Job) {
	if s := seff.GPUs(j.End.Exit.Use); s.Told > 0 {
		l.Use = barOf(s.UtilAve, 100, "")
		l.UseText = l.Use.Label + " of " + plural(s.Told, "GPU", "GPUs")
		return
	}
	cpus := int64(l.CPUs)
	if l.GPUs > 0 || l.Elapsed <= 0 || cpus <= 0 {
		return
	}
	user, sys := j.End.Exit.Use.CPUms()
	l.Use = barOf(user+sys, l.Elapsed*cpus*1000, "")
	l.UseText = l.Use.Label + " of " + plural(cpus, "CPU", "CPUs")
}

func stateWord(s model.JobState) string {
	return strings.ToLower(strings.ReplaceAll(s.String(), "_", " "))
}

// sizeText says how large a job is: 2 nodes, 16 GPUs; or its cores, where it has no GPU.
func sizeText(nodes int, gpus gpuCount, shares string, j *model.Job, rules *ask.Rulebook) string {
	var words []string
	if nodes > 1 {
		words = append(words, plural(nodes, "node", "nodes"))
	}
	if gpus > 0 {
		words = append(words, plural(gpus, "GPU", "GPUs"))
	}
	if shares != "" {
		words = append(words, shares)
	}
	if gpus == 0 && shares == "" {
		words = append(words, plural(ask.Job(j, rules.Of(j)).CPUs, "CPU", "CPUs"))
	}
	return strings.Join(words, ", ")
}

// refOf names a record: an array's own record is the whole array.
func refOf(j *model.Job) model.JobRef {
	switch {
	case j.IsArray():
		return model.JobRef{Job: j.ArrayID, Task: model.NoTask}
	case j.ArrayID != 0 && j.Task != model.NoTask:
		return model.JobRef{Job: j.ArrayID, Task: j.Task}
	}
	return model.JobRef{Job: j.ID, Task: model.NoTask}
}

// mine is the view of a user's own jobs.
type mine struct {
	Run, Wait, Ended []*jobLine
	Running, Waiting int // how many there are, at least
	MoreWait         string
	MoreRun          bool
	GPUs             gpuCount
	IdleGPUs         int
	Next             *jobLine // the first one to start
	After            string
	More             string // the whole address of the next rows
	Holds            bool
}

// myJobs lists what the reader has: what runs, what waits, and what has ended a short time ago.
func myJobs(q *request) (any, error) {
	m := &mine{After: q.r.URL.Query().Get("after")}
	after, _ := strconv.ParseInt(m.After, 10, 64) // 0 is the beginning
	me := []uint32{q.who.UID}
	var live, done []model.JobState
	for _, s := range model.JobStates() {
		switch {
		case s.Finished():
			done = append(done, s)
		case s != model.Pending:
			live = append(live, s)
		}
	}
	// In this order a job that begins between the questions is in two answers; in the other one it would be in none.
	wait, waitRules, moreWait, err := q.jobs(&proto.JobsRequest{Positions: true,
		Filter: proto.JobFilter{Users: me, States: []model.JobState{model.Pending}}}, maxRows,
		func(j *model.Job) bool { return int64(j.ID) > after })
	if err != nil {
		return nil, err
	}
	run, rules, more, err := q.jobs(&proto.JobsRequest{Filter: proto.JobFilter{Users: me, States: live}}, maxRows, nil)
	if err != nil {
		return nil, err
	}
	began := map[model.JobID]bool{}
	for _, j := range run {
		began[j.ID] = true
		l := q.line(j, rules)
		m.Run, m.GPUs = append(m.Run, l), m.GPUs+l.GPUs
	}
	m.Running, m.MoreRun = len(run), more
	for _, j := range wait {
		if began[j.ID] {
			continue
		}
		l := q.line(j, waitRules)
		m.Wait = append(m.Wait, l)
		if l.Start > 0 && (m.Next == nil || l.Start < m.Next.Start) {
			m.Next = l
		}
	}
	m.Waiting = len(m.Wait)
	if moreWait {
		m.MoreWait = fmt.Sprint(wait[len(wait)-1].ID)
	}
	slices.SortStableFunc(m.Wait, func(a, b *jobLine) int {
		return cmp.Or(cmp.Compare(startKey(a.Start), startKey(b.Start)), cmp.Compare(a.ID, b.ID))
	})
	m.IdleGPUs = q.useNow(m.Run)
	q.sparks(m.Run)
	var ended []*model.Job
	cut := func(n int) {
		slices.SortFunc(ended, func(a, b *model.Job) int { return cmp.Compare(endOf(b), endOf(a)) })
		ended = ended[:min(len(ended), n)]
	}
	_, rules, _, err = q.jobs(&proto.JobsRequest{Filter: proto.JobFilter{Users: me, States: done}}, 0,
		func(j *model.Job) bool {
			if ended = append(ended, j); len(ended) > 10*shownEnded {
				cut(shownEnded)
			}
			return false
		})
	if err != nil {
		return nil, err
	}
	cut(shownEnded)
	for _, j := range ended {
		m.Ended = append(m.Ended, q.line(j, rules))
	}
	return m, nil
}

// shownEnded is how many of the jobs that have ended are on the page.
const shownEnded = 25

func startKey(t model.Time) model.Time {
	if t == 0 {
		return model.Time(1<<62 - 1)
	}
	return t
}

func endOf(j *model.Job) model.Time {
	if j.End == nil {
		return 0
	}
	return j.End.At
}

// askedNodes is how many nodes are asked for their GPUs' use on one page of jobs.
const askedNodes = 64

// useNow adds how busy the GPUs of running jobs are now, and counts those that are idle. Where PrivateData hides nodes,
// nothing is added.
func (q *request) useNow(lines []*jobLine) (idle int) {
	var names []string
	for _, l := range lines {
		for _, n := range l.Run.Alloc.NodeNames() {
			if l.GPUs > 0 && len(names) < askedNodes && !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	if len(names) == 0 {
		return 0
	}
	util := map[unitOf]int32{}
	err := q.nodes(names, func(i *proto.NodeInfo) {
		for k := range i.Readings {
			if x := &i.Readings[k]; x.Name == model.GPUName && !x.Lost && x.UtilPct >= 0 {
				util[unitOf{i.Node.Def.Name, x.Index}] = x.UtilPct
			}
		}
	})
	if err != nil {
		return 0 // the list is whole without it
	}
	seen := map[unitOf]bool{} // a shared one is idle once
	for _, l := range lines {
		sum, n := int64(0), int64(0)
		eachGPU(l.Job, func(node string, gpu int32) {
			at := unitOf{node, gpu}
			v, known := util[at]
			if !known {
				return
			}
			sum, n = sum+int64(v), n+1
			if v < model.IdleGPUPct && !seen[at] {
				seen[at] = true
				idle++
			}
		})
		if n > 0 {
			l.Use = barOf(sum/n, 100, "")
			l.UseText = l.Use.Label + " of " + plural(l.GPUs, "GPU", "GPUs")
			if sum/n < model.IdleGPUPct {
				l.Use.Class = "low"
			}
		}
	}
	return idle
}

// saidWhy is why a job waits, for the script.
type saidWhy struct {
	Text   string   `json:"text"`
	Sooner []string `json:"sooner,omitempty"`
}

// why answers the script: why the reader's jobs wait, as far as one question explains them.
func (q *request) why() {
	var reply proto.WhyReply
	if err := q.ask(proto.KindWhy, &proto.WhyRequest{Mine: true}, &reply); err != nil {
		q.failed(err)
		return
	}
	out := map[string]saidWhy{}
	for _, x := range reply.List {
		first, _ := jobtext.WhyTold(x, reply.Now, &q.at)
		ref := explained(x)
		said := saidWhy{Text: sentence(beside(first))}
		for _, c := range q.sooner(x, reply.Now) {
			said.Sooner = append(said.Sooner, c.Option+" would start it "+c.When)
		}
		out[jobtext.RefText(ref)] = said
	}
	q.json(out)
}

// explained names the job of an explanation.
func explained(x *model.Explanation) model.JobRef {
	return refOf(&model.Job{ID: x.Job, ArrayID: x.ArrayID, Task: x.Task, Tasks: x.Tasks})
}

// change is something that would let a job start sooner.
type change struct{ Option, When, Where string }

func (q *request) sooner(x *model.Explanation, now model.Time) (out []change) {
	for _, c := range x.Changes {
		when := "now"
		if !c.Now {
			when = "at " + clock(c.Start, now)
		}
		out = append(out, change{c.Option, when, hostlist.Compress(c.Nodes)})
	}
	return out
}

// json writes an answer for the script.
func (q *request) json(v any) {
	q.w.Header().Set("Content-Type", "application/json")
	q.w.WriteHeader(http.StatusOK)
	_ = json.NewEncoder(q.w).Encode(v) // who has gone needs no answer
}
