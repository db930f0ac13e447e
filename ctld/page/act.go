package page

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// act.go carries out buttons: each is the request that a command makes, and the controller says whether it may be.

// deeds of jobs: a button's name, what is done, and what is said of it.
var deeds = map[string]struct {
	action proto.JobAction
	done   string
}{
	"hold":    {proto.ActHold, "is held"},
	"release": {proto.ActRelease, "is released"},
	"requeue": {proto.ActRequeue, "goes back into the queue"},
	"suspend": {proto.ActSuspend, "is suspended"},
	"resume":  {proto.ActResume, "goes on"},
	"top":     {proto.ActTop, "is the first of yours"},
}

// maxActs bounds the jobs of one button.
const maxActs = 200

// act does what a button says, and goes back to the page where it was.
func (q *request) act() {
	f := q.r.PostForm
	back := local(f.Get("back"))
	said, err := q.do(f)
	if q.r.Header.Get(wordHeader) != "" { // the script shows it where the button is
		out := map[string]string{"said": said}
		if err != nil {
			out = map[string]string{"wrong": env.Text(err)}
		}
		q.json(out)
		return
	}
	if err != nil {
		q.tell(back, wrongParam, env.Text(err))
		return
	}
	q.tell(back, saidParam, said)
}

// do carries out one form, and says what was done.
func (q *request) do(f url.Values) (string, error) {
	switch what := f.Get("do"); what {
	case "node":
		return q.nodeDeed(f)
	default:
		return q.jobDeed(what, f)
	}
}

// jobDeed changes jobs.
func (q *request) jobDeed(what string, f url.Values) (string, error) {
	ids := f["job"]
	if len(ids) == 0 {
		return "", fmt.Errorf("no job is chosen")
	}
	if len(ids) > maxActs {
		return "", fmt.Errorf("%d jobs are chosen, at most %d are possible at once", len(ids), maxActs)
	}
	var refs []model.JobRef
	for _, id := range ids {
		ref, err := env.ParseJobRef(id)
		if err != nil {
			return "", err
		}
		refs = append(refs, ref)
	}
	var reply proto.TargetsReply
	done := ""
	switch d, known := deeds[what]; {
	case what == "cancel":
		rq := &proto.CancelRequest{Targets: refs}
		done = "is cancelled"
		if err := q.ask(rq.Kind(), rq, &reply); err != nil {
			return "", err
		}
	case what == "extend":
		more := strings.TrimSpace(f.Get("more"))
		if _, _, err := walltime.ParseLimit(more); err != nil {
			return "", fmt.Errorf("'%s' is no time: write minutes, or hours:minutes:seconds", more)
		}
		done = "gets " + more + " more"
		if n, err := strconv.Atoi(more); err == nil {
			done = "gets " + plural(n, "minute", "minutes") + " more"
		}
		if err := q.ask(proto.KindUpdateJob, &proto.UpdateJobRequest{Action: proto.ActUpdate, Targets: refs,
			Set: []model.KV{{Key: "TimeLimit", Value: "+" + more}}}, &reply); err != nil {
			return "", err
		}
	case known:
		done = d.done
		if err := q.ask(proto.KindUpdateJob, &proto.UpdateJobRequest{Action: d.action, Targets: refs}, &reply); err != nil {
			return "", err
		}
	default:
		return "", fmt.Errorf("there is no button '%s'", what)
	}
	return targets(reply.Results, refs, done)
}

// targets says what became of each job.
func targets(results []proto.TargetResult, refs []model.JobRef, done string) (string, error) {
	var wrong []string
	for i := range results {
		r := &results[i]
		if r.Code == 0 {
			continue
		}
		text := proto.Text(r.Code)
		if r.Text != "" {
			text = r.Text
		}
		wrong = append(wrong, "Job "+jobtext.RefText(r.Ref)+": "+text)
	}
	if len(wrong) > 0 {
		return "", fmt.Errorf("%s", strings.Join(wrong[:min(len(wrong), 3)], "; "))
	}
	if len(refs) == 1 {
		return "Job " + jobtext.RefText(refs[0]) + " " + done + ".", nil
	}
	return fmt.Sprintf("%d jobs: each %s.", len(refs), done), nil
}

// nodeDeed takes nodes or their GPUs out of service, or back.
func (q *request) nodeDeed(f url.Values) (string, error) {
	name, state, reason, gres := f.Get("node"), f.Get("state"), strings.TrimSpace(f.Get("reason")), f.Get("gres")
	set := []model.KV{{Key: "State", Value: state}}
	if reason != "" {
		set = append(set, model.KV{Key: "Reason", Value: reason})
	}
	what := name
	if gres != "" {
		set, what = append([]model.KV{{Key: "Gres", Value: gres}}, set...), gres+" of "+name
	}
	if err := q.ask(proto.KindUpdateNode, &proto.UpdateNodeRequest{Names: []string{name}, Set: set},
		&proto.Empty{}); err != nil {
		return "", err
	}
	if state == "resume" {
		return what + " is back in service.", nil
	}
	return what + " gets no new jobs.", nil
}
