package jobtext

import (
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/slurmjson"
)

// This file owns a record of accounting as sacct --json has it, with its steps: each member once, for every version.

// RecordWithSteps is a job's record with its steps.
type RecordWithSteps struct {
	*RecordRow
	Script bool            // with a step for the batch script
	Text   string          // of the script; "": it was not asked for, or is not known any more
	Steps  []*model.Record // the others
}

// hetJSON is a component's place in its heterogeneous job.
func hetJSON() slurmjson.Field[RecordWithSteps] {
	type row = RecordWithSteps
	return slurmjson.Field[row]{Name: "het", Fields: []slurmjson.Field[row]{
		{Name: "job_id", Int: func(r *row) int64 {
			if r.Het == nil {
				return 0
			}
			return int64(r.Het.ID)
		}},
		{Name: "job_offset", Num: func(r *row) (int64, bool, bool) {
			if r.Het == nil {
				return 0, false, false
			}
			return int64(r.Het.Offset), true, false
		}},
	}}
}

// RecordJSON is a record's object.
func RecordJSON() []slurmjson.Field[RecordWithSteps] {
	return append(recordJSONToJobID(), recordJSONFromName()...)
}

func recordJSONToJobID() []slurmjson.Field[RecordWithSteps] {
	type row = RecordWithSteps
	type fields = []slurmjson.Field[row]
	return fields{
		{Name: "account", Str: func(r *row) string { return r.Account }},
		{Name: "comment", Fields: fields{
			{Name: "administrator", Str: func(r *row) string { return r.AdminComment }},
			{Name: "job", Str: func(r *row) string { return r.Comment }},
			{Name: "system", Str: func(r *row) string { return r.SystemText() }},
		}},
		{Name: "allocation_nodes", Int: func(r *row) int64 { return int64(r.NumNodes) }},
		{Name: "array", Fields: fields{
			{Name: "job_id", Int: func(r *row) int64 { return int64(r.ArrayID) }},
			{Name: "limits", Fields: fields{{Name: "max", Fields: fields{{Name: "running", Fields: fields{
				{Name: "tasks", Int: func(r *row) int64 { return int64(r.throttle()) }},
			}}}}}},
			{Name: "task_id", Num: func(r *row) (int64, bool, bool) {
				if r.ArrayID == 0 || r.Task == model.NoTask {
					return 0, false, false
				}
				return int64(r.Task), true, false
			}},
			{Name: "task", Str: func(r *row) string { return r.TaskText }},
		}},
		{Name: "association", Fields: fields{
			{Name: "account", Str: func(r *row) string { return r.Account }},
			{Name: "cluster", Str: func(r *row) string { return r.Cluster }},
			{Name: "partition"},
			{Name: "user", Str: func(r *row) string { return r.User }},
			{Name: "id", Type: slurmjson.Integer},
		}},
		{Name: "block"},
		{Name: "cluster", Str: func(r *row) string { return r.Cluster }},
		{Name: "constraints", Str: func(r *row) string { return r.Constraints }},
		{Name: "container", Str: func(r *row) string { return r.Container }},
		recordExit("derived_exit_code", func(r *row) *model.Exit { x := r.Exit.Derived(); return &x }),
		{Name: "time", Fields: fields{
			{Name: "elapsed", Int: func(r *row) int64 { return r.elapsedS() }},
			{Name: "eligible", Int: func(r *row) int64 { return r.Eligible.Seconds() }},
			{Name: "end", Int: func(r *row) int64 { return r.End.Seconds() }},
			{Name: "start", Int: func(r *row) int64 { return r.Start.Seconds() }},
			{Name: "submission", Int: func(r *row) int64 { return r.Submit.Seconds() }},
			{Name: "suspended", Int: func(r *row) int64 { return r.suspendedS() }},
			msField("system", func(r *row) int64 { return r.Exit.SysMS }),
			{Name: "limit", Num: func(r *row) (int64, bool, bool) { return minutes(r.LimitS) }},
			{Name: "planned", Count: func(r *row) int64 { return r.plannedS() }},
			msField("total", func(r *row) int64 { return r.Exit.UserMS + r.Exit.SysMS }),
			msField("user", func(r *row) int64 { return r.Exit.UserMS }),
		}},
		recordExit("exit_code", func(r *row) *model.Exit {
			if r.End == 0 {
				return nil
			}
			return &r.Exit
		}),
		{Name: "extra", In: slurmjson.InNew, Str: func(r *row) string { return r.Extra() }},
		{Name: "failed_node", Str: func(r *row) string { return r.FailedNode }, In: slurmjson.InNew},
		{Name: "flags", List: func(r *row) []string {
			if r.Start != 0 {
				return []string{"STARTED_ON_SCHEDULE", "START_RECEIVED"}
			}
			return []string{"START_RECEIVED"}
		}},
		{Name: "group", Str: func(r *row) string { return r.Group }},
		hetJSON(),
		{Name: "job_id", Int: func(r *row) int64 { return int64(r.Job) }},
	}
}

