package rest

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/ask"
	jobrequest "gbatch/internal/cli/request"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// submission.go makes the request to submit a job, of one component or several, of its description.

// external is the script of a job whose processes are somebody else's: it holds the resources until it is ended.
const external = "#!/bin/sh\n# A job whose processes another system runs (EXTERNAL_JOB).\nexec sleep infinity\n"

// described reads a description by the table of gsubmit's options.
func described(b *object) (*jobrequest.Submission, error) {
	opts, err := describe(b)
	if err != nil {
		return nil, err
	}
	s, err := jobrequest.From(opts, func(v string) (model.Time, error) {
		t, ok := ask.ParseMoment(v)
		if !ok {
			return 0, fmt.Errorf("'%s' is no number of seconds since 1970", v)
		}
		return t, nil
	})
	if err != nil {
		return nil, &fault{Number: errUnexpected, Text: "Invalid job description", Detail: b.path + err.Error()}
	}
	return s, nil
}

// limitsOf reads rlimits.
func (q *request) limitsOf(b *object) {
	if l := b.object("rlimits"); l != nil {
		if says(l.m) {
			q.warn(b.path + "rlimits: jobs have their node's limits")
		}
		l.m, l.read = map[string]any{}, map[string]bool{}
	}
}

// submission makes a submission of a description. script stands beside the description in older forms.
func (q *request) submission(b *object, script string, outside bool) (*proto.SubmitRequest, error) {
	s, err := described(b)
	if err != nil {
		return nil, err
	}
	outside = outside || hasFlag(b, "EXTERNAL_JOB")
	sp := &s.Spec
	if v := b.str("script"); v != "" {
		script = v
	}
	env, given := b.words("environment")
	switch {
	case outside && script != "":
		return nil, &fault{Number: 2189, Text: "Invalid external job",
			Detail: "a job with the flag EXTERNAL_JOB has no script"}
	case outside:
		script = external
	case script == "":
		return nil, &fault{Number: errNoScript, Detail: "the job has no script", Status: http.StatusUnprocessableEntity}
	case !given || len(env) == 0:
		return nil, &fault{Number: errNoEnvironment,
			Detail: "environment needs at least one variable, such as PATH=/bin:/usr/bin"}
	}
	var vars []byte
	for _, kv := range env {
		if strings.ContainsRune(kv, 0) || !strings.Contains(kv, "=") {
			return nil, &fault{Number: errConversion, Detail: "environment: '" + kv + "' is not NAME=value",
				Status: http.StatusBadRequest}
		}
		vars = append(append(vars, kv...), 0)
	}
	sp.WorkDir = b.str("current_working_directory")
	if sp.WorkDir == "" {
		sp.WorkDir = "/tmp"
	} else {
		sp.WorkDir = path.Clean(sp.WorkDir)
	}
	if sp.Name == "" {
		sp.Name = "openapi"
	}
	sp.Args, _ = b.words("argv")
	if len(sp.Args) > 0 {
		sp.Command, sp.Args = sp.Args[0], sp.Args[1:]
	}
	if outside {
		if sp.More == nil {
			sp.More = &s.More
		}
		sp.More.Interactive, sp.StdOut, sp.Requeue, sp.NoRequeue = true, "/dev/null", false, true
		sp.More.External = hasFlag(b, "EXTERNAL_JOB")
	}
	sp.Umask = 0o022
	sp.Submit = "POST " + q.r.URL.Path
	sp.Submit = sp.Submit[:min(len(sp.Submit), proto.MaxFieldBytes)]
	q.limitsOf(b)
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	return &proto.SubmitRequest{RequestID: hex.EncodeToString(id[:]), Spec: sp, Script: []byte(script), Env: vars,
		TestOnly: hasFlag(b, "TEST_NOW_ONLY")}, b.top().err
}

func hasFlag(b *object, name string) bool {
	list, _ := b.list("flags")
	return slices.ContainsFunc(list, func(f string) bool { return strings.EqualFold(f, name) })
}

// as makes the request one of the user and the group whom the description names, by name or number, if the caller may
// name others.
func (q *request) as(b *object) error {
	user, group := b.str("user_id"), b.str("group_id")
	if user != "" && user != q.who.User && user != strconv.FormatUint(uint64(q.who.UID), 10) {
		if !q.s.o.Cluster.Trusted(q.who) {
			return &fault{Number: 2168, Text: "Invalid user id", Detail: "user_id: a job is submitted for oneself",
				Status: http.StatusForbidden}
		}
		who, err := q.s.o.Cluster.Person(q.ctx, user)
		if err != nil {
			return err
		}
		q.who = who
	}
	if group == "" || group == q.who.Group || group == strconv.FormatUint(uint64(q.who.GID), 10) {
		return nil
	}
	who, err := q.s.o.Cluster.InGroup(q.ctx, q.who, group)
	if err == nil {
		q.who = who
	}
	return err
}

