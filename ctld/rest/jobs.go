package rest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/ask"
	"gbatch/internal/cli/env"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"

	"gbatch/internal/slurmjson"
)

// jobs.go is about jobs: lists, one, ending, changing.

var (
	jobFields      = jobtext.JobMembers()
	blankJobs      = blank("jobs", "last_backfill", "last_update")
	blankKilled    = blank("status")
	jobStatesUpper = statesByName()
)

// jobRef reads a job's number as the commands take it: 7, 7_3, 7_[1-3].
func jobRef(text string) (model.JobRef, error) {
	ref, err := env.ParseJobRef(text)
	if err != nil {
		return ref, &fault{Number: errBadJob, Text: proto.Text(proto.CodeInvalidJob), Detail: err.Error(),
			Status: http.StatusNotFound}
	}
	return ref, nil
}

func jobRefs(list []string) (out []model.JobRef, err error) {
	if len(list) > proto.MaxTargets {
		return nil, &fault{Number: errQuery, Detail: fmt.Sprintf("%d jobs are named, at most %d are possible", len(list),
			proto.MaxTargets)}
	}
	for _, text := range list {
		ref, err := jobRef(text)
		if err != nil {
			return nil, err
		}
		out = append(out, ref)
	}
	return out, nil
}

func statesByName() map[string]model.JobState {
	out := map[string]model.JobState{}
	for _, s := range model.JobStates() {
		out[strings.ToUpper(s.String())] = s
	}
	out[model.ExpeditingText], out[model.SpecialExitText] = model.Expediting, model.SpecialExit
	return out
}

// parseStates reads states by Slurm's names.
func parseStates(list []string) (out []model.JobState, err error) {
	for _, text := range list {
		s, ok := jobStatesUpper[strings.ToUpper(text)]
		if !ok {
			return nil, &fault{Number: errQuery, Detail: "'" + text + "' is no state of a job",
				Status: http.StatusUnprocessableEntity}
		}
		out = append(out, s)
	}
	return out, nil
}

// each writes the jobs that match.
func (q *request) each(j *slurmjson.Writer, rq *proto.JobsRequest) (n int, err error) {
	rows := &jobtext.JobRows{Jobs: rq.Filter.Jobs, View: &jobtext.JobView{Times: jobtext.Times{Now: time.Now()},
		Cluster: q.facts.Config().Cluster, Rules: &ask.Rulebook{}}}
	if q.rowSink != nil && len(rq.Filter.Jobs) == 0 {
		return 0, q.eachGroup(j, rq, rows)
	}
	seen := map[model.JobID]bool{}
	err = q.stream(proto.KindJobs, rq, func(part []byte) error {
		var chunk proto.JobsChunk
		if err := proto.Decode(part, &chunk); err != nil {
			return err
		}
		rows.View.Rules.Add(chunk.Rules)
		for _, job := range chunk.Jobs {
			rows.View.At = chunk.Now
			if len(rq.Filter.Jobs) > 1 && seen[job.ID] {
				continue
			}
			seen[job.ID] = len(rq.Filter.Jobs) > 1
			rows.Each(job, func(r *jobtext.JobRow) {
				slurmjson.Write(j, "", jobFields, r)
				q.wrote(n)
				n++
			})
		}
		j.Flush(false)
		return q.ctx.Err()
	})
	return n, err
}

// eachGroup is each for a list that equal requests share, with rows that were made before.
func (q *request) eachGroup(j *slurmjson.Writer, rq *proto.JobsRequest, rows *jobtext.JobRows) error {
	g := &rowGroups{q: q, j: j, rows: rows}
	err := q.stream(proto.KindJobs, rq, func(part []byte) error {
		var chunk proto.RawJobs
		if err := proto.Decode(part, &chunk); err != nil {
			return err
		}
		if err := g.part(&chunk); err != nil {
			return err
		}
		for _, job := range chunk.Jobs {
			if err := g.add(job); err != nil {
				return err
			}
		}
		return q.ctx.Err()
	})
	if err != nil {
		return err
	}
	return g.end()
}