func recordJSONFromName() []slurmjson.Field[RecordWithSteps] {
	type row = RecordWithSteps
	type fields = []slurmjson.Field[row]
	steps := stepFields()
	return fields{
		{Name: "name", Str: func(r *row) string { return r.Name }},
		{Name: "licenses", Str: func(r *row) string { return r.licenses() }},
		{Name: "mcs", Fields: fields{{Name: "label"}}},
		{Name: "nodes", Str: func(r *row) string { return r.nodeList() }},
		{Name: "partition", Str: func(r *row) string { return r.Partition }},
		{Name: "hold", In: slurmjson.InNew, Bool: func(r *row) bool { return r.State == model.Pending && r.Priority == 0 }},
		{Name: "priority", Count: func(r *row) int64 { return int64(r.Priority) }},
		{Name: "qos", Str: func(r *row) string { return r.QOS }},
		{Name: "qosreq", In: slurmjson.InNew, Str: func(r *row) string { return r.QOS }},
		{Name: "required", Fields: fields{
			{Name: "CPUs", Int: func(r *row) int64 { return r.reqCPUs() }},
			{Name: "memory_per_cpu", Type: slurmjson.Number},
			{Name: "memory_per_node", Count: func(r *row) int64 { return max(0, r.ReqMemMiB) }},
		}},
		{Name: "kill_request_user", Str: func(r *row) string { return r.killerText() }},
		{Name: "reservation", Fields: fields{{Name: "id", Type: slurmjson.Integer},
			{Name: "name", Str: func(r *row) string { return r.Reservation }},
			{Name: "requested", Since: v44, Str: func(r *row) string { return r.Reservation }}}},
		{Name: "segment_size", Since: v44, Type: slurmjson.Integer},
		{Name: "script", In: slurmjson.InNew, Str: func(r *row) string { return r.Text }},
		{Name: "restart_cnt", Int: func(r *row) int64 { return int64(r.Restarts) }},
		{Name: "state", Fields: fields{
			{Name: "current", Words: func(r *row) []string { return []string{r.State.String()} }},
			{Name: "reason", Str: func(r *row) string { return r.WaitedFor() }},
		}},
		{Name: "stdin_expanded", In: slurmjson.InNew, Str: func(r *row) string { return r.whole(r.stdIn()) }},
		{Name: "stdout_expanded", In: slurmjson.InNew, Str: func(r *row) string { return r.whole(r.stdOut()) }},
		{Name: "stderr_expanded", In: slurmjson.InNew, Str: func(r *row) string { return r.whole(r.stdErr()) }},
		{Name: "stderr", Str: func(r *row) string { return r.stdErr() }},
		{Name: "stdin", Str: func(r *row) string { return r.stdIn() }},
		{Name: "stdout", Str: func(r *row) string { return r.stdOut() }},
		slurmjson.ListOf("steps", (*row).each, steps),
		{Name: "submit_line", Str: func(r *row) string { return r.SubmitLine }},
		{Name: "tres", Fields: fields{
			{Name: "allocated", Put: func(w *slurmjson.Writer, name string, r *row) { r.writeTRES(w, name, r.allocated()) }},
			{Name: "requested", Put: func(w *slurmjson.Writer, name string, r *row) { r.writeTRES(w, name, r.wanted()) }},
		}},
		{Name: "used_gres"},
		{Name: "user", Str: func(r *row) string { return r.User }},
		{Name: "wckey", Fields: wckeyJSON()},
		{Name: "working_directory", Str: func(r *row) string { return r.WorkDir }},
	}
}

