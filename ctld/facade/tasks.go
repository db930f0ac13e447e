package facade

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/http"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"gbatch/ctld/pools"
	"gbatch/ctld/rest"
	"gbatch/internal/ask"
	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	jobrequest "gbatch/internal/cli/request"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/state"
)

// Task is a job as this interface shows it.
type Task struct {
	TaskID     string   `json:"task_id"`
	Status     string   `json:"status" enum:"pending,running,success,failed"`
	Priority   string   `json:"priority" enum:"high,low"`
	GPUCount   float64  `json:"gpu_count"`      // 0.5: half of one
	Allocated  []string `json:"allocated_gpus"` // GPU-0, with more than one node n1/GPU-0
	CreatedAt  *string  `json:"created_at"`
	StartedAt  *string  `json:"started_at"`
	FinishedAt *string  `json:"finished_at"`
	Name       string   `json:"name"`
	User       string   `json:"user"`
	Nodes      []string `json:"nodes"`
	ExitCode   *int32   `json:"exit_code"`
	Error      string   `json:"error,omitempty"` // why it waits or has failed

	// Of a task that waits, as gqueue --why --json has them: the sure start, and the range if jobs run as long as their
	// users' jobs do.
	Expected *string `json:"expected_start"`
	Early    *string `json:"likely_start_earliest"`
	Late     *string `json:"likely_start_latest"`
	Position *int32  `json:"position"` // in its queue, from 1, the best one of its partitions

	job *model.Job
}

const (
	high = "high"
	low  = "low"
	// lowNice is what tasks of low priority are submitted with where no QOS stands for them.
	lowNice = 1000
)

// classes are the classes of jobs by their words here.
var classes = map[string]pools.Class{high: pools.Online, low: pools.Batch}

func classOf(v *state.View, j *model.Job) string {
	if pools.ClassOf(v, j) == pools.Batch {
		return low
	}
	return high
}

func stamp(t model.Time) *string {
	if t <= 0 {
		return nil
	}
	s := time.UnixMilli(int64(t)).UTC().Format(time.RFC3339Nano)
	return &s
}

// statusOf gives the status of a job.
func statusOf(j *model.Job) string {
	switch {
	case j.State == model.Completed:
		return "success"
	case j.State.Finished():
		return "failed"
	case j.State == model.Pending:
		return "pending"
	}
	return "running"
}

// taskOf makes a task of a job.
func taskOf(j *model.Job, rules *model.AskRules, facts *rest.Facts) *Task {
	t := &Task{TaskID: "task-" + jobtext.JobID(j), Status: statusOf(j), Priority: classOf(facts.View, j),
		Name: j.Spec.Name, User: j.Spec.User, CreatedAt: stamp(j.Submit), Allocated: []string{}, Nodes: []string{}, job: j}
	t.GPUCount = gpusAsked(j, rules, facts.View)
	if j.Run != nil && j.Run.Alloc != nil {
		t.StartedAt = stamp(j.Run.Start)
		t.Nodes = j.Run.Alloc.NodeNames()
		for i := range j.Run.Alloc.Nodes {
			n := &j.Run.Alloc.Nodes[i]
			gpusOf(n).Each(func(u int) bool {
				name := "GPU-" + strconv.Itoa(u)
				if len(j.Run.Alloc.Nodes) > 1 {
					name = n.Node + "/" + name
				}
				t.Allocated = append(t.Allocated, name)
				return true
			})
		}
	}
	if j.End != nil && j.State.Finished() {
		t.FinishedAt, t.ExitCode = stamp(j.End.At), &j.End.Exit.Code
	}
	if e := j.Expect; e != nil && t.Status == "pending" {
		t.Expected, t.Early, t.Late = stamp(e.Start), stamp(e.Early), stamp(e.Late)
		if e.Position > 0 {
			t.Position = &e.Position
		}
	}
	if t.Status == "pending" || t.Status == "failed" {
		t.Error = cmp.Or(j.Why, j.ReasonAt(facts.Now).String())
	}
	return t
}

