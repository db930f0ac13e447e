package jobevents

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gbatch/internal/hostlist"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Event is what the program reads. Times are seconds since 1970, 0 for none.
type Event struct {
	Version int    `json:"version"` // 1
	ID      string `json:"id"`      // INDEX.N, the place in the cluster's log: a repeated event has it again
	Event   string `json:"event"`
	Time    string `json:"time"` // RFC 3339, UTC
	Cluster string `json:"cluster"`

	Job       model.JobID `json:"job_id"`
	JobText   string      `json:"job"` // as users write it: 12_3
	ArrayJob  model.JobID `json:"array_job_id,omitempty"`
	ArrayTask *int32      `json:"array_task_id,omitempty"`
	Attempt   uint32      `json:"attempt"`
	Restarts  uint32      `json:"restarts"`
	Name      string      `json:"job_name"`
	User      string      `json:"user"`
	UID       uint32      `json:"uid"`
	Account   string      `json:"account"`
	Partition string      `json:"partition"`
	QOS       string      `json:"qos"`
	State     string      `json:"state"`
	Reason    string      `json:"reason"` // a sentence, if there is one
	Nodes     string      `json:"nodes"`  // a host list
	Count     int         `json:"num_nodes"`
	CPUs      int         `json:"cpus"`
	GPUs      int         `json:"gpus"`
	Submit    int64       `json:"submit_time"`
	Start     int64       `json:"start_time"`
	End       int64       `json:"end_time"`
	ExitCode  *int32      `json:"exit_code,omitempty"` // of end and requeue
	Signal    int32       `json:"signal,omitempty"`
	Comment   string      `json:"comment,omitempty"`
	WCKey     string      `json:"wckey,omitempty"`

	By    *Preemptor `json:"preempted_by,omitempty"` // of preempt, if the job is known
	Mode  string     `json:"mode,omitempty"`         // of preempt: requeue, cancel or suspend
	Grace int64      `json:"grace,omitempty"`        // of preempt: seconds to SIGKILL, if it has a grace of its own
	Were  string     `json:"nodes_before,omitempty"` // of resize

	job *model.Job
	at  state.Place
}

// Preemptor is the job for which another one gives way.
type Preemptor struct {
	Job     model.JobID `json:"job_id"`
	Name    string      `json:"job_name,omitempty"`
	User    string      `json:"user,omitempty"`
	Account string      `json:"account,omitempty"`
	QOS     string      `json:"qos,omitempty"`

	// PrivateData hides it from the user of the job that gives way: a program that tells users leaves it out
	Hidden bool `json:"hidden_from_user,omitempty"`
}

// kindOf gives the event that a happening is; "": none.
func kindOf(h *state.Happening) string {
	j, was := h.Job, h.Was
	switch {
	case j == nil || was == nil:
		return "" // its submission, or none of a job
	case j.State.Finished():
		return model.JobEnd
	case j.State == model.Pending && was.State != model.Pending:
		return model.JobRequeue
	case h.For != 0 || h.Preempted():
		return model.JobPreempt
	case was.State == model.Pending && j.State.HasResources():
		return model.JobStart
	case h.Resized():
		return model.JobResize
	case j.State == model.Suspended && was.State != model.Suspended && j.Run.Sleep != model.SleepsInTurn:
		return model.JobSuspend
	case was.State == model.Suspended && j.State == model.Running && was.Run.Sleep != model.SleepsInTurn:
		return model.JobResume
	}
	return ""
}