// wckeyJSON has the key without its mark, which is a flag here.
func wckeyJSON() []slurmjson.Field[RecordWithSteps] {
	return []slurmjson.Field[RecordWithSteps]{
		{Name: "wckey", Str: func(r *RecordWithSteps) string { return model.WCKeyName(r.WCKey) }},
		{Name: "flags", List: func(r *RecordWithSteps) []string {
			if strings.HasPrefix(r.WCKey, model.PresetMark) {
				return []string{"ASSIGNED_DEFAULT"}
			}
			return nil
		}},
	}
}

// each gives the record's steps, the batch step first.
func (r *RecordWithSteps) each(add func(*RecordRow)) {
	if r.Script {
		add(RowOfBatch(r.Record, r.RecordView))
	}
	for _, s := range r.Steps {
		add(RowOfStep(r.Record, s, r.RecordView))
	}
}

// v44 is the version that no command writes, with some members that tell nothing here.
const v44 = "v0.0.44"

// stepFields is a step's object.
func stepFields() []slurmjson.Field[RecordRow] {
	type row = RecordRow
	type fields = []slurmjson.Field[row]
	return fields{
		{Name: "time", Fields: fields{
			{Name: "elapsed", Int: (*row).elapsedS},
			{Name: "end", In: slurmjson.InNew, Time: func(r *row) model.Time { return r.End }},
			{Name: "start", In: slurmjson.InNew, Time: func(r *row) model.Time { return r.Start }},
			{Name: "end", In: slurmjson.InOld, Int: func(r *row) int64 { return r.End.Seconds() }},
			{Name: "start", In: slurmjson.InOld, Int: func(r *row) int64 { return r.Start.Seconds() }},
			{Name: "suspended", Int: (*row).suspendedS},
			msField("system", func(r *row) int64 { return r.Exit.SysMS }),
			{Name: "limit", Since: v44, Type: slurmjson.Number},
			msField("total", func(r *row) int64 { return r.Exit.UserMS + r.Exit.SysMS }),
			msField("user", func(r *row) int64 { return r.Exit.UserMS }),
		}},
		recordExit("exit_code", func(r *row) *model.Exit { return &r.Exit }),
		{Name: "nodes", Fields: fields{
			{Name: "count", Int: func(r *row) int64 { return int64(len(r.stepNodes())) }},
			{Name: "range", Str: (*row).nodeList},
			{Name: "list", List: (*row).stepNodes},
		}},
		{Name: "tasks", Fields: fields{{Name: "count", Int: func(r *row) int64 { return int64(r.tasks()) }}}},
		{Name: "pid"},
		{Name: "CPU", Fields: fields{
			{Name: "requested_frequency", Fields: fields{{Name: "min", Type: slurmjson.Count},
				{Name: "max", Type: slurmjson.Count}}},
			{Name: "governor", Str: func(*row) string { return "0" }},
		}},
		{Name: "kill_request_user"},
		{Name: "state", Words: func(r *row) []string { return []string{r.State.String()} }},
		{Name: "statistics", Fields: fields{
			{Name: "CPU", Fields: fields{{Name: "actual_frequency", Type: slurmjson.Integer}}},
			{Name: "energy", Fields: fields{{Name: "consumed", Count: (*row).energyJ}}},
		}},
		{Name: "step", Fields: fields{
			{Name: "job_id", In: slurmjson.InOld, Int: func(r *row) int64 { return int64(r.Job) }},
			{Name: "id", Str: func(r *row) string { return strconv.FormatUint(uint64(r.Job), 10) + "." + r.StepName() }},
			{Name: "name", Str: func(r *row) string {
				if r.OfStep != nil {
					return r.OfStep.Name
				}
				return "batch"
			}},
			{Name: "stderr", Since: v44}, {Name: "stdin", Since: v44}, {Name: "stdout", Since: v44},
			{Name: "stderr_expanded", Since: v44}, {Name: "stdin_expanded", Since: v44},
			{Name: "stdout_expanded", Since: v44},
		}},
		{Name: "task", Fields: fields{{Name: "distribution", Str: func(r *row) string {
			if r.OfStep != nil && r.OfStep.ID >= 0 {
				return layoutOf(r.OfStep)
			}
			return "Unknown"
		}}}},
		{Name: "tres", Fields: fields{
			{Name: "requested", Put: func(w *slurmjson.Writer, name string, r *row) { r.writeUsage(w, name, inMeasures()) }},
			{Name: "consumed", Put: func(w *slurmjson.Writer, name string, r *row) { r.writeUsage(w, name, outMeasures()) }},
			{Name: "allocated", Put: func(w *slurmjson.Writer, name string, r *row) { r.writeTRES(w, name, r.allocated()) }},
		}},
	}
}