// whole makes one request of a job's components, in order; the script runs in the first one.
func (q *request) whole(parts []*object, script string, outside bool) (*proto.SubmitRequest, error) {
	if len(parts) == 0 || len(parts) > model.MaxHet {
		return nil, &fault{Number: 9002, Text: "Invalid job description",
			Detail: fmt.Sprintf("a heterogeneous job has 1 to %d components", model.MaxHet)}
	}
	rq, err := q.submission(parts[0], script, outside)
	if err != nil {
		return nil, err
	}
	for i, p := range parts[1:] {
		if v := p.str("script"); v != "" {
			return nil, unsupported(p.path + "script: the script runs in the first component; start steps in the others by " +
				"srun --het-group=" + strconv.Itoa(i+1))
		}
		one, err := q.component(p, rq)
		if err != nil {
			return nil, err
		}
		rq.Rest = append(rq.Rest, one)
	}
	return rq, nil
}

// component reads one of the later components. What it does not say of itself is the first one's.
func (q *request) component(p *object, rq *proto.SubmitRequest) (*model.Spec, error) {
	s, err := described(p)
	if err != nil {
		return nil, err
	}
	sp, first := &s.Spec, rq.Spec
	p.ignore("environment", "script", "argv") // the first one's
	if sp.WorkDir = p.str("current_working_directory"); sp.WorkDir == "" {
		sp.WorkDir = first.WorkDir
	} else {
		sp.WorkDir = path.Clean(sp.WorkDir)
	}
	if sp.Name == "" {
		sp.Name = first.Name
	}
	if sp.Account == "" {
		sp.Account = first.Account
	}
	if hasFlag(p, "EXTERNAL_JOB") != (first.More != nil && first.More.Interactive) {
		return nil, &fault{Number: 2189, Text: "Invalid external job",
			Detail: p.path + "flags: all components have the flag EXTERNAL_JOB, or none"}
	}
	if first.More != nil && first.More.Interactive {
		if sp.More == nil {
			sp.More = &s.More
		}
		sp.More.Interactive, sp.StdOut, sp.NoRequeue = true, "/dev/null", true
		sp.More.External = hasFlag(p, "EXTERNAL_JOB")
	}
	sp.Umask, sp.Submit = first.Umask, first.Submit
	q.limitsOf(p)
	return sp, p.top().err
}

// submitJob is POST job/submit.
func submitJob(q *request) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	return q.submit(b, b.str("script"), "jobs", false)
}

// allocateJob is POST job/allocate: a job without a script, which holds its resources until it is ended.
func allocateJob(q *request) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	return q.submit(b, "", "hetjob", true)
}

// submit submits the job of a body, whose components are in the member list.
func (q *request) submit(b *object, script, list string, outside bool) error {
	job, parts := b.object("job"), b.objects(list)
	switch {
	case b.err != nil:
		return b.err
	case job != nil && len(parts) > 0:
		return &fault{Number: 9002, Text: "Invalid job description", Detail: "the body has both job and " + list}
	case job != nil:
		parts = []*object{job}
	case len(parts) == 0:
		return &fault{Number: 9002, Text: "Invalid job description", Detail: "the body has no job"}
	}
	if err := q.as(parts[0]); err != nil {
		return err
	}
	for _, p := range parts {
		clusters, _ := p.list("clusters")
		if err := q.ours(clusters...); err != nil {
			return err
		}
		p.ignore("user_id", "group_id")
	}
	admin := parts[0].str("admin_comment")
	rq, err := q.whole(parts, script, outside)
	if err != nil {
		return err
	}
	if err := q.done(b); err != nil {
		return err
	}
	var reply proto.SubmitReply
	if err := q.ask(proto.KindSubmit, rq, &reply); err != nil {
		return err
	}
	for _, n := range reply.Notes {
		q.warn(n)
	}
	if admin != "" && !rq.TestOnly {
		var done proto.TargetsReply
		if err := q.ask(proto.KindUpdateJob, &proto.UpdateJobRequest{Action: proto.ActUpdate,
			Targets: []model.JobRef{{Job: reply.Job, Task: model.NoTask}},
			Set:     []model.KV{{Key: "AdminComment", Value: admin}}}, &done); err != nil {
			q.warn("admin_comment: " + err.Error())
		} else if len(done.Results) > 0 && done.Results[0].Code != 0 {
			q.warn("admin_comment: " + done.Results[0].Text)
		}
	}
	if rq.TestOnly {
		q.j.Str("job_submit_user_msg", fmt.Sprintf("Job to start at %s using %d processors on nodes %s in partition %s",
			time.UnixMilli(int64(reply.TestStart)).UTC().Format(time.RFC3339), reply.TestCPUs, reply.TestNodes,
			reply.TestPart))
		return nil
	}
	q.j.Num("job_id", int64(reply.Job))
	if !strings.HasSuffix(q.op.Path, "/allocate") {
		q.j.Str("step_id", "batch")
	}
	q.j.Str("job_submit_user_msg", strings.Join(reply.Notes, "\n"))
	return nil
}
