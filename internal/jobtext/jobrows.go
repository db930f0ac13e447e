package jobtext

import (
	"math"
	"slices"

	"gbatch/internal/model"
)

// JobRows decides the rows of a job: one, or one for each of its tasks or partitions.
type JobRows struct {
	View         *JobView
	PerTask      bool           // a row for each task of an array
	PerPartition bool           // a row for each partition of a pending job
	Jobs         []model.JobRef // only these tasks of an array; nil: all
	Partitions   []string       // with PerPartition: only these; nil: all
}

// Each gives the rows of one job. A row is valid until add returns.
func (x *JobRows) Each(j *model.Job, add func(*JobRow)) {
	r := JobRow{Job: j, JobView: x.View, OneTask: model.NoTask}
	if !j.IsArray() {
		r.OneTask = j.Task
		if j.ArrayID == 0 {
			r.OneTask = model.NoTask
		}
		x.perPart(&r, add)
		return
	}
	r.SomeTasks = x.wanted(j)
	if !x.PerTask && (r.SomeTasks.Count() != 1 || len(x.Jobs) == 0) {
		x.perPart(&r, add)
		return
	}
	tasks := r.SomeTasks
	r.SomeTasks = nil
	tasks.Each(func(t int32) bool {
		r.OneTask = t
		x.perPart(&r, add)
		return true
	})
}

// perPart gives one row, or a row for each partition of a pending job.
func (x *JobRows) perPart(r *JobRow, add func(*JobRow)) {
	if !x.PerPartition || r.Run != nil || len(r.Spec.Partitions) < 2 {
		add(r)
		return
	}
	for _, p := range r.Spec.Partitions {
		if len(x.Partitions) > 0 && !slices.Contains(x.Partitions, p) {
			continue
		}
		r.OnePartition = p
		add(r)
	}
	r.OnePartition = ""
}

// wanted gives the tasks of an array's record that were asked for.
func (x *JobRows) wanted(j *model.Job) model.TaskSet {
	var refs []model.JobRef
	for _, r := range x.Jobs {
		if r.Job != j.ArrayID && r.Job != j.ID {
			continue
		}
		if r.Task == model.NoTask && len(r.Tasks) == 0 {
			return j.Tasks
		}
		refs = append(refs, r)
	}
	if len(refs) == 0 {
		return j.Tasks
	}
	var keep []int32
	j.Tasks.Each(func(t int32) bool {
		if slices.ContainsFunc(refs, func(r model.JobRef) bool { return r.Task == t || r.Tasks.Has(t) }) {
			keep = append(keep, t)
		}
		return true
	})
	return model.TaskSetOf(keep)
}

func TaskOrder(task int32) int64 {
	if task == model.NoTask {
		return math.MaxInt32
	}
	return int64(task)
}