// of makes the event of a happening, if it is one of the kinds that are told.
func of(v *state.View, h *state.Happening, kinds []string) *Event {
	kind := kindOf(h)
	if kind == "" || len(kinds) > 0 && !slices.Contains(kinds, kind) {
		return nil
	}
	j := h.Job
	e := &Event{Version: 1, ID: fmt.Sprintf("%d.%d", h.Index, h.N), Event: kind,
		Time:    time.UnixMilli(int64(h.At)).UTC().Format("2006-01-02T15:04:05.000Z"),
		Cluster: v.Config().Cluster, Job: j.ID, JobText: jobtext.JobID(j), Attempt: j.Attempt, Restarts: uint32(j.Restarts),
		Name: j.Spec.Name, User: j.Spec.User, UID: j.Spec.UID, Account: j.Spec.Account, QOS: j.Spec.QOS,
		WCKey:     j.Spec.WCKey,
		Partition: strings.Join(j.Spec.Partitions, ","), State: j.State.String(), Reason: j.Why, Submit: j.Submit.Seconds(),
		Comment: j.Spec.Comment, job: j, at: h.Place}
	if j.ArrayID != 0 && j.Task != model.NoTask {
		task := int32(j.Task)
		e.ArrayJob, e.ArrayTask = j.ArrayID, &task
	}
	ran := j
	if kind == model.JobRequeue { // what has ended is its last attempt
		e.job = h.Was
		if ran = h.Was; ran.Run != nil && ran.Run.StopFor != 0 {
			e.By = preemptor(v, j, ran.Run.StopFor)
		}
	}
	if r := ran.Run; r != nil {
		e.Partition, e.Start = r.Partition, r.Start.Seconds()
		if r.Alloc != nil {
			e.Nodes, e.Count = hostlist.CompressInOrder(r.Alloc.NodeNames()), len(r.Alloc.Nodes)
			for i := range r.Alloc.Nodes {
				e.CPUs += r.Alloc.Nodes[i].CPUs.Count()
				e.GPUs += r.Alloc.Nodes[i].Units(model.GPUName).Count()
			}
		}
	}
	if end := j.End; end != nil && (kind == model.JobEnd || kind == model.JobRequeue) {
		e.End, e.ExitCode, e.Signal = end.At.Seconds(), &end.Exit.Code, end.Exit.Signal
	}
	switch kind {
	case model.JobPreempt:
		by := h.For
		switch {
		case j.State == model.Suspended:
			e.Mode = "suspend"
		default:
			if e.Mode = "requeue"; j.Run.Stop == model.StopPreemptCancel || !j.Spec.Requeue && !j.Recurs() {
				e.Mode = "cancel"
			}
			by, e.Grace = max(by, j.Run.StopFor), j.Run.GraceS
		}
		e.By = preemptor(v, j, by)
	case model.JobEnd:
		if j.State == model.Preempted && h.Was.Run != nil {
			e.By = preemptor(v, j, h.Was.Run.StopFor)
		}
	case model.JobResize:
		e.Were = hostlist.CompressInOrder(h.Was.Run.Alloc.NodeNames())
	}
	return e
}

// preemptor gives the job for which another one gives way; nil: there is none.
func preemptor(v *state.View, gives *model.Job, id model.JobID) *Preemptor {
	if id == 0 {
		return nil
	}
	p, by := &Preemptor{Job: id}, v.Job(id)
	if by != nil {
		p.Name, p.User, p.Account, p.QOS = by.Spec.Name, by.Spec.User, by.Spec.Account, by.Spec.QOS
	}
	p.Hidden = slices.Contains(v.Config().Params.PrivateData, "jobs") && (by == nil || by.Spec.UID != gives.Spec.UID)
	return p
}

// env gives the variables besides those that all programs of the controller have about a job.
func (e *Event) env() []string {
	out := []string{"GBATCH_EVENT=" + e.Event, "GBATCH_EVENT_ID=" + e.ID, "SLURM_JOB_STATE=" + e.State,
		"SLURM_SCRIPT_CONTEXT=job_event"}
	if e.By != nil {
		out = append(out, fmt.Sprintf("GBATCH_PREEMPTED_BY=%d", e.By.Job))
		if e.By.Hidden {
			out = append(out, "GBATCH_PREEMPTED_BY_HIDDEN=1")
		}
	}
	if e.ExitCode != nil {
		out = append(out, fmt.Sprintf("SLURM_JOB_EXIT_CODE2=%d:%d", *e.ExitCode, e.Signal))
	}
	return out
}