// gpusOf gives the GPUs of which a job has something on a node.
func gpusOf(n *model.NodeAlloc) (all model.Bits) {
	for i := range n.Gres {
		switch g := &n.Gres[i]; {
		case g.Share != nil:
			all = all.With(int(g.Share.GPU))
		case g.Name == model.GPUName:
			all = all.Or(g.Index)
		}
	}
	return all
}

// gpusAsked says how many GPUs a job asks for: of shares, what part of a GPU they are. If their number is given, that
// depends on the GPU; of a job that waits it is as on the first node that has some.
func gpusAsked(j *model.Job, rules *model.AskRules, v *state.View) float64 {
	gres := ask.Asked(j.Spec, rules).Gres
	if slices.ContainsFunc(gres, func(g model.GresCount) bool { return model.IsShare(g.Name) }) {
		if j.Run != nil && j.Run.Alloc != nil {
			return rounded(float64(j.Run.Alloc.GPUMicros()) / model.GPU)
		}
		for i := range j.Spec.Gres { // --gpus=0.5
			if g := &j.Spec.Gres[i]; g.Milli > 0 {
				return float64(g.Milli) / 1000
			}
		}
	}
	return partOf(gres, v)
}

// mostShares gives the most shares of a kind that a GPU has, of the first node that has some.
func mostShares(v *state.View, kind string) (most int64) {
	if v == nil || !model.IsShare(kind) {
		return 0
	}
	v.Nodes(func(n *model.Node) bool {
		for i := range n.Def.Gres {
			for _, x := range n.Def.Gres[i].Over {
				if n.Def.Gres[i].Name == kind {
					most = max(most, int64(x.Count))
				}
			}
		}
		return most == 0
	})
	return most
}

// each gives the jobs that match, in no order that means anything; of an array that is named its own record comes
// first. rules gets what their sizes follow.
func (q *request) each(f proto.JobFilter, rules *ask.Rulebook, see func(*model.Job)) error {
	if f.States == nil {
		f.States = model.JobStates()
	}
	return q.stream(proto.KindJobs, &proto.JobsRequest{Filter: f, Positions: true}, func(part []byte) error {
		var chunk proto.JobsChunk
		if err := proto.Decode(part, &chunk); err != nil {
			return err
		}
		rules.Add(chunk.Rules)
		for _, j := range chunk.Jobs {
			see(j)
		}
		return nil
	})
}

// newest gives the newest tasks that match and are to be kept, the newest first, and how many there are.
func (q *request) newest(f proto.JobFilter, keep func(*model.Job) bool, most int) (list []*Task, total int, err error) {
	var jobs []*model.Job
	cut := func() {
		slices.SortStableFunc(jobs, func(a, b *model.Job) int { return cmp.Compare(b.ID, a.ID) })
		clear(jobs[min(most, len(jobs)):])
		jobs = jobs[:min(most, len(jobs))]
	}
	rules := &ask.Rulebook{}
	err = q.each(f, rules, func(j *model.Job) {
		if !keep(j) {
			return
		}
		if total++; len(jobs) >= 2*most {
			cut()
		}
		jobs = append(jobs, j)
	})
	cut()
	facts := q.f.Cluster.Facts()
	for _, j := range jobs {
		list = append(list, taskOf(j, rules.Of(j), &facts))
	}
	return list, total, err
}

// newestOf cuts a list to the newest tasks, the newest first.
func newestOf(list []*Task, most int) []*Task {
	slices.SortStableFunc(list, func(a, b *Task) int { return cmp.Compare(b.job.ID, a.job.ID) })
	return list[:min(most, len(list))]
}

// ref reads a task's number: task-12, 12, 12_3.
func ref(id string) (model.JobRef, error) {
	r, err := env.ParseJobRef(strings.TrimPrefix(id, "task-"))
	if err != nil {
		return r, &wrong{http.StatusNotFound, "there is no task " + id}
	}
	return r, nil
}

