package jobtext

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"gbatch/internal/format"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
	"gbatch/internal/walltime"
)

// StepName gives a step's part of an id.
func StepName(step int32) string {
	return proto.StepText(step)
}

// SortSteps puts the steps that have names, such as the batch step of a record that was imported, before the others, as
// sacct does. gdbd gives them in the order of its keys, which are not signed.
func SortSteps(steps []*model.Record) {
	if slices.ContainsFunc(steps, func(r *model.Record) bool { return r.Step.ID < 0 }) {
		slices.SortStableFunc(steps, func(x, y *model.Record) int { return cmp.Compare(x.Step.ID, y.Step.ID) })
	}
}

// StepRow is one running step in a table.
type StepRow struct {
	*proto.RunningStep
	*JobView
}

func (s *StepRow) elapsed() int64 { return s.Step.ElapsedS(s.At) }

// StepID writes a step's id as users know it: 12.0, 12_3.batch.
func StepID(s *proto.RunningStep) string {
	id := strconv.FormatUint(uint64(s.Job), 10)
	if s.ArrayID != 0 && s.Task != model.NoTask {
		id = strconv.FormatUint(uint64(s.ArrayID), 10) + "_" + strconv.FormatInt(int64(s.Task), 10)
	}
	if s.Het != nil {
		id = s.Het.Name()
	}
	return id + "." + StepName(s.Step.ID)
}

func stepLimit(s *proto.RunningStep) string {
	if s.LimitS >= model.Unlimited {
		return "UNLIMITED"
	}
	return walltime.Short(s.LimitS)
}

// StepLanguage has squeue's fields of a step.
func StepLanguage() format.Language[StepRow] {
	text := func(letter byte, name, heading string, get func(s *StepRow) string) format.Field[StepRow] {
		return format.Field[StepRow]{Letter: letter, Name: name, Heading: heading, Get: get}
	}
	num := func(letter byte, name, heading string, get func(s *StepRow) int64) format.Field[StepRow] {
		return format.Field[StepRow]{Letter: letter, Name: name, Heading: heading,
			Append: func(b []byte, s *StepRow) []byte { return strconv.AppendInt(b, get(s), 10) }}
	}
	return format.Language[StepRow]{Noun: "job step", Fields: []format.Field[StepRow]{
		num('A', "NumTasks", "TASKS", func(s *StepRow) int64 { return int64(s.Step.Tasks) }),
		text('b', "tres-per-node", "TRES_PER_NODE", func(s *StepRow) string {
			if s.Step.ID < 0 {
				return "(null)" // the batch shell is no step that asks for any
			}
			return StepGres(&s.Step)
		}),
		text('i', "StepID", "STEPID", func(s *StepRow) string { return StepID(s.RunningStep) }),
		text('j', "StepName", "NAME", func(s *StepRow) string { return s.Step.Name }),
		text('l', "TimeLimit", "TIME_LIMIT", func(s *StepRow) string { return stepLimit(s.RunningStep) }),
		{Letter: 'M', Name: "TimeUsed", Heading: "TIME",
			Append: func(b []byte, s *StepRow) []byte { return appendShort(b, s.elapsed()) }},
		{Letter: 'N', Name: "Nodes", Heading: "NODELIST", Whole: true,
			Get: func(s *StepRow) string { return hostlist.CompressInOrder(s.Step.Nodes) }},
		text('P', "Partition", "PARTITION", func(s *StepRow) string { return s.Partition }),
		{Letter: 'S', Name: "StartTime", Heading: "START_TIME",
			Append: func(b []byte, s *StepRow) []byte { return s.Append(b, s.Step.Start, "N/A") }},
		text('u', "UserName", "USER", func(s *StepRow) string { return s.User }),
		num('U', "UserID", "USER", func(s *StepRow) int64 { return int64(s.UID) }),
		text(0, "StepState", "STATE", func(*StepRow) string { return "RUNNING" }),
		text(0, "Account", "ACCOUNT", func(s *StepRow) string { return orNull(s.Account) }),
		num(0, "NumCPUs", "CPUS", func(s *StepRow) int64 { return int64(s.Step.CPUs) }),
		num(0, "NumNodes", "NODES", func(s *StepRow) int64 { return int64(len(s.Step.Nodes)) }),
		num(0, "ArrayJobID", "ARRAY_JOB_ID", func(s *StepRow) int64 { return int64(cmp.Or(s.ArrayID, s.Job)) }),
		text(0, "ArrayTaskID", "ARRAY_TASK_ID", func(s *StepRow) string {
			if s.ArrayID == 0 {
				return "N/A"
			}
			return strconv.Itoa(int(s.Task))
		}),
		text(0, "Network", "NETWORK", func(*StepRow) string { return "(null)" }),
		num(0, "JobID", "JOBID", func(s *StepRow) int64 { return int64(s.Job) }),
		text(0, "Name", "NAME", func(s *StepRow) string { return s.Step.Name }),
	}}
}

