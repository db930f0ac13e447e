package page

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/cli/env"
	jobrequest "gbatch/internal/cli/request"
	"gbatch/internal/cli/script"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// submit.go is the form for a job. Its fields are options of gsubmit, read by gsubmit's own table, and so are the
// #SBATCH lines of the script; a field that is filled in comes before a line.

// field is an option in the form.
type field struct{ Option, Label, Hint, Value string }

// form is the view.
type form struct {
	Fields []field
	Parts  []string
	Part   string
	Dir    string
	Script string
	More   string
	Wrong  string
	Tested string
}

var fields = []field{
	{"job-name", "Name", "the script's first line, otherwise", ""},
	{"gpus", "GPUs", "8, or a100:8", ""},
	{"nodes", "Nodes", "1", ""},
	{"cpus-per-task", "CPUs", "each task, 1", ""},
	{"mem", "Memory", "each node, 64G", ""},
	{"time", "Time limit", "4:00:00", ""},
	{"account", "Account", "your default", ""},
	{"qos", "QOS", "your default", ""},
}

const blankScript = "#!/bin/bash\n\nhostname\n"

// submitForm shows the form.
func submitForm(q *request) (any, error) { return q.form(url.Values{}), nil }

func (q *request) form(set url.Values) *form {
	f := &form{Fields: append([]field(nil), fields...), Script: blankScript, Dir: "/tmp", More: set.Get("options"),
		Part: set.Get("partition")}
	for i := range f.Fields {
		f.Fields[i].Value = set.Get(f.Fields[i].Option)
	}
	if set.Has("script") {
		f.Script = set.Get("script")
	}
	if set.Has("directory") {
		f.Dir = set.Get("directory")
	} else if list, _, _, err := q.jobs(&proto.JobsRequest{Filter: proto.JobFilter{Users: []uint32{q.who.UID},
		States: model.JobStates()}}, 1, nil); err == nil && len(list) == 1 {
		f.Dir = list[0].Spec.WorkDir // where this user works
	}
	var parts proto.PartitionsReply
	if q.ask(proto.KindPartitions, &proto.Empty{}, &parts) == nil { // otherwise there is no choice
		for i, p := range parts.Partitions {
			if !parts.Hides(i) {
				f.Parts = append(f.Parts, p.Name)
			}
		}
	}
	return f
}

// submit takes the form.
func (q *request) submit() {
	set := q.r.PostForm
	rq, err := q.submission(set)
	var reply proto.SubmitReply
	if err == nil {
		rq.TestOnly = set.Has("test")
		err = q.ask(proto.KindSubmit, rq, &reply)
	}
	if err == nil && !rq.TestOnly {
		said := fmt.Sprintf("Job %d is in the queue.", reply.Job)
		if len(reply.Notes) > 0 {
			said += " " + strings.Join(reply.Notes, " ")
		}
		q.tell(fmt.Sprintf("/job/%d", reply.Job), saidParam, said)
		return
	}
	f := q.form(set)
	status := http.StatusOK
	if err != nil {
		f.Wrong, status = env.Text(err), http.StatusUnprocessableEntity
	} else {
		f.Tested = jobrequest.ToStart(&reply)
	}
	v, _ := viewAt("/submit")
	q.show(v, status, f)
}

// submission makes the request of a form.
func (q *request) submission(set url.Values) (*proto.SubmitRequest, error) {
	body := strings.ReplaceAll(set.Get("script"), "\r\n", "\n")
	if err := script.Check([]byte(body), model.MaxFile); err != nil {
		return nil, err
	}
	parsed, err := script.Parse([]byte(body))
	if err != nil {
		return nil, err
	}
	var words []string
	for _, d := range parsed.Directives {
		if d.Het {
			return nil, errors.New(jobrequest.NoHet("hetjob"))
		}
		words = append(words, d.Args...)
	}
	for _, f := range append(fields[:len(fields):len(fields)], field{Option: "partition"}) {
		if v := strings.TrimSpace(set.Get(f.Option)); v != "" {
			words = append(words, "--"+f.Option+"="+v)
		}
	}
	more, err := script.Words(strings.Join(strings.Fields(set.Get("options")), " "))
	if err != nil {
		return nil, err
	}
	s, err := jobrequest.From(append(words, more...), q.moment)
	if err != nil {
		return nil, err
	}
	sp := &s.Spec
	sp.Name = cmp.Or(sp.Name, "page")
	sp.WorkDir = path.Clean(cmp.Or(strings.TrimSpace(set.Get("directory")), "/tmp"))
	if !path.IsAbs(sp.WorkDir) {
		return nil, fmt.Errorf("the directory '%s' has to begin with /", sp.WorkDir)
	}
	sp.Umask = 0o022
	sp.Submit = "page"
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	return &proto.SubmitRequest{RequestID: hex.EncodeToString(id[:]), Spec: sp, Script: []byte(body),
		Env: []byte("PATH=/usr/local/bin:/usr/bin:/bin\x00SLURM_GET_USER_ENV=1\x00")}, nil
}

// moment reads a time as the commands do.
func (q *request) moment(text string) (model.Time, error) {
	if t, ok := ask.ParseMoment(text); ok {
		return t, nil
	}
	t, err := walltime.ParseDate(text, q.at.Now)
	if err != nil {
		return 0, err
	}
	return model.Time(t.UnixMilli()), nil
}