// listJobs is GET jobs. The filters are not in the specification; clients send them all the same.
func listJobs(q *request) error {
	if err := q.since(); err != nil {
		return err
	}
	rq := &proto.JobsRequest{}
	f := &rq.Filter
	f.States = model.JobStates()
	f.Accounts, f.Partitions, f.QOS = q.words("account"), q.words("partition"), q.words("qos")
	f.Names, f.Reservations = q.words("job_name"), q.words("reservation")
	var err error
	if f.Nodes, err = hosts(q.words("node")); err != nil {
		return err
	}
	if f.Jobs, err = jobRefs(q.words("job_id", "job_ids")); err != nil {
		return err
	}
	if list := q.words("state", "job_state"); len(list) > 0 {
		if f.States, err = parseStates(list); err != nil {
			return err
		}
	}
	if f.Users, err = q.users(q.words("users", "user", "user_name")); err != nil {
		return err
	}
	words, err := proto.Encode(rq) // not the query's: equal questions are asked in many ways
	if err != nil {
		return err
	}
	key := "jobs " + string(words)
	if err := q.tagged(key); err != nil {
		return err
	}
	return q.shared(key, func(own *request, j *slurmjson.Writer) error {
		j.Open("jobs", '[')
		_, err := own.each(j, rq)
		j.Close(']')
		own.planned(j)
		own.updated(j)
		return err
	})
}

// users reads names of users, or numbers: as in Slurm, digits are a number unless a user has that name. One who is
// unknown has no jobs; a number may be of a user who is gone.
func (q *request) users(list []string) (out []uint32, err error) {
	for _, name := range list {
		u, err := q.s.o.Cluster.User(q.ctx, name)
		if n, bad := strconv.ParseUint(name, 10, 32); err != nil && bad == nil {
			out = append(out, uint32(n))
			continue
		}
		if err != nil {
			q.warn(err.Error())
			out = append(out, model.NoID)
			continue
		}
		out = append(out, u.UID)
	}
	return out, nil
}

// getJob is GET job/{job_id}.
func getJob(q *request) error {
	ref, err := jobRef(q.name)
	if err != nil {
		return err
	}
	if err := q.since(); err != nil {
		return err
	}
	rq := &proto.JobsRequest{}
	rq.Filter.Jobs, rq.Filter.States = []model.JobRef{ref}, model.JobStates()
	q.j.Open("jobs", '[')
	n, err := q.each(q.j, rq)
	q.j.Close(']')
	q.planned(q.j)
	q.updated(q.j)
	if err == nil && n == 0 {
		err = &fault{Number: errBadJob, Text: proto.Text(proto.CodeInvalidJob), Detail: "Unable to query JobId=" + q.name,
			Status: http.StatusNotFound}
	}
	return err
}

// jobsState is GET jobs/state: numbers and states only.
func jobsState(q *request) error {
	refs, err := jobRefs(q.words("job_id"))
	if err != nil {
		return err
	}
	rq := &proto.JobsRequest{}
	rq.Filter.Jobs, rq.Filter.States = refs, model.JobStates()
	q.j.Open("jobs", '[')
	fields := slices.DeleteFunc(slices.Clone(jobFields), func(f slurmjson.Field[jobtext.JobRow]) bool {
		switch f.Name {
		case "job_id", "job_state", "array_job_id", "array_task_id", "array_task_string", "step_id":
			return false
		}
		return true
	})
	rows := &jobtext.JobRows{Jobs: refs, View: &jobtext.JobView{Rules: &ask.Rulebook{}}}
	err = q.stream(proto.KindJobs, rq, func(part []byte) error {
		var chunk proto.JobsChunk
		if err := proto.Decode(part, &chunk); err != nil {
			return err
		}
		for _, job := range chunk.Jobs {
			rows.Each(job, func(r *jobtext.JobRow) { slurmjson.Write(q.j, "", fields, r) })
		}
		q.j.Flush(false)
		return q.ctx.Err()
	})
	q.j.Close(']')
	q.planned(q.j)
	q.updated(q.j)
	return err
}

// signalOf reads a signal as clients write it: 9, KILL, SIGKILL.
func signalOf(text string) (int32, error) {
	if text == "" {
		return 0, nil
	}
	n, err := env.ParseSignal(text)
	if err != nil {
		return 0, &fault{Number: errQuery, Detail: err.Error()}
	}
	return n, nil
}

// cancelOf makes the request for flags of kill_jobs_msg.
func cancelOf(q *request, refs []model.JobRef, signal string, flags []string) (*proto.CancelRequest, error) {
	n, err := signalOf(signal)
	if err != nil {
		return nil, err
	}
	rq := &proto.CancelRequest{Targets: refs, Signal: n}
	for _, flag := range flags {
		switch strings.ToUpper(flag) {
		case "BATCH_JOB":
			rq.Batch = true
		case "FULL_JOB":
			rq.Full = true
		case "CRON_JOBS":
			rq.Cron = true
		case "ARRAY_TASK", "FULL_STEPS_ONLY", "WHOLE_HETEROGENEOUS_JOB", "HURRY", "OUT_OF_MEMORY", "NO_SIBLING_JOBS",
			"REMOVE_DEPENDENCY", "NO_JOB_SIGNALING", "FEDERATION_REQUEUE", "NO_CRON_JOBS", "VERBOSE", "":
			// they ask for what is done anyway, or for what there is not here
		default:
			return nil, &fault{Number: errQuery, Detail: "'" + flag + "' is no flag of a cancellation"}
		}
	}
	const term, kill = 15, 9
	if !rq.Batch && !rq.Full && (n == kill || n == term && signal == "") {
		rq.Signal, rq.Kill = 0, n == kill
	}
	return rq, nil
}