// ShowStep gives a running step as scontrol show step does.
func ShowStep(s *proto.RunningStep, at *Times) *KeyValues {
	r := &KeyValues{}
	st := &s.Step
	limit := "UNLIMITED"
	if s.LimitS < model.Unlimited {
		limit = walltime.Elapsed(s.LimitS)
	}
	r.line(KV("StepId", StepID(s)), KV("UserId", s.UID), KV("StartTime", at.Stamp(st.Start, "Unknown")),
		KV("TimeLimit", limit))
	r.line(KV("State", "RUNNING"), KV("Partition", s.Partition), KV("NodeList", hostlist.CompressInOrder(st.Nodes)))
	r.line(KV("Nodes", len(st.Nodes)), KV("CPUs", st.CPUs), KV("Tasks", st.Tasks), KV("Name", st.Name),
		KV("Network", "(null)"))
	r.line(KV("TRES", stepTRES(st)))
	r.line(KV("ResvPorts", "(null)"))
	r.line(KV("CPUFreqReq", "Default"))
	r.line(KV("SrunHost:Pid", fmt.Sprintf("%s:%d", s.Host, s.PID)))
	if st.Container != "" {
		r.line(KV("Container", st.Container))
	}
	if st.Submit != "" {
		r.line(KV("SubmitLine", st.Submit))
	}
	return r
}

// StepJSON is the object of a running step, in the list of scontrol show steps --json.
func StepJSON() []slurmjson.Field[StepRow] {
	type row = StepRow
	type field = slurmjson.Field[row]
	text := func(name string, get func(s *row) string) field { return field{Name: name, Str: get} }
	num := func(name string, get func(s *row) int64) field { return field{Name: name, Int: get} }
	return []field{
		{Name: "id", Fields: []field{
			num("job_id", func(s *row) int64 { return int64(s.Job) }),
			text("step_id", func(s *row) string { return StepName(s.Step.ID) }),
		}},
		{Name: "array", Fields: []field{
			num("job_id", func(s *row) int64 { return int64(s.ArrayID) }),
			{Name: "task_id", Num: func(s *row) (int64, bool, bool) {
				return int64(s.Task), s.ArrayID != 0 && s.Task != model.NoTask, false
			}},
		}},
		text("name", func(s *row) string { return s.Step.Name }),
		{Name: "state", Words: func(*row) []string { return []string{"RUNNING"} }},
		text("cluster", func(s *row) string { return s.Cluster }),
		text("partition", func(s *row) string { return s.Partition }),
		text("account", func(s *row) string { return s.Account }),
		text("user", func(s *row) string { return s.User }),
		num("user_id", func(s *row) int64 { return int64(s.UID) }),
		text("nodes", func(s *row) string { return hostlist.CompressInOrder(s.Step.Nodes) }),
		num("node_count", func(s *row) int64 { return int64(len(s.Step.Nodes)) }),
		num("number_cpus", func(s *row) int64 { return int64(s.Step.CPUs) }),
		num("number_tasks", func(s *row) int64 { return int64(s.Step.Tasks) }),
		{Name: "start_time", Time: func(s *row) model.Time { return s.Step.Start }},
		num("run_time", (*row).elapsed),
		{Name: "time_limit", Num: func(s *row) (int64, bool, bool) {
			return s.LimitS / 60, s.LimitS < model.Unlimited, s.LimitS >= model.Unlimited
		}},
		text("tres", func(s *row) string { return stepTRES(&s.Step) }),
		text("container", func(s *row) string { return s.Step.Container }),
		text("submit_line", func(s *row) string { return s.Step.Submit }),
		{Name: "srun", Fields: []field{
			text("host", func(s *row) string { return s.Host }),
			num("pid", func(s *row) int64 { return int64(s.PID) }),
		}},
	}
}