// stepNodes gives the nodes of a step: a script's is one.
func (r *RecordRow) stepNodes() []string {
	if r.OfStep != nil {
		return r.OfStep.Nodes
	}
	return []string{r.nodeList()}
}

func (r *RecordRow) killerText() string {
	by, ok := r.killer()
	if r.State != model.Cancelled || !ok {
		return ""
	}
	return strconv.FormatUint(uint64(by), 10)
}

// killer gives who has cancelled a job or step. A job whose dependency can't come true any more has nobody's number.
func (r *RecordRow) killer() (uid uint32, ok bool) {
	return r.CancelUID, r.Reason != model.ReasonDependencyNeverSatisfied
}

// msField is a span of milliseconds, in two numbers.
func msField[T any](name string, of func(row *T) int64) slurmjson.Field[T] {
	return slurmjson.Field[T]{Name: name, Fields: []slurmjson.Field[T]{
		{Name: "seconds", Int: func(row *T) int64 { return of(row) / 1000 }},
		{Name: "microseconds", Int: func(row *T) int64 { return of(row) % 1000 * 1000 }},
	}}
}

// recordExit is an exit status. The old shape has it as an object too, with a word for status.
func recordExit[T any](name string, of func(row *T) *model.Exit) slurmjson.Field[T] {
	return slurmjson.Field[T]{Name: name,
		Put: func(w *slurmjson.Writer, name string, row *T) { writeRecordExit(w, name, of(row)) }}
}

func writeRecordExit(j *slurmjson.Writer, name string, x *model.Exit) {
	if !j.Old {
		writeExit(j, name, x)
		return
	}
	if x == nil {
		x = &model.Exit{}
	}
	status := "SUCCESS"
	switch {
	case x.Signal != 0:
		status = "SIGNALED"
	case x.Code != 0:
		status = "ERROR"
	}
	j.Open(name, '{')
	j.Str("status", status)
	j.Num("return_code", int64(x.Code))
	if x.Signal != 0 {
		j.Open("signal", '{')
		j.Num("signal_id", int64(x.Signal))
		j.Str("name", signalName(int64(x.Signal)))
		j.Close('}')
	}
	j.Close('}')
}

// writeUsage writes a step's measured usage in milliseconds, bytes, joules and percent: on the nodes with the most and
// the least, the mean of its tasks, and in all. Slurm has the TRESUsageIn fields under "requested".
func (r *RecordRow) writeUsage(j *slurmjson.Writer, name string, list []measure) {
	j.Open(name, '{')
	u := r.used()
	write := func(name string, get func(m measure) (v int64, at *model.NodeUsage, known bool)) {
		j.Open(name, '[')
		for _, m := range list {
			if u == nil {
				break
			}
			v, at, known := get(m)
			if !known {
				continue
			}
			typ, sub, _ := strings.Cut(m.tres, "/")
			v *= max(m.unit, 1)
			j.Open("", '{')
			j.Str("type", typ)
			j.Str("name", sub)
			j.Num("id", m.id)
			j.Num("count", v)
			if at != nil {
				j.Str("node", at.Node)
				task := int64(0)
				if at.Tasks > 1 { // which of them is not known
					task = -1
				}
				j.Num("task", task)
			}
			j.Close('}')
		}
		j.Close(']')
	}
	write("max", func(m measure) (int64, *model.NodeUsage, bool) { v, at := u.most(m); return v, at, at != nil })
	write("min", func(m measure) (int64, *model.NodeUsage, bool) { v, at := u.least(m); return v, at, at != nil })
	write("average", func(m measure) (int64, *model.NodeUsage, bool) { v, ok := u.mean(m); return v, nil, ok })
	write("total", func(m measure) (int64, *model.NodeUsage, bool) { v, ok := u.total(m); return v, nil, ok })
	j.Close('}')
}