// Answers about tasks.
type (
	tasksReply struct {
		Tasks []*Task `json:"tasks"`
		Total int     `json:"total"`          // that match, whatever limit= says
		Note  string  `json:"note,omitempty"` // what is missing, and why
	}
	submitted struct {
		TaskID    string `json:"task_id"`
		Status    string `json:"status" enum:"pending"`
		CreatedAt string `json:"created_at"`
		Note      string `json:"note,omitempty"` // what was asked for and is not so
	}
	cancelled struct {
		Success bool   `json:"success"`
		TaskID  string `json:"task_id"`
		Status  string `json:"status" enum:"pending,running,success,failed"`
	}
)

// tasks lists tasks.
func (q *request) tasks(string) (any, error) {
	var f proto.JobFilter
	set := q.r.URL.Query()
	most := maxTasks
	for name := range set {
		v := set.Get(name)
		switch name {
		case "status":
			if !slices.Contains([]string{"pending", "running", "success", "failed"}, v) {
				return nil, bad("status=%s: it is pending, running, success or failed", v)
			}
		case "user":
			u, err := q.f.Cluster.Person(q.ctx, v)
			if err != nil {
				return nil, err
			}
			f.Users = []uint32{u.UID}
		case "limit":
			n, err := strconv.Atoi(v)
			if err != nil || n < 1 || n > maxTasks {
				return nil, bad("limit=%s: it is 1 to %d", v, maxTasks)
			}
			most = n
		}
	}
	want := set.Get("status")
	list, total, err := q.newest(f, func(j *model.Job) bool { return want == "" || statusOf(j) == want }, most)
	if err != nil {
		return nil, err
	}
	note := ""
	if want == "success" || want == "failed" {
		var more int
		list, more, note = q.lately(want, f.Users, list, most)
		total += more
	}
	return tasksReply{append([]*Task{}, list...), total, note}, nil
}

func (q *request) task(id string) (any, error) { return q.one(id) }

// submission is what a client sends. Options are words of gsubmit, such as --mem=4G. Variables that it gives come
// before those of the user's login shell; with a PATH among them that shell is not asked.
type submission struct {
	Priority    string            `json:"priority,omitempty" enum:"high,low"`
	GPUCount    *float64          `json:"gpu_count,omitempty"` // below 1: a part of one
	Command     string            `json:"command"`
	Name        string            `json:"name,omitempty"`
	Directory   string            `json:"directory,omitempty"`
	Environment map[string]string `json:"environment,omitempty"`
	Options     []string          `json:"options,omitempty"`
}

// submit submits a task.
func (q *request) submit(string) (any, error) {
	var s submission
	if err := q.body(&s); err != nil {
		return nil, err
	}
	switch {
	case s.Priority != high && s.Priority != low && s.Priority != "":
		return nil, bad("priority is \"high\" or \"low\", not %q", s.Priority)
	case s.GPUCount != nil && (*s.GPUCount < 0 || *s.GPUCount > 1 && *s.GPUCount != math.Trunc(*s.GPUCount)):
		return nil, bad("gpu_count is a whole number, or a part of one GPU such as 0.5, not %v", *s.GPUCount)
	case strings.TrimSpace(s.Command) == "":
		return nil, bad("the task has no command")
	case s.Directory != "" && !path.IsAbs(s.Directory):
		return nil, bad("directory has to begin with /, not %q", s.Directory)
	}
	words := []string{"--job-name=" + cmp.Or(s.Name, "task")}
	if s.GPUCount != nil && *s.GPUCount > 0 {
		words = append(words, "--gpus="+strconv.FormatFloat(*s.GPUCount, 'f', -1, 64))
	}
	for _, o := range s.Options {
		if !strings.HasPrefix(o, "--") {
			return nil, bad("options: '%s' does not begin with --", o)
		}
		words = append(words, o)
	}
	got, err := jobrequest.From(words, func(v string) (model.Time, error) {
		if t, ok := ask.ParseMoment(v); ok {
			return t, nil
		}
		return 0, fmt.Errorf("'%s' is no number of seconds since 1970", v)
	})
	if err != nil {
		return nil, bad("%s", plainly(err))
	}
	sp := &got.Spec
	note := q.priority(s.Priority, sp)
	sp.WorkDir, sp.Umask, sp.Submit = path.Clean(cmp.Or(s.Directory, "/tmp")), 0o022, "POST "+Prefix+"/tasks"
	var names []string
	var vars []byte
	if s.Environment["PATH"] == "" {
		vars = []byte("PATH=/usr/local/bin:/usr/bin:/bin\x00SLURM_GET_USER_ENV=1\x00")
	}
	for k := range s.Environment {
		names = append(names, k)
	}
	sort.Strings(names)
	for _, k := range names {
		if v := s.Environment[k]; k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return nil, bad("environment: %q is no name or value of a variable", k)
		}
		vars = append(append(vars, k+"="+s.Environment[k]...), 0)
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	rq := &proto.SubmitRequest{RequestID: hex.EncodeToString(id[:]), Spec: sp,
		Script: []byte("#!/bin/sh\n" + s.Command + "\n"), Env: vars}
	var done proto.SubmitReply
	if err := q.ask(proto.KindSubmit, rq, &done); err != nil {
		return nil, err
	}
	created := time.Now().UTC().Format(time.RFC3339Nano)
	if t, err := q.one(strconv.Itoa(int(done.Job))); err == nil && t.CreatedAt != nil { // it is in the queue in any case
		created = *t.CreatedAt
	}
	return submitted{"task-" + strconv.Itoa(int(done.Job)), "pending", created, note}, nil
}