// writeKilled writes what became of each target.
func (q *request) writeKilled(results []proto.TargetResult) {
	q.j.Open("status", '[')
	for i := range results {
		r := &results[i]
		q.j.Open("", '{')
		q.j.Open("error", '{')
		number, text := 0, ""
		if r.Code != 0 {
			number, text = proto.ErrorNumbers[r.Code], proto.Text(r.Code)
			if number == 0 {
				number = errUnexpected
			}
			if text == "" {
				text = words[number]
			}
		} else {
			text = "No error"
		}
		q.j.Str("string", text)
		q.j.Num("code", int64(number))
		q.j.Str("message", r.Text)
		q.j.Close('}')
		q.j.Str("step_id", jobtext.RefText(r.Ref))
		q.j.Count("job_id", int64(r.Ref.Job))
		q.j.Open("federation", '{')
		q.j.Str("sibling", "")
		q.j.Close('}')
		q.j.Close('}')
	}
	q.j.Close(']')
}

// deleteJob is DELETE job/{job_id}?signal=&flags=.
func deleteJob(q *request) error {
	ref, err := jobRef(q.name)
	if err != nil {
		return err
	}
	rq, err := cancelOf(q, []model.JobRef{ref}, q.get("signal"), q.words("flags"))
	if err != nil {
		return err
	}
	var reply proto.TargetsReply
	if err := q.ask(rq.Kind(), rq, &reply); err != nil {
		return err
	}
	for i := range reply.Results {
		if r := &reply.Results[i]; r.Code != 0 && r.Code != proto.CodeAlreadyDone {
			q.faults = append(q.faults, asFault(rpcError(r), q.op.id(q.ver)))
		} else if r.Code != 0 {
			q.warn(r.Text)
		}
	}
	q.writeKilled(reply.Results)
	return nil
}

// deleteJobs is DELETE jobs, with a body of kill_jobs_msg.
func deleteJobs(q *request) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	list, _ := b.list("jobs")
	refs, err := jobRefs(list)
	if err != nil {
		return err
	}
	flags, _ := b.list("flags")
	rq, err := cancelOf(q, refs, b.str("signal"), flags)
	if err != nil {
		return err
	}
	f := &rq.Filter
	for _, x := range []struct {
		name string
		to   *[]string
	}{{"account", &f.Accounts}, {"job_name", &f.Names}, {"partition", &f.Partitions}, {"qos", &f.QOS},
		{"reservation", &f.Reservations}, {"wckey", &f.WCKeys}} {
		if v := b.str(x.name); v != "" {
			*x.to = []string{v}
		}
	}
	nodes, _ := b.list("nodes")
	if f.Nodes, err = hosts(nodes); err != nil {
		return err
	}
	states, _ := b.list("job_state")
	if f.States, err = parseStates(states); err != nil {
		return err
	}
	var users []string
	for _, name := range []string{"user_id", "user_name"} {
		if v := b.str(name); v != "" {
			users = append(users, v)
		}
	}
	if f.Users, err = q.users(users); err != nil {
		return err
	}
	if err := b.top().err; err != nil {
		return err
	}
	if names := b.unread(); len(names) > 0 { // a filter that is spelled wrong must not select everything
		return &fault{Number: errQuery, Detail: strings.Join(names[:min(len(names), maxOdd)], ", ") +
			" is no member of a cancellation"}
	}
	filtered := len(f.Accounts)+len(f.Names)+len(f.Partitions)+len(f.QOS)+len(f.Reservations)+len(f.Nodes)+
		len(f.States)+len(f.Users)+len(f.WCKeys) > 0
	if len(refs) == 0 && !filtered {
		return &fault{Number: 2177, Text: "Invalid job signaling request",
			Detail: "name jobs, or what they have in common: an account, user, partition, state ..."}
	}
	var reply proto.TargetsReply
	if err := q.ask(rq.Kind(), rq, &reply); err != nil {
		return err
	}
	q.writeKilled(reply.Results)
	return nil
}