// plainly says what is wrong with options, without a command's name and its help.
func plainly(err error) string {
	var own *getopt.Error
	if !errors.As(err, &own) {
		return err.Error()
	}
	text := "options: " + strings.ReplaceAll(own.Text, "\n", "; ")
	if own.Hint != "" {
		text += " (" + own.Hint + ")"
	}
	return text
}

// priority gives a task its priority: a QOS that stands for it, if the task's account may use it, or for low a nice
// value. What the task's options say comes first. note says why a QOS that there is was not used.
func (q *request) priority(class string, sp *model.Spec) (note string) {
	v := q.f.Cluster.Facts().View
	account, part, barred := cmp.Or(sp.Account, q.f.Cluster.Account(q.who.User)), "", ""
	if len(sp.Partitions) > 0 {
		part = sp.Partitions[0]
	}
	allowed, _ := v.QOSOf(account, q.who.User, part)
	for _, name := range classes[class].QOS() {
		switch {
		case sp.QOS != "" || v.QOS(name) == nil:
		case !v.Config().Params.EnforceQOS || slices.Contains(allowed, name):
			sp.QOS = name
			return ""
		default:
			barred = cmp.Or(barred, name)
		}
	}
	if barred != "" {
		note = fmt.Sprintf("account %s may not use QOS %s, so the task is submitted without it; an administrator can "+
			"allow it: gacctmgr modify user %s where account=%[1]s set qos+=%[2]s", account, barred, q.who.User)
	}
	if class == low && sp.QOS == "" && sp.Nice == 0 {
		sp.Nice = lowNice
	}
	return note
}

// cancel cancels a task.
func (q *request) cancel(id string) (any, error) {
	r, err := ref(id)
	if err != nil {
		return nil, err
	}
	rq := &proto.CancelRequest{Targets: []model.JobRef{r}}
	var done proto.TargetsReply
	err = q.ask(rq.Kind(), rq, &done)
	if err == nil {
		err = failed(&done)
	}
	var own *rpc.Error
	if errors.As(err, &own) && own.Code == proto.CodeInvalidJob { // accounting may know it
		t, known := q.one(id)
		if known == nil {
			known = &wrong{http.StatusConflict, t.TaskID + " has ended: " + t.Status}
		}
		return nil, known
	}
	if err != nil {
		return nil, err
	}
	t, err := q.one(id)
	if err != nil {
		return nil, err
	}
	return cancelled{true, t.TaskID, t.Status}, nil
}

// failed gives the first error of an answer.
func failed(done *proto.TargetsReply) error {
	for i := range done.Results {
		switch x := &done.Results[i]; x.Code {
		case 0:
		case proto.CodeAlreadyDone:
			return &wrong{http.StatusConflict, x.Text}
		default:
			return &rpc.Error{Code: x.Code, Text: x.Text}
		}
	}
	return nil
}
